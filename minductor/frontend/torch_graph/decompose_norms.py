"""Decomposes normalisations in a joint graph, so that the backward can recompute their results.

Takes a joint graph and changes it. Gives nothing. The result of a norm becomes pointwise arithmetic on its operand and
its statistics. The partitioner saves the result of an undecomposed norm, which is as large as the operand; for a
decomposed norm it may save the small statistics and recompute the result.

Leaves alone norms in float16 and bfloat16, norms whose result has other strides than the formula gives, and norms that
feed a matrix product or a convolution: their backward needs the result, so it is saved anyway.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode

aten = torch.ops.aten


@dataclass(slots=True)
class Writer:
    """Inserts calls before the node `before`, with the metadata of the node `of` that they replace."""

    of: fx.Node
    before: fx.Node
    made: list[fx.Node] = field(default_factory=list[fx.Node])

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        graph = self.before.graph
        with graph.inserting_before(self.before):
            node = graph.call_function(target, args, kwargs)
        node.meta = {name: value for name, value in self.of.meta.items() if name not in ("val", "tensor_meta")}
        given, named = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        mode: Any = detect_fake_mode((given, named))
        with mode:
            node.meta["val"] = target(*given, **named)
        self.made.append(node)
        return node


EXACT = frozenset((torch.float32, torch.float64))  # values of the other dtypes are computed in float32 and rounded

# their gradients need their operands, which the partitioner does not recompute
PRODUCTS = frozenset(
    (
        aten.mm,
        aten.addmm,
        aten.bmm,
        aten.baddbmm,
        aten.convolution,
        aten._scaled_dot_product_flash_attention_for_cpu,
        aten._scaled_dot_product_flash_attention,
        aten._scaled_dot_product_efficient_attention,
        aten._scaled_dot_product_cudnn_attention,
    )
)

GRADIENTS = frozenset((aten._log_softmax_backward_data.default, aten.native_layer_norm_backward.default))
LOSS_GRADIENTS = frozenset((aten.nll_loss_backward.default, aten.nll_loss2d_backward.default))

# the replacement of each result; None for a result that stays as it is
Results = Sequence["fx.Node | None"]
Rewrite = Callable[[Writer, fx.Node], "Results | None"]


def decompose_norms(graph: fx.Graph) -> None:
    """Replaces each norm in `REWRITES` by its formula, where the formula gives the same dtype, sizes and strides."""
    for node in list(graph.nodes):
        rewrite = REWRITES.get(node.target) if node.op == "call_function" else None
        if rewrite is None or node.meta.get("recompute"):
            continue
        is_tuple = isinstance(node.meta["val"], tuple | list)
        old = [_item(node, number) for number in range(3)] if is_tuple else [node]
        if old[0] is None or (node.target not in GRADIENTS and _feeds_a_product(old[0])):
            continue
        write = Writer(node, node.next)
        new = rewrite(write, node) or ()
        pairs = [(a, b) for a, b in zip(old, new, strict=False) if a is not None and b is not None]
        if pairs and all(_layout(a) == _layout(b) for a, b in pairs):
            for a, b in pairs:
                a.replace_all_uses_with(b)
                graph.erase_node(a)
        else:
            for made in reversed(write.made):
                graph.erase_node(made)


def _item(node: fx.Node, number: int) -> fx.Node | None:
    return next((user for user in node.users if user.target is operator.getitem and user.args[1] == number), None)


def _feeds_a_product(node: fx.Node) -> bool:
    """Whether a matrix product, convolution or attention reads a node, directly or through views."""
    for user in node.users:
        if isinstance(user.target, torch._ops.OpOverload):
            if user.target.overloadpacket in PRODUCTS or (user.target.is_view and _feeds_a_product(user)):
                return True
    return False


def _layout(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return value.dtype, tuple(value.shape), tuple(value.stride())


def is_exact(node: fx.Node) -> bool:
    """Whether the arguments and results of an operator have one dtype, in which it also computes."""
    values = [*(n.meta["val"] for n in node.all_input_nodes), *node.meta["val"]]
    dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    return len(dtypes) == 1 and dtypes <= EXACT


def _normalized(write: Writer, operands: Sequence[Any]) -> fx.Node:
    """(x - mean) * rstd * weight + bias, as the kernels compute it."""
    x, mean, rstd, weight, bias = operands
    y = write(aten.mul.Tensor, write(aten.sub.Tensor, x, mean), rstd)
    if weight is not None:
        y = write(aten.mul.Tensor, y, weight)
    return y if bias is None else write(aten.add.Tensor, y, bias)


def _statistics(write: Writer, node: fx.Node) -> tuple[fx.Node, fx.Node]:
    return write(operator.getitem, node, 1), write(operator.getitem, node, 2)


def _broadcast_over_channels(write: Writer, given: Any, rank: int) -> Any:
    """A tensor of channels, or of samples and channels, with trailing dimensions of size 1 up to `rank` dimensions."""
    if given is None:
        return None
    for _ in range(rank - 2):
        given = write(aten.unsqueeze.default, given, -1)
    return given


def _layer_norm(write: Writer, node: fx.Node) -> Results | None:
    if not is_exact(node):
        return None
    x, _, weight, bias, _ = node.args
    return [_normalized(write, (x, *_statistics(write, node), weight, bias))]


def _layer_norm_backward(write: Writer, node: fx.Node) -> Results | None:
    """The gradients of operand, weight and bias, where the operand is a pointwise function of one tensor.

    That tensor is saved for the function anyway. An undecomposed norm would have the operand saved too.
    """
    grad: Any = node.args[0]
    x, shape, mean, rstd, weight, *_ = node.args[1:]
    assert isinstance(x, fx.Node) and isinstance(shape, Sequence)
    lengths = [n for n in shape if isinstance(n, int) and n > 0]
    if not is_exact(node) or not _is_unary_pointwise(x) or len(lengths) < len(shape):
        return None
    size = prod(lengths)
    rank = x.meta["val"].dim()
    rows, columns = list(range(rank - len(shape))), list(range(rank - len(shape), rank))
    normal = write(aten.mul.Tensor, write(aten.sub.Tensor, x, mean), rstd)
    scaled = grad if weight is None else write(aten.mul.Tensor, grad, weight)
    a, b = (
        write(aten.div.Tensor, write(aten.sum.dim_IntList, total, columns, True), size)
        for total in (scaled, write(aten.mul.Tensor, scaled, normal))
    )
    share = write(aten.add.Tensor, a, write(aten.mul.Tensor, normal, b))
    dx = write(aten.mul.Tensor, rstd, write(aten.sub.Tensor, scaled, share))
    if not rows:
        return [dx, write(aten.mul.Tensor, grad, normal), grad]
    dw = write(aten.sum.dim_IntList, write(aten.mul.Tensor, grad, normal), rows)
    return [dx, dw, write(aten.sum.dim_IntList, grad, rows)]


def _is_unary_pointwise(node: fx.Node) -> bool:
    """Whether a node is a pointwise function of one tensor."""
    is_pointwise = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags
    return is_pointwise and len(node.all_input_nodes) == 1


def _batch_norm(write: Writer, node: fx.Node) -> Results | None:
    x: Any = node.args[0]
    weight, bias, *rest = node.args[1:]
    if not is_exact(node) or not next(given for given in rest if isinstance(given, bool)):
        return None  # in evaluation there are no statistics of the batch
    along = (*_statistics(write, node), weight, bias)
    rank = x.meta["val"].dim()
    return [_normalized(write, (x, *(_broadcast_over_channels(write, given, rank) for given in along)))]


def _group_norm(write: Writer, node: fx.Node) -> Results | None:
    x: Any = node.args[0]
    weight, bias, samples, channels, _, groups, _ = node.args[1:]
    if not isinstance(samples, int) or not isinstance(channels, int) or not isinstance(groups, int):
        return None
    if not is_exact(node):
        return None
    rank = x.meta["val"].dim()
    along: list[fx.Node] = []
    for statistic in _statistics(write, node):
        columns = write(aten.unsqueeze.default, statistic, -1)
        spread = write(aten.expand.default, columns, [samples, groups, channels // groups])
        whole = write(aten.clone.default, spread, memory_format=torch.contiguous_format)
        along.append(write(aten.view.default, whole, [samples, channels]))
    return [
        _normalized(write, (x, *(_broadcast_over_channels(write, given, rank) for given in (*along, weight, bias))))
    ]


def _log_softmax(write: Writer, node: fx.Node) -> Results | None:
    """x - max - log(sum(exp(x - max))): the backward saves max and log, which are two numbers for each row."""
    x, dim, _ = node.args
    if not _has_known_exact_rows(node, dim):
        return None
    assert isinstance(x, fx.Node)
    for user in [user for user in node.users if user.target in LOSS_GRADIENTS]:
        user.replace_input_with(node, x)  # the gradient of a loss reads the strides of this operand only
    below = write(aten.sub.Tensor, x, write(aten.amax.default, x, [dim], True))
    total = write(aten.sum.dim_IntList, write(aten.exp.default, below), [dim], True)
    return [write(aten.sub.Tensor, below, write(aten.log.default, total))]


def _log_softmax_backward(write: Writer, node: fx.Node) -> Results | None:
    """grad - exp(y) * sum(grad), where y can be recomputed; an undecomposed node would have y saved."""
    grad, y, dim, _ = node.args
    if not _has_known_exact_rows(node, dim):
        return None
    total = write(aten.sum.dim_IntList, grad, [dim], True)
    return [write(aten.sub.Tensor, grad, write(aten.mul.Tensor, write(aten.exp.default, y), total))]


def _has_known_exact_rows(node: fx.Node, dim: Any) -> bool:
    """Whether the rows along a dimension have a known, positive length, and all dtypes are their compute dtype."""
    value = node.meta["val"]
    dtypes = {value.dtype, *(given.meta["val"].dtype for given in node.all_input_nodes)}
    rows = value.dim() > 0 and isinstance(value.shape[dim], int) and value.shape[dim] > 0
    return rows and len(dtypes) == 1 and dtypes <= EXACT


REWRITES: Mapping[Any, Rewrite] = {
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten._native_batch_norm_legit_functional.default: _batch_norm,
    aten._native_batch_norm_legit.no_stats: _batch_norm,
    aten.native_group_norm.default: _group_norm,
    aten._log_softmax.default: _log_softmax,
    aten._log_softmax_backward_data.default: _log_softmax_backward,
}
