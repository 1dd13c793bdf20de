"""The stage `order`: puts nodes in an order that needs little memory."""
