"""The kernels that one kernel becomes when its reductions are cut.

Takes a kernel, a cut and the buffers. Gives its pieces in order and the buffers between them. Gives None where a piece
would read memory that an earlier piece has overwritten. Refuses nothing.

For a softmax over one long row, `total = sum(exp(x - max(x)))`, the pieces are:

- `k0`: the maximum of each part of x;
- `k0_join`: the maximum of these maxima;
- `k0_parts2`: the sum of exp(x - maximum) over each part;
- `k0_join2`: the sum of these sums;
- `k0_map`: exp(x - maximum) / total for each element.

Where the maximum and the sum are one online softmax, `k0` computes the maximum and the sum of each part, `k0_join`
joins both, and `k0_map` follows.

The reductions of a kernel are computed in passes: each pass needs the results of those before it. A pass is one piece
for the parts and one that joins them. What a later piece needs of the joined results, it loads. All else it loads or
computes again, unless an earlier piece has stored it. Where the last part of a row may be shorter, the elements beyond
the end of the row are not loaded, and enter a reduction as its identity.

A scan is cut alike (`scan_pieces.py`): `k0` computes the total of each block of a row, `k0_ends` scans the totals, and
each later piece that needs the scan computes it block by block, on top of the end of the block before. Where the last
block may be shorter, `k0` scans the blocks and stores that, so that the last piece loads it and walks the row as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from minductor.analysis.domain import extents_of, product
from minductor.analysis.passes_over import pass_numbers
from minductor.core.dtypes import BOOL, DType
from minductor.core.expressions.expr import Expr, Symbol, as_int, floordiv, free_symbols, integer, mod, substitute
from minductor.ir.program.build import Builder, combine, softmax_shift
from minductor.ir.program.needed import needed
from minductor.ir.program.nodes import (
    Axis,
    Buffer,
    Check,
    Constant,
    Kernel,
    LiteralValue,
    Load,
    Masked,
    Project,
    Reduce,
    Ref,
    Round,
    Scan,
    Store,
    axis_over,
    reads,
    writes,
)
from minductor.passes.rewriting.prune import prune_body
from minductor.passes.split.scan_pieces import COMMUTATIVE, block_before, last_element, scan_on_top
from minductor.passes.split.wanted_cut import Cut

PARTS = "parts"  # stands for the new axis of the parts, beside the names of the kernel's axes


class Pieces(NamedTuple):
    """The kernels that replace one kernel, in order, and the buffers through which they pass values."""

    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]


def cut_kernel(kernel: Kernel, cut: Cut, table: Mapping[str, Buffer], *, is_held: bool = False) -> Pieces | None:
    """The pieces of a kernel. Stores come as early as they can, or last if a piece needs what they overwrite.

    `is_held`: a piece reduces a part of an online softmax twice, for its maximum and for its sum, and not once by a
    combine of three values. That is faster where a program holds the part in registers.
    """
    for is_early in (True, False) if cut.is_exact else (False,):
        pieces = _Cutter(kernel, cut, table, is_early=is_early, is_held=is_held).pieces()
        if _is_in_order(pieces.kernels):
            return pieces
    return None


def _is_in_order(kernels: Sequence[Kernel]) -> bool:
    """Whether the kernels make the versions of each storage in order, and read no version after the next is made."""
    newest: dict[str, int] = {}
    for ref in (ref for kernel in kernels for ref in writes(kernel)):
        newest[ref.storage] = min(newest.get(ref.storage, ref.version - 1), ref.version - 1)
    for kernel in kernels:
        if any(newest.get(ref.storage, ref.version) != ref.version for ref in reads(kernel)):
            return False
        for ref in writes(kernel):
            if ref.version != newest[ref.storage] + 1:
                return False
            newest[ref.storage] = ref.version
    return True


def _is_checked(index: Expr) -> bool:
    """Whether data decide an index."""
    return any(symbol.kind == "value" for symbol in free_symbols(index))


class _Saved(NamedTuple):
    """A new buffer between two pieces. `names`: of the axes along its dimensions."""

    buffer: Buffer
    names: tuple[str, ...]

    @property
    def ref(self) -> Ref:
        return Ref(self.buffer.name, 0)

    def element(self, at: Mapping[str, Expr]) -> Expr:
        """The index of the element at a point; `at` has the coordinate along each axis."""
        return sum((s * at[name] for s, name in zip(self.buffer.stride, self.names, strict=True)), start=integer(0))


class _Piece:
    """One piece under construction. `at`: by the name of an old axis, or PARTS, the coordinate in the piece's axes.

    `exists`: the value that tells whether a point lies within its row; None if all points do.
    """

    def __init__(self, axes: Sequence[Axis], at: dict[str, Expr], mapping: Mapping[Symbol, Expr]) -> None:
        self.axes = tuple(axes)
        self.at = at
        self.mapping = dict(mapping)
        self.b = Builder([axis.symbol for axis in axes], extents_of(axes))
        self.places: dict[int, int] = {}  # by position in the kernel that is cut, the position here
        self.scanned: dict[int, list[int]] = {}  # by position of a scan there, the positions of its values here
        self.exists: int | None = None

    def names(self, wanted: Iterable[str]) -> list[str]:
        """The names that the piece has for axes of the kernel, or for PARTS."""
        return [at.name for name in wanted if isinstance(at := self.at[name], Symbol)]

    def load(self, saved: _Saved, at: Mapping[str, Expr] | None = None) -> int:
        """The element of a buffer at this point, or at another one."""
        return self.b.load(saved.ref, saved.element(at or self.at), saved.buffer.dtype)

    def store(self, saved: _Saved, value: int) -> None:
        self.b.store(saved.ref, saved.element(self.at), value)

    def if_exists(self, value: int, other: LiteralValue) -> int:
        """`value` within the row, `other` beyond its end."""
        if self.exists is None:
            return value
        return self.b.op("where", self.exists, value, self.b.constant(other, self.b.dtype(value)))

    def softmax(self, element: int, axes: Sequence[str]) -> tuple[int, int, int]:
        """What an online softmax carries behind these axes, by two reductions: maximum, shift, sum of exp(x - shift).

        `element`: the position of x in the kernel that is cut.
        """
        b, x = self.b, self.places[element]
        top = b.reduce([self.if_exists(x, -inf)], axes, combine("max", b.dtype(x)))
        shift = softmax_shift(b, top)
        term = self.if_exists(b.op("exp", b.op("sub", x, shift)), 0.0)
        return top, shift, b.reduce([term], axes, combine("sum", b.dtype(x)))

    def load_if_exists(self, b: Builder, wanted: Load, dtype: DType) -> int | None:
        """A load within the row only; for what the piece computes in vain beyond its end, a 0, or 1 as an integer."""
        if self.exists is None or b is not self.b:  # a masked op has its own condition
            return None
        region = b.region()
        value = region.load(wanted.ref, wanted.index, dtype)
        other = 0.0 if dtype.kind == "float" else False if dtype == BOOL else 1
        return b.masked(self.exists, (), region.build([value]), other, dtype)


class _Cutter:
    """Cuts one kernel. `is_early`: whether stores come before the last piece where their values are known before."""

    def __init__(self, kernel: Kernel, cut: Cut, table: Mapping[str, Buffer], *, is_early: bool, is_held: bool) -> None:
        self.kernel, self.cut, self.table, self.is_early, self.is_held = kernel, cut, table, is_early, is_held
        self.ops = kernel.body.ops
        self.axes = {axis.name: axis for axis in kernel.axes}
        cut_axes = {cut.axis, *cut.whole}  # reductions over others belong to one row of a part, as pointwise ops do
        self.reduces = [p for p, op in enumerate(self.ops) if not cut_axes.isdisjoint(op.reduced_axes)]
        self.scans = [p for p, op in enumerate(self.ops) if isinstance(op.attrs, Scan)]
        self.joined = sorted((*self.reduces, *self.scans))
        self.reduced = {name for p in self.reduces for name in self.ops[p].reduced_axes}
        self.reduced.update(op.attrs.axis for op in self.ops if isinstance(op.attrs, Scan))
        self.rows = [name for name in self.axes if name not in self.reduced]
        self.passes = pass_numbers(self.ops, range(len(self.ops)), lambda p: p in self.joined)
        self.effects = [p for p, op in enumerate(self.ops) if op.is_effect]
        self.last = max(self.passes[p] for p in self.joined)
        self.device = next(table[ref.storage].device for ref in (*writes(kernel), *reads(kernel)))
        self.partials = {p: [self.partial(p, n) for n in range(len(self.ops[p].args))] for p in self.joined}
        self.ends = {p: [self.end(p, n) for n in range(len(self.ops[p].args))] for p in self.scans}
        self.statistics: dict[int, _Saved] = {}
        self.stored = self.stored_values()
        self.kept = self.kept_statistics()

    def pieces(self) -> Pieces:
        """All pieces. The last one is made first, since the pieces before it have to save what it needs."""
        made: list[Kernel] = []
        mapped = [p for p in self.effects if self.varies(p) and self.pass_of_effect(p) > self.last]
        if mapped:
            made.append(self.map(mapped))
        for number in range(self.last, -1, -1):
            made += (*reversed(self.joins(number)), self.parts(number))
        groups = [*self.partials.values(), *self.ends.values(), self.statistics.values()]
        saved = [each for group in groups for each in group]
        own = {each.buffer.name for each in saved}
        kernels = [
            kernel if any(ref.storage in own for ref in reads(kernel)) else replace(kernel, after=self.kernel.after)
            for kernel in reversed(made)
        ]
        return Pieces(tuple(kernels), tuple(each.buffer for each in saved))

    # --- questions about ops

    def varies(self, position: int) -> bool:
        """Whether the value of an op varies along a row."""
        return not self.reduced.isdisjoint(self.ops[position].axes)

    def level(self, position: int) -> int:
        """The number of passes over a row before the value of an op is known."""
        return self.passes[position] + (position in self.joined)

    def is_reducible(self, scan: int) -> bool:
        """Whether each piece scans the blocks itself, and the first one only reduces them, in any order."""
        attrs = self.ops[scan].attrs
        return self.cut.is_exact and isinstance(attrs, Scan) and attrs.combine.name in COMMUTATIVE

    def pass_of_effect(self, position: int) -> int:
        """The pass in which an effect happens; one more than the last pass for those of the last piece."""
        known = self.passes[position]
        if self.varies(position):
            return known if self.is_early else self.last + 1
        return max(0, known - 1)

    def is_statistic(self, position: int, level: int) -> bool:
        """Whether a value of a row is joined within `level` passes, so that the pieces behind them can load it."""
        is_value = self.ops[position].dtype is not None and not isinstance(self.ops[position].attrs, Check)
        return is_value and not self.varies(position) and 0 < self.level(position) <= level

    def stored_values(self) -> dict[int, tuple[int, Store]]:
        """By position of a value that is stored before the last piece: in which pass, and its store."""
        found: dict[int, tuple[int, Store]] = {}
        for effect in self.effects if self.is_early else ():
            store = self.ops[effect].attrs
            value = self.ops[effect].args[0]
            if not isinstance(store, Store) or not self.varies(value) or _is_checked(store.index):
                continue
            dtype = self.table[store.ref.storage].dtype
            for p, op in enumerate(self.ops):
                is_same = p == value and op.dtype == dtype and not isinstance(op.attrs, Load | Constant)
                if is_same or (op.args == (value,) and op.attrs == Round(dtype)):
                    found[p] = self.pass_of_effect(effect), store
        return found

    def kept_statistics(self) -> dict[int, Store]:
        """By position of a value of each row: its store into a buffer of the program, in which later pieces find it."""
        found: dict[int, Store] = {}
        for effect in self.effects:
            store, value = self.ops[effect].attrs, (*self.ops[effect].args, -1)[0]
            if not isinstance(store, Store) or self.varies(effect) or _is_checked(store.index) or store.ref.version:
                continue
            buffer = self.table[store.ref.storage]
            if buffer.kind == "local" and buffer.dtype == self.ops[value].dtype:
                found.setdefault(value, store)
        return found

    # --- buffers

    def save(self, kind: str, number: int, dtype: DType, names: Sequence[str]) -> _Saved:
        """A new row-major buffer with a dimension for each of these axes."""
        size = tuple(self.extents_in(names)[name] for name in names)
        stride = tuple(product(size[n + 1 :]) for n in range(len(size)))
        name = f"{self.kernel.name}_{kind}{number}"
        return _Saved(Buffer(name, dtype, size, stride, device=self.device), tuple(names))

    def partial(self, position: int, number: int) -> _Saved:
        """The buffer for the parts of one of the values that a reduction or scan carries."""
        op = self.ops[position]
        dtype = self.ops[op.args[number]].dtype
        assert dtype is not None
        place = sum(len(self.ops[p].args) for p in self.joined if p < position) + number
        if position in self.scans:  # of the totals; of all elements if blocks cannot be reduced
            rows = [name for name in op.axes if name not in self.reduced]
            return self.save(
                "part", place, dtype, (*rows, PARTS, *(() if self.is_reducible(position) else (self.cut.axis,)))
            )
        return self.save("part", place, dtype, (*self.cut.whole, PARTS, *op.axes))

    def end(self, scan: int, number: int) -> _Saved:
        """The buffer for what one of the values of a scan is at the end of each part."""
        partial = self.partials[scan][number]
        names = [name for name in partial.names if name != self.cut.axis]
        return self.save("end", int(partial.buffer.name.rpartition("part")[2]), partial.buffer.dtype, names)

    def statistic(self, position: int) -> _Saved:
        """The buffer for a value of each row."""
        if position not in self.statistics:
            op = self.ops[position]
            assert op.dtype is not None
            self.statistics[position] = self.save("row", len(self.statistics), op.dtype, op.axes)
        return self.statistics[position]

    # --- pieces

    def parts(self, number: int) -> Kernel:
        """The piece that reduces each part in one of the passes."""
        cut, axis = self.cut, self.axes[self.cut.axis]
        gone = {*cut.whole, *self.rows, *((cut.axis,) if as_int(cut.block) == 1 else ())}
        inner = [name for name in self.axes if name not in gone]
        piece = self.piece((*cut.whole, PARTS, *self.rows, *inner))
        joined = [p for p in self.joined if self.passes[p] == number]
        b = piece.b
        b.node = self.ops[joined[0]].node
        if not cut.is_exact:
            piece.exists = b.op("lt", b.index(piece.mapping[axis.symbol]), b.index(axis.extent))
        effects = [p for p in self.effects if self.varies(p) and self.pass_of_effect(p) == number]
        self.build(piece, {*effects, *(a for p in joined for a in self.ops[p].args)}, number)
        for p in joined:
            op = self.ops[p]
            assert isinstance(op.attrs, Reduce | Scan)
            b.node = op.node
            if self.is_held and op.attrs.combine.name == "online_softmax":
                for saved, value in zip(self.partials[p], piece.softmax(op.args[0], piece.names(inner)), strict=True):
                    piece.store(saved, value)
                continue
            terms = zip(op.args, op.attrs.combine.identity, strict=True)
            values = [piece.if_exists(piece.places[a], identity) for a, identity in terms]
            if isinstance(op.attrs, Scan) and not self.is_reducible(p):
                total = b.scan(values, piece.names((cut.axis,))[0], op.attrs.combine, reverse=op.attrs.reverse)
            else:
                total = b.reduce(values, piece.names(inner), op.attrs.combine)
            for n, saved in enumerate(self.partials[p]):
                piece.store(saved, b.project(total, n))
        return self.done(piece, f"_parts{number + 1}" if number else "")

    def joins(self, number: int) -> list[Kernel]:
        """The pieces that join the parts of a pass, and do what needs the joined values and not the row.

        That is one piece, or several that do the same for different reductions: `bundle` makes one launch of all pieces
        of a program that do the same.
        """
        effects = [p for p in self.effects if not self.varies(p) and self.pass_of_effect(p) == number]
        wanted = [*effects, *(p for p in self.statistics if self.level(p) == number + 1)]
        scans = [p for p in self.scans if self.passes[p] == number]
        ends = [self.scan_totals(scans, number)] if scans else []
        groups = self.by_reduction(wanted)
        if len(groups) > 1:
            made = [self.join(group, number, f"_{n}" if n else "") for n, group in enumerate(groups)]
            written = [ref for kernel in made for ref in writes(kernel)]
            is_alike = len({tuple((op.name, op.dtype) for op in kernel.body.ops) for kernel in made}) == 1
            if is_alike and len(set(written)) == len(written):  # one kernel makes each version of a storage
                return [*ends, *made]
        return [*ends, self.join(wanted, number, "")] if wanted or not scans else ends

    def scan_totals(self, scans: Sequence[int], number: int) -> Kernel:
        """The piece that scans the totals of the parts, for the scans of a pass."""
        piece = self.piece((*self.rows, PARTS))
        for p in scans:
            scan = self.ops[p].attrs
            assert isinstance(scan, Scan)
            piece.b.node = self.ops[p].node
            (along,) = piece.names((PARTS,))
            there = piece.at | {self.cut.axis: last_element(scan, self.cut.block)}
            totals = [piece.load(saved, there) for saved in self.partials[p]]
            scanned = piece.b.scan(totals, along, scan.combine, reverse=scan.reverse)
            for n, saved in enumerate(self.ends[p]):
                piece.store(saved, piece.b.project(scanned, n))
        return self.done(piece, f"_ends{number + 1 if number else ''}")

    def by_reduction(self, wanted: Sequence[int]) -> list[list[int]]:
        """The ops that are wanted, in groups that need no reduction in common."""
        groups: list[tuple[set[int], list[int]]] = []
        for p in wanted:
            uses = {q for q in needed([p], lambda q: self.ops[q].args) if q in self.reduces}
            common = [group for group in groups if not group[0].isdisjoint(uses)]
            merged = uses.union(*(group[0] for group in common)), [*(q for group in common for q in group[1]), p]
            groups = [*(group for group in groups if group not in common), merged]
        return [group[1] for group in groups]

    def join(self, wanted: Sequence[int], number: int, suffix: str) -> Kernel:
        """A piece that joins the parts of a pass for some ops that are wanted: effects, and values to save."""
        piece = self.piece((*self.rows, *self.cut.whole, PARTS))
        self.build(piece, wanted, number)
        for p in wanted:
            if p in self.statistics:
                piece.b.node = self.ops[p].node
                piece.store(self.statistic(p), piece.places[p])
        return self.done(piece, f"_join{number + 1 if number else ''}{suffix}")

    def map(self, effects: Collection[int]) -> Kernel:
        """The piece that goes over the row again, when all its reductions are known."""
        at: dict[str, Expr] = {name: axis.symbol for name, axis in self.axes.items()}
        if self.scans and self.cut.is_exact:
            piece = self.piece((*self.rows, PARTS, self.cut.axis))
        else:
            along, block = at[self.cut.axis], self.cut.block
            piece = _Piece(self.kernel.axes, at | {PARTS: floordiv(along, block), self.cut.axis: mod(along, block)}, {})
        self.build(piece, effects, self.last + 1)
        return self.done(piece, "_map")

    def extents_in(self, names: Sequence[str]) -> dict[str, Expr]:
        """The extents of axes; beside PARTS the axis that is cut has those of a block."""
        extents = {name: axis.extent for name, axis in self.axes.items()} | {PARTS: self.cut.count}
        return extents | {self.cut.axis: self.cut.block} if PARTS in names else extents

    def piece(self, names: Sequence[str]) -> _Piece:
        """An empty piece over these axes of the kernel, some of which may be cut."""
        cut, extents = self.cut, self.extents_in(names)
        axes = {name: axis_over(f"i{n}", extents[name]) for n, name in enumerate(names)}
        at: dict[str, Expr] = {name: axis.symbol for name, axis in axes.items()}
        mapping = {self.axes[name].symbol: where for name, where in at.items() if name != PARTS}
        inside = at.get(cut.axis, integer(0))
        mapping[self.axes[cut.axis].symbol] = at[PARTS] * cut.block + inside
        return _Piece(tuple(axes.values()), at, mapping)

    def build(self, piece: _Piece, wanted: Iterable[int], level: int) -> None:
        """Adds the ops that are wanted, and those that they need. What earlier pieces saved or stored is loaded."""

        def is_loaded(p: int) -> bool:
            return self.is_statistic(p, level) or (p in self.stored and self.stored[p][0] < level)

        def operands(p: int) -> Sequence[int]:
            is_known = is_loaded(p) or p in self.reduces or (p in self.scans and not self.is_reducible(p))
            return () if is_known else self.ops[p].args

        for p in needed(wanted, operands):
            op = self.ops[p]
            piece.b.node = op.node
            if self.is_statistic(p, level) and p not in self.kept:
                piece.places[p] = piece.load(self.statistic(p))
            elif is_loaded(p):
                store = self.kept[p] if p in self.kept else self.stored[p][1]
                assert op.dtype is not None
                piece.places[p] = piece.b.load(store.ref, substitute(store.index, piece.mapping), op.dtype)
            elif p in self.reduces:
                assert isinstance(op.attrs, Reduce)
                values = [piece.load(saved) for saved in self.partials[p]]
                piece.places[p] = piece.b.reduce(values, piece.names((*self.cut.whole, PARTS)), op.attrs.combine)
            elif isinstance(op.attrs, Scan):
                piece.scanned[p] = self.scanned(piece, p)
                piece.places[p] = piece.scanned[p][0]
            elif isinstance(op.attrs, Project) and op.args[0] in piece.scanned:
                piece.places[p] = piece.scanned[op.args[0]][op.attrs.number]
            else:
                piece.places[p] = self.moved(piece, p)

    def scanned(self, piece: _Piece, position: int) -> list[int]:
        """Adds a scan to a piece, whose parts each start with the end of the one before."""
        op, part, count = self.ops[position], piece.at[PARTS], self.cut.count
        scan = op.attrs
        assert isinstance(scan, Scan)
        if self.is_reducible(position):
            (along,) = piece.names((self.cut.axis,))
            scanned = piece.b.scan([piece.places[a] for a in op.args], along, scan.combine, reverse=scan.reverse)
            inside = [piece.b.project(scanned, n) for n in range(len(op.args))]
        else:
            inside = [piece.load(saved) for saved in self.partials[position]]
        there = piece.at | {PARTS: block_before(part, count, scan)}
        before = [piece.load(saved, there) for saved in self.ends[position]]
        return scan_on_top(piece.b, inside, before, scan, part, count)

    def moved(self, piece: _Piece, position: int) -> int:
        """Adds one op to a piece; what must not happen beyond the end of a row happens only within it."""
        op, b = self.ops[position], piece.b
        first, *rest = [piece.places[a] for a in op.args] or [0]
        if piece.exists is not None and self.cut.axis in op.axes:
            if isinstance(op.attrs, Check):
                first = piece.if_exists(first, 0)
            elif isinstance(op.attrs, Masked):
                first = b.op("logical_and", first, piece.exists)
        is_within = isinstance(op.attrs, Load) and self.cut.axis not in op.axes
        load = None if is_within else piece.load_if_exists
        args = (first, *rest)[: len(op.args)]
        return b.moved(op, args, piece.mapping, load)

    def done(self, piece: _Piece, suffix: str) -> Kernel:
        """The finished kernel of a piece, whose name is that of the kernel and a suffix."""
        body = prune_body(piece.b.build())
        used = {name for op in body.ops for name in op.loop_axes}
        axes = tuple(axis for axis in piece.axes if axis.name in used)
        return Kernel(self.kernel.name + suffix, axes, body, self.kernel.origins)
