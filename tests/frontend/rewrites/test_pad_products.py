"""Padded products: which sizes count, what is refused, numbers beside float64, and random products with all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from minductor.frontend.rewrites import pack_linear, widen_products
from minductor.frontend.rewrites.addmm_activation import ADDMM_ACTIVATION
from minductor.frontend.rewrites.int8_linear import INT8_LINEAR
from minductor.frontend.rewrites.join_products import JOIN_PRODUCTS
from minductor.frontend.rewrites.operator_calls import operator_name
from minductor.frontend.rewrites.pack_linear import PACK_LINEAR
from minductor.frontend.rewrites.pad_products import PAD_ALL_PRODUCTS, PAD_PRODUCTS, find
from minductor.frontend.rewrites.product_calls import PRODUCTS
from minductor.frontend.rewrites.widen_products import WIDEN_PRODUCTS
from minductor.options import Options
from minductor.target import Env, by_name
from tests.frontend.rewrites.rewriting import CPU, GPU, assert_as_exact, rewritten

BF16 = torch.bfloat16
TF32 = Env(Options(matmul_precision="tf32"), by_name("sm_90"))


def half(*size: int) -> Tensor:
    return torch.randn(*size, dtype=BF16)


class Padded(NamedTuple):
    """A function with arguments, and the sizes of the product's factors once it is padded."""

    fn: Callable[..., Any]
    args: Sequence[Tensor]
    left: tuple[int, ...]
    right: tuple[int, ...]


# In 16 bits 8 divides the sizes that fit. Sizes that no factor and no result has contiguous stay as they are.
PADDED: Mapping[str, Padded] = {
    "columns": Padded(torch.mm, (half(33, 40), half(40, 35)), (33, 40), (40, 40)),
    "the inner axis": Padded(torch.mm, (half(33, 37), half(37, 32)), (33, 40), (40, 32)),
    "both": Padded(torch.mm, (half(33, 37), half(37, 35)), (33, 40), (40, 40)),
    "a transposed weight": Padded(F.linear, (half(33, 37), half(35, 37), half(35)), (33, 40), (40, 40)),
    "a transposed left factor": Padded(lambda a, b: a.t() @ b, (half(40, 33), half(40, 32)), (40, 40), (40, 32)),
    "no inner axis contiguous": Padded(lambda a, b: a.t() @ b, (half(37, 33), half(37, 32)), (40, 37), (37, 32)),
    "a batch": Padded(torch.bmm, (half(3, 33, 37), half(3, 37, 35)), (3, 33, 40), (3, 40, 40)),
    "a matrix is added": Padded(
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
        (half(33, 35), half(33, 37), half(37, 35)),
        (33, 40),
        (40, 40),
    ),
    "a column is added": Padded(torch.addmm, (half(33, 1), half(33, 37), half(37, 35)), (33, 40), (40, 40)),
    "a number is added": Padded(torch.addmm, (half(1), half(33, 37), half(37, 35)), (33, 40), (40, 40)),
    "a batch is added": Padded(
        lambda c, a, b: torch.baddbmm(c, a, b, alpha=3),
        (half(3, 1, 35), half(3, 33, 37), half(3, 37, 35)),
        (3, 33, 40),
        (3, 40, 40),
    ),
    "an expanded factor": Padded(
        lambda a, b: torch.bmm(a, b.expand(3, 37, 35)), (half(3, 33, 37), half(1, 37, 35)), (3, 33, 40), (3, 40, 40)
    ),
    "float32": Padded(torch.mm, (torch.randn(33, 37), torch.randn(37, 35)), (33, 40), (40, 36)),
    "a producer": Padded(lambda a, b: F.gelu(a) @ b, (half(33, 37), half(37, 32)), (33, 40), (40, 32)),
    "a view of the result": Padded(
        lambda a, b: (a @ b).view(3, 11, 35).transpose(0, 1) * 2, (half(33, 40), half(40, 35)), (33, 40), (40, 40)
    ),
    "NaN and infinity": Padded(
        torch.mm,
        (
            half(33, 37).index_fill(0, torch.tensor([32]), torch.inf),
            half(37, 35).index_fill(1, torch.tensor([34]), torch.nan),
        ),
        (33, 40),
        (40, 40),
    ),
}
FITTING: Mapping[str, tuple[Callable[..., Any], Sequence[Tensor]]] = {
    "aligned": (torch.mm, (half(32, 40), half(40, 48))),
    "odd rows": (torch.mm, (half(33, 40), half(40, 48))),
    "one row": (torch.mm, (half(1, 37), half(37, 35))),
    "one column": (torch.mm, (half(33, 37), half(37, 1))),
    "no sums": (torch.mm, (half(33, 0), half(0, 35))),
    "no rows": (torch.mm, (half(0, 37), half(37, 35))),
    "integers": (torch.mm, (torch.ones(33, 37, dtype=torch.int64), torch.ones(37, 35, dtype=torch.int64))),
}


