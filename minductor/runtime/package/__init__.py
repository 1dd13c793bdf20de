"""Loads and calls packages, the files that `minductor.export` writes.

The input is the path of a package. The output is a callable with the exported program's arguments and results.

- `package.py`: `load` checks the package against this machine, maps its weights and loads its code.
- `package_gpu.py`: the part of a package for the GPU of this process. `gpu_binaries.py`: its machine code as entries.
- `archive.py`: the file: a zip with a seal over every byte.
- `package_call_check.py`: compares the arguments of each call with what was exported.
- `pytree_json.py`: the structure of arguments and results as JSON.

`ir/artefact/manifest.py` describes what a package contains.

Laws:

- Nothing is read from a file before its seal has been checked. Loading runs native code: load only what you trust.
- A call that does not match raises WrongInput before anything of the program runs.
- No part of the compiler is imported.
"""
