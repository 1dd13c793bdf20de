"""From a graph that torch traced to a Program: everything that knows torch's graphs and ATen's operators.

A compile passes through these packages in this order:

- `torch_graph/`: corrects and decomposes torch's graphs, and splits the joint graph into forward and backward;
- `exported/`: reads a torch.export.ExportedProgram in place of a graph that Dynamo traced;
- `capture/`: reads the ATen graph into plain data, a `Graph`, whose text is part of the store's key;
- `graph_passes/`: rewrites the `Graph`;
- `lower/`: lowers the nodes to kernels and extern calls, by the rules in `rules/` and the tools in `lowering_context/`.

`quirks/` holds what torch traces otherwise than eager computes it, and what differs between torch's versions.
"""
