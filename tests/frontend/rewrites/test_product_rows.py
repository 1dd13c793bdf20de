"""The rows of matrix products: what each matches, the near misses with their reasons, and the graphs that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.frontend.rewrites import widen_products
from minductor.frontend.rewrites.addmm_activation import ADDMM_ACTIVATION
from minductor.frontend.rewrites.int8_linear import INT8_LINEAR
from minductor.frontend.rewrites.join_products import JOIN_PRODUCTS
from minductor.frontend.rewrites.large_linear import LARGE_LINEAR, MAKER
from minductor.frontend.rewrites.pack_linear import PACK_LINEAR
from minductor.frontend.rewrites.rewrite_row import Rewrite
from minductor.frontend.rewrites.vector_products import LEAST_COLUMNS, LEAST_ROWS, VECTOR_PRODUCTS
from minductor.frontend.rewrites.widen_products import WIDEN_PRODUCTS
from minductor.options import Options
from minductor.target import Env
from tests.frontend.rewrites.rewriting import CPU, GPU, Rewritten, assert_as_exact, rewritten

BF16, F16 = torch.bfloat16, torch.float16


class Row(NamedTuple):
    """A function with arguments; which of them are frozen; what its graph becomes, or why it stays."""

    fn: Callable[..., Any]
    args: Sequence[Tensor]
    frozen: Sequence[int] = (1, 2)
    says: str = ""  # the reason; "" if the row is applied
    env: Env = CPU

    def found(self, *rows: Rewrite) -> Rewritten:
        return rewritten(self.fn, self.args, rows, frozen=self.frozen, env=self.env)

    def check(self, *rows: Rewrite) -> Rewritten:
        """Applies the rows, and holds notes and numbers."""
        found = self.found(*rows)
        assert bool(found.applied) == (not self.says), found.notes
        assert not self.says or any(self.says in why for why in found.refusals), found.notes
        assert_as_exact(found, self.fn, self.args)
        return found


def randn(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*size, dtype=dtype)


# --- pack_linear

X, W, B = randn(32, 768), randn(800, 768), randn(800)
PACKED = {
    "a bias": (Row(F.linear, (X, W, B)), "none"),
    "no bias": (Row(F.linear, (X, W)), "none"),
    "a weight of columns": (Row(torch.mm, (X, W.t().contiguous())), "none"),
    "addmm": (Row(lambda x, w, b: torch.addmm(b, x, w), (X, W.t().contiguous(), B)), "none"),
    "three dimensions": (Row(F.linear, (randn(4, 8, 768), W, B)), "none"),
    "relu stays, for its NaN": (Row(lambda x, w, b: F.linear(x, w, b).relu(), (X, W, B)), "none"),
    "relu6 stays, for its NaN": (Row(lambda x, w, b: F.relu6(F.linear(x, w, b)), (X, W, B)), "none"),
    "leaky relu of three dimensions": (
        Row(lambda x, w, b: F.leaky_relu(F.linear(x, w, b)), (randn(4, 8, 768), W, B)),
        "leaky_relu",
    ),
    "leaky relu": (Row(lambda x, w, b: F.leaky_relu(F.linear(x, w, b), 0.2), (X, W, B)), "leaky_relu"),
    "hardswish": (Row(lambda x, w, b: F.hardswish(F.linear(x, w, b)), (X, W, B)), "hardswish"),
    "gelu stays": (Row(lambda x, w, b: F.gelu(F.linear(x, w, b)), (X, W, B)), "none"),
    "a product that is read twice": (
        Row(lambda x, w, b: (y := F.linear(x, w, b), y.relu()), (X, W, B)),
        "none",
    ),
    "a computed weight": (Row(lambda x, w, b: F.linear(x, w * 2, b), (X, W, B)), "none"),
    "a bias that changes": (Row(F.linear, (X, W, B), frozen=(1,)), "none"),
    "NaN": (Row(lambda x, w, b: F.hardswish(F.linear(x, w, b)), (X.clone().fill_(torch.nan), W, B)), "hardswish"),
    "infinity": (
        Row(lambda x, w, b: F.leaky_relu(F.linear(x, w, b)), (X.index_fill(1, torch.arange(1), torch.inf), W, B)),
        "leaky_relu",
    ),
}
NOT_PACKED = {
    "a weight that changes": Row(F.linear, (X, W, B), frozen=(2,), says="is not a frozen weight"),
    "float64": Row(F.linear, (X.double(), W.double(), B.double()), says="oneDNN does not compute in float64"),
    "a matrix is added": Row(
        lambda x, w, c: torch.addmm(c, x, w), (X, W.t().contiguous(), randn(32, 800)), says="is no bias"
    ),
    "a number is added": Row(
        lambda x, w, c: torch.addmm(c, x, w), (X, W.t().contiguous(), randn(1)), says="is no bias"
    ),
    "a scaled product": Row(
        lambda x, w, b: torch.addmm(b, x, w, alpha=2),
        (X, W.t().contiguous(), B),
        says="the product or its base is scaled",
    ),
    "a scaled bias": Row(
        lambda x, w, b: torch.addmm(b, x, w, beta=0.5),
        (X, W.t().contiguous(), B),
        says="the product or its base is scaled",
    ),
    "few multiply-adds": Row(F.linear, (randn(3, 768), randn(512, 768), randn(512)), says="768 x 512 is too small"),
    "a small weight": Row(F.linear, (randn(64, 256), randn(256, 256), randn(256)), says="64 x 256 x 256 is too small"),
    "one row": Row(F.linear, (randn(1, 768), W, B), says="1 x 768 x 800 is too small"),
}


@pytest.mark.parametrize("name", PACKED)
def test_linear_layers_are_packed(name: str) -> None:
    row, kind = PACKED[name]
    found = row.check(PACK_LINEAR)
    (call,) = (node for node in found.gm.graph.nodes if "_linear_pointwise" in str(node.target))
    assert call.args[3] == kind
    packed = call.args[1]
    assert "_reorder_linear_weight" in str(packed.target) and packed in found.frozen
    assert packed.args[1] == 32


@pytest.mark.parametrize("name", NOT_PACKED)
def test_linear_layers_that_are_not_packed(name: str) -> None:
    NOT_PACKED[name].check(PACK_LINEAR)


def test_packs_nothing_on_a_gpu() -> None:
    assert rewritten(F.linear, (X, W, B), [PACK_LINEAR], frozen=(1, 2), env=GPU).notes == ()


# --- large_linear

AMD = replace(CPU, device=MAKER)
LARGE, BIAS = randn(2048, 1024), randn(2048)
LARGE_ROWS = {
    "a bias": Row(F.linear, (randn(16, 1024), LARGE, BIAS), (), env=AMD),
    "no bias": Row(F.linear, (randn(2, 8, 1024), LARGE), (), env=AMD),
    "infinity and NaN": Row(
        F.linear, (torch.full((8, 1024), torch.inf).index_fill(0, torch.arange(1), torch.nan), LARGE), (), env=AMD
    ),
}
NOT_LARGE = {
    "frozen": Row(F.linear, (randn(16, 1024), LARGE, BIAS), env=AMD, says="is a frozen weight, which is packed"),
    "few rows": Row(F.linear, (randn(7, 1024), LARGE, BIAS), (), env=AMD, says="as fast with 7 rows"),
    "many rows": Row(F.linear, (randn(1025, 1024), LARGE, BIAS), (), env=AMD, says="as fast with 1025 rows"),
    "few columns": Row(F.linear, (randn(8, 2048), randn(1024, 2048)), (), env=AMD, says="as fast with 1024 columns"),
    "a matrix is added": Row(
        lambda x, w, c: torch.addmm(c, x, w.t()), (randn(8, 1024), LARGE, randn(8, 2048)), (), env=AMD, says="no bias"
    ),
}
WITHOUT_NOTE = {
    "another maker": Row(F.linear, (randn(16, 1024), LARGE, BIAS), (), env=replace(CPU, device="GenuineIntel")),
    "a GPU": Row(F.linear, (randn(16, 1024), LARGE, BIAS), (), env=replace(GPU, device=MAKER)),
    "a small weight": Row(F.linear, (randn(16, 1023), randn(2048, 1023)), (), env=AMD),
    "a weight of (inner, columns)": Row(torch.mm, (randn(16, 1024), randn(1024, 2048)), (), env=AMD),
    "float64": Row(F.linear, (randn(16, 1024).double(), LARGE.double()), (), env=AMD),
}


@pytest.mark.parametrize("name", LARGE_ROWS)
def test_large_linear_layers(name: str) -> None:
    found = LARGE_ROWS[name].check(LARGE_LINEAR)
    (call,) = (node for node in found.gm.graph.nodes if "_linear_pointwise" in str(node.target))
    assert call.args[1].op == "placeholder"


@pytest.mark.parametrize("name", NOT_LARGE)
def test_linear_layers_that_stay_with_mkl(name: str) -> None:
    NOT_LARGE[name].check(LARGE_LINEAR)


@pytest.mark.parametrize("name", WITHOUT_NOTE)
def test_linear_layers_that_have_no_note(name: str) -> None:
    assert WITHOUT_NOTE[name].found(LARGE_LINEAR).notes == ()


# --- widen_products

NARROW = {
    "linear": Row(F.linear, (X.bfloat16(), W.bfloat16(), B.bfloat16())),
    "linear, not frozen": Row(F.linear, (X.bfloat16(), W.bfloat16(), B.bfloat16()), frozen=()),
    "half": Row(F.linear, (X.half(), W.half(), B.half())),
    "eight rows": Row(F.linear, (X[:8].half(), W.half(), B.half())),
    "batches": Row(torch.bmm, (randn(3, 20, 33, dtype=BF16), randn(3, 33, 18, dtype=BF16)), frozen=()),
    "a scaled base": Row(
        lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2),
        (randn(3, 20, 18, dtype=BF16), randn(3, 20, 33, dtype=BF16), randn(3, 33, 18, dtype=BF16)),
        frozen=(),
    ),
    "a convolution": Row(
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        (randn(2, 8, 9, 9, dtype=BF16), randn(6, 8, 3, 3, dtype=BF16), randn(6, dtype=BF16)),
    ),
    "volumes, whose layout torch keeps in float32 only": Row(
        F.conv3d,
        (randn(2, 3, 6, 7, 8, dtype=F16).to(memory_format=torch.channels_last_3d), randn(4, 3, 3, 3, 3, dtype=F16)),
    ),
}
WIDE = {
    "float32": Row(F.linear, (X, W, B)),
    "seven rows": Row(F.linear, (X[:7].bfloat16(), W.bfloat16()), says="a product of 7 rows"),
    "fifteen rows, not frozen": Row(
        F.linear, (X[:15].bfloat16(), W.bfloat16()), frozen=(), says="a product of 15 rows"
    ),
}


@pytest.fixture
def slow_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are applied as on a CPU without instructions for 16 bits."""
    monkeypatch.setattr(widen_products, "is_slow", lambda dtype: dtype in (BF16, F16))


