"""Kernels that each ask one thing of the loop nest or the printer, with their inputs.

Takes nothing; gives `CASES`: a name, a Program of one kernel, and inputs for it. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from minductor.core.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, DType
from minductor.core.expressions.expr import Expr, Symbol, as_expr, integer, maximum, minimum, symbol
from minductor.ir.program.build import Builder, combine, softmax_terms, softmax_total
from minductor.ir.program.nodes import Axis, Buffer, Combine, Input, Kernel, Origin, Program, Ref, View
from minductor.ir.program.ops import COMBINES
from minductor.runtime.reference.reference import torch_dtype

S0 = symbol("s0", "size", 1)
S1 = symbol("s1", "size", 1)
SIZES = {"s0": 37, "s1": 301}


@dataclass
class Sketch:
    """One kernel under construction: axes i0, i1, ...; inputs named by letters; outputs stored row-major."""

    extents: Sequence[int | Expr]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    outputs: list[View] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.axes: list[Axis] = []
        for n, extent in enumerate(self.extents):
            high = extent - 1 if isinstance(extent, int) else None
            self.axes.append(Axis(symbol(f"i{n}", "axis", 0, high), as_expr(extent)))
        self.i: list[Symbol] = [axis.symbol for axis in self.axes]
        self.b = Builder(self.i)

    def read(self, name: str, tensor: Tensor, dtype: DType, index: Expr | int) -> int:
        """Loads an input's element; the same name again is the same input."""
        if name not in self.tensors:
            self.tensors[name] = tensor
            size = tuple(integer(n) for n in tensor.shape)
            stride = tuple(integer(n) for n in tensor.stride())
            self.buffers.append(Buffer(name, dtype, size, stride, "input"))
        wide = F32 if dtype in (BF16, F16) else dtype
        return self.b.load(Ref(name, 0), as_expr(index), wide)

    def write(self, value: int, dtype: DType, axes: Sequence[int] | None = None, index: Expr | None = None) -> None:
        """Stores one element for each point of these axes, row-major in them."""
        chosen = range(len(self.axes)) if axes is None else axes
        extents = [self.axes[n].extent for n in chosen]
        strides: list[Expr] = [integer(1)]
        for extent in reversed(extents[1:]):
            strides.append(strides[-1] * extent)
        strides = strides[::-1] if extents else []
        place = integer(0)
        for n, stride in zip(chosen, strides, strict=True):
            place = place + self.i[n] * stride
        ref = Ref(f"out{len(self.outputs)}", 0)
        self.buffers.append(Buffer(ref.storage, dtype, tuple(extents), tuple(strides)))
        self.outputs.append(View(ref, dtype, tuple(extents), tuple(strides), integer(0)))
        self.b.store(ref, place if index is None else index, value)

    def constant(self, value: float) -> int:
        return self.b.constant(value, F32)

    def program(self) -> Program:
        sizes = tuple(s for s in (S0, S1) if any(s == axis.extent for axis in self.axes))
        inputs = [Input(name) for name in self.tensors] + [Input(s.name, s) for s in sizes]
        origin = (Origin("node", "aten.op.default"),)
        kernel = Kernel("kernel", tuple(self.axes), self.b.build(), origin)
        return Program("case", sizes, tuple(inputs), tuple(self.buffers), (kernel,), tuple(self.outputs))


@dataclass(frozen=True, slots=True)
class Case:
    program: Program
    tensors: Mapping[str, Tensor]


def randn(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size)), dtype=torch.float32).to(dtype)


def integers(high: int, *size: int) -> Tensor:
    return torch.randint(high, size, generator=torch.Generator().manual_seed(high))


# --- pointwise


def pointwise_odd() -> Sketch:
    s = Sketch((1003,))
    x = s.read("a", randn(1003), F32, s.i[0])
    s.write(s.b.op("tanh", s.b.op("mul", x, s.constant(0.1))), F32)
    return s


def pointwise_long() -> Sketch:
    s = Sketch((3, 20001))
    x = s.read("a", randn(3, 20001), F32, 20001 * s.i[0] + s.i[1])
    s.write(s.b.op("exp", s.b.op("neg", x)), F32)
    return s


