"""The public functions beside torch.compile: each compiles a program ahead of time or shows how it is compiled.

- `explain.py`: compiles a function and shows the program after each stage. Runs the compiled function once.
- `compile_only.py`: compiles a function for a GPU that need not be in this machine. Runs the function once, in eager.
- `to_fx.py`: compiles a program into a torch.fx graph of kernels. Traces the program and does not run it.
- `export.py`: writes a program into a package file that `minductor.load` runs. Traces the program and does not run it.
  `export_gpu.py` makes the part for GPUs.
- `isolation.py`: lets `explain` and `compile_only` compile as if nothing had been compiled before.
"""