@pytest.mark.usefixtures("slow_cpu")
@pytest.mark.parametrize("name", NARROW)
def test_products_of_16_bits_are_widened(name: str) -> None:
    found = NARROW[name].check(WIDEN_PRODUCTS)
    products = [
        node for node in found.gm.graph.nodes if str(node.target).startswith(("aten.mm", "aten.addmm", "aten.b"))
    ]
    assert all(node.meta["val"].dtype == torch.float32 for node in products)


@pytest.mark.usefixtures("slow_cpu")
@pytest.mark.parametrize("name", WIDE)
def test_products_that_are_not_widened(name: str) -> None:
    found = WIDE[name].found(WIDEN_PRODUCTS)
    assert not found.applied and WIDE[name].says in "".join(found.refusals), found.notes


def test_a_cpu_with_instructions_widens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widen_products, "is_slow", lambda dtype: False)
    assert NARROW["linear"].found(WIDEN_PRODUCTS).notes == ()


@pytest.mark.usefixtures("slow_cpu")
def test_a_frozen_weight_is_widened_once_and_packed() -> None:
    found = NARROW["linear"].check(WIDEN_PRODUCTS, PACK_LINEAR)
    assert found.applied == ["widen_products", "pack_linear"]
    widened = [node for node in found.gm.graph.nodes if "_to_copy" in str(node.target)]
    assert [node in found.frozen for node in widened] == [True, False, True, False]


