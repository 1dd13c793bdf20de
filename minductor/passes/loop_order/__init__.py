"""The stage `loop_order`: a second round of fusion, of kernels that match only with other loops.

Takes the program that `fuse` gives, and gives one with fewer kernels. `loop_order.py` holds the stage and the forms of
a pair that are tried: axes merged, loops split where those of the other kernel end, short loops unrolled. The round
itself, the refusals and the laws are those of `passes/rewriting/greedy_fusion.py` and `join_kernels.py`. On a GPU,
`whole_concat.py` then makes one kernel of those that store slices of a concatenation which are not aligned.

Laws: it never undoes a fusion, and changes no kernel that it does not fuse. Thresholds: `MAX_COPIES` and
`MAX_ACCESS_PAIRS` in `loop_order.py`. `options.fuse` and `options.loop_order` switch it off. The user sees the same
notes as of `fuse`, with "loop_order" as their stage.
"""
