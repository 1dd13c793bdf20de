"""The oracle of random programs: is a compiled program as good as eager?

Takes a Program and a function that compiles functions. Gives a Verdict. `assert_like_eager` raises Difference, with a
script that shows the same, for a program that is wrong or fails.

Values are held against eager and the float64 truth by `closer`; dtypes, shapes, strides, what the arguments hold
afterwards, gradients and common storages are eager's own. Two kinds of programs are set apart. *Unstable* ones sit on
an edge: eager itself, with every rounded result moved by one unit in the last place, differs from eager as much.
*Tracer* ones differ from eager without any compiler behind torch.compile (backend "aot_eager"); there that is the
measure.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_plugin import oracle
from pytest_plugin.closer import DEFAULT, Difference, Policy, closer
from pytest_plugin.programs import Node, Program, shrunk
from pytest_plugin.tolerances import PRECISIONS, K

if TYPE_CHECKING:
    from torch import Tensor

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Word = Literal["right", "wrong", "error", "unstable", "tracer", "refused"]
BAD: tuple[Word, ...] = ("wrong", "error")
NOISY_RUNS = 24
# of what one unit of noise in each result does, since rounding may also go the same way each time
NOISE_FACTOR = 4.0
SUMMED = ("reductions", "statistics", "products")  # families that add up in an order of their own


@dataclass(frozen=True, slots=True)
class Verdict:
    """`refused`: eager does not run it."""

    word: Word
    why: str = ""

    @property
    def is_bad(self) -> bool:
        return self.word in BAD


Leaves = Mapping[str, Any]


def verdict(program: Program, compile_function: Compile, *, reference: Compile | None = None) -> Verdict:
    """Of the program, and of a scalable one on two other sizes too, without compiling it anew by ourselves.

    `reference` compiles as the tracer alone does; torch.compile(backend="aot_eager") unless given.
    """
    import torch

    sizes = [program]
    if program.scalable:
        sizes += [program.scaled(lambda n: 2 * n), program.scaled(lambda n: n + 3)]
    torch.compiler.reset()
    compiled = compile_function(program.fn())
    found = Verdict("right")
    for one in sizes:
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
    try:
        eager = _run(program, program.fn())
    except Exception as reason:
        return Verdict("refused", _said(reason))
    try:
        exact = _run(program, program.fn(), exact=True)
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
    if not lines:
        return Verdict("right")
    lines = _unexcused(program, lines, found, eager, exact, exact)
    if not lines:
        return Verdict("unstable", "within what one unit of noise does")
    if _is_tracers(program, found, eager, exact, reference):
        return Verdict("tracer", "\n".join(lines.values()))
    return Verdict("wrong", "\n".join(lines.values()))


def _is_tracers(program: Program, found: Leaves, eager: Leaves, exact: Leaves, reference: Compile) -> bool:
    """Whether what differs from eager is the tracer's doing: the traced program gives the same without a compiler."""
    try:
        traced = _run(program, reference(program.fn()))
    except Exception:
        return False
    # where the tracer itself is off, its result is all that can be aimed at
    off = differences(traced, eager, exact)
    target = {name: traced[name] if name in off else value for name, value in exact.items()}
    lines = differences(found, traced, target)
    return not lines or not _unexcused(program, lines, found, eager, exact, target)


def _alike(one: Any, other: Any) -> bool:
    """Whether the one may be the truth of the other; storages in common are eager's own."""
    import torch

    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape


def _said(reason: Exception) -> str:
    return f"{type(reason).__name__}: {str(reason)[:1500]}"


def _run(program: Program, call: Callable[..., Any], *, exact: bool = False) -> dict[str, Any]:
    """What a run leaves behind, by name; all tensors of the arguments' storages are its own."""
    subject = oracle.copied(oracle.Program(call, tuple(program.arguments()), {}), exact=exact)
    # the function stays as it is: oracle.copied copies modules only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = oracle.run(subject, call, grad=program.differentiable, exact=exact)
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
    noisy = [run for number in range(NOISY_RUNS) if (run := _noisy(program, number)) is not None]
    return formal | {
        name: line
        for name, line in lines.items()
        if name not in formal
        and not _is_noise(found[name], eager[name], exact[name], target[name], [run[name] for run in noisy])
    }


def _is_noise(found: Tensor, eager: Tensor, exact: Tensor, target: Tensor, noisy: Sequence[Tensor | None]) -> bool:
    """Whether each element is as near to the target as the noisy runs of eager are to the truth."""
    import torch

    runs = [run.detach() for run in noisy if run is not None and run.shape == eager.shape]
    if not runs or found.shape != eager.shape:
        return False
    found, eager, target = found.detach(), eager.detach(), target.detach()
    if not eager.is_floating_point():
        moved = torch.stack([run != eager for run in runs]).any(0)
        return bool(((found == target) | moved).all())
    truth = (exact if exact.shape == eager.shape else eager).detach().double()
    target = (target if target.shape == eager.shape else eager).double()
    a, e = found.double(), eager.double()
    errors = torch.stack([(run.double() - truth).abs().nan_to_num(torch.inf) for run in runs]).amax(0)
    own = (e - truth).abs().nan_to_num(0.0)
    allowed = NOISE_FACTOR * torch.maximum(errors, own) + K * own.amax()
    return bool(((a == target) | (a.isnan() & target.isnan()) | ((a - target).abs() <= allowed)).all())


def _noisy(program: Program, number: int) -> dict[str, Any] | None:
    """Eager, line by line, with each rounded result moved by up to a unit in its last place."""
    import torch

    random: Any = torch.random
    generator = torch.Generator().manual_seed(number)

    def call(*arguments: Any) -> tuple[Any, ...]:
        space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        space |= {given.name: value for given, value in zip(program.inputs, arguments, strict=True)}
        for node in program.nodes:
            if node.family in SUMMED and node.rounds and not node.writes:
                space[node.target] = eval(node.text, _disturbed_terms(node, space, generator))
            else:
                exec(node.line, space)
            _disturb(node, space, generator)
        return tuple(space[name] for name in program.outputs)

    with random.fork_rng(devices=[]):
        try:
            return _run(program, call)
        except Exception:  # an index that left its range
            return None


def _disturb(node: Node, space: dict[str, Any], generator: Any) -> None:
    value = space[node.target]
    name = str(value.dtype).removeprefix("torch.")
    if name not in PRECISIONS or not (node.rounds or node.family == "casts"):
        return
    factor = _near_one(value, generator)
    if node.writes:
        if not value.requires_grad:
            value.mul_(factor)
        return
    space[node.target] = value * factor


def _disturbed_terms(node: Node, space: Mapping[str, Any], generator: Any) -> dict[str, Any]:
    """The space for a line that adds many numbers up: in another order it gives what it gives of moved ones in this."""
    moved = dict(space)
    for name in dict.fromkeys(re.findall(r"\b[a-z]\d+\b", node.text)):
        value: Any = space.get(name)
        if str(getattr(value, "dtype", "")).removeprefix("torch.") in PRECISIONS:
            moved[name] = value * _near_one(value, generator)
    return moved


def _near_one(value: Tensor, generator: Any) -> Tensor:
    """Factors that move each element by up to a unit in its last place."""
    import torch

    mantissa = PRECISIONS[str(value.dtype).removeprefix("torch.")].mantissa
    noise = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return (1 + noise * 2.0**-mantissa).to(value.dtype)