def broadcasts() -> Sketch:
    s = Sketch((65, 70))
    i, j = s.i
    column = s.b.op("exp", s.read("a", randn(65), F32, i))
    row = s.b.op("exp", s.read("b", randn(70), F32, j))
    s.write(s.b.op("mul", s.b.op("add", column, row), s.read("c", randn(65, 70), F32, 70 * i + j)), F32)
    return s


def sixteen_bits() -> Sketch:
    s = Sketch((40, 50))
    place = 50 * s.i[0] + s.i[1]
    x = s.read("a", randn(40, 50, dtype=torch.bfloat16), BF16, place)
    y = s.read("b", randn(40, 50, dtype=torch.float16), F16, place)
    total = s.b.op("add", x, y)
    s.write(total, BF16)
    s.write(s.b.round_to(total, BF16), F16)
    return s


def copied_bits() -> Sketch:
    """A float of 16 bits that is stored as it is, as another float of 16 bits, and in a rounded sum."""
    s = Sketch((40, 50))
    i, j = s.i
    x = s.read("a", randn(40, 50, dtype=torch.bfloat16), BF16, 50 * i + 49 - j)
    for dtype in (BF16, F16):
        s.write(x, dtype)
    s.write(s.b.round_to(s.b.op("add", x, s.constant(1.0)), BF16), BF16)
    return s


def padded_bits() -> Sketch:
    """A bfloat16 between ones: each element of the result is one of the operand's, or 1."""
    s = Sketch((20, 50))
    i, j = s.i
    s.tensors["a"] = randn(20, 47, dtype=torch.bfloat16)
    s.buffers.append(Buffer("a", BF16, (integer(20), integer(47)), (integer(47), integer(1)), "input"))
    inside = Builder(s.i)
    region = inside.build([inside.load(Ref("a", 0), 47 * i + j - 1, F32)])
    first, last = (s.b.op(op, s.b.index(j), s.b.constant(at, I64)) for op, at in (("ge", 1), ("lt", 48)))
    s.write(s.b.op("neg", s.b.masked(s.b.op("logical_and", first, last), (), region, 1.0, F32)), BF16)
    return s


def halves() -> Sketch:
    """Long enough for blocks, whose length the compiler knows."""
    s = Sketch((8192,))
    x = s.read("a", randn(8192, dtype=torch.float16), F16, s.i[0])
    s.write(s.b.op("neg", x), F16)
    return s


def other_types() -> Sketch:
    s = Sketch((300,))
    n = s.read("a", integers(1 << 40, 300), I64, s.i[0])
    flag = s.read("b", integers(2, 300).bool(), BOOL, s.i[0])
    s.write(s.b.op("where", flag, s.b.op("mul", n, n), s.b.index(s.i[0] * 3)), I64)
    s.write(s.b.op("logical_not", flag), BOOL)
    s.write(s.b.cast(n, F64), F64)
    s.write(s.b.op("add", s.b.cast(n, I8), s.b.cast(n, I8)), I8)
    s.write(s.b.cast(s.b.cast(flag, F32), I32), I32)
    return s


def transposed() -> Sketch:
    s = Sketch((150, 90))
    i, j = s.i
    x = s.read("a", randn(90, 150), F32, 150 * j + i)
    s.write(s.b.op("add", x, s.read("b", randn(150, 90), F32, 90 * i + j)), F32)
    return s


def transposed_bits() -> Sketch:
    """A bfloat16 that is stored as it is, in the other order."""
    s = Sketch((150, 90))
    i, j = s.i
    s.write(s.read("a", randn(90, 150, dtype=torch.bfloat16), BF16, 150 * j + i), BF16)
    return s


def transposed_of(dtype: DType) -> Sketch:
    """A sum with a transposed matrix in another dtype; the sides are no multiples of a tile."""
    s = Sketch((157, 93))
    i, j = s.i
    x = s.read("a", whole(93, 157).to(torch_dtype(dtype)), dtype, 157 * j + i)
    s.write(s.b.op("add", x, s.read("b", whole(157, 93).to(torch_dtype(dtype)), dtype, 93 * i + j)), dtype)
    return s


def whole(*shape: int) -> Tensor:
    """Whole numbers from -50 to 50."""
    return torch.arange(shape[0] * shape[1]).reshape(shape) % 101 - 50


