"""The decomposition table for AOTAutograd: which operators it decomposes before the graph is captured, and why.

Takes nothing. Gives a table from operator to formula, made on first use:

- torch's own formulas of the operators in `DECOMPOSED`. Each node costs AOTAutograd about 0.3 ms, so an operator is
  decomposed only if the operators of its formula fuse and no lowering rule takes it whole.
- formulas of a transformer encoder layer (`encoder_layers.py`) and of the gradient of a weight norm.
- formulas that correct torch's traces (`known_quirks.py` has their rows). Most correct strides: the result is laid out
  with the strides of `eager_strides.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import decompose
from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

from minductor.frontend.capture.schemas import FLOAT_ONLY
from minductor.frontend.quirks.eager_strides import (
    COMPUTED_IN_STEPS,
    FOURIER_TRANSFORMS,
    WITH_OWN_STRIDES,
    eager_strides,
    is_ambiguous,
    layout_of,
    transform_strides,
    view_strides,
    with_strides,
)
from minductor.frontend.quirks.encoder_layers import encoder_layer
from minductor.frontend.quirks.torch_versions import with_traced_strides

# operator, with all its overloads -> what its formula consists of
DECOMPOSED: Mapping[str, str] = {
    name: formula
    for formula, names in {
        "pointwise": "affine_grid_generator binary_cross_entropy_backward celu heaviside isneginf isposinf linalg_cross"
        " logaddexp logaddexp2 _prelu_kernel _prelu_kernel_backward sinc special_entr special_xlog1py",
        "pointwise, then a concatenation": "glu_backward",
        "pointwise, then a mean": "binary_cross_entropy_with_logits huber_loss mse_loss smooth_l1_loss"
        " soft_margin_loss",
        "pointwise, then a sum": "mvlgamma",
        "pointwise; an argument is scratch": "log_sigmoid_backward",
        "pointwise; its arguments are out of order for a formula": "elu_backward",
        "pointwise; its second result is scratch": "log_sigmoid_forward",
        "a comparison and a sum": "count_nonzero",
        "a comparison of all pairs, then `any`": "isin",
        "a difference and a norm": "dist",
        "a masked copy": "diag_embed diagonal_backward",
        "a masked sum": "nansum",
        "a norm and a quotient": "_weight_norm_interface",
        "a product of widened rows": "_euclidean_dist",
        "a product": "deg2rad native_dropout_backward rad2deg",
        "a product and a sum": "addr",
        "a sum of powers": "norm",
        "a sum over a diagonal": "trace",
        "a view and a copy": "alias_copy as_strided_copy diagonal_copy expand_copy narrow_copy permute_copy"
        " squeeze_copy t_copy transpose_copy unfold_copy unsqueeze_copy",
        "arithmetic on places": "tril_indices triu_indices",
        "four reads at scaled places, weighted": "upsample_bilinear2d",
        "norms, then pointwise": "renorm",
        "padding and a concatenation": "block_diag _chunk_cat",
        "reads at scaled places": "upsample_nearest1d upsample_nearest2d upsample_nearest3d",
        "softmax with a mask for empty rows": "_safe_softmax",
        "two halves, pointwise": "glu",
        "two reductions that fuse": "aminmax logsumexp",
        "views and a copy": "channel_shuffle pixel_shuffle pixel_unshuffle",
        "views and copies": "split_with_sizes_copy unbind_copy",
        "views and flips": "rot90",
    }.items()
    for name in names.split()
}
# what torch 2.11 traces with the zero strides of an expanded argument, though its results are written to
COPYING_SCATTERS = ("slice_scatter", "select_scatter", "diagonal_scatter")


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Operator -> the formula that AOTAutograd applies; one that gives NotImplemented keeps the operator whole."""
    from torch._decomp import get_decompositions

    packets = [getattr(torch.ops.aten, name) for name in DECOMPOSED if hasattr(torch.ops.aten, name)]
    found = dict(get_decompositions(packets))
    for op in found:
        if str(op).split(".")[1] in FLOAT_ONLY:
            found[op] = _refuse_integers(found[op])
    found[torch.ops.aten._embedding_bag.default] = _bfloat16_bags
    found[torch.ops.aten._transformer_encoder_layer_fwd.default] = encoder_layer
    found[torch.ops.aten._weight_norm_interface_backward.default] = _weight_norm_backward
    bilinear = torch.ops.aten.upsample_bilinear2d.default
    found[bilinear] = _refuse_bytes(found.get(bilinear, _not_decomposed))
    norm = torch.ops.aten.linalg_vector_norm.default
    found[norm] = _norm_of_positive_dims(norm)
    found[torch.ops.aten.constant_pad_nd.default] = _negative_pad
    for op in _with_python_strides():
        found[op] = _with_eager_strides(op, found.get(op, _not_decomposed))
    for name in COPYING_SCATTERS:
        op = getattr(torch.ops.aten, name).default
        found[op] = _scatter_into_copy(op)
    for op in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
        found[op] = _view_with_eager_strides(op)
    for name in FOURIER_TRANSFORMS if torch.backends.mkl.is_available() else ():
        op = getattr(torch.ops.aten, name.split(".")[1]).default
        found[op] = _transform_with_eager_strides(op)
    log_sigmoid = torch.ops.aten.log_sigmoid_forward.default
    apart = found[log_sigmoid]
    found[log_sigmoid] = lambda x: apart(x.contiguous())  # as eager's result is, whatever the argument
    found[torch.ops.aten.view_copy.default] = _view_copy
    unique = torch.ops.aten._unique.default  # torch 2.11 and 2.12 trace one element of it
    found[unique] = lambda x, *args: torch.ops.aten._unique2(x, *args)[:2]
    return found


