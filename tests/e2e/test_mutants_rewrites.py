"""Faults of the conditions that hold for all rewrites, and of frozen calls: most are noticed by two kinds of checks.

Some have one kind of check only: `rewrite-reader-forgotten` and `rewrite-dtype-unseen` lead to an error before there
are numbers, `rewrite-strides-returned` to other strides only; `frozen-weights-kept` and `frozen-views-kept` change no
number.
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

import minductor
from minductor.core.errors import FrozenChanged
from minductor.frontend.rewrites import rewrite_table
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site
from minductor.runtime.launch.frozen_call import FrozenCall
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
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


def _copy(site: Site, x: Any) -> Any:
    return site.write(aten.clone.default, x)


WRONG: tuple[tuple[str, Callable[[Site, Any], Any]], ...] = (
    ("rewrite-alias-unseen", lambda site, args: args[0]),
    ("rewrite-dtype-unseen", lambda site, args: site.write(aten._to_copy.default, args[0], dtype=torch.float64)),
    ("rewrite-size-unseen", lambda site, args: _copy(site, site.write(aten.slice.Tensor, args[0], 0, 0, 2))),
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
    assert reasons(run) == [""]
    assert run.report.kernels == 1


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
    torch.compiler.reset()
    yield made
    made.clear()
    torch.compiler.reset()


def noticed_by(calls: list[FrozenCall], layers: list[Layer], change: Callable[[], object], sets: list[int]) -> set[str]:
    """The kinds of checks that notice a fault, of numbers and of what is kept, when weights change between two calls.

    Either the call has eager's numbers, or it refuses.
    """
    fn = torch.compile(lambda x: layers[0](x), backend="minductor", options={"freeze": True})
    x, kinds = torch.randn(4, 4), set[str]()
    fn(x)
    change()
    gc.collect()
    with contextlib.suppress(FrozenChanged):
        if not torch.allclose(fn(x), layers[0](x), atol=1e-4):
            kinds.add("numeric")
        if any(call.latest is not None and call.latest[1].versions != [layers[0].weight._version] for call in calls):
            kinds.add("versions")
    if [len(call.sets) for call in calls] != sets:
        kinds.add("sets")
    return kinds


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("frozen-version-ignored", {"numeric", "versions"}),
        ("frozen-identity-ignored", {"numeric", "sets"}),
        ("frozen-weights-kept", {"sets"}),
    ],
)
def test_frozen_calls(calls: list[FrozenCall], fault: str, kinds: set[str]) -> None:
    def check() -> set[str]:
        calls.clear()
        torch.compiler.reset()
        layers = [Layer(), Layer()]
        if fault == "frozen-version-ignored":
            return noticed_by(calls, layers, lambda: layers[0].weight.add_(1), [1])
        if fault == "frozen-identity-ignored":
            return noticed_by(calls, layers, layers.reverse, [2])
        return noticed_by(calls, layers, lambda: layers.__setitem__(0, Layer()), [1])

    assert check() == set()
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        assert check() == kinds
        assert was_reached()


def kept_results() -> set[str]:
    """The kinds of checks that notice a caller who writes to a result that depends on a weight alone."""
    layer, x = Layer(), torch.randn(4, 4)
    fn = torch.compile(lambda x: (x + 1, layer.weight.exp()), backend="minductor", options={"freeze": True})
    first = fn(x)[1].zero_()
    second = fn(x)[1]
    kinds = {"numeric"} if not torch.allclose(second, layer.weight.exp()) else set[str]()
    return kinds | ({"memory"} if first.data_ptr() == second.data_ptr() else set())


def kept_views() -> set[str]:
    """The kinds of checks that notice a view of a weight among the folded values."""
    layer, x, seen = Layer(), torch.randn(2, 4), list[Any]()
    compiler = minductor.Compiler(observer=seen.append)
    fn = torch.compile(lambda x: x + layer.weight.chunk(2)[0], backend=compiler, options={"freeze": True})
    kinds = set[str]() if torch.equal(fn(x), x + layer.weight[:2]) else {"numeric"}
    return kinds | ({"bytes"} if seen[-1].report.frozen_bytes else set())


@pytest.mark.parametrize(
    ("fault", "check", "kinds"),
    [
        ("frozen-results-kept", kept_results, {"numeric", "memory"}),
        ("frozen-views-kept", kept_views, {"bytes"}),
    ],
)
def test_what_is_folded(fault: str, check: Callable[[], set[str]], kinds: set[str]) -> None:
    assert check() == set()
    torch.compiler.reset()
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        assert check() == kinds
        assert was_reached()
    torch.compiler.reset()