def permuted() -> Sketch:
    s = Sketch((3, 40, 50))
    i, j, k = s.i
    s.write(s.b.op("neg", s.read("a", randn(3, 50, 40), F32, 2000 * i + 40 * k + j)), F32)
    return s


def padded() -> Sketch:
    s = Sketch((20, 100))
    i, j = s.i
    s.tensors["a"] = randn(20, 64)
    s.buffers.append(Buffer("a", F32, (integer(20), integer(64)), (integer(64), integer(1)), "input"))
    inside = Builder(s.i)
    inside.load(Ref("a", 0), 64 * i + j - 10, F32)
    position = s.b.index(j)
    low = s.b.op("ge", position, s.b.constant(10, I64))
    high = s.b.op("lt", position, s.b.constant(74, I64))
    value = s.b.masked(s.b.op("logical_and", low, high), (), inside.build([0]), -1.5, F32)
    s.write(s.b.op("mul", value, s.constant(2.0)), F32)
    return s


def padded_rows() -> Sketch:
    """Masks that ask for the row only, of which a few rows have none, some one, and most both."""
    s = Sketch((20, 100))
    i, j = s.i
    s.tensors["a"] = randn(17, 100)
    s.buffers.append(Buffer("a", F32, (integer(17), integer(100)), (integer(100), integer(1)), "input"))
    x = s.read("b", randn(20, 100), F32, 100 * i + j)
    inside = Builder(s.i)
    inside.op("mul", inside.parameter(0, F32), inside.load(Ref("a", 0), 100 * i + j - 300, F32))
    region = inside.build([2])
    low = s.b.op("ge", s.b.index(i), s.b.constant(3, I64))
    both = s.b.op("logical_and", low, s.b.op("lt", s.b.index(i), s.b.constant(19, I64)))
    s.write(s.b.op("add", s.b.masked(both, (x,), region, -1.5, F32), s.b.masked(low, (x,), region, 1.0, F32)), F32)
    return s


def padded_columns() -> Sketch:
    """A mask that asks for the column only, and costs enough to be kept for all rows."""
    s = Sketch((3, 30))
    i, j = s.i
    s.tensors["a"] = randn(3, 27)
    s.buffers.append(Buffer("a", F32, (integer(3), integer(27)), (integer(27), integer(1)), "input"))
    inside = Builder(s.i)
    region = inside.build([inside.load(Ref("a", 0), 27 * i + j - 1, F32)])
    asked = s.b.op("ge", s.b.index(j), s.b.constant(1, I64))
    for op, other in (("lt", 28), *(("ne", column) for column in range(7, 17))):
        asked = s.b.op("logical_and", asked, s.b.op(op, s.b.index(j), s.b.constant(other, I64)))
    s.write(s.b.masked(asked, (), region, 1.0, F32), F32)
    return s


def bent(rows: int | Expr, columns: int | Expr) -> Sketch:
    """Rows that are reflected at either end, and rolled forwards and backwards."""
    s = Sketch((rows, columns))
    size = [SIZES[str(n)] if isinstance(n, Expr) else n for n in (rows, columns)]
    i, j = s.i
    total = s.constant(0.0)
    for shift in (5, -5):
        inner = maximum(j + shift, -(j + shift))
        for name, at in (("a", minimum(inner, 2 * (as_expr(columns) - 1) - inner)), ("b", (j + shift) % columns)):
            total = s.b.op("add", total, s.read(f"{name}{shift}", randn(*size), F32, i * columns + at))
    s.write(total, F32)
    return s


def gathered() -> Sketch:
    s = Sketch((30, 48))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(12, 30) - 6, I64, i), integer(12), wrap=True)
    s.write(s.b.op("neg", s.read("table", randn(12, 48), F32, 48 * at + j)), F32)
    return s


def gathered_and_computed(columns: int | Expr) -> Sketch:
    """Two gathers from a table along the contiguous axis, and much arithmetic with one of them."""
    s = Sketch((5, columns))
    i, j = s.i
    width = SIZES[str(columns)] if isinstance(columns, Expr) else columns
    ids = s.read("ids", integers(50, 5, width) - 3, I64, i * columns + j)
    place = s.b.check(ids, integer(50), wrap=True)
    first, second = (s.read(n, randn(50), F32, place) for n in ("table", "other"))
    x = s.read("a", randn(5, width), F32, i * columns + j)
    s.write(s.b.op("add", s.b.op("tanh", s.b.op("mul", first, x)), second), F32)
    return s


