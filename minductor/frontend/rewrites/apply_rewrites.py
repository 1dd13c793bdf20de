"""Applies rewrites to a torch.fx graph, in place, and checks each.

Takes a graph module, the rows of a level, and the Env. Changes the graph. Gives a `RewriteNote` for each place at which
a row was applied or nearly was. A graph without an anchor is walked once, and nothing else is done. Refuses
(WrongRewrite) a row that fails, or whose replacement has another dtype, size, device, layout or aliasing than what it
replaces; the graph is then as it was before this row. A row of minductor's own is then left out there, with a warning,
unless the option `verify` is on: a program compiles without it.

A match is left alone if a condition of its row fails, and for the reasons that hold for all rows (`general_objection`):
a node outside of the match reads one of its intermediate results; a write to memory lies between its first and its last
call, so that a moved read could see another value; it writes to memory of others; its calls run in several modes of
autograd or autocast. So is a match whose estimated seconds are not less, and one whose other strides cannot be followed
(`layout_changes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import fx

from minductor.core.errors import MinductorError, WrongRewrite
from minductor.core.warn import warn
from minductor.frontend.capture.user_places import place_of_node
from minductor.frontend.rewrites.graph_changes import GraphChanges
from minductor.frontend.rewrites.graph_modes import Modes, modes_of
from minductor.frontend.rewrites.layout_changes import LayoutChanges
from minductor.frontend.rewrites.operator_calls import operator_name, writes_memory
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, RewriteNote, Site
from minductor.frontend.rewrites.value_layouts import difference, has_same_layout, is_transformed, storages
from minductor.target import Env


def apply_rewrites(
    gm: fx.GraphModule,
    rows: Sequence[Rewrite],
    env: Env,
    *,
    frozen: set[fx.Node] | None = None,
    around: Modes | None = None,
    own: Sequence[Rewrite] = (),
) -> tuple[RewriteNote, ...]:
    """Applies the rows, all of one level, to a graph module, one row after the other.

    Args:
        gm: Dynamo's graph or an ATen graph, whose nodes have traced values.
        rows: the rewrites to try.
        env: the options and the target.
        frozen: the nodes that have the same value at each call; new nodes that depend on these only are added.
        around: the modes in which the graph is called; None means that the graph is called in no region.
        own: those of the rows that are the user's or a backend's.

    Returns:
        What was applied, and what nearly was.

    Raises:
        WrongRewrite: a row of `own` fails, or its replacement is not what it replaces; or any row, under `verify`.
    """
    anchors = {anchor for row in rows for anchor in row.anchors}
    places: dict[str, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if (name := operator_name(node)) in anchors:
            places.setdefault(name, []).append(node)
    if not places:
        return ()
    walk = _Walk(gm.graph, env, places, set() if frozen is None else frozen, around or Modes())
    may_end = rows if env.options.verify else own
    for row in rows:
        for anchor in dict.fromkeys(row.anchors):
            for node in list(places.get(anchor, ())):
                if node not in walk.erased:
                    walk.visit(row, node, may_end=row in may_end)
    if walk.has_changed:
        gm.recompile()
    return tuple(walk.notes)


class _Walk:
    """One application of rows to one graph."""

    def __init__(
        self, graph: fx.Graph, env: Env, places: dict[str, list[fx.Node]], frozen: set[fx.Node], around: Modes
    ) -> None:
        self.graph = graph
        self.env = env
        self.places = places  # name of an anchor -> nodes
        self.frozen = frozen
        self.around = around
        self.erased: set[fx.Node] = set()
        self.notes: dict[RewriteNote, None] = {}  # each once, in order
        self.has_changed = False
        is_traced_by_dynamo = any("example_value" in node.meta for nodes in places.values() for node in nodes)
        self.value_key = "example_value" if is_traced_by_dynamo else "val"
        self.modes = modes_of(graph, around)

    def visit(self, row: Rewrite, anchor: fx.Node, *, may_end: bool) -> None:
        """Tries a row at an anchor. A wrong row is left out, with a warning, or ends the compile if it `may_end` it."""
        if self.value_key not in anchor.meta or is_transformed(anchor.meta[self.value_key]):
            return
        modes = self.modes.get(anchor, self.around)
        site = Site(anchor, self.env, self.value_key, self.frozen, modes.autocast)
        changes = GraphChanges(self.value_key)
        result = anchor
        try:
            match = self._ask(row, anchor, row.find, site)
            if match is None:
                return
            if not isinstance(match, Match):
                raise self._wrong(row, anchor, f"`find` gives a {type(match).__name__} in place of a Match or None")
            site.before = result = match.result
            why = self._objection(row, match, site) or self._replace(row, match, site, changes)
        except MinductorError as error:
            if may_end or not isinstance(error, WrongRewrite):
                self._take_back(site, changes)
                raise
            warn(f"{error.what}, and is left out: {error.why}")
            why = f"it is wrong: {error.why}"
        if why:
            self._take_back(site, changes)
        place = place_of_node(result) or place_of_node(anchor)
        self.notes[RewriteNote(row.name, result.name, place, why)] = None
        self.has_changed = self.has_changed or not why

    def _objection(self, row: Rewrite, match: Match, site: Site) -> str:
        """The reason why a match is left alone; "" if there is none."""
        if why := general_objection(match, self.value_key, self.modes):
            return why
        for condition in row.conditions:
            why = self._ask(row, match.result, condition, match, site)
            if not isinstance(why, str):
                kind = f"{getattr(condition, '__name__', 'a condition')} gives a {type(why).__name__}"
                raise self._wrong(row, match.result, f'{kind} in place of a reason, or "" if it holds')
            if why:
                return why
        if row.seconds is not None:
            before, after = self._ask(row, match.result, row.seconds, match, site)
            if not after < before:
                return f"it would take {after * 1e6:.3g} us in place of {before * 1e6:.3g} us"
        return ""

    def _replace(self, row: Rewrite, match: Match, site: Site, changes: GraphChanges) -> str:
        """Puts the replacement into the graph, checks it, and erases what it replaces; or a reason against it."""
        made = self._ask(row, match.result, row.replace, match, site)
        pairs: dict[fx.Node, fx.Node] = dict(made) if isinstance(made, Mapping) else {match.result: made}
        replaced = {*match.inside, match.result, *pairs}
        if why := next(_reads_of(replaced, site.written), ""):
            raise self._wrong(row, match.result, why)
        following = LayoutChanges(self.graph, changes, self.modes, self.around)
        for old, new in pairs.items():
            if why := self._wrong_value(old, new, replaced, keeps_strides=row.keeps_strides):
                raise self._wrong(row, match.result, why)
            following.note(new, old.meta[self.value_key])
            if self._lies_apart(old) and new in site.written and self._lies_apart(new):
                if has_same_layout(old.meta[self.value_key], new.meta[self.value_key]):
                    new.meta[self.value_key] = old.meta[self.value_key]  # so that nothing has to follow
            changes.replace_uses(old, new)
        if why := _misplaced(replaced, (*site.written, *pairs.values())):
            raise self._wrong(row, match.result, why)
        if why := following.follow():
            return why
        self._erase(replaced)
        self._erase({node for node in site.written if not node.users and not writes_memory(node)})
        self._register(node for node in site.written if node not in self.erased)
        return ""

    def _wrong_value(self, old: fx.Node, new: Any, replaced: set[fx.Node], *, keeps_strides: bool) -> str:
        """What is wrong with a node that takes the place of an old one; "" if nothing is."""
        if not isinstance(new, fx.Node):
            return f"`replace` gives a {type(new).__name__} in place of a node"
        if new in replaced:
            return f"`replace` gives {new.name}, which is replaced itself"
        before, after = old.meta[self.value_key], new.meta.get(self.value_key)
        if why := difference(before, after, keeps_strides=keeps_strides):
            return why
        read = {given for node in replaced for given in node.all_input_nodes}
        inputs = sorted(given for given in read - replaced if given < old)  # one behind `old` may be a view of it
        for given in inputs:
            memory = set(storages(given.meta.get(self.value_key))) - {None}
            was, now = (not memory.isdisjoint(storages(value)) for value in (before, after))
            if was != now:
                verb = "shares" if now else "does not share"
                return f"its value {verb} the memory of {given.name}, unlike the old one"
        return ""

    def _lies_apart(self, node: fx.Node) -> bool:
        """Whether a node's value shares no memory with what its call reads."""
        own = set(storages(node.meta[self.value_key])) - {None}
        return all(own.isdisjoint(storages(given.meta.get(self.value_key))) for given in node.all_input_nodes)

    def _erase(self, nodes: set[fx.Node]) -> None:
        """Erases nodes, and forgets what was known of them."""
        for node in sorted(nodes, reverse=True):
            self.graph.erase_node(node)
            self.erased.add(node)
            self.frozen.discard(node)

    def _register(self, written: Any) -> None:
        """Makes new nodes anchors of the rows that follow, and notes which of them are frozen."""
        for node in written:
            if node.all_input_nodes and all(given in self.frozen for given in node.all_input_nodes):
                self.frozen.add(node)
            self.places.setdefault(operator_name(node), []).append(node)

    def _take_back(self, site: Site, changes: GraphChanges) -> None:
        """Brings the graph back to what it was before the row was tried."""
        changes.undo()
        for node in reversed(site.written):
            self.graph.erase_node(node)

    def _ask(self, row: Rewrite, node: fx.Node, function: Callable[..., Any], *args: Any) -> Any:
        """What a function of a row gives; what it raises becomes a WrongRewrite that names the row."""
        try:
            return function(*args)
        except MinductorError:
            raise
        except Exception as error:
            raise self._wrong(row, node, f"it fails: {type(error).__name__}: {error}") from error

    def _wrong(self, row: Rewrite, node: fx.Node, why: str) -> WrongRewrite:
        return WrongRewrite(row.name, node.name, why, where=place_of_node(node))


