"""The row `attention`: attention that a program writes out becomes one call of `scaled_dot_product_attention`.

Takes a softmax in Dynamo's graph or in torch.export's. Gives the call, between a mask (`attention_mask.py`) and views.
Refuses (a reason, for the user) what the fused kernels compute otherwise, and what they compute in more time.

The scores of written-out attention lie in memory, and are read and written by several calls; a fused kernel keeps them
in registers. What belongs to the attention is read backwards from the softmax to a product of queries and keys
(`score_steps.py`), and forwards to the product with the values.

Values are eager's but for rounding, with one exception: a NaN or an infinity in a key that `masked_fill` or `where`
hides is seen, since the fused kernels add masks. A row that is masked whole is NaN if its mask is -inf, and the mean of
the values if the mask is a finite fill, as in eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.attention_mask import (
    HIDING,
    added_masks,
    fills,
    mask_of,
    why_not_rounded,
)
from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site
from minductor.frontend.rewrites.score_steps import (
    CASTS,
    RESHAPES,
    SAME_VALUES,
    Operand,
    Product,
    Scores,
    Step,
    batch_sizes,
    is_equal,
    is_finite,
    product_of,
    same_matrices,
    scores_of,
)

aten = torch.ops.aten
SIXTEEN = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Match):
    """Attention that is written out.

    Args:
        scores: the product of queries and keys, and the steps up to the softmax.
        softmax: the softmax.
        mixing: the product of the weights and the values.
        dropout: the call of a dropout between them.
        batch: as in `Scores`, also from reshapes of the weights.
        scaled: the call that scales the queries, whose number becomes part of the scale.
    """

    scores: Scores
    softmax: OperatorCall
    mixing: Product
    dropout: OperatorCall | None
    batch: tuple[Any, Any] | None
    scaled: fx.Node | None = None

    @property
    def queries(self) -> Operand:
        """The queries, with the axes (..., queries, size)."""
        return self.scores.product.left

    @property
    def keys(self) -> Operand:
        """The keys, with the axes (..., keys, size)."""
        return self.scores.product.right

    @property
    def values(self) -> Operand:
        """The values, with the axes (..., keys, size)."""
        order = self.mixing.right.order
        return Operand(self.mixing.right.node, (*order[:-2], order[-1], order[-2]))


def find(site: Site) -> Attention | None:
    """The attention around a softmax: a product gives its operand, and a product reads its result."""
    softmax = site.call(site.anchor)
    scores = None if softmax is None else scores_of(softmax.first, site.anchor, site)
    if softmax is None or scores is None:
        return None
    behind = _mixing(site.anchor, site)
    if behind is None:
        return None
    mixing, chain, dropout, batch = behind
    inside = [*scores.nodes, site.anchor, *chain]
    scaled = _scaling(scores.product.left.node, site)
    inside += [scaled] if scaled is not None else []
    inside += [user for node in inside for user in node.users if _is_check(user)]
    return Attention(
        result=mixing.node,
        inside=tuple(dict.fromkeys(inside)),
        scores=scores,
        softmax=softmax,
        mixing=mixing,
        dropout=dropout,
        batch=scores.batch or batch,
        scaled=scaled,
    )


def _mixing(
    node: fx.Node, site: Site
) -> tuple[Product, tuple[fx.Node, ...], OperatorCall | None, tuple[Any, Any] | None] | None:
    """The product that reads weights, the nodes between them, a dropout on the way, and sizes as in `Scores.batch`."""
    for user in node.users:
        product, call, value = product_of(user, site), site.call(user), site.tensor(user)
        if product is not None and product.right.node is node and product.left.node is not node:
            axes = (*product.order[:-2], product.order[-1], product.order[-2])
            product = Product(user, product.right, product.left, axes)
        if product is not None and product.left.node is node:
            return product, (), None, None
        if product is not None or call is None or value is None or call.first is not node:
            continue
        is_dropout = call.op == "aten.dropout"
        inner = same_matrices(node, value, call.op, site)
        if inner is None or not (is_dropout or call.op in (*SAME_VALUES, *CASTS, *RESHAPES)):
            continue
        if (found := _mixing(user, site)) is not None:
            batch = batch_sizes(call) if (inner.dim(), value.dim()) == (3, 4) else None
            mixing, chain, dropout, later = found
            return mixing, (user, *chain), call if is_dropout and draws(call) else dropout, batch or later
    return None


def draws(dropout: OperatorCall) -> bool:
    """Whether a dropout draws random numbers."""
    return bool(dropout.get("train", True)) and dropout.get("p", 0.5) != 0


def _is_check(node: fx.Node) -> bool:
    """Whether a node only checks a value: torch.export writes such checks."""
    return node.target is aten._assert_tensor_metadata.default and not node.users


def _scaling(node: fx.Node, site: Site) -> fx.Node | None:
    """The node, if it multiplies queries by a number and nothing else reads it."""
    call = site.call(node)
    if call is None or call.op not in ("aten.mul", "aten.div") or len(node.users) != 1 or len(call.arguments) != 2:
        return None
    operand, number = call.arguments.values()
    before, after = site.tensor(operand), site.tensor(node)
    is_kept = before is not None and after is not None and before.dtype == after.dtype
    return node if is_kept and is_finite(number) and number != 0 else None


# --- conditions


def sums_over_keys(match: Attention, site: Site) -> str:
    """The softmax is along the keys, and the second product sums over the keys."""
    value = site.tensor(site.anchor)
    dims = 0 if value is None else value.dim()
    dim = match.softmax.get("dim")
    if not isinstance(dim, int) or dim % dims != dims - 1:
        return f"the softmax is along axis {dim}, not the last one"
    is_straight = match.scores.product.order == tuple(range(len(match.scores.product.order)))
    if not is_straight or match.mixing.left.order != tuple(range(len(match.mixing.left.order))):
        return "the last axis of the scores is not the one over which the second product sums"
    return ""


def has_four_axes(match: Attention, site: Site) -> str:
    """The fused kernels have a batch axis and a head axis."""
    dims = max(len(operand.order) for operand in (match.queries, match.keys, match.values))
    known = match.batch is not None or len({len(o.order) for o in (match.queries, match.values)}) == 1
    if dims > 4:
        return f"its products have {dims} axes, and the fused kernels have 4"
    if not known and len(match.queries.order) < len(match.values.order):
        return "the scores are reshaped by sizes that are not written there"
    return ""


def has_one_dtype(match: Attention, site: Site) -> str:
    """Queries, keys, values and the result have one dtype, and the softmax has no less precision."""
    result, weights = site.tensor(match.result), site.tensor(site.anchor)
    if result is None or weights is None:
        return "its result is no tensor"
    dtype = result.dtype
    allowed = (torch.float32, *SIXTEEN) if site.is_gpu else (torch.float32, torch.float64, *SIXTEEN)
    if dtype not in allowed:
        return f"no fused kernel computes in {_name(dtype)}"
    for what, operand in (("queries", match.queries), ("keys", match.keys), ("values", match.values)):
        value = site.tensor(operand.node)
        product = site.value(match.result if operand.node is match.mixing.right.node else match.scores.product.node)
        is_cast = product.dtype == dtype and bool(site.autocast)
        if value is None or not (value.dtype == dtype or is_cast or _is_widened(operand.node, dtype, site)):
            return f"the {what} are {_name(value.dtype) if value is not None else 'no tensor'}, not {_name(dtype)}"
    between = {value.dtype for node in match.inside if (value := site.tensor(node)) is not None}
    if other := sorted(_name(each) for each in between - {dtype, torch.float32}):
        return f"its scores are computed in {other[0]}"
    return ""


def _is_widened(node: object, dtype: torch.dtype, site: Site) -> bool:
    """Whether a node is a tensor of a dtype as float32, so that a cast back gives the same values."""
    call = site.call(node)
    if call is None:
        return False
    if call.op in CASTS:
        value = site.tensor(call.first)
        return value is not None and value.dtype == dtype
    moves = ("aten.transpose", "aten.permute", "aten.expand", *RESHAPES, *SAME_VALUES)
    return call.op in moves and _is_widened(call.first, dtype, site)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def has_equal_batches(match: Attention, site: Site) -> str:
    """Queries, keys and values have equal batch sizes and heads; sizes of one that are numbers can be expanded."""
    for d in range(max(len(match.queries.order), len(match.values.order)) - 2):
        sizes = [site.value(operand.node).shape[operand.order[d]] for operand in _operands(match, d)]
        wide = [size for size in sizes if not is_equal(size, 1)]
        if len(wide) != len(sizes) and wide and type(wide[0]) is not int:
            return f"axis {d} of the keys or values is expanded to a size that varies"
        if any(not is_equal(size, wide[0]) for size in wide):
            return f"axis {d} of queries, keys and values differs"
    return ""


def _operands(match: Attention, d: int) -> Sequence[Operand]:
    """The operands that have a batch axis d."""
    return [operand for operand in (match.queries, match.keys, match.values) if d < len(operand.order) - 2]


def has_fused_head_size(match: Attention, site: Site) -> str:
    """The fused kernels take the head size: on a CPU one size for all, on a GPU multiples of what a load reads."""
    size, other = (site.value(operand.node).shape[operand.order[-1]] for operand in (match.queries, match.values))
    if not site.is_gpu:
        return "" if is_equal(size, other) else f"the head sizes of queries and values differ: {size} and {other}"
    step = 8 if site.value(match.result).dtype in SIXTEEN else 4
    if any(type(each) is not int or each % step or each > 256 for each in (size, other)):
        return f"the fused kernels take head sizes up to 256 that are multiples of {step}, not {size}"
    return ""


def draws_nothing(match: Attention, site: Site) -> str:
    """A dropout of the weights gives other random numbers in a fused kernel, and none on a CPU."""
    if match.dropout is None:
        return ""
    if not site.is_gpu:
        return "it drops weights, which no fused kernel of the CPU does"
    return "" if site.env.options.fuse_random else "it drops weights by eager's random numbers"


def repeats_bits(match: Attention, site: Site) -> str:
    """In deterministic mode gradients must not come from atomic adds, which the kernels of GPUs use."""
    is_trained = site.value(match.result).requires_grad
    atomic = site.is_gpu and is_trained and site.env.options.deterministic
    return "the fused kernel's gradient is not deterministic" if atomic else ""


def has_known_scale(match: Attention, site: Site) -> str:
    """Scales are numbers, or tensors that have one value for a query; behind a fill they must be positive numbers."""
    filled = False
    for step in match.scores.steps:
        filled = filled or step.kind == "fill"
        if step.kind not in ("scale", "divide"):
            continue
        value = site.value(step.value)
        is_number = isinstance(step.value, int | float)
        if is_number and (not is_finite(step.value) or step.value == 0):
            return f"its scale is {step.value}"
        if filled and (not is_number or step.value <= 0):
            return "its scale follows a fill and is not a positive number"
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            continue
        if not is_equal(value.shape[-1], 1):
            return "its scale has a value for each key"
        if value.dtype != site.value(match.result).dtype:
            return f"its scale is {_name(value.dtype)}"
    return ""


def has_axes_of_product(match: Attention, site: Site) -> str:
    """Masks and scales of scores with five axes, such as those of windows of an image, fit the axes of the product."""
    order = match.scores.product.order
    value = site.value(match.scores.product.node)
    sizes = tuple(value.shape[d] for d in order[:-2])
    sizes = sizes if match.batch is None or len(sizes) != 1 else match.batch
    for step in match.scores.steps:
        tensor = site.tensor(step.mask if step.kind == "fill" else step.value)
        if step.dims < 4 or tensor is None or tensor.dim() == 0:
            continue
        if step.dims > 4 and any(type(size) is not int for size in step.sizes):
            return f"its mask is for scores of {step.dims} axes whose sizes vary"
        merged = (prod(step.sizes[:-1]), step.sizes[-1])
        if len(sizes) == 2 and not any(isinstance(size, fx.Node) for size in sizes):
            is_right = all(is_equal(a, b) for a, b in zip(merged, sizes, strict=True))
        else:
            is_right = step.dims == 4
        if not is_right:
            return f"its mask is for scores of {step.dims} axes that its products do not have"
    return ""


def has_hiding_fill(match: Attention, site: Site) -> str:
    """Fills hide scores: they are -inf or at most -10000, and other masks do not come near them."""
    found = fills(match.scores.steps)
    for value in found:
        if not isinstance(value, int | float):
            return "its scores are filled by a tensor"
        if not value <= HIDING:
            return f"its scores are filled by {value:g}, which does not hide them"
    weak = [value for value in found if is_finite(value) and value > -1e30]
    if weak and (added_masks(match.scores.steps) or len(set(found)) > 1):
        return f"its scores are filled by {weak[0]:g} and masked otherwise too"
    return ""


def has_mask_of_scores(match: Attention, site: Site) -> str:
    """Masks have a value for each key, in a dtype that the fused kernels take, and need no gradient on a CPU."""
    keys = match.keys
    count = site.value(keys.node).shape[keys.order[-2]]
    for step in match.scores.steps:
        mask = step.mask if step.kind == "fill" else step.value
        if step.kind in ("scale", "divide"):
            continue
        value = site.tensor(mask)
        if value is None or value.dim() == 0:
            return "a number is added to its scores"
        if not is_equal(value.shape[-1], count):
            return "its mask has one value for all keys"
        if step.kind == "fill":
            if value.dtype != torch.bool:
                return f"the mask of a fill is {_name(value.dtype)}"
            continue
        if not value.dtype.is_floating_point:
            return f"its mask is {_name(value.dtype)}"
        if value.requires_grad:  # a GPU's fused backward refused the sums that its forward had saved for it
            return "its mask needs a gradient, which no fused kernel gives reliably"
        if why := why_not_rounded(mask, site.value(match.result).dtype, site):
            return why
    return ""


def pays(match: Attention, site: Site) -> str:
    """The fused kernel is faster.

    On a CPU, times written out over fused, by one thread of an AMD EPYC, torch 2.13, heads of 64, a mask: in 16 bits 4
    to 29, with gradients 1.3 to 3.6 (torch has no fast product of 16-bit matrices there); for one query 0.5 to 0.9, for
    two 4.4. In float32 1.05 to 2 from 192 queries and keys on (heads of 32 to 128), 0.78 to 1.1 at 128, 0.75 to 0.93 at
    16 to 64, 0.81 to 0.92 for one query, and 0.7 to 1.0 with gradients.
    """
    queries, keys = (_length(operand, site) for operand in (match.queries, match.keys))
    result = site.value(match.result)
    if keys == 0 or queries == 0:
        return "it has no queries or no keys"
    if site.is_gpu:
        return _why_not_on_gpu(result, queries)
    if keys is None or queries is None:
        return ""
    if keys < FEWEST_KEYS:
        return f"it has {keys} keys, fewer than {FEWEST_KEYS}"
    if queries == 1:
        return "one query is faster written out on a CPU"
    if result.dtype in SIXTEEN:
        return ""
    if result.requires_grad:
        return f"in {_name(result.dtype)} the fused gradient takes longer on a CPU"
    if queries < FEWEST_FLOAT32 or keys < FEWEST_FLOAT32:
        return f"{queries} queries and {keys} keys in {_name(result.dtype)} are faster written out on a CPU"
    return ""


def _why_not_on_gpu(result: torch.Tensor, queries: int | None) -> str:
    """The reason why the fused kernel of a GPU is slower; "" if it is not.

    On an H200, torch 2.11, times written out over fused: in 16 bits 1.0 to 4.0, with gradients 1.0 to 2.5. In float32
    1.03 to 1.21, but 0.65 for one query of 4096 keys, and 0.51 to 0.97 with gradients.
    """
    if result.dtype in SIXTEEN:
        return ""
    if result.requires_grad:
        return f"in {_name(result.dtype)} the fused gradient takes longer on a GPU"
    is_short = queries is not None and queries < FEWEST_QUERIES
    return f"{queries} queries in {_name(result.dtype)} are faster written out on a GPU" if is_short else ""


FEWEST_KEYS = 16  # also below 8 keys the CPU's kernel gives 0 for a query of NaN
FEWEST_FLOAT32 = 192
FEWEST_QUERIES = 16  # in float32 on a GPU


def _length(operand: Operand, site: Site) -> int | None:
    """The number of rows of an operand; for a size that varies that of the example inputs, None if there is none."""
    size = site.value(operand.node).shape[operand.order[-2]]
    return size if type(size) is int else size.node.hint


# --- replacement


def replace(match: Attention, site: Site) -> fx.Node:
    """The call of `scaled_dot_product_attention`, with the result's axes."""
    axes = _Axes(match, site)
    q, k, v = (axes.operand(operand) for operand in (match.queries, match.keys, match.values))
    q, scale = _scaled(q, axes, site)
    q, mask = mask_of(match.scores.steps, q, axes.mask, site.value(match.result).dtype, site)
    q, k, v = _expanded((q, k, v), site)
    p = match.dropout.get("p", 0.5) if match.dropout is not None else 0.0
    return axes.result(site.write(aten.scaled_dot_product_attention.default, q, k, v, mask, p, scale=scale))


