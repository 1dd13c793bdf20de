"""The stage `remove_dead_code`: ops, kernels and calls whose results nothing uses go.

Takes the program that `lower` makes; gives it without dead ops, dead nodes, and buffers that only those used.
`remove_dead_code.py` is the stage; `rewriting/prune.py` says what is dead.

Laws: effects stay, as do writes to storages that the caller sees, and an order that the user asked for. No option
switches it off, no thresholds, no notes. Later stages count uses and may rely on it: a load of a dead op is no use.
"""
