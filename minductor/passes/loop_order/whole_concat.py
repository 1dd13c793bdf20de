"""Makes one kernel, whose loop runs over the whole result, of the kernels that each store a slice of a concatenation.

Takes a program after fusion, for a GPU. Gives it with such a kernel for each concatenation some of whose slices have
rows that are no multiple of 16 bytes: where each slice has a kernel, threads load and store such rows element by
element; the kernel of the whole result stores several elements at once. It loads each slice under a mask. Refuses
(leaves as they are) slices that need more than loads and pointwise operations, layouts with gaps, sizes that are not
known, results with more than MAX_SLICES slices, and, with a `FusionRefusal`, those whose kernels take no longer alone.

For torch.cat([a, b], 1) with rows of 1000 and 2001 elements, element n of the result is computed as
where(n % 3001 < 1000, a[1000 * (n // 3001) + n % 3001], b[2001 * (n // 3001) + n % 3001 - 1000]).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import NamedTuple

from minductor.analysis.domain import extents_of, product, solve
from minductor.core.dtypes import BF16, F16, I64, DType
from minductor.core.expressions.expr import Expr, Symbol, as_int, floordiv, free_symbols, integer, linear, mod
from minductor.core.expressions.rewrite import simplify
from minductor.cost.kernel_seconds import Prices
from minductor.cost.shape import ROUND, WORD, Shape, Touch, Work
from minductor.ir.program import nodes as ir
from minductor.ir.program.build import Builder
from minductor.ir.program.signature import rename_storages
from minductor.passes.rewriting.concat_slices import Slice, StorageUses, moved_argument, with_versions
from minductor.passes.rewriting.prune import drop_effect, prune_body, with_nodes
from minductor.target import Env

MAX_SLICES = 8  # each program tests for each slice whether its elements lie in it
ALIGNED = 16  # bytes: rows that are a multiple of it are loaded and stored as fast alone
WALKED = 1024  # elements of a tile of the whole result
CHOICE = 3  # operations that choose a slice: two comparisons and a selection
POINTWISE = (ir.Load, ir.Store, ir.Constant, ir.Index, ir.Round)


class _Part(NamedTuple):
    """A slice over two axes: rows, and the elements of a row that lie in the slice.

    `kernel`: the kernel of the slice over these axes. `start`: where the slice begins in a row of the result.
    """

    kernel: ir.Kernel
    store: ir.Store
    start: int
    length: int


class _Whole(NamedTuple):
    """The result of a concatenation: its slices, its rows, the elements of a row, and the node behind all slices."""

    slices: tuple[Slice, ...]
    parts: tuple[_Part, ...]
    rows: int
    row: int
    last: int
    buffer: ir.Buffer


def whole_concat(program: ir.Program, env: Env) -> ir.Program:
    """The program with one kernel for each concatenation that is stored faster so; the same object if there is none."""
    if not env.target.is_gpu or len({buffer.device for buffer in program.buffers}) > 1:
        return program
    uses = StorageUses(program)
    prices = Prices(uses.table, env.target, program.hints)
    nodes: list[ir.Node | None] = list(program.nodes)
    notes: list[ir.FusionRefusal | ir.MergedKernel] = []
    moved: dict[ir.Ref, ir.Ref] = {}
    for storage in [name for name, count in uses.versions.items() if 1 < count <= MAX_SLICES]:
        whole = _find_whole(storage, uses)
        kernel = None if whole is None else _whole_kernel(whole)
        if whole is None or kernel is None:
            continue
        shapes = [prices.shape(each.kernel) for each in whole.slices]
        one = [_shape(whole, shapes)]
        first, *others = (each.kernel.name for each in whole.slices)
        slower = prices.slower(one, shapes)
        if slower is not None:
            reason, figures = f"one kernel for all slices would need more {slower.needs}", slower.figures("one", "each")
            notes += [ir.FusionRefusal("loop_order", first, other, reason, figures) for other in others]
            continue
        reason = "one kernel stores whole rows", prices.compared(one, shapes).figures("one", "each")
        notes += [ir.MergedKernel("loop_order", other, first, *reason) for other in others]
        for version in range(len(whole.slices)):
            nodes[uses.writer[ir.Ref(storage, version)]] = None
        nodes[whole.last] = kernel
        moved[ir.Ref(storage, len(whole.slices) - 1)] = ir.Ref(storage, 0)
    if not moved:
        return replace(program, notes=(*program.notes, *notes)) if notes else program
    kept = tuple(_with_versions(node, moved) for node in nodes if node is not None)
    outputs = tuple(moved_argument(output, moved) for output in program.outputs)
    return with_nodes(replace(program, outputs=outputs, notes=(*program.notes, *notes)), kept)


def _with_versions(node: ir.Node, moved: Mapping[ir.Ref, ir.Ref]) -> ir.Node:
    """The node with the only version of each whole result in place of the last of several."""
    if isinstance(node, ir.Kernel):
        return node if moved.keys().isdisjoint(ir.reads(node)) else rename_storages(node, moved)
    return with_versions(node, moved)


def _find_whole(storage: str, uses: StorageUses) -> _Whole | None:
    """The concatenation that fills a storage, if one kernel can do so and some slice is not aligned; else None."""
    buffer, last = uses.table[storage], ir.Ref(storage, uses.versions[storage] - 1)
    sizes = [as_int(size) for size in buffer.size]
    if buffer.kind != "local" or None in sizes or buffer.dtype.kind == "complex":
        return None
    if any(as_int(step) != as_int(product(buffer.size[n + 1 :])) for n, step in enumerate(buffer.stride)):
        return None
    found = uses.slices(storage)
    if found is None:
        return None
    earlier = {ref for reader in uses.readers.get(storage, ()) for ref in ir.reads(uses.nodes[reader])}
    if any(ref.storage == storage and ref != last for ref in earlier):
        return None
    dim, slices = found
    inner = as_int(product(buffer.size[dim + 1 :])) or 0
    rows, row = as_int(product(buffer.size[:dim])) or 0, (as_int(buffer.size[dim]) or 0) * inner
    if all(each.length * inner * buffer.dtype.itemsize % ALIGNED == 0 for each in slices):
        return None
    parts = [_part(each, rows, row, inner) for each in slices]
    known = tuple(part for part in parts if part is not None)
    return _Whole(slices, known, rows, row, max(uses.writers(storage)), buffer) if len(known) == len(parts) else None


def _part(part: Slice, rows: int, row: int, inner: int) -> _Part | None:
    """A slice over rows and the elements of a row; None if it needs more than loads and pointwise operations."""
    body = part.kernel.body
    if any(op.attrs is not None and not isinstance(op.attrs, POINTWISE) for op in body.ops):
        return None
    start, length = part.start * inner, part.length * inner
    axes = ir.axis_over("i0", integer(rows)), ir.axis_over("i1", integer(length))
    extents = extents_of(axes)
    point = solve(part.store.index, part.kernel.axes, axes[0].symbol * row + axes[1].symbol + start, extents)
    if point is None or any(axis.symbol not in point for axis in part.kernel.axes if as_int(axis.extent) != 1):
        return None
    mapping: dict[Symbol, Expr] = {axis.symbol: point.get(axis.symbol, integer(0)) for axis in part.kernel.axes}
    b = Builder([axis.symbol for axis in axes], extents)

    def load(b: Builder, wanted: ir.Load, dtype: DType) -> int:
        return b.load(wanted.ref, simplify(wanted.index, extents), dtype)

    b.splice(body, mapping, load)
    return _Part(replace(part.kernel, axes=axes, body=b.build()), part.store, start, length)


def _whole_kernel(whole: _Whole) -> ir.Kernel | None:
    """The kernel that computes each element of the result; None if the slices are values of several dtypes."""
    axis = ir.axis_over("i0", integer(whole.rows * whole.row))
    extents = extents_of((axis,))
    row, place = floordiv(axis.symbol, integer(whole.row)), simplify(mod(axis.symbol, integer(whole.row)), extents)
    b = Builder([axis.symbol], extents)
    ends = [next(op for op in part.kernel.body.ops if isinstance(op.attrs, ir.Store)) for part in whole.parts]
    b.node = ends[0].node
    at = b.index(place)
    values: list[int] = []
    for part, end in zip(whole.parts, ends, strict=True):
        b.node = end.node
        tests = [b.op("ge", at, b.constant(part.start, I64))] if part.start else []
        if part.start + part.length < whole.row:
            tests.append(b.op("lt", at, b.constant(part.start + part.length, I64)))
        test = tests[0] if len(tests) == 1 else b.op("logical_and", *tests)
        rows, columns = (each.symbol for each in part.kernel.axes)
        values.append(_value(b, part, test, {rows: simplify(row, extents), columns: place - part.start})[end.args[0]])
    if len({b.dtype(value) for value in values}) > 1:
        return None
    *before, value = values
    for part, other in zip(reversed(whole.parts[:-1]), reversed(before), strict=True):
        value = b.op("where", b.op("lt", at, b.constant(part.start + part.length, I64)), other, value)
    b.store(ir.Ref(whole.buffer.name, 0), axis.symbol, value)
    origins = tuple(dict.fromkeys(origin for each in whole.slices for origin in each.kernel.origins))
    return replace(whole.slices[0].kernel, axes=(axis,), body=prune_body(b.build()), origins=origins)


def _value(b: Builder, part: _Part, test: int, mapping: Mapping[Symbol, Expr]) -> list[int]:
    """Adds what a slice computes, its loads where the test holds; gives the position of each op."""

    def load(b: Builder, wanted: ir.Load, dtype: DType) -> int:
        region = b.region()
        other = False if dtype.kind == "bool" else 0.0 if dtype.kind == "float" else 0
        return b.masked(test, (), region.build([region.load(wanted.ref, wanted.index, dtype)]), other, dtype)

    return b.splice(part.kernel.body, mapping, load, effects=drop_effect)


# --- what it costs


def _shape(whole: _Whole, shapes: Sequence[Shape]) -> Shape:
    """The shape of the kernel of the whole result: each element is loaded from one slice.

    Its tiles are flat, so the axes are those of tiles. Threads load as many elements at once as the rows of the worst
    slice allow.
    """
    points, size = whole.rows * whole.row, whole.buffer.dtype.itemsize
    extents = -(-points // WALKED), WALKED
    every = 0b11
    touches = [Touch(whole.buffer.name, size, (WALKED, 1), every, points * size, points * size, is_store=True)]
    touches += _loads(whole, shapes, every)
    work: dict[int, float] = {}
    for each in (work for shape in shapes for work in shape.work):
        work[each.size] = work.get(each.size, 0) + each.operations
    stored = ROUND if whole.buffer.dtype in (F16, BF16) else 1
    work[WORD] = work.get(WORD, 0) + CHOICE * len(shapes) - stored * (len(shapes) - 1)  # each element is stored once
    return Shape(extents, tuple(touches), tuple(Work(every, size, 1, operations=each) for size, each in work.items()))


def _loads(whole: _Whole, shapes: Sequence[Shape], every: int) -> Iterator[Touch]:
    """The loads of all slices; the first of each slice count as one access, and so on."""
    found: dict[tuple[int, int | None, int], list[tuple[int, Touch]]] = {}
    for part, shape in zip(whole.parts, shapes, strict=True):
        loads = [touch for touch in shape.touches if not touch.is_store]
        for number, load in enumerate(ir.body_reads(part.kernel.body)):
            touch = next(each for each in loads if each.storage == load.ref.storage)
            split = linear(load.index, [axis.symbol for axis in part.kernel.axes])
            steps = [as_int(split[0][axis.symbol]) for axis in part.kernel.axes] if split is not None else [None, None]
            begin = as_int(split[1]) if split is not None and not free_symbols(split[1]) else None
            along = steps[1] if whole.rows == 1 or steps[0] is not None else None
            apart = gcd((steps[0] or 0) if whole.rows > 1 else 0, (begin or 0) - part.start * (along or 0))
            found.setdefault((number, along, touch.itemsize), []).append((apart, touch))
    for (number, along, size), each in found.items():
        total = sum(touch.size for _, touch in each)
        apart = gcd(*(step for step, _ in each))
        steps = (apart, along) if along in (0, 1) else (None, along)
        yield Touch(f"{whole.buffer.name}_{number}_{along}", size, steps, every, total, total)
