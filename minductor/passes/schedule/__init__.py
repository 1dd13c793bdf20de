"""The stage `schedule`: the loop nest of each kernel on a CPU, its tiles on a GPU, and matrix products by a library.

Takes a program of kernels that have axes but no loops; gives it with a Schedule (`ir/program/loops.py`) on each
kernel. Codegen prints this schedule and decides nothing. Files in reading order, for a CPU:
- `schedule.py`: the stage. It chooses the loops of a kernel, outermost first: parallel, serial or vector, and their
  blocks;
- `ordered_axes.py`: the axes of a scatter that must run in order;
- `narrow.py`: splits a reduction over a short contiguous axis in two;
- `nest.py`: places the ops in these loops; decides what is computed again and what is kept in arrays;
- `group.py`: adds several rows at a time where columns are summed;
- `unblock.py`, `stage.py`, `unmask.py`, `cut.py`: refine the schedule, in this order: needless block loops go,
  transposed loads use a staging buffer, loops run without masks, loops are cut where an index changes its formula.

For a GPU:
- `recipes.py`: the schedules that are legal for a reduction; the one with the least `cost/seconds.py` is taken;
- `tile_gpu.py`: blocks of axes, persistent and looped reductions; `tiles.py`: the tile as data;
- `tile_dot.py`: the tiles of matrix products; `online.py`: a softmax in one pass;
- `tile_choices.py`: warps, pipeline stages and blocks for autotuning;
- `by_library.py`: the variant of a matrix product that calls the library.

Laws: a schedule never depends on the number of threads, so bits do not either. Sums are added in short runs, so that
errors stay about as small as eager's. Values do not change otherwise.

Thresholds are named constants with their units at the top of each file; sizes of caches and tiles are fields of
`minductor/target.py`. On a GPU a note gives the prices of a reduction's recipes. The user sees the choices for
autotuning in the report, and the reason of a library call (`REASON` in `by_library.py`) in `explain`.
"""
