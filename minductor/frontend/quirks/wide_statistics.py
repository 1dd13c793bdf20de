"""Keeps the statistics of normalisations in the precision that eager keeps them in, where torch's trace says less.

Takes a joint graph. Gives nothing: of an operand of 16 bits with float32 parameters (what autocast makes of most norms)
the mean and the inverse deviation become float32. So eager's kernels give them to its backward; traced on a CPU, they
have the operand's dtype, and the gradients of the parameters would have three digits in place of seven. Leaves alone
what anything but the backward of a norm uses: that was traced for the narrower dtype.
"""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten

NORMS = frozenset(
    (
        aten.native_layer_norm.default,
        aten.native_group_norm.default,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit.no_stats,
    )
)
BACKWARDS = frozenset(
    (
        aten.native_layer_norm_backward.default,
        aten.native_group_norm_backward.default,
        aten.native_batch_norm_backward.default,
    )
)


def widen_statistics(graph: fx.Graph) -> None:
    """See above."""
    for node in graph.nodes:
        if node.target not in NORMS or not _has_wide_parameters(node):
            continue
        values = list(node.meta["val"])
        for number in (1, 2):
            items = [user for user in node.users if user.args[1] == number]
            if all(user.target in BACKWARDS for item in items for user in item.users):
                values[number] = values[number].to(torch.float32)
                for item in items:
                    item.meta["val"] = values[number]
        node.meta["val"] = tuple(values)


def _has_wide_parameters(norm: fx.Node) -> bool:
    """Whether a norm's operand has 16 bits, and float32 is among its parameters."""
    operand, *parameters = norm.all_input_nodes
    is_narrow = operand.meta["val"].dtype in (torch.bfloat16, torch.float16)
    return is_narrow and any(getattr(p.meta["val"], "dtype", None) is torch.float32 for p in parameters)
