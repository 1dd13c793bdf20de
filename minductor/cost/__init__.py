"""What a kernel costs on a target, in seconds.

Before a kernel has a schedule, for `inline`, `fuse`, `loop_order` and `split`:
- `kernel_seconds.py`: which of several ways to compute the same takes less time, and why;
- `shape.py`: what decides that of a kernel, as plain numbers; also the shape of a kernel with another one inlined;
- `but_for_names.py`: what decides that, whatever the names of the storages;
- `shape_cpu.py`, `shape_gpu.py`: the seconds of a shape.

Once it has one, for `schedule` and `bundle`:
- `seconds.py`: the time of a kernel on a GPU, from the numbers of `Target.machine`;
- `cpu_seconds.py`: the same on a CPU, from the numbers of `Target.cpu`, with one thread and with sixteen;
- `registers.py`: which values need registers of a GPU at once, for both;
- `launch_seconds.py`: the time of several kernels in one launch, and whether that is worth it.

All take kernels, the table of buffers and the Target. Sizes that are not known are estimated
(`core/expressions/hints.py`). Nothing is measured: a price is the same on each machine.
"""