@dataclass(slots=True)
class _Axes:
    """Writes views between the axes of a program and the four of the fused kernels."""

    match: Attention
    site: Site
    sizes: tuple[Any, ...] | None = None  # of the batch axis and the head axis, if three axes must be split

    def operand(self, operand: Operand) -> fx.Node:
        """Queries, keys or values with the axes batch, head, row and size, in the dtype of the result."""
        site = self.site
        node = self._unscaled(operand.node)
        if operand.order != tuple(range(len(operand.order))):
            node = site.write(aten.permute.default, node, list(operand.order))
        dtype = site.value(self.match.result).dtype
        if site.value(node).dtype != dtype:
            node = site.write(aten.to.dtype, node, dtype)
        node = self._split(node)
        while site.value(node).dim() < 4:
            node = site.write(aten.unsqueeze.default, node, 0)
        is_dense = is_equal(site.value(node).stride()[-1], 1)  # the fused kernels take no others
        return node if is_dense else site.write(aten.contiguous.default, node)

    def mask(self, node: fx.Node, step: Step) -> fx.Node:
        """A mask of the scores that a step reads, for scores of four axes."""
        if step.dims <= 4:
            return self._split(node) if step.dims == self.site.value(node).dim() == 3 else node
        while self.site.value(node).dim() < step.dims:
            node = self.site.write(aten.unsqueeze.default, node, 0)
        sizes = [*step.sizes[:-1], -1, -1, -1]
        return self.site.write(aten.flatten.using_ints, self.site.write(aten.expand.default, node, sizes), 0, -4)

    def result(self, node: fx.Node) -> fx.Node:
        """The kernel's result with the axes of the program."""
        order = self.match.mixing.order
        site = self.site
        if len(order) == 3 and self._split_sizes() is not None:
            node = site.write(aten.flatten.using_ints, node, 0, 1)
        while site.value(node).dim() > len(order):
            node = site.write(aten.squeeze.dim, node, 0)
        if order == tuple(range(len(order))):
            return node
        return site.write(aten.permute.default, node, [order.index(d) for d in range(len(order))])

    def _split(self, node: fx.Node) -> fx.Node:
        """A tensor of three axes with its first axis split into batch and heads; others are left alone."""
        value = self.site.value(node)
        if value.dim() != 3:
            return node
        sizes = None if is_equal(value.shape[0], 1) else self._split_sizes()
        if sizes is None:
            return self.site.write(aten.unsqueeze.default, node, 0)
        return self.site.write(aten.unflatten.int, node, 0, list(sizes))

    def _split_sizes(self) -> tuple[Any, ...] | None:
        """The sizes of batch and heads if scores, queries or values have four axes in the program, else None."""
        queries = self.match.queries
        if self.sizes is None and self.match.batch is not None:
            self.sizes = self.match.batch
        if self.sizes is None and len(queries.order) == 4:
            node = self._unscaled(queries.node)
            shape = self.site.value(node).shape
            self.sizes = tuple(
                shape[d] if type(shape[d]) is int else self.site.write(aten.sym_size.int, node, d)
                for d in queries.order[:2]
            )
        return self.sizes

    def _unscaled(self, node: fx.Node) -> fx.Node:
        """What a call scales, if its number becomes part of the scale; else the node."""
        call = self.site.call(node) if node is self.match.scaled else None
        return node if call is None else call.first


