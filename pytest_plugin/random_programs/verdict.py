"""The oracle of random programs: is a compiled program as good as eager?

Takes a Program and a function that compiles functions. Gives a Verdict. `assert_like_eager` raises Difference, with a
script that shows the same, for a program that is wrong or fails.

Values are held against eager and the float64 truth by `closer`; dtypes, shapes, strides, what the arguments hold
afterwards, gradients and common storages are eager's own. Two kinds of programs are set apart. *Unstable* ones sit on
an edge: eager itself, with every rounded result moved as far as its error (noise.py), differs from eager as much.
*Tracer* ones differ from eager without any compiler behind torch.compile (backend "aot_eager"); there that is the
measure.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from pytest_plugin.oracle import oracle
from pytest_plugin.oracle.closer import DEFAULT, Difference, Policy, closer
from pytest_plugin.oracle.exact_sums import exact_sums
from pytest_plugin.random_programs.noise import Leaves, explains, noisy_runs
from pytest_plugin.random_programs.programs import Program, shrunk

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Word = Literal["right", "wrong", "error", "unstable", "tracer", "refused"]
BAD: tuple[Word, ...] = ("wrong", "error")
BATCH = 24  # noisy runs, before more of them are asked


@dataclass(frozen=True, slots=True)
class Verdict:
    """`refused`: eager does not run it."""

    word: Word
    why: str = ""

    @property
    def is_bad(self) -> bool:
        return self.word in BAD


def verdict(program: Program, compile_function: Compile, *, reference: Compile | None = None) -> Verdict:
    """Of the program, and of a scalable one on two other sizes too, without compiling it anew by ourselves.

    `reference` compiles as the tracer alone does; torch.compile(backend="aot_eager") unless given.
    """
    import torch

    torch.compiler.reset()
    compiled = compile_function(program.fn())
    found = Verdict("right")
    for one in program.sizes():
        here = _of(one, compiled, reference or _aot_eager(dynamic=program.scalable or None))
        if here.word == "refused" and one is not program:
            continue  # eager has no result on those sizes
        found = here
        if found.word != "right":
            break
    return found


def assert_like_eager(program: Program, compile_function: Compile, *, backend: str = "minductor") -> None:
    """For use below `@given(programs())`: what hypothesis shows of a failure then ends with a script."""
    __tracebackhide__ = True
    found = verdict(program, compile_function)
    if found.is_bad:
        raise Difference(f"{found.word}: {found.why}\n\n{program.script(backend=backend, why=found.why)}")


def smallest(program: Program, compile_function: Compile, *, most: int = 300) -> tuple[Program, Verdict]:
    """A bad program with all taken out that it does not need to be bad in the same way, and its verdict."""
    first = verdict(program, compile_function)

    def is_alike(trial: Program) -> bool:
        found = verdict(trial, compile_function)
        return found.word == first.word and _sort(found) == _sort(first)

    small = shrunk(program, is_alike, most=most)
    return small, verdict(small, compile_function)


def _sort(found: Verdict) -> str:
    """Two errors of one class are taken for the same while shrinking."""
    return found.why.partition(":")[0] if found.word == "error" else ""


def _aot_eager(*, dynamic: bool | None) -> Compile:
    import torch

    tools: Any = torch
    return lambda fn: tools.compile(fn, backend="aot_eager", fullgraph=True, dynamic=dynamic)


def _of(program: Program, compiled: Callable[..., Any], reference: Compile) -> Verdict:
    casts: list[bool] = []
    try:
        eager = _run(program, program.fn(), casts=casts)
    except Exception as reason:
        return Verdict("refused", _said(reason))
    try:
        exact = _run(program, program.fn(), exact=True, casts=casts)
    except Exception:  # a line that wants equal dtypes of what the wider run made unequal
        exact = eager
    try:
        found = _run(program, compiled)
    except Exception as reason:
        try:
            _run(program, reference(program.fn()))
        except Exception as other:
            return Verdict("tracer", _said(other))
        return Verdict("error", _said(reason))
    lines = differences(found, eager, exact)
    if lines:  # now what is too slow for all: float64 whose sums are exact
        with suppress(Exception):  # as above
            exact = _run(program, program.fn(), exact=True, below=exact_sums, casts=casts)
            lines = differences(found, eager, exact)
    if not lines:
        return Verdict("right")
    lines = _unexcused(program, lines, found, eager, exact, exact)
    if not lines:
        return Verdict("unstable", "within what noise as large as eager's errors does")
    if _is_tracers(program, found, eager, exact, reference):
        return Verdict("tracer", "\n".join(lines.values()))
    return Verdict("wrong", "\n".join(lines.values()))


def _is_tracers(program: Program, found: Leaves, eager: Leaves, exact: Leaves, reference: Compile) -> bool:
    """Whether what differs from eager is the tracer's doing: the traced program gives the same without a compiler."""
    try:
        traced = _run(program, reference(program.fn()))
    except Exception:
        return False
    wide = traced
    with suppress(Exception):  # as for the truth of eager
        wide = _run(program, reference(program.fn()), exact=True)
    # where the tracer itself is off, what it gives of wider numbers is all that can be aimed at
    off = differences(traced, eager, exact)
    target = {name: wide[name] if name in off else value for name, value in exact.items()}
    lines = differences(found, traced, target)
    return not lines or not _unexcused(program, lines, found, eager, exact, target)


