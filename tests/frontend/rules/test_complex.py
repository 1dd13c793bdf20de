"""Rules of complex tensors against eager: values, layouts, gradients, mutation, infinities and NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.frontend.tracing import compiled, grads, lowered, randn


def numbers(*size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.complex(randn(*size, seed=seed, dtype=dtype), randn(*size, seed=seed + 100, dtype=dtype))


Z, W, X = numbers(3, 4), numbers(3, 4, seed=1), randn(3, 4)
PROGRAMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "arithmetic": lambda z, w, x: 1 - torch.add(z + w * 3j, w / z, alpha=2) * x / 2 + w.square() - 1 / w + (-z),
    "real": lambda z, w, x: z.abs() + (z * w).angle() + w.real * z.imag + (z - w).norm(dim=1, keepdim=True),
    "made": lambda z, w, x: torch.polar(z.real, w.real) + torch.complex(w.imag, z.imag) + torch.full((4,), 1 + 2j) * x,
    "chosen": lambda z, w, x: torch.where(x > 0, z, w).masked_fill(x > 1, 2j) * torch.where(z == w, w.sgn(), z.conj()),
    "sums": lambda z, w, x: z.sum(0) * w.mean(-1, keepdim=True) + w.cumsum(1) + torch.ones_like(z).sum(),
    "moved": lambda z, w, x: torch.cat([z, w * x]).flip(0).reshape(2, 12).t().tril() * 2,
    "read": lambda z, w, x: torch.view_as_complex(torch.view_as_real(z * w) * x[..., None]) + w,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    """With gradients, in both dtypes, contiguous and not."""
    assert set(lowered(PROGRAMS[name], *grads(Z, W), X).externs) <= {
        "aten.clone.default"
    }  # copies of memory that may hold conjugates
    wide = numbers(4, 3, dtype=torch.float64).t()
    assert not lowered(PROGRAMS[name], wide, wide.flip(0), X.double()).externs


SPECIAL = [complex(a, b) for a in (0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e30) for b in (0.0, 2.0, math.inf)]


def test_infinities_and_nan_stand_where_eager_has_them() -> None:
    """Ones fill the last SIMD vector: eager computes the elements behind the last whole vector by another formula."""
    table = torch.cartesian_prod(torch.tensor(SPECIAL), torch.tensor(SPECIAL)).t()
    table = torch.cat([table, torch.ones(2, 512 - table.shape[1])], 1)
    fns: list[Callable[[Tensor, Tensor], Tensor]] = [
        *(torch.add, torch.sub, torch.mul, torch.div, torch.eq),
        *(lambda z, w: z * 2, lambda z, w: z / 2, lambda z, w: 1 / z, lambda z, w: z**2, lambda z, w: z.isnan()),
        *(lambda z, w: z.abs(), lambda z, w: z.angle(), lambda z, w: z[:40].mean()),
    ]
    assert not lowered(lambda z, w: [fn(z, w) for fn in fns], *table).externs


@pytest.mark.parametrize("size", [(0, 4), (1, 1), ()])
def test_of_no_element_and_of_one(size: tuple[int, ...]) -> None:
    lowered(lambda z, w: ((z * w + 1).clone().abs(), torch.view_as_real(z * 2), z + w), numbers(*size), numbers(*size))


def test_real_tensors_made_of_complex_ones() -> None:
    """zeros_like and its kin with a real dtype; and bools, for which the imaginary component counts too."""

    def fn(z: Tensor) -> tuple[Tensor, ...]:
        w = z * 2
        like = [make(w, dtype=torch.float32) for make in (torch.zeros_like, torch.ones_like)]
        new = w.new_zeros(2), w.new_ones(2, dtype=torch.bool), w.new_full((2,), 1.5, dtype=torch.float64)
        return (*like, *new, torch.full_like(w, 3, dtype=torch.int64), w.to(torch.bool), w.real.bool())

    assert not lowered(fn, torch.tensor([0, 1, 1j, 1 + 1j, -0.0])).externs


def test_what_is_called_gets_complex_memory() -> None:
    """Extern calls are given interleaved memory, made once from both components in the traced layout."""
    seen = lowered(lambda x, w: torch.fft.irfft(torch.fft.rfft(x) * w.t().conj()), randn(3, 8), numbers(5, 3))
    assert len(seen.externs) == 2
    seen = compiled(lambda z, w: torch.diagonal_scatter(z, w, 1, 1, 2), numbers(4, 4, 4), numbers(4, 3), dynamic=True)
    assert not seen.externs  # a diagonal has no element twice, whatever the sizes
    seen = lowered(lambda z, w: ((z * w).t() @ w, (z * w) @ w.t()), Z, W)
    assert len(seen.kernels) == 8


def test_writes_into_complex_tensors() -> None:
    def fn(z: Tensor, w: Tensor) -> Tensor:
        z.mul_(w)
        z[1:] += 1j
        w.copy_(w.flip(0).conj())
        z.real.add_(2)
        return z.imag * 2

    compiled(fn, Z.clone(), W.clone())
    compiled(lambda z: z.copy_(z.t() * 2), numbers(4, 4))


def test_memory_with_conjugates() -> None:
    """Memory that may hold conjugates is read through a copy that torch makes, and written by torch."""
    compiled(lambda z, w: (z * w, z.t()[1:].abs(), z.conj().real), Z.conj(), W)
    compiled(lambda z, w: z.mul_(w), numbers(3, 4).conj(), W)


def test_sizes_that_are_symbols() -> None:
    def rotated(x: Tensor, w: Tensor) -> Tensor:
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * w).flatten(2)

    assert not compiled(rotated, randn(2, 3, 8), numbers(4), dynamic=True).externs
    compiled(rotated, randn(2, 3, 10)[..., 2:], numbers(4), dynamic=True)


def test_what_is_no_pair_of_float32_or_float64_is_called() -> None:
    assert lowered(lambda x: torch.complex(x, x) * 2, X.half()).externs
    assert lowered(lambda z: z.log(), Z).externs == ["aten.log.default"]
