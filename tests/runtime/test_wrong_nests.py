"""The interpreter of loop nests refuses wrong ones: each test breaks one thing of a right nest.

Takes kernels with nests as text. Gives nothing. Refuses an interpreter that accepts a broken nest, or that says
something else about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from minductor.core.dtypes import BOOL, F32, I64
from minductor.core.expressions.expr import integer, maximum
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.loops import parse_schedule
from minductor.ir.program.nodes import Program, Ref
from minductor.runtime.reference.nest_reference import run_nests
from minductor.runtime.reference.nest_values import WrongNest
from minductor.runtime.reference.reference import run_program
from minductor.target import by_name
from tests.codegen.cases import S0, Sketch, integers, randn
from tests.runtime.nests import arguments

ROWS, COLUMNS = 6, 20


def matrix() -> tuple[Sketch, int]:
    s = Sketch((ROWS, COLUMNS))
    return s, s.read("a", _whole(ROWS, COLUMNS), F32, COLUMNS * s.i[0] + s.i[1])


def _whole(*size: int) -> Tensor:
    return torch.round(randn(*size) * 4)


def map_of_two() -> Sketch:
    """%0 load, %1 neg, %2 store."""
    s, x = matrix()
    s.write(s.b.op("neg", x), F32)
    return s


def row_sums() -> Sketch:
    """%0 load, %1 sum over i1, %2 store."""
    s, x = matrix()
    s.write(s.b.reduce([x], ["i1"], combine("sum", F32)), F32, axes=(0,))
    return s


def centred() -> Sketch:
    """%0 load, %1 abs, %2 sum over i1, %3 sub, %4 store."""
    s, x = matrix()
    x = s.b.op("abs", x)
    s.write(s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("sum", F32))), F32)
    return s


def scanned() -> Sketch:
    """%0 load, %1 scan over i1, %2 store."""
    s, x = matrix()
    s.write(s.b.scan([x], "i1", combine("sum", F32)), F32)
    return s


def scattered() -> Sketch:
    """%0 load of an index, %1 check, %2 load, %3 atomic add."""
    s = Sketch((ROWS, COLUMNS))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(3, ROWS), I64, i), integer(3), wrap=False)
    x = s.read("a", _whole(ROWS, COLUMNS), F32, COLUMNS * i + j)
    s.read("io", torch.zeros(3, COLUMNS), F32, 0)
    s.b = Builder(s.i)
    at = s.b.check(s.b.load(Ref("ids", 0), i, I64), integer(3), wrap=False)
    x = s.b.load(Ref("a", 0), COLUMNS * i + j, F32)
    s.b.atomic(Ref("io", 1), COLUMNS * at + j, x, "add")
    return s


def shifted() -> Sketch:
    """%0 load, %1 store of the element before it, in place."""
    s = Sketch((COLUMNS,))
    x = s.read("a", _whole(COLUMNS + 1), F32, s.i[0] + 1)
    s.b.store(Ref("a", 1), s.i[0], x)
    return s


def padded() -> Sketch:
    """%0 index, %1 constant, %2 comparison, %3 masked load, %4 store."""
    s = Sketch((ROWS, COLUMNS))
    s.read("a", _whole(ROWS, COLUMNS), F32, 0)
    s.b = Builder(s.i)
    inside = s.b.region()
    region = inside.build([inside.load(Ref("a", 0), maximum(COLUMNS * s.i[0] + s.i[1] - 1, 0), F32)])
    condition = s.b.op("gt", s.b.index(s.i[1]), s.b.constant(0, I64))
    assert s.b.dtype(condition) == BOOL
    s.write(s.b.masked(condition, (), region, 0.0, F32), F32)
    return s


def product() -> Sketch:
    """%0 %1 loads, %2 mul, %3 sum over i2, %4 store."""
    s = Sketch((16, 16, 32))
    i, j, k = s.i
    x, w = s.read("x", _whole(16, 32), F32, 32 * i + k), s.read("w", _whole(32, 16), F32, 16 * k + j)
    s.write(s.b.reduce([s.b.op("mul", x, w)], ["i2"], combine("sum", F32)), F32, axes=(0, 1))
    return s


def unknown() -> Sketch:
    """As `centred`, with rows whose length only the call knows."""
    s = Sketch((ROWS, S0))
    x = s.b.op("abs", s.read("a", _whole(ROWS, COLUMNS), F32, S0 * s.i[0] + s.i[1]))
    s.write(s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("sum", F32))), F32)
    return s


def run(build: Callable[[], Sketch], nest: str, target: str, seed: int = 0) -> None:
    """Runs a kernel by a nest, and compares what it gives with what its body says."""
    s = build()
    program = s.program()
    (kernel,) = program.nodes
    made: Program = replace(program, nodes=(replace(kernel, schedule=parse_schedule(nest)),))  # type: ignore[arg-type]
    ends: list[Sequence[object]] = []
    for is_nest in (False, True):
        given = [v.clone() if isinstance(v, Tensor) else v for v in arguments(made, {"s0": COLUMNS}, s.tensors)]
        made_by = run_nests(made, given, target=by_name(target), seed=seed) if is_nest else run_program(made, given)
        ends.append([*made_by, *given])
    for wanted, found in zip(*ends, strict=True):
        assert not isinstance(wanted, Tensor) or torch.equal(wanted, found)  # type: ignore[arg-type]


ROWS_SUMMED = "parallel i0 { vector i1 lanes 4 carry %1 { %0 %1 } %2 }"
CENTRED = "parallel i0 { vector i1 lanes 4 carry %2 { %0 %1 %2 } vector i1 { %3 %4 } } rows %1"
BESIDE = (
    "parallel i0 by 4 { serial i0 { serial i1 { %0 } } serial i1 lanes 4 carry %2 { vector i0 whole { %1 %2 } }"
    " serial i0 { serial i1 { %3 %4 } } } rows %0 %1"
)
BLOCKS = "parallel i0 { serial i1 by 8 carry %1 { serial i1 { %0 %1 %2 } } }"
GROUPS = "serial i0 by 4 carry %1 { vector i1 { tree i0 carry %1 { %0 %1 } } } vector i1 { %2 }"
DOT = "grid i0 by 16 { grid i1 by 16 { serial i2 by 16 carry %3 { %0 %1 %3 } %4 } } dots %3"


def column_sums() -> Sketch:
    """%0 load, %1 sum over i0, %2 store."""
    s, x = matrix()
    s.write(s.b.reduce([x], ["i0"], combine("sum", F32)), F32, axes=(1,))
    return s


@pytest.mark.parametrize(
    ("build", "nest", "target"),
    [
        (map_of_two, "parallel i0 { vector i1 { %0 %1 %2 } }", "cpu"),
        (map_of_two, "grid i0 by 4 { grid i1 by 8 { %0 %1 %2 } }", "sm_90"),
        (row_sums, ROWS_SUMMED, "cpu"),
        (row_sums, "serial i0 { parallel i1 by 8 carry %1 { vector i1 lanes 4 { %0 %1 } } %2 }", "cpu"),
        (row_sums, "serial i0 { parallel i1 parts 3 carry %1 { vector i1 lanes 4 { %0 %1 } } %2 }", "cpu"),
        (row_sums, "serial i0 { serial i1 by 8 carry %1 { serial i1 carry %1 { %0 %1 } } %2 }", "cpu"),
        (row_sums, "grid i0 by 4 { tile i1 by 32 { %0 %1 %2 } }", "sm_90"),
        (row_sums, "grid i0 by 4 { serial i1 by 8 carry %1 { %0 %1 } %2 }", "sm_90"),
        (column_sums, GROUPS, "cpu"),
        (centred, CENTRED, "cpu"),
        (centred, BESIDE, "cpu"),
        (scanned, BLOCKS, "cpu"),
        (scanned, "grid i0 by 4 { serial i1 by 8 carry %1 { %0 %1 %2 } }", "sm_90"),
        (scattered, "serial i0 { %0 %1 vector i1 { %2 %3 } }", "cpu"),
        (shifted, "serial i0 { %0 %1 }", "cpu"),
        (padded, "vector i1 { %0 } %1 vector i1 { %2 } serial i0 { vector i1 { %3 %4 } } rows %0 %2", "cpu"),
        (padded, "%1 serial i1 { %0 %2 vector i0 unmasked %3 { %3 %4 } }", "cpu"),
        (product, DOT, "sm_90"),
        (unknown, "parallel i0 { vector i1 lanes 4 carry %2 { %0 %1 %2 } vector i1 { %0 %1 %3 %4 } }", "cpu"),
    ],
)
def test_right_nests_are_accepted(build: Callable[[], Sketch], nest: str, target: str) -> None:
    run(build, nest, target)


BROKEN_ON_CPUS = [
    # values
    (map_of_two, "parallel i0 { vector i1 { %1 %0 %2 } }", "%1 (neg) reads %0 (load) before it is computed"),
    (map_of_two, "parallel i0 { vector i1 { %0 %1 } vector i1 { %2 } }", "before it is computed here"),
    (map_of_two, "parallel i0 { %0 vector i1 { %1 %2 } }", "varies over i1 and stands outside"),
    (map_of_two, "parallel i0 { vector i1 { %0 %1 vector i1 { %2 } } }", "in a loop over the same elements"),
    (centred, CENTRED.removesuffix("rows %1"), "%3 (sub) reads %1 (abs) before it is computed here"),
    (centred, CENTRED.replace("{ %3", "{ %2 %3"), "no loop carries %2"),
    (
        centred,
        "serial i0 { vector i1 lanes 4 carry %2 { %0 %1 %2 } vector i1 { %3 %4 } vector i1 { %1 } } rows %1",
        "%1 (abs) reads %0 (load)",
    ),
    (centred, CENTRED.replace("vector", "vector i1 { %3 } vector", 1), "in a row of which no step has written this"),
    (column_sums, "serial i0 carry %1 { vector i1 { %0 %1 } } vector i1 { %2 } rows %1", "has no value for its row"),
    (unknown, CENTRED, "the array of %1 (abs) over i1 has no bounded size"),
    # accumulators
    (row_sums, ROWS_SUMMED.replace("carry %1 ", ""), "no loop carries %1"),
    (row_sums, ROWS_SUMMED.replace("lanes 4 ", ""), "has no lanes for %1"),
    (row_sums, "parallel i0 { vector i1 lanes 4 carry %1 { %0 %1 %2 } }", "before its loop is complete"),
    (
        centred,
        CENTRED.replace("{ %3", "lanes 4 carry %2 { %2 %3"),
        "%3 (sub) reads %2 (reduce) before its loop is comp",
    ),
    (row_sums, "parallel i0 { serial i1 by 8 { vector i1 lanes 4 carry %1 { %0 %1 } } %2 }", "twice or not at all"),
    (
        row_sums,
        "parallel i0 { serial i1 by 8 { vector i1 lanes 4 carry %1 { %0 %1 } %2 } }",
        "%1 (reduce) holds some elements of i1 twice or not at all",
    ),
    (
        row_sums,
        "serial i0 { serial i1 by 8 carry %1 { serial i1 { %0 %1 } serial i1 { %0 %1 } } %2 }",
        "holds some elements of i1 twice",
    ),
    (row_sums, "serial i0 { serial i1 carry %1 { parallel i1 { } } }", "in a loop over the same elements"),
    (
        row_sums,
        "serial i0 { serial i1 by 20 carry %1 { parallel i1 by 4 { serial i1 { %0 %1 } } } %2 }",
        "the iterations of the parallel loop over i1 share the accumulators of %1",
    ),
    (row_sums, "vector i1 lanes 4 carry %1 { serial i0 { %0 %1 } } serial i0 { %2 }", "has lanes along i1 and"),
    (row_sums, "parallel i0 carry %1 { vector i1 lanes 4 { %0 %1 } %2 }", "has no block"),
    (row_sums, "serial i0 carry %1 { vector i1 lanes 4 { %0 %1 } %2 }", "which does not run over it"),
    (column_sums, GROUPS.replace("serial i0 by 4 carry %1", "serial i0 by 4"), "twice or not at all"),
    # scans
    (scanned, "parallel i0 { vector i1 carry %1 { %0 %1 %2 } }", "%1 (scan) stands in a vector loop"),
    (scanned, BLOCKS.replace("carry %1 ", ""), "no loop carries %1"),
    (scanned, BLOCKS.replace("carry %1 { serial i1", "{ serial i1 carry %1"), "has not run over all elements of i1"),
    (scanned, BLOCKS.replace("serial i1 {", "serial i1 carry %1 {"), "begins %1 (scan) anew"),
    (scanned, "parallel i1 by 8 carry %1 { serial i0 { serial i1 { %0 %1 %2 } } }", "%1 (scan)"),
    # effects
    (row_sums, "parallel i0 { vector i1 lanes 4 carry %1 { %0 %1 } serial i1 { %2 } }", "runs twice for one"),
    (row_sums, "parallel i0 { vector i1 lanes 4 carry %1 { %0 %1 } vector i1 { %2 } }", "runs twice for one"),
    (map_of_two, "parallel i0 { vector i1 { %0 %1 } }", "%2 (store) never runs for 120 of its points"),
    # memory
    (scattered, "serial i1 { parallel i0 { %0 %1 %2 %3 } }", "of io@1"),
    (scattered, "parallel i1 by 4 { vector i0 { %0 %1 %2 } }", "stands outside"),
    (scattered, "serial i1 { vector i0 { %0 %1 %2 %3 } }", "two elements of a vector write one element of io@1"),
    (shifted, "parallel i0 { %0 %1 }", "a@0 is read after it was overwritten"),
    (shifted, "vector i0 { %1 %0 }", "before it is computed here"),
    # heads
    (map_of_two, "parallel i0 { vector i1 cut <15> <5> { %0 %1 %2 } }", "is cut at 15 and then at 5"),
    (row_sums, "serial i0 { serial i1 lanes 4 carry %1 { %0 %1 } %2 }", "has lanes and no vector"),
    (map_of_two, "parallel i1 { vector i0 whole { %0 %1 %2 } }", "runs through no whole block"),
    (map_of_two, "serial i0 by 4 { serial i1 { vector i0 whole { %0 %1 %2 } } }", "touches more than arrays"),
    (map_of_two, "vector i1 { parallel i0 { %0 %1 %2 } }", "stands in a vector loop"),
    (column_sums, "serial i0 carry %1 { vector i1 { tree i0 { %0 %1 } } } vector i1 { %2 }", "tree loop over i0"),
    (padded, "%1 serial i0 { vector i1 unmasked %3 { %0 %2 %3 %4 } }", "%3 (masked) reads %2 (gt) before"),
    (padded, "%1 vector i1 { %0 %2 } serial i0 { vector i1 unmasked %3 { %3 %4 } } rows %2", "not known for"),
]
BROKEN_ON_GPUS = [
    (row_sums, "grid i1 by 8 { grid i0 by 4 { serial i1 by 8 { } } }", "in a loop over the same elements"),
    (map_of_two, "grid i0 by 4 { grid i1 by 8 { %0 %1 } } grid i0 by 4 { %2 }", "stands outside"),
    (row_sums, "grid i0 by 4 { tile i1 by 16 { %0 %1 %2 } }", "a block that does not hold its 20 elements"),
    (row_sums, "grid i0 by 3 { tile i1 by 32 { %0 %1 %2 } }", "a block that is no power of two"),
    (row_sums, "tile i1 by 32 { grid i0 by 4 { %0 %1 %2 } }", "is not among the outermost loops"),
    (row_sums, "grid i0 by 4 { serial i1 by 8 { %0 %1 } %2 }", "no loop carries %1"),
    (row_sums, "grid i0 by 4 { serial i1 carry %1 { %0 %1 } %2 }", "the serial loop over i1 has no block"),
    (row_sums, ROWS_SUMMED, "of a kind that the target has not"),
    (product, DOT.replace("%0 %1 %3", "%0 %1 %2 %3"), "%2 (mul) is a product that exists nowhere"),
]


@pytest.mark.parametrize(("build", "nest", "says"), BROKEN_ON_CPUS)
def test_a_broken_nest_of_a_cpu_is_refused(build: Callable[[], Sketch], nest: str, says: str) -> None:
    with pytest.raises(WrongNest) as found:
        run(build, nest, "cpu")
    assert says in str(found.value)


@pytest.mark.parametrize(("build", "nest", "says"), BROKEN_ON_GPUS)
def test_a_broken_nest_of_a_gpu_is_refused(build: Callable[[], Sketch], nest: str, says: str) -> None:
    with pytest.raises(WrongNest) as found:
        run(build, nest, "sm_90")
    assert says in str(found.value)


def test_threads_that_share_an_element_are_found_in_both_orders() -> None:
    """The first block reads one element that the second block overwrites."""
    says: set[str] = set()
    for seed in range(8):
        with pytest.raises(WrongNest) as found:
            run(shifted, "parallel i0 by 10 { serial i0 { %0 %1 } }", "cpu", seed)
        says.add(str(found.value).split("[")[0])
    assert says == {
        "kernel: a@0 is read after it was overwritten ",
        "kernel: one iteration of a parallel loop writes elements of a@1 that another one reads ",
    }
