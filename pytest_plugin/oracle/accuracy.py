"""The numeric oracle: a compiled result may be no further from the truth than eager is, give or take a few ULP.

Takes three values of the same structure: compiled, eager, and the float64 truth. Gives the worst error as a share of
what was allowed. Refuses, by AssertionError, a result that is too far away, and one whose dtype, shape or stride is
not eager's; the message has the worst element.

Integers and bools are exact. NaN, infinities and the sign of zero must be the truth's or eager's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_plugin.oracle.tolerances import FLOAT64_OWN_ULPS, PRECISIONS, ULPS, K

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Policy:
    """How much is allowed; `layout` asks for eager's strides too."""

    k: float = K
    ulps: float = ULPS
    layout: bool = True


DEFAULT_POLICY = Policy()


def read_policy(words: Sequence[str]) -> Policy:
    """The policy with what words such as "k=3" change; ValueError for another word.

    >>> read_policy(["k=3", "layout=false"])
    Policy(k=3.0, ulps=4.0, layout=False)
    >>> read_policy(["rtol=1"])
    Traceback (most recent call last):
    ValueError: 'rtol=1' is none of k=NUMBER, ulps=NUMBER, layout=true and layout=false
    """
    policy = DEFAULT_POLICY
    for word in words:
        match word.partition("="):
            case ("k" | "ulps") as name, _, number if re.fullmatch(r"\d+(\.\d+)?", number):
                policy = replace(policy, **{name: float(number)})
            case "layout", _, ("true" | "false") as truth:
                policy = replace(policy, layout=truth == "true")
            case _:
                raise ValueError(f"{word!r} is none of k=NUMBER, ulps=NUMBER, layout=true and layout=false")
    return policy


class WrongResult(AssertionError):
    """A result is not what it should be."""


def check_accuracy(
    actual: Any, eager: Any, exact64: Any, *, policy: Policy = DEFAULT_POLICY, what: str = "result"
) -> float:
    """Compares nested tuples, lists and dicts of tensors; numbers and the rest must be equal to eager's."""
    __tracebackhide__ = True
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten_with_path(actual)
    expected, expected_structure = pytree.tree_flatten(eager)
    if structure != expected_structure:
        raise WrongResult(f"{what}: the structure is {structure}, eager's {expected_structure}")
    truths = pytree.tree_leaves(exact64)
    worst = 0.0
    for (path, found), wanted, truth in zip(leaves, expected, truths, strict=True):
        worst = max(worst, _check_leaf(found, wanted, truth, policy, what + pytree.keystr(path)))
    return worst


def _check_leaf(actual: Any, eager: Any, exact: Any, policy: Policy, what: str) -> float:
    __tracebackhide__ = True
    import torch

    if not isinstance(eager, torch.Tensor):
        if type(actual) is not type(eager):
            raise WrongResult(f"{what}: {actual!r} is no {type(eager).__name__}, as eager's {eager!r} is")
        if isinstance(eager, float):
            found, wanted, truth = (torch.tensor(x, dtype=torch.float64) for x in (actual, eager, exact))
            return _check_tensor(found, wanted, truth, policy, what)
        if actual != eager:
            raise WrongResult(f"{what}: {actual!r} is not eager's {eager!r}")
        return 0.0
    if not isinstance(actual, torch.Tensor):
        raise WrongResult(f"{what}: {actual!r} is no tensor")
    _check_layout(actual, eager, policy, what)
    return _check_tensor(actual.detach(), eager.detach(), exact.detach(), policy, what)


def _check_layout(actual: Tensor, eager: Tensor, policy: Policy, what: str) -> None:
    __tracebackhide__ = True
    facts: list[tuple[str, object, object]] = [
        ("dtype", actual.dtype, eager.dtype),
        ("shape", tuple(actual.shape), tuple(eager.shape)),
        ("device", actual.device, eager.device),
        ("requires_grad", actual.requires_grad, eager.requires_grad),
    ]
    if policy.layout:
        facts.append(("stride", _observable_strides(actual), _observable_strides(eager)))
    for name, found, wanted in facts:
        if found != wanted:
            raise WrongResult(f"{what}: {name} is {found}, eager's {wanted}")


