"""The row `split_bias`: a convolution on a GPU adds its bias in the kernel behind it.

Takes a convolution with a bias. Gives one without, and a sum. Refuses convolutions whose library adds the bias itself.

cuDNN's convolution has no bias: torch launches a kernel of its own for the sum, which reads and writes the result. A
sum of ours becomes part of the kernel behind the convolution. On an H200 the library's kernel takes at least 2 us, and
40 us beside 63 us for 16 images of 256 x 56 x 56. Depthwise convolutions are torch's own kernels, which add the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site

aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasedConvolution(Match):
    """A convolution with a bias."""

    convolution: OperatorCall


def find(site: Site) -> BiasedConvolution | None:
    """The convolution at the anchor, if it has a bias and is compiled for a GPU."""
    convolution = site.call(site.anchor)
    if convolution is None or convolution.get("bias") is None or not site.is_gpu:
        return None
    return BiasedConvolution(result=site.anchor, convolution=convolution)


def has_separate_sum(match: BiasedConvolution, site: Site) -> str:
    """The library must add the bias by a kernel of its own."""
    is_separate = has_own_kernel_for_bias(site, match.convolution)
    return "" if is_separate else "a depthwise convolution adds its bias itself"


def has_own_kernel_for_bias(site: Site, convolution: OperatorCall) -> bool:
    """Whether the library adds a convolution's bias by a kernel of its own: on GPUs, unless it is depthwise."""
    groups, x = convolution.get("groups"), site.tensor(convolution.get("input"))
    is_depthwise = x is not None and isinstance(groups, int) and groups > 1 and x.shape[1] == groups
    return site.is_gpu and not is_depthwise


def replace(match: BiasedConvolution, site: Site) -> fx.Node:
    """The convolution without its bias, and the sum."""
    x, weight, bias, *rest = match.convolution.arguments.values()
    return write_biased(site, x, weight, bias, rest)


def write_biased(site: Site, x: fx.Node, weight: fx.Node, bias: fx.Node, rest: Sequence[Any]) -> fx.Node:
    """Writes a convolution without a bias, and the sum of its result and the bias of its channels.

    Args:
        site: the place of the graph.
        x: the images.
        weight: the weights.
        bias: one number for each channel of the result.
        rest: the other arguments of `aten.convolution`, from the stride on.
    """
    made = site.write(aten.convolution.default, x, weight, None, *rest)
    sizes = [-1, *(1 for _ in range(site.value(weight).dim() - 2))]
    return site.write(aten.add.Tensor, made, site.write(aten.view.default, bias, sizes))


SPLIT_BIAS = Rewrite(
    name="split_bias",
    docs="A convolution on a GPU adds its bias in the kernel behind it.",
    level="aten",
    anchors=("aten.convolution",),
    find=find,
    conditions=(has_separate_sum,),
    replace=replace,
    keeps_strides=False,
)
