"""Several kernels as one: the axes, operations and loops of each stand behind those of the kernels before it.

Takes kernels with schedules, how many of their parts at the end run in the program that ends last, and the axis of the
first kernel whose blocks are finished one by one, if there is one. Gives one kernel whose schedule has a part for each
of them, and for each part of a bundle among them. Refuses nothing: the caller knows that the parts may run in any
order, or which ones are last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minductor.core.expressions.expr import Expr, Symbol
from minductor.ir.program.build import Builder
from minductor.ir.program.loops import Schedule, moved
from minductor.ir.program.nodes import Axis, Kernel, axis_over


def one_kernel(kernels: Sequence[Kernel], finishing: int = 0, blocks: str = "") -> Kernel:
    """The kernels as one. It has the name and the choices of the first of them."""
    first = kernels[0]
    axes: list[Axis] = []
    mappings: list[dict[Symbol, Expr]] = []
    for kernel in kernels:
        fresh = [axis_over(f"i{len(axes) + n}", axis.extent) for n, axis in enumerate(kernel.axes)]
        mappings.append({old.symbol: new.symbol for old, new in zip(kernel.axes, fresh, strict=True)})
        axes += fresh
    builder = Builder([axis.symbol for axis in axes])
    joined = Schedule((), finishing=finishing)
    for kernel, mapping in zip(kernels, mappings, strict=True):
        assert kernel.schedule is not None
        places = builder.splice(kernel.body, mapping)
        own = moved(kernel.schedule, places, {old.name: str(new) for old, new in mapping.items()})
        start = len(joined.steps)
        starts = (*joined.parts, *((start,) if start else ()), *(start + part for part in own.parts))
        rows = (*joined.kept_rows, *own.kept_rows)
        pairs = (*joined.rows_in_results, *own.rows_in_results)
        joined = replace(joined, steps=(*joined.steps, *own.steps), kept_rows=rows, rows_in_results=pairs, parts=starts)
    origins = tuple(dict.fromkeys(origin for kernel in kernels for origin in kernel.origins))
    after = tuple(dict.fromkeys(ref for kernel in kernels for ref in kernel.after))
    names = {old.name: str(new) for old, new in mappings[0].items()}
    own = (choice for choice in first.choices if not blocks or choice.id != blocks)  # the last part has equal blocks
    choices = tuple(replace(choice, id=names.get(choice.id, choice.id)) for choice in own)
    joined = replace(joined, finishing_blocks=names.get(blocks, ""))
    made = replace(first, axes=tuple(axes), body=builder.build(), origins=origins, after=after, choices=choices)
    return replace(made, schedule=joined)
