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
        "affine_grid_generator": "pointwise",
        "alias_copy": "a view and a copy",
        "aminmax": "two reductions that fuse",
        "as_strided_copy": "a view and a copy",
        "binary_cross_entropy": "pointwise, then a mean",
        "binary_cross_entropy_backward": "pointwise",
        "binary_cross_entropy_with_logits": "pointwise, then a mean",
        "block_diag": "padding and a concatenation",
        "celu": "pointwise",
        "channel_shuffle": "views and a copy",
        "_chunk_cat": "padding and a concatenation",
        "count_nonzero": "a comparison and a sum",
        "deg2rad": "a product",
        "diag_embed": "a masked copy",
        "diagonal_backward": "a masked copy",
        "diagonal_copy": "a view and a copy",
        "dist": "a difference and a norm",
        "elu_backward": "pointwise; its arguments are out of order for a formula",
        "expand_copy": "a view and a copy",
        "glu": "two halves, pointwise",
        "glu_backward": "pointwise, then a concatenation",
        "heaviside": "pointwise",
        "huber_loss": "pointwise, then a mean",
        "huber_loss_backward": "pointwise",
        "isin": "a comparison of all pairs, then `any`",
        "isneginf": "pointwise",
        "isposinf": "pointwise",
        "linalg_cross": "pointwise",
        "log_sigmoid_backward": "pointwise; an argument is scratch",
        "log_sigmoid_forward": "pointwise; its second result is scratch",
        "logaddexp": "pointwise",
        "logaddexp2": "pointwise",
        "logsumexp": "two reductions that fuse",
        "mse_loss": "pointwise, then a mean",
        "mse_loss_backward": "pointwise",
        "mvlgamma": "pointwise, then a sum",
        "nansum": "a masked sum",
        "narrow_copy": "a view and a copy",
        "native_dropout_backward": "a product",
        "norm": "a sum of powers",
        "permute_copy": "a view and a copy",
        "pixel_shuffle": "views and a copy",
        "pixel_unshuffle": "views and a copy",
        "_prelu_kernel": "pointwise",
        "_prelu_kernel_backward": "pointwise",
        "rad2deg": "a product",
        "renorm": "norms, then pointwise",
        "rot90": "views and flips",
        "_safe_softmax": "softmax with a mask for empty rows",
        "sinc": "pointwise",
        "smooth_l1_loss": "pointwise, then a mean",
        "smooth_l1_loss_backward": "pointwise",
        "soft_margin_loss": "pointwise, then a mean",
        "special_entr": "pointwise",
        "special_xlog1py": "pointwise",
        "split_with_sizes_copy": "views and copies",
        "squeeze_copy": "a view and a copy",
        "t_copy": "a view and a copy",
        "trace": "a sum over a diagonal",
        "transpose_copy": "a view and a copy",
        "tril_indices": "arithmetic on places",
        "triu_indices": "arithmetic on places",
        "unbind_copy": "views and copies",
        "unfold_copy": "a view and a copy",
        "unsqueeze_copy": "a view and a copy",
        "upsample_bilinear2d": "four reads at scaled places, weighted",
        "upsample_nearest1d": "reads at scaled places",
        "upsample_nearest2d": "reads at scaled places",
        "upsample_nearest3d": "reads at scaled places",
        "view_copy": "a view and a copy",
        "_weight_norm_interface": "a norm and a quotient",
    }
)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd."""
    import torch
    from torch._decomp import get_decompositions

    packets = [getattr(torch.ops.aten, name) for name in ROWS if hasattr(torch.ops.aten, name)]
    return dict(get_decompositions(packets))
