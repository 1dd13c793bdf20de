"""What runs above the compiler: autocast, torch.func, compiled autograd, hooks, subclasses; equal to eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import func
from torch._dynamo.utils import counters
from torch.testing._internal.two_tensor import TwoTensor

from minductor.core.errors import RanInEager
from minductor.driver import Compiled, Compiler


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def same(fn: Callable[..., Any], *args: torch.Tensor) -> None:
    expected, found = fn(*args), torch.compile(fn, backend=Compiler())(*args)
    torch.testing.assert_close(found, expected)


def test_autocast() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))

    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return net(x).softmax(-1)

    x = torch.randn(4, 8)
    expected, found = fn(x), torch.compile(fn, backend=Compiler())(x)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=3e-2, atol=1e-2)


def f(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).sum()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: func.grad(f)(x),
        lambda x: func.vmap(func.grad(f))(x),
        lambda x: func.jvp(f, (x,), (x.cos(),)),
        lambda x: func.jacrev(lambda y: y.tanh() * 2)(x[0]),
        lambda x: func.jacfwd(lambda y: y.exp())(x[0]),
        lambda x: func.grad(lambda y: func.grad(f)(y).square().sum())(x),
    ],
    ids=["grad", "vmap of grad", "jvp", "jacrev", "jacfwd", "grad of grad"],
)
def test_function_transforms(fn: Callable[..., Any]) -> None:
    same(fn, torch.randn(3, 4))


def test_functional_call() -> None:
    net = torch.nn.Linear(4, 3)

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return func.functional_call(net, {"weight": w}, (x,))

    same(fn, torch.randn(2, 4), torch.randn(3, 4))


def test_compiled_autograd() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x = torch.randn(3, 4)

    def train() -> None:
        for _ in range(2):  # the second time gradients are written to
            net(x).square().sum().backward()

    train()
    expected = [p.grad for p in net.parameters()]
    net.zero_grad()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=Compiler())), warnings.catch_warnings():
        warnings.simplefilter("error", RanInEager)  # tanh's result, which is saved twice, is not written to
        train()
    torch.testing.assert_close([p.grad for p in net.parameters()], expected)


def test_dynamo_traces_no_compiler() -> None:
    """A backward that the traced program starts is compiled and run beside the tracing."""
    weight = torch.ones(4, requires_grad=True)

    def frames(backend: Any) -> int:
        torch._dynamo.reset()
        counters.clear()

        def step(x: torch.Tensor) -> None:
            (x * weight).sin().sum().backward()

        torch.compile(step, backend=backend)(torch.ones(4))
        return counters["frames"]["total"]

    frames(Compiler())  # torch 2.11 also traces what the modules do that a first call imports
    assert frames(Compiler()) <= frames("aot_eager") + 1  # torch 2.11 traces typing.cast


def test_hooks_see_gradients() -> None:
    def grads(fn: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []
        x = torch.arange(4.0).requires_grad_()
        x.register_hook(lambda g: seen.append(g * 1))
        y = fn(x)
        y.register_hook(lambda g: g * 2)
        y.sum().backward()
        assert x.grad is not None
        return [*seen, x.grad]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x * x).sin()

    torch.testing.assert_close(grads(torch.compile(fn, backend=Compiler())), grads(fn))


def test_tensor_subclass() -> None:
    x = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sin().sum(1)

    expected, found = fn(x), torch.compile(fn, backend=Compiler())(x)
    torch.testing.assert_close((found.a, found.b), (expected.a, expected.b))


def attended(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x.transpose(-1, -2) / 64, -1) @ x


def enlarged(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.interpolate(x, scale_factor=2).sin()


@pytest.mark.parametrize(
    ("rewritten", "size"),
    [(attended, (2, 4, 256, 64)), (enlarged, (2, 2, 16, 16))],
    ids=["attention", "repeat_elements"],
)
def test_what_a_transform_traces_is_not_rewritten(
    rewritten: Callable[[torch.Tensor], torch.Tensor], size: tuple[int, ...]
) -> None:
    """Its tensors have no memory that could be compared, and sizes that only the transform knows."""
    x = torch.randn(size)
    same(lambda x: func.grad(lambda y: rewritten(y).sum())(x), x)
    same(lambda x: func.vmap(rewritten)(x), x[None].expand(3, -1, -1, -1, -1))
    same(lambda x: func.jvp(rewritten, (x,), (x.cos(),)), x)
    same(rewritten, x)


def test_hooks_under_compiled_autograd_are_compiled() -> None:
    """With dynamic sizes AOTAutograd asks for a backward that nobody runs; that one was said to run in eager."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x * w
        y.register_hook(lambda g: g * 2)
        return y.sin()

    x, w = torch.randn(4), torch.randn(4, requires_grad=True)
    (expected,) = torch.autograd.grad(fn(x, w).sum(), w)
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=compiler)), warnings.catch_warnings():
        warnings.simplefilter("error", RanInEager)
        torch.compile(fn, backend=compiler, dynamic=True, options={"fallback": "error"})(x, w).sum().backward()
    torch.testing.assert_close(w.grad, expected)
    assert [made.role for made in seen] == ["forward", "inference"]
