"""How far one unit in the last place of every rounded result moves the results of a function: its condition, measured.

Takes a function of no arguments, which calls ATen. Gives what it returns when each floating result of each operator
below it, in the backward too, is moved by up to a unit in its last place. Refuses nothing: what moves no results, such
as a view or a comparison, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_plugin.oracle.tolerances import PRECISIONS

RUNS = 24
FACTOR = 4.0  # of what the noise does, since rounding may also go the same way each time


class Noise(TorchDispatchMode):
    """Moves results, the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        out = func(*args, **(kwargs or {}))
        if func.is_view or func._schema.is_mutable:
            return out
        return pytree.tree_map_only(torch.Tensor, self._moved, out)

    def _moved(self, value: torch.Tensor) -> torch.Tensor:
        name = str(value.dtype).removeprefix("torch.")
        if name not in PRECISIONS or value.layout != torch.strided:
            return value
        noise = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        with torch.no_grad():
            return value.mul_((1 + noise * 2.0 ** -PRECISIONS[name].mantissa).to(value.dtype))


def noisy(fn: Callable[[], Any]) -> list[Any]:
    """Some runs; those that raise are left out."""
    found: list[Any] = []
    for seed in range(RUNS):
        try:
            with Noise(seed):
                found.append(fn())
        except Exception:  # an index that left its range
            continue
    return found


def explains(got: Any, eager: Any, truth: Any, runs: list[Any]) -> bool:
    """Whether each element of `got` is as near to the truth as the noisy runs of eager are."""
    alike = [r for r in runs if isinstance(r, torch.Tensor) and r.shape == eager.shape and r.dtype == eager.dtype]
    if not alike or not (got.dtype.is_floating_point or got.dtype.is_complex) or got.shape != eager.shape:
        return False
    wide = torch.complex128 if got.dtype.is_complex else torch.float64
    exact = (eager if truth is None else truth).to(wide)
    errors = torch.stack([(run.to(wide) - exact).abs().nan_to_num(0.0) for run in alike]).amax(0)
    same = (got == eager) | (got.isnan() & eager.isnan())
    return bool((same | ((got.to(wide) - exact).abs() <= FACTOR * errors)).all())
