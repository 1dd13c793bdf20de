"""Every step that chooses loops: what it refuses, that its nests are right, and that faults of its code are noticed.

Takes the tables in `step_cases.py` and `step_faults.py`. Refuses a recipe or a step that the tables lack, so that a new
one brings its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest
import torch

from minductor.analysis.blocks import block_limits
from minductor.ir.program.dots import find_dots
from minductor.ir.program.nodes import Kernel, Program
from minductor.options import Options
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.schedule import cpu_place, cpu_recipes, draft, gpu_place, gpu_recipes
from minductor.passes.schedule.draft import Draft, Recipe, blank
from minductor.passes.schedule.ordered_axes import ordered_axes
from minductor.runtime.reference.nest_reference import run_nests
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from pytest_plugin.adapters import Mutant
from pytest_plugin.faults.mutants import mutated
from tests.codegen.cases import SIZES
from tests.passes.step_cases import REFUSALS, RUNS, Refusal, Run
from tests.passes.step_faults import FAULTS, Fault
from tests.rows import schedule
from tests.runtime.nests import arguments, assert_same, kernels

CPU = (cpu_recipes.POINTWISE, cpu_recipes.ROWS, cpu_recipes.COLUMNS, cpu_recipes.SCAN, cpu_recipes.SCATTER)
RECIPES = {
    **{("cpu", recipe.name): recipe for kind in CPU for recipe in kind},
    **{("sm_90", recipe.name): recipe for recipe in (*gpu_recipes.ALL, *gpu_recipes.SCANS)},
}


def name_of(step: Any) -> str:
    """The name of a step: of a function, or of the class of a step with parameters."""
    return step.__name__ if isinstance(step, FunctionType) else type(step).__name__


def function_of(step: Any) -> Any:
    """The function that a step runs."""
    return step if isinstance(step, FunctionType) else type(step).__call__


def placing_steps() -> dict[str, FunctionType]:
    """By name each step that is no part of a recipe: it edits each kernel before its draft, or each nest behind it."""
    found: dict[str, FunctionType] = {}
    apart = {draft.__name__, ordered_axes.__module__}  # what looks at a kernel is no step
    for caller in (cpu_place.placed, cpu_recipes.drafts, gpu_recipes.drafts):
        for name in caller.__code__.co_names:
            step = caller.__globals__.get(name)
            if isinstance(step, FunctionType) and step.__module__.startswith("minductor.passes.schedule."):
                found |= {} if step.__module__ in (caller.__module__, *apart) else {name: step}
    return found


PLACING = placing_steps()
STEPS: dict[str, Any] = {name_of(step): step for recipe in RECIPES.values() for step in recipe.steps} | PLACING


def steps_of(run: Run) -> set[str]:
    """The steps of a run's recipe, and its step that is no part of it."""
    return {run.step, *map(name_of, RECIPES[run.target, run.recipe].steps)}


# --- the checks


def assert_refused(row: Refusal) -> None:
    """The step refuses the kernel. A step that is no part of a recipe leaves the kernel or its nest as it is."""
    if row.step in PLACING:
        with changes(row.step) as changed:
            scheduled(row.build().program(), row.target, row.recipe)
        assert changed and not any(changed)
        return
    steps = RECIPES["cpu" if row.target == "cpu" else "sm_90", row.recipe].steps
    number = [name_of(step) for step in steps].index(row.step)
    before = Recipe(row.recipe, steps[:number]).apply(begun(row.build().program(), row.target))
    assert before is not None, "a step before it refuses the kernel"
    assert steps[number](before) is None


def begun(program: Program, target: str) -> Draft:
    """The draft of a program's only kernel before any step."""
    (kernel,) = kernels(program)
    kernel, table = merge_kernel_axes(kernel), program.real_table()
    boxes = tuple(block_limits(kernel.body, kernel.axes))
    start = blank(kernel, table, by_name(target), program.hints)
    return start._replace(ordered=ordered_axes(kernel, table), dots=find_dots(kernel), boxes=boxes)


@contextmanager
def changes(name: str) -> Iterator[list[bool]]:
    """Notes of each call of a step that is no part of a recipe whether it changes what it is given."""
    step, found = PLACING[name], list[bool]()

    def noted(given: Any, *others: Any) -> Any:
        made = step(given, *others)
        before = list(given.levels) if isinstance(given, Draft) else given
        found.append(made is not None and made != before)
        return made

    with pytest.MonkeyPatch.context() as patch:
        for module in (cpu_place, cpu_recipes, gpu_recipes):
            patch.setattr(module, name, noted, raising=False)
        yield found


