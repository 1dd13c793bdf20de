"""Attention that programs write out, compiled with the row `attention`: its numbers beside eager and float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pytest_plugin.oracle.accuracy import Policy
from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import Run
from tests.e2e.attention_programs import NEAR_MISSES, PROGRAMS, B, D, H, L, Program

pytestmark = pytest.mark.devices("cpu")
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
Q = (B, H, L, D)
# what `make test` takes of both tables; tests/frontend/rewrites/test_attention.py takes all, and compiles none
KEPT = (
    *("bert", "gpt2", "llama", "bloom", "einsum_length_first", "in_place", "scale_of_heads", "one_head_of_keys"),
    *("integers", "with_weights", "two_masks", "few_keys", "rounded_scores"),
)


def is_fused(run: Run) -> bool:
    return any("_scaled_dot_product_flash_attention_for_cpu" in text for text in run.wrappers)


def check(compiled: Compile, program: Program, dtype: torch.dtype = F32, **settings: Any) -> None:
    """The program is fused, and as near to float64 as eager is."""
    args = program.arguments(dtype, grad=settings.get("grad", False))
    assert is_fused(compiled(program.fn, *args, **settings))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in KEPT else pytest.mark.long) for n in PROGRAMS])
def test_inference(compiled: Compile, name: str) -> None:
    check(compiled, PROGRAMS[name])


@pytest.mark.parametrize("name", ["bert", "bart", "einsum_length_first"])
def test_dynamic_sizes(compiled: Compile, name: str) -> None:
    check(compiled, PROGRAMS[name], dynamic=True)


def test_other_sizes(compiled: Compile) -> None:
    """One graph for all sizes, also for those at which the fused kernel is not the faster one."""
    einsum = PROGRAMS["einsum"].fn
    run = compiled(einsum, *(torch.randn(Q) for _ in range(3)), dynamic=True)
    assert is_fused(run)
    run.again(*(torch.randn(3, H, 40, D) for _ in range(3)))
    run.again(*(torch.randn(5, H, 300, D) for _ in range(3)))


@pytest.mark.parametrize(
    "name",
    [
        *("bert", "llama", "einsum_length_first"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("gpt2", "nano_gpt", "t5", "bloom", "in_place")),
    ],
)
def test_training_in_16_bits(compiled: Compile, name: str) -> None:
    check(compiled, PROGRAMS[name], BF16, grad=True)


@pytest.mark.parametrize("name", ["bert", "nano_gpt", "llama", "in_place"])
def test_float16(compiled: Compile, name: str) -> None:
    program = PROGRAMS[name]
    if name == "in_place":
        program = Program(partial(hidden_by, -65504.0), (Q, Q, Q, (L, L)), {3: "causal"})
    check(compiled, program, F16)


@pytest.mark.parametrize("size", [1, 7, 80, 100])
def test_head_sizes(compiled: Compile, size: int) -> None:
    shape = (1, 1, L, size)
    check(compiled, Program(PROGRAMS["einsum"].fn, (shape, shape, shape)))


def hidden_by(value: float, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return (q @ k.mT * 0.25).masked_fill(~keep, value).softmax(-1) @ v


def added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.mT * 0.25 + mask).softmax(-1) @ v


def rows_masked_whole() -> Tensor:
    """A causal mask, true where a key counts, with a row without a key and a row with one."""
    keep = torch.ones(L, L, dtype=torch.bool).tril()
    keep[5], keep[7] = False, False
    keep[7, 2] = True
    return keep


def operands(dtype: torch.dtype = F32, *, grad: bool = False) -> list[Tensor]:
    return [torch.randn(Q).to(dtype).requires_grad_(grad) for _ in range(3)]


@pytest.mark.parametrize("value", [-math.inf, torch.finfo(F32).min, -1e9, -1e4])
def test_a_row_that_is_filled_whole(compiled: Compile, value: float) -> None:
    run = compiled(partial(hidden_by, value), *operands(), rows_masked_whole())
    assert is_fused(run)
    assert run.out[..., 5, :].isnan().all() == (value == -math.inf)


@pytest.mark.parametrize("value", [-math.inf, torch.finfo(F32).min])
def test_a_row_whose_mask_hides_it_whole(compiled: Compile, value: float) -> None:
    mask = torch.zeros(L, L).masked_fill(~rows_masked_whole(), value)
    run = compiled(added, *operands(), mask)
    assert is_fused(run)
    assert run.out[..., 5, :].isnan().all() == (value == -math.inf)


@pytest.mark.parametrize("value", [torch.finfo(BF16).min, -1e9])
def test_gradients_of_a_row_that_is_filled_whole(compiled: Compile, value: float) -> None:
    run = compiled(partial(hidden_by, value), *operands(BF16, grad=True), rows_masked_whole(), grad=True)
    assert is_fused(run)
    assert not next(iter(run.grads.values()))[..., 5, :].any()


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_numbers_that_are_not_finite(compiled: Compile, which: int, number: float) -> None:
    args = operands()
    args[which][0, 0, 17, 3] = number
    assert is_fused(compiled(PROGRAMS["einsum"].fn, *args))


def test_a_batch_without_elements(compiled: Compile) -> None:
    compiled(PROGRAMS["einsum"].fn, *(torch.randn(0, H, L, D) for _ in range(3)))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in KEPT else pytest.mark.long) for n in NEAR_MISSES])
def test_a_near_miss(compiled: Compile, name: str) -> None:
    program = NEAR_MISSES[name]
    assert not is_fused(compiled(program.fn, *program.arguments()))


# --- random programs

SPELLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda q, k: torch.matmul(q, k.transpose(-1, -2)),
    "at": lambda q, k: q @ k.permute(0, 1, 3, 2),
    "einsum": lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k),
    "einsum of keys": lambda q, k: torch.einsum("bhjd,bhid->bhij", k, q),
    "bmm": lambda q, k: torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).view(*q.shape[:2], q.shape[2], k.shape[2]),
}
SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda s: s,
    "times": lambda s: s * 0.3,
    "over": lambda s: s / 3,
    "in place": lambda s: s.mul_(0.3),
    "tensor": lambda s: s / torch.full([], 2.5, dtype=s.dtype),
}
MASKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda s, keep: s,
    "fill": lambda s, keep: s.masked_fill(~keep, -math.inf),
    "weak fill": lambda s, keep: s.masked_fill(keep == 0, -1e4),
    "where": lambda s, keep: torch.where(keep, s, torch.finfo(s.dtype).min),
    "where not": lambda s, keep: torch.where(~keep, -math.inf, s),
    "added": lambda s, keep: s + torch.zeros(keep.shape, dtype=s.dtype).masked_fill(~keep, -math.inf),
    "bias": lambda s, keep: s + keep.to(s.dtype) * 0.5,
    "bias and fill": lambda s, keep: (s + keep.to(s.dtype)).masked_fill(~keep, torch.finfo(s.dtype).min),
    "in place": lambda s, keep: s.masked_fill_(~keep, torch.finfo(s.dtype).min),
}
SOFTMAXES: dict[str, Callable[[Tensor], Tensor]] = {
    "method": lambda s: s.softmax(-1),
    "function": lambda s: torch.softmax(s, dim=3),
    "float32": lambda s: torch.nn.functional.softmax(s, dim=-1, dtype=F32).to(s.dtype),
    "module": lambda s: torch.nn.Softmax(dim=-1)(s.float()).type_as(s),
}
MIXINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "at": lambda w, v: w @ v,
    "transposed": lambda w, v: torch.matmul(w, v).transpose(1, 2).contiguous(),
    "einsum": lambda w, v: torch.einsum("bhij,bhjd->bihd", w, v),
}


def shapes_of_masks(batch: int, heads: int, rows: int, columns: int) -> list[tuple[int, ...]]:
    return [
        (rows, columns),
        (1, columns),
        (batch, 1, 1, columns),
        (batch, 1, rows, columns),
        (batch, heads, rows, columns),
        (1, rows, columns),
    ]


@st.composite
def attentions(draw: st.DrawFn) -> tuple[Callable[..., Tensor], list[Tensor], bool]:
    """A program, its arguments, and whether gradients are taken."""
    parts = [draw(st.sampled_from(sorted(table))) for table in (SPELLINGS, SCALES, MASKS, SOFTMAXES, MIXINGS)]
    spelling, scale, mask, softmax, mixing = parts
    dtype, is_long = draw(st.sampled_from([F32, BF16])), draw(st.booleans())
    batch, heads, size = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 7, 8, 20]))
    least = 192 if dtype == F32 and is_long else 2
    rows, columns = (draw(st.integers(least, least + 40)) for _ in range(2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    grad = mask not in ("fill", "where not", "added") and draw(st.booleans())  # their rows may be masked whole by -inf
    args = [random(batch, heads, n, size).to(dtype) for n in (rows, columns, columns)]
    if draw(st.booleans()):
        args = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in args]
    args = [x.requires_grad_(grad) for x in args]
    shape = draw(st.sampled_from(shapes_of_masks(batch, heads, rows, columns)))
    keep = random(*shape) > draw(st.sampled_from([-0.5, 1.5, 3.0]))

    def program(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        scores = MASKS[mask](SCALES[scale](SPELLINGS[spelling](q, k)), keep)
        return MIXINGS[mixing](SOFTMAXES[softmax](scores), v)

    program.__doc__ = ", ".join(parts)
    return program, [*args, keep], grad


@settings(max_examples=settings().max_examples // 16, deadline=None, suppress_health_check=list(HealthCheck))
@given(attentions())
def test_random_programs(compiled: Compile, case: tuple[Callable[..., Tensor], list[Tensor], bool]) -> None:
    program, args, grad = case
    loose = Policy(k=4)  # of so many elements, one that is written out is beyond twice eager's worst error
    compiled(program, *args, grad=grad, policy=loose)
    compiled(program, *args, grad=grad, policy=loose, options={"rewrites": "-attention"})
