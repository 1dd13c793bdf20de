"""`run.measured`, how often a clock was asked: the same in each order of tests and however often a test runs, and 0 for
what a store remembers.

Each test of this file runs twice, in either order: a compiler that took its choices from what another test left would
measure nothing the second time.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_plugin.adapters import FreshStore
from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import Run

OPTIONS = {"autotune": True}


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


def measured(compiled: Compile) -> Run:
    return compiled(softmax, torch.randn(8, 40000), options=OPTIONS)


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_measures_anew(compiled: Compile, time: str) -> None:
    assert measured(compiled).measured > 0
    assert measured(compiled).measured > 0, "each call of `compiled` has a store of its own"


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_store_that_is_shared_measures_once(compiled: Compile, fresh_store: FreshStore, time: str) -> None:
    cold = measured(compiled)
    assert cold.measured > 0
    warm = measured(compiled)
    assert warm.measured == 0 and all(graph.was_hit for graph in warm.graphs)
    again = cold.measured
    cold.again(torch.randn(8, 40000))
    assert cold.measured == again, "a later call asks no clock"


def test_once_more_behind_the_others(compiled: Compile) -> None:
    assert measured(compiled).measured > 0


def test_nothing_is_measured_unasked(compiled: Compile) -> None:
    assert compiled(softmax, torch.randn(8, 40000)).measured == 0
