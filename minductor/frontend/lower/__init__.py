"""The stage `lower`: from a captured graph to a program."""
