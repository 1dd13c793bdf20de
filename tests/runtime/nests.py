"""Scheduled programs that are run twice, by their bodies and by their loop nests, with integers in place of floats.

Takes a Program that only needs loops, and an Env. Gives nothing. Refuses a nest that gives other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from minductor.core.expressions.expr import integer
from minductor.ir.program.nodes import Input, Kernel, Program, Ref, View
from minductor.ir.program.printer import print_program
from minductor.options import RECIPES, Options
from minductor.passes.bundle.bundle import bundle
from minductor.passes.fuse.fuse import fuse
from minductor.passes.loop_order.loop_order import loop_order
from minductor.passes.split.split import split
from minductor.runtime.reference.nest_reference import run_nests
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, Target, by_name
from tests.frontend.tracing import lowered
from tests.rows import inline, schedule
from tests.runtime.integers import as_integer_tensors, as_integers

SM_90 = by_name("sm_90")
# A GPU whose tiles hold little, so that small kernels have several blocks along each axis.
SMALL = replace(SM_90, max_tile_values=64, max_persistent_row=8, looped_block=16, columns_per_block=4)
TARGETS = {"cpu": by_name("cpu"), "sm_90": SM_90, "small": SMALL}


def schedules(program: Program, target: Target) -> Iterator[tuple[str, Program]]:
    """The different schedules that the recipes make, each by the name of a recipe; "" for the model's choice."""
    found: list[Program] = []
    for variant in reversed(("", *RECIPES)):
        env = Env(Options(variant=variant), target)
        made = schedule(program, env)
        refused = [note for note in made.notes if "is not legal here" in str(note)]
        if made not in found and len(refused) < len(kernels(program)):
            found.append(made)
            yield variant, bundle(made, env)


def assert_same(program: Program, given: Sequence[Any], target: Target, before: Program | None = None) -> None:
    """Runs a scheduled program by its bodies and by its nests: both give the same outputs and leave the same inputs.

    `before`: the program without loops, whose outputs are the same too. A softmax in one walk, or with one division a
    row, is not compared with it, since it is another function of integers.
    """
    made = as_integers(program)
    if any(word in print_program(program) for word in ("online_softmax", " fma")):
        before = None
    tensors = iter(as_integer_tensors([value for value in given if isinstance(value, Tensor)]))
    numbers = [next(tensors) if isinstance(value, Tensor) else value for value in given]
    first, second = ([n.clone() if isinstance(n, Tensor) else n for n in numbers] for _ in range(2))
    wanted = run_program(made if before is None else as_integers(before), first)
    found = run_nests(made, second, target=target)
    for number, (a, b) in enumerate(zip([*wanted, *first], [*found, *second], strict=True)):
        assert not isinstance(a, Tensor) or torch.equal(a, b), (number, *kernels(program))


def assert_nests(fn: Callable[..., Any], *given: Any, target: str, **options: Any) -> None:
    """Runs the loop nests of a function of tensors, as compiled for a target with options."""
    env = Env(Options(**options), by_name(target))
    for program in lowered(fn, *given, env=env).programs:
        for stage in (inline, fuse, loop_order, split, schedule, bundle):
            program = stage(program, env)
        assert_same(program, given, env.target)


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def with_ends(program: Program) -> Program:
    """A program whose inputs are its input buffers, and whose outputs are the others."""
    outputs = [b for b in program.buffers if b.kind == "local"]
    return replace(
        program,
        inputs=tuple(Input(b.name) for b in program.buffers if b.kind == "input"),
        outputs=tuple(View(Ref(b.name, 0), b.dtype, b.size, b.stride, integer(0)) for b in outputs),
    )


def arguments(program: Program, sizes: Mapping[str, int], tensors: Mapping[str, Tensor]) -> list[Any]:
    """What the inputs of a program are, by name."""
    return [tensors[i.name] if i.symbol is None else sizes[i.name] for i in program.inputs]
