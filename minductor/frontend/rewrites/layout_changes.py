"""Follows a change of strides through a torch.fx graph, and ends it where it would be seen.

Takes a graph in which a value was replaced by an equal one with other strides, or in other memory. Gives the graph with
right traced values: what reads the value is traced again. Where a node cannot read the new strides (a `view`, an
operator with a graph, a call that would give a view in place of a copy), and where the value reaches the caller, a copy
with the old strides is put in front. Refuses (a reason) what cannot be copied so, and results that would share memory
which they did not share before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from minductor.frontend.capture.schemas import KNOWN_NAMESPACES
from minductor.frontend.rewrites.graph_changes import GraphChanges
from minductor.frontend.rewrites.graph_modes import Modes
from minductor.frontend.rewrites.operator_calls import writes_memory
from minductor.frontend.rewrites.traced_values import traced
from minductor.frontend.rewrites.value_layouts import difference, has_same_layout, storage, storages

aten = torch.ops.aten


@dataclass(slots=True)
class LayoutChanges:
    """The nodes of a graph whose values have other strides or lie in other memory than before.

    `changes` does what this class does to the graph; `modes` has the modes of nodes that differ from `around`.
    """

    graph: fx.Graph
    changes: GraphChanges
    modes: Mapping[fx.Node, Modes]
    around: Modes
    before: dict[fx.Node, Any] = field(default_factory=dict[fx.Node, Any])  # node -> the value that it had
    copies: dict[fx.Node, fx.Node] = field(default_factory=dict[fx.Node, fx.Node])

    def note(self, node: fx.Node, old: Any) -> None:
        """Notes that the value of `node` took the place of `old`."""
        self.before[node] = old

    def follow(self) -> str:
        """Traces again what reads the changed values. Returns the reason why that cannot be, "" if it can."""
        changed = [node for node, old in self.before.items() if not _is_in_place(old, self._value(node))]
        if not changed:
            return ""
        shared = _sharing(self.before.get(node, self._value(node)) for node in self._results())
        readers = [user for node in changed for user in node.users]
        heapq.heapify(readers)  # in the order of the graph
        last: fx.Node | None = None
        while readers:
            node = heapq.heappop(readers)
            if node is last:
                continue
            last = node
            if why := self._visit(node):
                return why
            if node in self.before:
                for user in node.users:
                    heapq.heappush(readers, user)
        if _sharing(self._value(node) for node in self._results()) != shared:
            return "results would share memory that they did not share before"
        return ""

    def _value(self, node: fx.Node) -> Any:
        return node.meta.get(self.changes.value_key)

    def _has_moved(self, node: fx.Node) -> bool:
        """Whether a node's value has another layout than before."""
        return node in self.before and not has_same_layout(self.before[node], self._value(node))

    def _visit(self, node: fx.Node) -> str:
        """Traces one node again, or lets it read copies with the old strides."""
        old = self._value(node)
        if writes_memory(node) and any(map(self._has_moved, _written(node))):
            return f"{node.name} writes to memory that would have other strides"
        if old is None or writes_memory(node) or _wants_strides(node):
            return self._restore(node)
        try:
            new = traced(node, self.changes.value_key, self.modes.get(node, self.around).autocast)
        except Exception:  # such as a view that the new strides do not allow
            return self._restore(node)
        was, now = self._shares_before(node), _shares(new, map(self._value, node.all_input_nodes))
        if was != now or difference(old, new, keeps_strides=False):
            return self._restore(node)
        if any(now) or not has_same_layout(old, new):
            self.changes.set_value(node, new)
            self.before[node] = old
        return ""

    def _shares_before(self, node: fx.Node) -> list[bool]:
        """For each input of a node, whether the node's value shared its memory before anything was replaced."""
        inputs = [self.before.get(given, self._value(given)) for given in node.all_input_nodes]
        return _shares(self.before.get(node, self._value(node)), inputs)

    def _restore(self, node: fx.Node) -> str:
        """Lets a node read copies with the old strides in place of changed values."""
        is_view = node.op != "output" and any(self._shares_before(node))
        for given in filter(self._has_moved, node.all_input_nodes):
            if given not in self.copies and (why := self._copy(given)):
                return why
            self.changes.replace_input(node, given, self.copies[given])
            self.before[self.copies[given]] = self.before[given]
        if is_view and not writes_memory(node):
            self.before[node] = self._value(node)
            self.changes.set_value(
                node, traced(node, self.changes.value_key, self.modes.get(node, self.around).autocast)
            )
        return ""

    def _copy(self, node: fx.Node) -> str:
        """Adds a copy of a value with its old strides behind the node; a reason if there is no such copy."""
        old = self.before[node]
        refusal = f"no copy has the strides of {node.name}"
        if not isinstance(old, torch.Tensor):
            return f"{node.name} gives several values, of which a node needs the old strides"
        made, following = node, node.next
        for target, args, kwargs in _copying(old):
            if target is aten.as_strided.default and not _differ_in_single_elements(self._value(made), *args):
                return refusal
            with self.graph.inserting_before(following):
                copy = self.graph.call_function(target, (made, *args), kwargs)
            self.changes.add(copy)
            lost = (self.changes.value_key, "tensor_meta", "unbacked_bindings")
            copy.meta = {name: value for name, value in node.meta.items() if name not in lost}
            try:
                copy.meta[self.changes.value_key] = traced(copy, self.changes.value_key)
            except RuntimeError:  # strides with gaps
                return refusal
            made = copy
        self.copies[node] = made
        return "" if has_same_layout(old, self._value(made)) else refusal

    def _results(self) -> Sequence[fx.Node]:
        return self.graph.output_node().all_input_nodes


