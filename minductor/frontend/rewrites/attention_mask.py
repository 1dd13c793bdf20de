"""Writes the mask of a fused attention from the steps that a program applies to its scores.

Takes the steps of `score_steps.py`. Gives the tensor that a fused kernel adds to the scores, and the queries, which are
changed in one case. Refuses (a reason) a mask that the kernel would round.

The kernels give 0 for a row that is masked whole by -inf, and kernels of GPUs also for one that is masked by the
smallest number of a dtype, which they multiply. Eager gives NaN for the first, and the mean of the values for the
second. So the mask of a row that is -inf everywhere becomes NaN; a finite fill becomes -1e30, beside which no score
counts; and on a GPU so does what is less in an added mask.

A gradient is computed from the logarithm of the sum of a row, which a mask of -1e4 or less rounds. If gradients are
needed, a row that is masked whole has its largest number subtracted from its mask; and if that is -1e30, its queries
are 0, which gives the mean too. So do the kernels for float16, which has no -1e30. The gradient of the queries and keys
of such a row is 0, as a fill's is in eager; that of a row which an added mask hides whole is not 0 in eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.rewrite_row import Site
from minductor.frontend.rewrites.score_steps import CASTS, RESHAPES, Step, is_finite, number_of

aten = torch.ops.aten
HIDING = -1e4  # a score of at most this has no weight beside others
FLOOR = -(2.0**100)  # about -1e30, which bfloat16 holds exactly: a score plus this is this
SHIFTED = -1e3  # from here on a gradient would be too inexact


def fills(steps: Sequence[Step]) -> Sequence[Any]:
    """The values of the fills."""
    return [step.value for step in steps if step.kind == "fill"]


def added_masks(steps: Sequence[Step]) -> Sequence[Any]:
    """The masks that are added or subtracted."""
    return [step.value for step in steps if step.kind in ("add", "subtract")]


def is_narrow(site: Site) -> bool:
    """Whether the kernel takes masks of the dtype of the queries only."""
    return site.is_gpu or bool(site.autocast)


def why_not_rounded(mask: object, dtype: torch.dtype, site: Site) -> str:
    """The reason why an added mask must not be rounded to a dtype; "" if it need not, or if no weight changes."""
    value = site.value(mask)
    if not is_narrow(site) or value.dtype == dtype or dtype.itemsize > 2 or _only_hides(mask, site):
        return ""
    was, now = (str(each).removeprefix("torch.") for each in (value.dtype, dtype))
    return f"its mask is {was}, which the fused kernel would round to {now}"


def _only_hides(node: object, site: Site) -> bool:
    """Whether all elements of a tensor are 0 or hide a score, so that rounding the tensor changes no weight."""
    call = site.call(node)
    if call is None:
        return False
    if call.op in ("aten.zeros", "aten.zeros_like"):
        return True
    if call.op in (*CASTS, *RESHAPES, "aten.slice", "aten.clone", "aten.contiguous"):
        return _only_hides(call.first, site)
    if call.op in ("aten.masked_fill", "aten.masked_fill_"):
        return _hides(call.get("value"), site) and _only_hides(call.first, site)
    if call.op == "aten.where":
        return all(_hides(call.get(name), site) or _only_hides(call.get(name), site) for name in ("self", "other"))
    if call.op == "aten.mul" and len(call.arguments) == 2:
        one, other = call.arguments.values()
        return any(is_finite(a) and abs(a) >= -HIDING and _is_whole(b, site) for a, b in ((one, other), (other, one)))
    return False


def _hides(value: object, site: Site) -> bool:
    number = number_of(value, site)
    return isinstance(number, int | float) and (number == 0 or number <= HIDING)


def _is_whole(node: object, site: Site) -> bool:
    """Whether all elements of a tensor are whole numbers."""
    if isinstance(node, int | float):
        return float(node).is_integer()
    value, call = site.tensor(node), site.call(node)
    if value is not None and not value.dtype.is_floating_point and not value.dtype.is_complex:
        return True
    if call is None:
        return False
    if call.op in ("aten.sub", "aten.rsub", "aten.add", "aten.neg") and "alpha" not in call.arguments:
        return all(_is_whole(each, site) for each in call.arguments.values())
    return call.op in (*CASTS, *RESHAPES, "aten.clone", "aten.contiguous") and _is_whole(call.first, site)


def mask_of(
    steps: Sequence[Step], q: fx.Node, raised: Callable[[fx.Node, Step], fx.Node], dtype: torch.dtype, site: Site
) -> tuple[fx.Node, fx.Node | None]:
    """The queries, and the mask that the fused kernel adds to the scores; None for no mask.

    Args:
        steps: what the program does to the scores.
        q: the queries, with four axes.
        raised: `(mask, step)`: writes a mask of the scores that a step reads for scores of four axes.
        dtype: the dtype of the queries.
        site: where to write.
    """
    values = [site.value(mask).dtype for mask in added_masks(steps)]
    is_float16, is_trained = dtype == torch.float16, site.value(site.before).requires_grad
    is_shifted = is_trained or (is_float16 and is_narrow(site))
    kind = dtype
    is_mixed = not is_narrow(site) and any(value != dtype for value in values)
    if dtype.itemsize == 2 and (is_float16 or is_shifted or is_mixed):
        kind = torch.float32
    mask = None
    for step in steps:
        mask = _with_step(mask, step, raised, kind, site, is_alone=not values)
    if mask is None:
        return q, None
    while site.value(mask).dim() in (1, 3):  # the operator takes two axes or four
        mask = site.write(aten.unsqueeze.default, mask, 0)
    if is_shifted or values or -math.inf in fills(steps):
        most = site.write(aten.amax.default, mask, [-1], True)
        if is_shifted:
            shifted = site.write(aten.sub.Tensor, mask, most)  # NaN in a row of -inf
            mask = site.write(aten.where.self, site.write(aten.lt.Scalar, most, SHIFTED), shifted, mask)
            q = site.write(aten.where.ScalarSelf, site.write(aten.le.Scalar, most, FLOOR), 0.0, q)
        else:
            mask = site.write(aten.where.ScalarSelf, site.write(aten.eq.Scalar, most, -math.inf), math.nan, mask)
    if is_narrow(site) and site.value(mask).dtype != dtype:
        mask = site.write(aten.to.dtype, mask, dtype)
    return q, site.write(aten.contiguous.default, mask)


def _with_step(
    mask: fx.Node | None,
    step: Step,
    raised: Callable[[fx.Node, Step], fx.Node],
    kind: torch.dtype,
    site: Site,
    *,
    is_alone: bool,
) -> fx.Node | None:
    """The mask after one more step, in the dtype `kind`. `is_alone`: only fills make the mask."""
    if step.kind in ("scale", "divide"):
        multiply = aten.mul.Tensor if step.kind == "scale" else aten.div.Tensor
        return None if mask is None else site.write(multiply, mask, step.value)
    if step.kind == "fill" and step.mask is not None:
        hidden = raised(step.mask, step)
        hidden = site.write(aten.logical_not.default, hidden) if step.keeps else hidden
        value = step.value
        if is_finite(value):
            value = FLOOR if is_alone or is_narrow(site) else max(value, torch.finfo(kind).min)
        if mask is not None:
            return site.write(aten.where.ScalarSelf, hidden, value, mask)
        zeros = site.write(aten.zeros_like.default, hidden, dtype=kind)
        return site.write(aten.masked_fill.Scalar, zeros, hidden, value)
    added = raised(step.value, step)
    added = site.write(aten.neg.default, added) if step.kind == "subtract" else added
    if is_narrow(site) and site.value(added).dtype != torch.float16:
        clamped = site.write(aten.clamp_min.default, added, FLOOR)
        added = site.write(aten.where.self, site.write(aten.eq.Scalar, added, -math.inf), added, clamped)
    if site.value(added).dtype != kind:
        added = site.write(aten.to.dtype, added, kind)
    return added if mask is None else site.write(aten.add.Tensor, mask, added)
