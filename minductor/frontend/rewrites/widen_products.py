"""The row `widen_products`: 16-bit products and convolutions are computed in float32 on a CPU that lacks 16-bit units.

Takes a product or a convolution in a graph for the CPU. Gives the same in float32: the operands are widened by kernels
of their producers, and the result is rounded. A frozen weight is widened once, which takes twice its bytes more;
`Report.frozen_bytes` counts them. Refuses CPUs with 16-bit instructions, and products of so few rows that reading a
weight twice as wide takes as long.

Without such instructions torch takes 2 to 12 times as long for a 16-bit product as for one in float32, and 7 to 35
times for a convolution. It sums in float32 too, so both round once. The strides may change: of channels-last volumes, a
convolution in float16 gives contiguous ones, one in float32 channels-last ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.product_calls import LINEAR, PRODUCTS, is_for_cpu, number
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
LEAST_ROWS, LEAST_ROWS_UNFROZEN = 8, 16  # of a product whose weight is widened once, and at each call
CONVOLUTION = "aten.convolution"


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowCall(Match):
    """A product or a convolution of an operand and a weight; the second factor of a batch counts as its weight."""

    call: OperatorCall
    operand: fx.Node
    weight: fx.Node


def find(site: Site) -> NarrowCall | None:
    """The product or convolution at the anchor, if it computes in 16 bits on a CPU without instructions for them."""
    call, value = site.call(site.anchor), site.tensor(site.anchor)
    if call is None or value is None or not is_for_cpu(site) or not is_slow(value.dtype):
        return None
    tensors = [each for each in call.arguments.values() if isinstance(each, fx.Node)]
    if len(tensors) < 2 or any(site.value(each).dtype != value.dtype for each in tensors):
        return None
    operand, weight = tensors[1:3] if call.op in ("aten.addmm", "aten.baddbmm") else tensors[:2]
    return NarrowCall(result=site.anchor, call=call, operand=operand, weight=weight)


def is_slow(dtype: torch.dtype) -> bool:
    """Whether this machine's CPU has no instructions for products of a 16-bit dtype; False for other dtypes."""
    if dtype == torch.bfloat16:
        return not mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float16 and not mkldnn._is_mkldnn_fp16_supported()


def has_several_rows(match: NarrowCall, site: Site) -> str:
    """A product has so many rows that its sums take longer than widening or reading the weight."""
    if match.call.op == CONVOLUTION:
        return ""
    rows = number(site.value(match.operand).shape[-2])
    is_widened_once = site.is_frozen(match.weight) or match.call.op not in LINEAR
    least = LEAST_ROWS if is_widened_once else LEAST_ROWS_UNFROZEN
    return "" if rows is None or rows >= least else f"a product of {rows} rows takes as long as reading its weight"


def replace(match: NarrowCall, site: Site) -> fx.Node:
    """The call with all its tensors in float32, rounded."""
    dtype = site.value(match.result).dtype

    def wide(node: fx.Node) -> Any:
        return site.write(aten._to_copy.default, node, dtype=torch.float32)

    anchor = match.result
    args, kwargs = fx.map_arg((anchor.args, dict(anchor.kwargs)), wide)
    return site.write(aten._to_copy.default, site.write(anchor.target, *args, **kwargs), dtype=dtype)


WIDEN_PRODUCTS = Rewrite(
    name="widen_products",
    docs="16-bit products and convolutions are computed in float32 on a CPU without 16-bit instructions.",
    level="aten",
    anchors=(*PRODUCTS, CONVOLUTION),
    find=find,
    conditions=(has_several_rows,),
    replace=replace,
    keeps_strides=False,
)
