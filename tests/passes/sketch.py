"""Programs as lowering makes them, one kernel per computed buffer, written in a few lines.

Takes calls named after what a model does; gives a Program and, for its float32 inputs, random tensors. A tensor is a
View, so that views cost no kernel. Refuses nothing: `verify` holds the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from minductor.core.dtypes import F32, I64, DType
from minductor.core.expressions.expr import Expr, Symbol, as_expr, integer, symbol
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Axis, Buffer, Extern, Input, Kernel, Node, Origin, Program, Ref, View
from minductor.options import Options
from minductor.target import Env, by_name

CPU = Env(Options(), by_name("cpu"))


def row_major(size: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for n in reversed(size[1:]):
        strides.append(strides[-1] * n)
    return tuple(reversed(strides)) if size else ()


def exprs(values: Sequence[int | Expr]) -> tuple[Expr, ...]:
    return tuple(as_expr(v) for v in values)


def sizes_of(view: View) -> tuple[int, ...]:
    return tuple(int(str(n)) for n in view.size)


@dataclass
class Sketch:
    nodes: list[Node] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)

    def input(self, *size: int, dtype: DType = F32) -> View:
        name = f"arg{len(self.inputs)}"
        self.inputs.append(Input(name))
        self.buffers.append(Buffer(name, dtype, exprs(size), exprs(row_major(size)), "input"))
        return View(Ref(name, 0), dtype, exprs(size), exprs(row_major(size)), integer(0))

    def buffer(self, size: Sequence[int]) -> View:
        name = f"buf{len(self.buffers)}"
        self.buffers.append(Buffer(name, F32, exprs(size), exprs(row_major(size))))
        return View(Ref(name, 0), F32, exprs(size), exprs(row_major(size)), integer(0))

    # --- kernels

    def loop(self, size: Sequence[int]) -> tuple[list[Axis], list[Expr], Builder]:
        axes: list[Axis] = []
        at: list[Expr] = []
        for n in size:
            if n == 1:
                at.append(integer(0))
                continue
            made = symbol(f"i{len(axes)}", "axis", 0, n - 1)
            axes.append(Axis(made, integer(n)))
            at.append(made)
        b = Builder([axis.symbol for axis in axes])
        b.node = f"k{len(self.nodes)}"
        return axes, at, b

    def kernel(self, axes: Sequence[Axis], b: Builder) -> None:
        name = f"k{len(self.nodes)}"
        self.nodes.append(Kernel(name, tuple(axes), b.build(), (Origin(name, "aten.op"),)))

    def pointwise(self, make: Callable[..., int], *views: View, into: View | None = None) -> View:
        """make(builder, *values) for each element of the broadcast views."""
        size = torch.broadcast_shapes(*(sizes_of(v) for v in views))
        axes, at, b = self.loop(size)
        value = make(b, *(b.load(v.ref, element(v, at), F32) for v in views))
        made = self.buffer(size) if into is None else into
        b.store(made.ref, element(made, at), value)
        self.kernel(axes, b)
        return made

    def op(self, name: str, *views: View) -> View:
        return self.pointwise(lambda b, *values: b.op(name, *values), *views)

    def reduce(self, how: str, view: View, dim: int) -> View:
        """Keeps the dim, with size 1."""
        size = sizes_of(view)
        made = self.buffer([1 if d == dim else n for d, n in enumerate(size)])
        axes, at, b = self.loop(size)
        value = b.load(view.ref, element(view, at), F32)
        if size[dim] > 1:
            moving = at[dim]
            assert isinstance(moving, Symbol)
            value = b.reduce([value], [moving.name], combine(how, F32))
        b.store(made.ref, element(made, [integer(0) if d == dim else e for d, e in enumerate(at)]), value)
        self.kernel(axes, b)
        return made

    def scan(self, how: str, view: View, dim: int) -> View:
        """Of a dim with several elements."""
        made = self.buffer(sizes_of(view))
        axes, at, b = self.loop(sizes_of(view))
        along = at[dim]
        assert isinstance(along, Symbol)
        value = b.scan([b.load(view.ref, element(view, at), F32)], along.name, combine(how, F32))
        b.store(made.ref, element(made, at), value)
        self.kernel(axes, b)
        return made

    def cat(self, dim: int, *views: View) -> View:
        size = list(sizes_of(views[0]))
        size[dim] = sum(sizes_of(v)[dim] for v in views)
        made = self.buffer(size)
        start = 0
        for version, view in enumerate(views):
            made = replace(made, ref=Ref(made.ref.storage, version))
            self.pointwise(lambda b, value: value, view, into=narrow(made, dim, start, sizes_of(view)[dim]))
            start += sizes_of(view)[dim]
        return made

    def pad(self, view: View, dim: int) -> View:
        """One zero on either side."""
        size = list(sizes_of(view))
        size[dim] += 2
        made = self.buffer(size)
        axes, at, b = self.loop(size)
        position = b.index(at[dim])
        lower = b.op("ge", position, b.constant(1, I64))
        inside = b.op("logical_and", lower, b.op("le", position, b.constant(size[dim] - 2, I64)))
        region = b.region()
        shifted = [e - 1 if d == dim else e for d, e in enumerate(at)]
        value = region.load(view.ref, element(view, shifted), F32)
        b.store(made.ref, element(made, at), b.masked(inside, (), region.build([value]), 0.0, F32))
        self.kernel(axes, b)
        return made

    def gather(self, view: View, places: View) -> View:
        """Rows of a matrix, picked by the magnitudes of a vector."""
        rows, width = sizes_of(view)
        made = self.buffer([sizes_of(places)[0], width])
        axes, at, b = self.loop(sizes_of(made))
        number = b.cast(b.op("abs", b.load(places.ref, element(places, at[:1]), F32)), I64)
        row = b.check(b.op("mod", number, b.constant(rows, I64)), integer(rows), wrap=False)
        b.store(made.ref, element(made, at), b.load(view.ref, element(view, [row, at[1]]), F32))
        self.kernel(axes, b)
        return made

    def copy(self, target: View, value: View) -> View:
        """Overwrites a storage: the new version."""
        new = replace(target, ref=Ref(target.ref.storage, target.ref.version + 1))
        return self.pointwise(lambda b, v: v, value, into=new)

    def extern(self, view: View) -> View:
        """A copy that an operator of torch makes."""
        made = self.buffer(sizes_of(view))
        name = f"x{len(self.nodes)}"
        origin = (Origin(name, "aten.neg.out"),)
        self.nodes.append(Extern(name, "aten.neg.out", (view,), (), (made,), origin, "a test", "out"))
        return made

    def done(self, *outputs: View) -> Program:
        return Program("sketch", (), tuple(self.inputs), tuple(self.buffers), tuple(self.nodes), outputs)


def element(view: View, at: Sequence[Expr]) -> Expr:
    """The flat index of an element, broadcast dims at 0."""
    total = view.offset
    for n, stride, e in zip(view.size[::-1], view.stride[::-1], at[::-1], strict=False):
        total = total if n == 1 else total + stride * e
    return total


def narrow(view: View, dim: int, start: int, length: int) -> View:
    size = list(view.size)
    size[dim] = integer(length)
    return replace(view, size=tuple(size), offset=view.offset + start * view.stride[dim])


def flip(view: View, dim: int) -> View:
    """Read from the end; negative strides are no view of torch's, and any index is one of a kernel."""
    stride = tuple(-s if d == dim else s for d, s in enumerate(view.stride))
    return replace(view, stride=stride, offset=view.offset + (view.size[dim] - 1) * view.stride[dim])


def transpose(view: View, a: int, b: int) -> View:
    size, stride = list(view.size), list(view.stride)
    size[a], size[b] = size[b], size[a]
    stride[a], stride[b] = stride[b], stride[a]
    return replace(view, size=tuple(size), stride=tuple(stride))


def is_dense(view: View) -> bool:
    return view.stride == exprs(row_major(sizes_of(view)))


def flatten(view: View) -> View:
    """The first two dims as one; of a row-major view only."""
    return replace(view, size=(view.size[0] * view.size[1], *view.size[2:]), stride=view.stride[1:])


def unflatten(view: View, outer: int) -> View:
    """The first dim as two."""
    inner = sizes_of(view)[0] // outer
    stride = (view.stride[0] * inner, *view.stride)
    return replace(view, size=(integer(outer), integer(inner), *view.size[1:]), stride=stride)


def arguments(program: Program) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    table = program.buffer_table()
    sizes = [[int(str(n)) for n in table[given.name].size] for given in program.inputs]
    return [torch.rand(size, generator=generator) + 0.5 for size in sizes]
