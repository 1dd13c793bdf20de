"""Rewrites of torch's graphs: a table of rows, each a pattern, its conditions and its replacement.

- `rewrite_row.py`: `Rewrite`, the row; `Match`, what a row found; `Site`, what a row sees and writes; `RewriteNote`.
- `rewrite_table.py`: REWRITES, all rows in the order in which they apply, and which of them the options leave on.
- `apply_rewrites.py`: tries rows at their anchors, and checks each replacement by fake tensors.
- `layout_changes.py`: follows other strides through a graph, and copies what the caller sees to the old strides.
- `operator_calls.py`: one name for all spellings of an operator, in Dynamo's graphs and in ATen graphs.
- `traced_values.py`: the traced value of a call, also of oneDNN's operators, which torch does not trace.
- `product_calls.py`: what rows of matrix products share: factors, sizes as numbers, biases, weights of linear layers.
- `strided_readers.py`: whether the readers of a value take other strides, or would need a copy.

`attention.py` is a row with two files of its own: `score_steps.py` reads scores, `attention_mask.py` writes the mask.
Each other file holds one row, or a family of rows. `driver_tasks/graph_rewrites.py` applies the levels: "torch" to
Dynamo's graph, where autograd still differentiates the replacement; "joint" to the joint graph of training; "aten" to
each forward and inference graph; "frozen" to an inference graph whose weights are constants (`frontend/freezing/`).

A rewritten graph is captured like any other, so the store's key covers what rewrites did. `minductor explain` and
MINDUCTOR_TRACE=2 list what was applied and what nearly was; `Report.rewrites` counts it.
"""
