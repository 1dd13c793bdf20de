"""Faults that tests must see, and circumstances that must not matter."""
