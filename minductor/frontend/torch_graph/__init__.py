"""What happens to torch's graphs before they are captured: decomposition, corrections, and the split for training.

Dynamo's graph comes in. `driver.py` hands it to AOTAutograd together with the functions here, and AOTAutograd hands
back one ATen graph for inference, or a forward and a backward graph for training.

- `result_trees.py`: compiles graphs whose result is not a flat tuple.
- `shared_inputs.py`: checks inputs that share memory, which torch does not guard.
- `decompositions.py`: the decomposition table for AOTAutograd.
- `split_joint_graph.py`: the partitioner; it calls the four files below in this order.
- `decompose_norms.py`: decomposes norms so that the backward can recompute their results.
- `equality_gradients.py`: keeps values that gradients compare for equality the same in both halves.
- `joint_views.py`: which nodes of a joint graph share memory.
- `recompute_rstd.py`: recomputes rstd of layer norms in the backward.
- `forward_nodes.py`: names the forward node of each node of a backward graph.
- `control_deps.py`: the public `minductor.control_deps`, which orders computations explicitly.

Laws: a graph keeps its values, dtypes, sizes and strides; a rewrite that cannot keep them leaves the graph alone.
"""