@pytest.mark.parametrize("name", PADDED)
def test_products_are_padded(name: str) -> None:
    row = PADDED[name]
    found = rewritten(row.fn, row.args, [PAD_ALL_PRODUCTS])
    assert found.applied == ["pad_all_products"]
    (product,) = (node for node in found.gm.graph.nodes if operator_name(node) in PRODUCTS)
    assert [tuple(node.meta["val"].shape) for node in product.args[-2:]] == [row.left, row.right]
    assert_as_exact(found, row.fn, row.args)


@pytest.mark.parametrize("name", FITTING)
def test_products_that_fit(name: str) -> None:
    assert rewritten(*FITTING[name], [PAD_ALL_PRODUCTS]).notes == ()


def test_a_padded_weight_keeps_its_layout() -> None:
    found = rewritten(F.linear, (half(33, 37), half(35, 37)), [PAD_ALL_PRODUCTS])
    (product,) = (node for node in found.gm.graph.nodes if operator_name(node) in PRODUCTS)
    assert product.args[1].meta["val"].stride() == (1, 40)


def test_an_operand_of_several_products_is_padded_once() -> None:
    given = half(33, 37), half(37, 32), half(37, 40)
    found = rewritten(lambda x, a, b: (x @ a, x @ b), given, [PAD_ALL_PRODUCTS])
    assert found.operators.count("constant_pad_nd") == 3
    assert_as_exact(found, lambda x, a, b: (x @ a, x @ b), given)


# --- whether it pays. Frozen weights are padded once, and kernels that compute an operand pad it.

X, W, B = half(64, 1024), half(1001, 1024), half(1001)


