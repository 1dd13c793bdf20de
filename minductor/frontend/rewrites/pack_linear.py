"""The row `pack_linear`: a linear layer with a frozen weight is computed by oneDNN from a packed weight.

Takes a product in a frozen graph for the CPU, and the activation that may follow. Gives a call of oneDNN,
whose weight is packed once. Refuses products so small that the call itself, 15 us longer, takes what packing saves.

Measured on an AVX2 machine by 1 and 2 threads: products of 2e6 multiply-adds with 2**20 weights are 1.05 to 1.3 and 1.1
to 2 times as fast. With 2**18 weights, which the cache keeps, an unrolled LSTM of 16 rows lost a quarter. A leaky ReLU
or a hard swish is free as part of oneDNN's call. A GELU, SiLU or sum is slower there than in a kernel behind the
product; a ReLU or a clamp of oneDNN's makes a number of NaN. So these stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.product_calls import (
    LINEAR,
    ProductCall,
    bias_of,
    is_for_cpu,
    number,
    numbers,
    product_call,
    weight_of,
)
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
LEAST, LEAST_WEIGHTS = 2_000_000, 1 << 19  # multiply-adds of a product and elements of its weight, both together
LEAST_ALONE = 32_000_000  # multiply-adds that are enough with a weight of any size
LEAST_FOR_A_ROW = 1 << 21  # elements of the weight of a product of one row
_VIEWS = ("aten.view", "aten._unsafe_view")
_ACTIVATIONS: Mapping[str, str] = {
    "aten.leaky_relu": "leaky_relu",
    "aten.hardswish": "hardswish",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayer(Match):
    """A product, the view behind it, and the activation behind that; the last two may be missing."""

    product: ProductCall
    view: fx.Node | None = None
    activation: OperatorCall | None = None


def find(site: Site) -> LinearLayer | None:
    """The product at the anchor of a graph for the CPU, and the activation that alone reads it."""
    product = product_call(site, site.anchor)
    if product is None or not is_for_cpu(site):
        return None
    view, last = None, site.anchor
    reader = _only_reader(last)
    if (call := site.call(reader)) is not None and call.op in _VIEWS and call.first is last:
        view = last = reader
        reader = _only_reader(reader)
    activation = site.call(reader)
    if activation is None or activation.op not in _ACTIVATIONS or _scalars(activation) is None or reader is None:
        return LinearLayer(result=site.anchor, product=product)
    inside = (site.anchor,) if view is None else (site.anchor, view)
    return LinearLayer(result=reader, inside=inside, product=product, view=view, activation=activation)


def _only_reader(node: Any) -> fx.Node | None:
    return next(iter(node.users)) if node is not None and len(node.users) == 1 else None


def _scalars(activation: OperatorCall) -> Sequence[float] | None:
    """The numbers that oneDNN takes for an activation; None if one is missing."""
    found = [activation.get("negative_slope", 0.01)] if activation.op == "aten.leaky_relu" else []
    return [float(each) for each in found] if all(isinstance(each, int | float) for each in found) else None


def has_frozen_weight(match: LinearLayer, site: Site) -> str:
    """The weight has the same value at each call."""
    right = match.product.right
    return "" if site.is_frozen(right) else f"{right.name} is not a frozen weight"


def takes_dtype(match: LinearLayer, site: Site) -> str:
    """OneDNN computes in the dtype of the product on this machine."""
    dtype = site.value(match.product.node).dtype
    if not torch.backends.mkldnn.is_available():
        return "this torch has no oneDNN"
    is_taken = {
        torch.float32: True,
        torch.bfloat16: mkldnn._is_mkldnn_bf16_supported(),
        torch.float16: mkldnn._is_mkldnn_fp16_supported(),
    }.get(dtype, False)
    return "" if is_taken else f"oneDNN does not compute in {str(dtype).removeprefix('torch.')} on this machine"


def has_bias(match: LinearLayer, site: Site) -> str:
    """What is added is one number for each column."""
    return bias_of(match.product, site)


def is_worth_packing(match: LinearLayer, site: Site) -> str:
    """The product is so large that packing saves more than the longer call takes."""
    rows = number(site.value(match.product.left).shape[0])
    inner, columns = numbers(site, match.product.right)
    if inner is None or columns is None:
        return "the sizes of the weight are not known"
    return "" if pays(rows, inner, columns) else f"a product of {rows or '?'} x {inner} x {columns} is too small"


def pays(rows: int | None, inner: int, columns: int) -> bool:
    """Whether a packed weight saves time; `rows` is None if nothing is known of the number of rows.

    >>> pays(32, 256, 256), pays(32, 768, 768), pays(512, 256, 256), pays(1, 768, 768), pays(1, 1024, 4096)
    (False, True, True, False, True)
    """
    weights = inner * columns
    if rows is None:
        return weights >= LEAST_WEIGHTS
    if rows == 1:
        return weights >= LEAST_FOR_A_ROW
    sums = rows * weights
    return sums >= LEAST_ALONE or (sums >= LEAST and weights >= LEAST_WEIGHTS)


def replace(match: LinearLayer, site: Site) -> fx.Node:
    """OneDNN's product of the packed weight, with the activation as a part of it."""
    product = match.product
    weight = weight_of(site, product) or site.write(aten.t.default, product.right)
    rows = site.value(product.left).shape[0]
    packed = site.write(mkldnn._reorder_linear_weight.default, weight, rows if isinstance(rows, int) else None)
    kind, scalars = "none", []
    if match.activation is not None:
        kind, scalars = _ACTIVATIONS[match.activation.op], _scalars(match.activation)
    made = site.write(mkldnn._linear_pointwise.default, product.left, packed, product.base, kind, scalars, "")
    return made if match.view is None else site.write(aten.view.default, made, match.view.args[1])


PACK_LINEAR = Rewrite(
    name="pack_linear",
    docs="A linear layer with a frozen weight is computed by oneDNN from a packed weight.",
    level="frozen",
    anchors=LINEAR,
    find=find,
    conditions=(has_frozen_weight, takes_dtype, has_bias, is_worth_packing),
    replace=replace,
    packs=True,
)
