"""The decomposition table: each row does something, and nothing that a rule takes whole is taken apart."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from minductor.core.expressions.expr import as_int
from minductor.driver import Compiler
from minductor.frontend.quirks.eager_strides import WITH_OWN_STRIDES
from minductor.frontend.quirks.encoder_layers import FEWEST_FUSED, PADDING, PAIRS, SCORES
from minductor.frontend.rules.table import RULES
from minductor.frontend.torch_graph.decompositions import COPYING_SCATTERS, DECOMPOSED, decompositions
from minductor.ir.program.nodes import View
from tests.frontend.test_layouts import window
from tests.frontend.tracing import compiled, grads, lowered, randn


def test_each_row_has_a_decomposition_and_a_reason() -> None:
    taken_apart = {op.overloadpacket.__name__ for op in decompositions() if isinstance(op, torch._ops.OpOverload)}
    assert set(DECOMPOSED) <= taken_apart
    assert all(DECOMPOSED.values())


def test_operators_with_rules_arrive_whole() -> None:
    laid = {str(op) for op in decompositions() if torch.Tag.pointwise in op.tags} | WITH_OWN_STRIDES
    laid |= {f"aten.{name}.default" for name in (*COPYING_SCATTERS, "constant_pad_nd", "view", "_unsafe_view")}
    assert not {str(op) for op in decompositions()} & set(RULES) - laid
    turned = randn(2, 3).t()
    for fn, op in ((torch.copysign, "copysign.Tensor"), (torch.hypot, "hypot.default"), (torch.mul, "mul.Tensor")):
        assert [node.op for node in lowered(fn, turned, randn(2, 3, seed=1).t()).graphs[0].nodes] == [f"aten.{op}"]


# operators of two tensors that torch lays out otherwise than eager, with what they want besides
PAIRWISE: dict[str, dict[str, Any]] = {
    "copysign.Tensor": {},
    "div.Tensor_mode": {"rounding_mode": "floor"},
    "floor_divide.default": {},
    "complex.default": {},
    "hardswish_backward.default": {},
    "hardtanh_backward.default": {"min_val": -1.0, "max_val": 1.0},
    "heaviside.default": {},
    "logaddexp.default": {},
    "logaddexp2.default": {},
    "logical_and.default": {},
    "logical_or.default": {},
    "logical_xor.default": {},
    "ldexp.Tensor": {},
    "logit_backward.default": {},
    "rsub.Tensor": {"alpha": 2},
    "softplus_backward.default": {"beta": 1.0, "threshold": 20.0},
    "special_xlog1py.default": {},
    "xlogy.Tensor": {},
}


@pytest.mark.parametrize("most", [len(PAIRWISE), 1], ids=["static", "dynamic"])
def test_strides_are_those_of_eager(most: int) -> None:
    ops = [
        partial(getattr(getattr(torch.ops.aten, name.split(".")[0]), name.split(".")[1]), **more)
        for name, more in list(PAIRWISE.items())[:most]
    ]
    row, image = randn(5).abs(), randn(2, 3, 4, 5).abs()
    last = image.contiguous(memory_format=torch.channels_last)
    turned = randn(5, 4, 3, 2).abs().permute(3, 2, 1, 0)
    pairs = [(image, last), (last, turned), (row, last), (last, row), (image[:, :1], turned), (turned, row[0])]
    # the same strides, or red
    seen = compiled(lambda *given: [op(a, b) for op in ops for a, b in given], *pairs, dynamic=most == 1)
    assert not seen.externs


LAYOUTS: dict[str, Callable[..., Any]] = {
    "a number": lambda x, y: x * 2 + 1,
    "a power": lambda x, y: (2**x, x**2),
    "several": lambda x, y: (torch.lerp(x, y, 0.5), torch.hypot(x, y), torch.logaddexp(y, x), torch.addcmul(y, x, x)),
    "a cast": lambda x, y: (x * y.double(), x.int() + y, x.double(), y > x.int()),
    "a choice": lambda x, y: (torch.where(x > y, x, 0.0), x.masked_fill(y > 0.5, 1.0), x.clamp(0, 1)),
    "one": lambda x, y: (x.relu(), x.nan_to_num(), x.clone(), torch.zeros_like(y), x.flip(-1), F.hardtanh(y)),
    "a loss": lambda x, y: (
        F.mse_loss(x, y, reduction="none"),
        F.huber_loss(x, y, reduction="none"),
        F.mse_loss(x, x * 2),
    ),
    "a norm": lambda x, y: (F.layer_norm(x, x.shape[-1:]), torch.linalg.vector_norm(y, 2, -1, keepdim=True)),
    "a place": lambda x, y: (x[..., torch.tensor([0, 0])], x[torch.tensor([[0], [0]])], x[:, torch.tensor([0])] * y),
    "two places": lambda x, y: (x[torch.tensor([0]), :, torch.tensor([0])], y[:, torch.tensor([0]), torch.tensor(0)]),
    "a write": lambda x, y: (
        x.index_fill(1, torch.tensor([0]), 1.0),
        x.index_add(0, torch.tensor([0]), x[:1]),
        y.index_put((torch.tensor([0]),), torch.tensor(1.0)),
    ),
    "a buffer": lambda x, y: (torch.empty_like(x).fill_(1), torch.empty_like(y).copy_(y * 2)),
    "gradients": lambda x, y: (
        torch.ops.aten.threshold_backward(x, y, 0.5),
        torch.ops.aten.native_dropout_backward(x, y > 0.5, 2.0),
    ),
    "a view": lambda x, y: ((x * 2).view(1, 1, *x.shape), (y * 2).view(*y.shape, 1, 1)),
    "turned round": lambda x, y: (torch.rsub(x, y, alpha=2), torch.ldexp(x, y), torch.complex(x, y)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_dimensions_of_size_1_have_strides_of_eager(name: str) -> None:
    pick, fn = random.Random(name), LAYOUTS[name]
    for _ in range(3):
        size = [pick.choice([1, 1, 2, 3]) for _ in range(pick.randint(3, 4))]
        x, y = window(pick, size), window(pick, [n if pick.random() < 0.8 else 1 for n in size])
        expected, outputs = fn(x, y), lowered(fn, x, y).program.outputs
        for want, got in zip(expected if isinstance(expected, tuple) else (expected,), outputs, strict=True):
            assert isinstance(got, View)
            assert tuple(map(as_int, got.stride)) == want.stride(), (x.shape, x.stride(), y.shape, y.stride())


@pytest.mark.parametrize("name", ["a number", "several", "a choice"])
def test_dimensions_of_size_1_beside_symbols_add_no_guards(name: str) -> None:
    x = torch.rand(6, 3, 5)[:, 1:2]  # strides (15, 5, 1)
    compiled(LAYOUTS[name], x, torch.rand(6, 1, 5), dynamic=True)


def test_a_place_of_symbolic_count_is_no_reason_to_guess_strides() -> None:
    x = torch.randn(2, 1, 2).permute(1, 2, 0)
    compiled(lambda x: x[:, torch.arange(x.shape[1]) % 2], x, dynamic=True)


def test_a_row_of_symbolic_size_whose_strides_do_not_nest_has_no_channels_last() -> None:
    x = torch.rand(99).as_strided((4, 2, 1, 3), (6, 1, 2, 2))
    compiled(lambda x: torch.ops.aten.replication_pad2d(x, (1, 1, 0, 0)), x, dynamic=True)


def test_symbols_that_rule_out_channels_last_make_a_batch_norm_row_major() -> None:
    x = torch.rand(2, 4, 3, 5)
    turned = x.transpose(2, 3), x.contiguous(memory_format=torch.channels_last).transpose(2, 3), x[0].transpose(1, 2)
    compiled(lambda *given: [F.batch_norm(v, None, None, training=True) for v in given], *turned, dynamic=True)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_gradients_of_a_fourier_transform(is_dynamic: bool) -> None:
    compiled(lambda x: torch.fft.fft2(x, dim=(2, 0)).abs().sum(), *grads(randn(4, 5, 6)), dynamic=is_dynamic)


def test_padding_that_takes_away_keeps_the_order_of_dimensions() -> None:
    """As in the gradient of a transform that was padded by so many as the size lacks."""
    x = torch.randn(5, 6, 7, requires_grad=True)
    result = torch.compile(lambda x: torch.fft.rfft(x, n=10, dim=1), backend=Compiler(), dynamic=True)(x)
    (gradient,) = torch.autograd.grad(result, x, torch.ones_like(result))
    assert gradient.stride() == (42, 1, 6)


def test_a_scatter_into_an_expanded_tensor_is_laid_out_as_its_copy() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        pair = (x + 1)[..., 1::3].expand(2, 3, 1, 6)
        return torch.slice_scatter(pair, pair[:1] * 2, 0, 0, 1)

    compiled(fn, torch.randn(17, 3, 1).permute(1, 2, 0))


def test_a_scatter_into_an_expanded_tensor_without_elements_comes_to_an_end() -> None:
    compiled(lambda x: torch.diagonal_scatter(x, x.diagonal() + 1), torch.ones(4).expand(0, 4))


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="until 2.12 torch's fake tensors refuse it")
def test_a_copy_has_any_size() -> None:
    lowered(lambda x: torch.ops.aten.view_copy(x, (2, 3)), randn(2, 3).t())


def test_log_sigmoid_is_contiguous() -> None:
    compiled(F.logsigmoid, *grads(randn(4, 6).t()))


def test_sums_of_bfloat16_bags_keep_nothing_that_torch_only_traces() -> None:
    places, starts = torch.tensor([1, 3, 1, 0]), torch.tensor([0, 3])
    compiled(lambda w: F.embedding_bag(places, w, starts, mode="sum"), *grads(randn(4, 6, dtype=torch.bfloat16)))


def encoder_layer(dtype: torch.dtype = torch.float32) -> tuple[Callable[..., Any], Sequence[torch.Tensor]]:
    """`(x, *weights, mask, kind)`: what `nn.TransformerEncoderLayer` calls in inference; and weights for it."""
    sizes = [(48, 16), (48,), (16, 16), (16,), (16,), (16,), (16,), (16,), (24, 16), (24,), (16, 24), (16,)]
    weights = [randn(*size, seed=seed, dtype=dtype) / 4 for seed, size in enumerate(sizes)]

    def call(x: Any, *given: Any, mask: Any = None, kind: int | None = None, norm_first: bool = False) -> Any:
        settings = (norm_first, norm_first, 1e-5)  # gelu and norm first, or relu and norm last
        op = torch.ops.aten._transformer_encoder_layer_fwd.default
        return op(x, 16, 2, *given[:4], *settings, *given[4:], mask, kind)

    return call, weights


WHOLE_LAYER = "aten._transformer_encoder_layer_fwd.default"


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [5, FEWEST_FUSED])
def test_an_encoder_layer_is_taken_apart(norm_first: bool, dtype: torch.dtype, length: int) -> None:
    call, weights = encoder_layer(dtype)
    seen = compiled(partial(call, norm_first=norm_first), randn(1, length, 16, dtype=dtype), *weights)
    called = [node.op for node in seen.graphs[0].nodes]
    assert WHOLE_LAYER not in called
    is_fused = any("attention" in op for op in called)
    assert is_fused is (dtype == torch.bfloat16 or length == FEWEST_FUSED)


def test_an_encoder_layer_of_a_length_that_varies() -> None:
    call, weights = encoder_layer()
    assert WHOLE_LAYER not in [n.op for n in compiled(call, randn(2, 5, 16), *weights, dynamic=True).graphs[0].nodes]


@pytest.mark.parametrize("kind", [PAIRS, PADDING, SCORES])
def test_an_encoder_layer_masks_keys(kind: int) -> None:
    """A query that may look at no key gives NaN."""
    keep = torch.ones(5, 5).tril() if kind == PAIRS else torch.arange(5) < torch.tensor([[5], [3]])
    hidden = ~keep.bool() if kind != SCORES else ~keep[:, None, None].expand(2, 2, 5, 5)
    call, weights = encoder_layer()
    for mask in (hidden, torch.ones_like(hidden)):
        seen = compiled(lambda x, mask, *w: call(x, *w, mask=mask, kind=kind), randn(2, 5, 16), mask, *weights)
        assert WHOLE_LAYER not in [node.op for node in seen.graphs[0].nodes]


def test_an_encoder_layer_with_a_mask_of_no_kind_stays_whole() -> None:
    call, weights = encoder_layer()
    mask = torch.zeros(2, 2, 5, 5, dtype=torch.bool)
    seen = lowered(lambda x, mask, *w: call(x, *w, mask=mask), randn(2, 5, 16), mask, *weights)
    assert WHOLE_LAYER in [node.op for node in seen.graphs[0].nodes]


@pytest.mark.parametrize("dim", [0, 2])
def test_gradients_of_a_weight_norm(dim: int) -> None:
    v, g = randn(3, 4, 5), randn(*(3 if d == dim == 0 else 5 if d == dim else 1 for d in range(3)), seed=1)
    assert not compiled(lambda v, g: torch._weight_norm(v, g, dim), *grads(v, g)).externs
    saved = (randn(3, 4, 5, seed=2), v, g, torch.ops.aten._weight_norm_interface(v, g, dim)[1], dim)
    expected = torch.ops.aten._weight_norm_interface_backward(*saved)
    found = decompositions()[torch.ops.aten._weight_norm_interface_backward.default](*saved)
    torch.testing.assert_close(found, expected)
    assert [grad.stride() for grad in found] == [grad.stride() for grad in expected]


def test_a_transformer_block_keeps_its_operators() -> None:
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(x, (8,), w)
        return torch.nn.functional.gelu(y).softmax(-1)

    forward, backward = lowered(block, *grads(randn(4, 8), randn(8))).graphs
    whole = {"aten.native_layer_norm.default", "aten.gelu.default", "aten._softmax.default"}
    assert whole <= {n.op for n in forward.nodes}
    assert "aten.native_layer_norm_backward.default" in [n.op for n in backward.nodes]
