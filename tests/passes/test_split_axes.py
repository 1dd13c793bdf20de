"""Axes that indices divide: which ones are split, and that a kernel computes the same with them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.analysis.domain import has_division
from minductor.core.dtypes import F32, I64
from minductor.core.expressions.expr import Expr, as_int, floordiv, mod
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import Index
from minductor.options import Options
from minductor.passes.merge_axes.merge_axes import merge_axes
from minductor.passes.rewriting.split_axes import split_kernel_axes
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from pytest_plugin.oracle.compiled import Compile
from tests.codegen.cases import S1, SIZES, Sketch, randn
from tests.runtime.nests import arguments, kernels


def of_parts(rows: int | Expr, part: int | Expr, *, columns: int | Expr = 9, is_summed: bool = False) -> Sketch:
    """A copy of the columns of matrices as rows, by an axis over all of them; or the sum of each, by its elements."""
    s = Sketch((rows * part, columns))
    i, j = s.i
    count, width, height = (SIZES["s1"] if isinstance(n, Expr) else n for n in (rows, part, columns))
    x = s.read("a", randn(count, height, width), F32, columns * part * floordiv(i, part) + part * j + mod(i, part))
    if is_summed:
        s.write(s.b.reduce([x], ["i0"], combine("sum", F32)), F32, axes=(1,))
    else:
        s.write(x, F32)
    return s


def sizes_of(sketch: Sketch) -> list[int | None]:
    (kernel,) = kernels(sketch.program())
    return [as_int(axis.extent) for axis in split_kernel_axes(kernel).axes]


def of_conditions(count: int | Expr, rows: int | Expr, part: int | Expr) -> Sketch:
    """Elements of matrices, with 0 in the first row and the last column of each, by one axis over a whole matrix."""
    s = Sketch((count, rows * part))
    i, j = s.i
    images, height, width = (SIZES["s1"] if isinstance(n, Expr) else n for n in (count, rows, part))
    x = s.read("a", randn(images, height, width), F32, rows * part * i + j)
    zero = s.b.constant(0.0, F32)
    row, column = s.b.index(floordiv(j, part)), s.b.index(part - 1 - mod(j, part))
    for place in (row, column):
        x = s.b.op("where", s.b.op("gt", place, s.b.constant(0, I64)), x, zero)
    s.write(x, F32)
    return s


@pytest.mark.parametrize(
    ("sketch", "sizes"),
    [
        (of_parts(4, 16), [4, 16, 9]),
        (of_parts(4, 16, is_summed=True), [4, 16, 9]),
        (of_parts(5, S1, columns=S1), [5, None, None]),
        (of_parts(S1, 8, columns=S1), [None, 8, None]),
        (of_parts(4, 7), [28, 9]),  # short parts
        (of_conditions(3, 4, 16), [3, 4, 16]),
        (of_conditions(S1, S1, S1), [None, None, None]),
        (of_parts(1, 16), [16, 9]),  # nothing is divided
    ],
)
def test_an_axis_becomes_one_for_each_part(sketch: Sketch, sizes: list[int | None]) -> None:
    assert sizes_of(sketch) == sizes
    program = sketch.program()
    (kernel,) = kernels(program)
    given = arguments(program, SIZES, sketch.tensors)
    split = split_kernel_axes(kernel)
    assert not any(has_division(op.attrs.expr) for op in split.body.ops if isinstance(op.attrs, Index))
    made = replace(program, nodes=(split,))
    for found, wanted in zip(run_program(made, given), run_program(program, given), strict=True):
        torch.testing.assert_close(found, wanted)


def test_an_axis_that_a_scan_walks_stays_whole() -> None:
    s = Sketch((64, 9))
    i, j = s.i
    x = s.read("a", randn(4, 9, 16), F32, 144 * floordiv(i, 16) + 16 * j + mod(i, 16))
    s.write(s.b.scan([x], "i0", combine("sum", F32)), F32)
    assert sizes_of(s) == [64, 9]


def test_a_gpu_keeps_its_axes() -> None:
    program = of_parts(4, 16).program()
    assert merge_axes(program, Env(Options(), by_name("sm_90"))) is program
    assert merge_axes(program, Env(Options(), by_name("cpu"))) is not program


@pytest.mark.parametrize("dynamic", [False, True])
def test_norms_of_images_whose_channels_lie_innermost(compiled: Compile, dynamic: bool) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.instance_norm(x), F.group_norm(x, 2)

    x = torch.randn(3, 16, 10, 7).to(memory_format=torch.channels_last)
    run = compiled(fn, x, dynamic=dynamic, grad=False)
    texts = [kernel.text.split('extern "C"')[-1] for graph in run.graphs for kernel in graph.kernels]
    assert compiled.device.kind != "cpu" or not any(" % " in text for text in texts)


@pytest.mark.parametrize("dynamic", [False, True])
def test_conditions_of_windows_that_a_view_has_merged_divide_nothing(compiled: Compile, dynamic: bool) -> None:
    run = compiled(lambda x: F.unfold(x, 3, padding=1) * 2, torch.randn(2, 3, 20, 20), dynamic=dynamic, grad=False)
    is_cpu = compiled.device.kind == "cpu"
    (kernel,) = (kernel for graph in run.graphs for kernel in graph.kernels)
    loops = re.findall(r"omp simd\n *for \(int64_t (i\d) = (.*)", kernel.text, re.DOTALL)
    assert not is_cpu or (loops and not re.search(rf"{loops[-1][0]} [/%]", loops[-1][1]))
