"""The ATen nodes of one graph as the page has them: what each computes, from which nodes, and from which user's line.

Takes a captured graph and its ATen graph. Gives numbers for names, and a JSON row for each node. A name that the graph
does not have (of a node that a pass made) gets a row of its own. A node of a region is named "region.node".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from minductor.page.page_layout import place

if TYPE_CHECKING:
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.page.page_files import Files

LETTER, PADDING, LEAST = 7, 26, 64  # the width of a node in the drawing


class Nodes:
    """The nodes of a graph, in the order of the graph; `rows` is their JSON."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.number: dict[str, int] = {}
        self.edges: list[tuple[str, str]] = []

    def numbers(self, names: Iterable[str]) -> list[int]:
        """The numbers of nodes, each once, in order."""
        return sorted({number for name in names if name for number in self._of(name)})

    def _of(self, name: str) -> list[int]:
        """The number of a node; of a bare name that only regions have, the numbers of their nodes."""
        if name not in self.number:
            if inner := [number for each, number in self.number.items() if each.partition(".")[2] == name]:
                return inner
            self._add(name, {"kind": "made", "op": ""})
        return [self.number[name]]

    def _add(self, name: str, row: Mapping[str, Any]) -> None:
        self.number[name] = len(self.rows)
        self.rows.append({"name": name, **row})

    def read(self, graph: Graph, region: str = "") -> None:
        """Adds the inputs, constants and calls of a graph, and those of its regions."""
        before = f"{region}." if region else ""
        for given in (*graph.inputs, *graph.constants):
            kind = "constant" if given in graph.constants else "input"
            self._add(f"{before}{given.name}", {"kind": kind, "op": kind, "meta": str(given.meta)})
        for node in graph.nodes:
            text = str(node)
            meta = text[len(node.name) + 2 : text.index(f" = {node.op}(")]
            self._add(f"{before}{node.name}", {"kind": "call", "op": node.op, "meta": meta})
            used = dict.fromkeys(_named((node.args, tuple(value for _, value in node.kwargs))))
            self.edges += [(f"{before}{name}", f"{before}{node.name}") for name in used]
        for inner in graph.regions:
            self.read(inner.graph, inner.name)
        for name in dict.fromkeys(_named(graph.outputs)):
            self.rows[self.number[f"{before}{name}"]]["returned"] = True
        self.edges = [edge for edge in self.edges if edge[0] in self.number]

    def locate(self, gm: Any, files: Files) -> None:
        """Adds the user's line, the module path and the forward's node of each node."""
        from minductor.frontend.capture.capture import sources

        written = sources(gm)
        for row in self.rows:
            path, colon, line = written.of(row["name"]).rpartition(":")
            if colon and (spot := files.spot(path, int(line))):
                row["at"] = spot
            for key, found in (
                ("module", written.module_of(row["name"])),
                ("forward", written.forward_of(row["name"])),
            ):
                if found:
                    row[key] = found

    def draw(self) -> dict[str, Any]:
        """Places every node, and gives the edges: the numbers of their ends, and the bends between them."""
        widths = {row["name"]: _width(row) for row in self.rows}
        given = [row["name"] for row in self.rows if row["kind"] in ("input", "constant")]
        placed = place(widths, self.edges, given)
        for row in self.rows:
            row["x"], row["y"] = placed.places[row["name"]]
            row["w"] = widths[row["name"]]
        edges = [
            [self.number[start], self.number[end], [n for point in bends for n in point]]
            for (start, end), bends in placed.bends.items()
        ]
        return {"edges": edges, "width": placed.width, "height": placed.height}


def _width(row: Mapping[str, Any]) -> int:
    shape = str(row.get("meta", "")).partition(" stride")[0]
    return max(LEAST, LETTER * max(len(row["name"]), min(22, len(shape))) + PADDING)


def _named(value: Any) -> Iterator[str]:
    """The names of the nodes in an argument."""
    from minductor.frontend.capture.captured_graph import NodeRef

    if isinstance(value, NodeRef):
        yield value.name
    elif isinstance(value, tuple):
        for item in value:
            yield from _named(item)