def gathered_by_a_comparison() -> Sketch:
    """Of 4-byte elements, in a loop that is vectorised."""
    s = Sketch((30, 700))
    i, j = s.i
    is_large = s.b.op("gt", s.read("a", randn(30, 700), F32, 700 * i + j), s.constant(0.5))
    at = s.b.check(s.b.cast(is_large, I64), integer(2), wrap=False)
    s.write(s.b.reduce([s.read("table", randn(2), F32, at)], ["i1"], combine("sum", F32)), F32, axes=(0,))
    return s


def gathered_along_rows(rows: int | Expr, columns: int | Expr) -> Sketch:
    """From places that are the same in every row, and so are the weights: as when an image is resized."""
    s = Sketch((rows, columns))
    i, j = s.i
    height, width = (SIZES[str(n)] if isinstance(n, Expr) else n for n in (rows, columns))
    place = s.read("ids", integers(50, width) - 3, I64, j)
    left, right = (s.b.check(at, integer(50), wrap=True) for at in (place, s.b.op("add", place, s.b.constant(2, I64))))
    weight = s.b.op("sub", s.constant(1.0), s.b.op("abs", s.read("w", randn(width), F32, j)))
    low, high = (s.read(n, randn(height, 50), F32, 50 * i + at) for n, at in (("a", left), ("b", right)))
    s.write(s.b.op("add", low, s.b.op("mul", s.b.op("sub", high, low), weight)), F32)
    return s


def one_hot() -> Sketch:
    """A scalar that one thread reads and every thread selects: as in the gradient of cross entropy."""
    s = Sketch((300, 90))
    i, j = s.i
    scale = s.b.op("neg", s.read("scale", randn(1), F32, 0))
    hit = s.b.op("eq", s.read("ids", integers(90, 300), I64, i), s.b.index(j))
    value = s.b.op("where", hit, scale, s.constant(0.0))
    total = s.b.reduce([value], ["i1"], combine("sum", F32))
    x = s.read("a", randn(300, 90), F32, 90 * i + j)
    s.write(s.b.op("sub", value, s.b.op("mul", x, total)), F32)
    return s


# --- reduces


def softmax(size: tuple[int | Expr, int | Expr], *, scale: float = 1.0) -> Sketch:
    s = Sketch(size)
    height, width = (SIZES[str(n)] if isinstance(n, Expr) else n for n in size)
    x = s.read("a", randn(height, width) * scale, F32, size[1] * s.i[0] + s.i[1])
    top = s.b.reduce([x], ["i1"], combine("max", F32))
    e = s.b.op("exp", s.b.op("sub", x, top))
    s.write(s.b.op("div", e, s.b.reduce([e], ["i1"], combine("sum", F32))), F32)
    return s


def softmax_columns() -> Sketch:
    s = Sketch((40, 300))
    x = s.read("a", randn(40, 300), F32, 300 * s.i[0] + s.i[1])
    top = s.b.reduce([x], ["i0"], combine("max", F32))
    e = s.b.op("exp", s.b.op("sub", x, top))
    s.write(s.b.op("div", e, s.b.reduce([e], ["i0"], combine("sum", F32))), F32)
    return s


def layer_norm() -> Sketch:
    s = Sketch((33, 200))
    i, j = s.i
    x = s.b.op("erf", s.read("a", randn(33, 200), F32, 200 * i + j))
    mean = s.b.op("div", s.b.reduce([x], ["i1"], combine("sum", F32)), s.constant(200.0))
    d = s.b.op("sub", x, mean)
    squares = s.b.reduce([s.b.op("square", d)], ["i1"], combine("sum", F32))
    scale = s.b.op("rsqrt", s.b.op("add", s.b.op("div", squares, s.constant(200.0)), s.constant(1e-5)))
    s.write(scale, F32, axes=(0,))
    y = s.b.op("mul", s.b.op("mul", d, scale), s.read("w", randn(200), F32, j))
    s.write(y, BF16)
    return s


def group_norm() -> Sketch:
    """Statistics over two axes that an inner weight keeps apart."""
    s = Sketch((6, 5, 70))
    g, c, k = s.i
    x = s.read("a", randn(6, 5, 70), F32, 350 * g + 70 * c + k)
    total = s.b.reduce([x], ["i1", "i2"], combine("sum", F32))
    s.write(s.b.op("mul", s.b.op("sub", x, total), s.read("w", randn(5), F32, c)), F32)
    return s


