"""The values of a kernel while its loops are printed as C++: where each one stands, and how reductions gather theirs.

Takes a Kernel with a Schedule, and positions of its ops. Gives the text that names a value: a variable, an element of
an array that keeps it for a later loop (a row), or an accumulator. Refuses a kernel without a schedule (ValueError).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from minductor.codegen.cpp import cpp_checks
from minductor.codegen.cpp.cpp_arrays import Array, Block, Carry, Dim, ResultRow
from minductor.codegen.cpp.cpp_text import threads_text
from minductor.codegen.cpp.cpp_upwards import upwards
from minductor.codegen.cpp.cpp_values import Values, array_type, cpp_type
from minductor.core.dtypes import F32
from minductor.core.expressions.expr import as_int
from minductor.ir.program.loops import Loop, Step, loops, positions
from minductor.ir.program.nodes import Check, Kernel, Load, Masked, Op, Project, Reduce, Scan, Store
from minductor.ir.program.signature import signature


class NestValues:
    """The values of one kernel, written into `out`."""

    def __init__(self, kernel: Kernel, values: Values) -> None:
        if kernel.schedule is None:
            raise ValueError(f"kernel {kernel.name} has no schedule")
        self.ops = kernel.body.ops
        self.schedule = kernel.schedule
        self.rows = set(kernel.schedule.kept_rows)
        self.results = dict(kernel.schedule.rows_in_results)
        self.extents = {axis.name: axis.extent for axis in kernel.axes}
        self.values = values
        values.extents = {axis.symbol: axis.extent for axis in kernel.axes}
        self.out = values.out
        self.checked = {
            p: found for p, op in enumerate(self.ops) if (found := list(cpp_checks.statuses(op, values.errors)))
        }
        self.work = threads_text(kernel)
        self.sizes = [s.name for s in signature(kernel).sizes]  # the names of the sizes that the kernel takes
        # all by the position of an op
        self.labels: dict[int, str] = {}
        self.names: dict[int, str] = {}  # the texts of values that are in scope
        self.arrays: dict[int, tuple[Array, ...]] = {}  # the accumulators of finished reductions
        self.kept: dict[int, Array] = {}  # the arrays of values that later loops read (rows)
        self.carries: dict[int, Carry] = {}  # the accumulators of reductions that are running
        self.terms: dict[int, str] = {}  # in an open tree loop, the array that takes a reduction's terms
        self.blocks: dict[str, Block] = {}  # by axis, its innermost open block
        self.unmasked: frozenset[int] = frozenset()  # masked ops whose conditions hold in the open loop
        self.conditions: dict[int, str] = {}  # by masked op of the open loop, the text of its condition if not a value
        self.strips: dict[int, str] = {}  # the arrays of the float16 loads and stores of the open loop
        self.opened: dict[str, bool] = {}  # by open axis, whether its loop runs over elements and not over blocks

    def op(self, position: int) -> None:
        op = self.ops[position]
        self.out.computes(position)
        match op.attrs:
            case Reduce() if position in self.terms:
                self.out.add(f"{self.terms[position]}[r] = {self.value(op.args[0])};")
                return
            case Reduce():
                self.accumulate(self.carries[position])
                return
            case Scan():
                carry = self.carries[position]
                self.accumulate(carry)
                kinds = zip(carry.elements(), carry.dtypes, strict=True)
                names = [self.values.define(self.values.label(), dtype, text) for text, dtype in kinds]
                self.names[position] = names[0]
                self.arrays[position] = tuple(Array(name, ()) for name in names)
                self.keep(position)
                return
            case Project(number):
                self.names[position] = self.arrays[op.args[0]][number].element()
                self.keep(position)
                return
            case Load() if position in self.strips:
                self.names[position] = self.values.define(self.label(position), F32, f"{self.strips[position]}[l]")
                self.keep(position)
                return
            case Store() if position in self.strips:
                self.out.add(f"{self.strips[position]}[l] = {self.value(op.args[0])};")
                return
            case Masked(body, _) if position in self.unmasked:
                captured = [self.value(a) for a in op.args[1:]]
                self.names[position] = self.values.unmasked(op, body, captured)
                self.keep(position)
                return
            case _:
                pass
        dtypes = [d for a in op.args if (d := self.ops[a].dtype) is not None]
        args = [self.value(a) for a in op.args]
        if position in self.conditions:
            args[0] = self.conditions[position]
        self.names[position] = self.values.emit(op, args, dtypes, lambda: self.label(position))
        self.keep(position)

    def keep(self, position: int) -> None:
        if position in self.kept:
            test = "if (on) " if self.is_masked(self.kept[position]) else ""
            self.out.add(f"{test}{self.kept[position].element()} = {self.names[position]};")

    def is_masked(self, array: Array) -> bool:
        """Whether the lanes of the open loop that lie past its end have no element in an array."""
        axis = self.values.masked_axis
        return axis is not None and any(dim.axis == axis.name for dim in array.dims)

    def label(self, position: int) -> str:
        if position not in self.labels:
            attrs = self.ops[position].attrs
            self.labels[position] = self.values.label(attrs.combine.name if isinstance(attrs, Reduce | Scan) else "x")
        return self.labels[position]

    def value(self, position: int) -> str:
        """The text that names a value here. A value that an array keeps is read from the array."""
        if position not in self.names:
            array = self.kept[position] if position in self.kept else self.arrays[position][0]
            text = f"(on ? {array.element()} : 0)" if self.is_masked(array) else array.element()
            dtype, attrs = self.ops[position].dtype, self.ops[position].attrs
            assert dtype is not None
            if isinstance(attrs, Check):
                text = self.values.define(attrs.symbol.name, dtype, text)  # index expressions know it by its symbol
            elif array.dims:
                text = self.values.define(self.label(position) + "_kept", dtype, text)
            self.names[position] = text
        return self.names[position]

    def declare_rows(self, steps: Sequence[Step]) -> None:
        for position in sorted(self.rows - self.kept.keys()):
            where = [n for n, step in enumerate(steps) if position in inside(step)]
            users = [p for p, op in enumerate(self.ops) if position in op.args]
            used = [n for n, step in enumerate(steps) if not inside(step).isdisjoint(users)]
            if where and any(n > where[0] and n not in where for n in used):  # a later step that does not compute it
                self.kept[position] = self.row(position)

    def row(self, position: int) -> Array:
        """The array of a row, which is declared, or the result that the row is kept in."""
        op, store = self.ops[position], self.ops[self.results.get(position, position)].attrs
        if isinstance(store, Store):
            dims = tuple(Dim(axis, "", 1) for axis in op.axes)
            return ResultRow("", dims, partial(self.values.element, store.ref.storage, store.index))
        dims = self.dims(op)
        array, dtype = Array(f"{self.label(position)}_row", dims), op.dtype
        assert dtype is not None
        self.out.add(f"{array_type(dtype)} {array.name}{f'[{array.count()}]' if dims else ''};")
        return array

    def dims(self, op: Op, reduced: Iterable[str] = ()) -> tuple[Dim, ...]:
        """The dimensions of an array for a value: its axes whose loops are not open here, or open only for a block."""
        found: list[Dim] = []
        # the axis of the vector loop last: neighbours in the loop are neighbours in the array
        vector = {loop.axis for loop in loops(self.schedule.steps) if loop.kind == "vector"}
        for axis in sorted(op.axes, key=lambda a: a in vector):
            if self.opened.get(axis) or axis in reduced:
                continue
            start = self.blocks[axis].start if axis in self.blocks else ""
            count = (self.blocks[axis].size or None) if start else as_int(self.extents[axis])
            if count is None:
                raise ValueError(f"an array over {axis} has no bounded size")
            found.append(Dim(axis, start, max(1, count)))
        return tuple(found)

    def start(self, axis: str) -> str:
        """The name of the index at which the next block of an axis begins."""
        around = self.blocks[axis].start if axis in self.blocks else axis
        return around.removesuffix("_start") + ("_inner_start" if axis in self.blocks else "_start")

    def is_multiple(self, axis: str, size: int) -> bool:
        """Whether the open part of an axis, a block or all of it, is a multiple of `size` elements."""
        if axis in self.blocks:
            around = self.blocks[axis].size if self.blocks[axis].is_whole else 0
        else:
            around = as_int(self.extents[axis]) or 0
        return bool(around and size) and around % size == 0

    # --- accumulators

    def declare(self, position: int, loop: Loop) -> Carry:
        op = self.ops[position]
        self.out.computes(position)
        assert isinstance(op.attrs, Reduce | Scan)
        reduced = op.attrs.axes if isinstance(op.attrs, Reduce) else (op.attrs.axis,)
        walks = [each for each in loops((loop,)) if each.axis in reduced and position in inside(each)]
        beside = next((each for each in walks if each.kind == "serial" and each.lanes), None)
        lanes = 0 if beside else max((each.lanes for each in walks), default=0)
        dtypes = tuple(d for a in op.args if (d := self.ops[a].dtype) is not None)
        if isinstance(op.attrs, Scan):  # each loop that walks along it has accumulators of its own
            self.labels.pop(position, None)
        names = self.result_names(position, len(dtypes))
        if position in self.carries:
            names = tuple(f"{name}_block" for name in self.carries[position].names)
        dims = () if lanes else self.dims(op, reduced)
        if beside is not None:
            dims = (Dim(f"{beside.axis}_lane", "", beside.lanes), *dims)
        arrays = tuple(Array(f"{name}_lanes" if lanes else name, dims) for name in names)
        is_filled = beside is not None and as_int(self.extents[beside.axis]) == beside.lanes
        how = (op.attrs.combine, upwards(op, self.ops.__getitem__))
        live = "" if beside else self.live(dims)
        carry = Carry(position, *how, names, arrays, dtypes, lanes, beside is not None, is_filled, live)
        self.initialise(carry)
        self.carries[position] = carry
        return carry

    def live(self, dims: Sequence[Dim]) -> str:
        """The number of elements in use of an array over one block of an axis whose extent only the call knows.

        Empty for any other array. A block of the columns of a narrow matrix may be much shorter than its array.
        """
        if len(dims) != 1 or as_int(self.extents[axis := dims[0].axis]) is not None:
            return ""
        is_past = any(loop.is_whole for loop in loops(self.schedule.steps) if loop.axis == axis)
        return f"{self.blocks[axis].end} - {self.blocks[axis].start}" if axis in self.blocks and not is_past else ""

    def result_names(self, position: int, count: int) -> tuple[str, ...]:
        label = self.label(position)
        return (label,) if count == 1 else tuple(f"{label}_{n}" for n in range(count))

    def initialise(self, carry: Carry) -> None:
        for array, dtype, first in zip(carry.arrays, carry.dtypes, carry.identities(), strict=True):
            if carry.size == 0:
                self.out.add(f"{cpp_type(dtype)} {array.name} = {first};")
            else:
                self.out.add(f"{array_type(dtype)} {array.name}[{carry.size}];")
                if not carry.is_filled:
                    self.out.add(f"{carry.index('l')} {array.name}[l] = {first};")

    def accumulate(self, carry: Carry) -> None:
        args = [self.value(a) for a in self.ops[carry.position].args]
        first = carry.identities() if carry.is_filled else ()
        self.assign(carry, carry.elements(), self.values.joined(carry.upwards.body, first or carry.elements(), args))

    def join(self, carry: Carry, left: Sequence[str], right: Sequence[str]) -> None:
        """Combines the accumulators `right` with `left`."""
        self.assign(carry, left, self.values.joined(carry.how.body, left, right))

    def assign(self, carry: Carry, left: Sequence[str], results: Sequence[str]) -> None:
        """Assigns results to the accumulators `left`; gives them names first if an assignment would overwrite one."""
        self.out.computes(carry.position)
        if any(text in left and text != target for target, text in zip(left, results, strict=True)):
            named = zip(carry.dtypes, results, strict=True)
            results = [self.values.define(self.values.label(), dtype, text) for dtype, text in named]
        for target, text in zip(left, results, strict=True):
            self.out.add(f"{target} = {f'on ? {text} : {target}' if self.values.masked_axis else text};")

    def finish(self, carry: Carry) -> None:
        """Combines the lanes of a reduction, whose value is used from here on; a scan's only in its loop."""
        arrays = carry.arrays
        self.out.computes(carry.position)
        self.carries.pop(carry.position, None)
        if isinstance(self.ops[carry.position].attrs, Scan):
            return
        if carry.lanes:
            if carry.lanes > 1:
                with self.out.block(f"md_join_lanes<{carry.lanes}>([&](int a, int b) MD_LAMBDA", "});"):
                    self.join(carry, carry.at("a"), carry.at("b"))
            for name, array, dtype in zip(carry.names, arrays, carry.dtypes, strict=True):
                self.values.define(name, dtype, f"{array.name}[0]")
            arrays = tuple(Array(name, ()) for name in carry.names)
        if carry.is_beside:
            arrays = tuple(replace(array, dims=array.dims[1:]) for array in arrays)
            with self.out.block(f"md_join_lanes<{carry.size}, {arrays[0].count()}>([&](int a, int b) MD_LAMBDA", "});"):
                self.join(carry, carry.at("a"), carry.at("b"))
        self.arrays[carry.position] = arrays
        if not arrays[0].dims:
            self.names[carry.position] = arrays[0].name
            self.keep(carry.position)


def inside(step: Step) -> set[int]:
    """The positions that a step computes."""
    return set(positions((step,)))