def layer(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(F.gelu(x), w).sin()


class Choice(NamedTuple):
    fn: Callable[..., Any]
    args: Sequence[Tensor]
    frozen: Sequence[int] = ()
    env: Env = GPU
    says: str = ""  # the reason; "" if the product is padded


CHOICES: Mapping[str, Choice] = {
    "a frozen weight": Choice(layer, (X, W), (1,)),
    "a weight that is copied": Choice(layer, (X, W), says="it would take"),
    "large, though the weight is copied": Choice(layer, (half(16384, 1024), half(4097, 1024))),
    "a produced operand": Choice(lambda x, w: (F.gelu(x) @ w).sin(), (half(64, 1001), half(1001, 1024)), (1,)),
    "an operand that is copied": Choice(
        lambda x, w: (x @ w).sin(), (half(64, 1001), half(1001, 1024)), (1,), says="it would take"
    ),
    "a result that the caller gets": Choice(F.linear, (X, W, B), (1, 2), says="it would take"),
    "tf32": Choice(layer, (X.float(), W.float()), (1,), TF32),
    "float32": Choice(layer, (X.float(), W.float()), (1,), says="only if TF32 is allowed"),
    "float64": Choice(layer, (X.double(), W.double()), (1,), says="no matrix unit is used for float64"),
    "a short inner axis": Choice(layer, (half(512, 13), half(1001, 13)), (1,), says="a generated kernel"),
    "a short inner axis, by the library": Choice(
        layer, (half(512, 13), half(1001, 13)), (1,), Env(Options(matmul="extern"), GPU.target)
    ),
    "generated products": Choice(layer, (X, W), (1,), Env(Options(matmul="native"), GPU.target), "a generated kernel"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_products_are_padded_where_it_pays(name: str) -> None:
    choice = CHOICES[name]
    found = rewritten(choice.fn, choice.args, [PAD_PRODUCTS], frozen=choice.frozen, env=choice.env)
    assert found.notes and bool(found.applied) == (not choice.says), found.notes
    assert choice.says in "".join(found.refusals)


def test_nothing_is_padded_on_a_cpu() -> None:
    assert rewritten(layer, (X, W), [PAD_PRODUCTS], frozen=(1,), env=CPU).notes == ()


def test_sizes_that_are_no_numbers_get_no_pads() -> None:
    """The traced value has a size symbol, which no pad can be computed for."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from minductor.frontend.rewrites.rewrite_row import Site

    gm = make_fx(torch.mm, tracing_mode="symbolic")(half(33, 37), half(37, 35))
    (node,) = (node for node in gm.graph.nodes if node.op == "call_function")
    assert find(Site(node, GPU, "val", set())) is None


# --- random products

ROWS = (INT8_LINEAR, PAD_ALL_PRODUCTS, WIDEN_PRODUCTS, JOIN_PRODUCTS, PACK_LINEAR, ADDMM_ACTIVATION)
DTYPES = (torch.float32, torch.float64, BF16, torch.float16)
SIZES = st.sampled_from((0, 1, 2, 7, 8, 9, 16, 31, 40))


@st.composite
def factors(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Two factors and what may be added, of one dtype: transposed, expanded, sliced, or plain."""
    dtype = draw(st.sampled_from(DTYPES))
    batch = (draw(st.sampled_from((1, 2, 3))),) if draw(st.booleans()) else ()
    m, k, n = draw(SIZES), draw(SIZES), draw(SIZES)
    torch.manual_seed(draw(st.integers(0, 9)))

    def matrix(rows: int, columns: int) -> Tensor:
        form = draw(st.sampled_from(("plain", "turned", "expanded", "sliced")))
        if form == "turned":
            return torch.randn(*batch, columns, rows).to(dtype).mT
        if form == "expanded":
            return torch.randn(*batch, 1, columns).to(dtype).expand(*batch, rows, columns)
        if form == "sliced":
            return torch.randn(*batch, rows, columns + 3).to(dtype)[..., 1 : columns + 1]
        return torch.randn(*batch, rows, columns).to(dtype)

    added = draw(st.sampled_from(((n,), (m, n), (1, n), (m, 1), (1,), ())))
    return matrix(m, k), matrix(k, n), torch.randn(added).to(dtype)


def plain(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a @ b


def activated(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return F.leaky_relu(a @ b + c)


def scaled(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    call = torch.addmm if a.dim() == 2 else torch.baddbmm
    return call(c, a, b, beta=0.5, alpha=3)


def twice(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a @ b).sin() + (a @ (b * 1)).mT.mT * c


def chained(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a @ b).relu() @ b.mT


@settings(max_examples=60, deadline=None)
@given(st.sampled_from((plain, activated, scaled, twice, chained)), factors(), st.booleans())
def test_random_products_are_as_exact_as_eagers(
    fn: Callable[..., Tensor], args: tuple[Tensor, ...], is_frozen: bool
) -> None:
    """All rows on a CPU without 16-bit instructions, where each weight is worth packing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(widen_products, "is_slow", lambda dtype: dtype.itemsize == 2)
        patch.setattr(pack_linear, "pays", lambda rows, inner, columns: rows and inner and columns)
        found = rewritten(fn, args, ROWS, frozen=(1, 2) if is_frozen else ())
    assert_as_exact(found, fn, args)
