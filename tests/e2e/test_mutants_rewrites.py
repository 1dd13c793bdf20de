"""Faults of the conditions that hold for all rewrites, and of frozen calls: most are noticed by two kinds of checks.

Two faults have one kind of check only: `rewrite-reader-forgotten`, whose replacement cannot be written at all, and
`frozen-weights-kept`, which changes no number.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from minductor.frontend.rewrites import rewrite_table
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site
from minductor.runtime.launch.frozen_call import FrozenCall
from pytest_plugin.oracle.compiled import Compile
from tests.rewrite_rows import SOFTMAX_OF_PRODUCT, aten, one_call

pytestmark = [pytest.mark.devices("cpu"), pytest.mark.long]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rewrite], None]:
    """Puts one row into the table, in place of all others."""
    return lambda row: monkeypatch.setattr(rewrite_table, "REWRITES", (row,))


def reasons(run: Any) -> list[str]:
    return [row[3] for row in run.report.rewrites]


@pytest.mark.must_fail_under("rewrite-reader-forgotten")
def test_a_reader_outside(compiled: Compile, use: Callable[[Rewrite], None]) -> None:
    use(SOFTMAX_OF_PRODUCT)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        product = x @ y
        return torch.softmax(product, -1) + product

    run = compiled(fn, torch.randn(4, 4), torch.randn(4, 4))
    assert "which the rewrite would not compute" in reasons(run)[0]


@pytest.mark.must_fail_under("rewrite-moves-reads")
def test_a_write_between(compiled: Compile, use: Callable[[Rewrite], None]) -> None:
    use(SOFTMAX_OF_PRODUCT)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        product = x @ y
        x.mul_(y)
        return torch.softmax(product, -1)

    run = compiled(fn, torch.randn(4, 4), torch.randn(4, 4))
    assert "writes to memory between its calls" in reasons(run)[0]


@pytest.mark.must_fail_under("rewrite-loses-write")
def test_a_write_to_memory_of_others(compiled: Compile, use: Callable[[Rewrite], None]) -> None:
    def find(site: Site) -> Match | None:
        fill = site.call(site.anchor)
        is_written = fill is not None and site.call(fill.first) is not None
        return Match(result=site.anchor, inside=(fill.first,)) if fill is not None and is_written else None

    def write(match: Match, site: Site) -> Any:
        x, mask, value = match.inside[0].args
        return site.write(torch.softmax, site.write(torch.masked_fill, x, mask, value), -1)

    use(replace(SOFTMAX_OF_PRODUCT, find=find, replace=write))
    mask = torch.rand(4, 4) > 0.5
    run = compiled(lambda x, mask: torch.softmax(x.masked_fill_(mask, 0.0), -1), torch.randn(4, 4), mask)
    assert "which the rewrite would leave as it is" in reasons(run)[0]


@pytest.mark.must_fail_under("rewrite-mixes-modes")
def test_several_modes(compiled: Compile, use: Callable[[Rewrite], None]) -> None:
    use(SOFTMAX_OF_PRODUCT)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            product = x @ y
        return torch.softmax(product, -1) * x

    run = compiled(fn, torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True))
    assert "its calls run in several modes" in reasons(run)[0]


@pytest.mark.counts(externs=0)
@pytest.mark.must_fail_under("rewrite-at-any-price")
def test_seconds(compiled: Compile, use: Callable[[Rewrite], None]) -> None:
    row = one_call(
        aten.exp.default,
        lambda site, args: site.write(aten.exp.default, site.write(aten.mm.default, args[0], args[0])),
        seconds=lambda match, site: (1.0, 2.0),
    )
    use(row)
    run = compiled(lambda x: x.exp() + 1, torch.randn(4, 4))
    assert reasons(run) == ["it would take 2e+06 us in place of 1e+06 us"]


def _turned(site: Site, x: Any) -> Any:
    copy = site.write(aten.clone.default, site.write(aten.t.default, x), memory_format=torch.contiguous_format)
    return site.write(aten.t.default, copy)


WRONG: tuple[tuple[str, Callable[[Site, Any], Any]], ...] = (
    ("rewrite-alias-unseen", lambda site, args: args[0]),
    ("rewrite-dtype-unseen", lambda site, args: site.write(aten._to_copy.default, args[0], dtype=torch.float64)),
    ("rewrite-size-unseen", lambda site, args: site.write(aten.cat.default, [args[0], args[0]])),
    ("rewrite-strides-unseen", lambda site, args: _turned(site, args[0])),
)


@pytest.mark.parametrize(
    "made", [pytest.param(made, marks=pytest.mark.must_fail_under(name), id=name) for name, made in WRONG]
)
def test_another_value(compiled: Compile, use: Callable[[Rewrite], None], made: Any) -> None:
    use(one_call(aten.clone.default, made))
    with pytest.raises(Exception, match="the rewrite 'one_call' of clone is wrong"):
        compiled(lambda x: x.clone(), torch.randn(4, 4))


@pytest.mark.must_fail_under("rewrite-strides-returned")
def test_strides_that_the_caller_sees(compiled: Compile, use: Callable[[Rewrite], None]) -> None:
    use(one_call(aten.clone.default, lambda site, args: _turned(site, args[0]), keeps_strides=False))
    run = compiled(lambda x: x.clone(), torch.randn(4, 8))
    assert "aten.permute" in run.stage("lower") or run.report.kernels + run.report.externs > 1


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight.exp()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FrozenCall]]:
    """The frozen calls that a test makes."""
    made: list[FrozenCall] = []
    initialise = FrozenCall.__init__
    monkeypatch.setattr(FrozenCall, "__init__", lambda call, *args: (made.append(call), initialise(call, *args))[1])
    yield made
    made.clear()


@pytest.mark.must_fail_under("frozen-version-ignored")
def test_a_changed_weight(compiled: Compile) -> None:
    layer = Layer()
    run = compiled(lambda x: layer(x), torch.randn(4, 4), options={"freeze": True})
    layer.weight.add_(1)
    with pytest.raises(Exception, match="was changed in place"):
        run.again(torch.randn(4, 4))


@pytest.mark.must_fail_under("frozen-identity-ignored")
def test_other_weights(compiled: Compile, calls: list[FrozenCall]) -> None:
    layers = [Layer(), Layer()]
    run = compiled(lambda x: layers[0](x), torch.randn(4, 4), options={"freeze": True})
    layers.reverse()
    run.again(torch.randn(4, 4))
    assert [len(call.sets) for call in calls] == [2]


@pytest.mark.must_fail_under("frozen-weights-kept")
def test_dead_weights(compiled: Compile, calls: list[FrozenCall]) -> None:
    layers = [Layer()]
    run = compiled(lambda x: layers[0](x), torch.randn(4, 4), options={"freeze": True})
    layers[0] = Layer()
    gc.collect()
    with contextlib.suppress(Exception):
        run.again(torch.randn(4, 4))
    assert [len(call.sets) for call in calls] == [1]
