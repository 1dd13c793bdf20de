"""Each pass keeps the numbers of random programs, and the rules of the IR; so does every order that the edges allow."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.analysis.dependencies import dependencies, neighbours
from minductor.ir.program.nodes import Kernel, Program
from minductor.ir.program.printer import print_program
from minductor.passes.fuse.fuse import fuse
from minductor.passes.order.order import order
from tests.passes.graphs import assert_same, programs
from tests.passes.sketch import CPU
from tests.rows import inline
from tests.verifying import verify


def count(program: Program) -> int:
    return sum(isinstance(node, Kernel) for node in program.nodes)


@settings(max_examples=120, deadline=None)
@given(programs())
def test_passes_keep_the_numbers(program: Program) -> None:
    verify(program, "lower")
    now = program
    for stage, step in (("inline", inline), ("fuse", fuse), ("order", order)):
        before, now = now, step(now, CPU)
        verify(now, stage)
        assert count(now) <= count(before)
        assert_same(program, now)
        assert print_program(step(before, CPU)) == print_program(now)


@settings(max_examples=60, deadline=None)
@given(programs())
def test_fuse_alone_keeps_the_numbers(program: Program) -> None:
    fused = fuse(program, CPU)
    verify(fused, "fuse")
    assert_same(program, fused)


def in_any_order(program: Program, chance: random.Random) -> Program:
    """The nodes in an order that the edges allow; any such order may come out."""
    before, after = neighbours(len(program.nodes), dependencies(program))
    left = [len(sources) for sources in before]
    ready = [n for n, sources in enumerate(before) if not sources]
    picked: list[int] = []
    while ready:
        node = ready.pop(chance.randrange(len(ready)))
        picked.append(node)
        for target in after[node]:
            left[target] -= 1
            if left[target] == 0:
                ready.append(target)
    assert sorted(picked) == list(range(len(program.nodes)))
    return replace(program, nodes=tuple(program.nodes[n] for n in picked))


@settings(max_examples=40, deadline=None)
@given(programs(mutations=12), st.randoms(use_true_random=False))
def test_every_order_that_edges_allow_gives_the_same(program: Program, chance: random.Random) -> None:
    fused = fuse(inline(program, CPU), CPU)
    for stage, now in (("lower", program), ("fuse", fused), ("fuse", fuse(in_any_order(program, chance), CPU))):
        for _ in range(3):
            shuffled = in_any_order(now, chance)
            verify(shuffled, stage)
            assert_same(program, shuffled)
