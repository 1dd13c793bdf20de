"""The middle of the compiler: stages that turn a program of many small kernels into a plan of few scheduled ones.

Each stage is a package, and one function in the file of the same name: `stage(program, env) -> program`, the last one
`-> plan`. `PIPELINE` in `minductor/pipeline.py` lists them in the order in which they run:
- `remove_dead_code`: ops, kernels and calls whose results nothing uses go;
- `inline`: producers that are recomputed in their consumers, so that no buffer holds their result;
- `split_concat`: consumers of concatenations, split at the seams, so that no buffer holds the concatenation;
- `elide_copies`: `out=` calls write where kernels would copy their results;
- `fuse`: which kernels become one;
- `loop_order`: fusion of kernels that match only with split, merged or unrolled loops;
- `split`: long reductions in parts, which keep all of a GPU busy;
- `order`: in which order nodes run, for a low peak of memory;
- `merge_axes`: fewer and longer axes for each kernel, and on a CPU one for each part that an index tells apart;
- `schedule`: the loop nest of each kernel on a CPU, its tiles on a GPU, and matrix products by a library;
- `bundle`: kernels that do the same to different tensors, or join the results of another kernel, as one launch;
- `access`: how each load and store addresses memory;
- `partition`: fewer runs of nodes for CUDA graphs;
- `memory`: allocation, reuse and freeing of storages, as a Plan.

`rewriting` holds the changes of programs that several stages make. Questions that several stages ask are in
`minductor/analysis`, prices in `minductor/cost`.

Laws: no stage imports another one, logs, or reads the environment. A stage gives back the same object if it changes
nothing. Its decisions are notes of the program (`MergedKernel`, `FusionRefusal`, `NodeNote`), which the user reads
through `explain` and the trace. Numbers that decide are named constants with units at the top of the file that uses
them.
"""
