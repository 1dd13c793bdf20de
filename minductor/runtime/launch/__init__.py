"""From binaries to functions that run a graph."""
