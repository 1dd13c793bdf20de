"""The decomposition table: each row does something, and nothing that a rule takes whole is taken apart."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from minductor.frontend.decompose import MISLAID, ROWS, SCATTERS, decompositions
from minductor.frontend.rules.table import RULES
from tests.frontend.tracing import compiled, grads, lowered, randn


def test_each_row_has_a_decomposition_and_a_reason() -> None:
    taken_apart = {op.overloadpacket.__name__ for op in decompositions() if isinstance(op, torch._ops.OpOverload)}
    assert set(ROWS) <= taken_apart
    assert all(ROWS.values())


def test_operators_with_rules_arrive_whole() -> None:
    laid = {f"aten.{name}" for name in (*MISLAID, "linalg_vector_norm.default")}
    laid |= {f"aten.{name}.default" for name in SCATTERS}
    assert not {str(op) for op in decompositions()} & set(RULES) - laid
    assert [node.op for node in lowered(torch.copysign, randn(2, 3).t(), randn(2, 3, seed=1).t()).graphs[0].nodes] == [
        "aten.copysign.Tensor"
    ]


# what operators want besides two tensors
MORE: dict[str, Any] = {
    "div.Tensor_mode": {"rounding_mode": "floor"},
    "hardtanh_backward.default": {"min_val": -1.0, "max_val": 1.0},
    "softplus_backward.default": {"beta": 1.0, "threshold": 20.0},
}


@pytest.mark.parametrize("names", [MISLAID, MISLAID[:1]], ids=["static", "dynamic"])
def test_strides_are_those_of_eager(names: tuple[str, ...]) -> None:
    ops = [
        partial(getattr(getattr(torch.ops.aten, name.split(".")[0]), name.split(".")[1]), **MORE.get(name, {}))
        for name in names
    ]
    row, image = randn(5).abs(), randn(2, 3, 4, 5).abs()
    last = image.contiguous(memory_format=torch.channels_last)
    turned = randn(5, 4, 3, 2).abs().permute(3, 2, 1, 0)
    pairs = [(image, last), (last, turned), (row, last), (last, row), (image[:, :1], turned), (turned, row[0])]
    # the same strides, or red
    seen = compiled(lambda *given: [op(a, b) for op in ops for a, b in given], *pairs, dynamic=names != MISLAID)
    assert not seen.externs


def test_a_scatter_into_an_expanded_tensor_without_elements_comes_to_an_end() -> None:
    compiled(lambda x: torch.diagonal_scatter(x, x.diagonal() + 1), torch.ones(4).expand(0, 4))


def test_log_sigmoid_is_contiguous() -> None:
    compiled(F.logsigmoid, *grads(randn(4, 6).t()))


def test_a_transformer_block_keeps_its_operators() -> None:
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(x, (8,), w)
        return torch.nn.functional.gelu(y).softmax(-1)

    forward, backward = lowered(block, *grads(randn(4, 8), randn(8))).graphs
    whole = {"aten.native_layer_norm.default", "aten.gelu.default", "aten._softmax.default"}
    assert whole <= {n.op for n in forward.nodes}
    assert "aten.native_layer_norm_backward.default" in [n.op for n in backward.nodes]
