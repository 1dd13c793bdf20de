"""Recipes: the ways to schedule a reduction on a GPU, and which of them is the fastest.

Takes how a kernel's accesses move along its axes, and the target. Gives the recipes that are legal for it, the plainest
first. Refuses nothing: `classic`, which chooses the tile by the sizes alone, is always legal.

- `classic`: a row of up to `Target.max_persistent_row` elements is held whole, a longer one is walked block by block,
  with the maximum and the sum of a softmax in one walk (`online.py`).
- `held4` to `held32`: the row is held whole in the registers of so many warps, so it is read once.
- `walked`: the row is walked block by block, once for each reduction and once for the results.
- `unrolled`: a short reduced axis along which memory is not contiguous is walked element by element. Each thread then
  adds up values of its own, and none of them moves to another thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from minductor.analysis.touch import Touches
from minductor.passes.schedule.tiles import power_of_two
from minductor.target import Target

# How the reduced axes are tiled.
Rows: TypeAlias = Literal["classic", "held", "walked", "unrolled"]


class Recipe(NamedTuple):
    """One way to schedule a kernel. `warps`: of a program; 0 if the size of the tile decides."""

    name: str
    rows: Rows
    warps: int = 0


CLASSIC = Recipe("classic", "classic")
RECIPES = (
    CLASSIC,
    *(Recipe(f"held{warps}", "held", warps) for warps in (4, 8, 16, 32)),
    Recipe("walked", "walked"),
    Recipe("unrolled", "unrolled"),
)
LONGEST_UNROLLED = 64  # elements of the reduced axes; a longer loop leaves too few loads in flight
LONGEST_HELD = 1 << 16  # elements of a row; the registers of a multiprocessor hold no longer one
FEWEST_HELD, MOST_HELD = 2, 64  # elements of a row for each thread
TIE = 1.03  # a recipe is taken before a plainer one if that is estimated to take this many times as long


def recipes_for(touches: Touches, target: Target) -> tuple[Recipe, ...]:
    """The recipes that are legal for a kernel without matrix products: `classic` alone if a size is not known."""
    if not touches.reduced or touches.scanned or None in touches.extents.values():
        return (CLASSIC,)
    is_row = touches.vector_axis() in touches.reduced
    known = [extent for name, extent in touches.extents.items() if extent is not None and name in touches.reduced]

    def is_legal(recipe: Recipe) -> bool:
        match recipe.rows:
            case "held":
                threads = recipe.warps * target.warp_size
                row = prod(power_of_two(extent) for extent in known)
                fits = FEWEST_HELD * threads <= row <= min(LONGEST_HELD, MOST_HELD * threads)
                return is_row and fits and threads <= target.max_threads
            case "walked":
                return is_row
            case "unrolled":
                return not is_row and prod(known) <= LONGEST_UNROLLED
            case _:
                return True

    return tuple(filter(is_legal, RECIPES))


def fastest(prices: Mapping[str, float]) -> str:
    """The name of the cheapest recipe; among those that cost nearly the same, the one that stands first.

    >>> fastest({"classic": 1.02, "held8": 1.0}), fastest({"classic": 1.1, "held8": 1.01, "held16": 1.0})
    ('classic', 'held8')
    """
    least = min(prices.values())
    return next(name for name, price in prices.items() if price <= TIE * least)


def price_list(prices: Mapping[str, float], taken: str) -> str:
    """The prices as text, the recipe that is taken first.

    >>> price_list({"classic": 3.52e-4, "held8": 2.0e-4}, "held8")
    'held8 200 us; classic 352 us'
    """
    names = [taken, *(name for name in prices if name != taken)]
    return "; ".join(f"{name} {prices[name] * 1e6:.3g} us" for name in names)
