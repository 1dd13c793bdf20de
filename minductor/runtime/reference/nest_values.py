"""What the current iterations of a loop nest know: values, rows (arrays of values) and memory.

Takes a kernel and the state of its program. Gives the values that an op may read at the current iterations. Refuses
(WrongNest) to read a value that these iterations do not know, an effect that runs twice, and memory that is accessed in
a wrong order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minductor.core.expressions import expr as exprs
from minductor.core.expressions.rewrite import simplify_between
from minductor.ir.program import nodes as ir
from minductor.ir.program.loops import Loop, Step, positions
from minductor.runtime.reference.nest_memory import NOBODY, MemoryWatch
from minductor.runtime.reference.reference import KernelRun, State, as_real_numbers, torch_dtype


class WrongNest(Exception):
    """A loop nest that does not compute what its kernel's body says."""


class Value(NamedTuple):
    """A computed value: one tensor, or one for each of several results.

    `spans`: by kernel axis the elements that it has; None for an axis over which it does not vary. `written`: which
    elements exist; None if all do.
    """

    data: tuple[Tensor, ...]
    spans: tuple[range | None, ...]
    written: Tensor | None = None


@dataclass(slots=True)
class Carry:
    """The accumulators of one reduction or scan: a tensor for each value that it carries.

    `depth`: how many loops were open when they were made. `numbers`: for a reduction, the sum of the numbers of the
    elements that each accumulator holds; for a scan, the element that comes next.
    """

    position: int
    data: list[Tensor]
    numbers: Tensor
    spans: tuple[range | None, ...]
    depth: int
    is_array: bool  # whether there is one for each element of an axis that is not open


