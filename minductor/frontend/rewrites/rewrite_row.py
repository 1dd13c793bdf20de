"""The row of the table of graph rewrites, and what a row sees of a graph.

Takes an anchor, a node of a torch.fx graph. Gives the classes that rows and `apply_rewrites.py` share. Refuses nothing.

A rewrite replaces some calls of a torch.fx graph by others that compute the same in less time. Its row says at which
operator the search begins (`anchors`), which calls belong to it (`find`), when it may and should apply (`conditions`,
`seconds`), and what takes their place (`replace`). `apply_rewrites.py` applies the rows, and checks what they made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import fx

from minductor.frontend.rewrites.folded_sizes import is_too_large, owner_of
from minductor.frontend.rewrites.operator_calls import OperatorCall, operator_call
from minductor.frontend.rewrites.traced_values import traced
from minductor.target import Env

# Where a rewrite applies: in Dynamo's graph or torch.export's, before autograd ("torch"); in the joint graph of
# training ("joint"); in an ATen graph ("aten"); in an ATen graph whose parameters are constants ("frozen").
Level: TypeAlias = Literal["torch", "joint", "aten", "frozen"]
LEVELS: Sequence[Level] = ("torch", "joint", "aten", "frozen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The calls that a rewrite found. A row may have a subclass with what its conditions and replacement ask.

    Args:
        result: the node whose value the replacement gives.
        inside: the other nodes that are replaced. No node outside of the match may read one of them.
    """

    result: fx.Node
    inside: tuple[fx.Node, ...] = ()


# metadata of a joint graph's nodes: their half, and whether the backward computes them again, as checkpoints ask
OF_TRAINING = ("partitioner_tag", "recompute", "ac_graph_id", "memory_budget")

