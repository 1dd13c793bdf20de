"""The table of the steps that choose loops: kernels that they take and kernels that they refuse.

Takes nothing. Gives `RUNS` (for each recipe a kernel for which it is legal) and `REFUSALS` (kernels that a step
refuses, with the reason). `test_steps.py` runs them, and fails if a recipe or a step has no row. Refuses nothing.

A step is either part of a recipe, or edits each kernel before its draft or each nest behind it, as `group` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from math import prod
from typing import NamedTuple

import torch

from minductor.core.dtypes import BF16, F16, F32, F64, I64, DType
from minductor.core.expressions.expr import Expr, integer, maximum
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Buffer, Ref, View
from minductor.runtime.reference.reference import torch_dtype
from tests.codegen import cases
from tests.codegen.cases import S1, Sketch, integers, randn
from tests.passes.point_cases import points, strips_of_points


class Run(NamedTuple):
    """A kernel for which a recipe is legal. `step`: one that is no part of it and changes the kernel or its nest."""

    target: str
    recipe: str
    build: Callable[[], Sketch]
    step: str = ""


class Refusal(NamedTuple):
    """A kernel that a step refuses behind the steps that stand before it in the recipe."""

    step: str
    target: str
    recipe: str
    build: Callable[[], Sketch]
    reason: str


# --- kernels


def mapped(*size: int) -> Sketch:
    """The exponential of each element."""
    s = Sketch(size)
    s.write(s.b.op("exp", s.read("a", randn(prod(size)), F32, _row_major(s, size))), F32)
    return s


def transposed(rows: int, columns: int | Expr) -> Sketch:
    """A copy of a matrix in the order of its columns."""
    s = Sketch((columns, rows))
    count = columns if isinstance(columns, int) else cases.SIZES["s1"]
    s.write(s.read("a", randn(rows, count), F32, columns * s.i[1] + s.i[0]), F32)
    return s


def stored_and_loaded(count: int) -> Sketch:
    """A vector is negated where it lies; behind that, its exponentials are stored elsewhere."""
    s = Sketch((count,))
    (i,) = s.i
    s.b.store(Ref("io", 1), i, s.b.op("neg", s.read("io", randn(count), F32, i)))
    s.write(s.b.op("exp", s.b.load(Ref("io", 1), i, F32)), F32)
    s.outputs.append(View(Ref("io", 1), F32, (integer(count),), (integer(1),), integer(0)))
    return s


def functions_in_turn(length: int, *, is_summed: bool = False) -> Sketch:
    """A function of a function, and one beside them; their sum, or the sum of each row."""
    s = Sketch((3, length))
    i, j = s.i
    x = s.read("a", randn(3, length), F32, i * length + j)
    inner = s.b.op("exp", s.b.op("neg", x))
    y = s.b.op("add", s.b.op("sigmoid", s.b.op("mul", inner, s.b.op("tanh", x))), x)
    if is_summed:
        s.write(s.b.reduce([y], ["i1"], combine("sum", F32)), F32, axes=(0,))
        return s
    s.write(y, F32)
    s.write(s.b.op("neg", inner), F32)
    return s


def functions_around_a_maximum(length: int) -> Sketch:
    """The exponential of what the maximum of a row of functions leaves: each function stands in a loop of its own."""
    s = Sketch((3, length))
    i, j = s.i
    x = s.b.op("tanh", s.read("a", randn(3, length), F32, i * length + j))
    s.write(s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("max", F32)))), F32)
    return s


def _row_major(s: Sketch, size: tuple[int, ...]) -> Expr:
    place = integer(0)
    for axis, extent in zip(s.i, size, strict=True):
        place = place * extent + axis
    return place


def shared_column(rows: int, columns: int) -> Sketch:
    """A matrix and a vector that is the same in every column."""
    s = Sketch((rows, columns))
    i, j = s.i
    x = s.read("a", randn(rows, columns), F32, columns * i + j)
    s.write(s.b.op("add", x, s.read("b", randn(rows), F32, i)), F32)
    return s


def scattered(rows: int, columns: int, *, is_gathered: bool) -> Sketch:
    """Rows that are added to rows of another matrix; each element is looked up in a table if `is_gathered`."""
    s = Sketch((rows, columns))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(5, rows), I64, i), integer(5), wrap=False)
    place = columns * i + j
    if is_gathered:
        place = s.b.check(s.read("places", integers(50, rows, columns), I64, place), integer(50), wrap=False)
    s.tensors["io"] = torch.zeros(5, columns)
    size, stride = (integer(5), integer(columns)), (integer(columns), integer(1))
    s.buffers.append(Buffer("io", F32, size, stride, "input"))
    s.b.atomic(Ref("io", 1), columns * at + j, s.read("a", randn(rows, columns), F32, place), "add")
    s.outputs.append(View(Ref("io", 1), F32, size, stride, integer(0)))
    return s


def gathered_and_transposed() -> Sketch:
    """Elements of a table and of a transposed matrix."""
    s = Sketch((70, 90))
    i, j = s.i
    place = s.b.check(s.read("ids", integers(50, 70, 90), I64, 90 * i + j), integer(50), wrap=False)
    x = s.read("a", randn(90, 70), F32, 70 * j + i)
    s.write(s.b.op("add", s.read("table", randn(50), F32, place), x), F32)
    return s


def only_gathered() -> Sketch:
    """Elements of a table, with which nothing is computed."""
    s = Sketch((5, 700))
    place = s.b.check(s.read("ids", integers(50, 5, 700), I64, 700 * s.i[0] + s.i[1]), integer(50), wrap=False)
    s.write(s.read("table", randn(50), F32, place), F32)
    return s


def gathered_rows(rows: int, columns: int, size: int, *, by: int = 0) -> Sketch:
    """Elements of a table and of rows of another one at the same places; axis `by` chooses the row of `size`."""
    s = Sketch((rows, columns))
    ids = s.read("ids", integers(size, rows, columns), I64, columns * s.i[0] + s.i[1])
    at = s.b.check(ids, integer(size), wrap=False)
    x = s.read("rows", randn((rows, columns)[by], size), F32, size * s.i[by] + at)
    s.write(s.b.op("add", x, s.read("table", randn(size), F32, at)), F32)
    return s


def gathered_columns(rows: int, columns: int) -> Sketch:
    """Elements of a matrix divided by elements of a table, which each column looks up at a place that takes long."""
    s = Sketch((rows, columns))
    i, j = s.i
    ids = s.read("ids", integers(500, columns), I64, j)
    for size in (300, 200, 100, 50):
        ids = s.b.op("mod", ids, s.b.constant(size, I64))
    at = s.b.check(ids, integer(50), wrap=False)
    x = s.read("a", randn(rows, columns), F32, columns * i + j)
    s.write(s.b.op("div", x, s.read("table", randn(50), F32, at)), F32)
    return s


def masked_gather() -> Sketch:
    """Elements of a table, and of a matrix under a mask."""
    s = Sketch((5, 700))
    i, j = s.i
    place = s.b.check(s.read("ids", integers(50, 5, 700), I64, 700 * i + j), integer(50), wrap=False)
    s.read("a", randn(5, 700), F32, 0)
    s.b = Builder(s.i)
    place = s.b.check(s.b.load(Ref("ids", 0), 700 * i + j, I64), integer(50), wrap=False)
    region = s.b.region()
    inside = region.build([region.load(Ref("a", 0), 700 * i + j, F32)])
    low = s.b.op("lt", s.b.index(j), s.b.constant(600, I64))
    x = s.b.op("exp", s.read("table", randn(50), F32, place))
    s.write(s.b.op("add", x, s.b.masked(low, (), inside, 1.0, F32)), F32)
    return s


def scattered_numbers() -> Sketch:
    """Numbers that are added to those of a shorter vector: the one axis runs in order."""
    s = Sketch((40,))
    at = s.b.check(s.read("ids", integers(5, 40), I64, s.i[0]), integer(5), wrap=False)
    s.tensors["io"] = torch.zeros(5)
    s.buffers.append(Buffer("io", F32, (integer(5),), (integer(1),), "input"))
    s.b.atomic(Ref("io", 1), at, s.read("a", randn(40), F32, s.i[0]), "add")
    s.outputs.append(View(Ref("io", 1), F32, (integer(5),), (integer(1),), integer(0)))
    return s


def overlapping() -> Sketch:
    """Windows that overlap and are added up: two axes share a coordinate."""
    s = Sketch((30, 20))
    i, j = s.i
    s.tensors["io"] = torch.zeros(49)
    s.buffers.append(Buffer("io", F32, (integer(49),), (integer(1),), "input"))
    s.b.atomic(Ref("io", 1), i + j, s.read("a", randn(30, 20), F32, 20 * i + j), "add")
    s.outputs.append(View(Ref("io", 1), F32, (integer(49),), (integer(1),), integer(0)))
    return s


def sums_beside_stores() -> Sketch:
    """The sums of columns of scaled rows, and a function of each scale."""
    s = Sketch((130, 70))
    i, j = s.i
    scale = s.b.op("exp", s.read("s", randn(130), F32, i))
    s.write(scale, F32, axes=(0,))
    x = s.b.op("mul", s.read("a", randn(130, 70), F32, 70 * i + j), scale)
    s.write(s.b.reduce([x], ["i0"], combine("sum", F32)), F32, axes=(1,))
    return s


def bent_by_data() -> Sketch:
    """Rows that are clamped at a place that each row names."""
    s = Sketch((20, 64))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(9, 20), I64, i), integer(9), wrap=False)
    s.write(s.b.op("exp", s.read("a", randn(20, 64), F32, 64 * i + maximum(j - at, 0))), F32)
    return s


def sums_of_last_two() -> Sketch:
    """Sums over a short axis and the one beside it, which a weight keeps apart."""
    s = Sketch((4, 6, 20))
    g, c, k = s.i
    x = s.b.op("mul", s.read("x", randn(4, 20, 6), F32, 120 * g + 6 * k + c), s.read("w", randn(6), F32, c))
    s.write(s.b.reduce([x], ["i1", "i2"], combine("sum", F32)), F32, axes=(0,))
    return s


def softmax_of_length(rows: int, length: Expr, *, stored: DType = F32) -> Sketch:
    """A softmax of rows of a length that only the call knows."""
    s = Sketch((rows, length))
    x = s.read("a", randn(rows, cases.SIZES["s1"]), F32, length * s.i[0] + s.i[1])
    e, total = _shares(s, x)
    s.write(s.b.op("div", e, total), stored)
    return s


def softmax_of_scaled(rows: int | Expr) -> Sketch:
    """A softmax of rows of 7 elements that have scales, and its sums."""
    s = Sketch((rows, 7))
    i, j = s.i
    count = rows if isinstance(rows, int) else cases.SIZES["s1"]
    x = s.b.op("mul", s.read("a", randn(count, 7), F32, 7 * i + j), s.read("s", randn(count), F32, i))
    e = s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("max", F32))))
    total = s.b.reduce([e], ["i1"], combine("sum", F32))
    s.write(s.b.op("div", e, total), F32)
    s.write(total, F32, axes=(0,))
    return s


def scattered_columns() -> Sketch:
    """Columns that are added to columns of another matrix: memory is contiguous along the axis that runs in order."""
    s = Sketch((12, 20))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(5, 12), I64, i), integer(5), wrap=False)
    s.tensors["io"] = torch.zeros(20, 5)
    size, stride = (integer(20), integer(5)), (integer(5), integer(1))
    s.buffers.append(Buffer("io", F32, size, stride, "input"))
    s.b.atomic(Ref("io", 1), 5 * j + at, s.read("a", randn(20, 12), F32, 12 * j + i), "add")
    s.outputs.append(View(Ref("io", 1), F32, size, stride, integer(0)))
    return s


def resized() -> Sketch:
    """Elements of rows at places that are the same in every row; each matrix of rows has a scale."""
    s = Sketch((2, 70, 140))
    n, i, j = s.i
    place = s.b.check(s.read("ids", integers(50, 140), I64, j), integer(50), wrap=False)
    x = s.b.op("mul", s.read("a", randn(2, 70, 50), F32, 3500 * n + 50 * i + place), s.read("s", randn(2), F32, n))
    s.write(s.b.op("mul", x, s.b.op("abs", s.read("w", randn(140), F32, j))), F32)
    return s


def softmax_of_batches() -> Sketch:
    """A softmax of rows; the rows of all matrices have the same scales."""
    s = Sketch((3, 32, 7))
    n, i, j = s.i
    x = s.b.op("mul", s.read("a", randn(3, 32, 7), F32, 224 * n + 7 * i + j), s.read("s", randn(32), F32, i))
    e = s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], ["i2"], combine("max", F32))))
    s.write(s.b.op("div", e, s.b.reduce([e], ["i2"], combine("sum", F32))), F32)
    return s


def sums_of_scans() -> Sketch:
    """The sums of the running sums of several rows."""
    s = Sketch((3, 5, 40))
    n, i, j = s.i
    made = s.b.scan([s.read("a", randn(3, 5, 40), F32, 200 * n + 40 * i + j)], "i2", combine("sum", F32))
    s.write(s.b.reduce([made], ["i1"], combine("sum", F32)), F32, axes=(0, 2))
    return s


def softmax_of_two_axes() -> Sketch:
    """The sums of exp(x - maximum) over two axes, of which an operand has only the outer one."""
    s = Sketch((70, 5, 7))
    i, j, k = s.i
    x = s.b.op("mul", s.read("a", randn(70, 5, 7), F32, 35 * i + 7 * j + k), s.read("w", randn(5), F32, j))
    return _exponentials_summed(s, x, F32, "i1", "i2")


def shares_of_rows(rows: int, columns: int) -> Sketch:
    """The sum of exp(x - maximum) of a row, stored for each element of the row."""
    s = Sketch((rows, columns))
    place = columns * s.i[0] + s.i[1]
    x = s.read("a", randn(rows, columns), F32, place)
    e = s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("max", F32))))
    s.write(s.b.reduce([e], ["i1"], combine("sum", F32)), F32)
    return s


def softmax_of_few_rows() -> Sketch:
    """The sums of exp(x - maximum) of 4 x 5 x 6 rows that have scales, so that no two axes of rows are one."""
    s = Sketch((4, 5, 6, 70))
    i, j, k, n = s.i
    x = s.read("a", randn(4, 5, 6, 70), F32, 2100 * i + 420 * j + 70 * k + n)
    for name, axis in (("u", i), ("v", j), ("w", k)):
        x = s.b.op("mul", x, s.read(name, randn(6), F32, axis))
    return _exponentials_summed(s, x, F32, "i3")


def shares_of_functions(rows: int, columns: int, count: int) -> Sketch:
    """Exponentials of so many multiples of each element, divided by the sum of all those of a row."""
    s = Sketch((rows, columns))
    x = s.read("a", randn(rows, columns), F32, columns * s.i[0] + s.i[1])
    shares = [s.b.op("exp", s.b.op("mul", x, s.constant(n / count))) for n in range(count)]
    total = s.b.reduce([reduce(partial(s.b.op, "add"), shares)], ["i1"], combine("sum", F32))
    for share in shares:
        s.write(s.b.op("div", share, total), F32)
    return s


def deviations(rows: int, columns: int, *, is_scaled: bool = False) -> Sketch:
    """The sums of |x - mean| of rows, by a mean that is reduced with the variance; or of |(x - mean) * variance|."""
    s = Sketch((rows, columns))
    x = s.read("a", randn(rows, columns), F32, columns * s.i[0] + s.i[1])
    mean = s.b.reduce([x, s.constant(0.0), s.constant(1.0)], ["i1"], combine("welford", F32))
    apart = s.b.op("sub", x, mean)
    apart = s.b.op("mul", apart, s.b.project(mean, 1)) if is_scaled else apart
    s.write(s.b.reduce([s.b.op("abs", apart)], ["i1"], combine("sum", F32)), F32, axes=(0,))
    return s


def softmax_of_doubles(rows: int, columns: int) -> Sketch:
    """The sums of exp(x - maximum) of rows of 64-bit floats."""
    s = Sketch((rows, columns))
    x = s.read("a", randn(rows, columns, dtype=torch.float64), F64, columns * s.i[0] + s.i[1])
    return _exponentials_summed(s, x, F64)


def softmax_of_remainders(rows: int, columns: int) -> Sketch:
    """The sums of exp(x - maximum) of rows of remainders."""
    s = Sketch((rows, columns))
    x = s.b.cast(s.read("a", randn(rows, columns), F32, columns * s.i[0] + s.i[1]), I64)
    return _exponentials_summed(s, s.b.cast(s.b.op("mod", x, s.b.constant(3, I64)), F32), F32)


def _exponentials_summed(s: Sketch, x: int, dtype: DType, *over: str) -> Sketch:
    axes = over or ("i1",)
    e = s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], axes, combine("max", dtype))))
    s.write(s.b.reduce([e], axes, combine("sum", dtype)), dtype, axes=(0,))
    return s


def softmax_of_gathered(rows: int, columns: int) -> Sketch:
    """The sums of exp(x - maximum) of rows whose elements are looked up."""
    s = Sketch((rows, columns))
    ids = s.read("ids", integers(50, rows, columns), I64, columns * s.i[0] + s.i[1])
    x = s.read("table", randn(50), F32, s.b.check(ids, integer(50), wrap=False))
    return _exponentials_summed(s, x, F32)


def rows_then_all(rows: int, columns: int) -> Sketch:
    """The sum of the logarithms of the maxima of rows."""
    s = Sketch((rows, columns))
    x = s.read("a", randn(rows, columns), F32, columns * s.i[0] + s.i[1])
    row = s.b.op("log", s.b.reduce([x], ["i1"], combine("max", F32)))
    s.write(s.b.reduce([row], ["i0"], combine("sum", F32)), F32, axes=())
    return s


def group_norm(groups: int, width: int, count: int, more: str = "") -> Sketch:
    """Sums over the innermost channels of a group and over all places.

    `more`: adds to the sum the number of elements ("number") or their mean, which is reduced with the variance
    ("mean"), or looks up the channels ("check").
    """
    s = Sketch((groups, width, count))
    g, c, k = s.i
    place = width * g + c + groups * width * k
    x = s.read("x", randn(count, groups * width), F32, place)
    if more == "check":
        at = s.b.check(s.read("ids", integers(9, groups), I64, g), integer(9), wrap=False)
        x = s.b.op("mul", x, s.read("table", randn(9), F32, at))
    total = s.b.reduce([x], ["i1", "i2"], combine("sum", F32))
    if more == "number":
        total = s.b.op("add", total, s.b.reduce([s.constant(1.0)], ["i1", "i2"], combine("sum", F32)))
    if more == "mean":
        values = [x, s.b.op("sub", x, x), s.b.op("exp", x)]
        total = s.b.op("add", total, s.b.reduce(values, ["i1", "i2"], combine("welford", F32)))
    s.write(s.b.op("sub", x, total), F32, index=place)
    return s


def softmax_of_narrow(rows: int, columns: int) -> Sketch:
    """A softmax of 16-bit values."""
    s = Sketch((rows, columns))
    x = s.read("a", randn(rows * columns, dtype=torch.bfloat16), BF16, columns * s.i[0] + s.i[1])
    e = s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("max", F32))))
    s.write(s.b.op("div", e, s.b.reduce([e], ["i1"], combine("sum", F32))), F32)
    return s


def softmax_of_halves(rows: int, columns: int, *, stored: DType = BF16, is_share: bool = True) -> Sketch:
    """A softmax that is stored with 16 bits. Without `is_share` the elements are divided, not their exponentials."""
    s = Sketch((rows, columns))
    x = s.read("a", randn(rows, columns), F32, columns * s.i[0] + s.i[1])
    e = s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("max", F32))))
    s.write(s.b.op("div", e if is_share else x, s.b.reduce([e], ["i1"], combine("sum", F32))), stored)
    return s


def _shares(s: Sketch, x: int) -> tuple[int, int]:
    """The exponentials of x - maximum, and their sums."""
    e = s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("max", F32))))
    return e, s.b.reduce([e], ["i1"], combine("sum", F32))


def rows_beside() -> Sketch:
    """Elements and the sums of their exponentials, and then the exponentials."""
    s = Sketch((3, 900))
    x = s.read("a", randn(3, 900), F32, 900 * s.i[0] + s.i[1])
    e, total = _shares(s, x)
    s.write(s.b.op("add", total, s.read("b", randn(900), F32, s.i[1])), F32)
    s.write(s.b.cast(s.b.op("sub", e, total), BF16), BF16)
    return s


def rows_read_again() -> Sketch:
    """A softmax of rows, with the rows added."""
    s = Sketch((3, 900))
    x = s.read("a", randn(3, 900), F32, 900 * s.i[0] + s.i[1])
    e, total = _shares(s, x)
    s.write(s.b.op("add", s.b.op("div", e, total), s.read("b", randn(3, 900), F32, 900 * s.i[0] + s.i[1])), F32)
    return s


def softmax_in_place() -> Sketch:
    """A softmax that overwrites its rows."""
    s = Sketch((3, 900))
    i, j = s.i
    e, total = _shares(s, s.read("io", randn(3, 900), F32, 900 * i + j))
    s.b.store(Ref("io", 1), 900 * i + j, s.b.op("div", e, total))
    s.outputs.append(View(Ref("io", 1), F32, (integer(3), integer(900)), (integer(900), integer(1)), integer(0)))
    return s


def product(rows: int, inner: int, columns: int) -> Sketch:
    """A matrix product."""
    s = Sketch((rows, columns, inner))
    i, j, k = s.i
    x, w = s.read("x", randn(rows, inner), F32, inner * i + k), s.read("w", randn(inner, columns), F32, columns * k + j)
    s.write(s.b.reduce([s.b.op("mul", x, w)], ["i2"], combine("sum", F32)), F32, axes=(0, 1))
    return s


def sum_of_products() -> Sketch:
    """The sum of three matrix products."""
    s = Sketch((20, 30, 3, 16))
    i, j, n, k = s.i
    x = s.read("x", randn(3, 20, 16), F32, 320 * n + 16 * i + k)
    w = s.read("w", randn(3, 16, 30), F32, 480 * n + 30 * k + j)
    s.write(s.b.reduce([s.b.op("mul", x, w)], ["i2", "i3"], combine("sum", F32)), F32, axes=(0, 1))
    return s


def batched_product() -> Sketch:
    """Products of matrices by matrices."""
    s = Sketch((2, 20, 30, 40))
    n, i, j, k = s.i
    x = s.read("x", randn(2, 20, 40), F32, 800 * n + 40 * i + k)
    w = s.read("w", randn(2, 40, 30), F32, 1200 * n + 30 * k + j)
    s.write(s.b.reduce([s.b.op("mul", x, w)], ["i3"], combine("sum", F32)), F32, axes=(0, 1, 2))
    return s


def of_four_axes() -> Sketch:
    """A tensor of which no two axes can be merged."""
    s = Sketch((2, 70, 3, 80))
    a, b, c, d = s.i
    x = s.read("x", randn(3, 2, 80, 70), F32, 11200 * c + 5600 * a + 70 * d + b)
    s.write(s.b.op("exp", x), F32)
    return s


def sums_of_unknown() -> Sketch:
    """Sums over an axis of known and one of unknown length."""
    s = Sketch((5, 4, S1))
    i, j, k = s.i
    x = s.read("a", randn(4, 5, cases.SIZES["s1"]), F32, 5 * S1 * j + S1 * i + k)
    s.write(s.b.reduce([x], ["i1", "i2"], combine("sum", F32)), F32, axes=(0,))
    return s


def normed_rows() -> Sketch:
    """Rows without their sums of squares: no softmax and no variance."""
    s = Sketch((2, 3000))
    x = s.read("a", randn(2, 3000), F32, 3000 * s.i[0] + s.i[1])
    s.write(s.b.op("sub", x, s.b.reduce([s.b.op("square", x)], ["i1"], combine("sum", F32))), F32)
    return s


def varied_rows(rows: int, columns: int) -> Sketch:
    """The mean of each row, and the sum of squared distances from it."""
    s = Sketch((rows, columns))
    x = s.read("a", randn(rows, columns), F32, columns * s.i[0] + s.i[1])
    total = combine("sum", F32)
    mean = s.b.op("div", s.b.reduce([x], ["i1"], total), s.b.constant(float(columns), F32))
    distance = s.b.op("sub", x, mean)
    s.write(mean, F32, axes=(0,))
    s.write(s.b.reduce([s.b.op("mul", distance, distance)], ["i1"], total), F32, axes=(0,))
    return s


def shares_of_columns(rows: int, columns: int) -> Sketch:
    """Each element, less the sum of its column."""
    s = Sketch((rows, columns))
    x = s.read("a", randn(rows, columns), F32, columns * s.i[0] + s.i[1])
    s.write(s.b.op("sub", x, s.b.reduce([x], ["i0"], combine("sum", F32))), F32)
    return s


def softmax(rows: int, columns: int) -> Sketch:
    return cases.softmax((rows, columns))


def summed(*size: int, over: int) -> Sketch:
    return cases.reduced(size, (over,), "sum")


def products_of_columns(rows: int, columns: int) -> Sketch:
    """The sums of the columns of a product of two matrices."""
    s = Sketch((rows, columns))
    a, b = (s.read(name, randn(rows, columns), F32, columns * s.i[0] + s.i[1]) for name in "ab")
    s.write(s.b.reduce([s.b.op("mul", a, b)], ["i0"], combine("sum", F32)), F32, axes=(1,))
    return s


def divided(by: float) -> Sketch:
    """A matrix divided by a constant."""
    s = Sketch((30, 70))
    x = s.read("a", randn(30, 70), F32, 70 * s.i[0] + s.i[1])
    s.write(s.b.op("div", x, s.constant(by)), F32)
    return s


def highest(*size: int, over: int) -> Sketch:
    return cases.reduced(size, (over,), "max")


def centred_part(length: int, columns: int) -> Sketch:
    """The first columns of a matrix with rows of some length, less the sum of each row."""
    s = Sketch((2, columns))
    x = s.read("a", randn(2, length), F32, length * s.i[0] + s.i[1])
    s.write(s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("sum", F32))), F32)
    return s


def sums_of_bent(columns: int) -> Sketch:
    """Sums of rows, and of rows that are reflected at their start."""
    s = Sketch((30, columns))
    i, j = s.i
    x, y = (
        s.read(name, randn(30, columns), F32, columns * i + at) for name, at in (("a", j), ("b", maximum(j - 5, 5 - j)))
    )
    s.write(s.b.reduce([s.b.op("mul", x, y)], ["i1"], combine("sum", F32)), F32, axes=(0,))
    return s


def both_sums_in_parts(parts: int, rows: int, columns: int) -> Sketch:
    """The sums of the rows, and of the columns of some rows at a time."""
    s = Sketch((parts, rows, columns))
    x = s.read("a", randn(parts, rows, columns), F32, rows * columns * s.i[0] + columns * s.i[1] + s.i[2])
    s.write(s.b.reduce([x], ["i2"], combine("sum", F32)), F32, axes=(0, 1))
    s.write(s.b.reduce([x], ["i1"], combine("sum", F32)), F32, axes=(0, 2))
    return s


def both_sums(rows: int, columns: int | Expr) -> Sketch:
    """The sums of the rows and of the columns of a matrix."""
    s = Sketch((rows, columns))
    count = columns if isinstance(columns, int) else cases.SIZES["s1"]
    x = s.read("a", randn(rows, count), F32, columns * s.i[0] + s.i[1])
    for kept, reduced in ((0, "i1"), (1, "i0")):
        s.write(s.b.reduce([x], [reduced], combine("sum", F32)), F32, axes=(kept,))
    return s


def sums_and_transpose() -> Sketch:
    """The sums of long rows, and a matrix that is transposed."""
    s = Sketch((40, 50, 3000))
    i, j, k = s.i
    x = s.read("a", randn(1).expand(40, 50, 3000), F32, 150_000 * i + 3000 * j + k)
    total = s.b.reduce([x], ["i2"], combine("sum", F32))
    s.write(s.b.op("add", total, s.read("b", randn(50, 40), F32, 40 * j + i)), F32, axes=(0, 1))
    return s


def products_with_transposed(rows: int, columns: int | Expr) -> Sketch:
    """The sums of columns of products with a transposed matrix."""
    s = Sketch((rows, columns))
    i, j = s.i
    count = columns if isinstance(columns, int) else cases.SIZES["s1"]
    x = s.read("a", randn(count, rows), F32, rows * j + i)
    product = s.b.op("mul", x, s.read("b", randn(rows, count), F32, columns * i + j))
    s.write(s.b.reduce([product], ["i0"], combine("sum", F32)), F32, axes=(1,))
    return s


def products_with_transposed_blocks() -> Sketch:
    """The sums over two axes of products with a matrix in which all axes stand in the other order."""
    s = Sketch((20, 30, 40))
    i, j, k = s.i
    x = s.read("a", randn(40, 30, 20), F32, 600 * k + 20 * j + i)
    product = s.b.op("mul", x, s.read("b", randn(20, 30, 40), F32, 1200 * i + 40 * j + k))
    s.write(s.b.reduce([product], ["i0", "i1"], combine("sum", F32)), F32, axes=(2,))
    return s


def centred_columns_of_two_transposed(rows: int, columns: int, name: str, dtype: DType) -> Sketch:
    """What an op makes of two transposed matrices, less the sums of its columns."""
    s = Sketch((rows, columns))
    i, j = s.i
    x, y = (
        s.read(matrix, (integers(9, columns, rows) + 1).to(torch_dtype(dtype)), dtype, rows * j + i) for matrix in "ab"
    )
    made = s.b.op(name, x, y)
    s.write(s.b.op("sub", made, s.b.reduce([made], ["i0"], combine("sum", dtype))), dtype)
    return s


def softmax_of_channels(*, last: bool, dtype: DType = F32) -> Sketch:
    """A softmax of channels that stand first, which stand last in the result if `last`; and its sums."""
    s = Sketch((2, 70, 90))
    n, c, p = s.i
    x = s.read("a", randn(2, 70, 90), F32, 6300 * n + 90 * c + p)
    e = s.b.op("exp", s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("max", F32))))
    total = s.b.reduce([e], ["i1"], combine("sum", F32))
    s.write(s.b.op("div", e, total), dtype, axes=(0, 2, 1) if last else (0, 1, 2))
    s.write(total, F32, axes=(0, 2))
    return s


# --- the table

RUNS = (
    Run("cpu", "elements", cases.broadcasts),
    Run("cpu", "scalar_elements", lambda: cases.gathered_and_computed(40)),
    Run("cpu", "gathers_first", lambda: cases.gathered_and_computed(700)),
    Run("cpu", "strips", lambda: functions_in_turn(100)),
    Run("cpu", "strips_blocks", lambda: functions_in_turn(9000)),
    Run("cpu", "blocks", lambda: shared_column(2, 9000)),
    Run("cpu", "scalar_blocks", lambda: cases.gathered_and_computed(9000)),
    Run("cpu", "gathers_first_blocks", lambda: cases.gathered_and_computed(9000)),
    Run("cpu", "transposed", cases.permuted),
    Run("cpu", "transposed", lambda: transposed(70, 90)),
    Run("cpu", "transposed", lambda: transposed(64, 32)),
    Run("cpu", "transposed", lambda: transposed(50, S1)),
    Run("cpu", "scalar_transposed", gathered_and_transposed),
    Run("cpu", "shared_indices", resized),
    Run("cpu", "scalar_shared_indices", lambda: cases.gathered_along_rows(70, 140)),
    Run("cpu", "short_axis", lambda: points(300, 3)),
    Run("cpu", "short_axis_blocks", lambda: strips_of_points(3, 2100)),
    Run("cpu", "scatter", lambda: scattered(300, 30, is_gathered=False)),
    Run("cpu", "scatter", scattered_numbers),
    Run("cpu", "scatter", overlapping),
    Run("cpu", "scatter", scattered_columns),
    Run("cpu", "scalar_scatter", lambda: scattered(7, 8, is_gathered=True)),
    Run("cpu", "scatter_blocks", lambda: scattered(7, 270, is_gathered=False)),
    Run("cpu", "scalar_scatter_blocks", lambda: scattered(7, 270, is_gathered=True)),
    Run("cpu", "scan", lambda: cases.scan_between_maps(2, 600, reverse=False)),
    Run("cpu", "scan", sums_of_scans),
    Run("cpu", "rows", cases.group_norm),
    Run("cpu", "across_rows", lambda: highest(3, 70, 5, over=2)),
    Run("cpu", "across_rows", lambda: highest(300, 7, over=1)),
    Run("cpu", "strips_rows", lambda: functions_in_turn(5000, is_summed=True)),
    Run("cpu", "rows_and_columns", cases.both_ways_of_four_axes),
    Run("cpu", "side_by_side", softmax_of_batches),
    Run("cpu", "side_by_side", lambda: softmax_of_scaled(70), "stage"),
    Run("cpu", "side_by_side", lambda: softmax_of_scaled(S1), "stage"),
    Run("cpu", "side_by_side", lambda: softmax_of_halves(70, 50)),
    Run("cpu", "side_by_side", lambda: softmax_of_halves(70, 7, stored=F16)),
    Run("cpu", "phases", lambda: softmax(100, 70)),
    Run("cpu", "phases", lambda: softmax_of_halves(70, 300)),
    Run("cpu", "phases", softmax_of_batches),
    Run("cpu", "phases", lambda: softmax_of_length(70, S1)),
    Run("cpu", "phases", lambda: deviations(70, 70)),
    Run("cpu", "rows_in_parts", lambda: rows_then_all(20, 2000)),
    Run("cpu", "two_steps", lambda: cases.group_norm_last(20)),
    Run("cpu", "two_steps_in_parts", lambda: group_norm(4, 15, 560)),
    Run("cpu", "columns", lambda: summed(130, 70, over=0)),
    Run("cpu", "columns_in_parts", lambda: summed(3, 900, 40, over=1)),
    Run("cpu", "transposed_columns", lambda: products_with_transposed(150, 93)),
    Run("cpu", "transposed_columns", lambda: products_with_transposed(33, S1)),
    Run("cpu", "transposed_columns", lambda: centred_columns_of_two_transposed(150, 93, "floordiv", I64)),
    Run("cpu", "transposed_columns", lambda: softmax_of_channels(last=True)),
    Run("sm_90", "elements", of_four_axes),
    Run("sm_90", "square64", cases.permuted),
    Run("sm_90", "square", cases.permuted),
    *(Run("sm_90", f"persistent{warps}", lambda: softmax(2, 3000)) for warps in ("", 4, 8, 16, 32)),
    *(Run("sm_90", f"persistent{warps}", lambda: softmax_of_narrow(5, 300)) for warps in (1, 2)),
    *(Run("sm_90", f"looped{warps}", lambda: softmax(2, 17_000)) for warps in (16, 32)),
    *(Run("sm_90", f"aligned{warps}", lambda: softmax(2, 3001)) for warps in (4, 8, 16, 32)),
    *(Run("sm_90", f"aligned{warps}", lambda: softmax_of_narrow(5, 259)) for warps in (1, 2)),
    Run("sm_90", "aligned4", lambda: softmax(5, 259)),
    Run("sm_90", "looped", lambda: softmax(2, 3000)),
    Run("sm_90", "looped", lambda: summed(100, 7, over=0)),
    Run("sm_90", "looped", cases.symbolic_ends),
    Run("sm_90", "online", lambda: softmax(2, 3000)),
    *(Run("sm_90", f"online{warps}", lambda: softmax(2, 17_000)) for warps in (16, 32)),
    *(Run("sm_90", f"online{warps}", lambda: varied_rows(2, 17_000)) for warps in (16, 32)),
    Run("sm_90", "online32", lambda: varied_rows(2, 1 << 15)),
    Run("sm_90", "columns64", lambda: summed(130, 70, over=0)),
    Run("sm_90", "columns128", lambda: summed(130, 70, over=0)),
    Run("sm_90", "columns64_long", lambda: products_of_columns(150, 70)),
    Run("sm_90", "columns64_pipelined", lambda: summed(600, 70, over=0)),
    Run("sm_90", "unrolled", lambda: summed(4, 300, over=0)),
    Run("sm_90", "rows_beside_columns", cases.both_ways_of_four_axes),
    Run("sm_90", "rows_beside_columns", lambda: cases.layer_norm_backward(70)),
    Run("sm_90", "rows_beside_columns", lambda: both_sums_in_parts(3, 200, 40)),
    *(Run("sm_90", f"rows_beside_columns{values}", lambda: cases.layer_norm_backward(70)) for values in (8, 16, 32)),
    *(Run("sm_90", f"rows_beside_columns{values}_pipelined", lambda: both_sums(90, 70)) for values in (8, 16, 32)),
    Run("sm_90", "product", lambda: product(70, 90, 100)),
    Run("sm_90", "product", batched_product),
    Run("sm_90", "product", sum_of_products),
    # steps that are no part of a recipe
    Run("cpu", "columns", cases.sums_of_two, "group"),
    Run("cpu", "rows", lambda: summed(3, 5000, over=1), "short_sums"),
    Run("cpu", "gathers_first", lambda: cases.gathered_and_computed(700), "gather_first"),
    Run("cpu", "strips", lambda: functions_in_turn(600), "in_strips"),
    Run("cpu", "strips_rows", lambda: functions_in_turn(300, is_summed=True), "in_strips"),
    Run("cpu", "strips_rows", lambda: functions_in_turn(700, is_summed=True), "in_strips"),
    Run("cpu", "elements", lambda: functions_in_turn(40), "stores_last"),
    Run("cpu", "elements", cases.padded_rows, "unmask"),
    Run("cpu", "elements", lambda: cases.bent(20, 64), "cut"),
    Run("cpu", "transposed", cases.permuted, "stage"),
    Run("cpu", "rows", lambda: softmax(2, 3000), "unblock"),
    Run("cpu", "phases", lambda: softmax_of_scaled(70), "in_phases"),
    Run("cpu", "phases", lambda: softmax_of_scaled(S1), "in_phases"),
    Run("cpu", "phases", lambda: softmax(67, 1000), "keep_in_results"),
    Run("sm_90", "persistent", lambda: softmax_of_halves(8, 20), "divide_once"),
    Run("cpu", "rows", lambda: softmax(2, 300), "divide_with_rest"),
    Run("cpu", "elements", lambda: divided(4.0), "scale_by_powers"),
    Run("sm_90", "elements", lambda: divided(-0.125), "scale_by_powers"),
    Run("cpu", "gathers_first", lambda: gathered_columns(30, 64)),
    Run("cpu", "scalar_elements", lambda: gathered_rows(30, 64, 100), "fetch_rows"),
    Run("cpu", "gathers_first", lambda: gathered_rows(30, 64, 100), "fetch_rows"),
    Run("cpu", "rows", lambda: softmax(3, 900), "keep_in_results"),
    Run("cpu", "rows_in_parts", lambda: softmax(1, 70000), "keep_in_results"),
    Run("cpu", "rows", lambda: softmax_of_length(5, S1), "keep_in_results"),
    Run("cpu", "rows", lambda: softmax_of_length(5, S1, stored=BF16), "short_sums"),
)

REFUSALS = (
    Refusal("blocks", "cpu", "blocks", cases.pointwise_odd, "a single block"),
    Refusal("transpose", "cpu", "transposed", cases.broadcasts, "no load is contiguous along another axis"),
    Refusal("transpose", "cpu", "transposed", lambda: shared_column(70, 90), "such a load is the same for a whole row"),
    Refusal(
        "transposed_columns",
        "cpu",
        "transposed_columns",
        lambda: softmax_of_channels(last=False),
        "nothing is transposed",
    ),
    Refusal("transposed_columns", "cpu", "transposed_columns", lambda: highest(7, over=0), "there is one row"),
    Refusal("transposed_columns", "cpu", "transposed_columns", lambda: softmax(70, 70), "all walk along the rows"),
    Refusal("transposed_columns", "cpu", "transposed_columns", products_with_transposed_blocks, "two axes are reduced"),
    Refusal("unroll_short_axis", "cpu", "short_axis", lambda: points(300, 5), "the axis is too long"),
    Refusal("unroll_short_axis", "cpu", "short_axis", lambda: points(1, 3), "there is no axis beside it"),
    Refusal("unroll_short_axis", "cpu", "short_axis", lambda: summed(70, 3, over=1), "the axis is reduced"),
    Refusal("unroll_short_axis", "cpu", "short_axis", lambda: points(300, 4, functions=70), "many operations"),
    Refusal("unroll_short_axis", "cpu", "short_axis", lambda: points(300, 3, is_gathered=True), "data decide a place"),
    Refusal("blocks_of_points", "cpu", "short_axis_blocks", lambda: points(300, 3), "a single block"),
    Refusal("share_indices", "cpu", "shared_indices", gathered_and_transposed, "no row uses them again"),
    Refusal("share_indices", "cpu", "shared_indices", cases.broadcasts, "no place is loaded"),
    Refusal("gathers_first", "cpu", "gathers_first", cases.broadcasts, "no place is loaded"),
    Refusal("gathers_first", "cpu", "gathers_first", only_gathered, "nothing is computed with the values"),
    Refusal("gathers_first", "cpu", "gathers_first", masked_gather, "what is masked may not be loaded"),
    Refusal("strips", "cpu", "strips_rows", lambda: functions_in_turn(250, is_summed=True), "the rows are short"),
    Refusal("strips", "cpu", "strips", lambda: mapped(3, 600), "no function waits for another"),
    Refusal("in_strips", "cpu", "strips_rows", lambda: functions_around_a_maximum(600), "each stands in its own loop"),
    Refusal("scatter_blocks", "cpu", "scatter_blocks", lambda: scattered(7, 8, is_gathered=False), "a single block"),
    Refusal("scalar", "cpu", "scalar_elements", cases.broadcasts, "no place is loaded"),
    Refusal("scalar", "cpu", "scalar_elements", lambda: softmax_of_gathered(30, 90), "it reduces"),
    Refusal("rows", "cpu", "rows", cases.rows_and_columns, "columns are reduced too"),
    Refusal("across_rows", "cpu", "across_rows", lambda: summed(70, 7, over=1), "a sum depends on the order"),
    Refusal("across_rows", "cpu", "across_rows", lambda: highest(70, 70, over=1), "the rows are too long"),
    Refusal("across_rows", "cpu", "across_rows", lambda: highest(7, over=0), "there is one row"),
    Refusal("rows_and_columns", "cpu", "rows_and_columns", cases.group_norm, "only rows are reduced"),
    Refusal("rows_and_columns", "cpu", "rows_and_columns", lambda: both_sums(2, 131073), "they need too large a stack"),
    Refusal("phases", "cpu", "phases", lambda: softmax(70, 1100), "the rows are too long"),
    Refusal("phases", "cpu", "phases", lambda: softmax(40, 70), "the rows are too few"),
    Refusal("phases", "cpu", "phases", lambda: summed(70, 70, over=1), "a row has one phase only"),
    Refusal("phases", "cpu", "phases", lambda: softmax_of_gathered(70, 70), "elements are looked up"),
    Refusal("phases", "cpu", "phases", softmax_of_two_axes, "two axes are reduced"),
    Refusal("phases", "cpu", "phases", softmax_of_few_rows, "each axis has few rows"),
    Refusal("phases", "cpu", "phases", lambda: deviations(70, 70, is_scaled=True), "a reduction has two results"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: softmax(70, 70), "the rows are too long"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: softmax(40, 7), "the rows are too few"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: summed(70, 7, over=1), "they have one reduction only"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: softmax_of_gathered(70, 7), "elements are looked up"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: softmax_of_halves(70, 65), "16 bits, and too long"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: softmax_of_doubles(70, 7), "it computes with 64 bits"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: softmax_of_remainders(70, 7), "it divides integers"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", softmax_of_two_axes, "two axes are reduced"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: shares_of_rows(70, 7), "it stores one value for a row"),
    Refusal("rows_side_by_side", "cpu", "side_by_side", lambda: deviations(70, 7), "a reduction has three values"),
    Refusal("parts", "cpu", "rows_in_parts", lambda: rows_then_all(20, 200), "fewer than two parts"),
    Refusal(
        "parts",
        "cpu",
        "rows_in_parts",
        lambda: cases.scan_between_maps(2, 40000, reverse=False),
        "a scan runs in order",
    ),
    Refusal("two_steps", "cpu", "two_steps", lambda: group_norm(4, 17, 20), "the axis fills a vector"),
    Refusal("two_steps", "cpu", "two_steps", lambda: group_norm(4, 6, 20, "number"), "equal for all neighbours"),
    Refusal("two_steps", "cpu", "two_steps", lambda: group_norm(4, 6, 20, "mean"), "a reduction has three values"),
    Refusal("two_steps", "cpu", "two_steps", lambda: group_norm(4, 6, 20, "check"), "it checks an index"),
    Refusal("two_steps", "cpu", "two_steps", sums_of_last_two, "the axis beside it is reduced too"),
    Refusal("two_steps", "cpu", "two_steps", lambda: group_norm(90, 12, 20), "it takes more than 1024 accumulators"),
    Refusal("two_steps", "cpu", "two_steps", lambda: softmax(70, 7), "the short axis is reduced alone"),
    Refusal("Hold", "sm_90", "persistent", lambda: cases.symbolic(("i1",)), "only the call knows the length"),
    Refusal("Hold", "sm_90", "persistent", lambda: softmax(2, 40000), "the row is too long"),
    Refusal("Hold", "sm_90", "persistent", sums_of_unknown, "only the call knows one of the lengths"),
    Refusal("Hold", "sm_90", "persistent", lambda: summed(130, 70, over=0), "there are too many rows to add up"),
    Refusal("Hold", "gfx942", "persistent32", lambda: softmax(2, 30000), "a program may not have so many threads"),
    Refusal("Hold", "sm_90", "persistent8", lambda: softmax(2, 200), "less than two elements for each thread"),
    Refusal("Hold", "sm_90", "persistent2", lambda: softmax(2, 300), "the values have more than 16 bits"),
    Refusal("Hold", "sm_90", "persistent4", lambda: softmax(2, 20), "less than two elements for each thread of a warp"),
    Refusal("Hold", "sm_90", "persistent4", lambda: softmax(2, 9000), "more than 64 elements for each thread"),
    Refusal("Hold", "sm_90", "persistent4", lambda: summed(2000, 70, over=0), "columns are reduced"),
    Refusal("align", "sm_90", "aligned4", lambda: softmax(2, 3000), "each row starts at a multiple of 16 bytes"),
    Refusal("align", "gfx942", "aligned4", lambda: softmax(2, 3001), "it was measured on no GPU of AMD"),
    Refusal("align", "sm_90", "aligned4", lambda: centred_part(3001, 3000), "only a load is not aligned"),
    Refusal("align", "sm_90", "aligned4", sums_of_last_two, "two axes are held"),
    Refusal("align", "sm_90", "aligned4", lambda: sums_of_bent(1001), "an index changes its formula"),
    Refusal("align", "sm_90", "aligned4", lambda: cases.reduced((1001,), (0,), "sum"), "there is one row"),
    Refusal("Walk", "sm_90", "looped", lambda: softmax(8, 300), "the block is the whole row"),
    Refusal("Walk", "sm_90", "looped", cases.broadcasts, "nothing is reduced"),
    Refusal("Walk", "sm_90", "looped16", lambda: softmax(2, 8192), "these warps take the row at once"),
    Refusal("Walk", "sm_90", "looped16", lambda: summed(20_000, 40, over=0), "columns are reduced"),
    Refusal(
        "Walk", "sm_90", "looped32", lambda: cases.symbolic(("i1",)), "only the call knows whether the row is long"
    ),
    Refusal("one_walk", "sm_90", "online", normed_rows, "no softmax and no variance"),
    Refusal("RowsBesideColumns", "sm_90", "rows_beside_columns", cases.group_norm, "only rows are reduced"),
    Refusal("RowsBesideColumns", "sm_90", "rows_beside_columns", lambda: both_sums(8, S1), "rows of unknown length"),
    Refusal("RowsBesideColumns", "sm_90", "rows_beside_columns8", lambda: both_sums(8, 9000), "a row has more values"),
    Refusal(
        "Pipelined", "gfx942", "columns64_pipelined", lambda: summed(600, 70, over=0), "AMD's loads take registers"
    ),
    Refusal(
        "Pipelined", "sm_90", "columns64_pipelined", lambda: summed(120, 70, over=0), "four blocks, and four stages"
    ),
    Refusal("Pipelined", "sm_90", "columns64_pipelined", lambda: shares_of_columns(600, 70), "two walks"),
    Refusal(
        "Pipelined",
        "interpret",
        "rows_beside_columns32_pipelined",
        lambda: both_sums(90, 16_000),
        "no room for two rows",
    ),
    Refusal("Walk", "sm_90", "columns64_long", lambda: summed(130, 70, over=0), "one load for each point"),
    Refusal("unroll", "sm_90", "unrolled", lambda: summed(130, 70, over=0), "too many rows"),
    Refusal("unroll", "sm_90", "unrolled", lambda: cases.symbolic(("i0",)), "only the call knows how many rows"),
    Refusal("unroll", "sm_90", "unrolled", lambda: summed(70, 13, over=1), "memory is contiguous along the row"),
    Refusal("Spread", "sm_90", "square", lambda: mapped(2, 9000), "memory is contiguous along one axis only"),
    Refusal("Spread", "sm_90", "columns64", sums_and_transpose, "rows are reduced"),
    Refusal("product", "sm_90", "product", lambda: softmax(2, 3000), "no matrix product"),
    # steps that are no part of a recipe, which leave the kernel or the nest as it is
    Refusal("group", "cpu", "columns", cases.BUILDERS["min_outer"], "a maximum loses no digits"),
    Refusal("group", "cpu", "columns", lambda: cases.reduced((200, 20), (0,), "argmin", I64), "it has two values"),
    Refusal("group", "cpu", "columns", sums_beside_stores, "each row is stored"),
    Refusal("short_sums", "cpu", "rows", lambda: summed(3, 1000, over=1), "the sum is short"),
    Refusal("unmask", "cpu", "elements", cases.padded, "the condition varies along the loop"),
    Refusal("unmask", "cpu", "elements", cases.padded_columns, "the condition is kept, and varies along the loop"),
    Refusal("cut", "cpu", "elements", cases.broadcasts, "no index changes its formula"),
    Refusal("cut", "cpu", "elements", bent_by_data, "data decide the points"),
    Refusal("cut", "cpu", "rows", lambda: sums_of_bent(64), "the loop adds up"),
    Refusal("unblock", "cpu", "blocks", lambda: mapped(2, 9000), "threads share the blocks"),
    Refusal("unblock", "cpu", "columns", lambda: summed(130, 70, over=0), "each block has accumulators"),
    Refusal("scale_by_powers", "cpu", "elements", lambda: divided(3.0), "the reciprocal is rounded"),
    Refusal("scale_by_powers", "cpu", "elements", lambda: divided(2.0**127), "the reciprocal is below normal numbers"),
    Refusal("divide_once", "sm_90", "persistent", lambda: softmax(8, 300), "the quotients are stored with 32 bits"),
    Refusal(
        "divide_with_rest",
        "cpu",
        "rows",
        lambda: softmax_of_halves(2, 300, stored=F32, is_share=False),
        "its rest may be NaN",
    ),
    Refusal("fetch_rows", "cpu", "scalar_elements", only_gathered, "all rows read the same table"),
    Refusal("fetch_rows", "cpu", "scalar_elements", lambda: gathered_rows(30, 64, 800), "most lines are not read"),
    Refusal(
        "fetch_rows", "cpu", "scalar_elements", lambda: gathered_rows(30, 64, 5, by=1), "each read is of another row"
    ),
    Refusal("keep_in_results", "cpu", "rows", lambda: softmax(3, 700), "the row is short"),
    Refusal("keep_in_results", "cpu", "rows", lambda: softmax_of_halves(2, 900), "the store converts"),
    Refusal("keep_in_results", "cpu", "rows", rows_beside, "the row is read after the store"),
    Refusal("in_phases", "cpu", "phases", lambda: shares_of_functions(70, 1000, 9), "the arrays would be too large"),
    Refusal("stores_last", "cpu", "elements", lambda: stored_and_loaded(40), "it loads what it has stored"),
    Refusal("keep_in_results", "cpu", "rows", softmax_in_place, "the kernel loads what it writes"),
    Refusal("keep_in_results", "cpu", "rows", rows_read_again, "the row may lie in memory that is loaded again"),
)
