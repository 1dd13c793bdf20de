"""Takes from the gradient of a batch norm in training the running statistics, which it does not read.

Takes a joint graph and changes it. Gives nothing, and leaves inference as it is, whose gradient reads them. Otherwise
the forward would give both new statistics of each batch norm to the backward, as two more saved tensors of a call.
"""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten
GRADIENTS = (aten.native_batch_norm_backward.default, aten.batch_norm_backward.default)
RUNNING_MEAN, RUNNING_VAR, IS_TRAINING = 3, 4, 7  # the places of arguments, the same in both


def drop_unread_statistics(graph: fx.Graph) -> None:
    """Gives None for the running statistics to each gradient of a batch norm in training."""
    for target in GRADIENTS:
        for node in graph.find_nodes(op="call_function", target=target):
            if len(node.args) > IS_TRAINING and node.args[IS_TRAINING] is True:
                node.update_arg(RUNNING_MEAN, None)
                node.update_arg(RUNNING_VAR, None)
