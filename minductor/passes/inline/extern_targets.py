"""Lets a call of an operator write its result straight to where a kernel would only copy it.

Takes a program after inlining. Gives it without the kernels that copy what an `out=` call has just made into a part of
another storage: a slice of a concatenation, an input that the user writes to. Refuses (leaves as they are) results that
anybody else reads, destinations that the call reads as well, other dtypes, layouts in which the operator would make a
copy of its own, and calls whose operands change before the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minductor.core.expressions.expr import Expr, as_int, free_symbols, integer, linear
from minductor.ir.program.nodes import (
    Buffer,
    Extern,
    Kernel,
    Load,
    MergedKernel,
    Node,
    Program,
    Ref,
    Store,
    View,
    awaited_refs,
    reads,
    views_of,
    writes,
)
from minductor.passes.rewriting.prune import with_nodes

# products, which take rows that are apart from each other as they take a whole matrix
ADDS = frozenset(("aten.addmm.out", "aten.baddbmm.out"))
TAKE_ROWS = ADDS | {"aten.mm.out", "aten.bmm.out"}


def write_into_targets(program: Program) -> Program:
    """One program in, one out; the same object if there is nothing to do."""
    table = program.real_table()
    kept = {view.ref.storage for output in program.outputs for view in views_of(output)}
    kept.update(ref.storage for node in program.nodes for ref in awaited_refs(node))
    makers: dict[Ref, int] = {}
    users: dict[str, list[int]] = {}
    for position, node in enumerate(program.nodes):
        for storage in dict.fromkeys(ref.storage for ref in (*reads(node), *writes(node))):
            users.setdefault(storage, []).append(position)
        if isinstance(node, Extern) and node.form == "out" and not node.effect and not node.after:
            makers.update(dict.fromkeys(writes(node), position))
    nodes: list[Node | None] = list(program.nodes)
    notes: list[MergedKernel] = []
    for position, copy in enumerate(program.nodes):
        source = _copied(copy)
        if source is None or (maker := makers.get(source.ref)) is None or source.ref.storage in kept:
            continue
        call = program.nodes[maker]
        assert isinstance(call, Extern) and isinstance(copy, Kernel)
        there = _destination(copy, call, table) if users[source.ref.storage] == [maker, position] else None
        read = {ref.storage for ref in reads(call)}
        if there is None or (there.ref.storage in read and not _adds_to(call, there)):
            continue
        if any(ref.storage in read for node in program.nodes[maker:position] for ref in writes(node)):
            continue
        nodes[position] = replace(call, results=(there,), origins=(*call.origins, *copy.origins))
        nodes[maker] = None
        notes.append(MergedKernel("inline", copy.name, call.name))
    if not notes:
        return program
    return with_nodes(replace(program, notes=(*program.notes, *notes)), tuple(n for n in nodes if n is not None))


def _adds_to(call: Extern, there: View) -> bool:
    """Whether a call reads a destination as what it adds a product to, and not otherwise: element by element."""
    if call.op not in ADDS or not isinstance(old := call.args[0], View):
        return False
    others = (*call.args[1:], *(value for _, value in call.kwargs))
    is_same = replace(old, ref=there.ref) == there
    return is_same and all(view.ref.storage != there.ref.storage for view in views_of(others))


def _copied(node: Node) -> Load | None:
    """What a kernel loads that does nothing but store it."""
    if not isinstance(node, Kernel) or node.after:
        return None
    match node.body.ops:
        case (load, store) if isinstance(load.attrs, Load) and isinstance(store.attrs, Store):
            return load.attrs
        case _:
            return None


def _destination(copy: Kernel, call: Extern, table: Mapping[str, Buffer]) -> View | None:
    """The part of a storage that a copy fills, as a tensor of the shape that the call gives; None if it has none."""
    (made,) = call.results
    load, store = (op.attrs for op in copy.body.ops)
    assert isinstance(made, View) and isinstance(load, Load) and isinstance(store, Store)
    symbols = [axis.symbol for axis in copy.axes]
    read, written = linear(load.index, symbols), linear(store.index, symbols)
    if read is None or written is None or table[store.ref.storage].dtype != made.dtype:
        return None
    if read[1] != made.offset or any(s.kind in ("axis", "value") for s in free_symbols(written[1])):
        return None
    axes = {axis.symbol: axis.extent for axis in copy.axes}
    stride: list[Expr] = []
    for size, step in zip(made.size, made.stride, strict=True):
        axis = next((s for s, extent in axes.items() if read[0][s] == step and extent == size), None)
        if as_int(size) == 1:
            stride.append(integer(1))
        elif axis is None:
            return None
        else:
            stride.append(written[0][axis])
            del axes[axis]
    there = View(store.ref, made.dtype, made.size, tuple(_row_major_where_single(made.size, stride)), written[1])
    return None if axes or not _is_plain(there, call.op) else there


def _row_major_where_single(size: tuple[Expr, ...], stride: list[Expr]) -> list[Expr]:
    """Of a dim of size 1 any stride is right; libraries look for the one that a dense tensor would have."""
    found = list(stride)
    for dim in reversed(range(len(size))):
        if as_int(size[dim]) == 1:
            found[dim] = integer(1) if dim + 1 == len(size) else found[dim + 1] * size[dim + 1]
    return found


def _is_plain(view: View, op: str) -> bool:
    """Whether an operator fills a layout without a copy: rows of elements in order, and of others one block."""
    inner: Expr = integer(1)
    is_dense = True
    for size, stride in zip(reversed(view.size), reversed(view.stride), strict=True):
        is_dense = is_dense and stride == inner
        inner = stride * size
    return is_dense or (op in TAKE_ROWS and view.stride[-1] == integer(1))
