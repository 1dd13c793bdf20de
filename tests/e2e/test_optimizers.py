"""Optimisers' steps, compiled: five of them equal eager's, in few kernels whatever the number of parameters.

Takes parameters of five shapes and their gradients. Each optimiser runs in eager beside the compiled one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import optim

from minductor.core.errors import RanInEager
from minductor.driver import Compiled, Compiler

SHAPES = ((8, 8), (8,), (16, 4), (), (3, 5, 2))
STEPS = 5

# name -> how it is made, and the most kernels that a step may take
CASES: Mapping[str, tuple[Callable[..., optim.Optimizer], Mapping[str, Any], int]] = MappingProxyType(
    {
        "sgd": (optim.SGD, {"lr": 0.1, "weight_decay": 0.01}, 2),
        "momentum": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}, 2),
        "nesterov": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}, 2),
        "adam": (optim.Adam, {"lr": 0.1}, 4),
        "adam, amsgrad": (optim.Adam, {"lr": 0.1, "amsgrad": True, "weight_decay": 0.01}, 4),
        "adamw": (optim.AdamW, {"lr": 0.1, "maximize": True}, 4),
        "rmsprop": (optim.RMSprop, {"lr": 0.1, "momentum": 0.9, "centered": True}, 5),
        "adagrad": (optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1}, 4),
        "adadelta": (optim.Adadelta, {"lr": 0.1}, 4),
        "adamax": (optim.Adamax, {"lr": 0.1}, 4),
        "nadam": (optim.NAdam, {"lr": 0.1}, 6),
        "radam": (optim.RAdam, {"lr": 0.1}, 4),
        "asgd": (optim.ASGD, {"lr": 0.1}, 5),
        "rprop": (optim.Rprop, {"lr": 0.1}, 4),
    }
)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RanInEager)
        yield
    torch._dynamo.reset()


def parameters(count: int) -> list[torch.nn.Parameter]:
    source = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(SHAPES[n % len(SHAPES)], generator=source)) for n in range(count)]


def give_gradients(step: int, *groups: list[torch.nn.Parameter]) -> None:
    for group in groups:
        source = torch.Generator().manual_seed(step)
        for parameter in group:
            parameter.grad = torch.randn(parameter.shape, generator=source)


def train(
    make: Callable[..., optim.Optimizer], schedule: Callable[..., Any] | None = None, count: int = 5
) -> list[Compiled]:
    """Steps of both; gives what was compiled."""
    seen: list[Compiled] = []
    theirs, ours = parameters(count), parameters(count)
    eager, compiled = make(theirs), make(ours)
    step = torch.compile(compiled.step, backend=Compiler(observer=seen.append))
    schedules = [schedule(each) for each in (eager, compiled)] if schedule else []
    for number in range(STEPS):
        give_gradients(number, theirs, ours)
        eager.step()
        step()
        for each in schedules:
            each.step()
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
        for name, value in eager.state[a].items():
            torch.testing.assert_close(compiled.state[b][name], value, rtol=1e-4, atol=1e-5)
    return seen


# One of each kind of state.
REGULAR = ("sgd", "nesterov", "adamw", "adagrad", "radam", "rprop")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in REGULAR else pytest.mark.long) for n in CASES])
def test_steps_equal_eager(name: str) -> None:
    make, options, most = CASES[name]
    assert_few(train(lambda group: make(group, foreach=True, **options)), most)


@pytest.mark.parametrize("name", [pytest.param("nesterov", marks=pytest.mark.long), "adamw"])
def test_so_they_do_without_lists(name: str) -> None:
    make, options, most = CASES[name]
    assert_few(train(lambda group: make(group, foreach=False, **options)), most)


def test_more_parameters_are_not_more_kernels() -> None:
    assert_few(train(lambda group: optim.Adam(group, lr=0.1), count=12), 4)


def assert_few(seen: list[Compiled], most: int) -> None:
    reports = [compiled.report for compiled in seen]
    assert reports
    assert all(report.externs == 0 and report.kernels <= most for report in reports), reports


def test_a_hundred_tensors_are_parameters_of_few_kernels() -> None:
    pairs = [(torch.randn(5 + n % 7, 3), torch.randn(5 + n % 7, 3)) for n in range(100)]

    def products(given: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        return [a * b for a, b in given]

    found = torch.compile(products, backend="minductor", dynamic=False)(pairs)
    assert all(torch.equal(mine, a * b) for mine, (a, b) in zip(found, pairs, strict=True))


@pytest.mark.parametrize(
    "lr", [pytest.param(0.1, marks=pytest.mark.long, id="number"), pytest.param(torch.tensor(0.1), id="tensor")]
)
def test_the_learning_rate_follows_a_schedule(lr: float | torch.Tensor) -> None:
    def make(group: Any) -> optim.Optimizer:
        return optim.Adam(group, lr=lr.clone() if isinstance(lr, torch.Tensor) else lr, foreach=False)

    train(make, lambda each: optim.lr_scheduler.ExponentialLR(each, gamma=0.5))
