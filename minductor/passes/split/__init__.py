"""The stage `split`: cuts reductions and scans whose rows are too few for the machine, or too long for one program.

Takes the program that `loop_order` gives, and gives one in which such a kernel is several: a kernel that reduces each
part of a row, one that joins the parts, and one for what the kernel does with the row behind the reduction. A scan
becomes a kernel for the totals of blocks, one that scans the totals, and one that scans each block on top of its start.
Of a kernel that sums rows and columns, each part has whole rows, and partial sums of its rows for each column.

- `split.py`: the stage, and whether a kernel is cut: its seconds whole are compared with those of its pieces;
- `wanted_cut.py`: in which parts a kernel can be cut;
- `rewriting/welford.py` and `rewriting/online.py`: two passes over a row that one can do, since a row that is cut stays
  in no cache. An online softmax computes the maximum and the sum of a part that a program holds one after the other;
- `pieces.py`: the kernels that one kernel becomes; `scan_pieces.py`: what they compute of a scan.

Laws: values change by the order of additions and by these two algorithms only. The cut depends on the kernel, the hints
and the target only, so a sum has the same bits in every call. Reductions are not cut for a CPU, where threads share the
parts of a row within one kernel; scans are, since no loop shares them.
Matrix products, scatters, scans by a product of floats, scans whose length no number of blocks divides, and kernels
with other reductions over different axes stay whole.

The user sees a `NodeNote("split", ...)` for each kernel that is cut, and for each that was weighed and stays whole,
with the figures that decided, through `explain` and `MINDUCTOR_TRACE=2`.
"""
