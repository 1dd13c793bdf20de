"""Interpolates each row of an image once in bilinear resizing, instead of once for each result row that reads it.

Takes a Graph, gives a Graph (the same one if there is nothing to share). Refuses resizing to fewer rows than the image
has, and images whose rows are not contiguous: these stay. Dead code elimination drops the nodes that are left.

Bilinear resizing is traced as a + (b - a) * w with a = x[..., y, left] and b = x[..., y, right], once for the image row
above each result row and once for the row below. This pass computes the sum for each image row, and the results read
the summed rows. The values are the same; the results load contiguous elements instead of gathering.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import as_expr, as_int
from minductor.frontend.capture.argument_trees import node_names_in
from minductor.frontend.capture.captured_graph import Arg, Graph, Meta, Node, NodeRef, TensorMeta
from minductor.frontend.capture.size_formulas import row_major, sizes
from minductor.target import Env

READ, SUM, DIFFERENCE, PRODUCT = (f"aten.{name}.Tensor" for name in ("_unsafe_index", "add", "sub", "mul"))


class _RowSum(NamedTuple):
    """a + (b - a) * w with a = x[..., rows, left] and b = x[..., rows, right]; each field names a node or an input."""

    image: str
    rows: str
    left: str
    right: str
    weight: str

    @property
    def source(self) -> tuple[str, ...]:
        """The operands that do not depend on the rows: sums of one source can be shared."""
        return (self.image, self.left, self.right, self.weight)


def share_row_interpolation(graph: Graph, env: Env) -> Graph:
    """The graph with the sums replaced that differ only in the rows that they read; for a GPU the graph itself."""
    if env.target.is_gpu or not any(node.op == READ for node in graph.nodes):
        return graph
    finder = _Finder(graph)
    found = {node.name: made for node in graph.nodes if (made := finder.row_sum(node)) is not None}
    sources = [made.source for made in found.values()]
    nodes: list[Node] = []
    shared: dict[tuple[str, ...], str] = {}
    for node in graph.nodes:
        made = found.get(node.name)
        if made is None or sources.count(made.source) < 2:
            nodes.append(node)
            continue
        if made.source not in shared:
            nodes += finder.rows_of(made, node)
            shared[made.source] = nodes[-1].name
        nodes += finder.read(made, node, shared[made.source])
    return replace(graph, nodes=tuple(nodes)) if shared else graph


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.nodes = {node.name: node for node in graph.nodes}
        self.metas = graph.metas()
        self.uses = Counter(node_names_in((graph.outputs, *((node.args, node.kwargs) for node in graph.nodes))))

    def row_sum(self, total: Node) -> _RowSum | None:
        """The `_RowSum` whose last operation is `total`; None if `total` is another operation, or cannot be shared."""
        a, product = self.operands(total, SUM, uses=None)
        difference, weight = self.operands(product, PRODUCT)
        b, again = self.operands(difference, DIFFERENCE)
        if a is None or b is None or weight is None or again is not a:
            return None
        if (self.uses[a.name], self.uses[b.name]) != (2, 1):
            return None
        first, second = self.places(a), self.places(b)
        if len(first) != 3 or len(second) != 3 or first[:2] != second[:2]:
            return None
        found = _RowSum(*first, second[2], weight.name)
        return found if self.is_shareable(found, total.meta) else None

    def operands(self, node: Node | None, op: str, uses: int | None = 1) -> tuple[Node | None, Node | None]:
        """The two operands of a node, if it calls `op` and has that many uses; `uses` None is any number."""
        if node is None or node.op != op or node.kwargs or node.after or uses not in (None, self.uses[node.name]):
            return None, None
        first, second = (self.nodes.get(arg.name) if isinstance(arg, NodeRef) else None for arg in node.args)
        return first, second

    def places(self, read: Node) -> tuple[str, ...]:
        """The names of the image and of the indices into its last two dimensions, if nothing else is indexed."""
        if read.op != READ or read.after:
            return ()
        image, places = read.args
        assert isinstance(places, tuple)
        lead, named = places[:-2], places[-2:]
        meta = self.metas[image.name] if isinstance(image, NodeRef) else None
        is_whole = isinstance(meta, TensorMeta) and len(meta.size) == len(places) and set(lead) <= {None}
        return tuple(arg.name for arg in (image, *named) if isinstance(arg, NodeRef)) if is_whole else ()

    def is_shareable(self, found: _RowSum, total: Meta) -> bool:
        """Whether the operands are those of resizing an image with contiguous rows to at least as many rows."""
        image, rows, *along = (self.metas[name] for name in (found.image, found.rows, *found.source[1:]))
        if not isinstance(image, TensorMeta) or not isinstance(rows, TensorMeta) or not isinstance(total, TensorMeta):
            return False
        height, width = total.size[-2:]
        return (
            (*image.size[:-2], height, width) == total.size
            and image.dtype == total.dtype
            and rows.size == (height, 1)
            and all(isinstance(meta, TensorMeta) and meta.size == (width,) for meta in along)
            and as_int(image.stride[-1]) == 1
            and at_least(as_expr(height) - image.size[-2], 0)
        )

    def rows_of(self, found: _RowSum, total: Node) -> Iterator[Node]:
        """The nodes that compute the sum for each row of the image."""
        image, meta = self.metas[found.image], total.meta
        assert isinstance(image, TensorMeta) and isinstance(meta, TensorMeta)
        size = (*image.size[:-1], meta.size[-1])
        whole = TensorMeta(meta.dtype, size, row_major(sizes(size)), 0, meta.device)
        lead = (None,) * (len(size) - 1)
        names = [f"{total.name}_{part}" for part in ("left", "right", "difference", "product", "rows")]
        left, right, difference, product, _ = map(NodeRef, names)
        calls: tuple[tuple[str, tuple[Arg, ...]], ...] = (
            (READ, (NodeRef(found.image), (*lead, NodeRef(found.left)))),
            (READ, (NodeRef(found.image), (*lead, NodeRef(found.right)))),
            (DIFFERENCE, (right, left)),
            (PRODUCT, (difference, NodeRef(found.weight))),
            (SUM, (left, product)),
        )
        for name, (op, args) in zip(names, calls, strict=True):
            yield Node(name, op, args, (), whole)

    def read(self, found: _RowSum, total: Node, rows: str) -> Iterator[Node]:
        """The nodes that read a result's rows from the summed rows, in place of `total`."""
        meta = self.metas[found.rows]
        assert isinstance(meta, TensorMeta)
        at = NodeRef(f"{total.name}_at")
        flat = replace(meta, size=meta.size[:1], stride=meta.stride[:1])
        yield Node(at.name, "aten.squeeze.dim", (NodeRef(found.rows), 1), (), flat)
        assert isinstance(total.meta, TensorMeta)
        lead = (None,) * (len(total.meta.size) - 2)
        yield replace(total, op=READ, args=(NodeRef(rows), (*lead, at)))
