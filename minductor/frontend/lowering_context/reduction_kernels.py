"""Reduction kernels.

Takes the lowering, a domain and the value at each of its points. Gives the reduced tensor, made by one kernel. Refuses
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minductor.core.expressions.expr import Expr, integer
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.ir.program.nodes import View


def store_reduction(
    ctx: Lowering,
    out: View,
    extents: Sequence[Expr],
    reduced: Sequence[int],
    value: Callable[[KernelBuilder, tuple[Expr, ...]], KernelValue | Sequence[KernelValue]],
    how: str,
    finish: Callable[[KernelValue], KernelValue] | None = None,
) -> View:
    """Stores in `out` the reduction of `value` over the dimensions `reduced` of the domain `extents`.

    `how` names the reduction ("sum", "max", ...); `finish` is applied to each reduced value before it is stored. `out`
    has the kept dimensions, or all of them with size 1 where they are reduced. The kernel's axes are the kept
    dimensions in order, then the reduced ones.
    """
    zero = integer(0)
    kept = [d for d in range(len(extents)) if d not in reduced]
    places = kept if len(out.size) < len(extents) else [d if d in kept else None for d in range(len(extents))]
    at = [None if d is None else kept.index(d) for d in places]  # of each of out's dimensions, among the kept ones
    loop = KernelBuilder([extents[d] for d in (*kept, *reduced)])
    by_dim = dict(zip((*kept, *reduced), loop.coords, strict=True))
    found = value(loop, tuple(by_dim[d] for d in range(len(extents))))
    terms = [found] if isinstance(found, KernelValue) else list(found)
    joined = loop.reduce(terms, range(len(kept), len(extents)), how)
    coords = [zero if n is None else loop.coords[n] for n in at]
    return ctx.store(loop, out, coords, joined if finish is None else finish(joined))
