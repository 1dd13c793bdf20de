"""How far eager's own rounding errors move the results of a random program: no compiler can be expected to be closer.

Takes a Program and a function that runs it. Gives the results of noisy runs: runs of eager in which each rounded result
is moved. Tells whether they explain a result. Refuses nothing: a noisy run that fails, for instance since an index is
out of range, is left out.

The result of a line is moved by up to one unit in the last place, or by more where eager itself is further from the
float64 result of the same operands, since a result as far on the other side is as good. In every second run equal
values are moved alike, since rounding depends on the value only; in the other runs each value is moved by itself. For
sums the terms are moved, which has the effect of another order of summation; products multiply their terms in another
order. An element that earlier runs gave with both signs may also become 0. Gradients come from operators that no line
names, so there each operator below autograd that rounds is moved.
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

NOISY_RUNS = 96  # so many, since a single element of thousands may be moved in few of them
NOISE_FACTOR = 4.0  # rounding errors may add up in one direction, which random noise seldom does
PRODUCT = re.compile(r"(\w+)\.prod\((-?\d+)\)")
# log_softmax subtracts one number from a whole row, so the error of that number is the error of each element.
SHIFTED = re.compile(r"torch\.log_softmax\(\w+, (-?\d+)\)")
SUMMED = ("reductions", "statistics", "products")  # families whose lines add up in an order that a compiler may change

Leaves = Mapping[str, Any]
Run = Callable[..., Leaves]  # takes a program and the function to call, and `below` as run_call does


def noisy_runs(program: Program, run: Run) -> Iterator[Leaves]:
    """Yields the results of noisy runs, one at a time, since all of them together may not fit in memory."""
    own = _own_errors(program, run)
    ranges = [Range() for _ in program.nodes]
    for number in range(NOISY_RUNS):
        if (found := _noisy_run(program, number, own, ranges, run)) is not None:
            yield found


def explains(noisy: Sequence[Tensor | None], found: Tensor, eager: Tensor, exact: Tensor, target: Tensor) -> bool:
    """Tells whether each element is as near to the target as the noisy runs are to the truth.

    Args:
        noisy: The result in each noisy run.
        found: The compiled result.
        eager: Eager's result.
        exact: The float64 result.
        target: What the compiled result is compared with: the float64 result, or that of the tracer alone.
    """
    import torch

    runs = [run.detach() for run in noisy if run is not None and run.shape == eager.shape]
    if not runs or found.shape != eager.shape:
        return False
    found, eager, target = found.detach(), eager.detach(), target.detach()
    if not eager.is_floating_point():
        # Each element must be eager's or the target's; it may differ where a noisy run differs from eager.
        moved = torch.stack([run != eager for run in runs]).any(0)
        same = (found == target) | (found == eager)
        return bool((same | moved | ((found == exact) if exact.shape == eager.shape else moved)).all())
    truth = (exact if exact.shape == eager.shape else eager).detach().double()
    target = (target if target.shape == eager.shape else eager).double()
    a, e = found.double(), eager.double()
    errors = torch.stack([(run.double() - truth).abs().nan_to_num(torch.inf) for run in runs]).amax(0)
    own = (e - truth).abs().nan_to_num(0.0)
    worst = own.amax()
    if eager.dtype == torch.float64:  # eager's own error cannot be measured: see tolerances.py
        worst = worst.clamp(
            min=FLOAT64_OWN_ULPS * 2.0 ** -_mantissa(eager) * float(truth.abs().nan_to_num(0, 0).amax())
        )
    allowed = NOISE_FACTOR * torch.maximum(errors, own) + K * worst
    nan = torch.stack([target, *runs]).isnan().any(0)
    return bool(((a == target) | (a.isnan() & nan) | ((a - target).abs() <= allowed)).all())


def _own_errors(program: Program, run: Run) -> list[Tensor | None]:
    """Returns for each line how far a result that is as good may be from eager's, as a share of it."""
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
    except Exception:  # the line needs equal dtypes, which the wider run does not have
        return None
    truth = wide[node.target]
    if not isinstance(truth, torch.Tensor) or truth.shape != value.shape or not value.is_floating_point():
        return None
    error, most = (value.double() - truth).abs(), 1.0
    if (row := SHIFTED.fullmatch(node.text)) and value.dim():
        error, most = error.amax(int(row[1]), keepdim=True), torch.inf
    # A result on the other side of the truth, as far away, is as good: it is twice the error from eager's result.
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
    """Runs eager line by line, and moves the result of each line."""
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
        except Exception:  # for instance, an index is out of range
            return None