# --- join_products


def heads(y: Tensor) -> Tensor:
    return y.unflatten(-1, (4, -1)).transpose(-2, -3)


def attention(*given: Tensor) -> Tensor:
    """Three products of one operand, with biases if six weights are given."""
    x, *rest = given
    weights, biases = rest[:3], rest[3:] or [None] * 3
    q, k, v = (heads(F.linear(x, w, b)) for w, b in zip(weights, biases, strict=True))
    return F.scaled_dot_product_attention(q * 1, k * 1, v * 1)


def gated(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(x @ gate) * (x @ up)


SMALL, WS, BS = randn(2, 16, 64), [randn(64, 64) for _ in range(3)], [randn(64) for _ in range(3)]
WIDE_X, WIDE_WS = randn(32, 512), [randn(2048, 512) for _ in range(2)]
ALL = range(1, 10)
JOINED = {
    "queries, keys and values": (Row(attention, (SMALL, *WS, *BS), range(1, 7)), 1),
    "no biases": (Row(attention, (SMALL, *WS), (1, 2, 3)), 1),
    "gate and up": (Row(gated, (SMALL[0], WS[0], WS[1]), (1, 2)), 1),
    "other widths": (Row(gated, (SMALL[0], WS[0][:, :1], WS[1]), (1, 2)), 1),
    "large, since it is packed": (
        Row(lambda x, a, b: F.linear(x, a).sin() * F.linear(x, b), (WIDE_X, *WIDE_WS), (1, 2)),
        1,
    ),
    "on a GPU, of any size": (
        Row(lambda x, a, b: F.linear(x, a).sin() * F.linear(x, b), (WIDE_X.repeat(9, 1), *WIDE_WS), (1, 2), env=GPU),
        1,
    ),
    "two operands": (
        Row(
            lambda x, y, a, b, c, d: (x @ a) * (x @ b) + (y @ c) * (y @ d),
            (SMALL[0], SMALL[1], *WS, WS[0]),
            (2, 3, 4, 5),
        ),
        2,
    ),
}
NOT_JOINED = {
    "a weight that changes": Row(gated, (SMALL[0], WS[0], WS[1]), (1,), "is not a frozen weight"),
    "a result that the caller gets": Row(
        lambda x, a, b: (x @ a, (x @ b) * 2), (SMALL[0], WS[0], WS[1]), (1, 2), "the caller gets mm"
    ),
    "a view of a result that the caller gets": Row(
        lambda x, a, b: ((x @ a).view(4, 4, 64).transpose(0, 1), (x @ b) * 2),
        (SMALL[0], WS[0], WS[1]),
        (1, 2),
        "the caller gets transpose",
    ),
    "a view that needs a contiguous result": Row(
        lambda x, a, b: (x @ a).view(-1) * (x @ b).sum(), (SMALL[0], WS[0], WS[1]), (1, 2), "needs mm contiguous"
    ),
    "a matrix is added": Row(
        lambda x, a, b, c: torch.addmm(c, x, a) * torch.addmm(c, x, b),
        (SMALL[0], WS[0], WS[1], randn(16, 64)),
        (1, 2, 3),
        "is no bias",
    ),
    "a weight from behind": Row(
        lambda x, a, b: (x @ a).sin() * (x @ (b * 2)), (SMALL[0], WS[0], WS[1]), (1, 2), "is computed behind"
    ),
    "a write between": Row(
        lambda x, a, b, c: ((x @ a).sin(), c.add_(1), (x @ b).cos())[::2],
        (SMALL[0], WS[0], WS[1], randn(3)),
        (1, 2),
        "writes to memory between the products",
    ),
    "large and not packed": Row(
        lambda x, a, b: F.linear(x, a).sin() * F.linear(x, b),
        [each.double() for each in (WIDE_X, *WIDE_WS)],
        (1, 2),
        "are too large",
    ),
}
SINGLE = {
    "one product": Row(lambda x, a, b: (x @ a).sin(), (SMALL[0], WS[0], WS[1])),
    "other operands": Row(lambda x, a, y, b: (x @ a) * (y @ b), (SMALL[0], WS[0], SMALL[1], WS[1]), (1, 3)),
    "right operand of another": Row(lambda x, a, b: (x @ a) * (b @ x), (WS[0], WS[1], WS[2]), (0, 1, 2)),
    "product and sum": Row(lambda x, a, b, c: (x @ a) * F.linear(x, b, c), (SMALL[0], WS[0], WS[1], BS[0]), (1, 2, 3)),
}


@pytest.mark.parametrize("name", JOINED)
def test_products_of_one_operand_are_joined(name: str) -> None:
    row, count = JOINED[name]
    found = row.check(JOIN_PRODUCTS)
    assert sum(each in ("mm", "addmm") for each in found.operators) == count
    assert "clone" not in found.operators


@pytest.mark.parametrize("name", NOT_JOINED)
def test_products_that_are_not_joined(name: str) -> None:
    NOT_JOINED[name].check(JOIN_PRODUCTS)


@pytest.mark.parametrize("name", SINGLE)
def test_products_that_are_no_family(name: str) -> None:
    found = SINGLE[name].found(JOIN_PRODUCTS)
    assert found.notes == ()


def test_a_joined_weight_is_packed() -> None:
    row, _ = JOINED["large, since it is packed"]
    found = row.check(JOIN_PRODUCTS, PACK_LINEAR)
    assert found.applied == ["join_products", "pack_linear"]


# --- int8_linear

XB, SCALE = randn(4, 64, dtype=BF16), torch.rand(32).bfloat16()
W8 = torch.randint(-128, 127, (32, 64), dtype=torch.int8)


def scaled_behind(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype)) * s


