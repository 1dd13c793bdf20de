"""From torch's graph to a Program: everything that knows torch and runs before the passes.

In the order of a compile:

- `torch_graph/`: decomposes torch's graphs, checks inputs that share memory, splits training into forward and backward.
- `quirks/`: where torch's trace differs from eager, or between versions of torch.
- `exported/`: reads a program of torch.export as one ATen graph.
- `capture/`: reads the ATen graph as plain data.
- `graph_passes/`: rewrites that graph.
- `lower/`: the stage `lower`, which walks the graph and chooses a rule for each node.
- `rules/`: how each ATen operator becomes kernels.
- `lowering_context/`: what every rule is given.

Law: nothing here imports a pass, a code generator or the runtime.
"""
