"""Compares one result of a compiled function with eager's and with the float64 truth.

Takes the three as tensors or numbers. Gives None, or a line that says what differs; refuses nothing.
"""

from __future__ import annotations

from typing import Any

import torch

ULPS = 4


def difference(got: Any, eager: Any, truth: Any) -> str | None:
    """What is wrong with `got`. Without a truth, floating results must be eager's own bits."""
    if not isinstance(eager, torch.Tensor):
        return None if got == eager or got != got else f"value: {got!r}, eager {eager!r}"
    for what in ("dtype", "shape"):
        if getattr(got, what) != getattr(eager, what):
            return f"{what}: {getattr(got, what)}, eager {getattr(eager, what)}"
    if strides(got) != strides(eager):
        return f"stride: {got.stride()}, eager {eager.stride()} of {tuple(eager.shape)}"
    if got.dtype.is_complex:
        got, eager = torch.view_as_real(got.resolve_conj()), torch.view_as_real(eager.resolve_conj())
        truth = torch.view_as_real(truth.resolve_conj()) if truth is not None else None
    if torch.equal(got, eager):
        return None
    if truth is None or not got.dtype.is_floating_point:
        wrong = (got != eager) & ~((got != got) & (eager != eager))
        return _first("value", wrong, got, eager, eager) if wrong.any() else None
    return _further(got, eager, truth.double())


def strides(x: torch.Tensor) -> tuple[int, ...]:
    """Those that can be seen: of dimensions of more than one element, in a tensor that has elements."""
    return tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1) if x.numel() else ()


def _further(got: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor) -> str | None:
    """Not finite where eager is, or further from the truth than eager and the rounding allow."""
    wide, plain = got.double(), eager.double()
    odd = ~(wide.isfinite() & plain.isfinite())
    same = (wide == plain) | (wide.isnan() & plain.isnan())
    if (odd & ~same).any():
        right = (wide == truth.to(got.dtype).double()) | (wide.isnan() & truth.isnan())
        bad = odd & ~same & ~right
        if bad.any():
            return _first("not finite", bad, got, eager, truth)
    ok = ~odd & truth.isfinite()
    info = torch.finfo(got.dtype)
    far = (wide - truth).abs()
    eager_far = torch.where(ok, (plain - truth).abs(), 0.0).max()
    allowed = torch.maximum(2 * eager_far, ULPS * (info.eps * truth.abs() + info.smallest_normal))
    if got.dtype == torch.float64:  # nothing wider tells what eager's own error is
        allowed += 8 * ULPS * info.eps * torch.where(ok, truth.abs(), 0.0).max()
    bad = ok & (far > allowed)
    return _first("value", bad, got, eager, truth) if bad.any() else None


def _first(what: str, bad: torch.Tensor, got: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor) -> str:
    far = torch.where(bad, (got.double() - truth.double()).abs().nan_to_num(torch.inf, torch.inf), -1.0)
    at = tuple(int(i) for i in torch.unravel_index(far.argmax(), far.shape)) if far.dim() else ()
    count = f"{int(bad.sum())} of {bad.numel()}"
    return f"{what}: {count}, at {at} {got[at].item()!r}, eager {eager[at].item()!r}, float64 {truth[at].item()!r}"
