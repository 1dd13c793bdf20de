"""The statements of one Triton kernel: its tile, its loops, loads, stores and reductions.

Takes a Kernel whose schedule has grid loops. Gives the lines of its function, and the functions that combine its
values. Refuses what Triton cannot write (Unwritable). It prints the schedule's tree of loops and decides nothing.

A program computes a tile: a block of each axis, in the order of the loops. A value has the dimensions of the tile over
which its operation varies, and size 1 in the others, so it is broadcast only where an operation needs that. Lanes
beyond the end of an axis hold arbitrary values. They are never stored, and the identity replaces them before a
reduction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from minductor.analysis.uniform_parts import uniform_parts
from minductor.codegen.line_marks import mark
from minductor.codegen.operator_spelling import COMPARISONS
from minductor.codegen.triton.triton_access import Starts
from minductor.codegen.triton.triton_blocks import Blocks
from minductor.codegen.triton.triton_dot import DOWN, Operand, Products
from minductor.codegen.triton.triton_launch import Dim, index_type, tile_of
from minductor.codegen.triton.triton_values import (
    arguments,
    expression,
    index_text,
    is_block_of_one,
    is_narrow,
    literal,
    narrowed,
    scanned,
    triton_type,
)
from minductor.core.dtypes import F8E5M2, F32, F64, DType
from minductor.core.errors import Unwritable
from minductor.core.expressions.bounds import at_least, divides
from minductor.core.expressions.expr import Expr, Symbol, expand, free_symbols
from minductor.ir.program.build import is_standard_combine, parameter_count
from minductor.ir.program.loops import Loop, Step, loops, positions
from minductor.ir.program.nodes import (
    Assert,
    Atomic,
    Body,
    Check,
    Combine,
    Constant,
    Index,
    Kernel,
    Load,
    Masked,
    Op,
    Parameter,
    Project,
    Reduce,
    Round,
    Scan,
    Store,
)
from minductor.ir.program.signature import pointer_names, signature

ATOMICS: Mapping[str, str] = {"add": "tl.atomic_add", "max": "tl.atomic_max", "min": "tl.atomic_min"}


class TilePrinter:
    """Writes the lines of one kernel, or of one kernel of a bundle; `prefix` begins the names of its block sizes."""

    def __init__(self, kernel: Kernel, symbol: str, dtypes: Mapping[str, DType], prefix: str = "") -> None:
        self.index_type = index = index_type(kernel)
        self.products = Products.of(kernel)
        self.kernel = kernel = kernel if self.products is None else self.products.kernel
        self.symbol = symbol
        self.ops = kernel.body.ops
        self.extents = {axis.name: axis.extent for axis in kernel.axes}
        self.symbols = {axis.name: axis.symbol for axis in kernel.axes}
        self.tile = tile_of(kernel, prefix)
        self.dims = [dim for dim in self.tile if dim.parameter]
        if self.products is not None:
            self.tile = self.products.tile
            self.dims = self.products.beside(())
        given = signature(kernel)
        self.pointers = dict(zip(given.storages, pointer_names(given), strict=True))
        self.dtypes = dtypes
        self.wide = "" if index == "tl.int32" else f".to({index})"  # stands behind the elements of each axis
        self.functions: dict[str, str] = {}  # by name, the texts of functions that combine values
        self.names: dict[int, tuple[str, ...]] = {}  # by position, the names of an op's values
        self.unsummed: set[int] = set()  # the products whose sum no loop carries, and no matrix unit computes
        self.raw: dict[int, str] = {}  # by position, the names of loads in the dtype of memory, for `tl.dot`
        self.varies: dict[str, tuple[str, ...]] = {}  # the axes over which a checked index varies
        self.spread: tuple[str, ...] = ()  # the axes of the masks around the open region
        whole = {d.axis for d in self.tile if self.is_whole(d) or (d.parameter and self.count_of(d) == "1")}
        inner = (d for d in self.tile if d.is_reduced and d.parameter)
        looped = frozenset(d.axis for d in inner if not self.has_turns(d)) - whole
        starts = Starts(self.tile, self.extents, frozenset(whole), looped, self.wide)
        self.blocks = Blocks(kernel, self.tile, self.dims_of, starts, self.pointers, dtypes)
        self.counted = {*self.blocks.counted(), *([kernel.schedule.finishing_blocks] if kernel.schedule else ())}
        self.hints = {access.path: iter(access.evictions) for access in kernel.access if access.evictions}
        self.out: list[str] = []
        self.indent = ""
        self.is_marked = False
        self.mark = ""  # of the lines that are added (`line_marks.py`)
        self.count = 0

    def programs(self) -> str:
        """The number of programs of a launch."""
        counts = [self.count_of(dim) for dim in self.tile if not dim.is_reduced]
        return " * ".join(_factor(count) for count in counts if count != "1") or "1"

    def lines(self, program: str = "tl.program_id(0)") -> list[str]:
        """The body of the function; `program` is the number of the program."""
        assert self.kernel.schedule is not None
        self.out += self.blocks.heads()
        self.grid(program)
        steps = self.kernel.schedule.steps
        while len(steps) == 1 and isinstance(steps[0], Loop) and steps[0].kind in ("grid", "tile"):
            steps = steps[0].body
        self.steps(steps)
        return self.out

    def add(self, *texts: str) -> None:
        self.out += [self.indent + text + self.mark for text in texts]

    def computes(self, position: int | None) -> None:
        """Says that the lines added from here on compute the op at a position; None: they compute no op."""
        self.mark = mark(self.symbol, position) if self.is_marked and position is not None else ""

    def label(self) -> str:
        self.count += 1
        return f"x{self.count - 1}"

    # --- axes

    def grid(self, program: str) -> None:
        """Adds the lines that compute this program's block of each axis, and which of its elements exist."""
        grid = [dim for dim in self.tile if not dim.is_reduced]
        left = f"{program}{self.wide}"
        if len([dim for dim in grid if self.count_of(dim) != "1"]) > 1:
            self.add(f"program = {left}")
            left = "program"
        for dim in reversed(grid):
            count = self.count_of(dim)
            is_first = dim is grid[0] or all(self.count_of(d) == "1" for d in grid[: grid.index(dim)])
            place = "0" if count == "1" else left if is_first else f"{left} % {_factor(count)}"
            self.add_axis(dim, place)
            if count != "1" and not is_first:
                self.add(f"program = program // {_factor(count)}")
        for dim in self.tile:
            if dim.is_reduced and self.is_whole(dim):
                self.enter([dim.axis])
                self.add_axis(dim, "0")

    def is_whole(self, dim: Dim) -> bool:
        assert self.kernel.schedule is not None
        axis = dim.axis.removesuffix(DOWN)
        return any(loop.axis == axis and loop.kind == "tile" for loop in loops(self.kernel.schedule.steps))

    def count_of(self, dim: Dim) -> str:
        """The number of blocks of an axis."""
        extent = self.extents[dim.axis]
        if dim.parameter:
            return "1" if at_least(dim.block - extent, 0) else f"tl.cdiv({index_text(extent)}, {dim.parameter})"
        return index_text(extent)

    def lanes(self, dim: Dim) -> str:
        """The elements of a block, counted from 0."""
        return f"tl.arange(0, {dim.parameter}){self.subscript(dim)}{self.wide}"

    def add_axis(self, dim: Dim, place: str) -> None:
        """Adds the lines for the elements of an axis in this block, and for a mask if some may not exist."""
        if not dim.parameter:
            self.add(f"{dim.axis} = {place}")
            return
        lanes = self.lanes(dim)
        if dim.axis in self.counted:
            self.add(f"{dim.axis}_block = {place}")
            place = f"{dim.axis}_block"
        self.add(f"{dim.axis} = {lanes}" if place == "0" else f"{dim.axis} = {place} * {dim.parameter} + {lanes}")
        self.add_mask(dim)

    def add_mask(self, dim: Dim) -> None:
        if self.is_masked(dim.axis):
            self.add(f"{dim.axis}_mask = {dim.axis} < {index_text(self.extents[dim.axis])}")

    def subscript(self, dim: Dim) -> str:
        if len(self.dims) == 1:
            return ""
        return f"[{', '.join(':' if d is dim else 'None' for d in self.dims)}]"

    def is_masked(self, axis: str) -> bool:
        """Whether a block may reach beyond the end of the axis."""
        dim = next(d for d in self.tile if d.axis == axis)
        return bool(dim.parameter) and not divides(dim.block, self.extents[axis])

    def mask(self, axes: Iterable[str], *more: str) -> str:
        """The condition under which an element exists along these axes; "" if all exist."""
        names = [f"{dim.axis}_mask" for dim in self.dims if dim.axis in axes and self.is_masked(dim.axis)]
        return " & ".join([*names, *(text for text in more if text)])

    def shape(self, axes: Iterable[str]) -> str:
        wanted = set(axes)
        return f"[{', '.join(d.parameter if d.axis in wanted else '1' for d in self.dims)}]"

    # --- steps

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.computes(None if isinstance(step, Loop) else step)
            if isinstance(step, Loop):
                self.loop(step)
            elif self.products is not None and step in self.products.dots.reduces:
                self.names[step] = self.dot(step, self.products)
            elif self.products is not None and self.products.is_absorbed(step, self.dtypes):
                pass
            elif self.is_left_to_stores(step):
                self.names[step] = self.names[self.ops[step].args[0]]
            else:
                op = self.ops[step]
                self.enter(op.loop_axes)
                names = {a: self.name_of(a, step) for a in op.args if a in self.names}
                self.names[step] = self.op(op, arguments(op, self.ops, names), step)

    def is_compared(self, position: int) -> bool:
        """Whether an operation is an index that is only compared: 32 bits are enough for it in a narrow kernel."""
        op = self.ops[position]
        users = [user for user in self.ops if position in user.args]
        return isinstance(op.attrs, Index) and bool(op.axes) and all(user.name in COMPARISONS for user in users)

    def is_left_to_stores(self, position: int) -> bool:
        """Whether an operation rounds a value that is only stored: the store rounds it."""
        op = self.ops[position]
        users = [user.attrs for user in self.ops if position in user.args]
        if not isinstance(op.attrs, Round) or isinstance(self.ops[op.args[0]].attrs, Constant):
            return False
        dtype = op.attrs.dtype
        return all(isinstance(user, Store) and self.dtypes[user.ref.storage] == dtype for user in users)

    def enter(self, axes: Iterable[str]) -> None:
        """Notes the axes over which the next operations vary; beside a matrix product they decide the dimensions."""
        if self.products is not None:
            self.dims = self.products.beside(tuple(axes))

    def dims_of(self, position: int) -> list[Dim]:
        """The dimensions of the elements that an operation accesses, by the names of the kernel's axes."""
        if self.products is None:
            return self.dims
        dims = self.products.beside(self.ops[position].axes)
        return [replace(dim, axis=dim.axis.removesuffix(DOWN)) for dim in dims]

    def loop(self, loop: Loop) -> None:
        """Adds a loop over the blocks of a reduced axis, with accumulators for its reductions."""
        inner, chain = loop, [loop]
        while len(inner.body) == 1 and isinstance(inner.body[0], Loop):
            inner = inner.body[0]
            chain.append(inner)
        for position in loop.carries:
            self.computes(position)
            self.declare(position)
        self.computes(None)
        zero = f"tl.full([], 0, {self.index_type})"  # makes a tensor of a number: the interpreter counts with Python's
        for level in chain:
            dim = next(d for d in self.tile if d.axis == level.axis)
            extent, step = index_text(self.extents[dim.axis]), dim.parameter or "1"
            is_value = not dim.parameter and self.is_value(dim.axis, inner.body)
            start = f"{dim.axis}_start" if dim.parameter or is_value else dim.axis
            if level is inner and not self.is_turned(level):
                self.add(*self.blocks.enter(dim.axis, set(positions(inner.body))))
            counted = f"0, {extent}, {step}"
            values = f"tl.range({counted}, num_stages={level.stages})" if level.stages else f"range({counted})"
            self.add(f"for {start} in {values}:")
            self.indent += "    "
            first = f"({extent} - 1) // {step} * {step} - {start}" if self.is_turned(level) else start
            if dim.axis in self.counted:
                number = f"({first}) // {step}" if self.is_turned(level) else f"{start} // {step}"
                as_index = f" + {zero}" if self.wide else ""
                self.add(f"{dim.axis}_block = {number}{as_index}")
            for form in self.forms(dim, inner.body) if dim.parameter else ():
                self.enter([form.axis])
                self.add(f"{form.axis} = {first} + {self.lanes(form)}")
                self.add_mask(form)
            if is_value:
                self.add(f"{dim.axis} = {start} + {zero}")
        self.steps(inner.body)
        self.computes(None)
        self.add(*self.blocks.leave(inner.axis, set(positions(inner.body))))
        self.indent = self.indent[: -4 * len(chain)]
        for position in loop.carries:
            if isinstance(self.ops[position].attrs, Reduce):
                self.computes(position)
                self.finish(position)

    def is_value(self, axis: str, body: Sequence[Step]) -> bool:
        """Whether the number of a step has to be a tensor: Triton's interpreter counts with Python's integers."""
        ops = (self.ops[p] for p in positions(body))
        return bool(self.wide) or any(isinstance(op.attrs, Index) and axis in op.axes for op in ops)

    def name_of(self, value: int, user: int) -> str:
        """The text of a value where the operation `user` reads it.

        A value that varies over the inner axis of a product alone may have to be transposed there.
        """
        name = self.names[value][0]
        is_crossing = self.products is not None and self.products.is_crossing(user, value)
        return f"tl.trans({name})" if is_crossing else name

    # --- matrix products

    def is_dot(self, position: int) -> bool:
        return self.products is not None and position in self.products.dots.reduces

    def operand_load(self, position: int, op: Op, attrs: Load) -> tuple[str, ...]:
        """A load of an operand of `tl.dot`, with zeros where no element exists; also in float32, if others use it."""
        assert self.products is not None
        if (position,) in self.blocks:
            text = self.blocks.load((position,), is_raw=True)
        else:
            text = self.load(attrs.ref.storage, attrs.index, op, "").removesuffix(".to(tl.float32)")
            if self.is_masked(self.products.dots.inner):
                text = f"{text[:-1]}, other=0.0)"
        self.raw[position] = self.define(text)
        if not self.products.is_widened(position, self.dtypes) or op.dtype == self.dtypes[attrs.ref.storage]:
            return (self.raw[position],)
        return (self.define(f"{self.raw[position]}.to(tl.float32)"),)

    def dot(self, position: int, products: Products) -> tuple[str, ...]:
        """The product of two blocks, added to the sum so far if this stands in a loop."""
        left, right, is_fast = products.operands(position, self.dtypes)
        taken = [self.operand(operand, products) for operand in (left, right)]
        dtype = self.ops[position].dtype
        precision = "" if left.dtype.itemsize == 2 else f', input_precision="{"tf32" if is_fast else "ieee"}"'
        wide = ", out_dtype=tl.float64" if dtype == F64 else ""
        self.enter(self.ops[position].axes)
        if position not in self.names:
            if dtype == F32 and "ieee" in precision:
                self.unsummed.add(position)
            return (self.define(f"tl.dot({', '.join(taken)}{precision}{wide})"),)
        (total,) = self.names[position]
        self.add(f"{total} = tl.dot({', '.join(taken)}, {total}{precision}{wide})")
        return (total,)

    def operand(self, operand: Operand, products: Products) -> str:
        op = self.ops[operand.position]
        if operand.is_loaded:
            return self.raw[operand.position]
        self.enter(op.axes)
        name = self.names[operand.position][0]
        inner = [axis for axis in (products.dots.inner, products.down) if axis in op.axes]
        if mask := self.mask(inner):
            name = self.define(f"tl.where({mask}, {name}, 0.0)")
        return name if op.dtype == operand.dtype else f"{name}.to({triton_type(operand.dtype)})"

    def forms(self, dim: Dim, steps: Iterable[Step]) -> list[Dim]:
        """The dimensions along an axis that these steps need: the inner axis of a product has one for each side."""
        if self.products is None or dim.axis != self.products.dots.inner:
            return [dim]
        used = {axis for step in positions(steps) for axis in self.products.needs(step)}
        return [d for d in self.tile if d.axis in used and d.axis in (dim.axis, self.products.down)]

    def is_turned(self, loop: Loop) -> bool:
        """Whether a loop runs from the last block to the first, for a scan from the end."""
        scans = [attrs for p in loop.carries if isinstance(attrs := self.ops[p].attrs, Scan)]
        return any(scan.reverse for scan in scans)

    def has_turns(self, dim: Dim) -> bool:
        assert self.kernel.schedule is not None
        return any(loop.axis == dim.axis and self.is_turned(loop) for loop in loops(self.kernel.schedule.steps))

    def op(self, op: Op, args: Sequence[str], position: int) -> tuple[str, ...]:
        match op.attrs:
            case Load() if self.products is not None and self.products.is_taken_raw(position, self.dtypes):
                return self.operand_load(position, op, op.attrs)
            case Reduce() if position in self.names:
                self.accumulate(position, args)
                return self.names[position]
            case Reduce(axes, how):
                return self.joined(op, args, axes, how)
            case Scan():
                return self.scan(op, op.attrs, args, position)
            case Project(number):
                return (self.names[op.args[0]][number],)
            case Index(expr) if not self.wide and self.is_compared(position):
                return (expr.name if isinstance(expr, Symbol) else self.define(index_text(expr)),)
            case None if op.name == "add" and self.is_product_and_other(op):
                return (self.define(self.added(op, args)),)
            case _:
                return (self.emit(op, args, self.ops, "", (position,)),)

    def is_product_and_other(self, op: Op) -> bool:
        """Whether one argument of an operation is a product in `unsummed`, and the other a value that varies."""
        others = [self.ops[a] for a in op.args if a not in self.unsummed]
        return len(others) == 1 and bool(others[0].axes) and not isinstance(others[0].attrs, Constant)

    def added(self, op: Op, args: Sequence[str]) -> str:
        """The sum of a product and another value, written so that Triton does not begin the product's sum with it.

        In float32, where no matrix unit sums, all additions of a block then wait for the other value, and the machine
        code keeps what they read in memory: 4.8 KB of each thread.
        """
        product, other = args if op.args[0] in self.unsummed else reversed(args)
        return f"{product} - (-{other})"

    def emit(self, op: Op, args: Sequence[str], ops: Sequence[Op], under: str, path: tuple[int, ...]) -> str:
        """Writes one operation of a body, in a region under the condition `under`."""
        match op.attrs:
            case Constant():
                return ""  # written where it is used
            case Load() if path in self.blocks:
                return self.define(self.blocks.load(path))
            case Store() if path in self.blocks:
                assert isinstance(op.attrs, Store)
                self.add(self.blocks.store(path, self.stored(op.attrs.ref.storage, args[0])))
                return ""
            case Load(ref, index):
                return self.define(self.load(ref.storage, index, op, under, self.hint(path)))
            case Store(ref, index):
                self.store(ref.storage, index, op, self.stored(ref.storage, args[0]), self.hint(path))
                return ""
            case Atomic(ref, index, kind):
                self.atomic(ref.storage, index, kind, op, args[0])
                return ""
            case Check():
                return self.check(op, op.attrs, args[0], under)
            case Assert(message):
                given = self.mask(op.axes, under)
                self.add(f"tl.device_assert({args[0]}, {message!r}{f', mask={given}' if given else ''})")
                return ""
            case Masked(body, other):
                around, self.spread = self.spread, (*self.spread, *ops[op.args[0]].axes)
                name = self.masked(body, literal(other, op.dtype) if op.dtype else "", args, under, path)
                self.spread = around
                return name
            case _:
                dtypes = [d for a in op.args if (d := ops[a].dtype) is not None]
                return self.define(expression(op, args, dtypes))

    def define(self, text: str) -> str:
        name = self.label()
        self.add(f"{name} = {text}")
        return name

    # --- memory

    def place(self, storage: str, index: Expr, axes: Iterable[str]) -> str:
        """The addresses of an access. An index without some axis of the mask is broadcast along it."""
        index = expand(index, identity=True)
        present = {axis for s in free_symbols(index) for axis in self.varies.get(s.name, (s.name,))}
        missing = [a for a in axes if a not in present and any(d.axis == a for d in self.dims)]
        text = index_text(index) + "".join(f" + 0 * {axis}" for axis in missing)
        return self.pointers[storage] if text == "0" else f"{self.pointers[storage]} + {text}"

    def load(self, storage: str, index: Expr, op: Op, under: str, hint: str = "") -> str:
        given = self.mask(op.axes, under)
        at = self.place(storage, index, dict.fromkeys((*op.axes, *self.spread)) if given else ())
        text = f"tl.load({at}{f', {given}' if given else ''}{hint})"
        return f"{text}.to(tl.float32)" if is_narrow(self.dtypes[storage]) else text

    def hint(self, path: tuple[int, ...]) -> str:
        """The argument with the hint for the cache of the next load or store of an op, behind a comma; or ""."""
        when = next(self.hints.get(path, iter(())), "")
        return f', eviction_policy="evict_{when}"' if when else ""

    def stored(self, storage: str, value: str) -> str:
        """A value as it is stored. `tl.store` converts it, unless its conversion differs from eager's."""
        dtype = self.dtypes[storage]
        return narrowed(value, dtype) if dtype == F8E5M2 else value

    def store(self, storage: str, index: Expr, op: Op, value: str, hint: str = "") -> None:
        given = self.mask(op.axes)
        self.add(f"tl.store({self.target(storage, index, op)}, {value}{f', {given}' if given else ''}{hint})")

    def target(self, storage: str, index: Expr, op: Op) -> str:
        """The addresses that an op writes: a block of one for a reduction of the tile that leaves one element of it."""
        is_one = len(self.dims) > 1 and is_block_of_one(self.ops, op, frozenset(d.axis for d in self.dims))
        return self.place(storage, index, op.axes) + (f" + tl.zeros({self.shape(())}, tl.int32)" if is_one else "")

    def atomic(self, storage: str, index: Expr, kind: str, op: Op, value: str) -> None:
        if kind == "set":
            self.store(storage, index, op, value)
            return
        if kind not in ATOMICS or (kind != "add" and self.dtypes[storage].kind == "float"):
            raise Unwritable(f"Triton has no atomic {kind} of {self.dtypes[storage]}")
        given, at = self.mask(op.axes), self.target(storage, index, op)
        self.add(f"{ATOMICS[kind]}({at}, {value}{f', mask={given}' if given else ''}, sem='relaxed')")

    def check(self, op: Op, attrs: Check, value: str, under: str) -> str:
        """Adds a bounds check and gives the index's name.

        An index out of bounds ends the call if assertions are on, and becomes 0 if they are off.
        """
        name, size = attrs.symbol.name, index_text(attrs.size)
        self.varies[name] = op.axes
        if attrs.wrap:
            self.add(f"{name} = tl.where({value} < 0, {value} + {size}, {value})")
        else:
            self.add(f"{name} = {value}")
        if attrs.error is not None:
            given = self.mask(op.axes, under)
            mask = f", mask={given}" if given else ""
            self.add(f"{name}_exists = ({name} >= 0) & ({name} < {size})")
            says = f"{attrs.error}: {attrs.message.format(value='', size=size)}"  # the interpreter raises that
            self.add(f"tl.device_assert({name}_exists, {says!r}{mask})")
            self.add(f"{name} = tl.where({name}_exists, {name}, 0)")
        return name

    def masked(self, body: Body, other: str, args: Sequence[str], under: str, path: tuple[int, ...]) -> str:
        taken = parameter_count(body)
        where = " & ".join(text for text in (under, args[0]) if text)
        (result,) = self.region(body, args[1 : 1 + taken], where, path)
        return self.define(f"tl.where({args[0]}, {result}, {other})")

    def region(self, body: Body, given: Sequence[str], under: str, path: tuple[int, ...]) -> list[str]:
        names: list[str] = []
        for position, op in enumerate(body.ops):
            if isinstance(op.attrs, Parameter):
                names.append(given[op.attrs.number])
            else:
                names.append(self.emit(op, arguments(op, body.ops, names), body.ops, under, (*path, position)))
        return [_result(body, r, names) for r in body.results]

    # --- joining

    def numbers(self, axes: Iterable[str]) -> list[int]:
        wanted = set(axes)
        return [n for n, dim in enumerate(self.dims) if dim.axis in wanted]

    def full(self, op: Op, args: Sequence[str], axes: Sequence[str], how: Combine) -> list[str]:
        """The values to reduce, over all elements of the tile, with the identity where no element exists."""
        over = [*op.axes, *axes]
        wanted = self.mask(axes)
        found: list[str] = []
        for arg, name, identity in zip(op.args, args, how.identity, strict=True):
            dtype = self.dtype_of(arg)
            wide = f"tl.broadcast_to({name}, {self.shape(over)})"
            if isinstance(given := self.ops[arg].attrs, Constant):
                wide = f"tl.full({self.shape(over)}, {literal(given.value, dtype)}, {triton_type(dtype)})"
            if set(self.ops[arg].axes) >= {d.axis for d in self.dims if d.axis in over}:
                wide = name
            found.append(f"tl.where({wanted}, {wide}, {literal(identity, dtype)})" if wanted else wide)
        return found

    def joined(self, op: Op, args: Sequence[str], axes: Sequence[str], how: Combine) -> tuple[str, ...]:
        """The results of a reduction whose blocks are whole axes."""
        return self.fold(how, self.full(op, args, axes, how), axes, [self.dtype_of(a) for a in op.args])

    def fold(
        self, how: Combine, values: Sequence[str], axes: Iterable[str], dtypes: Sequence[DType]
    ) -> tuple[str, ...]:
        """Reduces along dimensions of the tile, which then have size 1; a scalar if no dimension is left."""
        numbers = self.numbers(axes)
        keep = ", keep_dims=True" if len(numbers) < len(self.dims) else ""
        if not numbers:
            return tuple(self.define(value) for value in values)
        if len(numbers) == len(self.dims) > 1:  # all of the tile: one dimension first
            values = [f"tl.reshape({value}, [{' * '.join(d.parameter for d in self.dims)}])" for value in values]
            numbers = [0]
        names = tuple(self.label() for _ in values)
        for n in numbers:
            given = values[0] if len(values) == 1 else f"({', '.join(values)})"
            if how.name == "sum" and len(values) == 1:
                self.add(f"{names[0]} = tl.sum({given}, {n}{keep})")
            else:
                self.add(f"{', '.join(names)} = tl.reduce({given}, {n}, {self.function(how, dtypes)}{keep})")
            values = names
        return names

    def dtype_of(self, position: int) -> DType:
        dtype = self.ops[position].dtype
        assert dtype is not None
        return dtype

    def declare(self, position: int) -> None:
        """Adds accumulators before a loop: for a reduction the whole tile, for a scan the values before the block."""
        op = self.ops[position]
        assert isinstance(op.attrs, Reduce | Scan)
        over = op.loop_axes if isinstance(op.attrs, Reduce) else [a for a in op.axes if a != op.attrs.axis]
        if self.is_dot(position):
            over = op.axes
        self.enter(over)
        names: list[str] = []
        uniform = self.uniform(op)
        for arg, identity in zip(op.args, op.attrs.combine.identity, strict=True):
            dtype = self.dtype_of(arg)
            name = f"sum{position}" if len(op.args) == 1 else f"sum{position}_{len(names)}"
            shape = self.shape(over) if isinstance(op.attrs, Reduce) or len(self.dims) > 1 else "[]"
            shape = self.shape(()) if len(names) in uniform else shape
            self.add(f"{name} = tl.full({shape}, {literal(identity, dtype)}, {triton_type(dtype)})")
            names.append(name)
        self.names[position] = tuple(names)

    def accumulate(self, position: int, args: Sequence[str]) -> None:
        op = self.ops[position]
        assert isinstance(op.attrs, Reduce)
        names, how = self.names[position], op.attrs.combine
        values = self.full(op, args, op.attrs.axes, how)
        if self.uniform(op):  # no lane is masked, so that a constant is one number
            values = [self.number(arg) or value for arg, value in zip(op.args, values, strict=True)]
        if how.name == "sum":
            self.add(f"{names[0]} += {values[0]}")
            return
        call = f"{self.function(how, [self.dtype_of(a) for a in op.args])}({', '.join([*names, *values])})"
        self.add(f"{', '.join(names)} = {call}")

    def finish(self, position: int) -> None:
        op = self.ops[position]
        assert isinstance(op.attrs, Reduce)
        if self.is_dot(position):
            return
        self.enter(op.loop_axes)
        dtypes = [self.dtype_of(a) for a in op.args]
        wide, uniform = self.shape(op.loop_axes), self.uniform(op)
        names = [f"tl.broadcast_to({n}, {wide})" if k in uniform else n for k, n in enumerate(self.names[position])]
        self.names[position] = self.fold(op.attrs.combine, names, op.attrs.axes, dtypes)

    def number(self, position: int) -> str:
        """The literal of a constant; "" for any other op."""
        attrs = self.ops[position].attrs
        return literal(attrs.value, self.dtype_of(position)) if isinstance(attrs, Constant) else ""

    def uniform(self, op: Op) -> frozenset[int]:
        """The values that a reduction carries as one number for all lanes, in a loop in which no lane is masked."""
        is_alike = isinstance(op.attrs, Reduce) and not self.mask(op.attrs.axes)
        return uniform_parts(op, self.ops) if is_alike else frozenset()

    def scan(self, op: Op, attrs: Scan, args: Sequence[str], position: int) -> tuple[str, ...]:
        """A scan along an axis, combined with the blocks before it if the axis has several blocks."""
        if not self.numbers([attrs.axis]):
            return tuple(args)
        dtypes = [self.dtype_of(a) for a in op.args]
        (number,) = self.numbers([attrs.axis])
        values = self.full(op, args, (attrs.axis,), attrs.combine)
        names, function = tuple(self.label() for _ in values), self.function(attrs.combine, dtypes)
        has_row = len(self.dims) > 1 and self.numbers(op.axes) == [number]  # one, for all of the tile
        row = [self.dims[number].parameter, self.shape([attrs.axis])] if has_row else None
        self.add(*scanned(names, values, number, function, is_reverse=attrs.reverse, row=row))
        before = self.names.get(position)
        if before is None:
            return names
        self.add(f"{', '.join(names)} = {function}({', '.join([*before, *names])})")
        self.keep_end(before, names, attrs, op.axes)
        self.names.pop(position)
        return names

    def keep_end(self, kept: Sequence[str], values: Sequence[str], scan: Scan, axes: Iterable[str]) -> None:
        """Keeps the last values of a scan in a block, for the next block.

        They are selected and not summed up under a mask, since a sum would lose the sign of 0.
        """
        (number,) = self.numbers([scan.axis])
        dim = self.dims[number]
        lane = f"tl.arange(0, {dim.parameter}){self.subscript(dim)}"
        end = self.define(f"{lane} == {'0' if scan.reverse else f'{dim.parameter} - 1'}")
        wide = f"tl.broadcast_to({end}, {self.shape(axes)})"
        name = f"end_of_{len(kept)}"
        self.functions[name] = _end_text(name, len(kept))
        keep = ", keep_dims=True" if len(self.dims) > 1 else ""
        given = ", ".join([wide, *values])
        self.add(f"{', '.join([end, *kept])} = tl.reduce(({given}), {number}, {name}{keep})")

    def function(self, how: Combine, dtypes: Sequence[DType]) -> str:
        """The function that combines two groups of values."""
        name = f"{how.name}_{'_'.join(d.name for d in dtypes)}"
        name = name if is_standard_combine(how, dtypes[0]) else f"{self.symbol}_{name}"
        if name not in self.functions:
            self.functions[name] = _combine_text(name, how)
        return name


