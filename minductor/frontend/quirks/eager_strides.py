"""The strides that eager gives to results, where torch's formulas for fake tensors give others.

Takes an operator, its traced arguments and its traced result. Gives eager's strides, or the result laid out with them.
Nearly always the stride of a dimension of size 1 differs: no element depends on it, but `stride()` shows it, and later
strides are computed from it. Where eager's strides depend on the value of a symbol, the result keeps its strides.

Eager does one of two things for pointwise operators. If all arguments have one shape and are contiguous, or have the
same dense strides, the result has their layout. Otherwise the dimensions are sorted by stride, and the first argument
that orders two dimensions decides. A number beside tensors counts as an argument of another shape.

>>> x = torch.ones(8).as_strided((3, 1), (1, 7))
>>> eager_strides(torch.ops.aten.exp.default, (x,), x), eager_strides(torch.ops.aten.mul.Tensor, (x, 2), x)
((1, 1), (1, 3))
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import torch

Row: TypeAlias = "tuple[int, ...]"  # sizes or strides, each a number or a SymInt


def _operators(names: str) -> frozenset[str]:
    """As `capture.schemas.operator_names`, which the quirks may not import."""
    return frozenset(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names.split())


# operators whose result has the layout of their first argument
LIKE_FIRST_ARGUMENT = _operators(
    "_prelu_kernel _to_copy binary_cross_entropy clone deg2rad empty_like fill.Scalar fill.Tensor flip full_like"
    " hardtanh huber_loss index_fill.int_Scalar index_fill.int_Tensor index_put nan_to_num ones_like rad2deg zeros_like"
)
# operators whose result is row-major, whatever the arguments are
ROW_MAJOR = _operators(
    "diag_embed grid_sampler_2d grid_sampler_3d im2col index_add index_copy linalg_vector_norm masked_fill.Scalar"
    " masked_fill.Tensor native_layer_norm nll_loss2d_forward pow.Scalar renorm tril triu"
)
# operators whose result has the memory format that torch suggests for the first argument
BY_MEMORY_FORMAT = _operators(
    "_batch_norm_with_update _batch_norm_with_update_functional _upsample_bicubic2d_aa _upsample_bilinear2d_aa"
    " _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d channel_shuffle max_unpool2d"
    " native_group_norm reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d upsample_bicubic2d"
    " upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d"
    " upsample_trilinear3d"
)
# as BY_MEMORY_FORMAT, but if the first argument is contiguous in a memory format, the result has that format
BY_CONTIGUITY = _operators(
    "_native_batch_norm_legit _native_batch_norm_legit.no_stats _native_batch_norm_legit_functional"
    " _native_batch_norm_legit_no_training native_batch_norm"
)
INDEX = frozenset({"aten.index.Tensor", "aten._unsafe_index.Tensor"})
# pointwise operators without torch's tag for pointwise
POINTWISE = _operators(
    "complex floor_divide hardswish hardswish_backward hardtanh_backward mse_loss polar rsub.Tensor smooth_l1_loss"
    " softplus_backward"
)
# Fourier transforms stay calls: the result of the call has eager's strides, and only the trace has others
FOURIER_TRANSFORMS = frozenset({"aten._fft_c2c.default", "aten._fft_c2r.default", "aten._fft_r2c.default"})
# pointwise operators that eager computes by several operators
COMPUTED_IN_STEPS = frozenset({"aten.isinf.default", "aten.mvlgamma.default"})
# operators whose last tensor is eager's first operand
REVERSED_ARGUMENTS = frozenset({"aten.rsub.Tensor", "aten.threshold_backward.default"})
ROLL = frozenset({"aten.roll.default"})
GATED = frozenset({"aten.glu.default"})  # pointwise operators on the two halves of their argument
WITH_OWN_STRIDES = LIKE_FIRST_ARGUMENT | ROW_MAJOR | BY_MEMORY_FORMAT | BY_CONTIGUITY | INDEX | POINTWISE | ROLL | GATED
# operators whose fake strides differ from eager's whatever the sizes are
WRONG_IN_FAKE_TENSORS = _operators(
    "binary_cross_entropy copysign.Tensor div.Tensor_mode grid_sampler_2d grid_sampler_3d heaviside im2col index_copy"
    " index_fill.int_Scalar index_fill.int_Tensor ldexp.Tensor logaddexp logaddexp2 logical_and logical_or logical_xor"
    " logit_backward native_dropout_backward nll_loss2d_forward pow.Scalar special_xlog1py xlogy.Tensor"
).union(BY_MEMORY_FORMAT, BY_CONTIGUITY, POINTWISE, ROLL, GATED)
# names of parameters at which a number broadcasts as a tensor does
_OPERAND_NAMES = frozenset({"self", "other", "x", "n"})
_FLOATS_OF_16_BITS = frozenset({torch.float16, torch.bfloat16})
_COMPLEX_OF_REALS = frozenset({"aten.complex.default", "aten.polar.default"})  # complex results of real numbers
_CONDITIONS = frozenset({"condition", "mask"})  # names of parameters that eager does not cast to the common dtype


class Layout(NamedTuple):
    """The size and the strides of a tensor.

    >>> Layout((3, 1), (1, 7)).is_contiguous, Layout((3, 1), (1, 7)).is_dense
    (True, True)
    """

    size: Row
    stride: Row

    @property
    def is_contiguous(self) -> bool:
        return self._follows(range(len(self.size) - 1, -1, -1))

    @property
    def is_channels_last(self) -> bool:
        return len(self.size) in (4, 5) and self._follows(_channels_last(len(self.size)))

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill their memory without gaps, and no two elements share memory."""
        left = [d for d, n in enumerate(self.size) if not _is_one(n)]
        step = 1
        while left:
            inner = next((d for d in left if _is_known(self.stride[d] == step)), None)
            if inner is None:
                return False
            left.remove(inner)
            step *= self.size[inner]
        return True

    def _follows(self, inner_first: Sequence[int]) -> bool:
        step = 1
        for d in inner_first:
            if not _is_one(self.size[d]):
                if not _is_known(self.stride[d] == step):
                    return False
                step *= self.size[d]
        return True

    def broadcast_strides(self, size: Row) -> Row:
        """The strides of this tensor expanded to `size`: 0 in the dimensions along which it is repeated."""
        new = len(size) - len(self.size)
        own = zip(self.size, self.stride, size[new:], strict=True)
        return (0,) * new + tuple(0 if _is_one(n) and not _is_one(whole) else s for n, s, whole in own)

    def copy_strides(self) -> Row | None:
        """The strides of a copy that preserves the format; None if they depend on the value of a symbol."""
        return self.stride if self.is_dense else dense_strides(self.size, [self.stride])


