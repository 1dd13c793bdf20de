"""Reads matrix products from a graph: mm, bmm, addmm and baddbmm, with their factors and sizes.

Takes a Site and a node. Gives a `ProductCall`; None for a node that calls no matrix product. Gives also what rows of
products share: sizes as numbers, frozen weights of linear layers, and whether a graph is one for CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.rewrite_row import Site

aten = torch.ops.aten
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
LINEAR = ("aten.mm", "aten.addmm")
# by operator the parameters of the left factor, the right factor, and the added matrix
_PARAMETERS: Mapping[str, tuple[str, str, str]] = {
    "aten.mm": ("self", "mat2", ""),
    "aten.bmm": ("self", "mat2", ""),
    "aten.addmm": ("mat1", "mat2", "self"),
    "aten.baddbmm": ("batch1", "batch2", "self"),
}
TRANSPOSES = ("aten.t", "aten.transpose", "aten.permute", "aten.numpy_T")


@dataclass(frozen=True, slots=True)
class ProductCall:
    """beta * base + alpha * (left @ right); `base` is None if nothing is added."""

    node: fx.Node
    left: fx.Node
    right: fx.Node
    base: fx.Node | None
    beta: Any
    alpha: Any

    @property
    def is_plain(self) -> bool:
        """Whether neither the base nor the product is scaled."""
        return self.beta == 1 and self.alpha == 1


def product_call(site: Site, node: object) -> ProductCall | None:
    """The matrix product that a node calls; None if it calls none, or if the call has further arguments."""
    call = site.call(node)
    if call is None or call.op not in _PARAMETERS or not isinstance(node, fx.Node):
        return None
    left, right, base = _PARAMETERS[call.op]
    if {*call.arguments} - {left, right, base, "beta", "alpha"}:  # such as the dtype of the result
        return None
    added = call.get(base) if base else None
    return ProductCall(node, call.get(left), call.get(right), added, call.get("beta", 1), call.get("alpha", 1))


def number(size: Any) -> int | None:
    """A size as a number, that of the example inputs if it is a symbol; None if that is not known. Guards nothing.

    >>> number(8)
    8
    """
    if isinstance(size, int):
        return size
    node: Any = getattr(size, "node", None)
    return int(node.hint) if node is not None and node.has_hint() else None


def numbers(site: Site, node: fx.Node) -> tuple[int | None, ...]:
    """The sizes of a node's value as numbers."""
    return tuple(map(number, site.value(node).shape))


def bias_of(call: ProductCall, site: Site) -> str:
    """Why the product's base is no bias, which has one number for each column; "" if it is one, or nothing is added."""
    if call.base is None:
        return ""
    bias, columns = site.value(call.base), site.value(call.right).shape[1]
    if not call.is_plain:
        return "the product or its base is scaled"
    is_row = bias.dim() == 1 and type(columns) is int and type(bias.shape[0]) is int and bias.shape[0] == columns
    return "" if is_row else f"{call.base.name} is no bias, a number for each column"


def weight_of(site: Site, call: ProductCall) -> fx.Node | None:
    """The weight of a linear layer as (columns, inner), if the right factor is a transposed view of it; else None."""
    return turned(site, call.right)


def turned(site: Site, node: object) -> fx.Node | None:
    """The matrix of which a node is the transposed view; None if it is no such view."""
    call, value = site.call(node), site.tensor(node)
    if call is None or call.op not in TRANSPOSES or value is None or value.dim() != 2:
        return None
    match call.op, call.get("dim0"), call.get("dim1"), call.get("dims"):
        case "aten.transpose", int() as first, int() as second, _:
            is_turned = (first - second) % 2 == 1
        case "aten.permute", _, _, dims:
            is_turned = [dim % 2 for dim in dims] == [1, 0]
        case _:
            is_turned = True
    return call.first if is_turned else None


def is_for_cpu(site: Site) -> bool:
    """Whether the CPU of this machine computes the graph, so that oneDNN's operators may."""
    return site.device == "cpu" and site.env.target.kind == "cpu"
