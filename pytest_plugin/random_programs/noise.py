"""How far eager's own rounding moves the results of a random program: what no compiler can be asked to be nearer than.

Takes a Program and a function that runs it. Gives what runs of eager leave behind in which each rounded result was
moved, and whether a result is explained by them. Refuses nothing: a run that fails, since an index left its range, is
left out.

A line's result is moved by up to one unit in the last place; by more, where eager itself is further from what the line
gives in float64 of the same operands: another result that is as good may lie on the other side of that. In every other
run equal values are moved alike, since rounding is a function of the value; otherwise each by itself. Sums are taken of
moved terms, which does what another order would; products of the terms in another order. An element that the earlier
runs gave either sign may be 0 as well. Gradients come of operators that no line names: there each operator below
autograd that rounds is moved, which is also what it leaves for the backward.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_plugin.oracle import reference_runs
from pytest_plugin.oracle.tolerances import FLOAT64_OWN_ULPS, PRECISIONS, K
from pytest_plugin.random_programs.programs import Node, Program

if TYPE_CHECKING:
    from torch import Tensor

NOISY_RUNS = 96  # one element of thousands may be moved in few of them
NOISE_FACTOR = 4.0  # of what the noise does, since rounding may also go the same way each time
PRODUCT = re.compile(r"(\w+)\.prod\((-?\d+)\)")
# takes one number from all of a row, whose error is then each element's, also of one that is next to 0
SHIFTED = re.compile(r"torch\.log_softmax\(\w+, (-?\d+)\)")
SUMMED = ("reductions", "statistics", "products")  # families that add up in an order of their own

Leaves = Mapping[str, Any]
Run = Callable[..., Leaves]  # of a program and what is called; `below` as oracle.run has it


def noisy_runs(program: Program, run: Run) -> Iterator[Leaves]:
    """One at a time: what all of them leave behind may be more than a machine's memory."""
    own = _own_errors(program, run)
    ranges = [Range() for _ in program.nodes]
    for number in range(NOISY_RUNS):
        if (found := _noisy_run(program, number, own, ranges, run)) is not None:
            yield found


def explains(noisy: Sequence[Tensor | None], found: Tensor, eager: Tensor, exact: Tensor, target: Tensor) -> bool:
    """Whether each element is as near to the target as the noisy runs of eager are to the truth."""
    import torch

    runs = [run.detach() for run in noisy if run is not None and run.shape == eager.shape]
    if not runs or found.shape != eager.shape:
        return False
    found, eager, target = found.detach(), eager.detach(), target.detach()
    if not eager.is_floating_point():
        # of each element eager's answer, or where it is decided otherwise in a noisy run or in float64, that
        moved = torch.stack([run != eager for run in runs]).any(0)
        same = (found == target) | (found == eager)
        return bool((same | moved | ((found == exact) if exact.shape == eager.shape else moved)).all())
    truth = (exact if exact.shape == eager.shape else eager).detach().double()
    target = (target if target.shape == eager.shape else eager).double()
    a, e = found.double(), eager.double()
    errors = torch.stack([(run.double() - truth).abs().nan_to_num(torch.inf) for run in runs]).amax(0)
    own = (e - truth).abs().nan_to_num(0.0)
    worst = own.amax()
    if eager.dtype == torch.float64:  # whose own error is not seen: as `check_accuracy` has it
        worst = worst.clamp(
            min=FLOAT64_OWN_ULPS * 2.0 ** -_mantissa(eager) * float(truth.abs().nan_to_num(0, 0).amax())
        )
    allowed = NOISE_FACTOR * torch.maximum(errors, own) + K * worst
    nan = torch.stack([target, *runs]).isnan().any(0)
    return bool(((a == target) | (a.isnan() & nan) | ((a - target).abs() <= allowed)).all())


