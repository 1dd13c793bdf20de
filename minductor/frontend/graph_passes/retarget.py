"""Moves a graph that was traced without a GPU to one, so that GPU code can be compiled and read on any machine.

Takes a captured Graph and the name of a device. Gives the Graph with that device in place of the CPU, of "meta" and of
other devices of its kind, in metadata and in arguments, and with the GPU's operators in place of operators that only
the CPU has. Refuses nothing: an operator without a counterpart stays.

Sizes stay as they were traced, also those of statistics that a GPU's operator would pad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from minductor.core.dtypes import I64
from minductor.frontend.capture.argument_trees import map_leaves
from minductor.frontend.capture.captured_graph import Arg, Graph, LiftedConstant, Meta, Node, NodeRef, TensorMeta
from minductor.ir.program.nodes import Token

CPU, META = "cpu", "meta"
M = TypeVar("M")
Items = frozenset[tuple[Arg, ...]]  # arguments of `getitem` nodes: a node and the number of its result


def retarget(graph: Graph, device: str) -> Graph:
    """The same graph on `device`, e.g. "cuda:0"; "cuda" is the GPU that is current at the call."""
    nodes: list[Node] = []
    taken = frozenset(node.args for node in graph.nodes if node.op == "getitem")
    for node in graph.nodes:
        args, kwargs = map_leaves(lambda arg: _argument_on_device(arg, device), (node.args, node.kwargs))
        meta = map_leaves(lambda leaf: _on_device(leaf, device), node.meta)
        moved = replace(node, args=args, kwargs=kwargs, meta=meta)
        rewrite = GPU_OPERATORS.get(node.op)
        nodes += (moved,) if rewrite is None else rewrite(moved, device, taken)
    return replace(
        graph,
        inputs=tuple(replace(given, meta=_on_device(given.meta, device)) for given in graph.inputs),
        constants=tuple(LiftedConstant(c.name, _on_device(c.meta, device)) for c in graph.constants),
        nodes=tuple(nodes),
        regions=tuple(replace(region, graph=retarget(region.graph, device)) for region in graph.regions),
    )


def _on_device(meta: M, device: str) -> M:
    return replace(meta, device=device) if isinstance(meta, TensorMeta) and _moves(meta.device, device) else meta


def _argument_on_device(arg: Arg, device: str) -> Arg:
    is_moved = isinstance(arg, Token) and arg.kind == "device" and _moves(arg.name, device)
    return Token("device", device) if is_moved else arg


def _moves(here: str, device: str) -> bool:
    return here in (CPU, META) or here.partition(":")[0] == device.partition(":")[0]


# --- attention ----------------------------------------------------------------------------------------------------

FLASH, EFFICIENT = "aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_efficient_attention"
HALF = ("f16", "bf16")


def _is_flash(like: Meta, mask: Arg) -> bool:
    """Whether torch uses its flash kernels, which take 16-bit floats and no mask."""
    return mask is None and isinstance(like, TensorMeta) and like.dtype.name in HALF


def _attention(node: Node, device: str, taken: Items) -> tuple[Node, ...]:
    """The GPU's attention operator. It computes the rows' log-sum-exp only if a backward reads it, as in eager."""
    del device
    assert isinstance(node.meta, tuple)
    named = dict(node.kwargs)
    mask, scale = named.get("attn_mask"), (("scale", named.get("scale")),)
    dropout, causal = (*node.args[3:], 0.0, False)[:2] if len(node.args) < 5 else node.args[3:5]
    if _is_flash(node.meta[0], mask):
        args, unused = (*node.args[:3], dropout, causal), (None, None, 0, 0, None, None, None)
        return (replace(node, op=f"{FLASH}.default", args=args, kwargs=scale, meta=(*node.meta[:2], *unused)),)
    out, statistics = node.meta[:2]
    is_kept = (NodeRef(node.name), 1) in taken
    if not is_kept and isinstance(statistics, TensorMeta):
        batch, heads = statistics.size[:2]
        statistics = replace(statistics, size=(batch, heads, 0), stride=(heads, 1, 1))
    args = (*node.args[:3], mask, is_kept, dropout, causal)
    return (replace(node, op=f"{EFFICIENT}.default", args=args, kwargs=scale, meta=(out, statistics, None, None)),)


def _attention_backward(node: Node, device: str, taken: Items) -> tuple[Node, ...]:
    """The GPU's attention backward. It takes the generator's state, which it does not read without dropout: an empty
    tensor stands for the state.
    """
    del taken
    assert isinstance(node.meta, tuple)
    named = dict(node.kwargs)
    mask, scale = named.get("attn_mask"), (("scale", named.get("scale")),)
    state = f"{node.name}_state"
    made = Node(
        state,
        "aten.empty.memory_format",
        ((),),
        (("dtype", I64), ("device", Token("device", device))),
        TensorMeta(I64, (), (), 0, device),
    )
    given, (dropout, causal) = node.args[:6], node.args[6:8]
    if _is_flash(node.meta[0], mask):
        query, key = node.meta[0], node.meta[1]
        assert isinstance(query, TensorMeta) and isinstance(key, TensorMeta)
        ends = (None, None, query.size[2], key.size[2], dropout, causal, NodeRef(state), NodeRef(state))
        return made, replace(node, op=f"{FLASH}_backward.default", args=(*given, *ends), kwargs=scale)
    gradient, query, key, value, out, statistics = given
    args = (gradient, query, key, value, mask, out, statistics, NodeRef(state), NodeRef(state), dropout)
    wanted = (True, True, True, False)
    return made, replace(
        node, op=f"{EFFICIENT}_backward.default", args=(*args, wanted, causal), kwargs=scale, meta=(*node.meta, None)
    )


# operators that only the CPU has -> the nodes that replace them on a GPU
GPU_OPERATORS: Mapping[str, Callable[[Node, str, Items], tuple[Node, ...]]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _attention_backward,
}
