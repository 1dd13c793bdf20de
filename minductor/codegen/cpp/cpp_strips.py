"""Float16 elements that a vector loop converts in strips, between memory and an array of float32.

Takes a loop, the kernel's operations and its storages. Gives a Strip for each load and store that is converted so.
Leaves out (refuses) elements that are not adjacent along the loop's axis. x86 converts 16 adjacent elements in one
instruction, which g++ 12 does not use inside a loop. So calls before and after the loop convert a strip, the loop
itself computes in float32 only, and the compiler keeps the arrays between them in registers.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import symbol
>>> from minductor.ir.program.build import Builder
>>> from minductor.ir.program.nodes import Ref
>>> i = symbol("i0", "axis", 0, 99)
>>> b = Builder((i,))
>>> x, y = (b.load(Ref("x", 0), index, F32) for index in (i + 1, 2 * i))
>>> last = b.store(Ref("y", 0), i, b.op("neg", x))
>>> loop = Loop("i0", "vector", (0, 1, 2, 3))
>>> for strip in strips(loop, b.build().ops, {"x": ("in0", F16), "y": ("out1", F16)}, i, lambda index: index):
...     print(strip.position, strip.before or strip.after)
0 md_f16_load(in0 + i0_strip + 1, count, in0_strip0);
3 md_f16_store(out1_strip3, count, out1 + i0_strip);
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from minductor.codegen.cpp.cpp_text import index_text
from minductor.core.dtypes import F16, DType
from minductor.core.expressions.expr import Expr, Symbol, free_symbols, linear, substitute, symbol
from minductor.ir.program.loops import Loop
from minductor.ir.program.nodes import Atomic, Load, Masked, Op, Store, all_ops

STRIP = 64  # elements of a strip, unless a reduction's lanes decide
FEW = 16  # elements of a strip of each row of a group; also what a call converts at once, so the least of an array
SHORTEST = 4  # a loop known to have fewer elements has no strips


@dataclass(frozen=True, slots=True)
class Strip:
    """The array of one load or store, and the call that fills the array before the loop or stores it after the loop."""

    position: int
    name: str
    before: str = ""
    after: str = ""
    is_row: bool = False  # whether each row of a group has a strip of its own

    @property
    def array(self) -> str:
        return f"{self.name}[r]" if self.is_row else self.name


def strips(
    loop: Loop,
    ops: Sequence[Op],
    storages: Mapping[str, tuple[str, DType]],
    axis: Symbol,
    placed: Callable[[Expr], Expr],
) -> Iterator[Strip]:
    """The strips of a loop. `placed` gives an index as it is in the piece of the loop that is being written."""
    here = [
        (p, attrs, is_row) for p, is_row in _steps(loop) if isinstance(attrs := ops[p].attrs, Load | Store | Atomic)
    ]
    touched: dict[str, list[Load | Store | Atomic]] = {}
    for p, _ in _steps(loop):
        masked = ops[p].attrs
        for op in (*(all_ops(masked.body) if isinstance(masked, Masked) else ()), ops[p]):
            if isinstance(op.attrs, Load | Store | Atomic):
                touched.setdefault(op.attrs.ref.storage, []).append(op.attrs)
    for position, attrs, is_row in here:
        storage, index = attrs.ref.storage, placed(attrs.index)
        parameter, dtype = storages[storage]
        if isinstance(attrs, Atomic) or dtype != F16 or not _is_in_order(index, axis) or _collide(touched[storage]):
            continue
        strip = Strip(position, f"{parameter}_strip{position}", is_row=is_row)
        memory = f"{parameter} + {index_text(substitute(index, {axis: symbol(f'{axis.name}_strip', 'axis')}))}"
        if isinstance(attrs, Load):
            yield replace(strip, before=f"md_f16_load({memory}, count, {strip.array});")
        else:
            yield replace(strip, after=f"md_f16_store({strip.array}, count, {memory});")


def _steps(loop: Loop) -> Iterator[tuple[int, bool]]:
    """The positions of a loop's own operations, not of loops inside, and whether each row of a group computes them."""
    for step in loop.body:
        if isinstance(step, int):
            yield step, False
        elif step.kind == "tree":
            yield from ((position, True) for position in step.body if isinstance(position, int))


def _collide(touching: Sequence[Load | Store | Atomic]) -> bool:
    """Whether one iteration may write an element that another iteration reads or writes."""
    is_update = isinstance(touching[-1], Store) and len({attrs.index for attrs in touching}) == 1
    return not all(isinstance(attrs, Load) for attrs in touching[: -1 if is_update else None])


def _is_in_order(index: Expr, axis: Symbol) -> bool:
    """Whether neighbours along the axis are neighbours in memory, at an index that does not depend on data."""
    split = linear(index, [axis])
    return split is not None and split[0][axis] == 1 and all(s.kind != "value" for s in free_symbols(index))
