"""Rewrites of a captured graph, before it is lowered."""
