"""Rules of padding with the tensor's own elements: reflection_pad1d/2d/3d, replication_pad1d/2d/3d and their gradients.

Padding with a constant (constant_pad_nd) is in `concat.py`; circular padding is decomposed by torch.

Takes a view and ATen's pads: a pair (before, after) for each padded dimension, the last dimension first; negative pads
cut. Gives one kernel per result, over the elements of that result. A gradient is a gather and no scatter: each input
element sums the gradients of the output elements that show it, so the sums need no atomics. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from minductor.core.expressions.expr import Expr, as_expr, as_int, integer, maximum, minimum
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Rule, Value
from minductor.frontend.rules.window import gather_taps
from minductor.frontend.rules.window_passes import load_from
from minductor.frontend.rules.window_taps import Taps, clamped
from minductor.ir.program.nodes import View


def pads_by_dim(pad: Sequence[Value], rank: int) -> list[tuple[Expr, Expr]]:
    """The pads (before, after) of the last `rank` dimensions, in the order of the dimensions."""
    given = [as_expr(p) for p in pad if isinstance(p, int | Expr)]
    return [(given[2 * d], given[2 * d + 1]) for d in reversed(range(rank))]


def reflected(place: Expr, size: Expr) -> Expr:
    """The index that a reflecting pad shows at `place`: as far inside the nearer edge as `place` is outside of it."""
    inner = maximum(place, -place)
    return minimum(inner, 2 * (size - 1) - inner)


def padded(rank: int, source: Callable[[Expr, Expr], Expr], ctx: Lowering, x: View, pad: Sequence[Value]) -> Value:
    """Lowers a padding: each output element loads the input at `source(index, size)` in the last `rank` dimensions."""
    before = [b for b, _ in pads_by_dim(pad, rank)]

    def fn(loop: KernelBuilder) -> KernelValue:
        lead = len(loop.coords) - rank
        rows = zip(loop.coords[lead:], before, x.size[lead:], strict=True)
        return loop.load(x, [*loop.coords[:lead], *(source(at - b, n) for at, b, n in rows)])

    return ctx.map(fn)


def replicated(place: Expr, size: Expr) -> Expr:
    """The index that a replicating pad shows at `place`: the nearest one that exists."""
    return clamped(place, size - 1)


def reflections(size: Expr, before: Expr, after: Expr, number: Expr) -> Taps:
    """The output elements that show an input element under reflecting padding.

    An element appears at its own place, and at most once in each pad. `number` is the size of the output.
    """

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
    """The output elements that show an input element under replicating padding.

    Each element appears at its own place, and the first and the last element also fill their pad. `number` is the size
    of the output.
    """
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
    rank: int, taps: Callable[[Expr, Expr, Expr, Expr], Taps], ctx: Lowering, grad: View, x: View, pad: Sequence[Value]
) -> Value:
    """Lowers the gradient of a padding: each input element sums the gradient over the output elements that show it."""
    rows = zip(x.size[-rank:], pads_by_dim(pad, rank), grad.size[-rank:], strict=True)
    return gather_taps(ctx, ctx.meta, [taps(n, before, after, m) for n, (before, after), m in rows], load_from(grad, 0))


RULES: Mapping[str, Rule] = {
    **{f"aten.reflection_pad{d}d.default": partial(padded, d, reflected) for d in (1, 2, 3)},
    **{f"aten.replication_pad{d}d.default": partial(padded, d, replicated) for d in (1, 2, 3)},
    **{f"aten.reflection_pad{d}d_backward.default": partial(padded_backward, d, reflections) for d in (1, 2, 3)},
    **{f"aten.replication_pad{d}d_backward.default": partial(padded_backward, d, replicas) for d in (1, 2, 3)},
}
