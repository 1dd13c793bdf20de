"""The oracle of random programs: decides whether a compiled program is as good as eager.

Takes a Program and a function that compiles functions. Gives a ProgramVerdict. `assert_like_eager` refuses a program
that is wrong or fails by raising WrongResult, with a script that shows the same difference.

`check_accuracy` compares values with eager and with the float64 truth. Dtypes, shapes, strides, the contents of the
arguments afterwards, gradients and shared storage must be those of eager. Two kinds of programs are not counted as
wrong. An *unstable* program amplifies rounding: eager itself gives results that far apart if each rounded result is
moved by its own error (noise.py). A *tracer* program differs from eager without any compiler, by torch.compile's
backend "aot_eager" alone; its results are then compared with those of "aot_eager".
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from pytest_plugin.oracle import reference_runs
from pytest_plugin.oracle.accuracy import DEFAULT_POLICY, Policy, WrongResult, check_accuracy
from pytest_plugin.oracle.exact_sums import exact_sums
from pytest_plugin.random_programs.noise import Leaves, explains, noisy_runs
from pytest_plugin.random_programs.programs import Program, shrink

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Word = Literal["right", "wrong", "error", "unstable", "tracer", "refused"]
BAD: tuple[Word, ...] = ("wrong", "error")
BATCH = 24  # noisy runs at a time


@dataclass(frozen=True, slots=True)
class ProgramVerdict:
    """What became of one program.

    Attributes:
        word: right; wrong; error (the compiled program raised); unstable; tracer; or refused (eager does not run it).
        why: The differences or the error, as text; empty for right.
    """

    word: Word
    why: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether the compiler is to blame: the word is wrong or error."""
        return self.word in BAD


def judge(program: Program, compile_function: Compile, *, reference: Compile | None = None) -> ProgramVerdict:
    """Judges a program and, if it is scalable, the same compiled function on two other sizes too.

    Args:
        program: The program. It is run several times.
        compile_function: Compiles a function, which it may do lazily.
        reference: Compiles as torch's tracer alone does; unless given, torch.compile with the backend "aot_eager".

    Returns:
        The verdict of the first sizes that are not right, or else the last one.
    """
    import torch

    torch.compiler.reset()
    compiled = compile_function(program.fn())
    found = ProgramVerdict("right")
    for one in program.sizes():
        here = _judge_sizes(one, compiled, reference or _aot_eager(dynamic=program.scalable or None))
        if here.word == "refused" and one is not program:
            continue  # eager has no result on those sizes
        found = here
        if found.word != "right":
            break
    return found


def assert_like_eager(program: Program, compile_function: Compile, *, backend: str = "minductor") -> None:
    """Asserts that a compiled program is as good as eager; for the body of a test below `@given(programs())`.

    Args:
        program: The program. It is compiled, and run several times.
        compile_function: Compiles a function, which it may do lazily.
        backend: torch.compile's name of the backend, for the script.

    Raises:
        WrongResult: The program is wrong or fails. The message ends with a script that shows it without pytest.
    """
    __tracebackhide__ = True
    found = judge(program, compile_function)
    if found.is_bad:
        raise WrongResult(f"{found.word}: {found.why}\n\n{program.script(backend=backend, why=found.why)}")


def shrink_bad_program(
    program: Program, compile_function: Compile, *, most: int = 300
) -> tuple[Program, ProgramVerdict]:
    """Removes from a bad program everything that it does not need to be bad in the same way.

    Args:
        program: A program whose verdict is bad.
        compile_function: Compiles a function, which it may do lazily.
        most: The number of smaller programs to try at most; each of them is compiled and run.

    Returns:
        The smallest bad program found, and its verdict.
    """
    first = judge(program, compile_function)

    def is_alike(trial: Program) -> bool:
        found = judge(trial, compile_function)
        return found.word == first.word and _error_class(found) == _error_class(first)

    small = shrink(program, is_alike, most=most)
    return small, judge(small, compile_function)


def _error_class(found: ProgramVerdict) -> str:
    """Returns the class of an error. While shrinking, errors of one class count as the same error."""
    return found.why.partition(":")[0] if found.word == "error" else ""


def _aot_eager(*, dynamic: bool | None) -> Compile:
    import torch

    tools: Any = torch
    return lambda fn: tools.compile(fn, backend="aot_eager", fullgraph=True, dynamic=dynamic)