def group_norm_last(count: int = 2000) -> Sketch:
    """A group is a few channels, which are innermost."""
    s = Sketch((3, 4, 6, count))
    n, g, c, k = s.i
    place = 24 * count * n + 6 * g + c + 24 * k
    x = s.read("a", randn(3, count, 24), F32, place)
    total = s.b.reduce([x], ["i2", "i3"], combine("sum", F32))
    s.write(s.b.op("mul", s.b.op("sub", x, total), s.read("w", randn(24), F32, 6 * g + c)), F32, index=place)
    return s


def batch_norm() -> Sketch:
    """Reduced axes on both sides of the kept one."""
    s = Sketch((4, 20, 60))
    n, c, k = s.i
    x = s.read("a", randn(4, 20, 60), F32, 1200 * n + 60 * c + k)
    total = s.b.reduce([x], ["i0", "i2"], combine("sum", F32))
    s.write(total, F32, axes=(1,))
    s.write(s.b.op("sub", x, total), F32)
    return s


def rows_then_all() -> Sketch:
    """A reduce of what a reduce gives, as in cross entropy."""
    s = Sketch((50, 80))
    x = s.read("a", randn(50, 80), F32, 80 * s.i[0] + s.i[1])
    row = s.b.op("log", s.b.reduce([s.b.op("exp", x)], ["i1"], combine("sum", F32)))
    s.write(s.b.reduce([row], ["i0"], combine("sum", F32)), F32, axes=())
    return s


def rows_and_columns() -> Sketch:
    """Both sums of one matrix in one kernel."""
    s = Sketch((50, 80))
    x = s.read("a", randn(50, 80), F32, 80 * s.i[0] + s.i[1])
    s.write(s.b.reduce([x], ["i1"], combine("sum", F32)), F32, axes=(0,))
    s.write(s.b.reduce([x], ["i0"], combine("sum", F32)), F32, axes=(1,))
    return s


def layer_norm_backward(rows: int | Expr) -> Sketch:
    """Sums along the rows, and down the rows of what the row's sums have made."""
    s = Sketch((rows, 300))
    i, j = s.i
    count = rows if isinstance(rows, int) else SIZES["s0"]
    x = s.read("x", randn(count, 300), F32, 300 * i + j)
    dy = s.read("dy", randn(count, 300) * 2, F32, 300 * i + j)
    g = s.b.op("mul", dy, s.read("w", randn(300), F32, j))
    mean = s.b.op("div", s.b.reduce([g], ["i1"], combine("sum", F32)), s.constant(300.0))
    slope = s.b.op("div", s.b.reduce([s.b.op("mul", g, x)], ["i1"], combine("sum", F32)), s.constant(300.0))
    dx = s.b.op("sub", s.b.op("sub", g, mean), s.b.op("mul", x, slope))
    s.write(slope, F32, axes=(0,))
    s.write(dx, F32)
    s.write(s.b.reduce([s.b.op("mul", dy, x)], ["i0"], combine("sum", F32)), F32, axes=(1,))
    s.write(s.b.op("neg", s.b.reduce([dx], ["i0"], combine("sum", F32))), F32, axes=(1,))
    s.write(s.b.reduce([dy], ["i0"], combine("max", F32)), F32, axes=(1,))
    return s


def both_ways_of_four_axes() -> Sketch:
    """Rows and columns that no index runs through as one."""
    s = Sketch((12, 30, 3, 40))
    a, b, c, d = s.i
    x = s.read("a", randn(30, 12, 3, 41), F32, 1476 * b + 123 * a + 41 * c + d)
    total = s.b.reduce([x], ["i2", "i3"], combine("sum", F32))
    s.write(total, F32, axes=(0, 1))
    s.write(s.b.reduce([s.b.op("sub", x, total)], ["i0", "i1"], combine("sum", F32)), F32, axes=(2, 3))
    return s


