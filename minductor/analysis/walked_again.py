"""Which loads of a GPU's kernel bring the same row several times: once for each walk over the row.

Takes the ops of a kernel, and the positions of those of each walk. Gives the walks of each such load. Refuses nothing.
The price of a schedule (`cost/seconds.py`) and the hints for the cache (`passes/access/evictions.py`) ask it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from minductor.ir.program.nodes import Load, Op


def walked_again(
    ops: Sequence[Op], walks: Sequence[Collection[int]], walked: Collection[str], apart: Collection[str]
) -> dict[int, tuple[int, ...]]:
    """By the position of each load that several walks make of a row of their program alone: the numbers of those walks.

    Args:
        ops: the ops of a kernel's body.
        walks: the positions of the ops of each walk, in the order in which the walks run.
        walked: the axes that programs walk along. A load that does not move along one of them loads no row.
        apart: the axes along which programs lie beside each other. What a load brings that does not move along each of
            them is needed by several programs.
    """
    found: dict[int, list[int]] = {}
    for number, walk in enumerate(walks):
        for position in walk:
            found.setdefault(position, []).append(number)
    again = {p: tuple(numbers) for p, numbers in found.items() if len(numbers) > 1 and isinstance(ops[p].attrs, Load)}
    along, others = set(walked), set(apart)
    return {
        p: numbers for p, numbers in again.items() if others.issubset(ops[p].axes) and not along.isdisjoint(ops[p].axes)
    }
