"""What accesses cost in which order."""

from minductor.cost.traffic import traffic
from minductor.ir.program.nodes import Kernel, Program
from tests.passes.sketch import Sketch, narrow, transpose


def cost(program: Program) -> int:
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    return traffic(kernel, program.buffer_table(), ())


def test_what_is_walked_in_order_costs_its_bytes() -> None:
    s = Sketch()
    assert cost(s.done(s.op("add", s.input(64, 32), s.input(32)))) == (2 * 64 * 32 + 32) * 4


def test_one_transposed_side_costs_more_and_two_do_not() -> None:
    s, t = Sketch(), Sketch()
    x = s.input(64, 32)
    assert cost(s.done(s.op("exp", transpose(x, 0, 1)))) == 3 * 64 * 32 * 4
    y = transpose(t.input(64, 32), 0, 1)
    t.pointwise(lambda b, v: b.op("exp", v), y, into=transpose(t.buffer([64, 32]), 0, 1))
    assert cost(t.done(y)) == 2 * 64 * 32 * 4


def test_neighbours_of_a_stencil_are_read_once() -> None:
    s = Sketch()
    x = s.input(130)
    parts = [narrow(x, 0, n, 128) for n in range(3)]
    made = s.pointwise(lambda b, u, v, w: b.op("add", b.op("add", u, v), w), *parts)
    assert cost(s.done(made)) == 2 * 128 * 4
