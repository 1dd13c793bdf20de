"""Inputs in one memory, where a graph writes to an input.

Takes an ATen graph while AOTAutograd has it compiled. Gives the name of an input if the graph is right only for inputs
that lie in their common memory as the traced ones do, which nothing guards, or is wrong even for those: of matrices in
one memory AOTAutograd misses some that overlap. The graph before it, Dynamo's, is right.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_true

from minductor.frontend.compat import is_made_base, writes_inputs


def misplaced(gm: torch.fx.GraphModule) -> str:
    """The first input whose place in memory the graph holds for another; "" if there is none."""
    matrices: dict[Any, list[torch.Tensor]] = defaultdict(list)
    for node in gm.graph.find_nodes(op="placeholder"):
        if is_made_base(node):
            return node.name
        x = node.meta.get("val")
        if isinstance(x, torch.Tensor) and _is_matrix(x):
            before = matrices[x.untyped_storage()._cdata]
            before.append(x)
            if len(before) > 1 and writes_inputs() and any(is_missed(*pair) for pair in combinations(before, 2)):
                return node.name
    return ""


def _is_matrix(x: torch.Tensor) -> bool:
    return x.layout is torch.strided and x.dim() == 2 and guard_or_true(x.stride(1) == 1)


def is_missed(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two matrices overlap though torch holds them for columns side by side: it looks at where the rows of the
    second end, and not at where they begin. Sizes that are symbols are guarded to be as they are.

    >>> x = torch.zeros(4, 4)
    >>> is_missed(x[:2, :3], x[1:3, 1:]), is_missed(x[:, :2], x[:, 2:]), is_missed(x[:2, :3], x[2:, 1:])
    (True, False, False)
    """
    return _is_hidden(a, b) or _is_hidden(b, a)


def _is_hidden(first: torch.Tensor, second: torch.Tensor) -> bool:
    step, gap = first.stride(0), second.storage_offset() - first.storage_offset()
    return (
        guard_or_true(gap >= 0)
        and guard_or_true(second.stride(0) == step)
        and guard_or_true(step > 0)
        and guard_or_true(second.numel() > 0)
        and guard_or_true(gap // step < first.shape[0])
        and guard_or_true(gap % step < first.shape[1])
        and guard_or_true(gap % step + second.shape[1] <= step)
    )
