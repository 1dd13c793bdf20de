"""Random calls of partitions that share a pool: several sets of weights, inputs that move, held results, marked steps.

Each value is compared with the function's own. The driver overwrites with NaN what a GPU might overwrite.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from minductor.runtime.graphs.graph_chain import WrapperGraphs
from tests.recording_driver import RecordingDriver
from tests.runtime.test_graphs import Wrapper

FOREVER = 1 << 30


def saving(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return x * w, x + w


def inference(x: Tensor, w: Tensor) -> tuple[Tensor]:
    return (x.sin() * w,)


def gradient(saved: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor]:
    return (saved * g * w,)


def placed(function: Callable[..., tuple[Tensor, ...]], graphs: WrapperGraphs) -> Callable[..., tuple[Tensor, ...]]:
    """The function, with results where a wrapper makes them."""

    def run(*given: Tensor) -> tuple[Tensor, ...]:
        found = enumerate(function(*given))
        return tuple(graphs.empty_result(n, tuple(x.shape), x.stride(), x.dtype, "cpu").copy_(x) for n, x in found)

    run.__name__ = function.__name__
    return run


class Calls:
    """Calls of three partitions by a seed. `held`: a result, its value, and until which step it may be read."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.draw = random.Random(seed)
        self.driver = RecordingDriver(marks=seed % 2)
        wrapper = Wrapper(self.driver)
        self.forward, self.backward = wrapper.role(1), wrapper.role(are_gradients=True)
        where = placed if seed % 3 else lambda function, graphs: function
        one, other = self.forward, self.backward
        self.saving = wrapper.partition(where(saving, one), 2, results=2, static=(1,), graphs=one)
        self.inference = wrapper.partition(where(inference, one), 2, static=(1,), graphs=one)
        self.gradient = wrapper.partition(where(gradient, other), 3, static=(1,), graphs=other)
        self.weights = [torch.randn(4) for _ in range(self.draw.choice((1, 2, 3, 5)))]
        self.inputs = [torch.randn(4) for _ in range(3)]
        self.saved: list[tuple[Tensor, Tensor, Tensor]] = []
        self.held: list[tuple[Tensor, Tensor, int]] = []

    def check(self, found: Tensor, wanted: Tensor, step: int) -> None:
        assert torch.equal(found, wanted)
        if self.draw.random() < 0.5:
            self.held.append((found, wanted, step))

    def one(self) -> None:
        draw, w = self.draw.random(), self.draw.choice(self.weights)
        x = self.draw.choice(self.inputs) if self.draw.random() < 0.5 else torch.randn(4)
        if self.draw.random() < 0.05:
            w.data = w.data.clone()  # its place changes, and not the tensor
        if draw < 0.5:
            wanted = saving(x, w)
            found, saved = self.forward.given(self.saving(x, w))
            assert torch.equal(saved, wanted[1])
            self.saved.append((saved, wanted[1], w))
            self.check(found, wanted[0], self.driver.marks)
        elif draw < 0.7 and self.saved:
            saved, value, of = self.saved.pop(self.draw.randrange(len(self.saved)))
            assert torch.equal(saved, value)
            g = torch.randn(4)
            (found,) = self.backward.given(self.gradient(saved, of, g))
            self.check(found, value * g * of, FOREVER)
        elif draw < 0.85:
            (found,) = self.forward.given(self.inference(x, w))
            self.check(found, inference(x, w)[0], self.driver.marks)
        elif draw < 0.95 and self.held:
            self.held.pop(self.draw.randrange(len(self.held)))
        elif self.driver.marks and not self.saved:
            self.driver.marks += 1
        elif draw > 0.98:
            self.saved.clear()

    def check_held(self) -> None:
        for found, wanted, step in self.held:
            assert step < self.driver.marks or torch.equal(found, wanted)


@pytest.mark.parametrize("seed", range(60))
def test_random_calls_give_what_the_functions_give(seed: int) -> None:
    calls = Calls(seed)
    for _ in range(80):
        calls.one()
        calls.check_held()
    assert len(calls.driver.did("replay")) >= len(calls.driver.did("record")) > 0
