"""How many values of a row live in registers at once, where a program holds the row whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minductor.core.dtypes import F32, F64
from minductor.cost.registers import alive_at_once, words
from minductor.cost.shape import shape_of
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Kernel, Program
from minductor.options import Options
from minductor.passes.schedule import schedule as stage
from minductor.target import Env, by_name
from tests.passes.sketch import Sketch, element

GPU = Env(Options(), by_name("sm_90"))
ROWS, LONG = 512, 1 << 16


def summed(make: Callable[[Builder, int], int], *, stores: str = "", length: int = LONG) -> Program:
    """The sum of what `make` computes of each element of long rows; the element or the value may be `stores` too."""
    s = Sketch()
    x, out, copy = s.input(ROWS, length), s.buffer((ROWS, 1)), s.buffer((ROWS, length))
    axes, at, b = s.loop((ROWS, length))
    loaded = b.load(x.ref, element(x, at), F32)
    value = make(b, loaded)
    if stores:
        b.store(copy.ref, element(copy, at), b.op("neg", loaded if stores == "element" else value))
    b.store(out.ref, at[0], b.reduce([value], [axes[1].name], combine("sum", b.dtype(value))))
    s.kernel(axes, b)
    return s.done(out, *((copy,) if stores else ()))


def only(program: Program) -> Kernel:
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    return kernel


def alive(program: Program) -> int:
    return shape_of(only(program), program.real_table(), program.hints, is_gpu=True).alive


def most(kernel: Kernel) -> int:
    return max((sum(map(words, ops)) for ops in alive_at_once(kernel.body, ["i1"])), default=0)


MADE: dict[str, tuple[Callable[[Builder, int], int], str, int]] = {
    "a function without branches": (lambda b, x: b.op("exp", x), "", 0),
    "a function with branches": (lambda b, x: b.op("cos", x), "", 1),
    "a function whose operand is needed again": (lambda b, x: b.op("mul", x, b.op("cos", x)), "", 2),
    "a function of double precision": (lambda b, x: b.op("cos", b.cast(x, F64)), "", 2),
    "an element that is stored": (lambda b, x: b.op("exp", x), "element", 2),
    "a value that is stored": (lambda b, x: b.op("exp", x), "value", 1),
}


@pytest.mark.parametrize("name", MADE)
def test_registers_of_a_point(name: str) -> None:
    make, stores, count = MADE[name]
    assert most(only(summed(make, stores=stores))) == count


def test_a_long_row_is_not_held_where_its_values_need_more_registers_than_there_are() -> None:
    """cos needs 64 registers of a thread of 1,024 for such a row beside those of addresses; exp needs none."""
    found: dict[str, bool] = {}
    for name in ("exp", "cos"):
        program = summed(lambda b, x, name=name: b.op(name, x))
        made = stage.schedule_kernel(only(program), program.real_table(), GPU, [], program.hints)
        assert made.schedule is not None
        found[name] = made.schedule.recipe.startswith("persistent")
        assert (alive(program) > 0) == (name == "cos")
    assert found == {"exp": True, "cos": False}


def test_shorter_rows_have_registers_enough() -> None:
    assert alive(summed(lambda b, x: b.op("cos", x), length=4096)) == 0
