"""Symbols are found wherever they stand: the one walk sees each field of each class.

Then what hangs on it: what defines a number that one size, call or returned view mentions is kept, and comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from minductor.analysis.dependencies import dependencies
from minductor.core.dtypes import F32, I64
from minductor.core.expressions.expr import lt, symbol
from minductor.ir.plan import plan
from minductor.ir.program import loops, memory_access, nodes
from minductor.ir.program.nodes import (
    Axis,
    Body,
    Combine,
    Extern,
    Input,
    Kernel,
    Masked,
    Op,
    Origin,
    Program,
    Ref,
    View,
    symbols_in,
)
from minductor.ir.program.parser import parse_program
from minductor.ir.program.signature import signature
from minductor.ir.program.size_sources import size_source
from minductor.passes.rewriting.prune import live_nodes
from tests.ir.programs import NUMBERS

PLANTED = symbol("u7", "size", 0, None)


def classes() -> Iterator[type]:
    for module in (nodes, plan, loops, memory_access):
        own = (c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)
        yield from (c for c in own if is_dataclass(c))


VALUES = {
    "alone": PLANTED,
    "in an expression": PLANTED * 2 + 1,
    "in a relation": lt(PLANTED, 3),
    "in tuples": (("x", PLANTED),),
    "in a class": nodes.Index(PLANTED),
}


@pytest.mark.parametrize("place", VALUES)
@pytest.mark.parametrize("cls", list(classes()), ids=lambda c: f"{c.__module__.rpartition('.')[2]}.{c.__name__}")
def test_each_field_of_each_class_is_seen(cls: type, place: str) -> None:
    for field in fields(cls):
        given: dict[str, Any] = {f.name: None for f in fields(cls)}
        assert symbols_in(cls(**given)) == ()
        assert symbols_in(cls(**{**given, field.name: VALUES[place]})) == (PLANTED,), field.name


def kernel(*ops: Op, axis: Any = 4) -> Kernel:
    i0 = symbol("i0", "axis", 0, 3)
    return Kernel("k0", (Axis(i0, axis + 0 * PLANTED),), Body(ops), (Origin("x", "y"),))


SUM = Body((Op("index", (), nodes.Index(PLANTED), I64, ()),), (0,))
PLACES = {
    "index": Op("index", (), nodes.Index(PLANTED), I64, ()),
    "load": Op("load", (), nodes.Load(Ref("a", 0), PLANTED), F32, ()),
    "store": Op("store", (0,), nodes.Store(Ref("a", 0), PLANTED), None, ()),
    "atomic": Op("atomic", (0,), nodes.Atomic(Ref("a", 0), PLANTED, "add"), None, ()),
    "check": Op("check", (0,), nodes.Check(symbol("v0", "value"), PLANTED, wrap=False), I64, ()),
    "masked": Op("masked", (0,), Masked(SUM, 0), I64, ()),
    "reduce": Op("reduce", (0,), nodes.Reduce(("i0",), Combine("own", (0,), SUM)), I64, ()),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_kernel_takes_the_sizes_that_it_mentions(place: str) -> None:
    assert signature(kernel(PLACES[place])).sizes == (PLANTED,)


def test_a_kernel_takes_the_sizes_of_its_axes_and_no_others() -> None:
    assert signature(kernel(axis=PLANTED)).sizes == (PLANTED,)
    assert signature(kernel()).sizes == ()


def used_only_by(how: str) -> Program:
    """`u0 = x.item()`, which one thing mentions."""
    program = parse_program(NUMBERS)
    item = program.nodes[0]
    assert isinstance(item, Extern)
    (u0,) = nodes.defined_symbols(item)
    whole = View(Ref("arg0", 0), F32, (symbol("s0", "size", 2),), (u0 * 0 + 1,), u0 * 0)
    window = replace(whole, size=(u0,))
    call = Extern("x9", "aten.neg.default", (window,), (), (replace(whole, ref=Ref("buf2", 0)),), (), "")
    outputs: dict[str, tuple[Any, ...]] = {
        "a returned view": (window,),
        "a returned number": (u0,),
        "a call's argument": (replace(whole, ref=Ref("buf2", 0)),),
        "a call's number": (replace(whole, ref=Ref("buf2", 0)),),
        "a kernel": (replace(window, ref=Ref("buf1", 0)),),
    }
    users = {
        "a call's argument": (call,),
        "a call's number": (replace(call, args=(whole, u0)),),
        "a kernel": (replace(kernel(PLACES["load"], PLACES["store"], axis=u0)),),
    }
    return replace(program, nodes=(item, *users.get(how, ())), outputs=outputs[how])


@pytest.mark.parametrize(
    "how", ["a returned view", "a returned number", "a call's argument", "a call's number", "a kernel"]
)
def test_the_producer_of_a_number_is_kept_and_comes_first(how: str) -> None:
    program = used_only_by(how)
    assert live_nodes(program)[0] is program.nodes[0]
    if len(program.nodes) > 1:
        assert [(e.kind, e.source, e.target) for e in dependencies(program)] == [("symbol", 0, 1)]


def test_a_number_that_nobody_mentions_is_not_read() -> None:
    program = used_only_by("a returned number")
    assert live_nodes(replace(program, outputs=())) == ()


def test_a_requirement_stays_between_what_it_asks_and_who_relies_on_it() -> None:
    program = parse_program(NUMBERS)
    found = {(e.source, e.target) for e in dependencies(program) if e.kind == "symbol"}
    item, require, define, _, _, multiply = range(6)
    assert {(item, require), (require, define), (require, multiply), (define, multiply)} <= found
    assert program.nodes[require] in live_nodes(program)


def test_where_a_size_tells_a_number() -> None:
    nonzero = parse_program(NUMBERS).nodes[4]
    assert isinstance(nonzero, Extern)
    assert size_source(nonzero, nonzero.defines[0]) == (0, 0, 2, 1)
    assert size_source(nonzero, symbol("u8", "size")) is None


def test_an_input_may_be_a_number() -> None:
    assert symbols_in(Input("n", PLANTED)) == (PLANTED,)