def _judge_sizes(program: Program, compiled: Callable[..., Any], reference: Compile) -> ProgramVerdict:
    casts: list[bool] = []
    try:
        eager = _run_by_name(program, program.fn(), casts=casts)
    except Exception as reason:
        return ProgramVerdict("refused", _error_text(reason))
    try:
        exact = _run_by_name(program, program.fn(), exact=True, casts=casts)
    except Exception:  # a line needs equal dtypes, which the wider run does not have
        exact = eager
    try:
        found = _run_by_name(program, compiled)
    except Exception as reason:
        try:
            _run_by_name(program, reference(program.fn()))
        except Exception as other:
            return ProgramVerdict("tracer", _error_text(other))
        return ProgramVerdict("error", _error_text(reason))
    lines = differences(found, eager, exact)
    if lines:  # now compare with exact sums, which are too slow to compute for every program
        with suppress(Exception):  # a line needs equal dtypes
            exact = _run_by_name(program, program.fn(), exact=True, below=exact_sums, casts=casts)
            lines = differences(found, eager, exact)
    if not lines:
        return ProgramVerdict("right")
    lines = _unexplained(program, lines, found, eager, exact, exact)
    if not lines:
        return ProgramVerdict("unstable", "noise as large as eager's rounding errors moves the results as far")
    if _is_due_to_tracer(program, found, eager, exact, reference):
        return ProgramVerdict("tracer", "\n".join(lines.values()))
    return ProgramVerdict("wrong", "\n".join(lines.values()))


def _is_due_to_tracer(program: Program, found: Leaves, eager: Leaves, exact: Leaves, reference: Compile) -> bool:
    """Tells whether the traced program gives the same results without a compiler."""
    try:
        traced = _run_by_name(program, reference(program.fn()))
    except Exception:
        return False
    wide = traced
    with suppress(Exception):  # a line needs equal dtypes
        wide = _run_by_name(program, reference(program.fn()), exact=True)
    # Where the tracer itself differs from eager, its float64 result is what a compiler can aim at.
    off = differences(traced, eager, exact)
    target = {name: wide[name] if name in off else value for name, value in exact.items()}
    lines = differences(found, traced, target)
    return not lines or not _unexplained(program, lines, found, eager, exact, target)


def _has_truth(one: Any, other: Any) -> bool:
    """Tells whether a result has a float64 result to compare with; lists of shared storage do not."""
    import torch

    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape


def _error_text(reason: Exception) -> str:
    return f"{type(reason).__name__}: {str(reason)[:1500]}"


def _run_by_name(
    program: Program,
    call: Callable[..., Any],
    *,
    exact: bool = False,
    below: Callable[[], AbstractContextManager[object]] = nullcontext,
    casts: list[bool] | None = None,
) -> dict[str, Any]:
    """Returns all results of a run by name; the run has its own copies of the arguments."""
    subject = reference_runs.copy_call(reference_runs.OwnedCall(call, tuple(program.arguments()), {}), exact=exact)
    # copy_call copies modules only, so a plain function stays the same object.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = reference_runs.run_call(
            subject, call, grad=program.differentiable, exact=exact, below=below, casts=casts
        )
    outputs = {f"output {n}": out for n, out in enumerate(outcome.out)}
    grads = {f"gradient of {name}": grad for name, grad in outcome.grads.items()}
    state = {f"{name} afterwards": tensor for name, tensor in outcome.state.items()}
    return {**outputs, **grads, **state, "common storages": outcome.aliases}


def differences(found: Leaves, eager: Leaves, exact: Leaves, policy: Policy = DEFAULT_POLICY) -> dict[str, str]:
    """Returns the failure of `check_accuracy` for each result that is wrong."""
    lines: dict[str, str] = {}
    for name, wanted in eager.items():
        # Autograd chooses the strides of a leaf's gradient.
        own = replace(policy, layout=False) if name.startswith("gradient") else policy
        truth = exact[name] if _has_truth(exact[name], wanted) else wanted
        try:
            check_accuracy(found[name], wanted, truth, policy=own, what=name)
        except WrongResult as difference:
            lines[name] = str(difference)
    return lines


def _unexplained(
    program: Program, lines: Mapping[str, str], found: Leaves, eager: Leaves, exact: Leaves, target: Leaves
) -> dict[str, str]:
    """Returns the differences from the target that noise does not explain. Noise explains no dtype, shape or stride."""
    import torch

    formal = {
        name: line
        for name, line in lines.items()
        if not isinstance(eager[name], torch.Tensor) or "elements are wrong" not in line
    }
    if len(formal) == len(lines):
        return formal
    doubtful = [name for name in lines if name not in formal]
    noisy, runs = noisy_runs(program, _run_by_name), list[Leaves]()
    while doubtful and (more := [{name: run[name] for name in doubtful} for run in islice(noisy, BATCH)]):
        runs += more
        doubtful = [
            name
            for name in doubtful
            if not explains([run[name] for run in runs], found[name], eager[name], exact[name], target[name])
        ]
    return formal | {name: lines[name] for name in doubtful}
