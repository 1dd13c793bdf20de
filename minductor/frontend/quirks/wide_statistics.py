"""Makes the mean and rstd of norms float32, where eager keeps float32 and torch traces 16 bits.

Takes a joint graph and changes the traced values of its norms. Gives nothing. A norm with a 16-bit operand and float32
parameters, as autocast makes them, has float32 statistics in eager. On a CPU, torch traces statistics of the operand's
dtype, so the gradients of the parameters would have three digits instead of seven. Leaves alone statistics that
anything but the backward of a norm uses, since the users were traced for 16 bits.
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
    """Makes the traced mean and rstd float32 where eager has them in float32 and only a norm's backward reads them."""
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
