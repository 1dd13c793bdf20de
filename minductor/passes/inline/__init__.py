"""The stage `inline`: which producers are recomputed in their consumers, so that no buffer holds their result.

Takes a program with one kernel for each computed buffer and without dead code; gives a program with fewer kernels.
`inline.py` is the stage. It decides for each candidate, last one first, and then builds the bodies of the consumers.

Laws: values do not change. Reductions, scans, scatters, results that the caller or an extern reads, and storages with
several writers are never recomputed. A load under a mask stays under it. An index check that can fail is never lost.

What takes less time, recomputing or storing, `cost/kernel_seconds.py` says; the constants at the top of `inline.py`
limit the size of a body. `options.fuse` switches the stage off. The user sees `MergedKernel("inline", ...)` notes for
producers that moved, and `FusionRefusal("inline", ...)` notes for those that did not, with the seconds of both ways,
through `explain` and `MINDUCTOR_TRACE=2`.
"""
