"""The row `join_products`: several products of one operand become one, whose results are views of it.

Takes linear layers that read the same value in a frozen graph, such as queries, keys and values. Gives one product with
the weights beside each other, which are joined once. Refuses results that a reader or the caller needs contiguous,
since a copy takes what one product saves, and on a CPU products so large that the joined one saves nothing.

Without frozen weights nothing is joined: the weights would be copied together at each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites import pack_linear
from minductor.frontend.rewrites.operator_calls import writes_memory
from minductor.frontend.rewrites.product_calls import (
    LINEAR,
    ProductCall,
    bias_of,
    number,
    numbers,
    product_call,
    weight_of,
)
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site
from minductor.frontend.rewrites.strided_readers import copied_for

aten = torch.ops.aten
LARGE = 5_000_000  # multiply-adds of a product on a CPU, above which a joined call saves nothing
SEVERAL = 2  # products


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductsOfOneOperand(Match):
    """Products with one left factor, in the order of the graph; `result` is the first of them."""

    products: tuple[ProductCall, ...]


def find(site: Site) -> ProductsOfOneOperand | None:
    """The products that read what the product at the anchor reads, if the anchor is the first of them."""
    first = product_call(site, site.anchor)
    if first is None:
        return None
    products = [first]
    for left in _equal_views(first.left):
        for reader in left.users:
            other = product_call(site, reader)
            is_other = other is not None and other.left is left and reader is not site.anchor
            if other is not None and is_other and _is_alike(first, other, site):
                products.append(other)
    products.sort(key=lambda product: product.node)
    if len(products) < SEVERAL or products[0] is not first:
        return None
    return ProductsOfOneOperand(result=site.anchor, products=tuple(products))


def _equal_views(node: fx.Node) -> Iterator[fx.Node]:
    """A node, and the other views of the same value that show the same."""
    yield node
    source = node.args[0] if node.op == "call_function" and node.args else None
    if isinstance(source, fx.Node) and len(node.all_input_nodes) == 1:
        for other in source.users:
            if other is not node and (other.target, other.args, other.kwargs) == (node.target, node.args, node.kwargs):
                yield other


def _is_alike(first: ProductCall, other: ProductCall, site: Site) -> bool:
    """Whether two products call the same operator for the same dtype."""
    dtypes = {site.value(product.node).dtype for product in (first, other)}
    return first.node.target is other.node.target and len(dtypes) == 1 and first.node is not other.node


def has_frozen_weights(match: ProductsOfOneOperand, site: Site) -> str:
    """All weights and biases have the same values at each call."""
    given = [each for product in match.products for each in (product.right, product.base) if each is not None]
    changing = [node.name for node in given if not site.is_frozen(node)]
    return f"{changing[0]} is not a frozen weight" if changing else ""


def has_biases(match: ProductsOfOneOperand, site: Site) -> str:
    """What is added to each product is one number for each column."""
    return next(filter(None, (bias_of(product, site) for product in match.products)), "")


def has_known_sizes(match: ProductsOfOneOperand, site: Site) -> str:
    """The sizes of all weights are numbers."""
    sizes = [n for product in match.products for n in site.value(product.right).shape]
    return "" if all(type(n) is int for n in sizes) else "the sizes of the weights are not known"


def begins_behind_weights(match: ProductsOfOneOperand, site: Site) -> str:
    """All weights are there before the first product, and nothing is written between the products."""
    first, last = match.products[0].node, match.products[-1].node
    late = [node.name for product in match.products for node in _sources(site, product) if not node < first]
    if late:
        return f"{late[0]} is computed behind the first product"
    node = first
    while node is not last:
        node = node.next
        if writes_memory(node):
            return f"{node.name} writes to memory between the products"
    return ""


def readers_take_views(match: ProductsOfOneOperand, site: Site) -> str:
    """All readers of the products take strided views of the joined one."""
    total = sum(site.value(product.right).shape[1] for product in match.products)
    for product in match.products:
        old = site.value(product.node)
        if why := copied_for(product.node, old.new_empty_strided(old.shape, (total, 1)), site.value_key):
            return why
    return ""


def saves_time(match: ProductsOfOneOperand, site: Site) -> str:
    """The products are launched by a GPU; or are small, or the joined weight is worth packing."""
    if site.is_gpu:
        return ""
    rows = number(site.value(match.products[0].left).shape[0])
    inner = number(site.value(match.products[0].right).shape[0]) or 0
    columns = [numbers(site, product.right)[1] or 0 for product in match.products]
    is_small = rows is not None and rows * inner * max(columns) < LARGE
    is_packed = site.value(match.result).dtype == torch.float32 and pack_linear.pays(rows, inner, sum(columns))
    return "" if is_small or is_packed else f"products of {rows or '?'} x {inner} x {max(columns)} are too large"


def _sources(site: Site, product: ProductCall) -> Sequence[fx.Node]:
    """The weight, as it is read for the joined one, and the bias if there is one."""
    weight = weight_of(site, product) or product.right
    return (weight,) if product.base is None else (weight, product.base)


def replace(match: ProductsOfOneOperand, site: Site) -> Mapping[fx.Node, fx.Node]:
    """One product with all weights, and for each old product a view of its columns."""
    products = match.products
    weights = [weight_of(site, each) or site.write(aten.t.default, each.right) for each in products]
    joined = site.write(aten.t.default, site.write(aten.cat.default, weights))
    first: Any = products[0]
    if first.base is None:
        made = site.write(aten.mm.default, first.left, joined)
    else:
        bias = site.write(aten.cat.default, [each.base for each in products])
        made = site.write(aten.addmm.default, bias, first.left, joined)
    found: dict[fx.Node, fx.Node] = {}
    start = 0
    for each in products:
        end = start + site.value(each.right).shape[1]
        found[each.node] = site.write(aten.slice.Tensor, made, 1, start, end)
        start = end
    return found


JOIN_PRODUCTS = Rewrite(
    name="join_products",
    docs="Several linear layers of one operand with frozen weights become one product, whose results are views.",
    level="frozen",
    anchors=LINEAR,
    find=find,
    conditions=(
        has_frozen_weights,
        has_biases,
        has_known_sizes,
        begins_behind_weights,
        readers_take_views,
        saves_time,
    ),
    replace=replace,
    keeps_strides=False,
)
