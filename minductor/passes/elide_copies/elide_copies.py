"""Lets an `out=` call write its result straight into the storage to which a kernel would copy it.

Takes a program after inlining. Gives it without kernels that only copy the result of an `out=` call, for example into a
slice of a concatenation or into an input that the user writes to; the call writes there itself. Refuses (leaves as they
are) results that another node reads, targets that the call reads as well, targets of another dtype, layouts for which
the operator would make a copy of its own, and calls whose operands change before the copy.
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
from minductor.target import Env

# matrix products; they accept an `out` whose rows are contiguous but apart from each other
ACCUMULATING = frozenset(("aten.addmm.out", "aten.baddbmm.out"))
ACCEPT_ROW_STRIDE = ACCUMULATING | {"aten.mm.out", "aten.bmm.out"}


def elide_copies(program: Program, env: Env) -> Program:
    """The program without copies of results that their calls can write in place; the same object if there are none."""
    if not env.options.fuse or len({buffer.device for buffer in program.buffers}) > 1:
        return program
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
        source = _copied_load(copy)
        if source is None or (maker := makers.get(source.ref)) is None or source.ref.storage in kept:
            continue
        call = program.nodes[maker]
        assert isinstance(call, Extern) and isinstance(copy, Kernel)
        target = _destination(copy, call, table) if users[source.ref.storage] == [maker, position] else None
        read = {ref.storage for ref in reads(call)}
        if target is None or (target.ref.storage in read and not _accumulates_into(call, target)):
            continue
        if any(ref.storage in read for node in program.nodes[maker:position] for ref in writes(node)):
            continue
        nodes[position] = replace(call, results=(target,), origins=(*call.origins, *copy.origins))
        nodes[maker] = None
        reason = "the call writes its result where the kernel would copy it"
        notes.append(MergedKernel("elide_copies", copy.name, call.name, reason))
    if not notes:
        return program
    return with_nodes(replace(program, notes=(*program.notes, *notes)), tuple(n for n in nodes if n is not None))


def _accumulates_into(call: Extern, target: View) -> bool:
    """Whether a call reads a target only to add a matrix product to it, element by element, as addmm does."""
    if call.op not in ACCUMULATING or not isinstance(old := call.args[0], View):
        return False
    others = (*call.args[1:], *(value for _, value in call.kwargs))
    is_same = replace(old, ref=target.ref) == target
    return is_same and all(view.ref.storage != target.ref.storage for view in views_of(others))


def _copied_load(node: Node) -> Load | None:
    """The load of a kernel that only copies; None for any other node."""
    if not isinstance(node, Kernel) or node.after:
        return None
    match node.body.ops:
        case (load, store) if isinstance(load.attrs, Load) and isinstance(store.attrs, Store):
            return load.attrs
        case _:
            return None


def _destination(copy: Kernel, call: Extern, table: Mapping[str, Buffer]) -> View | None:
    """The part of a storage that a copy fills, as a view of the call's result shape; None if it is not such a view."""
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
    target = View(store.ref, made.dtype, made.size, tuple(_row_major_where_single(made.size, stride)), written[1])
    return None if axes or not _is_filled_without_copy(target, call.op) else target


def _row_major_where_single(size: tuple[Expr, ...], stride: list[Expr]) -> list[Expr]:
    """The strides with those of dims of size 1 as in a contiguous tensor: any would do, but libraries check them."""
    found = list(stride)
    for dim in reversed(range(len(size))):
        if as_int(size[dim]) == 1:
            found[dim] = integer(1) if dim + 1 == len(size) else found[dim + 1] * size[dim + 1]
    return found


def _is_filled_without_copy(view: View, op: str) -> bool:
    """Whether an operator fills a layout without a copy: a dense one, or for matrix products one with dense rows."""
    inner: Expr = integer(1)
    is_dense = True
    for size, stride in zip(reversed(view.size), reversed(view.stride), strict=True):
        is_dense = is_dense and stride == inner
        inner = stride * size
    return is_dense or (op in ACCEPT_ROW_STRIDE and view.stride[-1] == integer(1))
