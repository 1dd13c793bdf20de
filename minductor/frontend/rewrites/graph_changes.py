"""Changes of a torch.fx graph that can be taken back.

Takes changes one by one, and does them. Gives the graph back as it was before the first change, by `undo`. Refuses
nothing. An erased node cannot be brought back, so nodes are erased once no change will be taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import fx


@dataclass(slots=True)
class GraphChanges:
    """The changes of one rewrite. `value_key` is the metadata that holds a node's traced value."""

    value_key: str
    undoing: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def replace_uses(self, old: fx.Node, new: fx.Node) -> None:
        """Lets all readers of a node read another one."""
        for user in list(old.users):
            self.replace_input(user, old, new)

    def replace_input(self, node: fx.Node, old: fx.Node, new: fx.Node) -> None:
        """Lets one node read another node than before."""
        self.undoing.append(partial(_restore_arguments, node, node.args, node.kwargs))
        node.replace_input_with(old, new)

    def set_value(self, node: fx.Node, value: Any) -> None:
        """Gives a node another traced value."""
        self.undoing.append(partial(_restore_meta, node, dict(node.meta)))
        node.meta[self.value_key] = value
        node.meta.pop("tensor_meta", None)

    def add(self, node: fx.Node) -> None:
        """Notes that a node is new."""
        self.undoing.append(partial(node.graph.erase_node, node))

    def undo(self) -> None:
        """Takes all changes back, the last one first."""
        while self.undoing:
            self.undoing.pop()()


def _restore_arguments(node: fx.Node, args: Any, kwargs: Any) -> None:
    node.args, node.kwargs = args, kwargs


def _restore_meta(node: fx.Node, meta: dict[str, Any]) -> None:
    node.meta = meta