def _observable_strides(tensor: Tensor) -> tuple[int, ...]:
    """The strides that can be observed: a dimension of one element has any."""
    if tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1)


def _check_tensor(actual: Tensor, eager: Tensor, exact: Tensor, policy: Policy, what: str) -> float:
    __tracebackhide__ = True
    import torch

    if actual.numel() == 0:
        return 0.0
    name = str(eager.dtype).removeprefix("torch.")
    if name not in PRECISIONS:
        wrong = actual != eager
        if bool(wrong.any()):
            raise WrongResult(_message(what, wrong, (actual, eager), None))
        return 0.0
    parts = (actual, eager, exact)
    if eager.dtype.is_complex:
        parts = tuple(torch.view_as_real(x.resolve_conj().to(torch.complex128)) for x in parts)
    a, e, x = (part.cpu().to(torch.float64) for part in parts)
    is_plain = a.isfinite() & x.isfinite()
    error = torch.where(is_plain, (a - x).abs(), 0.0)
    own = torch.where(e.isfinite() & x.isfinite(), (e - x).abs(), 0.0)
    ulp = _ulp(x, name)
    worst = float(own.max())
    if eager.dtype in (torch.float64, torch.complex128):
        worst = max(worst, FLOAT64_OWN_ULPS * float(ulp[x.isfinite()].max()) if bool(x.isfinite().any()) else 0.0)
    allowed = (policy.ulps * ulp).clamp(min=policy.k * worst)
    wrong = torch.where(is_plain, error > allowed, ~(_is_equal_or_both_nan(a, x) | _is_equal_or_both_nan(a, e)))
    # the sign of a zero is free only where truth and eager differ about it
    signs = (a.signbit() != x.signbit()) & (a.signbit() != e.signbit())
    wrong |= (a == 0) & (x == 0) & (e == 0) & signs
    if bool(wrong.any()):
        raise WrongResult(_message(what, wrong, (a, e, x), (error, own, allowed)))
    return float((error / allowed).max())


def _is_equal_or_both_nan(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _ulp(x: Tensor, name: str) -> Tensor:
    """The distance between neighbours of the dtype at this magnitude; subnormals have that of the smallest normal."""
    import torch

    precision = PRECISIONS[name]
    exponent = torch.frexp(torch.where(x.isfinite(), x, 1.0)).exponent - 1
    exponent = torch.where(x == 0, precision.min_exponent, exponent).clamp(min=precision.min_exponent)
    # float64's own subnormal ULP is not reached by exponents that exp2 can take
    return torch.exp2((exponent - precision.mantissa).to(torch.float64)).clamp(min=5e-324)


def _message(what: str, wrong: Tensor, values: Sequence[Tensor], errors: tuple[Tensor, Tensor, Tensor] | None) -> str:
    """The worst element, its values and errors, in lines."""
    import torch

    if errors is None:
        place = int(wrong.flatten().to(torch.int8).argmax())
    else:
        error, _, allowed = errors
        excess = torch.where(wrong, torch.nan_to_num(error / allowed, nan=torch.inf), -1.0)
        place = int(excess.flatten().argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), wrong.shape))
    count = int(wrong.sum())
    lines = [f"{what}: {count} of {wrong.numel()} elements are wrong, the worst at {list(index)}"]
    if errors is not None and bool((nans := wrong & (values[0].isnan() != values[1].isnan())).any()):
        first, ours = [int(i) for i in nans.nonzero()[0]], int((nans & values[0].isnan()).sum())
        theirs = int(nans.sum()) - ours
        lines.append(f"  NaN       at {ours} places of compiled only and {theirs} of eager only, the first {first}")
    for name, value in zip(("compiled", "eager", "float64"), values, strict=False):
        lines.append(f"  {name:<9} {value[index].item()!r}")
    if errors is not None:
        error, own, allowed = (part[index].item() for part in errors)
        apart = f"{error:.3g}" if all(map(math.isfinite, (v[index].item() for v in values))) else "no number"
        lines.append(f"  error     {apart}, eager's here {own:.3g}, eager's worst {errors[1].max().item():.3g}")
        lines.append(f"  allowed   {allowed:.3g}")
    return "\n".join(lines)
