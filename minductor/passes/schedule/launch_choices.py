"""The launch parameters that autotuning may choose for a tiled kernel: warps, pipeline stages, and block sizes.

Takes a finished draft. Gives the choices of its kernel, each with the default that is used if nothing is
measured. Refuses nothing.

All options of a choice work with the same text of the kernel. So a block size is an option only if it needs the same
masks as the default, and covers its axis with one block if the default does. A block size of a reduced axis decides in
which order a sum is added, and the number of warps how the values of one block are added: these choices affect bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from minductor.core.expressions.bounds import at_least, divides
from minductor.core.expressions.expr import Expr
from minductor.ir.program.choices import Choice
from minductor.ir.program.nodes import Reduce, Scan
from minductor.passes.schedule.draft import Draft, Level

# warps by the elements of a block of a matrix product, at least; matrix units since sm_90 serve four warps together
DOT_WARPS = ((128 * 128, 8), (32 * 32, 4), (1, 1))
LEAST = 16  # elements of a block: what a matrix unit takes at least
STAGES = (2, 3, 4)  # blocks that are loaded at the same time, in the loop of a matrix product


def launch_choices(draft: Draft, limits: Mapping[str, int]) -> tuple[Choice, ...]:
    """The choices of the kernel of a finished draft.

    Block sizes are choices for matrix products only, by axis up to `limits`. A limit of registers has one option.
    """
    found = [_warps(draft)]
    if draft.dots and any(level.kind == "serial" for level in draft.levels):
        default = 2 if draft.target.kind == "hip" else 3  # AMD's compute units have a quarter of the shared memory
        found.append(Choice("stages", "perf", STAGES, default))
    if draft.dots:
        extents = {axis.name: axis.extent for axis in draft.kernel.axes}
        open_levels = [level for level in reversed(draft.levels) if level.kind != "tile" and level.block > 1]
        found += (_block(each, extents[each.axis], limits.get(each.axis, 2 * each.block)) for each in open_levels)
    if draft.registers:
        found.append(Choice("registers", "perf", (draft.registers,), draft.registers))
    return tuple(found)


def _block(level: Level, extent: Expr, most: int) -> Choice:
    """The choice of the block of one loop: half, equal or twice the default, as far as the same text allows."""
    sizes = [n for n in (level.block // 2, level.block, 2 * level.block) if LEAST <= n <= most]
    options = tuple(n for n in sizes if fits(n, level.block, extent))
    return Choice(level.axis, "perf" if level.kind == "grid" else "bits", options, level.block)


def _warps(draft: Draft) -> Choice:
    """The choice of the number of warps. The default is the draft's; if that is 0, the elements of a tile decide."""
    target, ops = draft.target, draft.kernel.body.ops
    values = prod(max(1, level.block) for level in draft.levels if level.kind == "grid" or not draft.dots)
    if draft.warps:
        default = draft.warps
    elif draft.dots:
        default = next(warps for least, warps in DOT_WARPS if values >= least)
    else:
        # A reduction of several values at once, as argmax, is faster with fewer warps, as their results are combined.
        # In a looped reduction that happens once, and with fewer warps each thread would hold more accumulators.
        is_once = any(level.kind == "serial" for level in draft.levels)
        several = [len(op.args) for op in ops if isinstance(op.attrs, Reduce) and not is_once]
        joined = max(several, default=1)
        full = max(1, values // (target.warp_size * target.values_per_thread * joined))
        default = min(target.max_warps, 1 << (full.bit_length() - 1))  # rounded down to a power of two
    options = [n for n in (default // 2, default, 2 * default) if 1 <= n <= max(target.max_warps, default)]
    products = draft.dots.reduces if draft.dots else ()
    has_joins = any(isinstance(op.attrs, Reduce | Scan) and n not in products for n, op in enumerate(ops))
    return Choice("warps", "bits" if has_joins else "perf", tuple(options), default)


def fits(block: int, default: int, extent: Expr) -> bool:
    """Whether the kernel's text for the default block also works for a block of another size."""
    same_mask = divides(block, extent) == divides(default, extent)
    return same_mask and at_least(block - extent, 0) == at_least(default - extent, 0)
