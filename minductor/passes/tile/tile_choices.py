"""What a tiled kernel leaves open for its launch: warps, stages, and the blocks that its text allows.

Takes a Kernel with its schedule and the target. Gives its choices, each with the default that is taken where nobody
measures. Refuses nothing.

Other options need no other text. So a block may only be one that needs the same masks, and as many blocks of its axis
as there are: one, or several. The blocks of a sum decide in which order it is added up, and warps how the values of one
block are joined: these affect bits.
"""

from __future__ import annotations

from math import prod

from minductor.core.expressions.bounds import at_least, divides
from minductor.core.expressions.expr import Expr
from minductor.ir.program.choices import Affects, Choice
from minductor.ir.program.nodes import Kernel, Reduce, Scan
from minductor.ir.program.schedule import Loop, loops
from minductor.passes.tile.tiles import NO_LIMITS, Limits
from minductor.target import Target

DOT_WARPS = ((128 * 128, 8), (32 * 32, 4), (1, 1))  # by the values of a product's block: newer units are four warps'
LEAST = 16  # of a block that a matrix unit takes
STAGES = (2, 3, 4)  # blocks that are on their way at the same time, in a loop of matrix products


def launch_choices(kernel: Kernel, target: Target, limits: Limits = NO_LIMITS) -> tuple[Choice, ...]:
    """The choices of one kernel; blocks are open where most depends on them, up to what keeps accesses boxes."""
    assert kernel.schedule is not None
    first = {loop.axis: loop for loop in reversed(list(loops(kernel.schedule.steps)))}
    joins = [
        n
        for n, op in enumerate(kernel.body.ops)
        if isinstance(op.attrs, Reduce | Scan) and n not in kernel.schedule.dots
    ]
    found = [_warps(kernel, first, target, "bits" if joins else "perf")]
    if kernel.schedule.dots and any(loop.kind == "serial" for loop in first.values()):
        default = 2 if target.kind == "hip" else 3  # AMD's units have a quarter of the memory to keep blocks in
        found.append(Choice("stages", "perf", STAGES, default))
    if kernel.schedule.dots:
        extents = {axis.name: axis.extent for axis in kernel.axes}
        open_loops = [loop for loop in first.values() if loop.kind != "tile" and loop.block > 1]
        found += (_block(loop, extents[loop.axis], limits.get(loop.axis, 2 * loop.block)) for loop in open_loops)
    return tuple(found)


def _block(loop: Loop, extent: Expr, most: int) -> Choice:
    sizes = [n for n in (loop.block // 2, loop.block, 2 * loop.block) if LEAST <= n <= most]
    options = tuple(n for n in sizes if fits(n, loop.block, extent))
    return Choice(loop.axis, "perf" if loop.kind == "grid" else "bits", options, loop.block)


def _warps(kernel: Kernel, blocks: dict[str, Loop], target: Target, affects: Affects) -> Choice:
    assert kernel.schedule is not None
    values = prod(max(1, loop.block) for loop in blocks.values() if loop.kind == "grid" or not kernel.schedule.dots)
    if kernel.schedule.dots:
        default = next(warps for least, warps in DOT_WARPS if values >= least)
    else:
        # what joins several values at once, as a place and its value, is quicker with fewer warps to join; around a
        # loop that happens once, and each thread would hold more accumulators
        is_once = any(loop.kind == "serial" for loop in blocks.values())
        several = [len(op.args) for op in kernel.body.ops if isinstance(op.attrs, Reduce) and not is_once]
        joined = max(several, default=1)
        wanted = max(1, values // (target.warp_size * target.values_per_thread * joined))
        default = min(target.max_warps, 1 << (wanted.bit_length() - 1))  # a power of two, whatever is joined
    options = [n for n in (default // 2, default, 2 * default) if 1 <= n <= target.max_warps]
    return Choice("warps", affects, tuple(options), default)


def fits(block: int, default: int, extent: Expr) -> bool:
    """Whether a block of another size needs the same text as the default one."""
    same_mask = divides(block, extent) == divides(default, extent)
    return same_mask and at_least(block - extent, 0) == at_least(default - extent, 0)
