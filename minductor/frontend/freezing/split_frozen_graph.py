"""Cuts an inference graph into what depends on its weights alone and the rest.

Takes an ATen graph and its frozen nodes. Changes the graph into the rest, which takes the computed values as further
inputs behind its own. Gives the other part as a graph module from weights to these values. A view stays where it is,
since it costs nothing, as does a value that is much larger than the weights it comes from, and a converted weight of
one byte an element. So does a result of the graph: the caller may write to it, and gets a new tensor at each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.capture.capture import FOLDED
from minductor.frontend.quirks.torch_versions import input_path
from minductor.frontend.rewrites.folded_sizes import is_too_large, nbytes
from minductor.frontend.rewrites.value_layouts import storage, storages

_UNINITIALISED = ("aten.new_empty", "aten.empty_like")  # calls whose results have no values yet


@dataclass(frozen=True, slots=True)
class Fold:
    """The part of a graph that depends on weights alone.

    Args:
        gm: takes the weights, gives a tuple of the folded values, which is empty if there are none.
        weights: the numbers of the graph's inputs that are weights, and their names for errors.
        count: how many folded values there are; a graph without weights may hold constants.
        nbytes: the bytes of the folded values together; a packed weight counts as a plain one.
    """

    gm: fx.GraphModule
    weights: Mapping[int, str]
    count: int
    nbytes: int


def split_frozen_graph(gm: fx.GraphModule, frozen: set[fx.Node], paths: Sequence[str] = ()) -> Fold:
    """Takes what depends on weights alone out of a graph.

    Args:
        gm: the graph, which is changed in place: each folded value becomes an input behind the others.
        frozen: the weights and the nodes that depend on nothing else.
        paths: for each input of Dynamo's graph, its path in the user's module, for errors.

    Returns:
        The part that computes the folded values, in the order of the new inputs.
    """
    folded = list(_folded_nodes(gm.graph, frozen))
    inputs = gm.graph.find_nodes(op="placeholder")
    weights = {number: input_path(node, paths) for number, node in enumerate(inputs) if node in frozen}
    part = _part(gm, [inputs[number] for number in weights], folded)
    before = inputs[-1].next if inputs else next(iter(gm.graph.nodes))
    for node in folded:
        with gm.graph.inserting_before(before):
            made = gm.graph.placeholder(f"{node.name}_folded")
        made.meta = {**node.meta, FOLDED: True}
        node.replace_all_uses_with(made, propagate_meta=False)
    _erase_unused(gm, frozen)
    return Fold(part, weights, len(folded), sum(nbytes(node) for node in folded))


def fold_held_weights(gm: fx.GraphModule, frozen: set[fx.Node]) -> int:
    """Computes what depends alone on weights that a graph holds; the graph then holds these values.

    Args:
        gm: the graph, which is changed in place, and has no weights among its inputs.
        frozen: the weights and the nodes that depend on nothing else.

    Returns:
        The bytes of the new values.
    """
    folded = list(_folded_nodes(gm.graph, frozen))
    with torch.inference_mode(mode=False), torch.no_grad(), torch._C._DisableAutocast():
        values = _part(gm, (), folded)()
    for node, value in zip(folded, values, strict=True):
        name = f"{node.name}_folded"
        gm.register_buffer(name, value)
        with gm.graph.inserting_before(node):
            made = gm.graph.get_attr(name)
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made, propagate_meta=False)
    _erase_unused(gm, frozen)
    return sum(nbytes(node) for node in folded)


def _erase_unused(gm: fx.GraphModule, frozen: set[fx.Node]) -> None:
    """Erases frozen nodes that nothing reads any more."""
    for node in sorted(frozen, reverse=True):
        if not node.users and node.op != "placeholder":
            gm.graph.erase_node(node)
    gm.recompile()


def _folded_nodes(graph: fx.Graph, frozen: set[fx.Node]) -> Iterator[fx.Node]:
    """The frozen nodes whose values the rest of the graph reads, in order, but for those that stay in the rest."""
    needed = [node for node in graph.nodes if node in frozen and any(user not in frozen for user in node.users)]
    returned = {memory for node in graph.output_node().all_input_nodes for memory in _memory(node)}
    found: set[fx.Node] = set()
    while needed:
        node = needed.pop()
        if node.op in ("placeholder", "get_attr") or node in found:
            continue
        if _stays(node) or storage(node.meta["val"]) in returned:
            needed += node.all_input_nodes
        else:
            found.add(node)
    yield from sorted(found)


def _stays(node: fx.Node) -> bool:
    """Whether a frozen value is computed at each call: it is a view, several values, or too large."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(type(n) is int for n in (*value.shape, *value.stride())):
        return True
    return _is_view(node) or is_too_large(node) or str(node.target).startswith(_UNINITIALISED)


def _is_view(node: fx.Node) -> bool:
    """Whether a value lies in the memory of what it is computed from, as a part of a weight that is split does."""
    is_part = getattr(node.target, "__name__", "") == "getitem"
    sources = node.all_input_nodes[0].all_input_nodes if is_part else node.all_input_nodes
    return any(memory in _memory(source) for source in sources for memory in _memory(node))


def _memory(node: fx.Node) -> set[int]:
    """The identities of the memory of a node's values."""
    return {memory for memory in storages(node.meta.get("val")) if memory is not None}


def _part(gm: fx.GraphModule, weights: Sequence[fx.Node], folded: Sequence[fx.Node]) -> fx.GraphModule:
    """A graph module from the weights to the folded values."""
    needed: set[fx.Node] = set()
    waiting = list(folded)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    graph = fx.Graph()
    copies = {node: graph.node_copy(node) for node in weights}
    for node in gm.graph.nodes:
        if node in needed and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if (strides := _strides(node)) is not None and node.op == "call_function":
                copies[node] = graph.call_function(_with_strides, (copies[node], strides))
    graph.output(tuple(copies[node] for node in folded))
    return fx.GraphModule(gm, graph)


def _strides(node: fx.Node) -> tuple[int, ...] | None:
    """The traced strides of a node's value; None if they are no numbers, or if it is no strided tensor."""
    value: Any = node.meta.get("val")
    if storage(value) is None or not all(type(n) is int for n in value.stride()):
        return None
    return tuple(value.stride())


def _with_strides(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A value with the strides that the rest of the graph was compiled for: those of eager may differ."""
    if value.layout is not torch.strided or value.stride() == strides:
        return value
    made = value.new_empty_strided(value.shape, strides)
    each = tuple(slice(None) if step else slice(1) for step in strides)  # what is expanded has its elements once
    made[each].copy_(value[each])
    return made
