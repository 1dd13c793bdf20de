"""Graphs that give no flat tuple: the compiled one gives the same tree, and gradients flow through it."""

from __future__ import annotations

from typing import Any

import torch

from minductor.driver import Compiler


def assert_same_tree(gm: Any, module: Any, *args: Any) -> None:
    found, expected = Compiler()(gm, args)(*args), module(*args)
    torch.testing.assert_close(found, expected)
    assert type(found) is type(expected)


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
        x, y = pair
        return {"sum": self.linear(x) + y, "rest": [x, (y * 2, None)]}


def test_results_that_are_no_flat_tuple() -> None:
    x, module = torch.randn(2, 3), Nested()
    assert_same_tree(torch.fx.symbolic_trace(module.linear), module.linear, x)
    assert_same_tree(torch.fx.symbolic_trace(lambda x: torch.max(x, 0)), lambda x: torch.max(x, 0), x)
    exported, _ = torch._dynamo.export(module)((x, x))
    assert_same_tree(exported, module, (x, x))
    Compiler()(exported, [(x, x)])((x, x))["sum"].sum().backward()
    assert module.linear.bias.grad is not None
