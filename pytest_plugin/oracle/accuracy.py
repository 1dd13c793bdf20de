"""The numeric oracle: a compiled result may be about as far from the float64 truth as eager's result is.

Takes three values of the same structure: compiled, eager, and the float64 truth. Gives the worst error as a share of
the allowed one. Refuses, by WrongResult, an error that is too large, and a dtype, shape, device or stride that is not
eager's; the message shows the worst element.

The allowed error of an element is the larger of two: k times eager's worst error in that tensor, and a number of ULPs
(units in the last place of the result's dtype, at the true value's magnitude). Integers and bools must be equal. NaN,
infinities and the sign of zero must be those of the truth or of eager.
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
    """The tolerances.

    Attributes:
        k: How many times eager's worst error is allowed.
        ulps: How many units in the last place of the result's dtype are allowed.
        layout: Whether strides must be eager's.
    """

    k: float = K
    ulps: float = ULPS
    layout: bool = True


DEFAULT_POLICY = Policy()


def read_policy(words: Sequence[str]) -> Policy:
    """Returns the default policy, changed by words such as "k=3", "ulps=8" or "layout=false".

    Args:
        words: The value of the ini key `numeric_policy`.

    Returns:
        The policy.

    Raises:
        ValueError: A word is none of these.

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
    """A compiled result is not what it should be."""


def check_accuracy(
    actual: Any, eager: Any, exact64: Any, *, policy: Policy = DEFAULT_POLICY, what: str = "result"
) -> float:
    """Checks that a result is as accurate as eager's.

    No function is run. Tensors may have any dtype; what is no tensor and no float must be equal to eager's.

    Args:
        actual: The result to check: nested tuples, lists and dicts of tensors, numbers and other values.
        eager: Eager's result, of the same structure.
        exact64: The same computed in float64 (complex128 for complex values), of the same structure.
        policy: The tolerances.
        what: How the message names the result.

    Returns:
        The worst error of all elements as a share of the allowed error: at most 1.

    Raises:
        WrongResult: The structure, a dtype, shape, device, stride or requires_grad is not eager's, or an element is
            too far from the truth.
    """
    __tracebackhide__ = True
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten_with_path(actual)
    expected, expected_structure = pytree.tree_flatten(eager)
    if structure != expected_structure:
        raise WrongResult(f"{what}: the structure is {structure}; in eager it is {expected_structure}")
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
            raise WrongResult(f"{what}: {actual!r} is a {type(actual).__name__}; eager gives {eager!r}")
        if isinstance(eager, float):
            found, wanted, truth = (torch.tensor(x, dtype=torch.float64) for x in (actual, eager, exact))
            return _check_tensor(found, wanted, truth, policy, what)
        if actual != eager:
            raise WrongResult(f"{what}: {actual!r}; eager gives {eager!r}")
        return 0.0
    if not isinstance(actual, torch.Tensor):
        raise WrongResult(f"{what}: {actual!r} is not a tensor; eager gives one")
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
            raise WrongResult(f"{what}: {name} is {found}; in eager it is {wanted}")


def _observable_strides(tensor: Tensor) -> tuple[int, ...]:
    """Returns the strides that matter: a dimension of one element may have any stride."""
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
    # The sign of a zero is checked only where the truth and eager agree on it.
    signs = (a.signbit() != x.signbit()) & (a.signbit() != e.signbit())
    wrong |= (a == 0) & (x == 0) & (e == 0) & signs
    if bool(wrong.any()):
        raise WrongResult(_message(what, wrong, (a, e, x), (error, own, allowed)))
    return float((error / allowed).max())


def _is_equal_or_both_nan(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _ulp(x: Tensor, name: str) -> Tensor:
    """Returns the distance between neighbouring numbers of a dtype at the magnitude of each element.

    Subnormal numbers and zero have the distance of the smallest normal number.
    """
    import torch

    precision = PRECISIONS[name]
    exponent = torch.frexp(torch.where(x.isfinite(), x, 1.0)).exponent - 1
    exponent = torch.where(x == 0, precision.min_exponent, exponent).clamp(min=precision.min_exponent)
    # exp2 underflows to 0 for the ULP of float64's subnormal numbers, which is 5e-324.
    return torch.exp2((exponent - precision.mantissa).to(torch.float64)).clamp(min=5e-324)


def _message(what: str, wrong: Tensor, values: Sequence[Tensor], errors: tuple[Tensor, Tensor, Tensor] | None) -> str:
    """Returns the lines of a failure: how many elements are wrong, and the worst one with its values and errors."""
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
        lines.append(f"  NaN       only compiled has {ours}, only eager has {theirs}; the first is at {first}")
    for name, value in zip(("compiled", "eager", "float64"), values, strict=False):
        lines.append(f"  {name:<9} {value[index].item()!r}")
    if errors is not None:
        error, own, allowed = (part[index].item() for part in errors)
        apart = f"{error:.3g}" if all(map(math.isfinite, (v[index].item() for v in values))) else "not a number"
        lines.append(f"  error     {apart}; eager's error here {own:.3g}, at worst {errors[1].max().item():.3g}")
        lines.append(f"  allowed   {allowed:.3g}")
    return "\n".join(lines)
