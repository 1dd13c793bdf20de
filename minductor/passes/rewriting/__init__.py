"""Changes of kernels and programs that more than one stage makes. A stage may import these; it imports no other stage.

- `greedy_fusion.py`: one round of fusion over a program, for `fuse` and `loop_order`. It says which pairs are tried, in
  which order, and which fusions would keep too many bytes alive;
- `join_kernels.py`: makes one kernel of two, or says why not. All laws of a fused kernel are here, and the comparison
  of what it costs (`minductor/cost`) with what it saves;
- `stored_values.py`: the value that a load would give after a store, for code that goes on without the load;
- `concat_slices.py`: the slices of a concatenation and the kernels that store them;
- `kernel_axes.py`: a kernel over fewer, longer axes;
- `online.py`: the maximum of a row and the sum of a softmax in one pass over it;
- `welford.py`: the mean of a row and the sum of squared distances from it in one pass over it;
- `prune.py`: dead ops of a body, dead nodes and buffers of a program.

Laws: a rewriting computes the same values and gives back the same object if it changes nothing. Thresholds are named
constants, with their units, at the top of `greedy_fusion.py` and `join_kernels.py`. The user sees refusals of fusion as
`FusionRefusal` notes, through `explain`, `Report.why_not` and `MINDUCTOR_TRACE=2`.
"""
