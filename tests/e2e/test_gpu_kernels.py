"""Show pieces of GPU kernels, as text that a Triton engineer reads: each is compiled, and its numbers are tested
elsewhere in the interpreter (test_interpret.py, test_gpu_models.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_plugin.oracle.compiled import Compile

Case = tuple[Callable[..., Any], tuple[Tensor, ...]]


def adam_step(params: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor]) -> None:
    """One step of Adam as torch.optim spells it with foreach operators."""
    torch._foreach_lerp_(means, grads, 0.1)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, grads, grads, 0.001)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, 1e-8)
    torch._foreach_addcdiv_(params, means, roots, -0.001)


class Attention(nn.Module):
    """Projections and norms around an attention that stays a call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(256), nn.Linear(256, 768), nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, 64)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(y.transpose(1, 2).flatten(-2)))


def cases() -> dict[str, Case]:
    x = torch.randn(512, 1024)
    ids = torch.randint(0, 512, (4096,))
    return {
        "layer_norm_of_gelu": (lambda x: F.layer_norm(F.gelu(2 * x + 1), (1024,)), (x,)),
        "softmax_of_short_rows": (lambda x: torch.softmax(x, -1), (torch.randn(4096, 33),)),
        "softmax_of_long_rows": (lambda x: torch.softmax(x, -1), (torch.randn(256, 10000),)),
        "cross_entropy_of_long_rows": (
            F.cross_entropy,
            (torch.zeros(1024, 128256, dtype=torch.bfloat16), torch.zeros(1024, dtype=torch.int64)),
        ),
        "transposed_add": (lambda x, y: x + y.t(), (x, torch.randn(1024, 512))),
        "cat": (lambda x, y: torch.relu(torch.cat([x, y], 1)), (x, torch.randn(512, 100))),
        "cat_of_odd_parts": (
            lambda x, y: torch.cat([x * 2, y * 3], 1),
            (torch.randn(512, 1001).bfloat16(), torch.randn(512, 95).bfloat16()),
        ),
        "pad": (lambda x: F.pad(x, (1, 2, 3, 0), value=1.0) * 2, (x,)),
        "embedding": (lambda x, ids: F.embedding(ids, x) + 1, (x, ids)),
        "scatter_add": (lambda x, ids, y: x.index_add(0, ids, y), (x, ids, torch.randn(4096, 1024))),
        "cumsum": (lambda x: x.cumsum(1), (x,)),
        "argmax": (lambda x: x.argmax(1), (x,)),
        "var_mean": (lambda x: torch.var_mean(x, dim=1), (x,)),
        "sum_of_columns": (lambda x: x.sum(0), (torch.randn(4096, 1000),)),
    }


@pytest.mark.devices("compile:sm_90")
@pytest.mark.parametrize("name", cases())
@pytest.mark.counts(spills=0, externs=0)
@pytest.mark.golden(level="canonical")
def test_kernel(compiled: Compile, name: str) -> None:
    fn, given = cases()[name]
    compiled(fn, *given)


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="until 2.12 torch takes _foreach_lerp_ apart in another way")
@pytest.mark.devices("compile:sm_90")
@pytest.mark.counts(spills=0, externs=0)
@pytest.mark.golden(level="canonical")
def test_adam_step(compiled: Compile) -> None:
    sizes = ((128, 64), (128,), (64, 128))
    compiled(adam_step, *([torch.rand(size) for size in sizes] for _ in range(4)))


@pytest.mark.devices("compile:sm_90")
@pytest.mark.counts(spills=0, externs=0)
@pytest.mark.golden(level="canonical")
def test_cross_entropy(compiled: Compile) -> None:
    compiled(F.cross_entropy, torch.randn(512, 1000), torch.randint(0, 1000, (512,)), grad=True)


@pytest.mark.devices("compile:sm_90")
@pytest.mark.counts(spills=0)
@pytest.mark.golden(level="canonical")
def test_dropout(compiled: Compile) -> None:
    compiled(lambda x: F.dropout(x, 0.2) * 2, torch.randn(512, 1024), options={"fuse_random": True})


@pytest.mark.devices("compile:sm_90")
@pytest.mark.counts(spills=0)
@pytest.mark.golden(level="canonical")
def test_attention(compiled: Compile) -> None:
    compiled(Attention().eval(), torch.randn(2, 128, 256), grad=False)