def _alike(one: Any, other: Any) -> bool:
    """Whether the one may be the truth of the other; storages in common are eager's own."""
    import torch

    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape


def _said(reason: Exception) -> str:
    return f"{type(reason).__name__}: {str(reason)[:1500]}"


def _run(
    program: Program,
    call: Callable[..., Any],
    *,
    exact: bool = False,
    below: Callable[[], AbstractContextManager[object]] = nullcontext,
    casts: list[bool] | None = None,
) -> dict[str, Any]:
    """What a run leaves behind, by name; all tensors of the arguments' storages are its own."""
    subject = oracle.copied(oracle.Program(call, tuple(program.arguments()), {}), exact=exact)
    # the function stays as it is: oracle.copied copies modules only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = oracle.run(subject, call, grad=program.differentiable, exact=exact, below=below, casts=casts)
    outputs = {f"output {n}": out for n, out in enumerate(outcome.out)}
    grads = {f"gradient of {name}": grad for name, grad in outcome.grads.items()}
    state = {f"{name} afterwards": tensor for name, tensor in outcome.state.items()}
    return {**outputs, **grads, **state, "common storages": outcome.aliases}


def differences(found: Leaves, eager: Leaves, exact: Leaves, policy: Policy = DEFAULT) -> dict[str, str]:
    """What `closer` says against each result."""
    lines: dict[str, str] = {}
    for name, wanted in eager.items():
        # gradients of leaves are laid out as autograd likes
        own = replace(policy, layout=False) if name.startswith("gradient") else policy
        truth = exact[name] if _alike(exact[name], wanted) else wanted
        try:
            closer(found[name], wanted, truth, policy=own, what=name)
        except Difference as difference:
            lines[name] = str(difference)
    return lines


def _unexcused(
    program: Program, lines: Mapping[str, str], found: Leaves, eager: Leaves, exact: Leaves, target: Leaves
) -> dict[str, str]:
    """The differences from the target that noise does not explain. Those of form are explained by nothing."""
    import torch

    formal = {
        name: line
        for name, line in lines.items()
        if not isinstance(eager[name], torch.Tensor) or "elements are wrong" not in line
    }
    if len(formal) == len(lines):
        return formal
    doubtful = [name for name in lines if name not in formal]
    noisy, runs = noisy_runs(program, _run), list[Leaves]()
    while doubtful and (more := [{name: run[name] for name in doubtful} for run in islice(noisy, BATCH)]):
        runs += more
        doubtful = [
            name
            for name in doubtful
            if not explains([run[name] for run in runs], found[name], eager[name], exact[name], target[name])
        ]
    return formal | {name: lines[name] for name in doubtful}
