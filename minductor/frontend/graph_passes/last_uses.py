"""The last use of each value of a captured graph, from which `overwriting` decides whether memory can be reused.

Takes a Graph. Gives `LastUses`: for each name the position of its last use, and for each input that the graph itself
overwrites (AOTAutograd ends a graph with `copy_(input, value)`) the position of the overwriting node. Refuses nothing.

The target of `copy_(target, value)` and `copy(target, value)` is not read, and does not count as a use.

>>> from minductor.frontend.capture.captured_graph import GraphInput, TensorMeta
>>> from minductor.core.dtypes import F32
>>> meta = TensorMeta(F32, (4,), (1,), 0, "cpu")
>>> sin = Node("sin", "aten.sin.default", (NodeRef("x"),), (), meta)
>>> done = Node("copy_", "aten.copy_.default", (NodeRef("x"), NodeRef("sin")), (), meta)
>>> lives = LastUses(Graph("inference", (GraphInput("x", meta),), (), (sin, done), (NodeRef("sin"),)))
>>> lives.last["x"], lives.overwritten["x"], lives.last["sin"] == lives.end
(0, 1, True)
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from minductor.frontend.capture.argument_trees import node_names_in
from minductor.frontend.capture.captured_graph import Graph, Node, NodeRef

# operators whose first argument is a pattern or a target, not a value that is read
_WRITES_ONLY = frozenset(("aten.copy_.default", "aten.copy.default"))


class LastUses:
    """Positions are indices into the graph's nodes; position `end` stands for the caller, who uses the outputs."""

    def __init__(self, graph: Graph) -> None:
        self.end = len(graph.nodes)
        self.position: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.overwritten: dict[str, int] = {}
        self.users: dict[str, list[Node]] = {}
        for position, node in enumerate(graph.nodes):
            self.position[node.name] = position
            for name in node_names_in((node.args[1 if node.op in _WRITES_ONLY else 0 :], node.kwargs)):
                self.last[name] = position
                self.users.setdefault(name, []).append(node)
            if node.op == "aten.copy_.default" and isinstance(node.args[0], NodeRef):
                self.overwritten[node.args[0].name] = position
        read = tuple([arg for number, arg in enumerate(graph.outputs) if number not in graph.rebuilt])
        self.returned = set(node_names_in(read))
        self.last.update(dict.fromkeys(self.returned, self.end))

    def is_used_after(self, name: str, now: int, but: Collection[str] = ()) -> bool:
        """Whether a node whose name is not in `but`, or the caller, reads a name's value after a position."""
        if self.last.get(name, -1) <= now:
            return False
        late = [node for node in self.users.get(name, ()) if self.position[node.name] > now]
        return name in self.returned or any(node.name not in but for node in late)

    def last_use(self, name: str, is_view: Callable[[Node], bool]) -> int:
        """The position of the last use of a name or of a view of it; `is_view` tells which nodes are views."""
        latest, pending, seen = -1, [name], {name}
        while pending:
            here = pending.pop()
            latest = max(latest, self.last.get(here, -1))
            views = [node.name for node in self.users.get(here, ()) if is_view(node) and node.name not in seen]
            seen.update(views)
            pending += views
        return latest


def used_results(graph: Graph) -> dict[str, set[int]]:
    """For each node with several results, by name, the numbers of the results that the graph uses."""
    found: dict[str, set[int]] = {}
    for node in graph.nodes:
        if node.op == "getitem":
            of, number = node.args
            assert isinstance(of, NodeRef) and isinstance(number, int)
            found.setdefault(of.name, set()).add(number)
    return found
