"""Which ops of a body some ops need.

Takes positions in a body, and a function that gives the operands of the op at a position. Gives positions. Refuses
nothing.

>>> needed([3], {3: (1, 2), 2: (1,), 1: (), 0: ()}.__getitem__)
[1, 2, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def needed(wanted: Iterable[int], operands: Callable[[int], Iterable[int]]) -> list[int]:
    """The positions in `wanted`, and those of all values that they are computed from, in order."""
    found = set(wanted)
    pending = list(found)
    while pending:
        for operand in operands(pending.pop()):
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return sorted(found)
