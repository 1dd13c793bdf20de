"""The data between the stages of the compiler: programs, plans, reports, and what codegen gives to the build.

- `program/`: a graph as kernels and calls. Stage `lower` makes it; the passes change it.
- `plan/`: one call of the graph as a sequence of lines. Stage `memory` makes it from a program; wrappers print it.
- `report/`: the counts and reasons that users see.
- `artefact/`: generated texts, and the manifest of a package.

Everything here is plain, frozen data: no torch, no files, no global state. Programs and plans can be printed and read
back, and each has a verifier that checks its rules. `minductor.ir` is public for backends (docs/backends.md).
"""
