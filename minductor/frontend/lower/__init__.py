"""The stage `lower`: a captured graph becomes a program.

Takes a `Graph` and an `Env`, gives a `Program`. What runs, and in which order, is in `pipeline.py`: GRAPH_PASSES
rewrite the graph (`frontend/graph_passes`), then come LOWERING_STEPS:

- `lower.py`: `lower_nodes` walks the nodes, chooses a rule for each (`frontend/rules`) and runs it with the context of
  `frontend/lowering_context`;
- `deliver_outputs.py`: the outputs, in memory of torch's kind;
- `symbol_definitions.py`: the definitions of symbols, and the checks of facts about them, among the nodes.

No reduction or scan is cut here, and no order of loops is chosen. What differs by target or device is in this table; a
house test holds it against the code.

| file | what differs |
|---|---|
| `rule_transaction.py` | an operator becomes a call if its kernels need a function of `Target.lacks` |
| `lowering.py` | kernels take tensors of the target's device, 8-bit floats if `Target.has_fp8`; `Env.uses_hints` |
| `matmul.py` | on a GPU a kernel computes some matrix products; on a CPU the library computes all |
| `reduce.py` | on a CPU a variance is summed in float64, as in eager |
| `batch.py` | on a CPU channels that lie innermost, and that only the call counts, are summed before their group |
| `scan.py` | on a GPU a scan of one element is the element; on a CPU eager adds it to 0, so that -0.0 becomes 0.0 |
| `pointwise.py` | on a GPU relu of -0.0 is 0.0; on a CPU it is -0.0, as in eager |
| `share_row_interpolation.py` | on a CPU rows of an interpolation that are read several times are computed once |
| `window.py` | on a CPU many taps are summed by dimension, and ATen finds maxima's gradients and unequal windows |
| `grid_sample.py` | on a CPU ATen computes samples of float32 and float64 |
| `move_scalars.py` | a 0-dim tensor of the CPU is copied to the GPU that computes with it |
"""
