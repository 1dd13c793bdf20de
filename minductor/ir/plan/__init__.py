"""The plan: one call of a compiled graph as a sequence of lines, and the lives of its storages."""
