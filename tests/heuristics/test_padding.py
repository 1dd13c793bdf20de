"""The choice `padding`: a learned option is obeyed, the estimate decides where it is not asked, nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.bench.measure_options import asked
from minductor.bench.measure_padding import padding_cases, padding_options
from minductor.frontend.rewrites import pad_products
from minductor.frontend.rewrites.pad_products import PAD_PRODUCTS, PADDED, PLAIN
from minductor.heuristics.features import FEATURES
from minductor.heuristics.learned import learned
from minductor.heuristics.tree import UNSURE
from minductor.options import Options
from minductor.runtime.tune import tune_clock
from minductor.target import Env, by_name
from tests.frontend.rewrites.rewriting import Rewritten, rewritten
from tests.heuristics.kernels import DEVICE, answering

VERSIONS = {"torch": "2.11.0", "triton": "3.6.0"}
HERE = Env(Options(), by_name("sm_90"), DEVICE, tuple(VERSIONS.items()))
X, W = torch.randn(64, 1024).bfloat16(), torch.randn(1001, 1024).bfloat16()


def layer(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(F.gelu(x), w).sin()


def run(env: Env = HERE, *, is_frozen: bool) -> Rewritten:
    """The graph of a linear layer, which the estimate pads if its weight is frozen."""
    return rewritten(layer, (X, W), [PAD_PRODUCTS], frozen=(1,) if is_frozen else (), env=env)


def ask(patch: pytest.MonkeyPatch, option: str) -> Any:
    """A made-up module that answers this option for HERE, and is asked from now on."""
    made = answering("sm_90", option, (PLAIN, PADDED), "padding", device=DEVICE, versions=VERSIONS)
    patch.setattr(pad_products, "learned", partial(learned, generated={("padding", "sm_90"): made}))
    return made


@pytest.mark.parametrize("option", (PLAIN, PADDED))
@pytest.mark.parametrize("is_frozen", (False, True))
def test_a_learned_option_is_obeyed(option: str, is_frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, option)
    found = run(is_frozen=is_frozen)
    assert bool(found.applied) == (option == PADDED), found.notes
    assert option == PADDED or "as learned from" in found.refusals[0]


OTHERWISE: Mapping[str, tuple[str, Env]] = {
    "unsure": (UNSURE, HERE),
    "another device": (PADDED, replace(HERE, device="GPU Y")),
    "deterministic": (PADDED, replace(HERE, options=Options(deterministic=True))),
}


@pytest.mark.parametrize("why", OTHERWISE)
def test_the_estimate_decides_otherwise(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    option, env = OTHERWISE[why]
    ask(monkeypatch, option)
    assert run(env, is_frozen=True).applied
    assert "it would take" in run(env, is_frozen=False).refusals[0]


def test_deterministic_mode_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does any other: padding is decided by what was learned or by the estimate."""

    def clock(*given: object) -> float:
        raise AssertionError("a clock was asked")

    monkeypatch.setattr(tune_clock, "wall_clock", clock)
    for deterministic in (False, True):
        env = replace(HERE, options=Options(deterministic=deterministic))
        assert run(env, is_frozen=True).applied and not run(env, is_frozen=False).applied


def test_features_are_those_that_are_asked_about() -> None:
    torch._dynamo.reset()
    given = torch.randn(40, 61).bfloat16(), torch.randn(61, 33).bfloat16(), torch.randn(33).bfloat16()
    with torch.no_grad():
        found = asked(
            "padding",
            "minductor.frontend.rewrites.pad_products",
            lambda program: PLAIN,
            lambda a, b, c: torch.addmm(c, F.gelu(a), b),
            given,
            "sm_90",
        )
    assert list(found.features) == list(FEATURES["padding"])
    named = ("m", "n", "k", "pad_rows", "pad_columns", "pad_inner", "copied", "copies", "fused", "result_copied")
    copied = 2 * (61 * 33 + 33)
    assert [found.features[name] for name in named] == [40, 33, 61, 0, 7, 3, copied, 2, 2 * 40 * 61, 2 * 40 * 33]


def test_each_case_asks_about_one_product() -> None:
    small = (case for case in padding_cases("cpu") if case.batch * case.m * case.n * case.k < 1 << 27)
    seen: set[str] = set()
    with torch.no_grad():
        for case in islice(small, 6):
            found = padding_options(case.called, case.args("cpu"), "sm_90")
            assert tuple(found.options) == (PLAIN, PADDED) and found.default in found.options
            seen.add(case.function)
    assert len(seen) > 2
