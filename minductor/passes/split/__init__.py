"""The stage `split`: cuts reductions whose rows are too few for the programs that a GPU runs at once.

Takes the program that `loop_order` gives, and gives one in which such a kernel is several: a kernel that reduces each
part of a row, one that joins the parts, and one for what the kernel does with the row behind the reduction.

- `split.py`: the stage;
- `wanted_cut.py`: whether a kernel is cut, and in which parts;
- `welford.py`, and `rewriting/online.py`: two passes over a row that one can do, since a row that is cut stays in no
  cache;
- `pieces.py`: the kernels that one kernel becomes.

Laws: values change by the order of additions and by these two algorithms only. The cut depends on the kernel, the hints
and the target only, so a sum has the same bits in every call. Nothing is cut for a CPU, where threads share the parts
of a row within one kernel.
Matrix products, scans, scatters and kernels with reductions over different axes stay whole.

Thresholds are named constants with their units at the top of `wanted_cut.py`. The user sees a `NodeNote("split", ...)`
for each kernel that is cut, with the figures that decided, through `explain` and `MINDUCTOR_TRACE=2`.
"""
