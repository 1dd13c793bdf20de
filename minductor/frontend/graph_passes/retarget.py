"""Moves a graph that was traced without a GPU to one, so that GPU code can be compiled and read on any machine.

Takes a captured Graph and the name of a device. Gives the Graph with that device in place of the CPU, of "meta" and of
other devices of its kind, in metadata and in arguments, and with the GPU's operators in place of operators that only
the CPU has. Refuses nothing: an operator without a counterpart stays.

Sizes stay as they were traced, also those of statistics that a GPU's operator would pad.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from minductor.frontend.capture.argument_trees import map_leaves
from minductor.frontend.capture.captured_graph import Arg, Graph, LiftedConstant, Meta, Node, NodeRef, TensorMeta
from minductor.frontend.graph_passes.gpu_attention import GPU_OPERATORS, Call, item_as_traced
from minductor.ir.program.nodes import Token

CPU, META = "cpu", "meta"
M = TypeVar("M")


def retarget(graph: Graph, device: str) -> Graph:
    """The same graph on `device`, e.g. "cuda:0"; "cuda" is the GPU that is current at the call."""
    nodes: list[Node] = []
    taken = frozenset(node.args for node in graph.nodes if node.op == "getitem")
    metas: dict[str, Meta] = {given.name: _on_device(given.meta, device) for given in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        args, kwargs = map_leaves(lambda arg: _argument_on_device(arg, device), (node.args, node.kwargs))
        meta = map_leaves(lambda leaf: _on_device(leaf, device), node.meta)
        moved = replace(node, args=args, kwargs=kwargs, meta=meta)
        nodes += _on_gpu(moved, device, taken, metas)
        metas[node.name] = nodes[-1].meta
    return replace(
        graph,
        inputs=tuple(replace(given, meta=_on_device(given.meta, device)) for given in graph.inputs),
        constants=tuple(LiftedConstant(c.name, _on_device(c.meta, device)) for c in graph.constants),
        nodes=tuple(nodes),
        regions=tuple(replace(region, graph=retarget(region.graph, device)) for region in graph.regions),
    )


def _on_gpu(node: Node, device: str, taken: frozenset[tuple[Arg, ...]], metas: dict[str, Meta]) -> tuple[Node, ...]:
    """The nodes that compute on the GPU what one computes on the CPU. The last one has its name."""
    if (rewrite := GPU_OPERATORS.get(node.op)) is not None:
        return rewrite(Call(node, device, taken, metas))
    of = node.args[0] if node.op == "getitem" else None
    return item_as_traced(node, metas[of.name]) if isinstance(of, NodeRef) and of.name in metas else (node,)


def _on_device(meta: M, device: str) -> M:
    return replace(meta, device=device) if isinstance(meta, TensorMeta) and _moves(meta.device, device) else meta


def _argument_on_device(arg: Arg, device: str) -> Arg:
    is_moved = isinstance(arg, Token) and arg.kind == "device" and _moves(arg.name, device)
    return Token("device", device) if is_moved else arg


def _moves(here: str, device: str) -> bool:
    return here in (CPU, META) or here.partition(":")[0] == device.partition(":")[0]