def _combine_text(name: str, how: Combine) -> str:
    """A `triton.jit` function from 2k values to k values."""
    k = len(how.identity)
    given = [*(f"a{n}" for n in range(k)), *(f"b{n}" for n in range(k))]
    lines = ["@triton.jit", f"def {name}({', '.join(given)}):"]
    names: list[str] = []
    for position, op in enumerate(how.body.ops):
        if isinstance(op.attrs, Parameter):
            names.append(given[op.attrs.number])
            continue
        dtypes = [d for a in op.args if (d := how.body.ops[a].dtype) is not None]
        names.append(f"x{position}")
        if not isinstance(op.attrs, Constant):
            lines.append(f"    x{position} = {expression(op, arguments(op, how.body.ops, names), dtypes)}")
    lines.append(f"    return {', '.join(names[r] for r in how.body.results)}")
    return "\n".join(lines) + "\n"


def _end_text(name: str, count: int) -> str:
    """A `triton.jit` function for a reduction that returns the one value that is marked."""
    given = [*(f"a{n}" for n in range(count)), *(f"b{n}" for n in range(count))]
    picked = ", ".join(f"tl.where(end_b, b{n}, a{n})" for n in range(count))
    head = f"def {name}(end_a, {', '.join(given[:count])}, end_b, {', '.join(given[count:])}):"
    return f"@triton.jit\n{head}\n    return end_a | end_b, {picked}\n"


def _result(body: Body, position: int, names: Sequence[str]) -> str:
    """The value of a region; a constant is written where it is used."""
    op = body.ops[position]
    return literal(op.attrs.value, op.dtype) if isinstance(op.attrs, Constant) and op.dtype else names[position]


def _factor(text: str) -> str:
    return text if text.isidentifier() or text.isdecimal() or text.startswith("tl.cdiv(") else f"({text})"
