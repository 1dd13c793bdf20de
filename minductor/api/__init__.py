"""The public functions: compile_only, explain, to_fx, export.

- `compile_only.py`: compiles a function for a GPU that need not be in this machine.
- `explain.py`: shows what each stage made of a function; the command `minductor explain` and its `--check`.
- `to_fx.py`: an exported program as a torch.fx graph of kernels.
- `export.py`: an exported program as a package file; `runtime/package/` loads it.
- `isolation.py`: a compile that Dynamo's state of earlier calls does not reach.

README.md says which of them run the user's function.
"""
