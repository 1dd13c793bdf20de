"""Recipes: which are legal for a kernel, which one is taken, and what an option that forces one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import pytest

from minductor.core.dtypes import BF16, F16, F32, F64, I8, I64, DType
from minductor.ir.program.build import Builder
from minductor.ir.program.loops import loops, parse_schedule
from minductor.ir.program.nodes import Kernel, NodeNote, Program, Store, View
from minductor.ir.program.variant_note import VariantNote
from minductor.options import RECIPES, Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.schedule import cpu_recipes, gpu_recipes
from minductor.passes.schedule.draft import Draft, Recipe
from minductor.target import Env, Machine, by_name
from tests.codegen.cases import transposed_of
from tests.passes.sketch import Sketch, transpose
from tests.passes.step_cases import centred_columns_of_two_transposed, softmax_of_channels
from tests.rows import inline, schedule


def softmax(rows: int, length: int) -> Program:
    return softmaxes((rows, length, F32))


def softmaxes(*inputs: tuple[int, int, DType]) -> Program:
    """The softmax of each of several inputs, which are given by their rows, the length of a row, and a dtype."""
    s = Sketch()
    results: list[View] = []
    for rows, length, dtype in inputs:
        x = s.input(rows, length, dtype=dtype)
        shifted = s.op("exp", s.op("sub", x, s.reduce("max", x, 1)))
        results.append(s.op("div", shifted, s.reduce("sum", shifted, 1)))
    return s.done(*results)


def sum_of_few(length: int) -> Program:
    s = Sketch()
    return s.done(s.reduce("sum", s.input(4096, length, 512), 1))


def tiled(program: Program, variant: str = "", target: str = "sm_90") -> tuple[Kernel, tuple[str, ...]]:
    """The program's only kernel after the stage, and the notes of the stage."""
    env = Env(Options(variant=variant), by_name(target))
    made = schedule(fuse(inline(program, env), env), env)
    (kernel,) = made.nodes
    assert isinstance(kernel, Kernel)
    return kernel, tuple(str(n) for n in made.notes if isinstance(n, NodeNote | VariantNote) and n.stage == "schedule")


def heads(kernel: Kernel) -> list[str]:
    assert kernel.schedule is not None
    return [f"{loop.kind} {loop.block}" for loop in loops(kernel.schedule.steps)]


def warps(kernel: Kernel) -> object:
    return next(choice.default for choice in kernel.choices if choice.id == "warps")


def test_the_option_names_every_recipe() -> None:
    kinds = (
        *(gpu_recipes.ALL, gpu_recipes.SCANS),
        *(cpu_recipes.POINTWISE, cpu_recipes.ROWS, cpu_recipes.COLUMNS, cpu_recipes.SCAN, cpu_recipes.SCATTER),
    )
    assert set(RECIPES) == {recipe.name for kind in kinds for recipe in kind}


@pytest.mark.parametrize("length", [8192, 16384])
def test_a_long_row_is_held_whole_where_that_is_cheaper(length: int) -> None:
    kernel, notes = tiled(softmax(8192, length))
    assert heads(kernel)[-1] == f"tile {length}"
    (note,) = notes
    assert note.split(": ")[1].startswith("variant persistent")
    assert "online" in note


def test_a_row_that_no_program_can_hold_is_walked() -> None:
    kernel, _ = tiled(softmax(512, 1 << 18))
    assert "serial" in heads(kernel)[-1]


def test_a_short_axis_that_is_not_contiguous_is_unrolled() -> None:
    kernel, _ = tiled(sum_of_few(4))
    assert heads(kernel)[-1] == "serial 1"


def test_a_long_axis_that_is_not_contiguous_is_not() -> None:
    _, notes = tiled(sum_of_few(128))
    assert "unrolled" not in "".join(notes)


@pytest.mark.parametrize(("name", "last", "count"), [("persistent8", "tile 8192", 8), ("looped", "serial 2048", 8)])
def test_a_recipe_can_be_forced(name: str, last: str, count: int) -> None:
    kernel, notes = tiled(softmax(8192, 8192), name)
    assert heads(kernel)[-1] == last
    assert warps(kernel) == count
    assert notes == (f"k0: variant {name}, by option",)