def _scaled(q: fx.Node, axes: _Axes, site: Site) -> tuple[fx.Node, float]:
    """The queries times the scales that are tensors, and the product of the scales that are numbers."""
    scale, match = 1.0, axes.match
    call = site.call(match.scaled)
    if call is not None:
        number = list(call.arguments.values())[1]
        scale = float(number) if call.op == "aten.mul" else 1 / number
    for step in match.scores.steps:
        if step.kind in ("scale", "divide"):
            is_product = step.kind == "scale"
            if isinstance(step.value, int | float):
                scale = scale * step.value if is_product else scale / step.value
            else:
                is_tensor = isinstance(site.value(step.value), torch.Tensor)
                value = axes.mask(step.value, step) if is_tensor else step.value
                q = site.write(aten.mul.Tensor if is_product else aten.div.Tensor, q, value)
    return q, scale


def _expanded(operands: Sequence[fx.Node], site: Site) -> Sequence[fx.Node]:
    """The operands with equal batch sizes and heads."""
    shapes = [site.value(node).shape for node in operands]
    made: list[fx.Node] = []
    for node, shape in zip(operands, shapes, strict=True):
        sizes = [-1] * 4
        for d in range(2):
            wide = [each[d] for each in shapes if not is_equal(each[d], 1)]
            if wide and is_equal(shape[d], 1):
                sizes[d] = wide[0]
        made.append(node if sizes == [-1] * 4 else site.write(aten.expand.default, node, sizes))
    return made


ATTENTION = Rewrite(
    name="attention",
    docs="Attention that is written out becomes one call of scaled_dot_product_attention.",
    level="torch",
    anchors=("aten.softmax", "aten._softmax"),
    find=find,
    conditions=(
        sums_over_keys,
        has_four_axes,
        has_one_dtype,
        has_equal_batches,
        has_fused_head_size,
        draws_nothing,
        repeats_bits,
        has_known_scale,
        has_axes_of_product,
        has_hiding_fill,
        has_mask_of_scores,
        pays,
    ),
    replace=replace,
    keeps_strides=False,
)
