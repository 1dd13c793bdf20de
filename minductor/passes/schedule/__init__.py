"""The stage `schedule`: a loop nest for each kernel, and matrix products by a library.

Takes a program of kernels that have axes but no loops; gives it with a Schedule (`ir/program/loops.py`) on each
kernel. Codegen prints this schedule and decides nothing. The road of one kernel:

- `schedule.py`: the stage. It asks for the drafts of a kernel, places them, prices them and takes the cheapest;
- `draft.py`: a draft (a kernel and the loops that are chosen for it so far), steps, which edit drafts, and recipes,
  which are named tuples of steps. `reciprocal.py` edits a kernel before them (one division for a row of a softmax);
- `cpu_recipes.py`, `gpu_recipes.py`: the recipes for each kind of kernel, as tables;
- `cpu_steps.py`, `gpu_steps.py`: the steps. Each is a function of a draft, and says where it is legal;
- `cpu_place.py`, `gpu_place.py`: the loop nest of a finished draft: in which loops each op is computed, what is
  computed again and what is kept;
- `cost/seconds.py` prices a placed kernel of a GPU, `cost/cpu_seconds.py` one of a CPU, with one thread and with
  sixteen; the recipe is taken whose loss against the best one is least where it is largest.

What the steps use: `ordered_axes.py` (axes of a scatter that must run in order), `side_by_side.py` (short rows as the
lanes of a vector), `narrow.py` (a reduction over a short contiguous axis in two steps), `product_tiles.py` (tiles of
matrix products). What follows the placing on a CPU: `short_sums.py` (blocks with sums of their own), `group.py`
(several rows at a time where columns are summed), `gathers.py` (gathers before the vector loop), `unblock.py` (needless
block loops go), `in_phases.py` (a block of rows runs through each phase before the next), `fetch.py` (a row that is
gathered from is asked into the cache before the loop), `stage.py` (transposed loads and stores use a staging buffer),
`rows_in_results.py` (long rows are kept where a store writes later), `strips.py` (functions that wait for each other
run over strips), `stores_last.py` (loads come before stores), `unmask.py` (loops without masks), `cut.py` (loops are
cut where an index changes its formula). On a GPU: `align.py` (a step: rows that start at any element),
`launch_choices.py` (warps, pipeline stages and blocks for autotuning), `needed_launches.py` (those that are measured),
`by_library.py` (the variant of a matrix product that calls the library).

Laws: a schedule never depends on the number of threads, so bits do not either. Sums are added in short runs, so that
errors stay about as small as eager's. Values do not change otherwise.

Thresholds are named constants with their units at the top of each file; sizes of caches and tiles are fields of
`minductor/target.py`. A note gives the prices of the recipes. The user sees the choices for autotuning in the report,
and the reason of a library call (`REASON` in `by_library.py`) in `explain`.
"""
