"""How often functions are compiled that are called with several sizes: never more often than by aot_eager.

With dynamic=True once; left to torch twice, as the first call's sizes are numbers. Nothing that minductor does while it
compiles may add a guard. The kernels are not compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.registry import lookup_backend

from minductor.driver import Compiler

SIZES = ((4, 12), (6, 10), (5, 16))  # the first, and one that differs from it in both, and a third

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def perceptron(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x + F.gelu(x @ w) @ w.T, (16,)).mean(1)


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    q, k, v = (t.unflatten(2, (2, 8)).transpose(1, 2) for t in (x @ w, x, x * 2))
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    weights = (q @ k.mT / 8**0.5).masked_fill(~mask, -torch.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def convolution(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.conv1d(x.mT, w[:, :, None].expand(16, 16, 3), padding=1)
    return F.avg_pool1d(F.batch_norm(y, None, None, training=True).relu(), 2)


def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy((x[:, :-1] @ w).flatten(0, 1), torch.arange(x.shape[1] - 1).repeat(x.shape[0]) % 16)


def recurrence(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    state = x.new_zeros(x.shape[0], 16)
    for n in range(3):
        state = torch.tanh(torch.cat([state, x[:, n]], 1).view(-1, 2, 16).sum(1) @ w)
    return torch.stack([state, x[:, -1]], 1).cumsum(1)


MODELS: tuple[Callable[..., torch.Tensor], ...] = (perceptron, attention, convolution, loss, recurrence)


def compiles(model: Callable[..., Any], backend: Callable[..., Any], *, grad: bool, dynamic: bool | None) -> int:
    """How often, as the sizes are called one after the other."""
    graphs: list[torch.fx.GraphModule] = []

    def counted(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return backend(gm, inputs)

    compiled = torch.compile(model, backend=counted, dynamic=dynamic)
    for rows, steps in SIZES:
        given = [torch.randn(*size, requires_grad=grad) for size in ((rows, steps, 16), (16, 16))]
        result = compiled(*given)
        if grad:
            result.sum().backward()
    return len(graphs)


REGULAR = (attention, convolution, recurrence)


@pytest.mark.parametrize("grad", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("model", [pytest.param(m, marks=() if m in REGULAR else pytest.mark.long) for m in MODELS])
def test_one_compile_for_any_size(model: Callable[..., Any], grad: bool) -> None:
    assert compiles(model, Compiler(is_dry=True), grad=grad, dynamic=True) == 1


@pytest.mark.parametrize("model", [MODELS[0], *(pytest.param(model, marks=pytest.mark.long) for model in MODELS[1:])])
def test_two_where_torch_finds_out_what_varies(model: Callable[..., Any]) -> None:
    assert compiles(model, Compiler(is_dry=True), grad=False, dynamic=None) == 2


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_aot_eager_compiles_as_often(model: Callable[..., Any]) -> None:
    backend = lookup_backend("aot_eager")
    assert [compiles(model, backend, grad=grad, dynamic=True) for grad in (False, True)] == [1, 1]


def test_a_guard_that_a_backend_adds_is_counted() -> None:
    def careless(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return gm.forward if [int(given) for given in inputs if isinstance(given, torch.SymInt)] else gm

    assert compiles(perceptron, careless, grad=False, dynamic=True) > 1