@dataclass(frozen=True, slots=True)
class Noise:
    """The source of random factors.

    Attributes:
        generator: torch's generator.
        alike: Whether equal values get equal factors.
    """

    generator: Any
    alike: bool

    def factors(self, value: Tensor, error: Tensor | None = None) -> Tensor:
        """Returns factors that move each element by up to one unit in the last place, or by the share `error`."""
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
        """Returns the value times such factors. The sign of a NaN, which no arithmetic defines, becomes random."""
        import torch

        found = value * self.factors(value, error)
        if not bool(value.isnan().any()):
            return found
        coins = self.uniform(value.shape).to(value.dtype)
        return torch.where(value.isnan(), torch.full_like(coins, torch.nan).copysign(coins), found)

    def shuffled(self, value: Tensor, dim: int) -> Tensor:
        """Returns the value with its elements along a dimension in random order."""
        import torch

        order = torch.randperm(value.shape[dim], generator=self.generator, device="cpu").to(value.device)
        return value.index_select(dim, order)

    def of_operators(self) -> AbstractContextManager[Any]:
        """Moves, in the context, the result of each operator below autograd that rounds."""
        from torch.utils._python_dispatch import TorchDispatchMode

        move = self.factors

        class Moved(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                named: dict[str, Any] = kwargs or {}
                given = (args, named)
                few_bits = _with_few_bits(given)  # copied before the operator writes to an operand
                found = func(*args, **named)
                results = _floats(found)
                if results and not func.is_view and (_is_narrowed(given, results) or _rounds(func, *few_bits)):
                    for result in results:
                        result.mul_(move(result))
                return found

        return Moved()

    def uniform(self, shape: Any) -> Tensor:
        """Returns random numbers between -1 and 1."""
        import torch

        found = torch.rand(shape, generator=self.generator, dtype=torch.float64, device="cpu")
        return found.to(torch.get_default_device()) * 2 - 1


def _rounds(func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Tells whether an operator gives more bits than its operands have; selecting or copying does not."""
    import torch

    try:
        found = _floats(func(*args, **kwargs))
    except Exception:  # the operator does not take float64
        return True
    return not all(torch.equal(value.nan_to_num(), _with_few_bits(value).nan_to_num()) for value in found)


def _with_few_bits(given: Any) -> Any:
    """Returns copies with the values rounded to bfloat16, in float64."""
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
    """The least and the largest value of each element of a line's result in the runs so far."""

    ends: tuple[Tensor, Tensor] | None = None

    def zeroed(self, value: Tensor, noise: Noise) -> Tensor:
        """Sets some of the elements that had both signs to 0; gradients pass as before."""
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
            ]  # an expanded tensor has one element for many, which is moved once
            own.mul_(noise.factors(own, error))
        return
    space[node.target] = noise.moved(value, error)


def _disturbed_terms(node: Node, space: Mapping[str, Any], noise: Noise) -> dict[str, Any]:
    """Returns the names for a line that adds up numbers, with moved terms in place of another order."""
    moved = dict(space)
    for name in dict.fromkeys(re.findall(r"\b[a-z]\d+\b", node.text)):
        value: Any = space.get(name)
        if str(getattr(value, "dtype", "")).removeprefix("torch.") in PRECISIONS:
            moved[name] = noise.moved(value)
    if (product := PRODUCT.fullmatch(node.text)) and moved[product[1]].dim():
        # A product that overflows before it meets a zero is NaN; in another order it is zero.
        moved[product[1]] = noise.shuffled(moved[product[1]], int(product[2]))
    return moved
