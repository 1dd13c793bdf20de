"""Reads an ATen graph of torch.fx into plain data.

A GraphModule from AOTAutograd comes in; a `captured_graph.Graph` goes out, whose text is part of the store's key.

- `captured_graph.py`: the data: graph, nodes, inputs, metadata of tensors.
- `argument_trees.py`: functions of the nested tuples that arguments and metadata are.
- `capture.py`: reads the GraphModule.
- `user_places.py`: the user's line, module path and forward node of a node, from torch's metadata.
- `symbolic_sizes.py`: turns torch's symbolic sizes (SymPy) into index expressions, and back for guards.
- `size_formulas.py`: sizes, strides and counts of elements, each a number or an expression.
- `schemas.py`: what torch's schemas say about an operator: what it writes, aliases and draws at random.

Laws: capturing changes no graph, and equal programs have equal texts.
"""
