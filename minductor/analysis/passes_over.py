"""In which pass over a row an operation runs: a result of a reduction exists only after the pass that computes it.

Takes the ops of a body. Gives numbers. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from minductor.ir.program.nodes import Op


def pass_numbers(ops: Sequence[Op], members: Iterable[int], ends: Callable[[int], bool]) -> dict[int, int]:
    """By position of each member, in order, the number of the first pass in which its operands exist.

    `ends`: whether the op at a position is a reduction whose result exists only after its pass.
    """
    found: dict[int, int] = {}
    for position in members:
        found[position] = max((found[a] + ends(a) for a in ops[position].args if a in found), default=0)
    return found
