"""Applies rewrites to a torch.fx graph, in place, and checks each.

Takes a graph module, the rows of a level, and the Env. Changes the graph. Gives a `RewriteNote` for each place at which
a row was applied or nearly was. A graph without an anchor is walked once, and nothing else is done. Refuses
(WrongRewrite) a row that fails, or whose replacement has another dtype, size, device, layout or aliasing than what it
replaces.

A match is left alone if a condition of its row fails, and for three reasons that hold for all rows: a node outside of
the match reads one of its intermediate results; a write to memory lies between its first and its last call, so that a
moved read could see another value; its estimated seconds are not less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from minductor.core.errors import MinductorError, WrongRewrite
from minductor.frontend.capture.user_places import place_of_node
from minductor.frontend.rewrites.layout_changes import LayoutChanges, layout, storage
from minductor.frontend.rewrites.operator_calls import operator_name, writes_memory
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, RewriteNote, Site
from minductor.target import Env


def apply_rewrites(
    gm: fx.GraphModule, rows: Sequence[Rewrite], env: Env, *, frozen: set[fx.Node] | None = None
) -> tuple[RewriteNote, ...]:
    """Applies the rows, all of one level, to a graph module, one row after the other.

    Args:
        gm: Dynamo's graph or an ATen graph, whose nodes have traced values.
        rows: the rewrites to try.
        env: the options and the target.
        frozen: the nodes that have the same value at each call; new nodes that depend on these only are added.

    Returns:
        What was applied, and what nearly was.

    Raises:
        WrongRewrite: a row fails, or its replacement is not what it replaces.
    """
    anchors = {anchor for row in rows for anchor in row.anchors}
    places: dict[str, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if (name := operator_name(node)) in anchors:
            places.setdefault(name, []).append(node)
    if not places:
        return ()
    walk = _Walk(gm.graph, env, places, set() if frozen is None else frozen)
    for row in rows:
        for anchor in row.anchors:
            for node in list(places.get(anchor, ())):
                if node not in walk.erased:
                    walk.visit(row, node)
    if any(note.is_applied for note in walk.notes):
        gm.recompile()
    return tuple(walk.notes)


class _Walk:
    """One application of rows to one graph."""

    def __init__(self, graph: fx.Graph, env: Env, places: dict[str, list[fx.Node]], frozen: set[fx.Node]) -> None:
        self.graph = graph
        self.env = env
        self.places = places  # name of an anchor -> nodes
        self.frozen = frozen
        self.erased: set[fx.Node] = set()
        self.notes: list[RewriteNote] = []
        is_traced_by_dynamo = any("example_value" in node.meta for nodes in places.values() for node in nodes)
        self.value_key = "example_value" if is_traced_by_dynamo else "val"
        self.autocast = _autocast_regions(graph)

    def visit(self, row: Rewrite, anchor: fx.Node) -> None:
        """Tries a row at an anchor."""
        site = Site(anchor, self.env, self.value_key, self.frozen, self.autocast.get(anchor, ()))
        match: Match | None = row.find(site)
        if match is None:
            return
        site.before = match.result
        why = self._objection(row, match, site)
        if not why:
            self._replace(row, match, site)
        self.notes.append(RewriteNote(row.name, match.result.name, place_of_node(anchor), why))

    def _objection(self, row: Rewrite, match: Match, site: Site) -> str:
        """The reason why a match is left alone; "" if there is none."""
        if reader := _outside_reader(match):
            return f"{reader[1].name} reads {reader[0].name}, which the rewrite would not compute"
        if writer := _write_between(match):
            return f"{writer.name} writes to memory between its calls"
        for condition in row.conditions:
            if why := condition(match, site):
                return why
        if row.seconds is not None:
            before, after = row.seconds(match, site)
            if not after < before:
                return f"it would take {after * 1e6:.3g} us in place of {before * 1e6:.3g} us"
        return ""

    def _replace(self, row: Rewrite, match: Match, site: Site) -> None:
        """Puts the replacement into the graph, checks it, and erases what it replaces."""
        try:
            made = row.replace(match, site)
        except MinductorError:
            raise
        except Exception as error:
            raise self._wrong(row, match, f"it fails: {type(error).__name__}: {error}") from error
        pairs = dict(made) if isinstance(made, Mapping) else {match.result: made}
        replaced = {*match.inside, match.result, *pairs}
        changes = LayoutChanges(self.graph, self.value_key, self.autocast)
        for old, new in pairs.items():
            if why := _difference(old, new, self.value_key, replaced, keeps_strides=row.keeps_strides):
                raise self._wrong(row, match, why)
            changes.note(new, old.meta[self.value_key])
            old.replace_all_uses_with(new, propagate_meta=False)
        for node in sorted(replaced, reverse=True):
            if node.users:
                raise self._wrong(row, match, f"{next(iter(node.users)).name} still reads {node.name}")
            self.graph.erase_node(node)
            self.erased.add(node)
            self.frozen.discard(node)
        for node in site.written:
            if node.all_input_nodes and all(given in self.frozen for given in node.all_input_nodes):
                self.frozen.add(node)
            self.places.setdefault(operator_name(node), []).append(node)
        if not row.keeps_strides and (why := changes.follow()):
            raise self._wrong(row, match, why)

    def _wrong(self, row: Rewrite, match: Match, why: str) -> WrongRewrite:
        return WrongRewrite(row.name, match.result.name, why, where=place_of_node(match.result))


def _outside_reader(match: Match) -> tuple[fx.Node, fx.Node] | None:
    """An intermediate node of a match and a node outside of the match that reads it, if there is one."""
    own = {*match.inside, match.result}
    return next(((node, user) for node in match.inside for user in node.users if user not in own), None)


def _write_between(match: Match) -> fx.Node | None:
    """A node that writes to memory between the first and the last call of a match, and is not part of it."""
    waiting = set(match.inside)
    node = match.result.prev
    while waiting and node.op != "root":
        waiting.discard(node)
        if node not in match.inside and writes_memory(node):
            return node
        node = node.prev
    return None


def _difference(old: fx.Node, new: fx.Node, key: str, replaced: set[fx.Node], *, keeps_strides: bool) -> str:
    """What differs between an old value and the new one, as a reason; "" if nothing does."""
    a, b = old.meta[key], new.meta[key]
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return "" if type(a) is type(b) else f"it gives a {type(b).__name__} in place of a {type(a).__name__}"
    names = ("size", "dtype", "device") + ("strides",) * keeps_strides
    for name, was, now in zip(("dtype", "size", "device", "strides"), layout(a), layout(b), strict=True):
        if name in names and was != now:
            return f"its value has the {name} {_shown(now)} in place of {_shown(was)}"
    inputs = [given for node in replaced for given in node.all_input_nodes if given not in replaced]
    for given in inputs:
        was, now = (storage(value) == storage(given.meta.get(key)) for value in (a, b))
        if was != now:
            return f"its value {'shares' if now else 'does not share'} the memory of {given.name}, unlike the old one"
    return ""


def _shown(value: Any) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def _autocast_regions(graph: fx.Graph) -> Mapping[fx.Node, tuple[tuple[Any, ...], ...]]:
    """Node -> the arguments of the autocast regions around it; empty if the graph enters none."""
    enter, leave = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast
    if not graph.find_nodes(op="call_function", target=enter):
        return {}
    return dict(_with_regions(graph, enter, leave))


def _with_regions(graph: fx.Graph, enter: Any, leave: Any) -> Iterator[tuple[fx.Node, tuple[tuple[Any, ...], ...]]]:
    active: list[tuple[Any, ...]] = []
    for node in graph.nodes:
        if node.target is enter:
            active.append(tuple(node.args))
        elif node.target is leave:
            active.pop()
        yield node, tuple(active)
