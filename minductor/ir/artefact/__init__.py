"""The data that codegen makes from a plan, between generation and loading.

- `source.py`: the generated texts of a graph: units with kernels, and the wrapper.
- `launch_metadata.py`: how each Triton kernel is launched, as the file `launches.json`.
- `winner.py`: what autotuning chose for a kernel, as the file `winner.json`.
- `fx_graph.py`: the wrapper in the language "fx": a torch.fx graph as data, without torch.
- `manifest.py`: the manifest of an exported package.
"""