INT8 = {
    "scaled behind": Row(scaled_behind, (XB, W8, SCALE), ()),
    "scaled behind, three dimensions": Row(scaled_behind, (randn(2, 3, 64, dtype=BF16), W8, SCALE), ()),
    "scale first": Row(lambda x, w, s: s * F.linear(x, w.to(x.dtype)), (XB, W8, SCALE), ()),
    "scaled before": Row(lambda x, w, s: F.linear(x, w.to(x.dtype) * s[:, None]), (XB, W8, SCALE), ()),
    "scaled before, transposed": Row(lambda x, w, s: x @ (w.to(x.dtype) * s.unsqueeze(1)).t(), (XB, W8, SCALE), ()),
    "frozen": Row(scaled_behind, (XB, W8, SCALE)),
    "odd columns": Row(scaled_behind, (randn(5, 64, dtype=BF16), W8[:31], SCALE[:31]), ()),
}
NOT_INT8 = {
    "a bias before the scale": Row(
        lambda x, w, s, b: F.linear(x, w.to(x.dtype), b) * s, (XB, W8, SCALE, SCALE), (), "a bias is added"
    ),
    "one scale": Row(scaled_behind, (XB, W8, SCALE[:1]), (), "is not one bfloat16 number for each column"),
    "a scale in float32": Row(
        lambda x, w, s: F.linear(x, w.to(x.dtype)) * s, (XB, W8, SCALE.float()), (), "is not one bfloat16 number"
    ),
    "a scale for each row": Row(scaled_behind, (XB, W8, torch.rand(4, 1).bfloat16()), (), "is not one bfloat16 number"),
    "a scale of the inner axis": Row(
        lambda x, w, s: F.linear(x, w.to(x.dtype) * s),
        (XB, W8, torch.rand(64).bfloat16()),
        (),
        "is not one bfloat16 number",
    ),
    "an odd inner axis": Row(
        scaled_behind, (XB[:, :61], W8[:, :61].contiguous(), SCALE), (), "61, is no multiple of 32"
    ),
    "a part of a weight": Row(scaled_behind, (XB, torch.cat([W8, W8], 1)[:, ::2], SCALE), (), "is not contiguous"),
    "a product that is read twice": Row(
        lambda x, w, s: (y := F.linear(x, w.to(x.dtype)), y * s),
        (XB, W8, SCALE),
        (),
        "which the rewrite would not compute",
    ),
}
OTHER = {
    "float32": Row(scaled_behind, (XB.float(), W8, SCALE.float()), ()),
    "unscaled": Row(lambda x, w: F.linear(x, w.to(x.dtype)), (XB, W8), ()),
    "uint8": Row(scaled_behind, (XB, W8.view(torch.uint8), SCALE), ()),
    "a GPU": Row(scaled_behind, (XB, W8, SCALE), (), env=GPU),
}


