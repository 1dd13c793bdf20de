"""The stage `memory`: when each storage is allocated, shared and freed. It turns a program into a Plan.

Takes an ordered program with scheduled kernels; gives the Plan that the wrappers print (`ir/plan`). Files in reading
order:
- `memory.py`: the stage. It writes the lines of one call, node by node, and the definitions of the kernels;
- `reuse.py`: which results are written in place over an operand, which get the storage of a dead buffer, and when each
  storage is freed;
- `scope_lines.py`: the lines that mark partitions and the current GPU.

Laws: an in-place write is legal if every read of the old value is of the element that is being written. A storage that
the caller can see is never reused. A plan needs at most the peak that its program has in this order without reuse.

Thresholds: `SMALL_BYTES` and `MAX_NODES_KEPT` in `reuse.py`. `options.inplace` and `options.reuse_storage` switch the
two kinds of sharing off. The stage writes no notes; the user sees the lives of storages in the report and in `explain`.
"""
