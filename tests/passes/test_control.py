"""An order that was asked for: no pass breaks it, and it prevents nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.core.errors import VerifyError
from minductor.ir.plan.plan import ExternLine, FreeLine, LaunchLine, ReuseLine
from minductor.ir.program.nodes import Extern, FusionRefusal, Kernel, Node, Program, awaited_refs, writes
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.passes.bundle.bundle import bundle
from minductor.passes.fuse.fuse import fuse
from minductor.passes.loop_order.loop_order import loop_order
from minductor.passes.memory.memory import memory
from minductor.passes.order.order import order
from minductor.passes.split.split import split
from tests.passes.graphs import assert_same, programs
from tests.passes.sketch import CPU, Sketch
from tests.rows import inline, schedule
from tests.verifying import verify


def ordered(program: Program, *pairs: tuple[int, int]) -> Program:
    """The program in which for each pair the second node runs after the first."""
    nodes: list[Node] = list(program.nodes)
    for first, second in pairs:
        node = nodes[second]
        assert isinstance(node, Kernel | Extern)
        nodes[second] = replace(node, after=(*node.after, *writes(nodes[first])))
    made = replace(program, nodes=tuple(nodes))
    verify(made, "lower")
    assert parse_program(print_program(made)).nodes == made.nodes
    return made


def through(program: Program) -> Program:
    """After inline, fuse and order."""
    made = program
    for stage in (inline, fuse, order):
        made = stage(made, CPU)
        verify(made, stage.__name__)
    assert_same(program, made)
    return made


def shape(program: Program) -> list[str]:
    return ["kernel" if isinstance(node, Kernel) else "call" for node in program.nodes]


def test_kernels_with_a_call_between_them_stay_apart_in_that_order() -> None:
    s = Sketch()
    x, y = s.input(4, 4), s.input(4, 4)
    added = s.op("neg", x)
    program = s.done(s.op("exp", added), s.extern(y))
    assert shape(through(program)) == ["kernel", "call"]
    moved = replace(program, nodes=(program.nodes[0], program.nodes[2], program.nodes[1]))
    made = through(ordered(moved, (0, 1), (1, 2)))
    assert shape(made) == ["kernel", "call", "kernel"]


def test_a_pair_that_is_ordered_stays_a_pair_and_says_why() -> None:
    s = Sketch()
    x = s.input(4, 4)
    program = s.done(s.op("exp", x), s.op("neg", x))
    assert len(through(program).nodes) == 1
    made = through(ordered(program, (0, 1)))
    assert shape(made) == ["kernel", "kernel"]
    reasons = [note.reason for note in made.notes if isinstance(note, FusionRefusal)]
    assert reasons == ["the second must begin after the first has ended (control_deps)"]


def test_others_are_still_joined() -> None:
    s = Sketch()
    x = s.input(4, 4)
    program = s.done(s.op("exp", x), s.op("neg", x), s.op("sin", x), s.op("cos", x))
    made = through(ordered(program, (0, 2), (0, 3)))
    assert len(made.nodes) == 2
    (waits,) = [node for node in made.nodes if awaited_refs(node)]
    assert awaited_refs(waits) == writes(program.nodes[0])


def test_what_waits_is_recomputed_only_by_those_that_wait_as_well() -> None:
    s = Sketch()
    x, y = s.input(4, 4), s.input(4, 4)
    first, inner = s.op("exp", x), s.op("neg", y)
    program = s.done(first, s.op("abs", inner))
    assert len(inline(ordered(program, (0, 1)), CPU).nodes) == 3
    assert len(inline(ordered(program, (0, 1), (0, 2)), CPU).nodes) == 2


def test_one_that_nobody_uses_stays_with_what_it_waits_for() -> None:
    s = Sketch()
    x = s.input(4, 4)
    s.op("exp", x)
    s.op("neg", x)
    program = s.done(s.op("sin", x))
    assert len(through(program).nodes) == 1
    assert sum(len(writes(node)) for node in through(ordered(program, (0, 1))).nodes) == 3


def test_bundles_keep_the_order() -> None:
    s = Sketch()
    program = s.done(*(s.op("exp", s.input(n, 3)) for n in (4, 5, 6)))

    def launches(given: Program) -> int:
        return len(bundle(schedule(given, CPU), CPU).nodes)

    assert launches(program) == 1
    assert launches(ordered(program, (0, 1))) == 2
    assert launches(ordered(program, (0, 1), (1, 2))) == 3


def test_waiting_keeps_no_memory() -> None:
    """Of four calls in a row the last waits for the first, whose result dies with the second."""
    s = Sketch()
    x = s.input(4, 4)
    for _ in range(4):
        x = s.extern(x)
    program = s.done(x)
    plan, plain = (memory(given, CPU) for given in (ordered(program, (0, 3)), program))
    assert [type(line) for line in plan.lines] == [type(line) for line in plain.lines]
    calls = 0
    for line in plan.lines:
        calls += isinstance(line, ExternLine | LaunchLine)
        if (isinstance(line, FreeLine) and "buf1" in line.names) or (
            isinstance(line, ReuseLine) and line.old == "buf1"
        ):
            break
    assert calls == 2


@settings(deadline=None, max_examples=60)
@given(programs(), st.data())
def test_no_pass_breaks_an_order(program: Program, data: st.DataObject) -> None:
    positions = st.integers(0, len(program.nodes) - 1)
    drawn = data.draw(st.lists(st.tuples(positions, positions), max_size=4)) if program.nodes else []
    pairs = [(a, b) for a, b in dict.fromkeys(drawn) if a < b]
    names = [node.origins[0].node for node in program.nodes]
    made = waiting = ordered(program, *pairs)
    for stage in (inline, fuse, loop_order, split, order, schedule, bundle):
        made = stage(made, CPU)
        verify(made, stage.__name__)
    assert_same(waiting, made)
    for first, second in pairs:
        places = [[o.node for o in node.origins] for node in made.nodes]
        before = [n for n, row in enumerate(places) if names[first] in row]
        after = [n for n, row in enumerate(places) if names[second] in row]
        assert before and after
        assert max(before) < min(after), print_program(made)


def test_an_order_against_the_data_is_refused() -> None:
    s = Sketch()
    x = s.op("exp", s.input(4, 4))
    program = s.done(s.extern(s.extern(x)))
    with pytest.raises(VerifyError, match="waits for"):
        ordered(program, (2, 1))