@pytest.mark.parametrize("name", INT8)
def test_int8_weights_are_read_as_they_are(name: str) -> None:
    found = INT8[name].check(INT8_LINEAR)
    assert "_weight_int8pack_mm" in found.operators and "_to_copy" not in found.operators


@pytest.mark.parametrize("name", NOT_INT8)
def test_int8_weights_that_are_converted(name: str) -> None:
    found = NOT_INT8[name].found(INT8_LINEAR)
    assert not found.applied and NOT_INT8[name].says in "".join(found.refusals), found.notes


@pytest.mark.parametrize("name", OTHER)
def test_other_conversions(name: str) -> None:
    assert OTHER[name].found(INT8_LINEAR).notes == ()


# --- addmm_activation

ACTIVATED = {
    "relu": Row(lambda x, w, b: F.linear(x, w, b).relu(), (X, W, B), (), env=GPU),
    "gelu": Row(lambda x, w, b: F.gelu(torch.addmm(b, x, w.t()), approximate="tanh"), (X, W, B), (), env=GPU),
    "three dimensions": Row(lambda x, w, b: F.linear(x, w, b).relu(), (randn(4, 8, 768), W, B), (), env=GPU),
}
NOT_ACTIVATED = {
    "the exact gelu": Row(lambda x, w, b: F.gelu(F.linear(x, w, b)), (X, W, B), (), "GELU by tanh only", GPU),
    "a matrix is added": Row(
        lambda x, w, c: torch.addmm(c, x, w.t()).relu(), (X, W, randn(32, 800)), (), "no bias", GPU
    ),
    "read twice": Row(
        lambda x, w, b: (y := F.linear(x, w, b), y.relu()), (X, W, B), (), "which the rewrite would not compute", GPU
    ),
}


