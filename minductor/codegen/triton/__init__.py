"""Kernels in Triton for GPUs, and how they are launched.

The input is a Plan whose schedules have grid loops. The output is two units: the module `kernels.py` with one function
for each kernel, and `launches.json` (`ir/artefact/launch_metadata.py`).

Read the files in this order:

- `triton_kernels.py`: the entry point `triton`. It writes the module and collects the launches.
- `triton_launch.py`: the tile of a kernel, its block sizes, its number of programs and its parameters.
- `triton_tile.py`: the statements of one kernel: the loops of a tile, loads, stores and reductions.
- `triton_edges.py`: as `triton_tile.py`, for rows that are held in an aligned bulk and edges.
- `triton_values.py`: the expressions for the operations of a body.
- `triton_dot.py`: kernels with matrix products: which values have rows, columns or the inner axis.
- `triton_access.py`, `triton_blocks.py`: loads and stores by boxes of digits, block pointers and tensor descriptors.
- `triton_math.py`: functions that Triton lacks; a module contains those that it calls.

Laws:

- A program computes one tile: a block of each grid axis. Block sizes are parameters, so that one text serves several
  launches.
- A value has the dimensions along which its operation varies, and is broadcast where an operation needs more.
- Lanes beyond the end of an axis hold arbitrary values. They are never stored, and the identity replaces them before a
  reduction.
- The module is imported by workers only. Everybody else reads `launches.json`.
"""
