"""The orders and what they hold at most, the choice among them, and the edges that all of them keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.analysis.dependencies import dependencies, neighbours
from minductor.core.dtypes import F32
from minductor.core.expressions.expr import Symbol, integer
from minductor.ir.plan.storage import Usage
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import Kernel, Program, View
from minductor.passes.order.order import (
    breadth_first,
    depth_first,
    least_memory_first,
    least_peak_first,
    order,
    widest_first,
)
from tests.passes.graphs import assert_same, programs
from tests.passes.sketch import CPU, Sketch, element
from tests.verifying import verify

NAMED = {
    "least peak": least_peak_first,
    "breadth": breadth_first,
    "depth": depth_first,
    "least memory": least_memory_first,
    "widest": widest_first,
}


def names(program: Program) -> list[str]:
    return [node.name for node in program.nodes if isinstance(node, Kernel)]


def total(s: Sketch, view: View) -> View:
    """The sum of all elements."""
    made = s.buffer([1, 1])
    axes, at, b = s.loop([int(str(n)) for n in view.size])
    moving = [symbol.name for symbol in at if isinstance(symbol, Symbol)]
    b.store(
        made.ref,
        element(made, [integer(0)] * 2),
        b.reduce([b.load(view.ref, element(view, at), F32)], moving, combine("sum", F32)),
    )
    s.kernel(axes, b)
    return made


def two_branches(rows: int) -> Program:
    """One widens and then narrows, the other the other way round; the first value of each is kept for a backward."""
    s = Sketch()
    x = s.input(rows, 1)
    t1 = s.op("mul", x, s.input(1, 10))
    t2 = s.op("mul", x, s.input(1, 1))
    t3 = s.reduce("sum", t1, 1)
    t4 = s.op("mul", t2, s.input(1, 10))
    return s.done(s.op("add", total(s, t3), total(s, t4)), t1, t2)


def all_orders(program: Program) -> dict[str, list[int]]:
    before, after = neighbours(len(program.nodes), dependencies(program))
    return {name: make(Usage(program), before, after) for name, make in NAMED.items()}


def test_the_orders_of_two_branches_and_their_peaks() -> None:
    program = two_branches(2048)
    usage = Usage(program)
    found = all_orders(program)
    assert found == {
        "least peak": [1, 0, 2, 4, 3, 5, 6],
        "breadth": [0, 1, 2, 3, 4, 5, 6],
        "depth": [0, 2, 4, 1, 3, 5, 6],
        "least memory": [1, 0, 2, 4, 3, 5, 6],
        "widest": [1, 3, 5, 0, 2, 4, 6],
    }
    assert usage.peak(range(7)) == 180_228
    assert {name: usage.peak(nodes) for name, nodes in found.items()} == {
        "least peak": 172_040,
        "breadth": 180_228,
        "depth": 172_040,
        "least memory": 172_040,
        "widest": 98_312,
    }
    assert [*map(program.nodes.index, order(program, CPU).nodes)] == found["widest"]


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


def test_a_widest_branch_runs_before_what_the_others_leave() -> None:
    """Whatever their places in the program, and although another order begins with what takes least."""
    s = Sketch()
    narrow = s.op("exp", s.input(64, 2))
    wide = s.reduce("sum", s.op("exp", s.input(64, 64)), 1)
    program = s.done(s.op("add", narrow, wide))
    assert all_orders(program)["widest"] == [1, 2, 0, 3]
    assert names(order(program, CPU)) == ["k1", "k2", "k0", "k3"]


def test_what_is_overwritten_takes_no_memory_and_keeps_what_it_overwrites() -> None:
    s = Sketch()
    x = s.op("exp", s.input(8, 8))
    y = s.copy(x, s.input(8, 8))
    program = s.done(s.reduce("sum", y, 1))
    assert Usage(program).peak(range(3)) == 8 * 8 * 4 + 8 * 4


def test_a_donated_input_is_there_from_the_start_to_its_last_reader() -> None:
    s = Sketch()
    x, y = s.input(8, 8), s.input(8)
    program = s.done(s.op("exp", y), s.reduce("sum", x, 0))
    assert Usage(program).peak(range(2)) == 2 * 8 * 4
    given = tuple(replace(given, is_donated=given.name == "arg0") for given in program.inputs)
    program = replace(program, inputs=given)
    assert Usage(program).peak(range(2)) == 8 * 8 * 4 + 2 * 8 * 4
    assert names(order(program, CPU)) == ["k1", "k0"]
    assert Usage(order(program, CPU)).peak(range(2)) == 8 * 8 * 4 + 8 * 4


def plain_least_peak(usage: Usage, before: Sequence[set[int]]) -> list[int]:
    """The rule as it is said, with a look at every ready node each time."""
    left, live, found = dict(usage.count), set(usage.given), list[int]()
    now = sum(usage.size[name] for name in live)
    most = max(now, sum(usage.size[name] for name in usage.returned))
    while len(found) < len(before):
        choices: list[tuple[bool, int, int, int, int]] = []
        for node in set(range(len(before))) - set(found):
            if before[node] <= set(found):
                names = usage.uses[node]
                needs = sum(usage.size[name] for name in names if name not in live)
                keeps = needs - sum(usage.size[name] for name in names if left[name] == 1)
                is_more = now + needs > most
                choices.append((is_more, needs if is_more else keeps, node, needs, keeps))
        _, _, node, needs, keeps = min(choices)
        found.append(node)
        most, now = max(most, now + needs), now + keeps
        live.update(usage.uses[node])
        for name in usage.uses[node]:
            left[name] -= 1
    return found


@settings(max_examples=80, deadline=None)
@given(programs(), st.booleans())
def test_each_order_keeps_the_edges_and_the_numbers(program: Program, is_donated: bool) -> None:
    program = replace(program, inputs=tuple(replace(given, is_donated=is_donated) for given in program.inputs))
    before, after = neighbours(len(program.nodes), dependencies(program))
    usage = Usage(program)
    for make in NAMED.values():
        nodes = make(usage, before, after)
        changed = replace(program, nodes=tuple(program.nodes[n] for n in nodes))
        verify(changed, "order")
        assert_same(program, changed)
        assert usage.peak(nodes) == Usage(changed).peak(range(len(nodes)))
    assert least_peak_first(usage, before, after) == plain_least_peak(usage, before)
    best = min(usage.peak(nodes) for nodes in (range(len(before)), *all_orders(program).values()))
    assert Usage(order(program, CPU)).peak(range(len(before))) == best
