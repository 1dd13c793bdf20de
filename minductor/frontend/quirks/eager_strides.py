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

Row: TypeAlias = "tuple[int, ...]"  # of numbers and of torch's symbols


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
# the same, but a first argument that is contiguous in either memory format keeps its format
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
# Fourier transforms stay calls: the call's result has eager's strides, only the trace has others
FOURIER_TRANSFORMS = frozenset({"aten._fft_c2c.default", "aten._fft_c2r.default", "aten._fft_r2c.default"})
# pointwise operators that eager computes by several others
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
_OPERAND_NAMES = frozenset({"self", "other", "x", "n"})  # names of parameters whose number is an argument like a tensor
_FLOATS_OF_16_BITS = frozenset({torch.float16, torch.bfloat16})
_COMPLEX_OF_REALS = frozenset({"aten.complex.default", "aten.polar.default"})  # complex results of real numbers
_CONDITIONS = frozenset({"condition", "mask"})  # and of those that are not cast to the others' dtype


class Layout(NamedTuple):
    """Of one argument.

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
        """Whether the elements fill their memory, and no two elements share a place."""
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
        """Its strides among arguments that broadcast to `size`."""
        new = len(size) - len(self.size)
        own = zip(self.size, self.stride, size[new:], strict=True)
        return (0,) * new + tuple(0 if _is_one(n) and not _is_one(whole) else s for n, s, whole in own)

    def copy_strides(self) -> Row | None:
        """The strides of a copy."""
        return self.stride if self.is_dense else dense_strides(self.size, [self.stride])


def dense_strides(size: Row, strides: Sequence[Row]) -> Row | None:
    """Without gaps, the dimensions in the order of the first strides that tell two apart; else as they stand.

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
    found = [0] * len(size)
    step = 1
    for d in inner_first:
        found[d] = step
        step *= size[d]
    return tuple(found)


def _channels_last(rank: int) -> Sequence[int]:
    return (1, *range(rank - 1, 1, -1), 0)


def _compare(size: Row, strides: Sequence[Row], a: int, b: int) -> int | None:
    """-1 if dimension a is inside of b, 1 if it is outside, 0 if no stride tells, None if it depends on symbols."""
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
    """Whether a is known to be as large as b; strides that are products of symbols are compared as multiples."""
    return _is_known(a >= b) or _is_known(a % b == 0)


