"""The work of scheduling for each node stays what it is, however long the program: counted, not timed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from minductor.analysis import acyclic
from minductor.ir.program.nodes import Program
from minductor.passes.fuse.fuse import fuse
from minductor.passes.order import order
from minductor.passes.rewriting import greedy_fusion
from tests.passes.sketch import CPU, Sketch
from tests.rows import inline


def chain(count: int) -> Program:
    s = Sketch()
    x = s.input(16, 16)
    for n in range(count // 4):
        x = s.op("sub", x, s.reduce("sum", s.op("exp", x), n % 2))
    return s.done(x)


def wide(count: int) -> Program:
    s = Sketch()
    given = [s.input(16, 16) for _ in range(4)]
    ends = [s.reduce("sum", s.op("exp", s.op("mul", given[n % 4], given[n // 4 % 4])), 1) for n in range(count // 4)]
    while len(ends) > 1:
        ends = [s.op("add", a, b) for a, b in zip(ends[::2], ends[1::2], strict=False)] + ends[len(ends) // 2 * 2 :]
    return s.done(*ends)


def tangled(count: int) -> Program:
    """Operands from the latest values, now and then from any; calls in between, so that much stays apart."""
    s = Sketch()
    chance = random.Random(1)
    made = [s.input(16, 16) for _ in range(4)]
    for _ in range(count):
        x, y = (chance.choice(made[-20:] if chance.random() < 0.9 else made) for _ in range(2))
        kind = chance.random()
        if kind < 0.2:
            made.append(s.extern(x))
        elif kind < 0.4:
            made.append(s.reduce("sum", x, 1))
        else:
            made.append(s.op("add", x, y))
    return s.done(*made[-4:])


def hub(count: int) -> Program:
    """One value that everything reads, all of which is wanted."""
    s = Sketch()
    x = s.extern(s.input(16, 16))
    total = s.reduce("sum", x, 1)
    return s.done(*(s.extern(s.op("add", s.extern(x), total)) for _ in range(count // 3)))


def work(program: Program) -> Counter[str]:
    """How often the steps that cost something are taken."""
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            counts[name] += 1
            return function(*args)

        return call

    def walk(*args: Any) -> Iterator[bool]:
        for step in plain(*args):
            counts["edges walked"] += 1
            yield step

    def candidates(*args: Any) -> Iterator[Any]:
        for pair in pairs(*args):
            counts["pairs looked at"] += 1
            yield pair

    plain, pairs = acyclic.AcyclicOrder._walk, greedy_fusion.GreedyFusion._candidates
    with (
        patch.object(greedy_fusion, "join", counted("joins tried", greedy_fusion.join)),
        patch.object(acyclic.AcyclicOrder, "_walk", walk),
        patch.object(greedy_fusion.GreedyFusion, "_candidates", candidates),
        patch.object(order._LiveMemory, "cost", counted("costs of a node", order._LiveMemory.cost)),
    ):
        order.order(fuse(inline(program, CPU), CPU), CPU)
    return counts


@pytest.mark.parametrize("make", [chain, wide, tangled, hub])
def test_work_for_a_node_does_not_grow(make: Callable[[int], Program]) -> None:
    half, whole = work(make(400)), work(make(800))
    assert whole["pairs looked at"] > 0
    assert whole["costs of a node"] > 0
    for name, count in whole.items():
        assert count / 800 <= 1.3 * half[name] / 400 + 0.5, name
        assert count / 800 <= 40, name
