"""What every rule is given: the context `ctx`, and the tools to write kernels and calls with.

A rule (`frontend/rules`) takes a `Lowering` and the values of a node's arguments, and returns the node's value. This
package knows no rule and imports none; `frontend/lower` walks the graph and chooses the rules. In reading order:

- `values.py`: what a node stands for (a view of a storage, a number, a `ComplexPair`), and torch's type promotion;
- `kernel_builder.py`: `KernelBuilder`, one kernel under construction, and `KernelValue`, arithmetic in its body;
- `lowering_state.py`: `LoweringState`, the program so far, which is all that a rule may change;
- `lowering.py`: `Lowering`, the context: metadata of the current node, new storages, kernels, calls, symbols, notes;
- `reduction_kernels.py`: stores a reduction;
- `complex_pairs.py`: complex tensors as two real tensors, and in the memory that torch expects;
- `size_requirements.py`: checks of sizes and indices that only the call can make;
- `overwriting.py`: whether a result may be written over an argument that nothing reads any more;
- `extern_calls.py`: calls of operators that have no rule, or whose rule cannot be used;
- `rule_transaction.py`: runs a rule and keeps or undoes its work as a whole.

Laws: a rule changes `ctx.state` and nothing else. A rule that returns NotImplemented or raises leaves no trace. A view
in `ctx.state` is of one version of its storage; each write makes the next version.
"""
