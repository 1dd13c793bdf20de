"""The stage `fuse`: which kernels become one.

Takes the program that `inline` gives, in an order that respects its dependencies; gives one with fewer kernels in such
an order. `fuse.py` is the stage, one round of fusion. Read then, in `passes/rewriting`:
- `greedy_fusion.py`: which pairs of kernels are tried and in which order, and which would keep too many bytes alive;
- `join_kernels.py`: how two kernels become one, the laws of a fused kernel, and whether it pays (by
  `cost/kernel_seconds.py`).

Laws: values do not change, bits of 16-bit floats included (`rewriting/stored_values.py`). A fusion never makes a cycle
(`analysis/acyclic.py`), and keeps the order of reads and writes (`analysis/dependencies.py`).

Limits are named constants at the top of these two files.
`options.fuse` switches the stage off; `options.max_live_bytes` bounds the intermediate results that a kernel may need.
The user sees `MergedKernel("fuse", ...)` notes for fused kernels, and for each pair that was tried a
`FusionRefusal("fuse", ...)` with the reason and the seconds of both ways, through `explain`, `Report.why_not` and
`MINDUCTOR_TRACE=2`.
"""