def reduced(size: tuple[int, ...], over: tuple[int, ...], name: str, dtype: DType = F32) -> Sketch:
    s = Sketch(size)
    place, stride = integer(0), 1
    for n in reversed(range(len(size))):
        place, stride = place + s.i[n] * stride, stride * size[n]
    kept = [n for n in range(len(size)) if n not in over]
    axes = [f"i{n}" for n in over]
    if dtype == BOOL:
        x = s.read("a", integers(3, *size) > (0 if name == "all" else 1), BOOL, place)
    elif dtype == I64:
        x = s.read("a", integers(1000, *size), I64, place)
    else:
        x = s.read("a", randn(*size), F32, place)
        x = s.b.op("add", x, s.constant(1.0)) if name == "prod" else x
    match name:
        case "argmax" | "argmin":
            (axis,) = over
            made = s.b.reduce([x, s.b.index(s.i[axis])], axes, combine(name, dtype))
            s.write(s.b.project(made, 1), I64, axes=kept)
            s.write(made, dtype, axes=kept)
        case "welford":
            zero, one = s.constant(0.0), s.constant(1.0)
            made = s.b.reduce([x, zero, one], axes, combine(name, dtype))
            for n in range(3):
                s.write(s.b.project(made, n), F32, axes=kept)
        case "online_softmax":
            made = s.b.reduce(softmax_terms(s.b, x), axes, combine(name, dtype))
            s.write(softmax_total(s.b, made), F32, axes=kept)
        case _:
            s.write(s.b.reduce([x], axes, combine(name, dtype)), dtype, axes=kept)
    return s


def sums_of_two() -> Sketch:
    """Two sums over rows, of what a value of the row and one of the column scale; another is a product."""
    s = Sketch((29, 90))
    i, j = s.i
    scale = s.b.op("add", s.read("s", randn(29), F32, i), s.constant(0.5))
    x = s.b.op("mul", s.b.op("mul", s.read("a", randn(29, 90), F32, 90 * i + j), scale), s.read("w", randn(90), F32, j))
    s.write(s.b.reduce([x], ["i0"], combine("sum", F32)), F32, axes=(1,))
    s.write(s.b.reduce([s.b.op("square", x)], ["i0"], combine("sum", F32)), F32, axes=(1,))
    s.write(s.b.reduce([s.b.op("cos", x)], ["i0"], combine("prod", F32)), F32, axes=(1,))
    return s


def scanned(axis: int, *, reverse: bool, how: str = "sum") -> Sketch:
    s = Sketch((30, 40))
    x = s.read("a", randn(30, 40), F32, 40 * s.i[0] + s.i[1])
    given = [x] if COMBINES[how] == 1 else [x, s.constant(1.0)]
    made = s.b.scan(given, f"i{axis}", combine(how, F32), reverse=reverse)
    s.write(s.b.op("mul", s.b.project(made, len(given) - 1), s.constant(0.5)), F32)
    return s


def scan_between_maps(rows: int | Expr, columns: int | Expr, *, reverse: bool) -> Sketch:
    """What is costly before and behind a scan, which is also divided by its maximum where `reverse` is not set."""
    s = Sketch((rows, columns))
    sizes = [SIZES[str(n)] if isinstance(n, Expr) else n for n in (rows, columns)]
    x = s.read("a", randn(*sizes), F32, columns * s.i[0] + s.i[1])
    made = s.b.scan([s.b.op("exp", x)], "i1", combine("sum", F32), reverse=reverse)
    top = made if reverse else s.b.op("div", made, s.b.reduce([made], ["i1"], combine("max", F32)))
    s.write(s.b.op("tanh", s.b.op("mul", top, s.constant(0.01))), F32)
    return s


def scan_of_two(axis: int, rows: int = 30) -> Sketch:
    """x[n] = a[n] * x[n - 1] + b[n], and the value before it: a combine of three values, two of which move along."""
    s = Sketch((rows, 600))
    place = 600 * s.i[0] + s.i[1]
    region = Builder()
    a0, b0, _, a1, b1, _ = (region.parameter(n, F32) for n in range(6))
    body = region.build([region.op("mul", a0, a1), region.op("add", region.op("mul", a1, b0), b1), b0])
    given = [s.b.op("sigmoid", s.read("a", randn(rows, 600), F32, place)), s.read("b", randn(rows, 600), F32, place)]
    made = s.b.scan([*given, given[1]], f"i{axis}", Combine("recurrence", (1.0, 0.0, 0.0), body))
    for number in range(3):
        s.write(s.b.project(made, number), F32)
    return s


