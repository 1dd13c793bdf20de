"""The row `fold_batch_norm`: a batch norm behind a convolution or a linear layer becomes part of its weights.

Takes a norm in a frozen graph. Gives a convolution or product with other weights. Refuses weights that are not frozen.

A norm by fixed statistics, y = (conv(x, w) + b - mean) * s + shift with s = scale / sqrt(var + eps), is the convolution
with the weights w * s and the bias (b - mean) * s + shift. All of these are frozen, so they are computed once. A linear
layer is `addmm` or `mm`, whose second matrix has the channels as its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site
from minductor.frontend.rewrites.split_bias import has_own_kernel_for_bias, write_biased

aten = torch.ops.aten
# operator -> the names of its operand, weight and bias
_OPERANDS: Mapping[str, tuple[str, str, str]] = {
    "aten.convolution": ("input", "weight", "bias"),
    "aten.addmm": ("mat1", "mat2", "self"),
    "aten.mm": ("self", "mat2", ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NormOfConvolution(Match):
    """A batch norm by fixed statistics whose operand is the result of a convolution or of a matrix product.

    Args:
        norm: the norm.
        convolution: the convolution or product.
        operand: what is convolved or multiplied with the weight.
        weight: the weight, a view of it for a product.
        bias: the bias, or None.
    """

    norm: OperatorCall
    convolution: OperatorCall
    operand: fx.Node
    weight: fx.Node
    bias: fx.Node | None

    @property
    def axis(self) -> int:
        """The dimension of the weight that is the result's channels."""
        return 1 if self.convolution.op != "aten.convolution" or self.convolution.get("transposed") else 0


def find(site: Site) -> NormOfConvolution | None:
    """The norm at the anchor, if a convolution gives its operand and only its first result is read."""
    norm = site.call(site.anchor)
    users = list(site.anchor.users)
    if norm is None or len(users) != 1 or users[0].args[1:] != (0,):
        return None
    normed = norm.get("input", norm.first)
    made = site.call(normed)
    if made is None or made.op not in _OPERANDS or any(made.get(name, 1) != 1 for name in ("alpha", "beta")):
        return None
    operand, weight, bias = (made.get(name) for name in _OPERANDS[made.op])
    if bias is not None and site.value(bias).dim() != 1:
        return None
    return NormOfConvolution(
        result=users[0],
        inside=(site.anchor, normed),
        norm=norm,
        convolution=made,
        operand=operand,
        weight=weight,
        bias=bias,
    )


def has_frozen_weights(match: NormOfConvolution, site: Site) -> str:
    """The weights of both must have the same values at each call."""
    given = [match.weight, match.bias]
    given += [match.norm.get(name) for name in ("weight", "bias", "running_mean", "running_var")]
    changing = [node.name for node in given if isinstance(node, fx.Node) and not site.is_frozen(node)]
    return f"{changing[0]} is not a frozen weight" if changing else ""


def has_one_channel_axis(match: NormOfConvolution, site: Site) -> str:
    """One axis of the weights must be the result's channels: a transposed convolution with groups has them on two."""
    del site
    is_split = match.convolution.get("transposed") and match.convolution.get("groups") != 1
    return "the weights of a transposed convolution with groups hold channels on two axes" if is_split else ""


def replace(match: NormOfConvolution, site: Site) -> fx.Node:
    """The convolution or product with the norm's scale in its weights and its bias."""
    norm, convolution, weight, bias = match.norm, match.convolution, match.weight, match.bias
    dtype = site.value(weight).dtype
    mean, variance = (_wide(site, norm.get(name)) for name in ("running_mean", "running_var"))
    scale = site.write(aten.rsqrt.default, site.write(aten.add.Tensor, variance, norm.get("eps")))
    if norm.get("weight") is not None:
        scale = site.write(aten.mul.Tensor, scale, _wide(site, norm.get("weight")))
    sizes = [-1 if d == match.axis else 1 for d in range(site.value(weight).dim())]
    scaled = site.write(aten.mul.Tensor, _wide(site, weight), site.write(aten.view.default, scale, sizes))
    shift: Any = site.write(aten.neg.default, mean)
    if bias is not None:
        shift = site.write(aten.sub.Tensor, _wide(site, bias), mean)
    shift = site.write(aten.mul.Tensor, shift, scale)
    if norm.get("bias") is not None:
        shift = site.write(aten.add.Tensor, shift, _wide(site, norm.get("bias")))
    made_weight, made_bias = _as(site, scaled, dtype), _as(site, shift, dtype)
    if convolution.op != "aten.convolution":
        return site.write(aten.addmm.default, made_bias, match.operand, made_weight)
    rest = [value for name, value in convolution.arguments.items() if name not in ("input", "weight", "bias")]
    if not has_own_kernel_for_bias(site, convolution):
        return site.write(aten.convolution.default, match.operand, made_weight, made_bias, *rest)
    return write_biased(site, match.operand, made_weight, made_bias, rest)


def _wide(site: Site, node: Any) -> fx.Node:
    """A weight in float32, before it is rounded to 16 bits if the graph does that: its product is rounded once."""
    call = site.call(node)
    if call is not None and call.op == "aten._to_copy" and site.value(call.first).dtype == torch.float32:
        return call.first
    return _as(site, node, torch.float32) if site.value(node).dtype in (torch.float16, torch.bfloat16) else node


def _as(site: Site, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    return node if site.value(node).dtype == dtype else site.write(aten._to_copy.default, node, dtype=dtype)


FOLD_BATCH_NORM = Rewrite(
    name="fold_batch_norm",
    docs="A batch norm behind a convolution or a linear layer becomes part of its weights.",
    level="frozen",
    anchors=("aten._native_batch_norm_legit_no_training",),
    find=find,
    conditions=(has_frozen_weights, has_one_channel_axis),
    replace=replace,
    keeps_strides=False,
)
