"""The stage `inline`: which producers are recomputed in their consumers, so that no buffer holds their result.

Takes a program with one kernel for each computed buffer and without dead code; gives a program with fewer kernels.
`inline.py` is the stage. It decides for each candidate, last one first, and then builds the bodies of the consumers.

Laws: values do not change. Reductions, scans, scatters, results that the caller or an extern reads, and storages with
several writers are never recomputed. A load under a mask stays under it. An index check that can fail is never lost.

Thresholds are the constants at the top of `inline.py` (`MAX_OPS`, `MAX_BUFFERS`, `MAX_COPIES`) and `LAUNCH` and `CHEAP`
of `cost/footprint.py`; `_is_worth_recomputing` compares the costs. `options.fuse` switches the stage off. The user
sees `MergedKernel("inline", ...)` notes for producers that moved, and `FusionRefusal("inline", ...)` notes for those
that did not, through `explain` and `MINDUCTOR_TRACE=2`.
"""
