"""Recipes for GPUs, by the kind of a kernel.

Takes a kernel whose axes are merged. Gives the drafts of all recipes that are legal for it, the plainest first; one of
them is always legal. Refuses nothing.

- `persistent`: a row of up to `Target.max_persistent_row` elements is held whole in registers. `persistent1` to
  `persistent32`: so many warps hold a row, which may then be longer, or several short rows.
- `aligned1` to `aligned32`: as `persistent1` to `persistent32`, with a bulk that starts at a multiple of 16 bytes, and
  its edges, where rows do not start at such multiples.
- `looped`: a row is walked block by block, once for each reduction and once for the results. `looped16` and `looped32`:
  so many warps walk it in larger blocks, so that more loads are in flight.
- `online`: as `looped`, with the maximum and the sum of a softmax in one walk, or a mean and a variance. `online16` and
  `online32`: by so many warps.
- `columns64`, `columns128`: columns are reduced, so many side by side. `columns64_long`: by fewer warps, each of which
  adds up more rows, where several loads are in flight at once. `columns64_pipelined`: with blocks loaded ahead.
- `rows_beside_columns`: rows and columns are reduced in one walk over some rows, each of which is held whole.
  `rows_beside_columns8` to `rows_beside_columns32`: by as few warps as load a row at once; each thread holds so many
  elements. With `_pipelined` behind, the next rows are loaded ahead.
- `unrolled`: a short reduced axis along which memory is not contiguous is walked element by element.

If several axes were merged into one, a tile is a block of memory only if its block of this axis divides the inner of
them: of x[:, :5, :64], 64 elements lie together and 1024 do not. So a smaller block is tried as well.
"""

from __future__ import annotations

from math import prod

from minductor.analysis.blocks import block_limits
from minductor.analysis.both_ways import both_ways
from minductor.core.expressions.hints import Hints
from minductor.ir.program.dots import find_dots
from minductor.ir.program.nodes import Buffer, Kernel
from minductor.passes.schedule.align import align
from minductor.passes.schedule.draft import Draft, Recipe, blank, legal_drafts
from minductor.passes.schedule.gpu_steps import (
    Hold,
    Pipelined,
    RowsBesideColumns,
    Spread,
    Walk,
    one_walk,
    product,
    unroll,
)
from minductor.passes.schedule.reciprocal import divide_once, scale_by_powers
from minductor.target import Env

# The warps that hold rows, and the elements that they hold at least: several short rows.
HELD = ((1, 1024), (2, 1024), (4, 2048), (8, 0), (16, 0), (32, 0))

PRODUCTS = (Recipe("product", (product,)),)
POINTWISE = (
    Recipe("elements", (Spread(),)),
    Recipe("square64", (Spread(4096, 64),)),
    Recipe("square", (Spread(side=32),)),
)
REDUCTIONS = (
    *(Recipe(f"persistent{warps}", (Hold(warps), Spread(values))) for warps, values in HELD),
    *(Recipe(f"aligned{warps}", (Hold(warps), align, Spread(values))) for warps, values in HELD),
    Recipe("persistent", (Hold(), Spread())),
    Recipe("looped", (Walk(), Spread())),
    *(Recipe(f"looped{warps}", (Walk(warps=warps), Spread())) for warps in (16, 32)),
    Recipe("online", (one_walk, Walk(), Spread())),
    *(Recipe(f"online{warps}", (one_walk, Walk(warps=warps), Spread())) for warps in (32, 16)),
    Recipe("columns64", (Walk(32), Spread(side=64))),
    Recipe("columns64_long", (Walk(64, warps=4, streams=2), Spread(side=64))),
    Recipe("columns64_pipelined", (Walk(32), Spread(side=64), Pipelined(4))),
    Recipe("columns128", (Walk(16), Spread(side=128))),
    Recipe("unrolled", (unroll, Spread())),
)
BOTH_WAYS = (
    *(
        Recipe(f"rows_beside_columns{values}_pipelined", (RowsBesideColumns(values), Pipelined(3)))
        for values in (8, 16, 32)
    ),
    *(Recipe(f"rows_beside_columns{values}", (RowsBesideColumns(values),)) for values in (8, 16, 32)),
    Recipe("rows_beside_columns", (RowsBesideColumns(),)),
)
ALL = (*PRODUCTS, *POINTWISE, *REDUCTIONS, *BOTH_WAYS)
SCANS = tuple(recipe for recipe in REDUCTIONS if recipe.name in ("persistent", "online", "looped"))


def drafts(kernel: Kernel, buffers: dict[str, Buffer], env: Env, hints: Hints, only: str = "") -> dict[str, Draft]:
    """By the name of its recipe each legal draft of a kernel; only that of the recipe `only`, if it is legal."""
    kernel = scale_by_powers(divide_once(kernel, buffers))
    boxes = tuple(block_limits(kernel.body, kernel.axes))
    start = blank(kernel, buffers, env.target, hints)._replace(dots=find_dots(kernel), boxes=boxes)
    is_asked = env.options.block_access != "offsets"
    return legal_drafts(_recipes(start), lambda recipe: _drafted(recipe, start, is_asked=is_asked), only)


def _drafted(recipe: Recipe, start: Draft, *, is_asked: bool) -> Draft | None:
    """The draft that a recipe makes, with smaller blocks if more accesses are then blocks of memory.

    They are taken if the tile keeps as many elements, or if the options ask for such accesses (`is_asked`).
    """
    draft = recipe.apply(start)
    if draft is None or not (smaller := _smaller(draft)):
        return draft
    boxed = recipe.apply(start._replace(limits=smaller))
    return boxed if boxed and (is_asked or _values(boxed) == _values(draft)) else draft


def _values(draft: Draft) -> int:
    """The elements of a tile: a program computes so many values of each op at once."""
    return prod(draft.blocks.values())


def _smaller(draft: Draft) -> dict[str, int]:
    """By axis a smaller block with which more accesses are blocks of memory, if it has at least a warp's elements."""
    held = {level.axis for level in draft.levels if level.kind == "tile"}
    blocks, found = draft.blocks, dict[str, int]()
    for limits in draft.boxes:
        smaller = {axis: most for axis, most in limits.items() if blocks[axis] > most}
        if all(most >= draft.target.warp_size and axis not in held for axis, most in smaller.items()):
            found |= {axis: min(found.get(axis, most), most) for axis, most in smaller.items()}
    return found


def _recipes(draft: Draft) -> tuple[Recipe, ...]:
    """The recipes for kernels of the draft's kind."""
    if draft.dots is not None:
        return PRODUCTS
    if draft.touches.scanned:
        return SCANS
    if both_ways(draft.kernel.body, draft.kernel.axes, has_parts=True) is not None:
        return BOTH_WAYS
    return REDUCTIONS if draft.joined else POINTWISE