def _own_errors(program: Program, run: Run) -> list[Tensor | None]:
    """For each line by itself, how far from eager's result another is that is as good, as a share of it."""
    import torch

    found: list[Tensor | None] = []

    def call(*arguments: Any) -> tuple[Any, ...]:
        space = _namespace(program, arguments)
        for node in program.nodes:
            wide = {name: _to_float64(value) for name, value in space.items()} if _is_moved(node) else None
            exec(node.line, space)
            found.append(None if wide is None else _own_error(node, space[node.target], wide))
        return tuple(space[name] for name in program.outputs)

    with torch.no_grad(), suppress(Exception):
        run(replace(program, differentiable=False), call)
    return found + [None] * (len(program.nodes) - len(found))


def _own_error(node: Node, value: Any, wide: dict[str, Any]) -> Tensor | None:
    import torch

    try:
        with reference_runs.computing_in_float64():
            exec(node.line, wide)
    except Exception:  # a line that wants equal dtypes
        return None
    truth = wide[node.target]
    if not isinstance(truth, torch.Tensor) or truth.shape != value.shape or not value.is_floating_point():
        return None
    error, most = (value.double() - truth).abs(), 1.0
    if (row := SHIFTED.fullmatch(node.text)) and value.dim():
        error, most = error.amax(int(row[1]), keepdim=True), torch.inf
    # as far from the truth, on its other side
    share = 2 * error / value.double().abs()
    return share.nan_to_num(0.0, posinf=0.0).clamp(max=most)


def _to_float64(value: Any) -> Any:
    import torch

    return value.to(reference_runs.exact_dtype(value.dtype), copy=True) if isinstance(value, torch.Tensor) else value


def _namespace(program: Program, arguments: Sequence[Any]) -> dict[str, Any]:
    import torch

    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    return space | {given.name: value for given, value in zip(program.inputs, arguments, strict=True)}


def _is_moved(node: Node) -> bool:
    return node.rounds or node.family == "casts"


def _noisy_run(
    program: Program, number: int, own: Sequence[Tensor | None], ranges: Sequence[Range], run: Run
) -> Leaves | None:
    """Eager, line by line, with what each line moves."""
    import torch

    random: Any = torch.random
    generator = torch.Generator().manual_seed(number)
    noise = Noise(generator, alike=bool(number % 2))

    def call(*arguments: Any) -> tuple[Any, ...]:
        space = _namespace(program, arguments)
        for node, error, seen in zip(program.nodes, own, ranges, strict=True):
            if node.family in SUMMED and node.rounds and not node.writes:
                space[node.target] = eval(node.text, _disturbed_terms(node, space, noise))
            else:
                exec(node.line, space)
            _disturb_result(node, space, noise, error)
            if _is_moved(node) and not node.writes and space[node.target].is_floating_point():
                space[node.target] = seen.zeroed(space[node.target], noise)
        return tuple(space[name] for name in program.outputs)

    with random.fork_rng(devices=[]):
        try:
            return run(program, call, **({"below": noise.of_operators} if program.differentiable else {}))
        except Exception:  # an index that left its range
            return None


