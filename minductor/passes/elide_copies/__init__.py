"""The stage `elide_copies`: `out=` calls write where a kernel would copy their results.

Takes the program after inlining; gives it without kernels that only copy the result of an `out=` call, for example into
a slice of a concatenation or into an input that the user writes to. `elide_copies.py` is the stage.

Laws: values do not change, and no operator gets a target that it would fill through a copy of its own. No thresholds.
`options.fuse` switches the stage off, and a program of several devices stays as it is. The user sees
`MergedKernel("elide_copies", ...)` notes, through `explain` and `MINDUCTOR_TRACE=2`.
"""