def dense_strides(size: Row, strides: Sequence[Row]) -> Row | None:
    """The strides of a new tensor without gaps whose dimensions are ordered as in `strides`.

    The first of the strides that differ in two dimensions orders these. Dimensions that no strides order stay in
    row-major order. None if the order depends on the value of a symbol.

    >>> dense_strides((3, 1, 2), [(0, 0, 0), (1, 8, 16)])
    (1, 3, 3)
    """
    order = list(range(len(size) - 1, -1, -1))  # the innermost first
    for n in range(1, len(size)):
        at = n
        for before in range(n - 1, -1, -1):
            after = _compare(size, strides, order[before], order[at])
            if after is None:
                return None
            if after < 0:
                break
            if after > 0:
                order[before], order[at] = order[at], order[before]
                at = before
    return _strides_in_order(size, order)


def _strides_in_order(size: Row, inner_first: Sequence[int]) -> Row:
    """The strides without gaps of dimensions in the order `inner_first`, the innermost dimension first."""
    strides = [0] * len(size)
    step = 1
    for d in inner_first:
        strides[d] = step
        step *= size[d]
    return tuple(strides)


def _channels_last(rank: int) -> Sequence[int]:
    """The dimensions from the innermost to the outermost in the memory format channels_last."""
    return (1, *range(rank - 1, 1, -1), 0)


def _compare(size: Row, strides: Sequence[Row], a: int, b: int) -> int | None:
    """-1 if the strides put dimension a inside of b, 1 if outside, 0 if neither; None if symbols decide."""
    for stride in strides:
        if _is_zero(stride[a]) or _is_zero(stride[b]):
            continue
        if _is_known(stride[a] == stride[b]):
            if not _is_multiple(size[b], size[a]):
                return 1 if _is_multiple(size[a], size[b]) else None
            continue
        if _is_multiple(stride[b], stride[a]):
            return -1
        return 1 if _is_multiple(stride[a], stride[b]) else None
    return 0


def _is_multiple(a: Any, b: Any) -> bool:
    """Whether a is known to be at least b; a product of symbols is so if it is a multiple of b."""
    return _is_known(a >= b) or _is_known(a % b == 0)


