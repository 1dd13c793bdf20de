"""Hunts for a bug: random programs find it, shrinking makes it small, and `explain` says in which stage it is.

    python examples/hunt_a_bug.py --fault operands-turned

minductor is right, as far as its tests know. So the hunt first switches on a fault that is known: the table MUTANTS has
many plausible slips of a programmer, each a replacement in the text of one function. `--fault ""` hunts in the compiler
as it is; then the program ends with "no program is wrong".

The same three steps hunt in any backend of torch.compile: give `compiling` its name. `pytest --fuzz=30` does the first
two in a campaign of half an hour, which goes on where it was stopped. hypothesis draws the programs: install it.
"""

import argparse
import contextlib
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import minductor
from minductor.driver import Compiler
from minductor.runtime.store.store import Store
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
from pytest_plugin.random_programs.programs import Program
from pytest_plugin.random_programs.verdict import ProgramVerdict, judge, shrink_bad_program
from pytest_plugin.strategies import numbered, programs


def compiling(folder: Path) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that compiles functions into a store of its own: what the faulty compiler makes is found by nobody."""
    backend = Compiler(store=Store(folder))
    return lambda fn: torch.compile(fn, backend=backend, fullgraph=True)


def first_bad(first: int, count: int, compile_function: Any) -> tuple[int, Program, ProgramVerdict] | None:
    """The first program that is compiled wrongly, with its number and what is wrong; None if all are right."""
    strategy = programs(dtypes=("float32",), length=(3, 8))
    for number in range(first, first + count):
        program = numbered(number, strategy)  # the same program for the same number, on every machine
        found = judge(program, compile_function)
        print(f"program {number}: {found.word}, {len(program.nodes)} lines")
        if found.is_bad:
            return number, program, found
    return None


def moved_stage(program: Program) -> str:
    """The first stage of the compile whose numbers differ from eager's."""
    explained = minductor.explain(program.fn(), *program.arguments(), check=True)
    for line in str(explained).partition("-- check --")[2].strip().splitlines():
        print(f"  {line}")
    return explained.first_moved()


def hunt(given: argparse.Namespace, folder: Path) -> str:
    """Finds a bad program, shrinks it and looks for its stage. Returns the stage; "" if no program is wrong."""
    compile_function = compiling(folder)
    print("1. Random programs, each compared with eager and with float64")
    bad = first_bad(given.first, given.programs, compile_function)
    if bad is None:
        return ""
    number, program, found = bad
    print(f"\n2. Program {number}, as it was drawn:\n{program.text}\n\n   {found.why.splitlines()[0]}\n")
    small, why = shrink_bad_program(program, compile_function, most=given.trials)
    print(f"   and what is left of it:\n{small.setup}\n{small.text}\n\n   {why.why.splitlines()[0]}\n")
    if given.script:
        given.script.write_text(small.script(why=why.why), encoding="utf-8")
        print(f"   {given.script} shows it without pytest and without this program\n")
    print("3. The numbers after each stage, compared with eager")
    return moved_stage(small)


def main() -> None:
    parser = argparse.ArgumentParser(description="Hunts for a bug in a compiler.")
    parser.add_argument("--fault", default="operands-turned", help="the name of a mutant; empty: none")
    parser.add_argument("--programs", type=int, default=50, help="how many random programs to try")
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--trials", type=int, default=100, help="how many smaller programs to try")
    parser.add_argument("--script", type=Path, help="the file for a script that shows the bug")
    given = parser.parse_args()

    faults = {mutant.name: mutant for mutant in MUTANTS}
    if given.fault and given.fault not in faults:
        raise SystemExit(f"no fault is called {given.fault!r}; there are {', '.join(faults)}")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if given.fault:
            stack.enter_context(mutated(faults[given.fault]))
        stage = hunt(given, Path(folder))
    if not stage:
        print("\nno program is wrong, or no stage's numbers moved")
        return
    print(f"\nThe first stage that moved: {stage}")
    if given.fault:
        fault = faults[given.fault]
        print(f"The fault was in {fault.module}.{fault.function}:\n  {fault.old}   became   {fault.new}")


if __name__ == "__main__":
    main()
