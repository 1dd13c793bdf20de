"""The stage `lower`: a captured graph becomes a program.

- `lower.py`: `lower` walks the nodes, chooses a rule for each (`frontend/rules`) and runs it with the context of
  `frontend/lowering_context`;
- `symbol_definitions.py`: puts the definitions of symbols, and the checks of facts about them, among the nodes.

Takes a `Graph` and an `Env`, gives a `Program`. Before it run the graph passes (`frontend/graph_passes`), which
`pipeline.py: GRAPH_PASSES` lists.
"""
