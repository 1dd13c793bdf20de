"""A call has one number in a whole plan, and each wrapper prints the same number for it."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from minductor.driver import Compiled, Compiler


def nested(x: Tensor, y: Tensor) -> Any:
    """Calls and kernels before, in and behind two regions, one of which holds two others."""

    def yes(a: Tensor, b: Tensor) -> Tensor:
        return torch.cond(b.sum() > 0, lambda a, b: torch.cumsum(a, 0) @ b, lambda a, b: a / (b.abs() + 1), (a, b))

    return torch.cond((x @ y).sum() > 0, yes, lambda a, b: torch.cumsum(a - b, 1), (x, y)).exp() @ y


def flat(x: Tensor, y: Tensor) -> Any:
    return (torch.cumsum(x, 0).exp() @ y).relu()


def printed(fn: Any, wrapper: str) -> list[tuple[int, str]]:
    """Each handle with its nodes, in the order of the text."""
    seen: list[Compiled] = []
    torch._dynamo.reset()
    backend = partial(Compiler(observer=seen.append), options={"wrapper": wrapper})
    random = torch.Generator().manual_seed(0)
    x, y = (torch.rand(8, 8, generator=random) / 8 for _ in range(2))  # exp makes much of the last digits of large ones
    torch.testing.assert_close(torch.compile(fn, backend=backend)(x, y), fn(x, y))
    (text,) = (text for name, text in seen[0].sources.items() if name.startswith("wrapper"))
    if wrapper == "fx":
        nodes = json.loads(text)["nodes"]
        return [(node["handle"], ", ".join(node["origins"])) for node in nodes if "handle" in node]
    return [(int(n), nodes) for n, nodes in re.findall(r"^ *(?:#|//) (\d+)(?:: (.*))?$", text, re.MULTILINE)]


@pytest.mark.parametrize("fn", [nested, flat])
def test_no_two_calls_have_one_handle(fn: Any) -> None:
    found = printed(fn, "python")
    assert sorted(number for number, _ in found) == list(range(1, len(found) + 1))
    assert printed(fn, "cpp") == found


def test_a_graph_has_the_same_handles() -> None:
    assert printed(flat, "fx") == printed(flat, "python")
