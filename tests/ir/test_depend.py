"""Each kind of edge between nodes."""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from minductor.analysis.dependencies import Edge, dependencies, neighbours
from minductor.core.expressions.expr import symbol
from minductor.ir.program.nodes import Extern, Node, Program, Ref, reads, writes
from minductor.runtime.reference.reference import run_program
from tests.passes.sketch import Sketch, transpose


def edges(program: Program) -> list[tuple[str, int, int]]:
    return [(edge.kind, edge.source, edge.target) for edge in dependencies(program)]


def test_a_read_follows_the_write() -> None:
    s = Sketch()
    x = s.op("exp", s.input(3, 4))
    program = s.done(s.op("neg", s.extern(x)))
    assert edges(program) == [("raw", 0, 1), ("raw", 1, 2)]
    assert all(
        (edge.source_indices, edge.target_indices) == ((), ()) for edge in dependencies(program)
    )  # a call may touch all of it


def test_a_read_of_kernels_says_where() -> None:
    s = Sketch()
    x = s.op("exp", s.input(4, 4))
    (edge,) = dependencies(s.done(s.op("add", x, transpose(x, 0, 1))))
    assert (edge.kind, edge.source, edge.target, edge.ref) == ("raw", 0, 1, x.ref)
    assert ([str(e) for e in edge.source_indices], [str(e) for e in edge.target_indices]) == (
        ["4*i0 + i1"],
        ["4*i0 + i1", "i0 + 4*i1"],
    )


def test_a_write_follows_the_reads_of_what_it_overwrites_and_says_where() -> None:
    s = Sketch()
    x = s.input(4, 4)
    y = s.op("exp", transpose(x, 0, 1))
    (edge,) = dependencies(s.done(s.copy(x, s.input(4, 4)), y))
    assert (edge.kind, edge.source, edge.target, edge.ref) == ("war", 0, 1, Ref("arg0", 0))
    assert ([str(e) for e in edge.source_indices], [str(e) for e in edge.target_indices]) == (
        ["i0 + 4*i1"],
        ["4*i0 + i1"],
    )


def test_writes_of_one_storage_stay_in_order() -> None:
    s = Sketch()
    x = s.input(3, 4)
    program = s.done(s.cat(0, x, x))
    assert edges(program) == [("waw", 0, 1)]
    (edge,) = dependencies(program)
    assert edge.ref == Ref("buf1", 1)
    assert ([str(e) for e in edge.source_indices], [str(e) for e in edge.target_indices]) == (
        ["4*i0 + i1"],
        ["4*i0 + i1 + 12"],
    )


def test_effects_stay_in_order() -> None:
    s = Sketch()
    x = s.input(3, 4)
    program = s.done(s.extern(x), s.op("neg", x), s.extern(x))
    nodes = tuple(replace(node, effect=True) if isinstance(node, Extern) else node for node in program.nodes)
    assert edges(replace(program, nodes=nodes)) == [("effect", 0, 2)]


def test_an_order_that_was_asked_for_is_an_edge_and_no_use() -> None:
    s = Sketch()
    x = s.input(3, 4)
    program = s.done(s.op("neg", x), s.extern(x))
    first, second = program.nodes
    assert isinstance(second, Extern)
    ordered = replace(program, nodes=(first, replace(second, after=writes(first))))
    assert dependencies(ordered) == (Edge("control", 0, 1, Ref("buf1", 0)),)
    assert Ref("buf1", 0) not in reads(ordered.nodes[1])


def test_a_size_follows_what_finds_it() -> None:
    s = Sketch()
    x = s.input(3, 4)
    program = s.done(s.extern(x), s.op("neg", x))
    size = symbol("u0", "size", 0)
    first, second = program.nodes
    assert isinstance(first, Extern)
    first = replace(first, results=(size,))
    grown = replace(second, axes=tuple(replace(axis, extent=size) for axis in second.axes))  # pyright: ignore
    assert dependencies(replace(program, nodes=(first, grown))) == (Edge("symbol", 0, 1),)


# --- any order that the edges allow ---------------------------------------------------------------------------------


def written_over() -> Program:
    """Reads before and after several writes of an input, and slices of one storage."""
    s = Sketch()
    x, y = s.input(4, 4), s.input(4, 4)
    before = s.op("exp", transpose(x, 0, 1))
    first = s.copy(x, y)
    between = s.op("neg", first)
    second = s.copy(first, before)
    return s.done(s.cat(0, between, y), s.op("add", second, y), before)


def any_order(program: Program, rng: random.Random) -> Program:
    before, _ = neighbours(len(program.nodes), dependencies(program))
    left, found = list(range(len(program.nodes))), list[int]()
    while left:
        ready = [n for n in left if before[n] <= set(found)]
        found.append(rng.choice(ready))
        left.remove(found[-1])
    return replace(program, nodes=tuple(program.nodes[n] for n in found))


def stale_reads(program: Program) -> list[Ref]:
    """Versions read after the next one was made: their memory holds other values by then."""
    newest: dict[str, int] = {}
    stale: list[Ref] = []
    for node in program.nodes:
        stale += [ref for ref in reads(node) if newest.get(ref.storage, 0) > ref.version]
        for ref in writes(node):
            newest[ref.storage] = max(newest.get(ref.storage, 0), ref.version)
    return stale


def test_any_order_that_the_edges_allow_gives_the_same() -> None:
    program = written_over()
    tensors = [torch.arange(16.0).reshape(4, 4).mul(0.3 + n).sin() for n in range(2)]
    expected_inputs = [t.clone() for t in tensors]
    expected = run_program(program, expected_inputs)
    orders: set[tuple[Node, ...]] = set()
    for seed in range(40):
        other = any_order(program, random.Random(seed))
        orders.add(other.nodes)
        assert stale_reads(other) == []
        inputs = [t.clone() for t in tensors]
        for got, want in zip([*run_program(other, inputs), *inputs], [*expected, *expected_inputs], strict=True):
            assert torch.equal(got, want)
    assert len(orders) > 3


def test_without_the_edges_some_order_reads_what_was_overwritten() -> None:
    program = written_over()
    assert stale_reads(replace(program, nodes=tuple(reversed(program.nodes))))