def _is_more(a: Any, b: Any) -> bool:
    """Whether a is known to be greater than b; strides may be products of symbols."""
    return _is_known(a > b) or (not _is_zero(b) and _is_known(a % b == 0) and _is_known(a // b > 1))


def _is_one(n: Any) -> bool:
    return type(n) is int and n == 1


def _is_zero(n: Any) -> bool:
    return type(n) is int and n == 0


def _is_known(fact: Any) -> bool:
    """Whether a condition holds for all values of the symbols in it; adds no guard."""
    if isinstance(fact, bool):
        return fact
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(fact)


def broadcast_result_strides(operands: Sequence[Layout], size: Row) -> Row | None:
    """The strides that eager gives to a pointwise result of that size; a number is an operand without dimensions."""
    if all(len(x.size) == len(size) and all(map(_is_same, x.size, size)) for x in operands):
        if all(x.is_contiguous for x in operands):
            return dense_strides(size, ())
        if all(x.is_channels_last for x in operands):
            return _strides_in_order(size, _channels_last(len(size)))
        first, *others = operands
        if first.is_dense and all(all(map(_is_same, x.stride, first.stride)) for x in others):
            return first.stride
    return dense_strides(size, [x.broadcast_strides(size) for x in operands])


def _is_number(n: Any) -> bool:
    """Whether a size is an int, or a SymInt that torch has found to be constant."""
    return type(n) is int or n.node.maybe_as_int() is not None


def _is_same(a: Any, b: Any) -> bool:
    return _is_known(a == b)


def layout_of(x: torch.Tensor) -> Layout:
    return Layout(tuple(x.shape), x.stride())


def is_ambiguous(op: Any, args: Sequence[Any]) -> bool:
    """Whether torch may trace other strides for the result of a call than eager gives.

    It may for operators in WRONG_IN_FAKE_TENSORS and for tensors with a dimension of size 1. It may also for expanded
    tensors of 16-bit floats, because torch's formulas cast these to float32, and the copy is no longer expanded.
    """
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if any(x.dtype in _FLOATS_OF_16_BITS and any(map(_is_zero, x.stride())) for x in tensors):
        return True
    return str(op) in WRONG_IN_FAKE_TENSORS or any(_is_one(n) for x in tensors for n in x.shape)


def eager_strides(op: Any, args: Sequence[Any], result: torch.Tensor) -> Row | None:
    """The strides that eager gives to the result of a pointwise operator, or of an operator in WITH_OWN_STRIDES.

    None if the traced strides are to be kept.
    """
    name, size = str(op), tuple(result.shape)
    if not size or any(map(_is_zero, size)):
        return None
    if name in ROW_MAJOR:
        return dense_strides(size, ())
    if name in LIKE_FIRST_ARGUMENT:
        return layout_of(args[0]).copy_strides()
    if name in BY_MEMORY_FORMAT or name in BY_CONTIGUITY:
        return _memory_format_strides(args[0], size, keeps=name in BY_CONTIGUITY)
    if name in INDEX:
        operands = _index_operands(layout_of(args[0]), args[1])
        return None if operands is None else broadcast_result_strides(operands, size)
    if name in ROLL:
        return _roll_strides(*args)
    if name in GATED:
        return broadcast_result_strides([Layout(size, args[0].stride())] * 2, size)
    if op is torch.ops.aten.ldexp.Tensor and args[0].is_floating_point() and not args[1].is_floating_point():
        return _ldexp_strides(layout_of(args[0]), layout_of(args[1]), size)
    operands = _layouts_of_operands(op, args, result.dtype)
    return None if operands is None else broadcast_result_strides(operands, size)


def _layouts_of_operands(op: Any, args: Sequence[Any], common: torch.dtype) -> list[Layout] | None:
    """The layouts of a pointwise operator's operands in eager, where each is cast to the dtype `common` first."""
    names = [p.name if str(p.type) in ("Tensor", "Scalar", "number") else "" for p in op._schema.arguments]
    operands = [(name, arg) for name, arg in zip(names, args, strict=False) if _is_operand(name, arg)]
    if operands and (common == torch.bool or str(op) in _COMPLEX_OF_REALS):
        common = torch.result_type(operands[0][1], operands[-1][1])
    if str(op) in REVERSED_ARGUMENTS:
        operands.reverse()
    layouts: list[Layout] = []
    for name, arg in operands:
        own = layout_of(arg) if isinstance(arg, torch.Tensor) else Layout((), ())
        stride: Row | None = own.stride
        if op is torch.ops.aten.ldexp.Tensor and name == "other":
            stride = dense_strides(own.size, ())  # the strides of 2 ** other
        elif isinstance(arg, torch.Tensor) and arg.dtype != common and name not in _CONDITIONS:
            stride = own.copy_strides()
        if stride is None:
            return None
        layouts.append(Layout(own.size, stride))
    return layouts


def _is_operand(name: str, arg: object) -> bool:
    """Whether an argument broadcasts: a tensor, or a number for a parameter that takes numbers beside tensors."""
    is_number = isinstance(arg, int | float | complex | torch.SymInt | torch.SymFloat)
    return isinstance(arg, torch.Tensor) or (name in _OPERAND_NAMES and is_number)


def _memory_format_strides(x: torch.Tensor, size: Row, *, keeps: bool) -> Row | None:
    """Strides in the memory format that torch suggests for `x`; if it `keeps` formats, in that of a contiguous `x`.

    None if the values of symbols decide the format.
    """
    own, channels_last = layout_of(x), _channels_last(len(size))
    is_known = all(_is_number(n) for n in (*own.size, *own.stride, *size))
    if own.is_contiguous and (keeps or not is_known):
        return dense_strides(size, ())
    if own.is_channels_last and keeps:
        return _strides_in_order(size, channels_last)
    if is_known:
        from torch._prims_common import suggest_memory_format

        is_row_major = suggest_memory_format(x) is torch.contiguous_format
        return dense_strides(size, ()) if is_row_major else _strides_in_order(size, channels_last)
    # with symbols, a format is chosen only if it is right for all their values
    if len(size) not in (4, 5) or any(_is_more(own.stride[a], own.stride[b]) for a, b in pairwise(channels_last)):
        return dense_strides(size, ())
    is_wide = own.is_channels_last and _is_known(own.size[1] > 1) and any(_is_known(n > 1) for n in own.size[2:])
    if not is_wide:
        return None
    is_nested = all(_is_multiple(own.stride[b], own.size[a] * own.stride[a]) for a, b in pairwise(channels_last))
    return _strides_in_order(size, channels_last) if is_nested else None


def _roll_strides(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Row | None:
    """The strides of a rolled tensor: eager concatenates two parts of it along each rolled dimension.

    A concatenation is in the memory format channels_last if both parts suggest that format.
    """
    size, stride = tuple(x.shape), x.stride()
    if not dims:
        return dense_strides(size, ())
    if not all(_is_number(n) for n in (*size, *stride, *shifts)):
        return _memory_format_strides(x, size, keeps=False)
    from torch._prims_common import are_strides_like_channels_last_or_false

    for shift, dim in zip(shifts, dims, strict=True):
        first = shift % size[dim]
        d = dim % len(size)
        parts = [(*size[:d], n, *size[d + 1 :]) for n in (first, size[d] - first)]
        is_last = all(are_strides_like_channels_last_or_false(part, stride) for part in parts)
        stride = _strides_in_order(size, _channels_last(len(size)) if is_last else range(len(size) - 1, -1, -1))
    return stride


def _ldexp_strides(x: Layout, exponent: Layout, size: Row) -> Row | None:
    """The strides of ldexp with integer exponents: those of a copy of x, unless x broadcasts."""
    if len(x.size) == len(size) and all(map(_is_same, x.size, size)):
        return x.copy_strides()
    return broadcast_result_strides([x, exponent], size)


def _index_operands(x: Layout, indices: Sequence[torch.Tensor | None]) -> list[Layout] | None:
    """The layouts of an indexed tensor and of the indices as views of the result's rank.

    The tensor has stride 0 in the dimensions of the indices, and these come first unless the indexed dimensions are
    adjacent. None if an index is a mask, whose values decide the result's size.
    """
    indexed = [d for d, index in enumerate(indices) if index is not None]
    tensors = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in tensors):
        return None
    size = tuple(torch.broadcast_shapes(*(index.shape for index in tensors)))
    rest = [d for d in range(len(x.size)) if d not in indexed]
    first = indexed[0] if indexed[-1] - indexed[0] == len(indexed) - 1 else 0
    before, after = rest[:first], rest[first:]

    def around(own: Row, values: Row) -> Row:
        return (*(values[d] for d in before), *own, *(values[d] for d in after))

    operands = [Layout(around(size, x.size), around((0,) * len(size), x.stride))]
    ones = around(size, (1,) * len(x.size))
    for index in tensors:
        stride = view_strides(Layout(size, layout_of(index).broadcast_strides(size)), ones)
        if stride is None:
            return None
        operands.append(Layout(ones, stride))
    return operands


def view_strides(x: Layout, size: Row) -> Row | None:
    """The strides that eager gives to a view of x of that size; None if the values of symbols decide them.

    A dimension of size 1 has the stride of a whole row of the dimensions inside of it.

    >>> view_strides(Layout((3, 1), (1, 7)), (1, 3, 1)), view_strides(Layout((4, 1, 3), (3, 7, 1)), (12,))
    ((3, 1, 7), (1,))
    """
    if any(map(_is_zero, size)):
        return None
    if not x.size:
        return (1,) * len(size)
    strides: list[Any] = []
    left = list(size)
    step: Any = x.stride[-1]
    old: Any = 1
    new: Any = 1
    for d in range(len(x.size) - 1, -1, -1):  # adjacent dimensions without gaps are split and merged together
        old *= x.size[d]
        if d and (_is_known(x.size[d - 1] == 1) or _is_known(x.stride[d - 1] == old * step)):
            continue
        while left and (_is_known(left[-1] == 1) or not _is_known(new == old)):
            strides.append(new * step)
            new *= left.pop()
        if not _is_known(new == old):
            return None
        step, old, new = x.stride[d - 1], 1, 1
    return tuple(reversed(strides))


def transform_strides(op: Any, x: torch.Tensor, dims: Sequence[int], size: Row) -> Row | None:
    """The strides of a Fourier transform over `dims`, by the CPU's library.

    >>> c2c, x = torch.ops.aten._fft_c2c.default, torch.ones(4, 5, 6, dtype=torch.complex64)
    >>> transform_strides(c2c, x, [2, 0], (4, 5, 6)), torch.ops.aten._fft_c2c(x, [2, 0], 0, True).stride()
    ((6, 24, 1), (6, 24, 1))
    """
    if any(map(_is_zero, size)):
        return None
    own, last = layout_of(x), [dims[-1]]
    if op is torch.ops.aten._fft_c2c.default:
        return _strides_with_inner(own, _outer_first(own, dims), size)
    if op is torch.ops.aten._fft_r2c.default:
        others = _outer_first(own, dims[:-1])
        return None if others is None else _strides_with_inner(own, [*others, *last], size)
    if len(dims) > 1:  # c2r first transforms all dimensions but the last one
        stride = _strides_with_inner(own, _outer_first(own, dims[:-1]), own.size)
        if stride is None:
            return None
        own = Layout(own.size, stride)
    return _strides_with_inner(own, last, size)


def _strides_with_inner(x: Layout, inner: Sequence[int] | None, size: Row) -> Row | None:
    """The strides of a result whose dimensions `inner`, outermost first, lie inside of all others.

    The others are ordered by x's strides. If two strides are equal, the library's partition of the dimensions decides:
    it puts dimensions from the end into the places of inner ones.
    """
    if inner is None:
        return None
    count = len(size) - len(inner)
    behind = [d for d in range(count, len(size)) if d not in inner]
    others = _outer_first(x, [behind.pop() if d in inner else d for d in range(count)])
    return None if others is None else _strides_in_order(size, [*reversed(inner), *reversed(others)])


def _outer_first(x: Layout, dims: Sequence[int]) -> Sequence[int] | None:
    """Dimensions by their strides, the largest first; dimensions of one stride stay in the order of `dims`."""
    order: list[int] = []
    for d in dims:
        at = len(order)
        while at and not _is_multiple(x.stride[order[at - 1]], x.stride[d]):
            if not _is_multiple(x.stride[d], x.stride[order[at - 1]]):
                return None
            at -= 1
        order.insert(at, d)
    return order


def with_strides(result: torch.Tensor, stride: Row) -> torch.Tensor:
    """The result with other strides; nothing is copied if only dimensions of size 1 differ."""
    pairs = list(zip(result.shape, result.stride(), stride, strict=True))
    if all(_is_same(old, new) for _, old, new in pairs):
        return result
    if all(_is_one(n) or _is_same(old, new) for n, old, new in pairs):
        return result.as_strided(result.shape, stride)
    return torch.ops.aten.copy(result.new_empty_strided(result.shape, stride), result)
