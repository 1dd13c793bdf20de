"""Picks one of several ways to do the same, by measuring."""
