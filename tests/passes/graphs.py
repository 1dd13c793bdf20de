"""Random programs: pointwise chains, broadcasts, reductions, views, joins, pads, gathers, externs and mutations.

Takes hypothesis' draws; gives Programs that `verify` accepts, and a way to run them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st

from minductor.core.dtypes import F32
from minductor.ir.program.nodes import Program, View
from minductor.runtime.reference.reference import run_program
from tests.passes.sketch import (
    Sketch,
    arguments,
    flatten,
    is_dense,
    narrow,
    sizes_of,
    transpose,
    unflatten,
)

SIZES = (2, 3, 4)
Draw = Callable[[st.SearchStrategy[int]], int]


@st.composite
def programs(
    draw: st.DrawFn, most: int = 10, *, mutations: int = 1, scans: int = 0, sizes: Sequence[int] = SIZES
) -> Program:
    """`mutations`: how many of 17 steps overwrite something. `scans`: how many more are scans."""
    s = Sketch()
    steps = (*STEPS, *(mutate,) * (mutations - 1), *(scan,) * scans)
    matrix = [draw(st.sampled_from(sizes)), draw(st.sampled_from(sizes))]
    pool = [s.input(*matrix), s.input(*matrix), s.input(matrix[1])]
    for _ in range(draw(st.integers(1, most))):
        step = steps[draw(st.integers(0, len(steps) - 1))]
        view = pool[draw(st.integers(0, len(pool) - 1))]
        other = pool[draw(st.integers(0, len(pool) - 1))]
        made = step(s, view, other, draw(st.integers(0, 5)))
        if made is None:
            continue
        pool = [v for v in pool if v.ref.storage != made.ref.storage or v.ref == made.ref]
        pool.append(made)
    wanted = draw(st.lists(st.integers(0, len(pool) - 1), min_size=1, max_size=3))
    return s.done(*(pool[n] for n in dict.fromkeys([*wanted, len(pool) - 1])))


def unary(s: Sketch, view: View, other: View, n: int) -> View | None:
    return s.op(("exp", "neg", "relu", "sigmoid", "square", "abs")[n], view)


def binary(s: Sketch, view: View, other: View, n: int) -> View | None:
    try:
        torch.broadcast_shapes(sizes_of(view), sizes_of(other))
    except RuntimeError:
        return None
    if len(view.size) == 3 and len(other.size) == 3 and n == 0:
        return None
    return s.op(("sub", "mul", "add", "maximum", "add", "mul")[n], view, other)


def shared(s: Sketch, view: View, other: View, n: int) -> View | None:
    """x * sigmoid(x)"""
    return s.op("mul", view, s.op("sigmoid", view))


def statistic(s: Sketch, view: View, other: View, n: int) -> View | None:
    """x - mean(x), over one dim"""
    return s.op("sub", view, s.reduce(("sum", "max")[n % 2], view, n % len(view.size)))


def reduce(s: Sketch, view: View, other: View, n: int) -> View | None:
    return s.reduce(("sum", "max")[n % 2], view, n % len(view.size))


def scan(s: Sketch, view: View, other: View, n: int) -> View | None:
    dim = n % len(view.size)
    return s.scan(("sum", "max")[n % 2], view, dim) if sizes_of(view)[dim] > 1 else None


def turn(s: Sketch, view: View, other: View, n: int) -> View | None:
    return transpose(view, 0, 1) if len(view.size) > 1 else None


def part(s: Sketch, view: View, other: View, n: int) -> View | None:
    size = sizes_of(view)[0]
    return narrow(view, 0, 1, size - 1) if size > 2 else None


def reshape(s: Sketch, view: View, other: View, n: int) -> View | None:
    if not is_dense(view):
        return None
    if len(view.size) > 1:
        return flatten(view)
    size = sizes_of(view)[0]
    return next((unflatten(view, outer) for outer in (2, 3) if size % outer == 0 and size > outer), None)


def join(s: Sketch, view: View, other: View, n: int) -> View | None:
    return s.cat(n % len(view.size), view, s.op("neg", view) if n > 2 else view)


def pad(s: Sketch, view: View, other: View, n: int) -> View | None:
    return s.pad(view, n % len(view.size))


def gather(s: Sketch, view: View, other: View, n: int) -> View | None:
    return s.gather(view, other) if len(view.size) == 2 and len(other.size) == 1 else None


def extern(s: Sketch, view: View, other: View, n: int) -> View | None:
    return s.extern(view)


def mutate(s: Sketch, view: View, other: View, n: int) -> View | None:
    """Overwrites a storage with what has its shape, read forwards or, if n is odd, transposed."""
    whole = next(buffer for buffer in s.buffers if buffer.name == view.ref.storage)
    if view.size != whole.size or view.stride != whole.stride or other.size != view.size:
        return None
    is_square = len(view.size) > 1 and view.size[0] == view.size[1]
    source = s.op("exp", transpose(view, 0, 1) if n % 2 and is_square else other)
    return s.copy(view, source)


STEPS = (
    unary,
    unary,
    binary,
    binary,
    binary,
    shared,
    statistic,
    statistic,
    reduce,
    turn,
    part,
    reshape,
    join,
    pad,
    gather,
    extern,
    mutate,
)


def run(program: Program) -> list[torch.Tensor]:
    """Outputs, then the inputs as they are left."""
    given = arguments(program)
    return [*run_program(program, given), *given]


def assert_same(program: Program, changed: Program) -> None:
    """Equal outputs and inputs, NaN included, up to rounding of a different order of sums."""
    for now, then in zip(run(changed), run(program), strict=True):
        assert now.dtype == then.dtype == getattr(torch, F32.torch_name)
        torch.testing.assert_close(now, then, rtol=1e-5, atol=1e-6, equal_nan=True)
