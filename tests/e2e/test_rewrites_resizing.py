"""Images that are resized by whole factors, beside eager: values, layouts, gradients, sizes that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minductor.driver import Compiler
from pytest_plugin.oracle.compiled import Compile

pytestmark = pytest.mark.devices("cpu")

IMAGES = (2, 3, 5, 7)


def resized(**arguments: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, **arguments)


def reasons(run: Any, row: str = "repeat_elements") -> list[str]:
    """For each call that was tried, "" or the reason why it stayed."""
    return [why for rewrite, _, _, why in run.report.rewrites if rewrite == row]


# what `make test` takes of the two tables below
KEPT = (
    *("factor of each side", "nearest-exact", "one pixel", "NaN", "bytes", "bfloat16", "channels last"),
    *("expanded along the factor", "module", "odd factor", "other side", "turned", "one dimension"),
)
MATCHING: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "factor": (resized(scale_factor=2), torch.randn(IMAGES)),
    "float factor": (resized(scale_factor=3.0, mode="nearest"), torch.randn(IMAGES)),
    "factor of each side": (resized(scale_factor=(1, 4)), torch.randn(IMAGES)),
    "size": (resized(size=(10, 21)), torch.randn(IMAGES)),
    "nearest-exact": (resized(scale_factor=5, mode="nearest-exact"), torch.randn(IMAGES)),
    "module": (nn.Upsample(scale_factor=2), torch.randn(IMAGES)),
    "one dimension": (resized(scale_factor=2), torch.randn(2, 3, 9)),
    "three dimensions": (resized(scale_factor=(2, 1, 3)), torch.randn(2, 3, 2, 4, 3)),
    "channels last": (resized(scale_factor=2), torch.randn(IMAGES).to(memory_format=torch.channels_last)),
    "turned": (resized(scale_factor=2), torch.randn(2, 3, 7, 5).transpose(2, 3)),
    "part": (resized(scale_factor=2), torch.randn(2, 3, 9, 9)[:, :, 1:8:2, 2:]),
    "one channel": (resized(scale_factor=2), torch.randn(2, 1, 5, 7)),
    "expanded": (resized(scale_factor=2), torch.randn(1, 3, 1, 7).expand(2, 3, 5, 7)),
    "expanded along the factor": (resized(scale_factor=2), torch.randn(1, 4, 1).expand(1, 4, 65)),
    "one pixel": (resized(scale_factor=2), torch.randn(2, 3, 1, 1)),
    "bfloat16": (resized(scale_factor=2), torch.randn(IMAGES).bfloat16()),
    "float64": (resized(scale_factor=2), torch.randn(IMAGES).double()),
    "bytes": (resized(scale_factor=2), torch.randint(256, IMAGES, dtype=torch.uint8)),
    "NaN": (resized(scale_factor=2), torch.tensor([[[[float("nan"), -0.0], [float("inf"), 1e-45]]]])),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in KEPT else pytest.mark.long) for n in MATCHING])
def test_whole_factors(compiled: Compile, name: str) -> None:
    fn, x = MATCHING[name]
    run = compiled(fn, x, grad=False)
    assert reasons(run) == [""]
    made, wanted = torch.compile(fn, backend=Compiler(), dynamic=False)(x), fn(x)
    assert made.stride() == wanted.stride() and torch.equal(made.isnan(), wanted.isnan())
    assert torch.equal(made[~made.isnan()], wanted[~wanted.isnan()])


STAYING: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "fraction": (resized(scale_factor=1.5), "whole factors"),
    "one fraction": (resized(scale_factor=(2, 1.5)), "whole factors"),
    "smaller": (resized(scale_factor=0.5), "whole factors"),
    "size": (resized(size=(10, 20)), "whole factors"),
    "same size": (resized(scale_factor=1), "no image is resized"),
    "other places": (resized(scale_factor=(1, 41)), "float32 reads other places of 7 elements for a factor of 41"),
}


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in STAYING if name not in ("one fraction", "other places")),
        pytest.param("one fraction", marks=pytest.mark.must_fail_under("resizing-of-fractions")),
        pytest.param("other places", marks=pytest.mark.must_fail_under("resizing-to-other-places")),
    ],
)
def test_near_misses(compiled: Compile, name: str) -> None:
    fn, why = STAYING[name]
    run = compiled(fn, torch.randn(IMAGES), grad=False)
    assert len(reasons(run)) == 1 and why in reasons(run)[0]


@pytest.mark.parametrize("mode", ("bicubic", "area"))
def test_other_modes_are_not_tried(compiled: Compile, mode: str) -> None:
    run = compiled(resized(scale_factor=2, mode=mode), torch.randn(IMAGES), grad=False)
    assert run.report.rewrites == ()


# Dynamo takes numbers of a closure as symbols too, which interpolate does not take.
POWERS_OF_TWO: dict[str, Callable[[Tensor], Tensor]] = {
    "2": lambda x: F.interpolate(x, scale_factor=2),
    "4 and 1": lambda x: F.interpolate(x, scale_factor=(4, 1)),
    "8, exact": lambda x: F.interpolate(x, scale_factor=8.0, mode="nearest-exact"),
}


@pytest.mark.parametrize("name", POWERS_OF_TWO)
def test_sizes_that_change(compiled: Compile, name: str) -> None:
    run = compiled(POWERS_OF_TWO[name], torch.randn(IMAGES), dynamic=True, grad=False)
    assert reasons(run) == [""] and len(run.graphs) == 1
    for size in ((2, 3, 6, 9), (3, 4, 2, 3)):
        run.again(torch.randn(size))


def test_a_factor_of_three_with_sizes_that_change(compiled: Compile) -> None:
    run = compiled(lambda x: F.interpolate(x, scale_factor=3), torch.randn(IMAGES), dynamic=True, grad=False)
    assert reasons(run) == ["the places of a factor of 3 are known for constant sizes only"]
    run.again(torch.randn(2, 3, 6, 9))


@pytest.mark.parametrize("memory_format", (torch.contiguous_format, torch.channels_last), ids=str)
def test_gradients(compiled: Compile, memory_format: torch.memory_format) -> None:
    x = torch.randn(IMAGES).to(memory_format=memory_format).requires_grad_()
    compiled(lambda x: F.interpolate(x * 2, scale_factor=(2, 3)).sin(), x)


# --- linear


def linear(mode: str = "bilinear", **arguments: Any) -> Callable[[Tensor], Tensor]:
    return resized(mode=mode, **arguments)


SUMS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "factor": (linear(scale_factor=2), torch.randn(IMAGES)),
    "odd factor": (linear(scale_factor=3), torch.randn(IMAGES)),
    "factor of each side": (linear(scale_factor=(1, 4)), torch.randn(IMAGES)),
    "other side": (linear(scale_factor=(8.0, 1.0)), torch.randn(IMAGES)),
    "size": (linear(size=(10, 35)), torch.randn(IMAGES)),
    "module": (nn.Upsample(scale_factor=2, mode="bilinear"), torch.randn(IMAGES)),
    "one dimension": (linear("linear", scale_factor=2), torch.randn(2, 3, 9)),
    "three dimensions": (linear("trilinear", scale_factor=(2, 1, 3)), torch.randn(2, 3, 2, 4, 3)),
    "channels last": (linear(scale_factor=2), torch.randn(IMAGES).to(memory_format=torch.channels_last)),
    "turned": (linear(scale_factor=2), torch.randn(2, 3, 7, 5).transpose(2, 3)),
    "expanded": (linear(scale_factor=2), torch.randn(1, 3, 1, 1).expand(2, 3, 5, 7)),
    "one pixel": (linear(scale_factor=2), torch.randn(2, 3, 1, 1)),
    "bfloat16": (linear(scale_factor=2), torch.randn(IMAGES).bfloat16()),
    "float16": (linear(scale_factor=2), torch.randn(IMAGES).half()),
    "float64": (linear(scale_factor=2), torch.randn(IMAGES).double()),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in KEPT else pytest.mark.long) for n in SUMS])
def test_linear_by_whole_factors(compiled: Compile, name: str) -> None:
    fn, x = SUMS[name]
    run = compiled(fn, x, grad=False)
    assert reasons(run, "add_phases") == [""]


LEFT: dict[str, tuple[Callable[[Tensor], Tensor], Tensor, str]] = {
    "fraction": (linear(scale_factor=1.5), torch.randn(IMAGES), "whole factors"),
    "corners": (linear(scale_factor=2, align_corners=True), torch.randn(IMAGES), "the corners are aligned"),
    "antialias": (linear(scale_factor=2, antialias=True), torch.randn(IMAGES), "antialiased"),
    "phases": (linear(scale_factor=9), torch.randn(IMAGES), "a factor of 9 has too many phases"),
    "bytes": (linear(scale_factor=2), torch.randint(256, IMAGES, dtype=torch.uint8), "in steps"),
    "volume": (
        linear("trilinear", scale_factor=2),
        torch.randn(2, 3, 2, 4, 3).to(memory_format=torch.channels_last_3d),
        "a volume has its channels last",
    ),
}
FAULTS = {
    "corners": "phases-of-aligned-corners",
    "antialias": "phases-antialiased",
    "phases": "phases-of-any-factor",
    "bytes": "phases-of-bytes",
    "volume": "phases-of-volumes",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.must_fail_under(FAULTS[name])] if name in FAULTS else []) for name in LEFT],
)
def test_near_misses_of_linear(compiled: Compile, name: str) -> None:
    fn, x, why = LEFT[name]
    (reason,) = reasons(compiled(fn, x, grad=False), "add_phases")
    assert why in reason


@pytest.mark.parametrize("memory_format", (torch.contiguous_format, torch.channels_last), ids=str)
def test_gradients_of_linear(compiled: Compile, memory_format: torch.memory_format) -> None:
    x = torch.randn(IMAGES).to(memory_format=memory_format).requires_grad_()
    compiled(lambda x: F.interpolate(x * 2, scale_factor=(2, 3), mode="bilinear").sin(), x)


def test_linear_with_sizes_that_change(compiled: Compile) -> None:
    def fn(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=(2, 3), mode="bilinear")

    run = compiled(fn, torch.randn(IMAGES), dynamic=True, grad=False)
    assert reasons(run, "add_phases") == [""] and len(run.graphs) == 1
    for size in ((2, 3, 6, 9), (3, 4, 2, 3), (1, 2, 1, 40)):
        run.again(torch.randn(size))
