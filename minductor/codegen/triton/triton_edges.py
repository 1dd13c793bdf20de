"""The statements of a Triton kernel that holds a row in two blocks: a bulk that starts at a vector, and its edges.

Takes a Kernel whose tile loop is `aligned` (see aligned_rows.py). Gives the lines of its function, as `TilePrinter`
does. Refuses what Triton cannot write (Unwritable).

Each op along the row is written twice, for the bulk and for the edges. A reduction combines what it gives of both. An
access that is aligned with the reference adds the lanes of the block to the first element of the bulk, which Triton is
told to be a multiple of a vector, so that a thread moves 16 bytes at once. Every other access uses the axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from minductor.codegen.triton.triton_launch import Dim
from minductor.codegen.triton.triton_tile import TilePrinter
from minductor.codegen.triton.triton_values import index_text
from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Symbol, expand, free_symbols, substitute, symbol
from minductor.ir.program.aligned_rows import edge_block, is_aligned_with, row_start
from minductor.ir.program.loops import Loop, Step, loops, moved
from minductor.ir.program.nodes import Axis, Body, Index, Kernel, Load, Masked, Op, Reduce, Store, all_ops

EDGE = "_edge"  # ends the names of the values of the edges


def tile_printer(kernel: Kernel, symbol: str, dtypes: Mapping[str, DType], prefix: str = "") -> TilePrinter:
    """The printer of one kernel, or of one kernel of a bundle."""
    steps = () if kernel.schedule is None else kernel.schedule.steps
    aligned = next((loop for loop in loops(steps) if loop.aligned), None)
    if aligned is None:
        return TilePrinter(kernel, symbol, dtypes, prefix)
    return AlignedPrinter(kernel, symbol, dtypes, prefix, aligned)


class AlignedPrinter(TilePrinter):
    """Writes the lines of a kernel with an aligned row; itself it writes those of the bulk."""

    def __init__(self, kernel: Kernel, symbol: str, dtypes: Mapping[str, DType], prefix: str, loop: Loop) -> None:
        super().__init__(kernel, symbol, dtypes, prefix)
        self.row = next(axis for axis in kernel.axes if axis.name == loop.axis)
        self.vector = loop.aligned
        start = row_start(self.ops[loop.reference], self.row.symbol)
        assert start is not None and self.products is None
        self.start = start
        self.edges = EdgePrinter(_of_edges(kernel, self.row), symbol, dtypes, loop.aligned)
        self.edges.out, self.edges.functions = self.out, self.functions
        self.edges.wide = self.wide

    def is_masked(self, axis: str) -> bool:
        return axis == self.row.name or super().is_masked(axis)

    def add_axis(self, dim: Dim, place: str) -> None:
        if dim.axis == self.row.name:
            self.add_row(dim)
        else:
            super().add_axis(dim, place)

    def add_row(self, dim: Dim) -> None:
        """Adds the elements of the axis in the bulk and in the edges, and which lanes of their blocks are in them."""
        row, edge, vector, length = dim.axis, dim.axis + EDGE, self.vector, index_text(self.row.extent)
        start = index_text(self.start)
        whole = start if start.isidentifier() or (" + " not in start and " - " not in start) else f"({start})"
        self.add(
            f"# the bulk of a row starts at a multiple of {vector} elements; its edges are the elements around it",
            f"{row}_head = ({vector} - {whole} % {vector}) % {vector}",
            f"{row}_bulk = ({length} - {row}_head) // {vector} * {vector}",
            f"{row}_first = tl.multiple_of({start} + {row}_head, {vector})",
            f"{row}_lanes = {self.lanes(dim)}",
            *([f"{row} = {row}_head + {row}_lanes"] if self.is_used() else []),
            f"{row}_mask = {row}_lanes < {row}_bulk",
            f"{edge}_lanes = tl.arange(0, {edge_block(vector)}){self.wide}",
            f"{edge} = tl.where({edge}_lanes < {row}_head, {edge}_lanes, {row}_bulk + {edge}_lanes)",
            f"{edge}_mask = {edge} < {length}",
        )

    def is_used(self) -> bool:
        """Whether an op needs the elements of the axis in the bulk, and not the lanes of the block."""
        along = (op for op in self.ops if self.row.name in op.axes)
        return any(self.needs(inner, is_masked=inner is not op) for op in along for inner in all_ops(Body((op,))))

    def needs(self, op: Op, *, is_masked: bool) -> bool:
        match op.attrs:
            case Index(expr):
                return self.row.symbol in free_symbols(expr)
            case Load(_, index) | Store(_, index):
                return not self.is_aligned(index) and (is_masked or self.row.symbol in free_symbols(index))
            case _:
                return False

    def is_aligned(self, index: Expr) -> bool:
        return is_aligned_with(index, self.row.symbol, self.start, self.vector)

    def place(self, storage: str, index: Expr, axes: Iterable[str]) -> str:
        if not self.is_aligned(index):
            return super().place(storage, index, axes)
        row = self.row.name
        apart = expand(index - self.start - self.row.symbol)
        terms = [self.pointers[storage], *([] if apart == 0 else [index_text(apart)]), f"{row}_first", f"{row}_lanes"]
        return " + ".join(terms)

    def steps(self, steps: Sequence[Step]) -> None:
        edges = self.edges
        for step in steps:
            assert isinstance(step, int)
            first = self.count
            super().steps((step,))
            if self.row.name not in self.ops[step].loop_axes:
                edges.names[step] = self.names[step]
                continue
            edges.count, edges.is_marked = first, self.is_marked
            edges.steps((step,))
            if isinstance(self.ops[step].attrs, Reduce):
                self.names[step] = edges.names[step] = self.combined(step)

    def combined(self, position: int) -> tuple[str, ...]:
        """The results of a reduction, of those of the bulk and of the edges."""
        op = self.ops[position]
        assert isinstance(op.attrs, Reduce)
        ours, theirs, how = self.names[position], self.edges.names[position], op.attrs.combine
        names = tuple(self.label() for _ in ours)
        if how.name == "sum" and len(names) == 1:
            self.add(f"{names[0]} = {ours[0]} + {theirs[0]}")
        else:
            function = self.function(how, [self.dtype_of(a) for a in op.args])
            self.add(f"{', '.join(names)} = {function}({', '.join((*ours, *theirs))})")
        return names


class EdgePrinter(TilePrinter):
    """Writes the lines of the edges, with names that end with EDGE. `vector`: the elements of one."""

    def __init__(self, kernel: Kernel, symbol: str, dtypes: Mapping[str, DType], vector: int) -> None:
        super().__init__(kernel, symbol, dtypes)
        size = edge_block(vector)
        self.tile = tuple(replace(d, parameter=str(size), block=size) if d.is_reduced else d for d in self.tile)
        self.dims = [dim for dim in self.tile if dim.parameter]

    def label(self) -> str:
        return super().label() + EDGE

    def is_masked(self, axis: str) -> bool:
        return axis.endswith(EDGE) or super().is_masked(axis)


def _of_edges(kernel: Kernel, row: Axis) -> Kernel:
    """The kernel with another name for the axis of its row."""
    edge = symbol(row.name + EDGE, "axis", row.symbol.lo, row.symbol.hi)
    assert kernel.schedule is not None
    names = {axis.name: axis.name for axis in kernel.axes} | {row.name: edge.name}
    schedule = moved(kernel.schedule, range(len(kernel.body.ops)), names)
    axes = tuple(replace(axis, symbol=edge) if axis == row else axis for axis in kernel.axes)
    return replace(kernel, axes=axes, body=_renamed(kernel.body, row.symbol, edge), schedule=schedule, access=())


def _renamed(body: Body, old: Symbol, new: Symbol) -> Body:
    """A body that runs along another axis."""
    return replace(body, ops=tuple(_renamed_op(op, old, new) for op in body.ops))


def _renamed_op(op: Op, old: Symbol, new: Symbol) -> Op:
    attrs = op.attrs
    match attrs:
        case Load(_, index) | Store(_, index):
            attrs = replace(attrs, index=substitute(index, {old: new}))
        case Index(expr):
            attrs = Index(substitute(expr, {old: new}))
        case Reduce(axes, how):
            attrs = Reduce(tuple(new.name if axis == old.name else axis for axis in axes), how)
        case Masked(body, other):
            attrs = Masked(_renamed(body, old, new), other)
        case _:
            pass
    return replace(op, attrs=attrs, axes=tuple(new.name if axis == old.name else axis for axis in op.axes))
