"""The row `large_linear`: on a CPU by AMD, oneDNN computes linear layers whose weights are large.

Takes a product in float32 whose weight no cache keeps, in a graph for the CPU of this machine. Gives oneDNN's product
of the same weight, which is not packed and not copied. Refuses frozen weights, which `pack_linear` packs, and products
of so few or so many rows that both libraries take as long.

Torch calls MKL, which reads a weight of (columns, inner) badly on these processors. Measured on a Zen 3 core in
float32, oneDNN takes 0.43 to 0.97 of MKL's time for 8 to 512 rows, at least 2,048 columns and 2**21 weights. It is as
fast or slower by up to a quarter for fewer columns, smaller weights, and weights of (inner, columns). No processor by
another maker was measured.

The row is off: oneDNN adds the products of a row in one chain where MKL has several, so that its error is twice as
large in the mean and up to 3.5 times as large at worst (768 to 4,096 products).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

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

MAKER = "AuthenticAMD"  # as the processor names it
LEAST_WEIGHTS, LEAST_COLUMNS = 1 << 21, 2048
FEWEST_ROWS, MOST_ROWS = 8, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeLinear(Match):
    """A product, and its weight as (columns, inner)."""

    product: ProductCall
    weight: fx.Node


def find(site: Site) -> LargeLinear | None:
    """The product at the anchor, if its weight is large and this machine's CPU is one on which oneDNN is faster."""
    if site.env.device != MAKER or not is_for_cpu(site) or not torch.backends.mkldnn.is_available():
        return None
    product = product_call(site, site.anchor)
    weight = None if product is None else weight_of(site, product)
    if product is None or weight is None or site.value(weight).dtype != torch.float32:
        return None
    columns, inner = numbers(site, weight)
    if (columns or 0) * (inner or 0) < LEAST_WEIGHTS or not site.value(weight).is_contiguous():
        return None
    return LargeLinear(result=site.anchor, product=product, weight=weight)


def has_weight_of_each_call(match: LargeLinear, site: Site) -> str:
    """The weight may have another value at each call."""
    return f"{match.weight.name} is a frozen weight, which is packed" if site.is_frozen(match.weight) else ""


def has_bias(match: LargeLinear, site: Site) -> str:
    """What is added is one number for each column."""
    return bias_of(match.product, site)


def has_many_columns(match: LargeLinear, site: Site) -> str:
    """The weight has so many columns that MKL reads it badly."""
    columns = number(site.value(match.weight).shape[0]) or 0
    return "" if columns >= LEAST_COLUMNS else f"MKL is as fast with {columns} columns"


def has_some_rows(match: LargeLinear, site: Site) -> str:
    """The product has several rows, and fewer than would hide how the weight is read. A symbol counts as such a number:
    the bits of a graph for all sizes must not depend on the first ones.
    """
    rows = site.value(match.product.left).shape[0]
    if type(rows) is not int or FEWEST_ROWS <= rows <= MOST_ROWS:
        return ""
    return f"MKL is as fast with {rows} rows"


def replace(match: LargeLinear, site: Site) -> fx.Node:
    """OneDNN's product."""
    given = match.product.left, match.weight, match.product.base
    return site.write(torch.ops.mkldnn._linear_pointwise.default, *given, "none", [], "")


LARGE_LINEAR = Rewrite(
    name="large_linear",
    docs="On a CPU by AMD, oneDNN computes linear layers whose weights are large.",
    level="aten",
    anchors=LINEAR,
    find=find,
    conditions=(has_weight_of_each_call, has_bias, has_many_columns, has_some_rows),
    replace=replace,
    is_on=False,
)
