"""The choice of a variant by the sizes of a call, for wrappers.

Takes the variant for each of several points, the points, and which arguments are the sizes. Gives a function that calls
the variant of the nearest point (`choices.py: nearest`). It asks no clock. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minductor.ir.program.choices import Point, nearest

MOST_KNOWN = 1024  # sizes whose variant is remembered, for each choice


def by_size(variants: Sequence[Callable[..., Any]], points: Sequence[Point], sizes: Sequence[int]) -> Any:
    """A function of the variants' arguments, which calls the variant of the point that is nearest to the sizes.

    Args:
        variants: functions of the same arguments, one for each point.
        points: a size for each number in `sizes`.
        sizes: the numbers of the arguments that are sizes.
    """
    known: dict[Point, Callable[..., Any]] = {}

    def call(*args: Any) -> Any:
        given = tuple([args[number] for number in sizes])
        taken = known.get(given)
        if taken is None:
            if len(known) >= MOST_KNOWN:
                known.clear()
            taken = known[given] = variants[nearest(points, given)]
        return taken(*args)

    return call


def call_nearest(
    variants: Sequence[Callable[..., Any]], points: Sequence[Point], sizes: Sequence[int], given: Sequence[Any]
) -> None:
    """Calls the variant of the point that is nearest to these sizes, for a torch.fx graph.

    Args:
        variants: functions of the same arguments, one for each point.
        points: a number for each size.
        sizes: what decides.
        given: the arguments, tensors first.
    """
    variants[nearest(points, [int(size) for size in sizes])](*given)
