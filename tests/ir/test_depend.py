"""Each kind of edge between nodes."""

from __future__ import annotations

from dataclasses import replace

from minductor.core.expr import symbol
from minductor.ir.depend import Edge, dependencies
from minductor.ir.nodes import Extern, Program, Ref
from tests.passes.sketch import Sketch, transpose


def edges(program: Program) -> list[tuple[str, int, int]]:
    return [(edge.kind, edge.source, edge.target) for edge in dependencies(program)]


def test_a_read_follows_the_write() -> None:
    s = Sketch()
    x = s.op("exp", s.input(3, 4))
    assert edges(s.done(s.op("neg", s.extern(x)))) == [("raw", 0, 1), ("raw", 1, 2)]


def test_a_write_follows_the_reads_of_what_it_overwrites_and_says_where() -> None:
    s = Sketch()
    x = s.input(4, 4)
    y = s.op("exp", transpose(x, 0, 1))
    (edge,) = dependencies(s.done(s.copy(x, s.input(4, 4)), y))
    assert (edge.kind, edge.source, edge.target, edge.ref) == ("war", 0, 1, Ref("arg0", 0))
    assert ([str(e) for e in edge.read], [str(e) for e in edge.written]) == (["i0 + 4*i1"], ["4*i0 + i1"])


def test_writes_of_one_storage_stay_in_order() -> None:
    s = Sketch()
    x = s.input(3, 4)
    assert edges(s.done(s.cat(0, x, x))) == [("waw", 0, 1)]


def test_effects_stay_in_order() -> None:
    s = Sketch()
    x = s.input(3, 4)
    program = s.done(s.extern(x), s.op("neg", x), s.extern(x))
    nodes = tuple(replace(node, effect=True) if isinstance(node, Extern) else node for node in program.nodes)
    assert edges(replace(program, nodes=nodes)) == [("effect", 0, 2)]


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