@pytest.mark.parametrize(
    ("name", "length", "limit"),
    [
        ("persistent8", 8192, 128),  # two programs of 256 threads share the registers of a multiprocessor
        ("persistent16", 8192, 64),
        ("persistent16", 32768, None),  # 64 values of a row and the rest do not fit 64 registers
        ("persistent4", 8192, None),  # two programs fit whatever the compiler does
    ],
)
def test_registers_are_limited_where_two_programs_then_run_at_once(name: str, length: int, limit: int | None) -> None:
    kernel, _ = tiled(softmax(8192, length), name)
    assert next((choice.default for choice in kernel.choices if choice.id == "registers"), None) == limit


def test_a_gpu_of_another_maker_has_no_limit_of_registers() -> None:
    kernel, _ = tiled(softmax(8192, 8192), "persistent8", "gfx942")
    assert all(choice.id != "registers" for choice in kernel.choices)


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_a_forced_recipe_that_is_not_legal_leaves_the_kernel_as_it_was(target: str) -> None:
    kernel, notes = tiled(softmax(8192, 8192), "unrolled", target)
    assert kernel == tiled(softmax(8192, 8192), "", target)[0]
    assert "the variant unrolled is not legal here; legal are: " in notes[0]


def test_a_cpu_has_recipes_of_its_own() -> None:
    s = Sketch()
    program = s.done(s.reduce("sum", s.input(2, 1 << 20), 1))
    kinds = [heads(tiled(program, name, "cpu")[0])[0].split()[0] for name in ("", "rows", "rows_in_parts")]
    assert kinds == ["serial", "parallel", "serial"]


@pytest.mark.parametrize(
    ("rows", "length", "is_beside"),
    [
        (4096, 7, True),
        (4096, 12, True),
        (4096, 41, False),  # too long
        (8, 32, False),  # too few
    ],
)
def test_short_rows_of_a_cpu_are_the_lanes_of_vectors(rows: int, length: int, is_beside: bool) -> None:
    kernel, _ = tiled(softmax(rows, length), "", "cpu")
    assert ("parallel 16" in heads(kernel)) == is_beside
    assert kernel.schedule is not None
    wholes = {loop.is_whole for loop in loops(kernel.schedule.steps) if loop.kind == "vector"}
    assert wholes == {False}  # 4096 rows are whole blocks
    assert is_beside == any(loop.kind == "serial" and loop.lanes for loop in loops(kernel.schedule.steps))


def test_rows_that_do_not_fill_blocks_are_computed_as_if_they_did() -> None:
    kernel, _ = tiled(softmax(1001, 31), "", "cpu")
    assert kernel.schedule is not None
    assert {loop.is_whole for loop in loops(kernel.schedule.steps) if loop.kind == "vector"} == {True}
    assert parse_schedule(str(kernel.schedule)) == kernel.schedule


def remainders(s: Sketch) -> View:
    def remainder(b: Builder, value: int) -> int:
        return b.cast(b.op("mod", b.cast(value, I64), b.constant(3, I64)), F32)

    return s.pointwise(remainder, s.input(1000, 29))


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.pad(s.input(1000, 27), 1),
        lambda s: s.gather(s.input(500, 32), s.input(1000)),
        remainders,
    ],
)
def test_rows_that_cannot_be_transposed_stay_by_themselves(make: Callable[[Sketch], View]) -> None:
    """Rows that do not exist would be read under a mask or at a loaded place, or divide by 0."""
    s = Sketch()
    rows = make(s)
    shifted = s.op("sub", rows, s.reduce("max", rows, 1))
    kernel, notes = tiled(s.done(s.reduce("sum", s.op("exp", shifted), 1)), "side_by_side", "cpu")
    assert "the variant side_by_side is not legal here" in notes[0]
    assert kernel.schedule is not None
    assert not any(loop.is_whole for loop in loops(kernel.schedule.steps))


@pytest.mark.parametrize(("name", "dtype"), [("mul", F32), ("floordiv", I64)])
def test_columns_that_do_not_fill_transposed_blocks_divide_by_no_rest_of_a_block(name: str, dtype: DType) -> None:
    program = centred_columns_of_two_transposed(150, 93, name, dtype).program()
    kernel, _ = tiled(program, "transposed_columns", "cpu")
    assert kernel.schedule is not None
    assert any(loop.is_whole for loop in loops(kernel.schedule.steps)) == (dtype == F32)


