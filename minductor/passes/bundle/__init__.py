"""The stage `bundle`: which kernels that do the same to different tensors share one launch.

Takes a tiled program and gives one with fewer launches. `bundle.py` holds the stage; `ir/program/bundled.py` takes such
a kernel apart again, for codegen and the reference.

Laws: no kernel of a bundle depends on another one of it, so the parts may run in any order. Parts share no axis. Bits
do not change. The prices are those of `cost/launch_seconds.py`; the limits at the top of `bundle.py` are facts that are
no seconds of the call. `options.fuse` switches the stage off. The user sees `MergedKernel("bundle", ...)` notes, and a
`FusionRefusal("bundle", ...)` for a kernel that stays apart from the latest bundle of the same operators, with the
seconds of both ways where they decided.
"""
