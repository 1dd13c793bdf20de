"""Padding with what is there already: reflected or replicated elements, forward and backward.

Takes views and pads, a pair a dimension, the last dimension first; negative ones cut. Gives one kernel a result. A
gradient is gathered: each element of the input asks the places of the result that show it. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from minductor.core.expressions.expr import Expr, as_expr, as_int, integer, maximum, minimum
from minductor.frontend.lower.lower import Lowering
from minductor.frontend.lowering_context.kernel_builder import Loop
from minductor.frontend.lowering_context.values import Operand, Term, Value
from minductor.frontend.rules.window import Taps, clamped, gather_taps, load_tap
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]


def pairs(pad: Sequence[Operand], rank: int) -> list[tuple[Expr, Expr]]:
    """What goes before and after, for the last `rank` dimensions in order."""
    given = [as_expr(p) for p in pad if isinstance(p, int | Expr)]
    return [(given[2 * d], given[2 * d + 1]) for d in reversed(range(rank))]


def reflected(place: Expr, size: Expr) -> Expr:
    """The element that is as far inside of an edge as `place` is outside."""
    inner = maximum(place, -place)
    return minimum(inner, 2 * (size - 1) - inner)


def padded(rank: int, source: Callable[[Expr, Expr], Expr], ctx: Lowering, x: View, pad: Sequence[Operand]) -> Value:
    """Each element is the one at `source(place, size)` along the last dimensions."""
    before = [b for b, _ in pairs(pad, rank)]

    def fn(loop: Loop) -> Term:
        lead = len(loop.coords) - rank
        rows = zip(loop.coords[lead:], before, x.size[lead:], strict=True)
        return loop.load(x, [*loop.coords[:lead], *(source(at - b, n) for at, b, n in rows)])

    return ctx.map(fn)


def replicated(place: Expr, size: Expr) -> Expr:
    return clamped(place, size - 1)


def reflections(size: Expr, before: Expr, after: Expr, number: Expr) -> Taps:
    """Where a reflecting pad shows an element: left of the edge, in its place, right of the edge."""

    def tap(at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        last = size - 1
        match as_int(k):
            case 0:
                return before + at, (before + at, number - 1 - before - at)
            case 1:
                return before - at, (at - 1, before - at)
            case _:
                return before + 2 * last - at, (at - last + after, last - 1 - at)

    both_zero = as_int(before) == 0 and as_int(after) == 0
    return Taps(integer(1 if both_zero else 3), tap)


def replicas(size: Expr, before: Expr, after: Expr, number: Expr) -> Taps:
    """Where a replicating pad shows an element: its own place; for the outermost ones the pad's places too."""
    low, high = maximum(before, integer(0)), maximum(after, integer(0))

    def tap(at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        own, known, first = before + at, as_int(k), as_int(low)
        if known is not None and first is not None:
            if known < first:
                return k, (-at,)
            if known > first:
                return before + size - 1 + (k - low), (at - (size - 1),)
            return own, (own, number - 1 - own)
        begin = own - low * (1 - minimum(at, integer(1)))
        end = own + high * (1 - minimum(size - 1 - at, integer(1)))
        return begin + k, (begin + k, end - begin - k, number - 1 - begin - k)

    return Taps(low + high + 1, tap)


def padded_backward(
    rank: int,
    spans: Callable[[Expr, Expr, Expr, Expr], Taps],
    ctx: Lowering,
    grad: View,
    x: View,
    pad: Sequence[Operand],
) -> Value:
    rows = zip(x.size[-rank:], pairs(pad, rank), grad.size[-rank:], strict=True)
    return gather_taps(ctx, ctx.meta, [spans(n, before, after, m) for n, (before, after), m in rows], load_tap(grad, 0))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{f"aten.reflection_pad{d}d.default": partial(padded, d, reflected) for d in (1, 2, 3)},
        **{f"aten.replication_pad{d}d.default": partial(padded, d, replicated) for d in (1, 2, 3)},
        **{f"aten.reflection_pad{d}d_backward.default": partial(padded_backward, d, reflections) for d in (1, 2, 3)},
        **{f"aten.replication_pad{d}d_backward.default": partial(padded_backward, d, replicas) for d in (1, 2, 3)},
    }
)