@pytest.mark.parametrize("name", ACTIVATED)
def test_activations_become_epilogues(name: str) -> None:
    row = ACTIVATED[name]
    found = row.found(ADDMM_ACTIVATION)
    assert found.applied == ["addmm_activation"] and "_addmm_activation" in found.operators
    if name != "gelu":  # the CPU's form of the operator has the exact GELU
        assert_as_exact(found, row.fn, row.args)


@pytest.mark.parametrize("name", NOT_ACTIVATED)
def test_activations_that_stay(name: str) -> None:
    NOT_ACTIVATED[name].check(ADDMM_ACTIVATION)


def test_activations_stay_on_a_cpu() -> None:
    row = ACTIVATED["relu"]._replace(env=Env(Options(), CPU.target))
    assert row.found(ADDMM_ACTIVATION).notes == ()


# --- vector_products


def vectors(left: Sequence[int], right: Sequence[int], turned: str = "", **more: Any) -> Row:
    """A product of batches of these sizes; `turned` has a letter for each factor whose columns are contiguous."""
    dtype = more.pop("dtype", torch.float32)
    given = []
    for letter, size in zip("lr", (left, right), strict=True):
        value = randn(size[0], size[2], size[1], dtype=dtype).mT if letter in turned else randn(*size, dtype=dtype)
        given.append(value)
    return Row(torch.bmm, tuple(given), frozen=(), **more)


ROWS, FEW = LEAST_ROWS, LEAST_COLUMNS
VECTORS = {
    "rows": vectors((5, ROWS, 33), (5, 33, 1)),
    "columns": vectors((5, FEW, 33), (5, 33, 1), "l"),
    "a row by a matrix": vectors((5, 1, 33), (5, 33, FEW)),
    "a row by rows": vectors((5, 1, 33), (5, 33, ROWS), "r"),
    "two vectors for each sum": vectors((5, 2, 1), (5, 1, 3), "lr"),
    "bfloat16": vectors((5, ROWS, 33), (5, 33, 1), dtype=BF16),
    "half": vectors((5, 1, 33), (5, 33, 20), dtype=F16),
    "a pair of numbers": vectors((5, 7, 1), (5, 1, 7), dtype=BF16),
    "a column of a wider matrix": Row(
        lambda a, b: torch.bmm(a, b[:, :, :1]), (randn(5, 20, 8).mT, randn(5, 20, 3)), ()
    ),
}
OTHERS = {
    "few rows": vectors((5, ROWS - 1, 33), (5, 33, 1), says=f"{ROWS - 1} rows, fewer than"),
    "few columns": vectors((5, FEW - 1, 33), (5, 33, 1), "l", says="not contiguous along the axis"),
    "a scattered vector": Row(
        lambda a, b: torch.bmm(a, b[:, :, :1]), (randn(5, 20, 8), randn(5, 8, 3)), (), "not contiguous along the axis"
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_products_with_vectors(name: str) -> None:
    found = VECTORS[name].check(VECTOR_PRODUCTS)
    assert "bmm" not in found.operators


@pytest.mark.parametrize("name", OTHERS)
def test_products_with_vectors_that_stay(name: str) -> None:
    assert OTHERS[name].check(VECTOR_PRODUCTS).operators.count("bmm") == 1


def test_products_that_have_no_vectors() -> None:
    for row in (vectors((5, 2, 3), (5, 3, 2)), VECTORS["rows"]._replace(env=GPU)):
        assert row.found(VECTOR_PRODUCTS).notes == ()
    wide = Row(torch.bmm, (randn(5, ROWS, 3).double(), randn(5, 3, 1).double()), ())
    assert wide.found(VECTOR_PRODUCTS).notes == ()
