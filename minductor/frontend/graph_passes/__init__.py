"""Rewrites of a captured graph before it is lowered, and questions about it.

Each pass is a function `(graph, env) -> graph`, which gives the same object if there is nothing to rewrite. The stage
`lower` begins with them, in the order of GRAPH_PASSES in `minductor/pipeline.py`. A trace and `explain` show those that
change the graph, under names such as `lower.fold_copies`. They are:

- `move_scalars.py`: copies tensors of one element from the CPU to the GPU that uses them;
- `inline_control_deps.py`: replaces a call of `minductor_control_deps` by the operations that it orders;
- `fold_copies.py`: writes a value into a window directly, without a copy of it in the window's layout;
- `share_windows.py`: lets equal views of one tensor be one node;
- `select_real_imag.py`: turns `view_as_real(z)[..., 0]` into `real(z)`;
- `share_row_interpolation.py`: interpolates each image row once in bilinear resizing;
- `dead_code.py`: drops nodes that nothing uses.

`retarget.py` moves a graph traced on the CPU to a GPU, where attention has other operators (`gpu_attention.py`);
`placement` calls it before the store is asked. `last_uses.py` rewrites nothing: it says where each value is used last.
"""
