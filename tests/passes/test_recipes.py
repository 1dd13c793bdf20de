"""Recipes: which are legal for a kernel, which one is taken, and what an option that forces one does."""

from __future__ import annotations

from dataclasses import fields

import pytest

from minductor.ir.program.loops import loops
from minductor.ir.program.nodes import Kernel, NodeNote, Program
from minductor.options import OPTION_RULES, Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.inline.inline import inline
from minductor.passes.schedule import cpu_recipes, gpu_recipes
from minductor.passes.schedule.schedule import schedule
from minductor.target import Env, Machine, by_name
from tests.passes.sketch import Sketch


def softmax(rows: int, length: int) -> Program:
    s = Sketch()
    x = s.input(rows, length)
    shifted = s.op("exp", s.op("sub", x, s.reduce("max", x, 1)))
    return s.done(s.op("div", shifted, s.reduce("sum", shifted, 1)))


def sum_of_few(length: int) -> Program:
    s = Sketch()
    return s.done(s.reduce("sum", s.input(4096, length, 512), 1))


def tiled(program: Program, variant: str = "", target: str = "sm_90") -> tuple[Kernel, tuple[str, ...]]:
    """The program's only kernel after the stage, and the notes of the stage."""
    env = Env(Options(variant=variant), by_name(target))
    made = schedule(fuse(inline(program, env), env), env)
    (kernel,) = made.nodes
    assert isinstance(kernel, Kernel)
    return kernel, tuple(str(n) for n in made.notes if isinstance(n, NodeNote) and n.stage == "schedule")


def heads(kernel: Kernel) -> list[str]:
    assert kernel.schedule is not None
    return [f"{loop.kind} {loop.block}" for loop in loops(kernel.schedule.steps)]


def warps(kernel: Kernel) -> object:
    return next(choice.default for choice in kernel.choices if choice.id == "warps")


def test_the_option_names_every_recipe() -> None:
    kinds = (
        *(gpu_recipes.PRODUCTS, gpu_recipes.POINTWISE, gpu_recipes.REDUCTIONS, gpu_recipes.SCANS),
        *(cpu_recipes.POINTWISE, cpu_recipes.ROWS, cpu_recipes.COLUMNS, cpu_recipes.SCAN, cpu_recipes.SCATTER),
    )
    assert set(OPTION_RULES["variant"].allowed) == {"", *(recipe.name for kind in kinds for recipe in kind)}


@pytest.mark.parametrize("length", [8192, 16384])
def test_a_long_row_is_held_whole_where_that_is_cheaper(length: int) -> None:
    kernel, notes = tiled(softmax(8192, length))
    assert heads(kernel)[-1] == f"tile {length}"
    (note,) = notes
    assert note.split(": ")[1].startswith("persistent")
    assert "online" in note


def test_a_row_that_no_program_can_hold_is_walked() -> None:
    kernel, _ = tiled(softmax(512, 1 << 18))
    assert "serial" in heads(kernel)[-1]


def test_a_short_axis_that_is_not_contiguous_is_unrolled() -> None:
    kernel, _ = tiled(sum_of_few(4))
    assert heads(kernel)[-1] == "serial 1"


def test_a_long_axis_that_is_not_contiguous_is_not() -> None:
    _, notes = tiled(sum_of_few(128))
    assert notes == ()


@pytest.mark.parametrize(("name", "last", "count"), [("persistent8", "tile 8192", 8), ("looped", "serial 2048", 8)])
def test_a_recipe_can_be_forced(name: str, last: str, count: int) -> None:
    kernel, notes = tiled(softmax(8192, 8192), name)
    assert heads(kernel)[-1] == last
    assert warps(kernel) == count
    assert notes == ()


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_a_forced_recipe_that_is_not_legal_leaves_the_kernel_as_it_was(target: str) -> None:
    kernel, notes = tiled(softmax(8192, 8192), "unrolled", target)
    assert kernel == tiled(softmax(8192, 8192), "", target)[0]
    assert "the recipe unrolled is not legal here; legal are: " in notes[0]


def test_a_cpu_has_recipes_of_its_own() -> None:
    s = Sketch()
    program = s.done(s.reduce("sum", s.input(4, 1 << 16), 1))
    kinds = [heads(tiled(program, name, "cpu")[0])[0].split()[0] for name in ("", "rows", "rows_in_parts")]
    assert kinds == ["serial", "parallel", "serial"]


@pytest.mark.parametrize("name", [field.name for field in fields(Machine)])
def test_few_decisions_hang_on_one_number_of_the_machine(name: str) -> None:
    """With a number that is 15% off, a recipe is taken that costs at most a twentieth more."""
    from dataclasses import replace

    target = by_name("sm_90")
    changed = replace(target, machine=replace(target.machine, **{name: getattr(target.machine, name) * 1.15}))
    for program in (softmax(8192, 8192), softmax(65536, 1000), sum_of_few(4)):
        env, other = Env(Options(), target), Env(Options(), changed)
        fused = fuse(inline(program, env), env)
        prices = [_prices(schedule(fused, each)) for each in (env, other)]
        taken = next(iter(prices[1]))
        assert prices[0][taken] <= 1.05 * min(prices[0].values()), (name, prices)


def _prices(program: Program) -> dict[str, float]:
    (note,) = (note for note in program.notes if isinstance(note, NodeNote))
    return {name: float(price) for name, price, _ in (entry.split() for entry in note.text.split("; "))}
