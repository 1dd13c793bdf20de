"""Random index expressions as recipes, so that each test may cook them with its own arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from minductor.core.expressions.expr import Expr, evaluate, identity, integer, maximum, minimum, symbol

I0, J0, K0 = symbol("i", "axis"), symbol("j", "axis"), symbol("k", "axis")
C = symbol("c", "axis", 0, 7)
S, T = symbol("s", "size", 1), symbol("t", "size", 0, 9)
V, W = symbol("v", "value", None, None), symbol("w", "value", -5, 5)
SYMBOLS = {s.name: s for s in (I0, J0, K0, C, S, T, V, W)}
EXTENTS = {I0: S, J0: integer(5), K0: S * T + 1}

Recipe = Any  # an int, a symbol's name, or (operator, recipe, recipe)


@dataclass(frozen=True)
class Arithmetic:
    """How to cook a recipe."""

    leaf: Callable[[Any], Any]
    least: Callable[[Any, Any], Any]
    most: Callable[[Any, Any], Any]
    floordiv: Callable[[Any, Any], Any] = lambda a, b: a // b
    group: Callable[[Any], Any] = lambda a: a

    def cook(self, recipe: Recipe) -> Any:
        if not isinstance(recipe, tuple):
            return self.leaf(recipe)
        op, *args = recipe
        a, b = map(self.cook, args)
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "//":
                return self.floordiv(a, b)
            case "%":
                return a % b
            case "min":
                return self.least(a, b)
            case "max":
                return self.most(a, b)
            case _:
                return self.group(a) + b


OURS = Arithmetic(lambda x: integer(x) if isinstance(x, int) else SYMBOLS[x], minimum, maximum, group=identity)


def plain(point: Mapping[str, int]) -> Arithmetic:
    return Arithmetic(lambda x: x if isinstance(x, int) else point[x], min, max)


def value(recipe: Recipe, point: Mapping[str, int]) -> int | None:
    """By Python's own arithmetic; None where a division by zero leaves it undefined."""
    try:
        return plain(point).cook(recipe)
    except ZeroDivisionError:
        return None


def cooked(recipe: Recipe) -> Expr | None:
    try:
        return OURS.cook(recipe)
    except ZeroDivisionError:
        return None


LEAVES = st.one_of(st.sampled_from(sorted(SYMBOLS)), st.integers(-9, 12))
DIVISORS = st.one_of(
    st.integers(-4, 12), st.sampled_from(["s", "t", ("*", 4, "s"), ("+", "s", 1), ("*", "s", ("+", "t", 1)), "w"])
)


def _grow(inner: st.SearchStrategy[Recipe]) -> st.SearchStrategy[Recipe]:
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "+", "*", "min", "max", "identity"]), inner, inner),
        st.tuples(st.sampled_from(["//", "%"]), inner, DIVISORS),
        st.tuples(st.sampled_from(["//", "%"]), inner, inner),
        # what views make: an offset taken apart and put together again
        st.builds(lambda a, d: ("+", ("*", d, ("//", a, d)), ("%", a, d)), inner, DIVISORS),
    )


RECIPES: st.SearchStrategy[Recipe] = st.recursive(LEAVES, _grow, max_leaves=8)


@st.composite
def points(draw: st.DrawFn) -> dict[str, int]:
    """Values for all symbols, each within its range and extent."""
    point = {
        "s": draw(st.integers(1, 6)),
        "t": draw(st.integers(0, 9)),
        "c": draw(st.integers(0, 7)),
        "v": draw(st.integers(-40, 40)),
        "w": draw(st.integers(-5, 5)),
    }
    for axis, extent in EXTENTS.items():
        point[axis.name] = draw(st.integers(0, evaluate(extent, point) - 1))
    return point


POINTS = st.lists(points(), min_size=4, max_size=4)
