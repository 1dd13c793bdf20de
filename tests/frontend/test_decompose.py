"""The decomposition table: each row does something, and nothing that a rule takes whole is taken apart."""

from __future__ import annotations

import torch

from minductor.frontend.decompose import ROWS, decompositions
from minductor.frontend.rules.table import RULES
from tests.frontend.tracing import grads, lowered, randn


def test_each_row_has_a_decomposition_and_a_reason() -> None:
    taken_apart = {op.overloadpacket.__name__ for op in decompositions() if isinstance(op, torch._ops.OpOverload)}
    assert set(ROWS) <= taken_apart
    assert all(ROWS.values())


def test_operators_with_rules_arrive_whole() -> None:
    assert not {str(op) for op in decompositions()} & set(RULES)


def test_a_transformer_block_keeps_its_operators() -> None:
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(x, (8,), w)
        return torch.nn.functional.gelu(y).softmax(-1)

    forward, backward = lowered(block, *grads(randn(4, 8), randn(8))).graphs
    assert [n.op for n in forward.nodes if n.op != "getitem"][:3] == [
        "aten.native_layer_norm.default",
        "aten.gelu.default",
        "aten._softmax.default",
    ]
    assert "aten.native_layer_norm_backward.default" in [n.op for n in backward.nodes]