def _copying(value: torch.Tensor) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Calls, each of the value of the one before, that copy a tensor to the strides of `value`, if calls can.

    Target, arguments behind the first, and arguments by name. An expanded dimension is copied once.
    """
    order = _memory_order(value)
    back = [order.index(d) for d in range(len(order))]
    is_permuted = order != sorted(order)
    expanded = [d for d in range(value.dim()) if type(value.stride(d)) is int and value.stride(d) == 0]
    calls: list[Any] = [(aten.slice.Tensor, (d, 0, 1), {}) for d in expanded]
    calls += [(aten.permute.default, (order,), {})] if is_permuted else []
    calls.append((aten.clone.default, (), {"memory_format": torch.contiguous_format}))
    calls += [(aten.permute.default, (back,), {})] if is_permuted else []
    if _is_static(value):
        sizes = [1 if d in expanded else n for d, n in enumerate(value.shape)]
        if 1 in sizes:  # no permutation decides the stride of such a dimension
            calls.append((aten.as_strided.default, (sizes, list(value.stride())), {}))
        if sizes != list(value.shape):
            calls.append((aten.expand.default, (list(value.shape),), {}))
    return calls


def _differ_in_single_elements(value: torch.Tensor, sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor has these strides but for dimensions of one element."""
    return all(n == 1 or value.stride(d) == strides[d] for d, n in enumerate(sizes))


def _memory_order(value: torch.Tensor) -> list[int]:
    """The dimensions in the order of their strides, the largest first; symbolic strides by their size hints."""
    strides = [n if isinstance(n, int) else n.node.hint for n in value.stride()]
    if None in strides:  # a size that data decide has no hint
        return list(range(value.dim()))
    return sorted(range(value.dim()), key=lambda d: -strides[d])


def _is_static(value: torch.Tensor) -> bool:
    """Whether all sizes and strides are numbers."""
    return all(type(n) is int for n in (*value.shape, *value.stride()))


def _is_in_place(old: Any, new: Any) -> bool:
    """Whether a value has the layout and the memory of the old one, so that nothing has to follow."""
    return storages(old) == storages(new) and has_same_layout(old, new)


def _written(node: fx.Node) -> Sequence[fx.Node]:
    """The inputs of a node that writes which it may write: those that its schema names, else all."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.all_input_nodes
    schema = node.target._schema.arguments
    given = dict(zip((argument.name for argument in schema), node.args, strict=False)) | dict(node.kwargs)
    named = [given.get(each.name) for each in schema if each.alias_info is not None and each.alias_info.is_write]
    return [each for each in tree_leaves(named) if isinstance(each, fx.Node)]


def _wants_strides(node: fx.Node) -> bool:
    """Whether a node is not traced again: it is the output, takes strides for granted, or data decide its sizes."""
    if isinstance(node.target, torch._ops.OpOverload) and not str(node.target).startswith(KNOWN_NAMESPACES):
        return True  # another library's operator may take strides for granted
    return node.op in ("output", "call_module") or bool(node.meta.get("unbacked_bindings"))


def _shares(value: Any, inputs: Iterable[Any]) -> list[bool]:
    """For each input, whether a value shares its memory."""
    own = {each for each in storages(value) if each is not None}
    return [not own.isdisjoint(storages(given)) for given in inputs]


def _sharing(values: Any) -> list[int]:
    """For each value, the number of the first value that shares its memory."""
    kept = [storage(value) for value in values]
    return [kept.index(each) if each is not None else -1 for each in kept]
