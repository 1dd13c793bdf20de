"""Which operators AOTAutograd takes apart before we see the graph, and why.

Takes nothing. Gives torch's own decompositions of the operators in `ROWS`, made on first use. Every node costs
AOTAutograd about 0.3 ms, so an operator is taken apart only where its parts fuse and no rule of ours takes it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

# packet name -> why it is taken apart; all its overloads are
ROWS: Mapping[str, str] = MappingProxyType(
    {
        "addr": "a product and a sum",
        "aminmax": "two reductions that fuse",
        "binary_cross_entropy": "pointwise, then a mean",
        "binary_cross_entropy_backward": "pointwise",
        "binary_cross_entropy_with_logits": "pointwise, then a mean",
        "celu": "pointwise",
        "channel_shuffle": "views and a copy",
        "count_nonzero": "a comparison and a sum",
        "deg2rad": "a product",
        "diag_embed": "a masked copy",
        "diagonal_backward": "a masked copy",
        "dist": "a difference and a norm",
        "elu_backward": "pointwise; its arguments are out of order for a formula",
        "frac": "pointwise",
        "glu": "two halves, pointwise",
        "glu_backward": "pointwise, then a concatenation",
        "heaviside": "pointwise",
        "huber_loss": "pointwise, then a mean",
        "huber_loss_backward": "pointwise",
        "index_fill": "a masked write",
        "isin": "a comparison of all pairs, then `any`",
        "isneginf": "pointwise",
        "isposinf": "pointwise",
        "log_sigmoid_forward": "pointwise; its second result is scratch",
        "log_sigmoid_backward": "pointwise; an argument is scratch",
        "logaddexp": "pointwise",
        "logaddexp2": "pointwise",
        "logsumexp": "two reductions that fuse",
        "mse_loss": "pointwise, then a mean",
        "mse_loss_backward": "pointwise",
        "mvlgamma": "pointwise, then a sum",
        "nansum": "a masked sum",
        "native_dropout_backward": "a product",
        "norm": "a sum of powers",
        "_prelu_kernel": "pointwise",
        "_prelu_kernel_backward": "pointwise",
        "pixel_shuffle": "views and a copy",
        "pixel_unshuffle": "views and a copy",
        "rad2deg": "a product",
        "reflection_pad1d": "reads at reflected places",
        "reflection_pad2d": "reads at reflected places",
        "reflection_pad3d": "reads at reflected places",
        "replication_pad1d": "reads at clamped places",
        "replication_pad2d": "reads at clamped places",
        "replication_pad3d": "reads at clamped places",
        "rot90": "views and flips",
        "_safe_softmax": "softmax with a mask for empty rows",
        "sinc": "pointwise",
        "smooth_l1_loss": "pointwise, then a mean",
        "smooth_l1_loss_backward": "pointwise",
        "soft_margin_loss": "pointwise, then a mean",
        "special_entr": "pointwise",
        "special_xlog1py": "pointwise",
        "trace": "a sum over a diagonal",
        "upsample_nearest1d": "reads at scaled places",
        "upsample_nearest2d": "reads at scaled places",
        "upsample_nearest3d": "reads at scaled places",
        "upsample_bilinear2d": "four reads at scaled places, weighted",
    }
)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd."""
    import torch
    from torch._decomp import get_decompositions

    packets = [getattr(torch.ops.aten, name) for name in ROWS if hasattr(torch.ops.aten, name)]
    return dict(get_decompositions(packets))
