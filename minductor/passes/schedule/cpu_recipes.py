"""Recipes for CPUs, by the kind of a kernel.

Takes a kernel whose axes are merged. Gives the drafts of all recipes that are legal for it, the plainest first; one of
them is always legal. Refuses nothing.
"""

from __future__ import annotations

from minductor.core.expressions.hints import Hints
from minductor.ir.program.nodes import Buffer, Kernel
from minductor.passes.schedule import cpu_steps as cpu
from minductor.passes.schedule.draft import Draft, Recipe, blank, legal_drafts
from minductor.passes.schedule.ordered_axes import ordered_axes
from minductor.passes.schedule.reciprocal import divide_once, divide_with_rest, scale_by_powers
from minductor.passes.schedule.short_axis import unroll_short_axis
from minductor.passes.schedule.side_by_side import rows_side_by_side
from minductor.target import Target


def _with_scalar(*recipes: Recipe) -> tuple[Recipe, ...]:
    """Each recipe, and the same with a scalar loop in the place of the vector loop, for gathers."""
    pairs = (
        (Recipe(f"scalar_{name}", (*steps, cpu.scalar, cpu.settle)), Recipe(name, (*steps, cpu.settle)))
        for name, steps in recipes
    )
    return tuple(recipe for pair in pairs for recipe in pair)


SCATTER = _with_scalar(
    Recipe("scatter", (cpu.scatter,)),
    Recipe("scatter_blocks", (cpu.scatter_blocks,)),
)
SCAN = (Recipe("scan", (cpu.scan, cpu.settle)),)
TRANSPOSED_COLUMNS = Recipe("transposed_columns", (cpu.transposed_columns, cpu.settle))
ROWS = (
    Recipe("rows", (cpu.rows, cpu.settle)),
    Recipe("phases", (cpu.rows, cpu.phases, cpu.settle)),
    Recipe("strips_rows", (cpu.rows, cpu.strips, cpu.settle)),
    Recipe("rows_and_columns", (cpu.rows_and_columns, cpu.settle)),
    Recipe("side_by_side", (rows_side_by_side, cpu.settle)),
    Recipe("across_rows", (cpu.across_rows, cpu.settle)),
    Recipe("rows_in_parts", (cpu.rows, cpu.parts, cpu.settle)),
    TRANSPOSED_COLUMNS,
    Recipe("two_steps", (cpu.two_steps, cpu.settle)),
    Recipe("two_steps_in_parts", (cpu.two_steps, cpu.parts, cpu.settle)),
)
COLUMNS = (
    Recipe("columns", (cpu.columns, cpu.settle)),
    Recipe("columns_in_parts", (cpu.wide_columns, cpu.parts, cpu.settle)),
    TRANSPOSED_COLUMNS,
)
POINTWISE = (
    *_with_scalar(Recipe("elements", (cpu.elements,))),
    Recipe("gathers_first", (cpu.elements, cpu.gathers_first, cpu.settle)),
    *_with_scalar(Recipe("blocks", (cpu.blocks,))),
    Recipe("gathers_first_blocks", (cpu.blocks, cpu.gathers_first, cpu.settle)),
    *_with_scalar(Recipe("transposed", (cpu.transpose,)), Recipe("shared_indices", (cpu.share_indices,))),
    Recipe("strips", (cpu.elements, cpu.strips, cpu.settle)),
    Recipe("strips_blocks", (cpu.blocks, cpu.strips, cpu.settle)),
    Recipe("short_axis", (unroll_short_axis, cpu.elements, cpu.settle)),
    Recipe("short_axis_blocks", (unroll_short_axis, cpu.blocks_of_points, cpu.settle)),
)


def drafts(
    kernel: Kernel, buffers: dict[str, Buffer], target: Target, hints: Hints, only: str = ""
) -> dict[str, Draft]:
    """By the name of its recipe each legal draft of a kernel; only that of the recipe `only`, if it is legal."""
    kernel = scale_by_powers(divide_once(kernel, buffers))
    if target.lacks.isdisjoint(("fma", "fma f32", "fma f64")):
        kernel = divide_with_rest(kernel)
    start = blank(kernel, buffers, target, hints)._replace(ordered=ordered_axes(kernel, buffers))
    made = legal_drafts(_recipes(start), lambda recipe: recipe.apply(start), only)
    if "phases" in made and any(level.most is not None for level in made["phases"].levels):
        made.pop("rows", None)  # `phases` runs row by row, too, where the call brings long rows
    return made


def _recipes(draft: Draft) -> tuple[Recipe, ...]:
    """The recipes for kernels of the draft's kind, the plainest first."""
    if draft.vector is None:
        return POINTWISE
    if draft.ordered:
        return SCATTER
    if draft.vector in draft.touches.scanned:
        return SCAN
    if draft.vector in draft.joined:
        return ROWS
    return COLUMNS if draft.joined else POINTWISE
