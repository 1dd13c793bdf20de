"""What a kernel costs on a target: in bytes for fusion and inlining, in seconds for the choice of a schedule.

- `traffic.py`: the bytes of all loads and stores; accesses that are not contiguous along the best axis count double;
- `footprint.py`: what comes on top: rows read again because they left the cache, values that exceed the registers of a
  thread, operations that are repeated; and what the launch of one more kernel costs (`LAUNCH`);
- `seconds.py`: the time of a kernel that has a schedule for a GPU, from the numbers of `Target.machine`;
- `cpu_seconds.py`: the same for a CPU, from the numbers of `Target.cpu`, with one thread and with sixteen;
- `products.py`: whether a fused kernel still is a matrix product, and how often it would compute its operands.

All functions take kernels, the table of buffers and the Target, and give a number, or a reason in words. Sizes that are
not known are estimated (`core/expressions/hints.py`). Nothing is measured: a price is the same on each machine.
"""