@dataclass(frozen=True, slots=True)
class Noise:
    """Where the factors come from; `alike`: equal values have equal factors."""

    generator: Any
    alike: bool

    def factors(self, value: Tensor, error: Tensor | None = None) -> Tensor:
        """Those that move each element by up to a unit in its last place, or by the share that `error` says."""
        unit = 2.0 ** -_mantissa(value)
        if self.alike:
            loose: Any = value.detach()
            distinct, place = loose.unique(return_inverse=True)
            noise = self.uniform(distinct.shape)[place]
        else:
            noise = self.uniform(value.shape)
        share = unit if error is None or error.shape != value.shape else error.clamp(min=unit)
        return (1 + noise * share).to(value.dtype)

    def moved(self, value: Tensor, error: Tensor | None = None) -> Tensor:
        """Times these factors. The sign of a NaN, which no arithmetic promises, is a coin's."""
        import torch

        found = value * self.factors(value, error)
        if not bool(value.isnan().any()):
            return found
        coins = self.uniform(value.shape).to(value.dtype)
        return torch.where(value.isnan(), torch.full_like(coins, torch.nan).copysign(coins), found)

    def shuffled(self, value: Tensor, dim: int) -> Tensor:
        import torch

        order = torch.randperm(value.shape[dim], generator=self.generator)
        return value.index_select(dim, order)

    def of_operators(self) -> AbstractContextManager[Any]:
        """Inside, what an operator below autograd gives is moved, if it rounds."""
        from torch.utils._python_dispatch import TorchDispatchMode

        move = self.factors

        class Moved(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                named: dict[str, Any] = kwargs or {}
                given = (args, named)
                few_bits = _with_few_bits(given)  # before it writes to one of them
                found = func(*args, **named)
                results = _floats(found)
                if results and not func.is_view and (_is_narrowed(given, results) or _rounds(func, *few_bits)):
                    for result in results:
                        result.mul_(move(result))
                return found

        return Moved()

    def uniform(self, shape: Any) -> Tensor:
        import torch

        return torch.rand(shape, generator=self.generator, dtype=torch.float64) * 2 - 1


def _rounds(func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether it makes more of what has few bits: what selects, copies or changes signs does not."""
    import torch

    try:
        found = _floats(func(*args, **kwargs))
    except Exception:  # one that wants other dtypes
        return True
    return not all(torch.equal(value.nan_to_num(), _with_few_bits(value).nan_to_num()) for value in found)


def _with_few_bits(given: Any) -> Any:
    """Copies: numbers as bfloat16 has them, in float64."""
    import torch
    from torch.utils import _pytree as pytree

    def replaced(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.bfloat16().double() if leaf.is_floating_point() else leaf.clone()
        return reference_runs.exact_dtype(leaf) if isinstance(leaf, torch.dtype) else leaf

    return pytree.tree_map(replaced, given)


def _is_narrowed(given: Any, results: Sequence[Tensor]) -> bool:
    return min(map(_mantissa, results)) < max(map(_mantissa, _floats(given)), default=0)


def _floats(given: Any) -> list[Tensor]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def _mantissa(value: Tensor) -> int:
    return PRECISIONS[str(value.dtype).removeprefix("torch.")].mantissa


@dataclass(slots=True)
class Range:
    """The least and the largest that each element of a line's result was in the runs so far."""

    ends: tuple[Tensor, Tensor] | None = None

    def zeroed(self, value: Tensor, noise: Noise) -> Tensor:
        """With some of the elements that had either sign at 0; gradients pass as before."""
        import torch

        now = value.detach()
        low, high = self.ends or (now, now)
        if low.shape != now.shape:
            return value
        self.ends = torch.minimum(low, now), torch.maximum(low, now)
        chosen = (low < 0) & (high > 0) & (noise.uniform(now.shape) > 0.5)
        return torch.where(chosen, value - now, value)


def _disturb_result(node: Node, space: dict[str, Any], noise: Noise, error: Tensor | None) -> None:
    value = space[node.target]
    name = str(value.dtype).removeprefix("torch.")
    if name not in PRECISIONS or not _is_moved(node):
        return
    if node.writes:
        if not value.requires_grad:
            own = value[
                tuple(slice(None if step else 1) for step in value.stride())
            ]  # one of an expanded tensor's equals
            own.mul_(noise.factors(own, error))
        return
    space[node.target] = noise.moved(value, error)


def _disturbed_terms(node: Node, space: Mapping[str, Any], noise: Noise) -> dict[str, Any]:
    """The space for a line that adds many numbers up: in another order it gives what it gives of moved ones in this."""
    moved = dict(space)
    for name in dict.fromkeys(re.findall(r"\b[a-z]\d+\b", node.text)):
        value: Any = space.get(name)
        if str(getattr(value, "dtype", "")).removeprefix("torch.") in PRECISIONS:
            moved[name] = noise.moved(value)
    if (product := PRODUCT.fullmatch(node.text)) and moved[product[1]].dim():
        # what overflows on the way to a zero is NaN, in one order and not in another
        moved[product[1]] = noise.shuffled(moved[product[1]], int(product[2]))
    return moved
