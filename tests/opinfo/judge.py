"""Compares one result of a compiled function with eager's and with the float64 truth.

Takes the three as tensors or numbers. Gives None, or a line that says what differs; refuses nothing. How far a
value may be from the truth is the plugin's own rule (pytest_plugin/oracle/accuracy.py).
"""

from __future__ import annotations

from typing import Any

import torch

from pytest_plugin.oracle.accuracy import Policy, WrongResult, check_accuracy

CLOSER = Policy(layout=False)  # strides are compared here, of what has elements
EXACT = Policy(k=0.0, ulps=0.0, layout=False)  # without a truth


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
    try:
        check_accuracy(got, eager, eager if truth is None else truth, policy=EXACT if truth is None else CLOSER)
    except WrongResult as found:
        return "value: " + " ".join(str(found).partition(": ")[2].split())
    return None


def strides(x: torch.Tensor) -> tuple[int, ...]:
    """Those that can be seen: of dimensions of more than one element, in a tensor that has elements."""
    return tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1) if x.numel() else ()