def scan_of_extremes(rows: int = 30) -> Sketch:
    s = Sketch((rows, 70))
    x = s.b.op("floor", s.read("a", randn(rows, 70) * 3, F32, 70 * s.i[0] + s.i[1]))
    for name in ("last_max", "last_min"):
        made = s.b.scan([x, s.b.index(s.i[1])], "i1", combine(name, F32))
        s.write(made, F32)
        s.write(s.b.project(made, 1), I64)
    return s


# --- effects


def scattered() -> Sketch:
    s = Sketch((200, 8))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(5, 200), I64, i), integer(5), wrap=False)
    x = s.read("a", randn(200, 8), F32, 8 * i + j)
    s.tensors["io"] = torch.zeros(5, 8)
    s.buffers.append(Buffer("io", F32, (integer(5), integer(8)), (integer(8), integer(1)), "input"))
    s.b.atomic(Ref("io", 1), 8 * at + j, x, "add")
    s.outputs.append(View(Ref("io", 1), F32, (integer(5), integer(8)), (integer(8), integer(1)), integer(0)))
    return s


def in_place() -> Sketch:
    """Overwrites what it reads; the first store may not run before the last load."""
    s = Sketch((20, 90))
    place = 90 * s.i[0] + s.i[1]
    x = s.read("io", randn(20, 90), F32, place)
    total = s.b.reduce([x], ["i1"], combine("sum", F32))
    s.b.store(Ref("io", 1), place, s.b.op("mul", x, s.constant(2.0)))
    s.write(s.b.op("sub", x, total), F32)
    s.outputs.append(View(Ref("io", 1), F32, (integer(20), integer(90)), (integer(90), integer(1)), integer(0)))
    return s


def symbolic(over: tuple[str, ...]) -> Sketch:
    s = Sketch((S0, S1))
    i, j = s.i
    x = s.read("a", randn(SIZES["s0"], SIZES["s1"]), F32, i * S1 + j)
    kept = [n for n in range(2) if f"i{n}" not in over]
    total = s.b.reduce([x], over, combine("sum", F32)) if over else x
    s.write(total, F32, axes=kept)
    s.write(s.b.op("sub", x, s.b.op("neg", total)), F32)
    return s


def symbolic_ends() -> Sketch:
    """Sums cut in blocks on every loop, with sizes known only at the call."""
    s = Sketch((S0, 3, S1))
    i, j, k = s.i
    x = s.read("a", randn(SIZES["s0"], 3, SIZES["s1"]), F32, i * S1 * 3 + j * S1 + k)
    s.write(s.b.reduce([x], ["i0", "i2"], combine("sum", F32)), F32, axes=(1,))
    return s


