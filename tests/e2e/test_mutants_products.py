"""Programs that each see a fault in the rewrites of matrix products: near misses, and results that must be right.

Each test holds numbers, what was rewritten, and the wrapper's text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minductor import driver
from minductor.driver_tasks.graph_rewrites import Rewritten, with_rewrites
from minductor.frontend.rewrites import widen_products
from minductor.ir.report.report import Report
from pytest_plugin.oracle.compiled import Compile

pytestmark = [pytest.mark.long, pytest.mark.devices("cpu"), pytest.mark.golden(view="wrapper", level="canonical")]
BF16 = torch.bfloat16
FREEZE = {"freeze": True}


class Held(nn.Module):
    """A function of its argument and of tensors that the module holds as buffers."""

    def __init__(self, fn: Callable[..., Any], *held: Tensor) -> None:
        super().__init__()
        self.fn, self.count = fn, len(held)
        for number, tensor in enumerate(held):
            self.register_buffer(f"held{number}", tensor)

    def forward(self, *given: Tensor) -> Any:
        return self.fn(*given, *(self.get_buffer(f"held{number}") for number in range(self.count)))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Rewritten]:
    """What rewrites did to each graph that was compiled, in order."""
    found: list[Rewritten] = []

    def noted(report: Report, rewritten: Rewritten) -> Report:
        found.append(rewritten)
        return with_rewrites(report, rewritten)

    monkeypatch.setattr(driver, "with_rewrites", noted)
    return found


def applied(done: list[Rewritten]) -> list[str]:
    """The rewrites that were applied to the last graph, in order."""
    return [note.rewrite for note in done[-1].notes if note.is_applied]


@pytest.mark.must_fail_under("pack-changing-weight")
def test_a_weight_that_changes(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(F.linear, torch.randn(32, 768), torch.randn(800, 768), options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("pack-small")
def test_a_small_layer(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(Held(F.linear, torch.randn(48, 64)), torch.randn(4, 64), options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("pack-float64")
def test_a_layer_in_float64(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(Held(F.linear, torch.randn(800, 768).double()), torch.randn(32, 768).double(), options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("bias-any-matrix")
def test_a_matrix_is_added(compiled: Compile, done: list[Rewritten]) -> None:
    module = Held(lambda x, c, w: torch.addmm(c, x, w), torch.randn(768, 800))
    compiled(module, torch.randn(32, 768), torch.randn(32, 800), options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("bias-scaled")
def test_a_scaled_product(compiled: Compile, done: list[Rewritten]) -> None:
    module = Held(lambda x, w, b: torch.addmm(b, x, w, beta=0.5, alpha=3), torch.randn(768, 800), torch.randn(800))
    compiled(module, torch.randn(32, 768), options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("join-changing-weight")
def test_two_weights_that_change(compiled: Compile, done: list[Rewritten]) -> None:
    given = torch.randn(16, 64), torch.randn(64, 48), torch.randn(64, 48)
    compiled(lambda x, a, b: (x @ a) * (x @ b), *given, options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("join-weight-from-behind")
def test_a_weight_that_is_computed_behind_the_first_product(compiled: Compile, done: list[Rewritten]) -> None:
    module = Held(lambda x, a, b: (x @ a) * (x @ (b * 2)), torch.randn(64, 48), torch.randn(64, 48))
    compiled(module, torch.randn(16, 64), options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("join-copied")
def test_results_that_the_caller_gets(compiled: Compile, done: list[Rewritten]) -> None:
    module = Held(lambda x, a, b: (x @ a, x @ b), torch.randn(64, 48), torch.randn(64, 48))
    compiled(module, torch.randn(16, 64), options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("join-large")
def test_large_products_of_one_operand(compiled: Compile, done: list[Rewritten]) -> None:
    weights = [torch.randn(512, 1024).double() for _ in range(2)]
    module = Held(lambda x, a, b: (x @ a) * (x @ b), *weights)
    compiled(module, torch.randn(32, 512).double(), options=FREEZE)
    assert applied(done) == []


@pytest.mark.must_fail_under("join-wrong-columns")
@pytest.mark.golden(view=("kernel", "wrapper"), level="canonical")
def test_joined_products(compiled: Compile, done: list[Rewritten]) -> None:
    module = Held(lambda x, a, b, c: (x @ a) * (x @ b) - (x @ c), *(torch.randn(64, 48) for _ in range(3)))
    compiled(module, torch.randn(16, 64), options=FREEZE)
    assert applied(done) == ["join_products"]


@pytest.mark.must_fail_under("widen-few-rows")
def test_few_rows_of_16_bits(compiled: Compile, done: list[Rewritten], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widen_products, "is_slow", lambda dtype: dtype == BF16)
    compiled(torch.mm, torch.randn(7, 64).bfloat16(), torch.randn(64, 48).bfloat16())
    assert applied(done) == []


@pytest.mark.must_fail_under("vectors-in-few-rows")
def test_few_rows_by_a_vector(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(torch.bmm, torch.randn(5, 15, 33), torch.randn(5, 33, 1))
    assert applied(done) == []


def int8_layer(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype)) * s


def int8_weight(columns: int, inner: int) -> Tensor:
    return torch.randint(-128, 127, (columns, inner), dtype=torch.int8)


@pytest.mark.must_fail_under("int8-biased")
def test_a_bias_before_the_scale(compiled: Compile, done: list[Rewritten]) -> None:
    scale, bias = torch.rand(48).bfloat16(), torch.randn(48).bfloat16() * 1000
    x = torch.randn(4, 64).bfloat16()
    compiled(lambda x, w, s, b: F.linear(x, w.to(x.dtype), b) * s, x, int8_weight(48, 64), scale, bias)
    assert "int8_linear" not in applied(done)


@pytest.mark.must_fail_under("int8-any-scale")
def test_a_scale_for_each_row(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(int8_layer, torch.randn(4, 64).bfloat16(), int8_weight(48, 64), torch.rand(4, 1).bfloat16())
    assert "int8_linear" not in applied(done)


@pytest.mark.must_fail_under("int8-strided")
def test_a_part_of_an_int8_weight(compiled: Compile, done: list[Rewritten]) -> None:
    weight = int8_weight(48, 128)[:, ::2]
    compiled(int8_layer, torch.randn(4, 64).bfloat16(), weight, torch.rand(48).bfloat16())
    assert "int8_linear" not in applied(done)


@pytest.mark.must_fail_under("one-byte-weights-copied")
def test_a_weight_of_one_byte_an_element(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(Held(int8_layer, int8_weight(48, 128), torch.rand(48)), torch.randn(4, 128), options=FREEZE)
    assert done[-1].frozen_bytes == 0


@pytest.mark.devices("interpret")
@pytest.mark.must_fail_under("pad-without-unit")
def test_float32_without_a_matrix_unit(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(Held(lambda x, w: (x.sin() @ w).cos(), torch.randn(33, 40)), torch.randn(16, 33), options=FREEZE)
    assert applied(done) == []


@pytest.mark.devices("interpret")
@pytest.mark.must_fail_under("pad-generated")
def test_a_product_of_a_generated_kernel(compiled: Compile, done: list[Rewritten]) -> None:
    module = Held(lambda x, w: (x.sin() @ w).cos(), torch.randn(13, 40).bfloat16())
    compiled(module, torch.randn(16, 13).bfloat16(), options=FREEZE)
    assert applied(done) == []


@pytest.mark.devices("interpret")
@pytest.mark.must_fail_under("pad-at-any-price")
def test_a_small_product_whose_factors_would_be_copied(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(torch.mm, torch.randn(16, 33).bfloat16(), torch.randn(33, 40).bfloat16())
    assert applied(done) == []


@pytest.mark.must_fail_under("pad-wrong-part")
@pytest.mark.golden(view=("kernel", "wrapper"), level="canonical")
def test_a_padded_product(compiled: Compile, done: list[Rewritten]) -> None:
    given = torch.randn(33, 37), torch.randn(37, 35)
    compiled(lambda a, b: torch.mm(a, b).cos(), *given, options={"rewrites": "+pad_all_products"})
    assert applied(done) == ["pad_all_products"]
