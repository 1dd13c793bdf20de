"""The row `int8_linear`: a product of bfloat16 values and a scaled int8 weight reads the weight as it is.

Takes a linear layer whose weight is converted from int8 and scaled by column, before or behind the product. Gives the
library's product of the two, which converts as it computes. Refuses GPUs, other dtypes, and scales of another form.

Without the row each call writes a bfloat16 weight, twice as large, and reads that; frozen, twice the bytes would be
kept beside the int8 weight. The library's product of float32 and int8 is slower than both, so float32 stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.product_calls import ProductCall, is_for_cpu, product_call, weight_of
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site

aten = torch.ops.aten
LANES = 32  # elements of the widest vector of bfloat16
_VIEWS = ("aten.view", "aten._unsafe_view")


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Product(Match):
    """A product with a converted int8 weight of (columns, inner), and a scale; `view` shows the product's rows."""

    product: ProductCall
    weight: fx.Node
    scale: fx.Node
    is_scaled_before: bool
    view: fx.Node | None = None


def find(site: Site) -> Int8Product | None:
    """The product at the anchor of a graph for the CPU, the conversion of its weight and the scale."""
    product = product_call(site, site.anchor)
    turned = None if product is None else weight_of(site, product)
    if product is None or turned is None or not is_for_cpu(site):
        return None
    scaled = site.call(turned)
    if scaled is not None and scaled.op == "aten.mul":
        for converted, scale in _both_ways(scaled):
            if (weight := _converted(site, converted)) is not None and isinstance(scale, fx.Node):
                inside = tuple(node for node in (turned, product.right) if len(node.users) == 1)
                parts = {"product": product, "weight": weight, "scale": scale, "is_scaled_before": True}
                return Int8Product(result=site.anchor, inside=inside if len(inside) == SHOWN else (), **parts)
        return None
    weight = _converted(site, turned)
    return None if weight is None else _scaled_behind(site, product, weight)


SHOWN = 2  # the scaled weight and its transposed view, which are replaced if nothing else reads them


def _both_ways(call: OperatorCall) -> tuple[tuple[object, object], ...]:
    a, b = call.first, call.get("other")
    return (a, b), (b, a)


def _converted(site: Site, node: object) -> fx.Node | None:
    """The int8 tensor that a node converts to bfloat16; None if it does something else."""
    call = site.call(node)
    if call is None or call.op != "aten._to_copy":
        return None
    source, made = site.tensor(call.first), site.tensor(node)
    is_int8 = source is not None and source.dtype == torch.int8 and made is not None and made.dtype == torch.bfloat16
    return call.first if is_int8 else None


def _scaled_behind(site: Site, product: ProductCall, weight: fx.Node) -> Int8Product | None:
    """The match with the multiplication behind the product, or behind a view of its rows."""
    view, last = None, product.node
    reader = next(iter(last.users), None)
    call = site.call(reader)
    if call is not None and call.op in _VIEWS and call.first is last:
        view = last = reader
        call = site.call(reader := next(iter(view.users), None)) if view is not None else None
    if call is None or call.op != "aten.mul" or reader is None:
        return None
    scale = next((scale for value, scale in _both_ways(call) if value is last), None)
    if not isinstance(scale, fx.Node):
        return None
    inside = (product.node,) if view is None else (product.node, view)
    parts = {"product": product, "weight": weight, "scale": scale, "is_scaled_before": False, "view": view}
    return Int8Product(result=reader, inside=inside, **parts)


def adds_nothing(match: Int8Product, site: Site) -> str:
    """The product has no bias, which would be added before the scale."""
    del site
    return "" if match.product.base is None else "a bias is added to the product before it is scaled"


def scales_columns(match: Int8Product, site: Site) -> str:
    """The scale has one bfloat16 number for each column of the result."""
    scale, columns = site.value(match.scale), site.value(match.weight).shape[0]
    expected = (columns, 1) if match.is_scaled_before else (columns,)
    is_row = tuple(scale.shape) == expected and scale.dtype == torch.bfloat16
    return "" if is_row else f"{match.scale.name} is not one bfloat16 number for each column"


def has_whole_vectors(match: Int8Product, site: Site) -> str:
    """The library reads the inner axis in vectors, past its end if it is odd."""
    inner = site.value(match.weight).shape[1]
    is_whole = type(inner) is int and inner % LANES == 0
    return "" if is_whole else f"the inner axis, {inner}, is no multiple of {LANES}"


def reads_plain_memory(match: Int8Product, site: Site) -> str:
    """The weight is contiguous, as the library needs it."""
    return "" if site.value(match.weight).is_contiguous() else f"{match.weight.name} is not contiguous"


def replace(match: Int8Product, site: Site) -> fx.Node:
    """The library's product of bfloat16 and int8."""
    scale = site.write(aten.squeeze.dim, match.scale, 1) if match.is_scaled_before else match.scale
    if not site.value(scale).is_contiguous():
        scale = site.write(aten.clone.default, scale, memory_format=torch.contiguous_format)
    left = match.product.left
    if not site.value(left).is_contiguous():
        left = site.write(aten.clone.default, left, memory_format=torch.contiguous_format)
    made = site.write(aten._weight_int8pack_mm.default, left, match.weight, scale)
    return made if match.view is None else site.write(aten.view.default, made, match.view.args[1])


INT8_LINEAR = Rewrite(
    name="int8_linear",
    docs="A product of bfloat16 values and a scaled int8 weight reads the weight as it is.",
    level="aten",
    anchors=("aten.mm", "aten.addmm"),
    find=find,
    conditions=(adds_nothing, scales_columns, has_whole_vectors, reads_plain_memory),
    replace=replace,
)
