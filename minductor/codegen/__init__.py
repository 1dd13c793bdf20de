"""Programs and plans as text: kernels in C++ or Triton, and the wrapper that calls them.

The input is a Plan whose kernels have schedules, and an Env. The output is text (`ir/artefact/source.py`). Nothing here
runs a compiler, reads a clock or knows the machine: equal plans give equal texts.

- `operator_spelling.py`: how each pointwise operator is written in C++, Triton and Python.
- `cpp/`: kernels for CPUs.
- `triton/`: kernels for GPUs, and the JSON that says how they are launched.
- `wrapper/`: the function that runs one call of the graph, in Python, in C++ or as a torch.fx graph.

A generator prints what the schedule says and decides nothing about loops, blocks or memory: these decisions are made in
`passes/`. `runtime/` builds and runs the texts.
"""