def _is_more(a: Any, b: Any) -> bool:
    """Whether a is known to be greater than b; strides may be products of symbols."""
    return _is_known(a > b) or (not _is_zero(b) and _is_known(a % b == 0) and _is_known(a // b > 1))


def _is_one(n: Any) -> bool:
    return type(n) is int and n == 1


def _is_zero(n: Any) -> bool:
    return type(n) is int and n == 0


def _is_known(fact: Any) -> bool:
    """Whether it holds whatever the symbols are; it adds no guard."""
    if isinstance(fact, bool):
        return fact
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(fact)


def broadcast_result_strides(given: Sequence[Layout], size: Row) -> Row | None:
    """The strides of a result of that size; a number among the arguments is a layout without dimensions."""
    if all(len(g.size) == len(size) and all(map(_is_same, g.size, size)) for g in given):
        if all(g.is_contiguous for g in given):
            return dense_strides(size, ())
        if all(g.is_channels_last for g in given):
            return _strides_in_order(size, _channels_last(len(size)))
        first, *others = given
        if first.is_dense and all(all(map(_is_same, g.stride, first.stride)) for g in others):
            return first.stride
    return dense_strides(size, [g.broadcast_strides(size) for g in given])


def _is_number(n: Any) -> bool:
    """Whether it is one, or a symbol that has become one."""
    return type(n) is int or n.node.maybe_as_int() is not None


def _is_same(a: Any, b: Any) -> bool:
    return _is_known(a == b)


def layout_of(x: torch.Tensor) -> Layout:
    return Layout(tuple(x.shape), x.stride())


def is_ambiguous(op: Any, args: Sequence[Any]) -> bool:
    """Whether torch's formulas may give other strides: to a dimension of size 1, but for a few operators.

    They take floats of 16 bits through float32, by a copy in which an expanded dimension has a place.
    """
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if any(x.dtype in _FLOATS_OF_16_BITS and any(map(_is_zero, x.stride())) for x in tensors):
        return True
    return str(op) in WRONG_IN_FAKE_TENSORS or any(_is_one(n) for x in tensors for n in x.shape)


def eager_strides(op: Any, args: Sequence[Any], result: torch.Tensor) -> Row | None:
    """Those that eager gives to the result of a pointwise operator, or of one that is named above."""
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
        found = _index_operands(layout_of(args[0]), args[1])
        return None if found is None else broadcast_result_strides(found, size)
    if name in ROLL:
        return _roll_strides(*args)
    if name in GATED:
        return broadcast_result_strides([Layout(size, args[0].stride())] * 2, size)
    if op is torch.ops.aten.ldexp.Tensor and args[0].is_floating_point() and not args[1].is_floating_point():
        return _ldexp_strides(layout_of(args[0]), layout_of(args[1]), size)
    found = _layouts_of_operands(op, args, result.dtype)
    return None if found is None else broadcast_result_strides(found, size)


def _layouts_of_operands(op: Any, args: Sequence[Any], common: torch.dtype) -> list[Layout] | None:
    """Of the arguments that eager walks along, after it has cast them to one dtype."""
    places = [p.name if str(p.type) in ("Tensor", "Scalar", "number") else "" for p in op._schema.arguments]
    given = [(place, arg) for place, arg in zip(places, args, strict=False) if _is_operand(place, arg)]
    if given and (common == torch.bool or str(op) in _COMPLEX_OF_REALS):
        common = torch.result_type(given[0][1], given[-1][1])
    if str(op) in REVERSED_ARGUMENTS:
        given.reverse()
    found: list[Layout] = []
    for place, arg in given:
        if not isinstance(arg, torch.Tensor):
            found.append(Layout((), ()))
            continue
        own = layout_of(arg)
        if op is torch.ops.aten.ldexp.Tensor and place == "other":
            stride = dense_strides(own.size, ())  # of a power of two
        else:
            stride = own.copy_strides() if arg.dtype != common and place not in _CONDITIONS else own.stride
        if stride is None:
            return None
        found.append(Layout(own.size, stride))
    return found


def _is_operand(place: str, arg: object) -> bool:
    is_number = isinstance(arg, int | float | complex | torch.SymInt | torch.SymFloat)
    return isinstance(arg, torch.Tensor) or (place in _OPERAND_NAMES and is_number)


def _memory_format_strides(x: torch.Tensor, size: Row, *, keeps: bool) -> Row | None:
    """Row-major or with the channels last; a contiguous argument may keep what it is."""
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
    # with symbols only what leaves no doubt
    if len(size) not in (4, 5) or any(_is_more(own.stride[a], own.stride[b]) for a, b in pairwise(channels_last)):
        return dense_strides(size, ())
    is_wide = own.is_channels_last and _is_known(own.size[1] > 1) and any(_is_known(n > 1) for n in own.size[2:])
    if not is_wide:
        return None
    is_nested = all(_is_multiple(own.stride[b], own.size[a] * own.stride[a]) for a, b in pairwise(channels_last))
    return _strides_in_order(size, channels_last) if is_nested else None  # else dimensions of size 1 tell otherwise


def _roll_strides(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Row | None:
    """Along each dimension two parts are concatenated, with the channels last if both suggest that."""
    size, stride = tuple(x.shape), x.stride()
    if not dims:
        return dense_strides(size, ())
    if not all(_is_number(n) for n in (*size, *stride, *shifts)):
        return _memory_format_strides(x, size, keeps=False)
    from torch._prims_common import are_strides_like_channels_last_or_false

    for shift, dim in zip(shifts, dims, strict=True):
        first = shift % size[dim]
        parts = [
            [n if d == dim % len(size) else whole for d, whole in enumerate(size)] for n in (first, size[dim] - first)
        ]
        is_last = all(are_strides_like_channels_last_or_false(part, stride) for part in parts)
        stride = _strides_in_order(size, _channels_last(len(size)) if is_last else range(len(size) - 1, -1, -1))
    return stride


def _ldexp_strides(x: Layout, exponent: Layout, size: Row) -> Row | None:
    """Scaled by powers of two that are integers: in memory like that of x, unless it has to be resized."""
    if len(x.size) == len(size) and all(map(_is_same, x.size, size)):
        return x.copy_strides()
    return broadcast_result_strides([x, exponent], size)


def _index_operands(x: Layout, indices: Sequence[torch.Tensor | None]) -> list[Layout] | None:
    """Of the tensor, and of the indices, as both stand in the result: the indexed dimensions have stride 0.

    Indices that are not side by side come first. None where the number of elements depends on the indices.
    """
    taken = [d for d, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return None
    size = tuple(torch.broadcast_shapes(*(index.shape for index in given)))
    rest = [d for d in range(len(x.size)) if d not in taken]
    first = taken[0] if taken[-1] - taken[0] == len(taken) - 1 else 0
    before, after = rest[:first], rest[first:]

    def around(own: Row, values: Row) -> Row:
        return (*(values[d] for d in before), *own, *(values[d] for d in after))

    found = [Layout(around(size, x.size), around((0,) * len(size), x.stride))]
    ones = around(size, (1,) * len(x.size))
    for index in given:
        stride = view_strides(Layout(size, layout_of(index).broadcast_strides(size)), around(size, (1,) * len(x.size)))
        if stride is None:
            return None
        found.append(Layout(ones, stride))
    return found


def view_strides(x: Layout, size: Row) -> Row | None:
    """The strides of a view of that size: for a dimension of size 1 that of the next outer element of those within it.

    >>> view_strides(Layout((3, 1), (1, 7)), (1, 3, 1)), view_strides(Layout((4, 1, 3), (3, 7, 1)), (12,))
    ((3, 1, 7), (1,))
    """
    if any(map(_is_zero, size)):
        return None
    if not x.size:
        return (1,) * len(size)
    found: list[Any] = []
    left = list(size)
    step: Any = x.stride[-1]
    old: Any = 1
    new: Any = 1
    for d in range(len(x.size) - 1, -1, -1):  # what lies without gaps is split and merged as a whole
        old *= x.size[d]
        if d and (_is_known(x.size[d - 1] == 1) or _is_known(x.stride[d - 1] == old * step)):
            continue
        while left and (_is_known(left[-1] == 1) or not _is_known(new == old)):
            found.append(new * step)
            new *= left.pop()
        if not _is_known(new == old):
            return None
        step, old, new = x.stride[d - 1], 1, 1
    return tuple(reversed(found))


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
    if len(dims) > 1:  # the other dimensions first
        stride = _strides_with_inner(own, _outer_first(own, dims[:-1]), own.size)
        if stride is None:
            return None
        own = Layout(own.size, stride)
    return _strides_with_inner(own, last, size)


def _strides_with_inner(x: Layout, inner: Sequence[int] | None, size: Row) -> Row | None:
    """With some dimensions inside of the others, which stay in their order.

    Where strides do not tell that, the library's partition does: it fills the places of inner ones from the end.
    """
    if inner is None:
        return None
    count = len(size) - len(inner)
    behind = [d for d in range(count, len(size)) if d not in inner]
    others = _outer_first(x, [behind.pop() if d in inner else d for d in range(count)])
    return None if others is None else _strides_in_order(size, [*reversed(inner), *reversed(others)])


def _outer_first(x: Layout, dims: Sequence[int]) -> Sequence[int] | None:
    """Dimensions by their strides, the largest first; equal ones in the order that is given."""
    found: list[int] = []
    for d in dims:
        at = len(found)
        while at and not _is_multiple(x.stride[found[at - 1]], x.stride[d]):
            if not _is_multiple(x.stride[d], x.stride[found[at - 1]]):
                return None
            at -= 1
        found.insert(at, d)
    return found


def with_strides(result: torch.Tensor, stride: Row) -> torch.Tensor:
    """The result with other strides; nothing is copied if only dimensions of size 1 differ."""
    pairs = list(zip(result.shape, result.stride(), stride, strict=True))
    if all(_is_same(old, new) for _, old, new in pairs):
        return result
    if all(_is_one(n) or _is_same(old, new) for n, old, new in pairs):
        return result.as_strided(result.shape, stride)
    return torch.ops.aten.copy(result.new_empty_strided(result.shape, stride), result)
