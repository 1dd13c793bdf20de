"""Turns texts into functions that run: the store, compilers, launches, measuring, packages and the reference.

- `store/`: artefacts on disk, under a key.
- `build/`: g++, worker processes for Triton, and facts about this machine.
- `launch/`: from stored files to the function that Dynamo calls.
- `tune/`: chooses between launches by measuring them.
- `package/`: loads and calls what `minductor.export` wrote.
- `reference/`: a slow evaluator of programs, against which tests compare.
- `user_paths.py`: checks paths that users give.

Nothing here knows the stages of the compiler. A package is loaded without `frontend/`, `passes/` and `codegen/`.
"""
