"""The stage `bundle`: which kernels that do the same to different tensors share one launch.

Takes a tiled program and gives one with fewer launches. `bundle.py` holds the stage; `ir/program/bundled.py` takes such
a kernel apart again, for codegen and the reference.

Laws: no kernel of a bundle depends on another one of it, so the parts may run in any order. Parts share no axis. Bits
do not change. Thresholds are the constants at the top of `bundle.py`. `options.fuse` switches the stage off. The user
sees `MergedKernel("bundle", ...)` notes; kernels that are not bundled get no note.
"""
