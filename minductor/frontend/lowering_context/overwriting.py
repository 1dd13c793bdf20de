"""Whether a node may write its result over the value of an argument.

Takes the lowering and a view or a storage. Gives whether its value is dead, i.e. no later node and no caller reads it.
Refuses nothing; unknown counts as no.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.core.expressions.expr import as_expr
from minductor.frontend.capture import schemas
from minductor.frontend.capture.argument_trees import node_names_in
from minductor.frontend.capture.captured_graph import Node, NodeRef, TensorMeta
from minductor.frontend.capture.size_formulas import count, sizes, span
from minductor.frontend.graph_passes.fold_copies import WINDOW_WRITES
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import is_injective, views_in
from minductor.frontend.lowering_context.windows import window_written_by
from minductor.ir.program import nodes as ir
from minductor.ir.program.nodes import Extern, Kernel, View

MAX_CHAIN = 1  # writes into copies that may come before one that gets a kernel of its own


def is_dead(ctx: Lowering, x: View, node: Node | None = None) -> bool:
    """Whether `node` (by default the current one) is the last reader of x's storage, and its result may be made there.

    The result must have x's layout, as far as somebody sees it. An input is dead if it is donated, or if the graph
    overwrites all of it later and this node's result is not wanted after that. If x is a window of another tensor, that
    tensor may be wanted once more, by the write of this result into the same window, which then has nothing to do; and
    so on for windows of windows.
    """
    node, lives = node or ctx.node, ctx.last_uses
    now, like, storage = lives.position[node.name], node.meta, x.ref.storage
    if not isinstance(like, TensorMeta) or not is_injective(x) or x.dtype != ctx.buffer_of(x).dtype:
        return False
    if (x.dtype, x.size) != (like.dtype, sizes(like.size)):
        return False
    way = _way_back(ctx, x, node)
    if x.stride != sizes(like.stride) and not (way and way[0][0] in lives.users[node.name]):
        return False
    names, but = ctx.names_in.get(storage, ()), {outer.name for outer, _ in way}
    if any(lives.is_used_after(name, now, but) for name in names):
        return False
    if not _may_hold(ctx, storage, node):
        return False
    if not way or not any(lives.is_used_after(name, now) for name in names):
        return True
    outer, around = way[0]
    return is_dead(ctx, around, outer)


def _way_back(ctx: Lowering, x: View, node: Node) -> list[tuple[Node, View]]:
    """The nodes that write a node's result, made in the place of x, back into the windows where it lies then.

    Each with the tensor of which the window is a part, the innermost first. `x[1][2] = v` is traced so.
    """
    found: list[tuple[Node, View]] = []
    while (outer := _write_back(ctx, x, node)) is not None:
        found.append(outer)
        node, x = outer
    return found


def _write_back(ctx: Lowering, x: View, node: Node) -> tuple[Node, View] | None:
    """The first step of `_way_back`: only it uses the result, or a view of a view of the result."""
    lives, like, place = ctx.last_uses, node.meta, x
    while True:
        users = lives.users.get(node.name, ())
        if len(users) != 1 or node.name in lives.returned or not isinstance(like, TensorMeta):
            return None
        (user,) = users
        if user.op in WINDOW_WRITES:
            break
        meta = user.meta
        if user.op not in ctx.view_operators or not isinstance(meta, TensorMeta) or meta.dtype != like.dtype:
            return None
        if x.stride != sizes(like.stride) or user.args[:1] != (NodeRef(node.name),):
            return None
        offset = x.offset + as_expr(meta.offset) - as_expr(like.offset)
        place, node = replace(x, size=sizes(meta.size), stride=sizes(meta.stride), offset=offset), user
    written, source = user.args[:2]
    around = ctx.values.get(written.name) if isinstance(written, NodeRef) else None
    if source != NodeRef(node.name) or not isinstance(around, View):
        return None
    around = ctx.value(written)
    return (user, around) if isinstance(around, View) and window_written_by(ctx, user, around) == place else None


def is_unwanted(ctx: Lowering, storage: str) -> bool:
    """Whether only the current node reads the present version of a storage, and only through one argument."""
    lives, names = ctx.last_uses, ctx.names_in.get(storage, ())
    if sum(name in names for name in node_names_in((ctx.node.args, ctx.node.kwargs))) > 1:
        return False
    now = lives.position[ctx.node.name]
    return not any(lives.is_used_after(name, now) for name in names) and _may_hold(ctx, storage, ctx.node)


def _may_hold(ctx: Lowering, storage: str, node: Node) -> bool:
    """Whether a node's result may be in a storage.

    A constant may not be written, nor what a running collective still reads, nor an input that the graph does not
    write later or whose later write would destroy this result while it is wanted.
    """
    lives = ctx.last_uses
    if any(view.ref.storage == storage for sent in ctx.state.in_flight.values() for view in sent):
        return False
    given = next((i for i in ctx.graph.inputs if i.name == storage), None)
    if given is None:  # a call that returned it may have left gaps
        made = ctx.state.buffers[storage]
        return made.kind == "local" and span(made.size, made.stride) == count(made.size)
    end = lives.end if given.is_donated else lives.overwritten.get(storage, -1)
    return lives.position[node.name] < end and lives.last_use(node.name, lambda n: _is_view(ctx, n)) <= end


def _is_view(ctx: Lowering, node: Node) -> bool:
    """Whether a node's result may be in the memory of its first argument."""
    if node.op == "getitem" or node.op in ctx.view_operators:
        return True
    facts = schemas.operator_facts(node.op)
    return facts is not None and any(place is not None for place in facts.returned)


def is_fusable_copy(ctx: Lowering, x: View) -> bool:
    """Whether x is pointwise and nothing needs it in memory, so that a write into a copy of it costs no copy."""
    depth, storage = 0, x.ref.storage
    for node in reversed(ctx.state.nodes):
        if storage in {ref.storage for ref in ir.reads(node)} and isinstance(node, Extern):
            return False
        if storage not in {ref.storage for ref in ir.writes(node)}:
            continue
        if not isinstance(node, Kernel) or ctx.state.versions[storage] > 0 or depth > MAX_CHAIN:
            return False
        if any(isinstance(op.attrs, ir.Reduce | ir.Scan | ir.Atomic) for op in node.body.ops):
            return False
        if node.origins[0].op not in WINDOW_WRITES:
            return bool(ir.reads(node))  # a constant is written at the speed of memory
        depth, storage = depth + 1, ir.reads(node)[-1].storage  # the written tensor is read last
    return False


def writable(ctx: Lowering, x: View) -> View:
    """x itself if its old value is dead and no other argument is in its memory, else a copy in the result's layout.

    For the first argument of a functional write, which then makes a `next_version` of what it is given.
    """
    if is_dead(ctx, x) and is_only_argument_in(ctx, x):
        return x
    return ctx.map(lambda loop: loop.load(x))


def is_only_argument_in(ctx: Lowering, x: View) -> bool:
    """Whether no argument of the current node but the first is in x's memory."""
    others = [ctx.value(arg) for arg in (*ctx.node.args[1:], *(arg for _, arg in ctx.node.kwargs))]
    return all(view.ref.storage != x.ref.storage for view in views_in(tuple(others)))
