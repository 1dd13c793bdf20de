"""The stage `split_concat`: a concatenation with one consumer is never stored.

Takes the program that `inline` gives; gives it with one copy of such a consumer for each slice of the concatenation,
which computes the elements of this slice itself. `fuse` may fuse the copies again. `split_concat.py` is the stage.

Laws: values do not change; what the caller or several nodes read is stored. The price decides
(`cost/kernel_seconds.py`). `options.fuse` switches the stage off, and a program of several devices stays as it is. The
user sees `MergedKernel("split_concat", ...)` notes, and a `FusionRefusal` with the seconds of both ways where they
decided against it, through `explain` and `MINDUCTOR_TRACE=2`.
"""
