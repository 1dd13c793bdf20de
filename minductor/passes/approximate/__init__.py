"""The stage `approximate`: fast functions on GPUs where 16-bit results hide their errors.

Takes a program of scheduled kernels; gives it with other names of some ops, and nothing else changed. `approximate.py`
is the stage. It runs behind `schedule`, since steps of recipes look for the exact names.

Laws: a value that is stored with more than 16 bits, that a caller sees so, or that decides anything stays exact. No
options and no notes, and one threshold: how large a constant is beside which erf and tanh may be coarse.
"""
