"""The rows that pad matrix products whose sizes do not fit the matrix unit of a GPU, and take a part of the result.

Takes products in ATen graphs (`pad_products`) and in the joint graph of training (`pad_trained_products`). Gives the
product of operands with zeros behind them, of which a view is the result. Refuses products that would not take less
time, and sizes that are not numbers. `pad_all_products` is off by default and refuses nothing for its time: with it the
two forms of a product can be measured against each other, and tested on any device.

A matrix unit is fed with vectors of 16 bytes along the axis that is contiguous in memory. So the inner axis counts if
one of the factors is contiguous along it, as do the columns of the result, and no others: the rows of x @ w fit
always. Zeros behind the inner axis meet zeros only. Zeros behind rows or columns may meet NaN or infinity, and what
becomes of that lies outside of the view.

Whether a product is padded is a learned choice, `padding`. Where it may not be asked or is unsure, estimated seconds
decide: a product that does not fit takes SLOWER times as long, an operand is copied unless the pad becomes a part of
its producer's kernel or is computed once, and the result is copied where a reader needs it contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import fx

from minductor.frontend.rewrites.product_calls import PRODUCTS, ProductCall, number, numbers, product_call
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site
from minductor.frontend.rewrites.strided_readers import copied_for, is_view
from minductor.heuristics.features import ProductPads, ProductSizes, padding_features
from minductor.heuristics.learned import learned
from minductor.target import NOMINAL

aten = torch.ops.aten
VECTOR = 16  # bytes that a matrix unit's loads take at once
SHORT_SUM = 16  # products that an element sums: up to here generated kernels compute the product, and mask
SLOWER = 2.5  # times as long as a product of aligned sizes takes one of odd sizes
PLAIN, PADDED = "-pad_products", "+pad_all_products"  # the options of the choice, as the option `rewrites` takes them
_LIBRARY = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution", "aten._scaled_dot_product")


class Pads(NamedTuple):
    """The zeros behind the rows, the columns and the inner axis of a product."""

    rows: int
    columns: int
    inner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OddProduct(Match):
    """A product and the pads with which its sizes fit."""

    product: ProductCall
    pads: Pads


def find_on_gpu(site: Site) -> OddProduct | None:
    """The product at the anchor of a graph for a GPU, if a size that counts does not fit."""
    return find(site) if site.is_gpu else None


def find(site: Site) -> OddProduct | None:
    """The product at the anchor, if a size that counts does not fit."""
    product = product_call(site, site.anchor)
    if product is None or not site.value(product.node).is_floating_point():
        return None
    pads = _pads(site, product)
    return OddProduct(result=site.anchor, product=product, pads=pads) if any(pads) else None


def _pads(site: Site, product: ProductCall) -> Pads:
    """The pads of a product; a size that is no number gets none."""
    left, right = site.value(product.left), site.value(product.right)
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    if any(n in (0, 1) for n in (rows, inner, columns) if type(n) is int):  # no product of matrices
        return Pads(0, 0, 0)
    unit = max(1, VECTOR // left.itemsize)
    is_left_turned, is_right_turned = _is_turned(left), _is_turned(right)
    counts = is_left_turned, True, not is_left_turned or is_right_turned
    sizes = zip((rows, columns, inner), counts, strict=True)
    return Pads(*(-n % unit if counts and type(n) is int else 0 for n, counts in sizes))


def _is_turned(value: torch.Tensor) -> bool:
    """Whether the columns of a matrix are contiguous in memory, and its rows are not."""
    rows, columns = value.stride()[-2:]
    return type(rows) is int and rows == 1 and not (type(columns) is int and columns == 1)


def uses_matrix_unit(match: OddProduct, site: Site) -> str:
    """The library multiplies values of the dtype in a matrix unit."""
    dtype = site.value(match.result).dtype
    if dtype == torch.float32 and site.env.options.matmul_precision != "tf32":
        return "float32 is multiplied in a matrix unit only if TF32 is allowed"
    is_taken = dtype in (torch.float16, torch.bfloat16, torch.float32)
    return "" if is_taken else f"no matrix unit is used for {str(dtype).removeprefix('torch.')}"


def is_left_to_library(match: OddProduct, site: Site) -> str:
    """The library computes the product: generated kernels mask what is odd."""
    inner = number(site.value(match.product.left).shape[-1])
    is_ours = site.env.options.matmul == "native" or (inner is not None and inner <= SHORT_SUM)
    return "a generated kernel computes it" if is_ours and site.env.options.matmul != "extern" else ""


def saves_time(match: OddProduct, site: Site) -> str:
    """The product takes less time with pads, as was learned, or else by estimated seconds."""
    if _sizes(site, match.product) is None:
        return "its sizes are not known"
    answer = learned("padding", (PLAIN, PADDED), partial(_features, site, match), site.env)
    if answer is not None and answer.option:
        return "" if answer.option == PADDED else answer.note
    before, after = seconds(match, site)
    return "" if after < before else f"it would take {after * 1e6:.3g} us in place of {before * 1e6:.3g} us"


class Operand(NamedTuple):
    """A padded operand: its bytes, and whether it is padded once, or by the kernel that computes it."""

    nbytes: int
    is_frozen: bool
    is_produced: bool

    @property
    def is_copied(self) -> bool:
        """Whether each call runs a kernel that does nothing but pad it."""
        return not self.is_frozen and not self.is_produced


def _operands(site: Site, match: OddProduct) -> Iterator[Operand]:
    """The operands of a product that get pads, the base among them."""
    product, pads = match.product, match.pads
    given = [(product.left, (pads.rows, pads.inner)), (product.right, (pads.inner, pads.columns))]
    if product.base is not None:
        given.append((product.base, pads[:2]))
    for node, counts in given:
        if any(counts):
            nbytes = prod(n or 1 for n in numbers(site, node)) * site.value(node).itemsize
            yield Operand(nbytes, site.is_frozen(node), _is_produced(site, node))


def _is_produced(site: Site, node: fx.Node) -> bool:
    """Whether a generated kernel computes a value for this one reader, so that the pad becomes a part of it."""
    while is_view(node) and len(node.users) == 1:
        node = node.all_input_nodes[0]
    call = site.call(node)
    is_kernel = node.op == "call_function" and call is not None and not call.op.startswith(_LIBRARY)
    return is_kernel and len(node.users) == 1 and not is_view(node)


def _sizes(site: Site, product: ProductCall) -> tuple[int, int, int, int] | None:
    """Batch, rows, columns and inner axis of a product as numbers; None if one is not known."""
    *batch, rows, inner = numbers(site, product.left)
    columns = numbers(site, product.right)[-1]
    found = [*batch, rows, columns, inner]
    if any(n is None for n in found):
        return None
    known = [n or 0 for n in found]
    return prod(known[:-3]), known[-3], known[-2], known[-1]


def _result_bytes(site: Site, match: OddProduct) -> int:
    """The bytes of the result if a reader needs it contiguous, so that it is copied; else 0."""
    old, pads = site.value(match.result), match.pads
    if not pads.rows and not pads.columns:
        return 0
    *batch, rows, columns = old.shape
    wide = old.new_empty((*batch, rows + pads.rows, columns + pads.columns))
    why = copied_for(match.result, old.new_empty_strided(old.shape, wide.stride()), site.value_key)
    return prod(n or 1 for n in numbers(site, match.result)) * old.itemsize if why else 0


def seconds(match: OddProduct, site: Site) -> tuple[float, float]:
    """Estimated seconds of the product as it is, and of the padded one with its copies."""
    machine = site.env.target.machine or NOMINAL
    batch, rows, columns, inner = _sizes(site, match.product) or (0, 0, 0, 0)
    itemsize = site.value(match.result).itemsize

    def of_product(m: int, n: int, k: int) -> float:
        operations = 2 * batch * m * n * k / machine.matrix * (1 if itemsize == HALF else 2)
        return max(operations, batch * (m * k + k * n + m * n) * itemsize / machine.bandwidth)

    pads = match.pads
    copied = 2 * _result_bytes(site, match)
    launches = int(copied > 0)
    for operand in _operands(site, match):
        if operand.is_copied:
            copied += 2 * operand.nbytes
            launches += 1
    before = SLOWER * of_product(rows, columns, inner)
    after = of_product(rows + pads.rows, columns + pads.columns, inner + pads.inner)
    return before, after + copied / machine.bandwidth + launches * machine.launch


HALF = 2  # bytes of an element for which `Machine.matrix` holds


def _features(site: Site, match: OddProduct) -> dict[str, float]:
    """The features by which the choice `padding` is learned."""
    product = match.product
    batch, rows, columns, inner = _sizes(site, product) or (0, 0, 0, 0)
    left, right = site.value(product.left), site.value(product.right)
    is_turned = _is_turned(left), _is_turned(right)
    strides = [[number(n) or 1 for n in value.stride()[-2:]] for value in (left, right)]
    sizes = ProductSizes(
        *(batch, rows, columns, inner),
        itemsize=left.itemsize,
        is_tf32=left.dtype == torch.float32,
        base=product.base is not None,
        after=0,
        left_inner=not is_turned[0],
        right_inner=is_turned[1],
        left_row=strides[0][1 if is_turned[0] else 0],
        right_row=strides[1][1 if is_turned[1] else 0],
    )
    operands = list(_operands(site, match))
    copied = [each.nbytes for each in operands if each.is_copied]
    fused = [each.nbytes for each in operands if each.is_produced and not each.is_frozen]
    pads = ProductPads(*match.pads, sum(copied), len(copied), sum(fused), _result_bytes(site, match))
    return padding_features(sizes, pads)


def replace(match: OddProduct, site: Site) -> fx.Node:
    """The product of padded operands, and the view of the result."""
    product, pads = match.product, match.pads
    rank = site.value(match.result).dim()
    args = list(product.node.args)
    left, right = _padded(site, product.left, pads.rows, pads.inner), None
    right = _padded(site, product.right, pads.inner, pads.columns)
    if product.base is not None:
        args[0] = _padded_base(site, product, pads)
    args[-2:] = left, right
    made = site.write(product.node.target, *args, **product.node.kwargs)
    for dim, pad, size in zip((rank - 2, rank - 1), pads[:2], site.value(match.result).shape[-2:], strict=True):
        if pad:
            made = site.write(aten.slice.Tensor, made, dim, 0, size)
    return made


def _padded(site: Site, node: fx.Node, rows: int, columns: int) -> fx.Node:
    """A matrix with zeros behind its rows and columns, laid out as it was."""
    if not rows and not columns:
        return node
    if _is_turned(site.value(node)):
        turned = site.write(aten.transpose.int, node, -2, -1)
        return site.write(aten.transpose.int, _pad(site, turned, [0, rows, 0, columns]), -2, -1)
    return _pad(site, node, [0, columns, 0, rows])


def _padded_base(site: Site, product: ProductCall, pads: Pads) -> Any:
    """The base with zeros behind the dimensions that are those of the result, and not broadcast."""
    base, result = site.value(product.base), site.value(product.node)
    behind: list[int] = []
    for n, size, pad in zip(reversed(base.shape), reversed(result.shape), (pads.columns, pads.rows), strict=False):
        behind += [0, pad if type(size) is int and type(n) is int and n == size else 0]
    return _pad(site, product.base, behind) if any(behind) else product.base


def _pad(site: Site, node: Any, behind: Sequence[int]) -> fx.Node:
    """A value with zeros behind it; one that the graph has already serves several products."""
    before = site.before or site.anchor
    for user in node.users:
        if user.target is aten.constant_pad_nd.default and user.args == (node, list(behind), 0.0) and user < before:
            return user
    return site.write(aten.constant_pad_nd.default, node, list(behind), 0.0)


PAD_PRODUCTS = Rewrite(
    name="pad_products",
    docs="A product whose sizes do not fit a GPU's matrix unit is padded with zeros, where that saves time.",
    level="aten",
    anchors=PRODUCTS,
    find=find_on_gpu,
    conditions=(uses_matrix_unit, is_left_to_library, saves_time),
    replace=replace,
    keeps_strides=False,
)
PAD_TRAINED_PRODUCTS = replaced(
    PAD_PRODUCTS,
    name="pad_trained_products",
    docs="Products are padded in the joint graph of training, so that the backward reads padded results uncopied.",
    level="joint",
)
PAD_ALL_PRODUCTS = replaced(
    PAD_PRODUCTS,
    name="pad_all_products",
    docs="Each product of odd sizes is padded with zeros, on any device and whatever it costs.",
    find=find,
    conditions=(),
    is_on=False,
)
