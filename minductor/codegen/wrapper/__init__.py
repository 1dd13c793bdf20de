"""Wrappers, which run one call of a graph: in Python, in C++, and as a torch.fx graph."""