def scheduled(program: Program, target: str, recipe: str) -> Program:
    """The program with the loops of a recipe, which must be legal."""
    made = schedule(program, Env(Options(variant=recipe), by_name(target)))
    (kernel,) = kernels(made)
    assert kernel.schedule is not None and kernel.schedule.recipe == recipe, "the recipe is not legal"
    return made


def nests(program: Program, target: str) -> dict[str, Kernel]:
    """By legal recipe a program's only kernel with its loops, which do not name the recipe."""
    env, table = Env(Options(), by_name(target)), program.real_table()
    (kernel,) = map(merge_kernel_axes, kernels(program))
    if env.target.is_gpu:
        drafts = gpu_recipes.drafts(kernel, table, env, program.hints)
        made = {name: gpu_place.place(each) for name, each in drafts.items()}
    else:
        drafts = cpu_recipes.drafts(kernel, table, env.target, program.hints)
        made = {name: cpu_place.place(each) for name, each in drafts.items()}
    named = [(name, each, each.schedule) for name, each in made.items() if each.schedule is not None]
    return {name: replace(each, schedule=replace(nest, recipe="")) for name, each, nest in named}


def assert_right(run: Run) -> None:
    """The nest of a recipe gives the numbers of the kernel, and is not that of another recipe.

    The run's step that is no part of the recipe changes something.
    """
    built = run.build()
    program = built.program()
    with changes(run.step) if run.step else nullcontext([True]) as changed:
        made = scheduled(program, run.target, run.recipe)
    assert any(changed), "the step changes nothing"
    given, target = arguments(program, SIZES, built.tensors), by_name(run.target)
    (before,), (after,) = kernels(program), kernels(made)
    others = nests(program, run.target)
    assert [name for name in others if others[name] == others[run.recipe]] == [run.recipe]
    is_same = merge_kernel_axes(before).body == after.body
    assert_same(made, given, target, program if is_same else None)
    if not is_same:  # another function of integers, and nearly the same one of floats
        pairs = zip(run_nests(made, given, target=target), run_program(program, given), strict=True)
        for found, wanted in pairs:
            torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-5)


@contextmanager
def faulty(fault: Fault) -> Iterator[None]:
    """Gives the step its fault in the context."""
    function = function_of(STEPS[fault.step])
    module, name = function.__module__, function.__qualname__
    if fault.where:
        file, name = fault.where.split(":")
        package = module.rpartition(".")[0] if "." not in file else "minductor.passes"
        module = f"{package}.{file}"
    with mutated(Mutant(fault.step, module, name, fault.old, fault.new)) as was_reached:
        yield
    assert was_reached(), "no kernel of the step reaches the fault"


def is_wrong(check: Callable[[Any], None], row: Run | Refusal) -> bool:
    """Whether a check of a row fails, by an assertion or by an error of the faulty code."""
    try:
        check(row)
    except Exception:
        return True
    return False


# --- the tests


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(filter(None, run[:2] + run[3:])))
def test_the_nest_of_each_recipe_is_right(run: Run) -> None:
    assert_right(run)


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: f"{row.step}: {row.reason}")
def test_a_step_refuses(row: Refusal) -> None:
    assert_refused(row)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.step}: {fault.old.strip()}")
def test_a_fault_of_a_step_is_noticed(fault: Fault) -> None:
    with faulty(fault):
        if fault.by == "nest":
            runs = [run for run in RUNS if fault.step in steps_of(run)]
            assert any(is_wrong(assert_right, run) for run in runs)
        else:
            assert any(is_wrong(assert_refused, row) for row in REFUSALS if row.step == fault.step)


def test_every_recipe_and_every_step_has_its_rows() -> None:
    assert {(run.target, run.recipe) for run in RUNS} == RECIPES.keys()
    refusing = {name for name, step in STEPS.items() if may_refuse(step)}
    assert refusing <= {row.step for row in REFUSALS} <= STEPS.keys()
    assert {fault.step for fault in FAULTS if fault.by == "nest"} == STEPS.keys()
    assert refusing <= {fault.step for fault in FAULTS if fault.by == "refusal"} <= STEPS.keys()


def may_refuse(step: Any) -> bool:
    """Whether a step gives None for some kernels, as its annotation says."""
    return str(function_of(step).__annotations__["return"]).endswith("| None")