def _with_python_strides() -> Iterator[Any]:
    """The operators for whose results torch computes strides in Python while it traces."""
    from torch._decomp import global_decomposition_table

    for name in sorted(WITH_OWN_STRIDES):
        _, packet, overload = name.split(".")
        if hasattr(torch.ops.aten, packet):
            yield getattr(getattr(torch.ops.aten, packet), overload)
    for op in {**global_decomposition_table["post_autograd"], **global_decomposition_table["meta"]}:
        if isinstance(op, torch._ops.OpOverload) and torch.Tag.pointwise in op.tags:
            if str(op) not in COMPUTED_IN_STEPS and not op._schema.is_mutable and len(op._schema.returns) == 1:
                yield op


def _refuse_integers(take_apart: Callable[..., Any]) -> Callable[..., Any]:
    """The formula `take_apart`, but calls without floating-point tensors stay whole and raise eager's error."""

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        is_whole = all(not (a.is_floating_point() or a.is_complex()) for a in args if isinstance(a, torch.Tensor))
        return NotImplemented if is_whole else take_apart(*args, **kwargs)

    return decomposed


def _refuse_bytes(take_apart: Callable[..., Any]) -> Callable[..., Any]:
    """The formula `take_apart`, but bytes on a CPU stay whole: eager rounds them otherwise."""

    def decomposed(x: Any, *args: Any, **kwargs: Any) -> Any:
        is_whole = x.dtype == torch.uint8 and x.device.type == "cpu"
        return NotImplemented if is_whole else take_apart(x, *args, **kwargs)

    return decomposed


def _not_decomposed(*args: Any, **kwargs: Any) -> Any:
    """The formula of an operator that is not decomposed."""
    return NotImplemented


