"""Torch's attention for CPUs, as the operators that torch has for it on GPUs.

Takes a node that calls the CPU's operator, moved to a GPU, and what is read of its results. Gives the nodes in its
place. Refuses nothing: attention in float64, which torch computes by products on GPUs, stays the CPU's.

The GPU's operators take what torch makes of a call before it calls them, so that is made here: a mask of the queries'
dtype and of the size of the scores, whose rows begin at multiples of 16 bytes, and heads of a multiple of 16 bytes,
which are filled up with zeros. Where the result is read (`item_as_traced`), what was filled up is cut off again, and
the result is laid out as on the CPU: as the queries, where the operator without flash has the heads of a row side by
side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from minductor.core.dtypes import I64, DType
from minductor.frontend.capture.captured_graph import Arg, Meta, Node, NodeRef, Size, TensorMeta
from minductor.ir.program.nodes import Token

FLASH, EFFICIENT = "aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_efficient_attention"
HALF = ("f16", "bf16")
ALIGNMENT, WIDEST_FLASH = 16, 256  # bytes, and elements of a head
Items = frozenset[tuple[Arg, ...]]  # arguments of `getitem` nodes: a node and the number of its result
Metas = Mapping[str, Meta]


@dataclass(frozen=True, slots=True)
class Call:
    """A node to replace. `metas`: of the graph's tensors on the GPU, by name. `taken`: the items that are read."""

    node: Node
    device: str
    taken: Items
    metas: Metas


@dataclass(slots=True)
class _Nodes:
    """New nodes before the attention, whose names begin with its own."""

    name: str
    made: list[Node] = field(default_factory=list[Node])

    def add(self, part: str, op: str, args: tuple[Arg, ...], meta: TensorMeta, **kwargs: Arg) -> NodeRef:
        node = Node(f"{self.name}_{part}", op, args, tuple(kwargs.items()), meta)
        self.made.append(node)
        return NodeRef(node.name)


def _contiguous(like: TensorMeta, size: tuple[Size, ...]) -> TensorMeta:
    stride: list[Size] = [1]
    for length in reversed(size[1:]):
        stride.insert(0, stride[0] * length)
    return replace(like, size=size, stride=tuple(stride), offset=0)


def _is_flash(like: TensorMeta, mask: Arg) -> bool:
    """Whether torch uses its flash kernels, which take 16-bit floats and no mask."""
    width = like.size[-1]
    return mask is None and like.dtype.name in HALF and isinstance(width, int) and width <= WIDEST_FLASH


