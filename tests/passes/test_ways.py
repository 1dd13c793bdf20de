"""Which ways of a kernel become variants, by prices that the test makes up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minductor.core.expressions.expr import symbol
from minductor.ir.program.nodes import Kernel
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.ir.program.variants import variant_choice
from minductor.passes.rewriting.size_points import SizePoints
from minductor.passes.schedule.ways import MOST, NEAR, Notes, Way, by_measure, by_size

PROGRAM = parse_program(
    """program p
  input a: f32[8] stride [1] cpu
  buffer b: f32[8] stride [1] cpu
  kernel k0 (i0: 8) from x = aten.x
    %0 = load a@0[i0] : f32 {i0}
    %1 = store b@0[i0] %0 {i0}
  return (b@0 f32[8] stride [1] offset 0)
"""
)
(KERNEL,) = PROGRAM.nodes
SIZES = SizePoints((symbol("s0", "size", 1),), {})


def way(*names: str, price: tuple[float, ...] = (1.0,)) -> Way:
    """Kernels that differ in their names."""
    assert isinstance(KERNEL, Kernel)
    return Way(tuple(replace(KERNEL, name=name) for name in names), (), price)


def options(made: Way) -> tuple[object, ...]:
    (kernel,) = made.nodes
    assert isinstance(kernel, Kernel)
    return variant_choice(kernel).options if kernel.variants else (kernel.name,)


def measured(ways: dict[str, Way], usual: str, *, is_measured: bool = True) -> tuple[Way, Notes]:
    assert isinstance(KERNEL, Kernel)
    notes: Notes = []
    return by_measure(KERNEL, ways, usual, notes, is_measured=is_measured), notes


def test_near_ways_are_measured() -> None:
    made, notes = measured(
        {"a": way("a", price=(1.2,)), "b": way("b", price=(1.0,)), "c": way("c", price=(1.01 * NEAR,))}, "b"
    )
    assert options(made) == ("a", "b")
    assert [str(note) for note in notes] == [
        "k0: variant b of a, b, by measure (1200000 us a, 1000000 us b)",
    ]


def test_a_few_of_many_near_ways_are_measured() -> None:
    made, _ = measured({f"w{n}": way(f"w{n}", price=(2.0 - n / 100,)) for n in range(20)}, "w19")
    assert options(made) == tuple(f"w{n}" for n in range(20 - MOST, 20))


def test_what_is_taken_without_measuring_is_measured_whatever_its_price() -> None:
    many = {f"w{n}": way(f"w{n}") for n in range(MOST)}
    made, notes = measured({"dear": way("dear", price=(10 * NEAR,)), **many}, "dear")
    assert options(made) == ("dear", *many)[:MOST]
    (kernel,) = made.nodes
    assert isinstance(kernel, Kernel) and variant_choice(kernel).default == "dear"
    assert str(notes[0]).startswith("k0: variant dear of dear, w0")


def test_equal_ways_are_one() -> None:
    made, notes = measured({"a": way("same"), "b": way("same")}, "b")
    assert options(made) == ("same",) and not notes


def test_what_may_not_be_measured_is_the_default() -> None:
    made, notes = measured({"a": way("a", price=(1.2,)), "b": way("b")}, "b", is_measured=False)
    assert options(made) == ("b",) and not notes


def test_a_way_without_a_price_stands_first() -> None:
    made, _ = measured({"extern": way("call", price=()), "native": way("n")}, "extern")
    assert options(made) == ("extern", "native")
    (kernel,) = made.nodes
    assert isinstance(kernel, Kernel) and variant_choice(kernel).default == "extern"


def test_prices_for_other_numbers_of_sizes_are_compared() -> None:
    """A kernel that joins parts has no symbolic size, and so fewer prices."""
    whole, cut = way("whole", price=(1.0, 2.0, 3.0, 4.0)), way("a", "b", price=(1.1, 1.1))
    made, _ = measured({"whole": whole, "cut": cut}, "whole")
    assert options(made) == ("whole", "cut")


@pytest.mark.parametrize("is_one", [True, False])
def test_each_size_has_its_way(*, is_one: bool) -> None:
    assert isinstance(KERNEL, Kernel)
    few, many = {"a": way("a"), "b": way("b", price=(2.0,))}, {"a": way("a", price=(2.0,)), "b": way("b")}
    notes: Notes = []
    made = by_size(KERNEL, {(64,): few, (4096,): few if is_one else many}, SIZES, notes)
    assert options(made) == (("a",) if is_one else ("a", "b")) and len(notes) == (not is_one)


def test_cuts_that_differ_by_size_have_a_kernel_to_be_variants_of() -> None:
    assert isinstance(KERNEL, Kernel)
    ways = {
        (size,): {"whole": way("whole", price=(3.0,)), "cut": way(f"parts{size}", f"join{size}")} for size in (64, 4096)
    }
    made = by_size(KERNEL, ways, SIZES, [])
    (kernel,) = made.nodes
    assert isinstance(kernel, Kernel) and kernel.name == "whole"
    choice = variant_choice(kernel)
    assert [option for _, option in choice.by_size.points] == ["cut", "cut_at_4096"] if choice.by_size else False
    again = parse_program(print_program(replace(PROGRAM, nodes=(kernel,))))
    assert again.nodes == (kernel,)
