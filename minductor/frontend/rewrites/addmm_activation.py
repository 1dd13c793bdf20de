"""The row `addmm_activation`: a linear layer and its ReLU or GELU are one call of the GPU's library.

Takes an addmm with a bias and the activation that alone reads it. Gives the library's product with the activation as
its epilogue. Refuses other graphs than those of GPUs, scaled products, and the exact GELU, which the library lacks.

The activation takes the unrounded sum, so 16-bit results are rounded once where eager rounds twice. The row is off
until it is measured: a generated kernel behind the product may do more than the activation in the same pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.product_calls import ProductCall, bias_of, product_call
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site

aten = torch.ops.aten
_VIEWS = ("aten.view", "aten._unsafe_view")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivatedProduct(Match):
    """An addmm, the view behind it if there is one, and the activation."""

    product: ProductCall
    activation: OperatorCall
    view: fx.Node | None = None


def find(site: Site) -> ActivatedProduct | None:
    """The activation at the anchor of a graph for a GPU, if its operand is an addmm or a view of one."""
    activation = site.call(site.anchor)
    operand = None if activation is None else activation.first
    if activation is None or not isinstance(operand, fx.Node) or not site.is_gpu:
        return None
    view, call = None, site.call(operand)
    if call is not None and call.op in _VIEWS:
        view, operand = operand, call.first
    product = product_call(site, operand)
    if product is None or product.node.target is not aten.addmm.default:
        return None
    inside = (product.node,) if view is None else (product.node, view)
    return ActivatedProduct(result=site.anchor, inside=inside, product=product, activation=activation, view=view)


def has_bias(match: ActivatedProduct, site: Site) -> str:
    """What is added is one number for each column."""
    return bias_of(match.product, site)


def has_epilogue(match: ActivatedProduct, site: Site) -> str:
    """The library has the activation as an epilogue."""
    del site
    call = match.activation
    is_exact = call.op == "aten.gelu" and call.get("approximate", "none") != "tanh"
    return "the library has GELU by tanh only" if is_exact else ""


def replace(match: ActivatedProduct, site: Site) -> fx.Node:
    """The library's product with its epilogue."""
    product = match.product
    is_gelu = match.activation.op == "aten.gelu"
    given = product.base, product.left, product.right
    made = site.write(aten._addmm_activation.default, *given, use_gelu=is_gelu)
    return made if match.view is None else site.write(aten.view.default, made, match.view.args[1])


ADDMM_ACTIVATION = Rewrite(
    name="addmm_activation",
    docs="A linear layer and its ReLU or GELU by tanh are one call of the GPU's library.",
    level="aten",
    anchors=("aten.relu", "aten.gelu"),
    find=find,
    conditions=(has_bias, has_epilogue),
    replace=replace,
    is_on=False,
)