def _lacking(length: Size, dtype: DType) -> Size:
    """How many elements a row lacks to a multiple of 16 bytes."""
    return -length % (ALIGNMENT // dtype.itemsize)


def attention(call: Call) -> tuple[Node, ...]:
    """The GPU's attention operator. It computes the rows' log-sum-exp only if a backward reads it, as in eager."""
    node, named = call.node, dict(call.node.kwargs)
    assert isinstance(node.meta, tuple)
    out, statistics = node.meta[:2]
    assert isinstance(out, TensorMeta)
    if out.dtype.name == "f64":
        return (node,)
    query, key, value = (_tensor(call, arg) for arg in node.args[:3])
    mask, made = named.get("attn_mask"), _Nodes(node.name)
    scale = (("scale", _scale(named.get("scale"), query.size[-1], query.dtype)),)
    dropout, causal = (*node.args[3:], 0.0, False)[:2] if len(node.args) < 5 else node.args[3:5]
    heads = tuple(_filled_up(made, arg, _tensor(call, arg), part) for arg, part in zip(node.args, "qkv", strict=False))
    width = out.size[-1] + _lacking(out.size[-1], out.dtype)
    if _is_flash(replace(out, size=(*out.size[:3], width)), mask):
        out = out if width == out.size[-1] else _contiguous(out, (*out.size[:3], width))  # as the queries
        unused = (None, None, 0, 0, None, None, None)
        ours = replace(
            node,
            op=f"{FLASH}.default",
            args=(*heads, dropout, causal),
            kwargs=scale,
            meta=(out, statistics, *unused),
        )
        return *made.made, ours
    out = _side_by_side(out, width)
    is_kept = (NodeRef(node.name), 1) in call.taken
    if not is_kept and isinstance(statistics, TensorMeta):
        batch, count = statistics.size[:2]
        statistics = replace(statistics, size=(batch, count, 0), stride=(count, 1, 1))
    if isinstance(mask, NodeRef):
        mask = _whole_mask(made, mask, _tensor(call, mask), (*query.size[:3], key.size[2]), value.dtype)
    args = (*heads, mask, is_kept, dropout, causal)
    return *made.made, replace(
        node, op=f"{EFFICIENT}.default", args=args, kwargs=scale, meta=(out, statistics, None, None)
    )


def _tensor(call: Call, arg: Arg) -> TensorMeta:
    assert isinstance(arg, NodeRef)
    found = call.metas[arg.name]
    assert isinstance(found, TensorMeta)
    return found


def _scale(given: Arg, width: Size, dtype: DType) -> Arg:
    """The factor of the scores, which is that of the width of a head before it is filled up."""
    if given is None and isinstance(width, int) and _lacking(width, dtype) != 0:
        return width**-0.5
    return given


def _filled_up(made: _Nodes, arg: Arg, meta: TensorMeta, part: str) -> Arg:
    """Heads that are a multiple of 16 bytes wide."""
    lacks = _lacking(meta.size[-1], meta.dtype)
    if lacks == 0:
        return arg
    wide = _contiguous(meta, (*meta.size[:-1], meta.size[-1] + lacks))
    return made.add(part, "aten.constant_pad_nd.default", (arg, (0, lacks), 0.0), wide)


def _side_by_side(out: TensorMeta, width: Size) -> TensorMeta:
    """A result of size (batch, heads, rows, width), where the heads of a row lie side by side."""
    batch, heads, rows = out.size[:3]
    return replace(out, size=(batch, heads, rows, width), stride=(rows * heads * width, width, heads * width, 1))


def _whole_mask(made: _Nodes, mask: Arg, meta: TensorMeta, size: tuple[Size, ...], dtype: DType) -> Arg:
    """A mask of the size of the scores and of the queries' dtype, whose rows begin at multiples of 16 bytes."""
    if meta.dtype != dtype:
        meta = replace(_contiguous(meta, meta.size), dtype=dtype)
        mask = made.add("mask_cast", "aten._to_copy.default", (mask,), meta, dtype=dtype)
    rows = tuple(zip(meta.size[:-1], meta.stride[:-1], strict=True))
    starts = (meta.offset, *(stride for length, stride in rows if length != 1))
    is_aligned = all(_lacking(start, dtype) == 0 for start in starts)
    if meta.size[-1] != size[-1] or meta.stride[-1] != 1 or not is_aligned:
        one_row = (*meta.size[:-1], size[-1])
        if meta.size[-1] != size[-1]:
            meta = replace(meta, size=one_row, stride=(*meta.stride[:-1], 0))
            mask = made.add("mask_row", "aten.expand.default", (mask, one_row), meta)
        lacks = _lacking(size[-1], dtype)
        meta = _contiguous(meta, (*one_row[:-1], size[-1] + lacks))
        mask = made.add("mask_wide", "aten.constant_pad_nd.default", (mask, (0, lacks), 0.0), meta)
        meta = replace(meta, size=one_row)
        args = (mask, len(one_row) - 1, 0, size[-1])
        mask = made.add("mask_cut", "aten.slice.Tensor", args, meta)
    if meta.size == size:
        return mask
    more: tuple[Size, ...] = (0,) * (len(size) - len(meta.size))
    pairs = zip((*more, *meta.stride), (*more, *meta.size), size, strict=True)
    stride = tuple(0 if has != whole else step for step, has, whole in pairs)
    return made.add("mask", "aten.expand.default", (mask, size), replace(meta, size=size, stride=stride))


def item_as_traced(item: Node, produced: Meta) -> tuple[Node, ...]:
    """A `getitem` node of a result that is wider than it was traced, or lies otherwise: cut, and copied."""
    number = item.args[1]
    assert isinstance(produced, tuple) and isinstance(number, int)
    wide, wanted = produced[number], item.meta
    if not isinstance(wide, TensorMeta) or not isinstance(wanted, TensorMeta) or _lie_alike(wide, wanted):
        return (item,)
    made = _Nodes(item.name)
    part = made.add("whole", item.op, item.args, wide)
    if wide.size != wanted.size:
        cut = replace(wide, size=wanted.size)
        part = made.add("cut", "aten.slice.Tensor", (part, len(cut.size) - 1, 0, wanted.size[-1]), cut)
    return *made.made, replace(item, op="aten.clone.default", args=(part,), kwargs=())


def _lie_alike(one: TensorMeta, other: TensorMeta) -> bool:
    """Whether two tensors have the same size and strides; that of a dimension of one element means nothing."""
    strides = zip(one.size, one.stride, other.stride, strict=True)
    return one.size == other.size and all(size == 1 or a == b for size, a, b in strides)


def attention_backward(call: Call) -> tuple[Node, ...]:
    """The GPU's attention backward. It takes the generator's state, which it does not read without dropout: an empty
    tensor stands for the state.
    """
    node = call.node
    assert isinstance(node.meta, tuple)
    named = dict(node.kwargs)
    mask, scale = named.get("attn_mask"), (("scale", named.get("scale")),)
    state = f"{node.name}_state"
    made = Node(
        state,
        "aten.empty.memory_format",
        ((),),
        (("dtype", I64), ("device", Token("device", call.device))),
        TensorMeta(I64, (), (), 0, call.device),
    )
    given, (dropout, causal) = node.args[:6], node.args[6:8]
    query, key = node.meta[0], node.meta[1]
    assert isinstance(query, TensorMeta) and isinstance(key, TensorMeta)
    if _is_flash(query, mask):
        ends = (None, None, query.size[2], key.size[2], dropout, causal, NodeRef(state), NodeRef(state))
        return made, replace(node, op=f"{FLASH}_backward.default", args=(*given, *ends), kwargs=scale)
    gradient, query_arg, key_arg, value, out, statistics = given
    args = (gradient, query_arg, key_arg, value, mask, out, statistics, NodeRef(state), NodeRef(state), dropout)
    wanted = (True, True, True, False)
    return made, replace(
        node, op=f"{EFFICIENT}_backward.default", args=(*args, wanted, causal), kwargs=scale, meta=(*node.meta, None)
    )


# operators that only the CPU has -> the nodes that replace them on a GPU
GPU_OPERATORS: Mapping[str, Callable[[Call], tuple[Node, ...]]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": attention_backward,
}