def _scatter_into_copy(op: Callable[..., Any]) -> Callable[..., Any]:
    """The formula of a scatter that copies an expanded tensor first, so that its elements do not share memory."""

    def is_shared(x: Any) -> bool:
        steps = zip(x.shape, x.stride(), strict=True)
        return any(type(step) is int and step == 0 and not (type(n) is int and n < 2) for n, step in steps)

    def decomposed(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_shared(x):
            return NotImplemented
        own = x.clone()
        return op(x.clone(memory_format=torch.contiguous_format) if is_shared(own) else own, *args, **kwargs)

    return decomposed


def _view_copy(x: Any, size: Any) -> Any:
    """The formula of view_copy: torch's own fails where x has no view of that size."""
    return x.reshape(size).clone(memory_format=torch.contiguous_format)


def _view_with_eager_strides(op: Any) -> Callable[..., Any]:
    """The formula of a view, traced with eager's strides: torch traces others for dimensions of size 1."""

    def decomposed(x: Any, size: Any) -> Any:
        if not any(type(n) is int and n == 1 for n in size):
            return NotImplemented
        with decompose({}):
            result = op(x, size)
        stride = view_strides(layout_of(x), tuple(result.shape))
        if stride is None or all(guard_or_false(a == b) for a, b in zip(stride, result.stride(), strict=True)):
            return result
        return with_traced_strides(result, stride)

    return decomposed


def _bfloat16_bags(weight: Any, *args: Any, **kwargs: Any) -> Any:
    """The formula of embedding bags in bfloat16 on the CPU, with an empty `offset2bag`.

    The CPU leaves it empty, though torch traces one; the backward computes it again if it is empty.
    """
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return NotImplemented
    with decompose({}):  # without this table, which would call this formula again
        bags, offset2bag, *others = torch.ops.aten._embedding_bag.default(weight, *args, **kwargs)
    return (bags, offset2bag.new_empty(0), *others)


def _negative_pad(x: Any, pad: Any, *value: Any) -> Any:
    """The formula of padding that only cuts: a copy of a slice. torch traces that only if no number of `pad` is 0."""
    if not all(statically_known_true(n <= 0) for n in pad):
        return NotImplemented
    for d, (before, after) in enumerate(zip(pad[-2::-2], pad[::-2], strict=True), x.dim() - len(pad) // 2):
        x = x.narrow(d, -before, x.shape[d] + before + after)
    return x.clone()


def _weight_norm_backward(grad: Any, v: Any, g: Any, norms: Any, dim: int) -> tuple[Any, Any]:
    """The formula of `_weight_norm_interface_backward`: the gradients of v and of g, for w = v * g / |v|."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    sums = (grad * v).sum(others, keepdim=True)
    lengths = norms.to(g.dtype)
    return (grad - v * (sums / (lengths * lengths))) * (g / lengths), sums / lengths


def _norm_of_positive_dims(op: Callable[..., Any]) -> Callable[..., Any]:
    """A norm over dimensions counted from the front: torch 2.11 and 2.12 keep negative ones of size 1."""

    def decomposed(x: Any, order: Any = 2, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dim is None or all(d >= 0 for d in dim) or not x.dim():
            return NotImplemented
        return op(x, order, [d % x.dim() for d in dim], *args, **kwargs)

    return decomposed


def _transform_with_eager_strides(op: Any) -> Callable[..., Any]:
    """The formula of a Fourier transform on the CPU, traced with eager's strides: torch 2.11 traces others."""

    def decomposed(x: Any, dims: Any, *args: Any) -> Any:
        if x.device.type != "cpu" or not dims:
            return NotImplemented
        with decompose({}):
            result = op(x, dims, *args)
        stride = transform_strides(op, x, dims, tuple(result.shape))
        return result if stride is None else with_traced_strides(result, stride)

    return decomposed


def _with_eager_strides(op: Any, take_apart: Callable[..., Any]) -> Callable[..., Any]:
    """The formula `take_apart`, with eager's strides for its result or the first of several results."""

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        result = take_apart(*args, **kwargs)
        if not is_ambiguous(op, args) or kwargs.get("memory_format") not in (None, torch.preserve_format):
            return result
        if result is NotImplemented:
            with decompose({}):  # without this table, which would call this formula again
                result = op(*args, **kwargs)
        first, *others = result if isinstance(result, tuple) else (result,)
        stride = eager_strides(op, args, first)
        if stride is None:
            return result
        return (with_strides(first, stride), *others) if others else with_strides(first, stride)

    return decomposed
