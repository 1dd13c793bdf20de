"""The row `pack_convolution`: a convolution with a frozen weight becomes oneDNN's, whose weight is packed once.

Takes a convolution in a frozen graph on a CPU, whose images are channels-last. Gives oneDNN's convolution, and a call
that packs the weight for this processor. Refuses contiguous images, since oneDNN would copy them at each call: the row
`channels_last` chooses the images' layout for all convolutions of a graph, and prices packed weights as such. A packed
weight serves all sizes of images.

Weights of one dimension gain nothing by it (0.97 to 1.09 of the time with the copies that it takes) and stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.convolution_layouts import is_channels_last
from minductor.frontend.rewrites.convolution_seconds import can_pack, convolution, is_head, sizes
from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site

mkldnn = torch.ops.mkldnn


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConvolution(Match):
    """A convolution of images."""

    call: OperatorCall


def find(site: Site) -> ImageConvolution | None:
    """The convolution at the anchor, if it is on a CPU and its operand has two or three dimensions of space."""
    call = site.call(site.anchor)
    value = site.tensor(site.anchor)
    if call is None or value is None or value.dim() not in (4, 5) or site.is_gpu or value.device.type != "cpu":
        return None
    return ImageConvolution(result=site.anchor, call=call)


def has_packable_weight(match: ImageConvolution, site: Site) -> str:
    """The weight must be the same at each call, and of a dtype that oneDNN computes in on this processor."""
    weight = match.call.get("weight")
    if not site.is_frozen(weight):
        return f"{weight.name} is not a frozen weight"
    return "" if can_pack(site, weight) else f"oneDNN packs no weights in {site.value(weight).dtype} on this processor"


def has_channels_last_images(match: ImageConvolution, site: Site) -> str:
    """oneDNN copies contiguous images to channels-last ones at each call."""
    x = site.value(match.call.get("input"))
    return "" if is_channels_last(x) else "its images are contiguous, and oneDNN would copy them at each call"


def has_many_results(match: ImageConvolution, site: Site) -> str:
    """A 1x1 convolution with few results is slower in oneDNN's packed form."""
    each = convolution(match.call, site, site.value(match.result))
    return f"oneDNN computes {each.outputs} results of 1x1 windows slower with packed weights" if is_head(each) else ""


def replace(match: ImageConvolution, site: Site) -> fx.Node:
    """oneDNN's convolution with the packed weight."""
    call = match.call
    x, weight, bias = call.get("input"), _source(call.get("weight"), site), call.get("bias")
    stride, padding, dilation, groups = (call.get(name) for name in ("stride", "padding", "dilation", "groups"))
    given: tuple[Any, ...] = (padding, stride, dilation, groups)
    plain = ("none", [], "")
    if not call.get("transposed"):
        packed = site.write(mkldnn._reorder_convolution_weight.default, weight, *given, _input_sizes(site, x))
        return site.write(mkldnn._convolution_pointwise.default, x, packed, bias, *given, *plain)
    given = (padding, call.get("output_padding"), stride, dilation, groups)
    packed = site.write(mkldnn._reorder_convolution_transpose_weight.default, weight, *given, _input_sizes(site, x))
    return site.write(mkldnn._convolution_transpose_pointwise.default, x, packed, bias, *given, *plain)


def _source(weight: fx.Node, site: Site) -> fx.Node:
    """What a copy of a weight copies: packing reads any strides."""
    call = site.call(weight)
    is_copy = call is not None and call.op == "aten.clone" and isinstance(call.first, fx.Node)
    return call.first if is_copy and call is not None else weight


def _input_sizes(site: Site, x: fx.Node) -> list[int]:
    """Sizes of an image, by which oneDNN chooses the packed form. Any form is right for all sizes."""
    return sizes(site.value(x))


PACK_CONVOLUTION = Rewrite(
    name="pack_convolution",
    docs="A convolution with a frozen weight becomes oneDNN's, whose weight is packed once.",
    level="frozen",
    anchors=("aten.convolution",),
    find=find,
    conditions=(has_packable_weight, has_channels_last_images, has_many_results),
    replace=replace,
    keeps_strides=False,
    packs=True,
)