class NestValues(KernelRun):
    """One run of a kernel. Axes are numbered in the kernel's order.

    `at`: by axis the elements of the current iterations, or None if no loop over elements is open. `part`: by axis the
    elements of the open block, or all elements.
    """

    def __init__(self, state: State, kernel: ir.Kernel, chance: random.Random, *, is_gpu: bool) -> None:
        super().__init__(state, kernel.axes)
        if kernel.schedule is None:
            raise ValueError(f"kernel {kernel.name} has no schedule")
        self.kernel, self.ops, self.schedule = kernel, kernel.body.ops, kernel.schedule
        self.chance, self.is_gpu = chance, is_gpu
        self.products = {self.ops[p].args[0] for p in kernel.schedule.dots}
        self.number = {name: n for n, name in enumerate(self.names)}
        self.lengths = tuple(self.extents)
        self.elements = [self.symbols.pop(name) for name in self.names]
        self.points = {name: n for name, n in state.sizes.items() if isinstance(n, int) and not isinstance(n, bool)}
        self.needs: dict[exprs.Expr, tuple[str, ...]] = {}  # by expression, the names of its symbols
        self.at: list[range | None] = [None] * len(self.names)
        self.part = [range(n) for n in self.lengths]
        self.is_bounded = [exprs.as_int(axis.extent) is not None for axis in kernel.axes]
        self.extents = [1] * len(self.names)
        self.opened: tuple[Loop, ...] = ()
        self.scopes: list[dict[int, Value]] = []
        self.rows: dict[int, Value] = {}
        self.rows_in_results = {
            row: (attrs.ref, attrs.index)
            for row, store in self.schedule.rows_in_results
            if isinstance(attrs := self.ops[store].attrs, ir.Store)
        }
        self.row_places: dict[int, list[int]] = {}  # by the identity of a tuple of steps
        self.free: dict[int, bool] = {}  # by the identity of a loop
        self.carries: dict[int, Carry] = {}
        self.weights: dict[tuple[str, ...], Tensor] = {}
        self.unmasked: frozenset[int] = frozenset()
        self.piece: tuple[exprs.Symbol, exprs.Expr, exprs.Expr] | None = None
        self.position = -1
        self.thread, self.threads = NOBODY, 0
        self.times = {p: torch.zeros(self.shape(op.axes), dtype=torch.int64) for p, op in self.effects()}
        self.memory = MemoryWatch(kernel, self.open_storages())

    def open_storages(self) -> dict[str, int]:
        """By storage that the kernel writes, its elements. All versions that the kernel makes of one are one memory."""
        memory: dict[str, Tensor] = {}
        for ref in sorted(ir.writes(self.kernel)):
            if ref.storage not in memory:
                memory[ref.storage] = self.state.open(ref)
            self.state.flat[ref] = memory[ref.storage]
        return {name: as_real_numbers(flat).numel() for name, flat in memory.items()}

    def effects(self) -> Iterator[tuple[int, ir.Op]]:
        return ((p, op) for p, op in enumerate(self.ops) if op.is_effect)

    def shape(self, axes: Sequence[str]) -> list[int]:
        return [n if name in axes else 1 for name, n in zip(self.names, self.lengths, strict=True)]

    def fail(self, message: str) -> WrongNest:
        inside = " > ".join(f"{loop.kind} {loop.axis}" for loop in self.opened)
        return WrongNest(f"{self.kernel.name}: {message}{f' [in {inside}]' if inside else ''}")

    def named(self, position: int) -> str:
        return f"%{position} ({self.ops[position].name})"

    def value(self, position: int, user: int) -> tuple[Tensor, ...]:
        """The value of an op at the current iterations, where the op `user` reads it."""
        if position in self.carries and isinstance(self.ops[position].attrs, ir.Reduce):
            raise self.unread(user, position, "before its loop is complete")
        found = next((scope[position] for scope in reversed(self.scopes) if position in scope), None)
        is_row = found is None
        found = found or self.rows.get(position)
        if found is None:
            raise self.unread(user, position, "before it is computed here")
        where: list[slice] | None = None
        for n, span in enumerate(found.spans):
            at = self.at[n]
            if span is None or at is span or at == span:
                continue
            if at is None or at.start < span.start or at.stop > span.stop:
                raise self.unread(user, position, f"at an element of {self.names[n]} that it is not known for")
            where = where or [slice(None)] * len(self.names)
            where[n] = slice(at.start - span.start, at.stop - span.start)
        if found.written is not None and not bool(_cut_to(found.written, where).all()):
            raise self.unread(user, position, "in a row of which no step has written this element")
        if is_row and position in self.rows_in_results:
            return (super().load(*self.rows_in_results[position], found.data[0].dtype, None),)
        return found.data if where is None else tuple(_cut_to(each, where) for each in found.data)

    def unread(self, user: int, position: int, why: str) -> WrongNest:
        return self.fail(f"{self.named(user)} reads {self.named(position)} {why}")

    def spans(self, axes: Sequence[str]) -> tuple[range | None, ...]:
        return tuple(at if name in axes else None for name, at in zip(self.names, self.at, strict=True))

    def define(self, position: int, data: tuple[Tensor, ...], spans: tuple[range | None, ...]) -> None:
        """Makes a value known to the steps that follow in this iteration, and writes it to its row."""
        self.scopes[-1][position] = Value(data, spans)
        row = self.rows.get(position)
        if row is None or row.written is None:
            return
        where = tuple(
            slice(None) if at is None or span is None else slice(at.start - span.start, at.stop - span.start)
            for at, span in zip(spans, row.spans, strict=True)
        )
        row.data[0][where] = data[0]
        row.written[where] = True
        if position in self.rows_in_results:
            super().write(self.ops[position], *self.rows_in_results[position], data[0], None)

    def rows_of(self, steps: tuple[Step, ...]) -> list[int]:
        """The rows that begin with these steps: one step computes the value, and a later one only reads it."""
        key = id(steps)
        if key not in self.row_places:
            inside = [frozenset(positions((step,))) for step in steps]
            self.row_places[key] = [p for p in self.schedule.kept_rows if self.is_row_of(p, inside)]
        return self.row_places[key]

    def is_row_of(self, position: int, inside: Sequence[frozenset[int]]) -> bool:
        users = {p for p, op in enumerate(self.ops) if position in op.args}
        first = next((n for n, here in enumerate(inside) if position in here), len(inside))
        return any(position not in here and not here.isdisjoint(users) for here in inside[first + 1 :])

    def row(self, position: int) -> Value:
        """An empty array for a value: an element for each iteration of the loops that are not open here."""
        op = self.ops[position]
        spans, _ = self.array_spans(position, op.axes)
        shape = [1 if span is None else len(span) for span in spans]
        assert op.dtype is not None
        return Value((torch.zeros(shape, dtype=torch_dtype(op.dtype)),), spans, torch.zeros(shape, dtype=torch.bool))

    def array_spans(self, position: int, axes: Sequence[str]) -> tuple[tuple[range | None, ...], bool]:
        """By axis the elements that an array for a value has here, and whether they are more than the current ones."""
        spans: list[range | None] = list(self.spans(axes))
        missing = [n for n, name in enumerate(self.names) if name in axes and self.at[n] is None]
        for n in missing:
            spans[n] = self.part[n]
            if self.is_gpu:
                raise self.fail(f"{self.named(position)} needs an accumulator for each element of {self.names[n]}")
            if not self.is_bounded[n] and position not in self.rows_in_results:
                raise self.fail(f"the array of {self.named(position)} over {self.names[n]} has no bounded size")
        return tuple(spans), bool(missing)

    # --- memory

    def count(self, position: int, op: ir.Op) -> None:
        """Notes that an effect runs for the current iterations."""
        at_once = 1
        for loop in self.opened:
            at = self.at[self.number[loop.axis]]
            if self.is_at_once(loop) and loop.axis not in op.axes and at is not None:
                at_once *= len(at)
        where = [slice(None)] * len(self.names)
        for n, span in enumerate(self.spans(op.axes)):
            if span is not None:
                where[n] = slice(span.start, span.stop)
        done = self.times[position][tuple(where)]
        done += at_once
        if bool((done > 1).any()):
            raise self.fail(f"{self.named(position)} runs twice for one point")

    def load(self, ref: ir.Ref, index: exprs.Expr, dtype: torch.dtype, mask: Tensor | None) -> Tensor:
        made = super().load(ref, index, dtype, mask)
        self.refuse_bent(index)
        if ref.storage in self.memory.shared:
            at = self.index(index).expand(made.shape)
            at = at.reshape(-1) if mask is None else at[mask.expand(made.shape)]
            if wrong := self.memory.load(ref, at, self.thread):
                raise self.fail(wrong)
        return made

    def write(self, op: ir.Op, ref: ir.Ref, index: exprs.Expr, value: Any, kind: str | None) -> None:
        super().write(op, ref, index, value, kind)
        self.refuse_bent(index)
        shape = [n if name in op.axes else 1 for name, n in zip(self.names, self.extents, strict=True)]
        at = self.index(index).expand(shape).reshape(-1)
        wrong = self.memory.store(ref, at, self.thread)
        if kind is not None and not self.is_gpu and not wrong:
            wrong = self.memory.scatter(self.position, ref, at, self.point_numbers(op.axes, shape), self.thread)
        if wrong:
            raise self.fail(wrong)

    def point_numbers(self, axes: Sequence[str], shape: Sequence[int]) -> Tensor:
        """The numbers of the current points in the order of the kernel's axes."""
        total = torch.zeros(list(shape), dtype=torch.int64)
        for name, length in zip(self.names, self.lengths, strict=True):
            total = total * length + self.symbols[name] if name in axes else total
        return total.reshape(-1)

    def refuse_bent(self, index: exprs.Expr) -> None:
        """Refuses a piece of a cut loop in which the simpler form of an index has another value."""
        if self.piece is None:
            return
        extents = {axis.symbol: axis.extent for axis in self.kernel.axes}
        if bool((self.index(simplify_between(index, *self.piece, extents)) != self.index(index)).any()):
            raise self.fail(f"the index {index} is another one between {self.piece[1]} and {self.piece[2]}")

    def index(self, expr: exprs.Expr) -> Tensor:
        names = self.needs.get(expr)
        if names is None:
            names = self.needs[expr] = tuple(s.name for s in exprs.free_symbols(expr))
        if all(name in self.points for name in names):
            return torch.full([1] * len(self.names), exprs.evaluate(expr, self.points))
        return super().index(expr)

    def is_at_once(self, loop: Loop) -> bool:
        """Whether several iterations of a loop for a CPU are computed at once."""
        return loop.kind in ("vector", "tree") or self.is_free(loop)

    def is_free(self, loop: Loop) -> bool:
        """Whether the iterations of an innermost serial loop do not depend on each other, so that they run at once."""
        if id(loop) not in self.free:
            ops = [self.ops[step] for step in loop.body if isinstance(step, int)]
            is_inmost = len(ops) == len(loop.body) and not loop.is_blocked and loop.kind in ("serial", "scalar")
            is_ordered = any(isinstance(op.attrs, ir.Scan | ir.Atomic) for op in ops) or bool(self.memory.shared)
            self.free[id(loop)] = is_inmost and not is_ordered
        return self.free[id(loop)]


def _cut_to(data: Tensor, where: Sequence[slice] | None) -> Tensor:
    """The elements of a value; along an axis over which the value does not vary it has one element for all."""
    if where is None:
        return data
    return data[tuple(slice(None) if n == 1 else s for n, s in zip(data.shape, where, strict=True))]