BUILDERS: Mapping[str, Callable[[], Sketch]] = {
    "pointwise_odd": pointwise_odd,
    "pointwise_long": pointwise_long,
    "broadcasts": broadcasts,
    "sixteen_bits": sixteen_bits,
    "copied_bits": copied_bits,
    "padded_bits": padded_bits,
    "halves": halves,
    "other_types": other_types,
    "transposed": transposed,
    "transposed_bits": transposed_bits,
    **{f"transposed_{dtype.name}": partial(transposed_of, dtype) for dtype in (F64, I64, I16, I8, U8)},
    "permuted": permuted,
    "padded": padded,
    "padded_rows": padded_rows,
    "padded_columns": padded_columns,
    "bent": lambda: bent(20, 64),
    "bent_long": lambda: bent(2, 20001),
    "bent_symbolic": lambda: bent(S0, S1),
    "gathered": gathered,
    "gathered_and_computed": lambda: gathered_and_computed(700),
    "gathered_and_computed_short": lambda: gathered_and_computed(40),
    "gathered_and_computed_symbolic": lambda: gathered_and_computed(S1),
    "gathered_by_a_comparison": gathered_by_a_comparison,
    "gathered_along_rows": lambda: gathered_along_rows(150, 300),
    "gathered_along_rows_symbolic": lambda: gathered_along_rows(S0, S1),
    "one_hot": one_hot,
    "softmax": lambda: softmax((37, 100)),
    "softmax_short": lambda: softmax((300, 7)),
    "softmax_few_long_rows": lambda: softmax((2, 40000), scale=0.1),
    "softmax_symbolic": lambda: softmax((S0, S1)),
    "softmax_columns": softmax_columns,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "group_norm_last": group_norm_last,
    "batch_norm": batch_norm,
    "rows_then_all": rows_then_all,
    "rows_and_columns": rows_and_columns,
    "layer_norm_sums_backward": lambda: layer_norm_backward(700),
    "layer_norm_sums_backward_serial": lambda: layer_norm_backward(3),
    "layer_norm_sums_backward_symbolic": lambda: layer_norm_backward(S0),
    "sums_both_ways_of_four_axes": both_ways_of_four_axes,
    "sum_inner": lambda: reduced((70, 130), (1,), "sum"),
    "sum_outer": lambda: reduced((130, 70), (0,), "sum"),
    "sum_outer_of_few": lambda: reduced((5, 70), (0,), "sum"),
    "sums_of_two": sums_of_two,
    "sum_outer_in_parts": lambda: reduced((5000, 40), (0,), "sum"),
    "sum_outer_wide_in_parts": lambda: reduced((400, 1500), (0,), "sum"),
    "sum_of_long_rows": lambda: reduced((17, 70000), (1,), "sum"),
    "sum_middle": lambda: reduced((9, 50, 60), (1,), "sum"),
    "sum_ends": lambda: reduced((9, 50, 60), (0, 2), "sum"),
    "sum_all": lambda: reduced((300, 301), (0, 1), "sum"),
    "sum_small": lambda: reduced((3, 5), (0, 1), "sum"),
    "sum_of_nothing": lambda: reduced((0, 8), (0,), "sum"),
    "sum_of_empty_rows": lambda: reduced((8, 0), (1,), "sum"),
    "sums_that_are_not_there": lambda: reduced((8, 0), (0,), "sum"),
    "max_inner": lambda: reduced((20, 100), (1,), "max"),
    "min_outer": lambda: reduced((100, 20), (0,), "min"),
    "prod_inner": lambda: reduced((30, 20), (1,), "prod"),
    "any_inner": lambda: reduced((90, 6), (1,), "any", BOOL),
    "all_outer": lambda: reduced((6, 90), (0,), "all", BOOL),
    "all_inner": lambda: reduced((6, 300), (1,), "all", BOOL),
    "sum_integers": lambda: reduced((40, 90), (1,), "sum", I64),
    "argmax_inner": lambda: reduced((40, 333), (1,), "argmax"),
    "argmin_outer": lambda: reduced((333, 40), (0,), "argmin"),
    "argmax_integers": lambda: reduced((40, 3000), (1,), "argmax", I64),
    "argmax_in_parts": lambda: reduced((2, 50000), (1,), "argmax"),
    "welford_inner": lambda: reduced((20, 200), (1,), "welford"),
    "welford_outer": lambda: reduced((200, 20), (0,), "welford"),
    "online_softmax": lambda: reduced((20, 200), (1,), "online_softmax"),
    "scan_rows": lambda: scanned(1, reverse=False),
    "scan_columns": lambda: scanned(0, reverse=False),
    "scan_rows_back": lambda: scanned(1, reverse=True),
    "scan_between_maps": lambda: scan_between_maps(30, 300, reverse=False),
    "scan_between_maps_back": lambda: scan_between_maps(7, 1300, reverse=True),
    "scan_between_maps_symbolic": lambda: scan_between_maps(S0, S1, reverse=False),
    "scan_between_maps_symbolic_back": lambda: scan_between_maps(S0, S1, reverse=True),
    "scan_of_log_sums": lambda: scanned(1, reverse=False, how="logsumexp"),
    "scan_of_two": lambda: scan_of_two(1),
    "scan_of_two_columns": lambda: scan_of_two(0),
    "scan_of_extremes": scan_of_extremes,
    "scattered": scattered,
    "in_place": in_place,
    "symbolic_map": lambda: symbolic(()),
    "symbolic_rows": lambda: symbolic(("i1",)),
    "symbolic_columns": lambda: symbolic(("i0",)),
    "symbolic_ends": symbolic_ends,
    "symbolic_all": lambda: symbolic(("i0", "i1")),
}


def case(name: str) -> Case:
    sketch = BUILDERS[name]()
    return Case(sketch.program(), sketch.tensors)