def general_objection(match: Match, value_key: str, modes: Mapping[fx.Node, Modes]) -> str:
    """The reason why no row may replace a match; "" if there is none."""
    own = {*match.inside, match.result}
    for node in match.inside:
        if reader := next((user for user in node.users if user not in own), None):
            return f"{reader.name} reads {node.name}, which the rewrite would not compute"
    for node in own:
        if writes_memory(node) and (given := _foreign_memory(node, own, value_key)) is not None:
            return f"{node.name} writes to {given.name}, which the rewrite would leave as it is"
    if writer := _write_between(own):
        return f"{writer.name} writes to memory between its calls"
    if modes and len({modes.get(node) for node in own}) > 1:
        return "its calls run in several modes of autograd or autocast"
    return ""


def _foreign_memory(node: fx.Node, own: set[fx.Node], value_key: str) -> fx.Node | None:
    """A node outside of a match with whose memory the value of a writing node lies, if there is one."""
    memory = set(storages(node.meta.get(value_key))) - {None}
    inputs = [given for each in own for given in each.all_input_nodes if given not in own]
    return next((given for given in inputs if not memory.isdisjoint(storages(given.meta.get(value_key)))), None)


def _write_between(own: set[fx.Node]) -> fx.Node | None:
    """A node that writes to memory between the first and the last call of a match, and is not part of it."""
    node, last = min(own), max(own)
    while node is not last:
        if node not in own and writes_memory(node):
            return node
        node = node.next
    return None


def _misplaced(replaced: set[fx.Node], new: Sequence[fx.Node]) -> str:
    """What is wrong with the places of new nodes and their readers; "" if nothing is."""
    for node in replaced:
        if reader := next((user for user in node.users if user not in replaced), None):
            return f"{reader.name} still reads {node.name}"
    for node in new:
        if reader := next((user for user in node.users if user < node), None):
            return f"{reader.name} reads {node.name}, which is computed later"
        if given := next((given for given in node.all_input_nodes if node < given), None):
            return f"{node.name} reads {given.name}, which is computed later"
    return ""


def _reads_of(replaced: set[fx.Node], written: Sequence[fx.Node]) -> Iterator[str]:
    """What is wrong with new nodes that read what they replace."""
    for node in written:
        for given in node.all_input_nodes:
            if given in replaced:
                yield f"{node.name} still reads {given.name}"
