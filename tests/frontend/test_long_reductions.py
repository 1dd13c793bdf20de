"""Reductions with few results and long rows are cut in parts for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from minductor.core.dtypes import F32
from minductor.core.expressions.expr import Expr, as_int, integer, symbol
from minductor.core.expressions.hints import Hints
from minductor.frontend.capture.size_formulas import row_major
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.long_reductions import Cut, cut
from minductor.ir.program.nodes import Ref, View
from minductor.options import Options
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from tests.frontend.tracing import compiled, lowered

GPU = Env(Options(), by_name("sm_90"))


def of(size: Sequence[int], reduced: Sequence[int], target: str = "sm_90") -> Cut | None:
    return of_sizes(tuple(integer(n) for n in size), reduced, target)


def of_sizes(sizes: tuple[Expr, ...], reduced: Sequence[int], target: str = "sm_90", hints: Hints = ()) -> Cut | None:
    x = View(Ref("x", 0), F32, sizes, row_major(sizes), integer(0))

    def value(loop: KernelBuilder, at: tuple[Expr, ...]) -> KernelValue:
        return loop.load(x, at)

    return cut(sizes, reduced, value, by_name(target), hints)


@pytest.mark.parametrize(
    ("size", "reduced", "expected"),
    [
        ((1 << 24,), (0,), ((), 0, 512, 32768, True)),
        ((64, 512, 512), (0, 1, 2), ((0,), 1, 8, 64, True)),
        ((1_000_003,), (0,), ((), 0, 244, 4112, False)),  # no number near divides it
        ((4096, 1024), (0,), ((), 0, 16, 256, True)),  # 32 columns a program
        ((4096, 1024), (1,), None),  # rows enough
        ((4, 4096), (1,), None),  # short rows
    ],
)
def test_parts_follow_from_the_shape(size: Sequence[int], reduced: Sequence[int], expected: object) -> None:
    found = of(size, reduced)
    assert expected == (found and (found.whole, found.dim, as_int(found.count), as_int(found.block), found.is_exact))
    assert of(size, reduced, "cpu") is None


def test_a_long_sum_gives_each_multiprocessor_a_program() -> None:
    found = of((1 << 24,), (0,))
    assert found is not None and (as_int(found.count) or 0) >= by_name("sm_90").multiprocessors


@pytest.mark.parametrize(
    ("fn", "size"),
    [
        (lambda x: (x.sum(), x.amax(), x.argmin(), (x > 4).any(), (x > -9).all()), (70_001,)),
        (lambda x: (x + 1000).var(), (70_001,)),
        (lambda x: torch.var_mean(x, 0, keepdim=True), (5003, 14)),
        (lambda x: torch.softmax(x.flatten(), 0), (5003, 14)),
    ],
)
def test_values(fn: Callable[..., object], size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(size)
    assert lowered(fn, x, env=GPU).kernels != lowered(fn, x).kernels


@pytest.mark.parametrize(("length", "expected"), [(301, set[int]()), (1_000_003, {244})])
def test_a_size_that_the_call_knows_is_cut_by_its_hint(length: int, expected: set[int]) -> None:
    torch.manual_seed(0)
    made = compiled(lambda x: (x.sum(), x.amax(), x.argmax()), torch.randn(length), dynamic=True, env=GPU)
    assert {as_int(kernel.axes[0].extent) for kernel in made.kernels if len(kernel.axes) == 2} == expected
    for x in (torch.randn(5), torch.randn(1000)):
        for ours, theirs in zip(run_program(made.program, [len(x), x]), (x.sum(), x.amax(), x.argmax()), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_a_cut_by_hints() -> None:
    size, few = symbol("s0", "size", 2), symbol("s1", "size", 2)
    for sizes, hints, expected in (
        ((size,), ((size, 1 << 20),), ((), 0, 256)),
        ((size,), (), None),  # without a hint it counts as short
        ((few, size), ((few, 4), (size, 1 << 18)), ((0,), 1, 64)),  # the short dimension is not cut
    ):
        found = of_sizes(sizes, range(len(sizes)), hints=hints)
        assert expected == (found and (found.whole, found.dim, as_int(found.count)))
        assert found is None or not found.is_exact
