"""Follows a change of strides through a torch.fx graph, and ends it where it would be seen.

Takes a graph in which a value was replaced by an equal one with other strides. Gives the graph with right strides: what
reads the value is traced again. Where a node cannot read the new strides (a `view`, an operator with a
graph), and where the value reaches the caller, a copy with the old strides is put in front. Refuses (a reason) what
cannot be copied so, and results that would share memory which they did not share before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from minductor.frontend.rewrites.operator_calls import writes_memory
from minductor.frontend.rewrites.traced_values import traced


def layout(value: torch.Tensor) -> tuple[Any, ...]:
    """Dtype, sizes, device and strides of a traced tensor."""
    return value.dtype, tuple(value.shape), value.device, tuple(value.stride())


def storage(value: object) -> int | None:
    """The identity of a traced tensor's memory; None for what is no tensor."""
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


@dataclass(slots=True)
class LayoutChanges:
    """The nodes of a graph whose values have other strides than before. `autocast` is as in `Site`, by node."""

    graph: fx.Graph
    value_key: str
    autocast: Mapping[fx.Node, tuple[tuple[Any, ...], ...]]
    before: dict[fx.Node, Any] = field(default_factory=dict[fx.Node, Any])  # node -> the value that it had
    copies: dict[fx.Node, fx.Node] = field(default_factory=dict[fx.Node, fx.Node])

    def note(self, node: fx.Node, old: Any) -> None:
        """Notes that the value of `node` took the place of `old`."""
        self.before[node] = old

    def follow(self) -> str:
        """Traces again what reads the changed values. Returns the reason why that cannot be, "" if it can."""
        changed = {node for node, old in self.before.items() if not _is_same(old, node.meta[self.value_key])}
        if not changed:
            return ""
        node = min(changed).next
        shared = _sharing(self._results())
        while node.op != "root":
            following = node.next
            if any(given in self.before for given in node.all_input_nodes) and (why := self._visit(node)):
                return why
            node = following
        if _sharing(self._results()) != shared:
            return "results would share memory that they did not share before"
        return ""

    def _visit(self, node: fx.Node) -> str:
        """Traces one node again, or lets it read copies with the old strides."""
        if node.op == "output" or node.op == "call_module" or writes_memory(node) or self.value_key not in node.meta:
            return self._restore(node)
        old = node.meta[self.value_key]
        try:
            new = traced(node, self.value_key, self.autocast.get(node, ()))
        except Exception:  # such as a view that the new strides do not allow
            return self._restore(node)
        if not _has_same_sizes(old, new):
            return self._restore(node)
        inputs = {storage(given.meta.get(self.value_key)) for given in node.all_input_nodes}
        if _is_same(old, new) and not any(storage(leaf) in inputs for leaf in tree_leaves(new)):
            return ""
        node.meta[self.value_key] = new
        node.meta.pop("tensor_meta", None)
        self.before[node] = old
        return ""

    def _restore(self, node: fx.Node) -> str:
        """Lets a node read copies with the old strides in place of changed values."""
        for given in node.all_input_nodes:
            if given not in self.before or _is_same(self.before[given], given.meta[self.value_key]):
                continue
            if given not in self.copies:
                if (why := self._copy(given)) != "":
                    return why
            node.replace_input_with(given, self.copies[given])
        return ""

    def _copy(self, node: fx.Node) -> str:
        """Adds a copy of a value with its old strides behind the node; a reason if there is no such copy."""
        old = self.before[node]
        if not isinstance(old, torch.Tensor):
            return f"{node.name} gives several values, of which a node needs the old strides"
        order = _memory_order(old)
        if order is None:
            return f"no copy has the strides of {node.name}"
        back = [order.index(d) for d in range(len(order))]
        is_permuted = order != sorted(order)
        made = node
        following = node.next
        aten = torch.ops.aten
        calls: list[Any] = [(aten.permute.default, (order,), {})] if is_permuted else []
        calls.append((aten.clone.default, (), {"memory_format": torch.contiguous_format}))
        calls += [(aten.permute.default, (back,), {})] if is_permuted else []
        if _is_static(old) and any(n == 1 for n in old.shape):  # whose strides no permutation decides
            calls.append((aten.as_strided.default, (list(old.shape), list(old.stride())), {}))
        for target, args, kwargs in calls:
            with self.graph.inserting_before(following):
                copy = self.graph.call_function(target, (made, *args), kwargs)
            copy.meta = {
                name: value for name, value in node.meta.items() if name not in (self.value_key, "tensor_meta")
            }
            copy.meta[self.value_key] = traced(copy, self.value_key)
            made = copy
        self.copies[node] = made
        return "" if _is_same(old, made.meta[self.value_key]) else f"no copy has the strides of {node.name}"

    def _results(self) -> Sequence[Any]:
        return [node.meta.get(self.value_key) for node in self.graph.output_node().all_input_nodes]


def _is_same(old: Any, new: Any) -> bool:
    """Whether two traced values have equal layouts."""
    a, b = tree_leaves(old), tree_leaves(new)
    return len(a) == len(b) and all(
        layout(x) == layout(y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else type(x) is type(y)
        for x, y in zip(a, b, strict=True)
    )


def _has_same_sizes(old: Any, new: Any) -> bool:
    """Whether two traced values are equal but for strides."""
    a, b = tree_leaves(old), tree_leaves(new)
    return len(a) == len(b) and all(
        layout(x)[:3] == layout(y)[:3]
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
        else type(x) is type(y)
        for x, y in zip(a, b, strict=True)
    )


def _memory_order(value: torch.Tensor) -> list[int] | None:
    """The dimensions in the order of their strides, the largest first; None if that is not known.

    Strides that vary are ordered as for the example inputs, which `_copy` checks.
    """
    strides = [n.node.hint if isinstance(n, torch.SymInt) else n for n in value.stride()]
    if None in strides:
        return list(range(value.dim())) if value.is_contiguous() else None
    return sorted(range(value.dim()), key=lambda d: -strides[d])


def _is_static(value: torch.Tensor) -> bool:
    """Whether all sizes and strides are numbers."""
    return all(type(n) is int for n in (*value.shape, *value.stride()))


def _sharing(values: Sequence[Any]) -> list[int]:
    """For each value, the number of the first value that shares its memory."""
    kept = [storage(value) for value in values]
    return [kept.index(each) if each is not None else -1 for each in kept]
