"""The stage `inline`: moves producers into their consumers."""