@pytest.mark.parametrize(("dtype", "side"), [(F32, 64), (F64, 64), (I8, 128)])
def test_the_side_of_a_transposed_block_is_several_cache_lines(dtype: DType, side: int) -> None:
    assert heads(tiled(transposed_of(dtype).program(), "transposed", "cpu")[0])[0] == f"parallel {side}"


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_transposed_stores_are_staged_also_where_they_round(dtype: DType) -> None:
    kernel, _ = tiled(softmax_of_channels(last=True, dtype=dtype).program(), "transposed_columns", "cpu")
    assert kernel.schedule is not None
    (store,) = (p for p, op in enumerate(kernel.body.ops) if isinstance(op.attrs, Store) and len(op.axes) == 3)
    assert kernel.body.ops[store].args[0] in kernel.schedule.kept_rows


def test_blocks_are_smaller_where_many_loads_are_transposed() -> None:
    s = Sketch()
    total = s.input(100, 100)
    for _ in range(17):
        total = s.op("add", s.op("add", total, s.input(100, 100)), transpose(s.input(100, 100), 0, 1))
    assert heads(tiled(s.done(total), "transposed", "cpu")[0])[0] == "parallel 32"


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_kernels_that_differ_in_names_only_are_drafted_once(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets the schedule that it gets alone, and a note of its own."""
    recipes, env = gpu_recipes if target == "sm_90" else cpu_recipes, Env(Options(), by_name(target))
    inputs = [(4096, 4096, F32), (4096, 4096, F32), (4096, 4096, BF16), (4096, 1000, F32), (4096, 4096, F32)]
    alone = [tiled(softmaxes(each), target=target) for each in inputs]
    asked: list[str] = []
    kept = recipes.legal_drafts

    def spied(given: Sequence[Recipe], apply: Callable[[Recipe], Draft | None], only: str) -> dict[str, Draft]:
        asked.append(only)
        return kept(given, apply, only)

    monkeypatch.setattr(recipes, "legal_drafts", spied)
    made = schedule(fuse(inline(softmaxes(*inputs), env), env), env)
    kernels = [node for node in made.nodes if isinstance(node, Kernel)]
    assert [(k.schedule, k.choices) for k in kernels] == [(k.schedule, k.choices) for k, _ in alone]
    notes = [n for n in made.notes if isinstance(n, NodeNote | VariantNote) and n.stage == "schedule"]
    texts = [text.partition(":") for _, each in alone for text in each]
    named = [kernel.name for kernel, (_, each) in zip(kernels, alone, strict=True) for _ in each]
    assert [str(n) for n in notes] == ["".join((name, *text[1:])) for name, text in zip(named, texts, strict=True)]
    first = kernels[0].schedule
    assert first is not None and asked == ["", first.recipe, "", "", first.recipe]


def test_a_gpu_that_states_no_machine_is_priced_as_another_and_a_note_says_so() -> None:
    program, target = softmax(8192, 8192), by_name("sm_90")
    texts = [
        [note.figures for note in schedule(program, Env(Options(), each)).notes if isinstance(note, VariantNote)]
        for each in (target, replace(target, machine=None))
    ]
    assert [f"{text}; as on an H200, since the target states no numbers of its machine" for text in texts[0]] == texts[
        1
    ]


@pytest.mark.parametrize("name", [field.name for field in fields(Machine)])
def test_few_decisions_hang_on_one_number_of_the_machine(name: str) -> None:
    """With a number that is 15% off, a recipe is taken that costs at most a twentieth more."""
    target = by_name("sm_90")
    assert target.machine is not None
    changed = replace(target, machine=replace(target.machine, **{name: getattr(target.machine, name) * 1.15}))
    for program in (softmax(8192, 8192), softmax(65536, 1000), sum_of_few(4)):
        env, other = Env(Options(), target), Env(Options(), changed)
        fused = fuse(inline(program, env), env)
        prices = [_prices(schedule(fused, each)) for each in (env, other)]
        taken = next(iter(prices[1]))
        assert prices[0][taken] <= 1.05 * min(prices[0].values()), (name, prices)


def _prices(program: Program) -> dict[str, float]:
    (note,) = (note for note in program.notes if isinstance(note, VariantNote))
    return {name: float(price) for name, price, _ in (entry.split() for entry in note.figures.split("; "))}
