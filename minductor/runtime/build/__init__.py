"""Machine code from generated text, and what must be known of the machine for that.

The input is C++ units, or a module of Triton kernels with their launches. The output is a shared object, or a
KernelFacts for each kernel: its assembly, its binary, registers and spilled bytes.

- `probe.py`: the processor, its caches and its compilers, found without running anything.
- `toolchain.py`: runs g++ and reports a failed unit with the generated line and the user's line.
- `pool.py`: worker processes for jobs in Python.
- `triton_jobs.py`: what a worker does with a Triton kernel: compile it for a GPU, or interpret one launch of it.

Laws:

- Only `triton_jobs.py` imports Triton, and only in a worker.
- Without a C++ compiler, `toolchain.py` raises CompilerNotFound. Triton kernels do not need one.
- What `probe.py` finds decides flags and keys, but never the text of a kernel.
"""
