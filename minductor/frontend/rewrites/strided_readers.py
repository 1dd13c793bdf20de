"""Finds the reader of a value that could not read it with other strides, so that a copy would be made for it.

Takes a node and a traced tensor of the node's sizes with other strides. Gives the reason; "" if all readers take the
strides. Views are followed; every other operator reads any strides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

_UNMARKED_VIEWS = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")


def copied_for(node: fx.Node, value: torch.Tensor, value_key: str) -> str:
    """Why a copy would be made if `node` had the layout of `value`: the caller gets it, or a view cannot show it."""
    for reader in node.users:
        if reader.op == "output":
            return f"the caller gets {node.name}"
        if not is_view(reader) or node is not reader.args[0]:
            continue
        try:
            seen = _with_first(reader, value, value_key)
        except Exception:  # such as a view that the strides do not allow
            return f"{reader.name} needs {node.name} contiguous"
        if isinstance(seen, torch.Tensor) and (why := copied_for(reader, seen, value_key)):
            return why
    return ""


def is_view(node: fx.Node) -> bool:
    """Whether a node calls an operator that shows its first argument, or that copies only if it cannot show it."""
    target: Any = node.target
    return isinstance(target, torch._ops.OpOverload) and (target.is_view or str(target) in _UNMARKED_VIEWS)


def _with_first(node: fx.Node, first: torch.Tensor, value_key: str) -> Any:
    """The value of a call with another first argument; a reshape must be a view."""
    given: Any = fx.map_arg((node.args[1:], dict(node.kwargs)), lambda each: each.meta[value_key])
    target: Any = torch.ops.aten.view.default if str(node.target) in _UNMARKED_VIEWS else node.target
    return target(first, *given[0], **given[1])