Condition: TypeAlias = Callable[[Any, "Site"], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One row of the table of rewrites.

    Args:
        name: the name in the option `rewrites`, in traces, reports and errors.
        docs: what the rewrite does, as one sentence.
        level: where it applies, a value of `Level`.
        anchors: the names of the operators at which the search begins, without overload, such as "aten.softmax".
        find: `(site) -> Match | None`: the calls around the anchor; None if they are not what the rewrite replaces.
        conditions: `(match, site) -> str` each: "" if the condition holds, else the reason why not, for the user.
        replace: `(match, site) -> node`: writes the new calls with `site.write`, and returns the node whose value takes
            the place of the result's; or a mapping from several old nodes to new ones.
        seconds: `(match, site) -> (before, after)`: estimated seconds of a call of both forms; the cheaper one is
            taken. None: the rewrite never costs time.
        keeps_strides: False if the new value may have other strides than the old one. What follows is then traced
            again, and a value that the caller sees is copied to the old strides.
        packs: whether the new calls read packed weights, which fit one processor: `minductor.export` leaves the rewrite
            out.
        is_on: whether the rewrite applies unless the option `rewrites` says otherwise.
    """

    name: str
    docs: str
    level: Level
    anchors: tuple[str, ...]
    find: Callable[[Site], Any]
    replace: Callable[[Any, Site], fx.Node | Mapping[fx.Node, fx.Node]]
    conditions: tuple[Condition, ...] = ()
    seconds: Callable[[Any, Site], tuple[float, float]] | None = None
    keeps_strides: bool = True
    packs: bool = False
    is_on: bool = True


def row_objection(row: Any) -> str:
    """The reason why an object is no row that can apply; "" if it is one."""
    if not isinstance(row, Rewrite):
        return f"{row!r} is no minductor.Rewrite"
    if not isinstance(row.name, str) or not row.name.isidentifier():
        return f"the name {row.name!r} is no identifier"
    if row.level not in LEVELS:
        return f"the level {row.level!r} of {row.name} is none of {', '.join(LEVELS)}"
    if not isinstance(row.anchors, tuple) or not all("." in str(anchor) for anchor in row.anchors) or not row.anchors:
        return f"the anchors {row.anchors!r} of {row.name} are no tuple of names such as 'aten.softmax'"
    if not isinstance(row.conditions, tuple):
        return f"the conditions {row.conditions!r} of {row.name} are no tuple of functions"
    return ""


class RewriteNote(NamedTuple):
    """What one rewrite did at one place of a graph: `why` is "" if it was applied, else the condition that failed."""

    rewrite: str
    node: str  # the name of the node whose value was replaced, or would have been
    place: str  # the user's "file:line"; "" if torch noted none
    why: str

    @property
    def is_applied(self) -> bool:
        """Whether the rewrite was applied."""
        return not self.why

    def __str__(self) -> str:
        at = f"{self.node} ({self.place})" if self.place else self.node
        return f"{self.rewrite}: applied at {at}" if self.is_applied else f"{self.rewrite}: not at {at}, {self.why}"


@dataclass(slots=True)
class Site:
    """A place of a graph at which a rewrite is tried: the anchor, and what the rewrite may ask and write.

    Args:
        anchor: the node at which the search begins.
        env: the options and the target.
        value_key: the metadata that holds a node's traced value: "example_value" in Dynamo's graphs, else "val".
        frozen: the nodes that have the same value at each call, in a frozen graph.
        autocast: the arguments of the autocast regions around the anchor, the outermost first.
    """

    anchor: fx.Node
    env: Env
    value_key: str
    frozen: set[fx.Node]
    autocast: tuple[tuple[Any, ...], ...] = ()
    before: fx.Node | None = None  # new nodes are written in front of this node; None means the anchor
    written: list[fx.Node] = field(default_factory=list[fx.Node])

    def call(self, node: object) -> OperatorCall | None:
        """The call of a node, by the names of ATen's operator and parameters.

        Args:
            node: a node, or any other argument of a call.

        Returns:
            None for what is no node, or calls no operator that `operator_calls.py` knows.
        """
        return operator_call(node) if isinstance(node, fx.Node) else None

    def value(self, node: object) -> Any:
        """The traced value of a node.

        Args:
            node: a node, or any other argument of a call.

        Returns:
            A fake tensor for a tensor, whose sizes may be symbols; what is no node is its own value.
        """
        return node.meta.get(self.value_key) if isinstance(node, fx.Node) else node

    def tensor(self, node: object) -> torch.Tensor | None:
        """The traced value of a node that gives a tensor.

        Args:
            node: a node, or any other argument of a call.

        Returns:
            A fake tensor; None if the value is no tensor.
        """
        value = self.value(node)
        return value if isinstance(value, torch.Tensor) else None

    def is_frozen(self, node: object) -> bool:
        """Whether a node has the same value at each call, which is computed once, as it depends on frozen weights only.

        A value that is too large to be kept, as a converted weight of bytes is, is computed at each call.

        Args:
            node: a node, or any other argument of a call, which is the same at each call.

        Returns:
            False for every node of a graph that is not frozen.
        """
        if not isinstance(node, fx.Node):
            return True
        return node in self.frozen and not is_too_large(owner_of(node))

    def write(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Writes a call in front of the replaced node, and traces it.

        Args:
            target: an ATen overload; in a graph of level "torch" any function that Dynamo's graphs may call.
            *args: its arguments; a node stands for its value.
            **kwargs: its arguments by name.

        Returns:
            The new node.
        """
        before = self.before or self.anchor
        with before.graph.inserting_before(before):
            node = before.graph.call_function(target, args, kwargs)
        kept = ("stack_trace", "nn_module_stack", "source_fn_stack", "seq_nr", "fwd_nn_module_stack", *OF_TRAINING)
        node.meta = {name: before.meta[name] for name in kept if name in before.meta}
        if node.meta.get("partitioner_tag") == "is_backward" and not any(map(_is_of_backward, node.all_input_nodes)):
            node.meta["partitioner_tag"] = "is_forward"  # the forward may compute it, and merge it with an equal node
        self.written.append(node)
        node.meta[self.value_key] = self.trace(node)
        return node

    def trace(self, node: fx.Node) -> Any:
        """The value of a node's call on the traced values of its arguments, without changing any metadata.

        Args:
            node: a node that calls a function or a method.

        Returns:
            A fake tensor, or what else the call gives.
        """
        return traced(node, self.value_key, self.autocast)

    @property
    def device(self) -> str:
        """The kind of device of the anchor's value: "cpu", "cuda", ...; "" if the anchor gives no tensor."""
        value = self.tensor(self.anchor)
        return "" if value is None else value.device.type

    @property
    def is_gpu(self) -> bool:
        """Whether the graph is compiled for a GPU."""
        return self.env.target.is_gpu or self.device == "cuda"


def _is_of_backward(node: fx.Node) -> bool:
    """Whether a node of a joint graph needs the gradients of the results."""
    is_tangent = node.op == "placeholder" and "tangents" in str(node.target)
    return is_tangent or node.meta.get("partitioner_tag") in ("is_backward", "must_be_in_backward")
