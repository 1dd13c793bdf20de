"""The loops of a scheduled kernel as C++.

Takes a Kernel with a Schedule. Gives the statements of its function. Refuses a kernel without a schedule (ValueError).
It prints the schedule's tree of loops and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise

from minductor.codegen.cpp import cpp_checks
from minductor.codegen.cpp.cpp_arrays import Array, Block, Carry
from minductor.codegen.cpp.cpp_copies import row_copies
from minductor.codegen.cpp.cpp_nest_values import NestValues, inside
from minductor.codegen.cpp.cpp_over_strips import call_over_strip
from minductor.codegen.cpp.cpp_strips import FEW, SHORTEST, STRIP, Strip, strips
from minductor.codegen.cpp.cpp_text import index_text
from minductor.codegen.cpp.cpp_transpose import Ends, transposed_copy, transposed_load, transposed_store
from minductor.codegen.cpp.cpp_values import array_type, cpp_type, maskable_bytes
from minductor.core.dtypes import BOOL, F32
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_int, integer, maximum, minimum
from minductor.ir.program.loops import Loop, Step, loops, positions
from minductor.ir.program.nodes import Body, Masked, Reduce, Scan, Store

_IN_STRIPS = re.compile("_strips<|md_masked_lanes<")  # calls of functions that run over strips, or mask the last one


class NestPrinter(NestValues):
    """Prints the steps of one kernel into `out`."""

    def print(self) -> None:
        split = {loop.axis: loop for loop in loops(self.schedule.steps) if loop.parts}
        for axis, loop in split.items():  # each step once: several phases may run over the same parts
            # at least 1 element, since the step is a divisor; data may decide that there are none
            whole = index_text(maximum(self.extents[axis], 1) + loop.parts * 64 - 1)
            self.out.add(f"const int64_t {block_step(loop)} = ({whole}) / {loop.parts * 64} * 64;")
        told = {block_step(loop): (most, loop.block) for loop in loops(self.schedule.steps) if (most := loop.most)}
        for name, (most, block) in told.items():
            self.out.add(f"const int64_t {name} = {index_text(maximum(minimum(most, block), 1))};")
        self.steps(self.schedule.steps)

    def steps(self, steps: Sequence[Step]) -> None:
        self.declare_rows(steps)
        for step in steps:
            if isinstance(step, Loop):
                self.loop(step)
            else:
                self.op(step)

    # --- loops

    def loop(self, loop: Loop) -> None:
        self.out.computes(None)
        ends = self.range(loop.axis)
        if calls := self.transposed(loop) or call_over_strip(loop, self.ops, self.kept, self.values, ends):
            self.out.add_each(calls)
            return
        if loop.kind == "parallel" and loop.carries:
            self.parts_loop(loop)
            return
        if loop.kind == "tree":
            self.tree(loop)
            return
        if (row := self.in_blocks(loop)) is not None:
            self.by_length(loop, *row)
            return
        self.reducing(loop)

    def reducing(self, loop: Loop) -> None:
        """Writes a loop, after the initial values of its accumulators and before their final combination."""
        around = {p: self.carries[p] for p in loop.carries if p in self.carries}
        carries = [self.declare(p, loop) for p in loop.carries]
        if loop.unmasked:
            self.run_unmasked(loop)
        else:
            self.run_masked(loop)
        for carry in carries:
            if carry.position in around:
                self.add_block(around[carry.position], carry)
            else:
                self.finish(carry)

    def in_blocks(self, loop: Loop) -> tuple[Loop, int] | None:
        """For a row, or a part of one, that is kept in blocks: its innermost loop and the size of a block, if only the
        call knows whether one block holds it. Else None.
        """
        inner, size = loop, 0
        while inner.kind == "serial" and inner.block and len(inner.body) == 1 and isinstance(inner.body[0], Loop):
            size, inner = inner.block, inner.body[0]
        around = self.blocks.get(loop.axis)  # without a size: one of several equal parts
        is_known = around.size > 0 if around else as_int(self.extents[loop.axis]) is not None
        is_row = loop.carries and inner.lanes and inner.axis == loop.axis
        return (inner, size) if size and is_row and not is_known else None

    def by_length(self, loop: Loop, row: Loop, block: int) -> None:
        """Writes two versions of a loop over a row: without blocks if one block holds the row, else with them.

        The version without blocks adds no sums of empty blocks.
        """
        done = [p for p in loop.carries if p not in self.carries]  # a loop around this one carries the others
        kinds = [d for p in done for a in self.ops[p].args if (d := self.ops[a].dtype) is not None]
        names = [n for p in done for n in self.result_names(p, len(self.ops[p].args))]
        for name, dtype in zip(names, kinds, strict=True):
            self.out.add(f"{cpp_type(dtype)} {name}_whole;")
        first, last = self.range(loop.axis)
        is_short = f"if ({last if first == '0' else f'{last} - {first}'} <= {block})"
        for test, each in ((is_short, replace(row, carries=loop.carries)), ("else", loop)):
            with self.out.block(test):
                self.reducing(each)
                self.out.add(*(f"{name}_whole = {name};" for name in names))
        for name, dtype in zip(names, kinds, strict=True):
            self.values.define(name, dtype, f"{name}_whole")

    def run_unmasked(self, loop: Loop) -> None:
        """Writes a test and two versions of a loop: without the masks that the test makes redundant, and with them."""
        tests = dict.fromkeys(self.value(self.ops[p].args[0]) for p in loop.unmasked)
        with self.out.block(f"if ({' & '.join(tests)})"):
            self.unmasked = frozenset(loop.unmasked)
            self.run_pieces(loop)
            self.unmasked = frozenset()
        with self.out.block("else"):
            self.run_masked(loop)

    def run_masked(self, loop: Loop) -> None:
        """Writes a loop whose masks that stay the same are the elements before an end: that of all numbers or of none.

        g++ 12 leaves a loop scalar that has a mask which stays the same.
        """
        conditions = self.unchanging(loop)
        ends = {test: self.values.label("end") for test in dict.fromkeys(conditions.values())}
        self.out.add(*(f"const int64_t {end} = md_end_if({test});" for test, end in ends.items()))
        self.conditions = {p: f"{loop.axis} < {ends[test]}" for p, test in conditions.items()}
        self.run_pieces(loop)
        self.conditions = {}

    def unchanging(self, loop: Loop) -> dict[int, str]:
        """By masked op of a vector loop, the conditions that are computed before the loop and stay the same in it.

        None where another mask joins one that stays the same and one that varies: g++ 12 leaves that loop scalar, and
        branches then cost less than ends (the gradient of a replicating pad takes half the time).
        """
        if loop.kind != "vector":
            return {}
        here = loop.own_positions
        asked = {p: self.ops[p].args[0] for p in sorted(here) if isinstance(self.ops[p].attrs, Masked)}
        joined = {b for a in asked.values() if a in here for b in self.ops[a].args if self.ops[b].dtype == BOOL}
        is_same = [p for p, a in asked.items() if a not in here and loop.axis not in self.ops[a].axes]
        return {p: self.value(asked[p]) for p in is_same} if joined <= {*here} else {}

    def run_pieces(self, loop: Loop) -> None:
        """Writes a loop in the pieces into which the schedule cuts it."""
        if not loop.cuts:
            self.run(loop)
            return
        axis = self.values.axis(loop.axis)
        ends: list[Expr] = []
        for start, stop in pairwise((integer(0), *loop.cuts, self.extents[loop.axis])):
            ends = [*(end for end in ends if not at_least(start - end, 0)), start]
            self.values.piece, self.values.piece_start = (axis, start, stop), maximum(*ends)
            self.run(loop)
        self.values.piece = None

    def add_block(self, total: Carry, block: Carry) -> None:
        """Adds the accumulators of an inner loop to those of the loop around it, lane by lane."""
        if total.size:
            self.out.pragma("omp simd")
            with self.out.block(total.index("j")):
                self.join(total, total.at("j"), block.at("j"))
        else:
            self.join(total, [a.name for a in total.arrays], [a.name for a in block.arrays])
        self.carries[total.position] = total

    def transposed(self, loop: Loop) -> dict[int, str]:
        """By op, the calls of md_transpose that replace two nested loops, if these only transpose blocks.

        Empty for any other loop.
        """
        inner = loop.body[0] if len(loop.body) == 1 else None
        if not isinstance(inner, Loop) or {loop.kind, inner.kind} != {"serial"} or loop.is_blocked or inner.is_blocked:
            return {}
        ends = {axis: self.range(axis) for axis in (loop.axis, inner.axis)}
        here = inner.own_positions
        whole = {axis for axis in ends if self.is_one_block(axis)}
        if copy := transposed_copy([self.ops[p] for p in here], self.values, ends, whole):
            return {here[0]: copy}
        calls = {p: self.transpose(loop.axis, inner.axis, p, ends, whole) for p in here}
        return calls if len(calls) == len(inner.body) and all(calls.values()) else {}

    def is_one_block(self, axis: str) -> bool:
        """Whether the open block of an axis certainly has all its elements."""
        block, extent = self.blocks.get(axis), as_int(self.extents[axis])
        return block is None or (extent is not None and 0 < extent <= block.size)

    def transpose(self, outer: str, inner: str, position: int, ends: Ends, whole: Collection[str]) -> str:
        """The call of md_transpose that replaces a load or store in two nested loops; "" if none does."""
        op = self.ops[position]
        if isinstance(op.attrs, Store):
            return transposed_store(op, self.kept.get(op.args[0]), outer, inner, self.values, ends)
        return transposed_load(op, self.kept.get(position), outer, inner, self.values, ends, whole)

    def run(self, loop: Loop) -> None:
        """Writes the header and the body of a loop."""
        self.out.computes(None)
        copies = row_copies(loop, self.ops, self.values, self.range(loop.axis))
        if copies and self.rows.isdisjoint(loop.own_positions):
            self.out.add_each(copies)
            return
        if found := self.converted(loop):
            self.run_strips(loop, found)
            return
        self.out.add(*(self.values.fetch(self.ops[p], self.ops, self.extents[loop.axis]) for p in loop.fetched))
        saved = self.scope()
        chain = _collapsed(loop)
        pragma = len(self.out.lines)
        if loop.kind == "parallel":
            self.out.pragma(self.parallel_pragma(loop, len(chain)))
        lanes = loop.kind == "vector" and loop.lanes > 0
        groups = _is_grouped(loop)
        if lanes:
            self.open_lanes(loop)
        elif groups:
            self.open_groups(loop)
        else:
            if loop.kind == "vector":
                self.out.pragma("omp simd" + cpp_checks.clause(self.bad(loop)))
            for each in chain:
                self.open(each)
            for each in chain:
                self.open_block(each)
            if loop.kind == "scalar":
                self.out.add("MD_SCALAR;")
        self.steps(chain[-1].body)
        if lanes:
            self.values.masked_axis = None
            if bad := self.bad(loop):
                cpp_checks.close_lanes(self.out, loop.axis, *self.range(loop.axis), loop.lanes, bad)
            else:
                self.out.close("});")
        elif groups:
            self.out.close("});")
        else:
            for _ in chain:
                self.out.close()
        if loop.kind == "parallel":
            self.privatise(pragma, saved[0])
        self.names, self.opened, self.blocks, self.arrays, self.kept = saved

    def converted(self, loop: Loop) -> list[Strip]:
        """The float16 loads and stores of a loop that are converted in strips."""
        count = as_int(self.extents[loop.axis])
        scans = [p for p in loop.body if isinstance(p, int) and isinstance(self.ops[p].attrs, Scan)]
        is_scan = loop.kind == "serial" and not loop.is_blocked and bool(scans) and not self.is_reversed(loop)
        if not (loop.kind == "vector" or is_scan) or self.bad(loop) or (count is not None and count < SHORTEST):
            return []
        found = strips(loop, self.ops, self.values.storages, self.values.axis(loop.axis), self.values.placed)
        how = self.values.stored_as
        copied = {
            p for p, op in enumerate(self.ops) if how.get(id(op)) == "bits" and self.kept.keys().isdisjoint(op.args)
        }
        return [strip for strip in found if strip.position not in copied]

    def run_strips(self, loop: Loop, found: Sequence[Strip]) -> None:
        """Writes a loop over strips, whose elements are converted before and after the loop over the strip."""
        saved = self.scope()
        trees = [step for step in loop.body if isinstance(step, Loop) and step.kind == "tree"]
        start, size = f"{loop.axis}_strip", FEW if trees else loop.lanes or STRIP
        first, last = self.range(loop.axis)
        of_rows = [(tree, [strip for strip in found if strip.is_row and strip.position in tree.body]) for tree in trees]
        parts = [(None, [strip for strip in found if not strip.is_row]), *of_rows]
        is_masked = self.masks_strips(loop, found, of_rows)
        head = f"[&](int64_t {start}, int count{', int size' if is_masked else ''}) MD_LAMBDA"
        name = "md_masked_strips" if is_masked else "md_strips"
        with self.out.block(f"{name}<{size}>({first}, {last}, {head}", "});"):
            for tree, each in parts:
                self.out.add(*(f"float {strip.name}{'[rows]' if tree else ''}[{max(FEW, size)}];" for strip in each))
                self.convert({strip.position: strip.before for strip in each if strip.before}, tree)
            if loop.kind == "vector":
                self.out.pragma("omp simd")
            with self.out.block(f"for (int l = 0; l < {size if is_masked else 'count'}; ++l)"):
                self.out.add(f"const int64_t {loop.axis} = {start} + l;")
                if is_masked:
                    self.out.add("const bool on = l < size;")
                    self.values.masked_axis = self.values.axis(loop.axis)
                self.opened[loop.axis] = True
                self.strips = {strip.position: strip.array for strip in found}
                self.steps(loop.body)
                self.strips = {}
                self.values.masked_axis = None
            for tree, each in parts:
                self.convert({strip.position: strip.after for strip in each if strip.after}, tree)
        self.names, self.opened, self.blocks, self.arrays, self.kept = saved

    def masks_strips(self, loop: Loop, found: Sequence[Strip], of_rows: Sequence[object]) -> bool:
        """Whether the lanes of a reduction run under masks in the last strip, of which some are left over."""
        if not loop.lanes or of_rows:
            return False
        length, rows = as_int(self.extents[loop.axis]), {strip.position for strip in found}
        others = tuple(op for p, op in enumerate(self.ops) if p in inside(loop) and p not in rows)
        is_ragged = length is None or length % loop.lanes > 0
        return is_ragged and maskable_bytes(Body(others), self.values.storages) == F32.itemsize

    def convert(self, calls: Mapping[int, str], tree: Loop | None) -> None:
        """Writes the calls that convert strips, given by op; inside a tree, for each row of the group."""
        self.out.computes(None)
        with self.each_row(tree) if tree and calls else nullcontext():
            self.out.add_each(calls)

    def privatise(self, pragma: int, names: Mapping[int, str]) -> None:
        """Copies scalars and pointers into variables of each thread.

        A load through a reference that g++ moves into a select stops the vectoriser. Pointers are copied too where
        strips or bytes are stored: as far as g++ knows, such a store may change the reference, and loops of lanes stay
        scalar. And where lanes run under masks: g++ would load the pointer under the mask, too. So are sizes.
        """
        text = "\n".join(self.out.lines[pragma + 1 :])
        used = set(re.findall(r"\b[a-z]\w*\b", text))
        is_aliased = self.stores_bytes() or _IN_STRIPS.search(text)
        taken = [*(name for name, _ in self.values.storages.values()), *self.sizes] if is_aliased else []
        scalars = [name for name in dict.fromkeys((*names.values(), *taken)) if name in used - {"true", "false"}]
        if scalars:
            self.out.lines[pragma] += f" firstprivate({', '.join(scalars)})"

    def stores_bytes(self) -> bool:
        """Whether the kernel stores elements of one byte, whose C++ type may alias any other."""
        stored = [op.attrs.ref.storage for op in self.ops if isinstance(op.attrs, Store)]
        return any(self.values.storages[name][1].itemsize == 1 for name in stored)

    def bad(self, loop: Loop) -> list[str]:
        """The variables of the checks and assertions in a loop."""
        inside = (p for p in sorted(set(positions((loop,)))) if p in self.checked)
        return [f"bad{number}" for p in inside for number in self.checked[p]]

    def scope(
        self,
    ) -> tuple[dict[int, str], dict[str, bool], dict[str, Block], dict[int, tuple[Array, ...]], dict[int, Array]]:
        """Copies of what the printer knows here, which it restores when the loop closes."""
        return dict(self.names), dict(self.opened), dict(self.blocks), dict(self.arrays), dict(self.kept)

    def parallel_pragma(self, loop: Loop, depth: int) -> str:
        text = f"omp parallel for{f' collapse({depth})' if depth > 1 else ''} num_threads({self.work})"
        return text + cpp_checks.clause(self.bad(loop))

    def range(self, axis: str) -> tuple[str, str]:
        if self.values.piece is not None and self.values.piece[0].name == axis:
            first, last = index_text(self.values.piece_start), index_text(self.values.piece[2])
            if axis in self.blocks:
                block = self.blocks[axis]
                return f"md_index_max({first}, {block.start})", f"md_index_min({last}, {block.end})"
            return first, last
        if axis in self.blocks:
            return self.blocks[axis].start, self.blocks[axis].end
        return "0", index_text(self.extents[axis])

    def open_lanes(self, loop: Loop) -> None:
        first, last = self.range(loop.axis)
        block = self.blocks.get(loop.axis)
        sizes = (as_int(self.extents[loop.axis]), *((block.size or None,) if block else ()))
        self.opened[loop.axis] = True
        if bad := self.bad(loop):
            cpp_checks.open_lanes(self.out, loop.axis, bad)
        elif not (narrowest := self.maskable(loop)) or not any(n is None or n % self.filled(loop) for n in sizes):
            self.out.open(f"md_lanes<{loop.lanes}>({first}, {last}, [&](int64_t {loop.axis}, int l) MD_LAMBDA")
        else:
            self.values.masked_axis = self.values.axis(loop.axis)
            head = f"[&](int64_t {loop.axis}, int l, bool on) MD_LAMBDA"
            self.out.open(f"md_masked_lanes<{loop.lanes}, {narrowest}>({first}, {last}, {head}")

    def maskable(self, loop: Loop) -> int:
        """The bytes of the narrowest element that the loop reads, if its lanes may run under masks; else 0."""
        return maskable_bytes(Body(tuple(self.ops[p] for p in sorted(inside(loop)))), self.values.storages)

    def filled(self, loop: Loop) -> int:
        """The elements of which a row is a multiple if what is left over fills vectors without masks."""
        return -(-loop.lanes // 2) if self.maskable(loop) == F32.itemsize else loop.lanes

    def open_groups(self, loop: Loop) -> None:
        first, last = self.range(loop.axis)
        start = f"{loop.axis}_group"
        self.blocks[loop.axis] = Block(start, loop.block)
        self.opened[loop.axis] = False
        self.out.open(f"md_groups<{loop.block}>({first}, {last}, [&](int64_t {start}, auto rows) MD_LAMBDA")

    def tree(self, loop: Loop) -> None:
        """Adds the terms of a group of rows in registers, as a tree, and then adds the sum to the accumulators."""
        saved = self.scope()
        totals = [self.carries[p] for p in loop.carries]
        self.terms = {carry.position: f"{self.label(carry.position)}_terms" for carry in totals}
        for carry in totals:
            self.out.add(f"{array_type(carry.dtypes[0])} {self.terms[carry.position]}[rows];")
        with self.each_row(loop):
            self.opened[loop.axis] = True
            self.steps(loop.body)
        self.names, self.opened, self.blocks, self.arrays, self.kept = saved
        terms, self.terms = self.terms, {}
        with self.out.block("md_join_rows(rows, [&](int a, int b) MD_LAMBDA", "});"):
            for carry in totals:
                name = terms[carry.position]
                self.join(carry, [f"{name}[a]"], [f"{name}[b]"])
        for carry in totals:
            self.join(carry, carry.elements(), [f"{terms[carry.position]}[0]"])

    @contextmanager
    def each_row(self, tree: Loop) -> Generator[None]:
        """Runs the lines that are added in a `with` statement for each row of a group."""
        with self.out.block("md_rows(rows, [&](int r) MD_LAMBDA", "});"):
            self.out.add(f"const int64_t {tree.axis} = {self.blocks[tree.axis].start} + r;")
            yield

    def open(self, loop: Loop) -> None:
        axis = loop.axis
        first, last = self.range(axis)
        if loop.is_whole:
            last = f"{first} + {self.blocks[axis].size}"
        is_reversed = self.is_reversed(loop)
        if loop.kind == "parallel" and loop.carries:  # the first part exists even without elements
            last = index_text(maximum(self.extents[axis], 1))
        if loop.is_blocked:
            start, step = self.start(axis), block_step(loop)
            if is_reversed:
                final = (
                    f"{first} + ({last} - {first} - 1) / {step} * {step}"
                    if first != "0"
                    else f"({last} - 1) / {step} * {step}"
                )
                self.out.open(f"for (int64_t {start} = {final}; {start} >= {first}; {start} -= {step})")
            else:
                self.out.open(f"for (int64_t {start} = {first}; {start} < {last}; {start} += {step})")
        elif is_reversed:
            self.out.open(f"for (int64_t {axis} = {last} - 1; {axis} >= {first}; --{axis})")
        else:
            self.out.open(f"for (int64_t {axis} = {first}; {axis} < {last}; ++{axis})")
        if loop.kind == "serial" and loop.lanes:
            place = axis if first == "0" else f"({axis} - {first})"
            self.out.add(f"const int64_t {axis}_lane = {place} % {loop.lanes};")

    def is_reversed(self, loop: Loop) -> bool:
        """Whether a scan in the loop starts at the end of the axis."""
        found = [a for p in positions((loop,)) if isinstance(a := self.ops[p].attrs, Scan)]
        return any(scan.reverse and scan.axis == loop.axis for scan in found)

    def open_block(self, loop: Loop) -> None:
        axis = loop.axis
        self.opened[axis] = not loop.is_blocked
        if not loop.is_blocked:
            return
        _, last = self.range(axis)
        is_whole = loop.most is None and self.is_multiple(axis, loop.block)
        block = Block(self.start(axis), loop.block, is_whole)
        whole = f"{block.start} + {block_step(loop)}"
        if block.is_whole:
            self.out.add(f"const int64_t {block.end} = {whole};")
        else:
            self.out.add(f"const int64_t {block.end} = md_index_min({whole}, {last});")
        self.blocks[axis] = block

    # --- accumulators

    def parts_loop(self, loop: Loop) -> None:
        """Writes a parallel reduction in parts. Each part has accumulators of its own; they are combined at the end."""
        axis = loop.axis
        extent = self.extents[axis]
        block = block_step(loop)
        count = loop.parts or -(-_static(extent) // loop.block)
        shapes = {p: self.carry_size(p) for p in loop.carries}
        for position in loop.carries:
            self.declare_parts(position, count * max(1, shapes[position]))
        saved = self.scope()
        pragma = len(self.out.lines)
        self.out.pragma(self.parallel_pragma(loop, 1))
        self.open(loop)
        self.open_block(loop)
        part = f"{axis}_start / {block}"
        local = [self.declare(p, loop) for p in loop.carries]
        self.steps(loop.body)
        for carry in local:
            self.finish(carry)
            self.keep_part(carry, part)
        self.out.close()
        self.privatise(pragma, saved[0])
        self.names, self.opened, self.blocks, self.arrays, self.kept = saved
        for carry in local:
            self.join_parts(carry, f"({index_text(extent)} + {block} - 1) / {block}" if loop.parts else str(count))

    def carry_size(self, position: int) -> int:
        op = self.ops[position]
        assert isinstance(op.attrs, Reduce)
        return Array("", self.dims(op, op.attrs.axes)).count()

    def declare_parts(self, position: int, size: int) -> None:
        op = self.ops[position]
        dtypes = [d for a in op.args if (d := self.ops[a].dtype) is not None]
        for name, dtype in zip(self.result_names(position, len(dtypes)), dtypes, strict=True):
            self.out.add(f"{array_type(dtype)} {name}_parts[{size}];")

    def keep_part(self, carry: Carry, part: str) -> None:
        for name, array in zip(carry.names, carry.arrays, strict=True):
            if array.dims:
                count = array.count()
                self.out.add(f"{carry.index('j')} {name}_parts[{part} * {count} + j] = {name}[j];")
            else:
                self.out.add(f"{name}_parts[{part}] = {name};")

    def join_parts(self, carry: Carry, count: str) -> None:
        """Combines neighbouring parts pairwise, until the first one holds all.

        The order of the additions depends on the number of parts alone.
        """
        arrays = tuple(Array(f"{name}_parts", old.dims) for name, old in zip(carry.names, carry.arrays, strict=True))
        total = replace(carry, arrays=arrays, lanes=0)
        with (
            self.out.block(f"for (int64_t step = 1; step < {count}; step *= 2)"),
            self.out.block(f"for (int64_t part = 0; part + step < {count}; part += 2 * step)"),
        ):
            if arrays[0].dims:
                size = arrays[0].count()
                self.out.pragma("omp simd")
                with self.out.block(total.index("j")):
                    self.join(total, total.at(f"part * {size} + j"), total.at(f"(part + step) * {size} + j"))
            else:
                self.join(total, total.at("part"), total.at("part + step"))
        self.finish(total if arrays[0].dims else replace(total, lanes=1))


def _is_grouped(loop: Loop) -> bool:
    """Whether the terms of each block are added as a tree."""
    inner = [step for step in loop.body if isinstance(step, Loop)]
    return any(isinstance(s, Loop) and s.kind == "tree" and s.axis == loop.axis for i in inner for s in i.body)


def block_step(loop: Loop) -> str:
    """The step of a loop over blocks."""
    return str(loop.block) if loop.block and loop.most is None else f"{loop.axis}_block"


def _collapsed(loop: Loop) -> list[Loop]:
    """The loop and the perfectly nested loops in it that OpenMP runs as one."""
    chain = [loop]
    while loop.kind == "parallel" and len(chain[-1].body) == 1:
        inner = chain[-1].body[0]
        if not isinstance(inner, Loop) or inner.kind != "parallel" or inner.carries:
            break
        chain.append(inner)
    return chain


def _static(extent: Expr) -> int:
    count = as_int(extent)
    assert count is not None
    return count
