"""Freezing: what an inference graph computes from its weights alone is computed once, outside of the graph.

With options={"freeze": True} the driver takes each inference graph through these steps:

- `frozen_nodes.py` finds the weights (inputs that AOTAutograd calls static and that the graph does not write), and the
  nodes that depend on nothing else;
- the rewrites of the levels "aten" and "frozen" run, which know those nodes (`frontend/rewrites/`);
- `split_frozen_graph.py` cuts the graph in two: `fold`, which computes values from the weights, and `main`, which takes
  these values as further inputs behind the graph's own.

`main` is compiled and stored as any graph: its text has layouts and no numbers, so that layers which differ in weights
only share one compiled graph. `runtime/launch/frozen_call.py` runs `fold` in eager once for each set of weights.
"""
