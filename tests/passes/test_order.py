"""The order with least memory, and the edges that it keeps."""

from __future__ import annotations

from minductor.ir.nodes import Kernel, Program
from minductor.ir.verify import verify
from minductor.passes.order import order
from tests.passes.graphs import assert_same
from tests.passes.sketch import CPU, Sketch


def names(program: Program) -> list[str]:
    return [node.name for node in program.nodes if isinstance(node, Kernel)]


def test_what_frees_memory_comes_first() -> None:
    """Four large values that shrink to small ones: one at a time, not all large ones first."""
    s = Sketch()
    x = s.input(64, 64)
    large = [s.op("exp", x) for _ in range(4)]
    small = [s.reduce("sum", v, 1) for v in large]
    program = s.done(*small)
    made = order(program, CPU)
    verify(made, "order")
    assert_same(program, made)
    assert names(made) == ["k0", "k4", "k1", "k5", "k2", "k6", "k3", "k7"]


def test_an_order_that_is_as_good_stays_the_same_object() -> None:
    s = Sketch()
    program = s.done(s.op("exp", s.op("neg", s.input(4, 4))))
    assert order(program, CPU) is program


def test_a_reader_of_the_old_version_stays_before_the_writer() -> None:
    s = Sketch()
    x, y = s.input(64, 64), s.input(64, 64)
    large = [s.op("exp", x) for _ in range(3)]
    s.copy(x, y)
    program = s.done(*(s.reduce("sum", v, 1) for v in large))
    made = order(program, CPU)
    verify(made, "order")
    assert_same(program, made)
    assert names(made).index("k3") > max(names(made).index(f"k{n}") for n in range(3))
