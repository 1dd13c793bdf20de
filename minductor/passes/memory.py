"""Decides the life of every storage, and writes the call as a plan of lines.

Takes an ordered Program. Gives a Plan: allocate, reuse, launch, extern, view, free, return, in the program's order.
Refuses nothing; a storage is reused only if nothing can see it any more.

Three ways to save memory, tried in this order for each storage that a node makes: write in place over an operand that
dies here; take over a dead storage of the same dtype and element count; allocate. Inputs are borrowed and never
reused, except donated ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from minductor.core.dtypes import DType
from minductor.core.expr import Expr, Symbol, add, as_int, integer, mul
from minductor.core.names import kernel_name, unique
from minductor.ir import plan as lines
from minductor.ir.nodes import (
    Argument,
    Atomic,
    Buffer,
    Extern,
    Kernel,
    Load,
    Node,
    Origin,
    Program,
    Ref,
    Require,
    Scan,
    Store,
    SymbolDef,
    Token,
    View,
    makes,
    reads,
    told_by,
    views_of,
    writes,
)
from minductor.ir.plan import Line, Plan
from minductor.ir.schedule import positions
from minductor.ir.signature import Signature, all_ops, canonical, digest, rename_storages, signature
from minductor.target import Env

# Below this a fresh allocation costs less than a strided window on an old one.
SMALL_BYTES = 64 * 1024


def memory(program: Program, env: Env) -> Plan:
    """The plan of one call of the program."""
    del env  # the plan does not depend on the target yet; the signature is every stage's
    planner = _Planner(program)
    plan = _planned(planner)
    return replace(plan, lines=planner.definitions(), kernels=tuple(planner.kernels.items()))


def _planned(planner: _Planner) -> Plan:
    """A program's own lines, and the plans of its regions, whose kernels join those of the outermost program."""
    program = planner.program
    for number, node in enumerate(program.nodes):
        planner.node(number, node)
    planner.finish()
    regions: list[Plan] = []
    for region in program.regions:
        inner = _Planner(region, planner.kernels, planner.texts)
        inner.enter()
        regions.append(_planned(inner))
    return Plan(program.name, program.inputs, tuple(planner.body), (), program.guards, tuple(regions))


@dataclass(slots=True)
class _Definition:
    """A kernel's text, and the launches that share it."""

    id: str
    digest: str
    ops: tuple[str, ...]  # of the first launch: they name the kernel
    parameters: tuple[tuple[str, str], ...]
    origins: list[Origin]


@dataclass(slots=True)
class _Planner:
    program: Program
    kernels: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    texts: dict[str, _Definition] = field(default_factory=dict[str, _Definition])
    buffers: dict[str, Buffer] = field(init=False)
    last_use: dict[str, int] = field(init=False)
    kept: set[str] = field(init=False)  # storages that outlive the call or that we do not own
    live: set[str] = field(init=False)
    body: list[Line] = field(default_factory=list[Line])
    pool: dict[tuple[DType, Expr], list[str]] = field(default_factory=dict[tuple[DType, Expr], list[str]])
    wanted: Counter[tuple[DType, Expr]] = field(init=False)  # storages still to be made, by what they could take over
    shown: set[str] = field(default_factory=set[str])  # seen by operators of others, which may have kept them
    handles: int = 0
    view_count: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        program = self.program
        self.buffers = program.buffer_table()
        self.last_use = {}
        for number, node in enumerate(program.nodes):
            for ref in (*reads(node), *writes(node)):
                self.last_use[ref.storage] = number
        owned = {i.name for i in program.inputs if i.is_donated}
        made = dict.fromkeys(ref.storage for node in program.nodes for ref in writes(node) if _is_planned(node))
        self.wanted = Counter(_key(self.buffers[name]) for name in made if self.buffers[name].kind == "local")
        self.kept = {b.name for b in program.buffers if b.kind != "local" and b.name not in owned}
        self.kept.update(view.ref.storage for view in views_of(program.outputs))
        self.live = {b.name for b in program.buffers if b.kind != "local"}
        self._define_symbols()
        unused = [i.name for i in program.inputs if i.symbol is None and i.name not in self.last_use]
        self._free([name for name in unused if name not in {v.ref.storage for v in views_of(program.outputs)}])

    def _define_symbols(self) -> None:
        """Each size symbol from the integer parameter that is it, else from a tensor parameter of that size."""
        given: dict[Symbol, lines.SymbolDef] = {}
        for parameter in self.program.inputs:
            if isinstance(parameter.symbol, Symbol) and parameter.symbol not in given:
                given[parameter.symbol] = lines.SymbolDef(parameter.symbol, parameter.name)
        for parameter in self.program.inputs:
            sizes = self.buffers[parameter.name].size if parameter.symbol is None else ()
            for dim, size in enumerate(sizes):
                if isinstance(size, Symbol) and size not in given:
                    given[size] = lines.SymbolDef(size, lines.SizeOf(parameter.name, dim))
        self.body.extend(line for line in given.values() if line.source != line.symbol.name)

    def enter(self) -> None:
        """A region's tensors come from wherever its caller has them: a row of one, a result of its last round."""
        for given in self.program.inputs:
            if given.symbol is None and given.name in self.last_use:
                buffer = self.buffers[given.name]
                self.body.append(lines.LaidOut(given.name, buffer.size, buffer.stride))

    # --- nodes

    def node(self, number: int, node: Node) -> None:
        match node:
            case Kernel():
                self._launch(number, node)
            case Extern():
                self._extern(number, node)
            case SymbolDef(symbol, body, _):
                self.body.append(lines.SymbolDef(symbol, body))
            case Require(body, message, _):
                self.body.append(lines.Assert(body, message))
        touched = dict.fromkeys(ref.storage for ref in (*reads(node), *writes(node)))
        dead = [name for name in touched if self.last_use[name] == number and name in self.live]
        if isinstance(node, Extern):
            # scratch results that nobody reads may be smaller than traced
            made = {ref.storage for ref in writes(node)}
            if _is_foreign(node):
                self.shown.update(touched)
            self._release([name for name in dead if name in made], reusable=False)
            dead = [name for name in dead if name not in made]
        self._release(dead, reusable=True)

    def _launch(self, number: int, kernel: Kernel) -> None:
        taken: dict[str, str] = {}
        made = [ref.storage for ref in writes(kernel) if ref.storage not in self.live]
        for name in dict.fromkeys(made):
            old = self._in_place(number, kernel, name, taken)
            if old is None:
                self._allocate(name)
            else:
                taken[name] = old
                self.wanted[_key(self.buffers[name])] -= 1
        if taken:
            kernel = rename_storages(kernel, _takeover(kernel, taken))
        needs = signature(kernel)
        definition = self._define(kernel, needs)
        self.handles += 1
        self.body.append(lines.Launch(definition.id, needs.storages, needs.sizes, kernel.origins, self.handles))
        for name, old in taken.items():
            self._reuse(name, old)

    def _define(self, kernel: Kernel, needs: Signature) -> _Definition:
        plain, text = canonical(kernel, needs.storages, self.buffers)
        found = self.texts.get(text)
        if found is None:
            parameters = tuple((f"p{n}", self.buffers[name].dtype.name) for n, name in enumerate(needs.storages))
            ops = tuple(_short(o.op) for o in kernel.origins)
            found = self.texts[text] = _Definition(f"k{len(self.texts)}", digest(text), ops, parameters, [])
            self.kernels[found.id] = plain
        found.origins.extend(kernel.origins)
        return found

    def _extern(self, number: int, node: Extern) -> None:
        views: list[str] = []
        args = tuple(self._argument(a, views) for a in node.args)
        kwargs = tuple((name, self._argument(value, views)) for name, value in node.kwargs)
        results: list[str | None] = []
        for result in node.results:
            match result:
                case View(ref=ref) if node.form == "out":
                    self._allocate(ref.storage)
                    results.append(ref.storage)
                case View(ref=ref) if ref.storage not in self.live:
                    self.live.add(ref.storage)
                    results.append(ref.storage)
                case Symbol():
                    results.append(result.name)
                case View() | None:
                    results.append(None)
        self.handles += 1
        is_out = node.form == "out"
        dtypes = tuple(map(_dtype, node.results)) if _is_foreign(node) and node.form == "return" else ()
        call = lines.Extern(node.op, args, kwargs, tuple(results), is_out, node.origins, self.handles, dtypes)
        self.body.append(call)
        self._free(views)
        if node.form == "return" and node.op != "aten.empty_strided.default":
            self._returned(number, node)

    def _returned(self, number: int, node: Extern) -> None:
        """What is known of results only now: symbols and layouts.

        Kernels read memory by the traced layout, and meta functions are wrong about some; eager's own strides stay on
        what only the caller sees.
        """
        for symbol in makes(node):
            if (place := told_by(node, symbol)) is not None:
                result, dim, scale, shift = place
                view = node.results[result]
                assert isinstance(view, View)
                self.body.append(lines.SymbolDef(symbol, lines.SizeOf(view.ref.storage, dim, scale, shift)))
        for result in node.results:
            if not isinstance(result, View):
                continue
            is_read = self.last_use[result.ref.storage] > number
            if is_read or self._is_output(result.ref.storage):
                self.body.append(lines.LaidOut(result.ref.storage, result.size, result.stride if is_read else None))

    def _argument(self, value: Argument, views: list[str]) -> Argument:
        match value:
            case View():
                return Token("tensor", self._named(value, views))
            case tuple():
                return tuple(self._argument(item, views) for item in value)
            case _:
                return value

    def _named(self, view: View, views: list[str]) -> str:
        """The name of a tensor with this layout: the buffer itself, or a View line made for it."""
        name = view.ref.storage
        buffer = self.buffers[name]
        whole = view.size == buffer.size and view.stride == buffer.stride and view.dtype == buffer.dtype
        if whole and view.offset == integer(0):
            return name
        made = self._window(view)
        views.append(made)
        return made

    def _window(self, view: View) -> str:
        name = view.ref.storage
        self.view_count[name] += 1
        made = f"{name}_view{self.view_count[name]}"
        self.body.append(lines.View(made, name, view.dtype, view.size, view.stride, view.offset))
        return made

    def finish(self) -> None:
        """The return line; what dies with the call needs no Free."""
        group_of = {number: group for group in self.program.own for number in group}
        made: dict[tuple[View, tuple[int, ...]], str] = {}
        values: list[Argument] = []
        for number, value in enumerate(self.program.outputs):
            if not isinstance(value, View):
                values.append(self._argument(value, []))
                continue
            group = group_of.get(number, ())
            if (value, group) not in made:
                made[value, group] = self._window(value) if group else self._named(value, [])
            values.append(Token("tensor", made[value, group]))
        self.body.append(lines.Return(tuple(values)))

    # --- storages

    def _allocate(self, name: str) -> None:
        if name in self.live:
            return
        buffer = self.buffers[name]
        self.live.add(name)
        self.wanted[_key(buffer)] -= 1
        pool = self.pool.get(_key(buffer), [])
        for old in reversed(pool):
            if _is_cheap_reuse(self.buffers[old], buffer):
                pool.remove(old)
                self.live.add(old)
                self._reuse(name, old)
                return
        self.body.append(lines.Allocate(name, buffer.dtype, buffer.size, buffer.stride, buffer.device))

    def _reuse(self, name: str, old: str) -> None:
        buffer = self.buffers[name]
        self.body.append(lines.Reuse(name, old, buffer.dtype, buffer.size, buffer.stride))
        self.live.discard(old)
        self.live.add(name)

    def _release(self, dead: Iterable[str], *, reusable: bool) -> None:
        """Ends lives: an own dense storage waits in the pool for a taker, everything else is freed."""
        gone: list[str] = []
        for name in dead:
            if name in self.kept:
                if self.buffers[name].kind == "input" and not self._is_output(name):
                    gone.append(name)
                continue
            buffer = self.buffers[name]
            if (
                reusable
                and name not in self.shown
                and _is_dense(buffer)
                and self.wanted[_key(buffer)] > len(self.pool.get(_key(buffer), ()))
            ):
                self.pool.setdefault(_key(buffer), []).append(name)
            else:
                gone.append(name)
            self.live.discard(name)
        self._free(gone)

    def _free(self, names: Iterable[str]) -> None:
        gone = tuple(names)
        if gone:
            self.body.append(lines.Free(gone))

    def _is_output(self, name: str) -> bool:
        return any(view.ref.storage == name for view in views_of(self.program.outputs))

    def _in_place(self, number: int, kernel: Kernel, name: str, taken: dict[str, str]) -> str | None:
        """A dying operand whose elements this kernel reads just where it writes `name`'s."""
        for ref in reads(kernel):
            old = ref.storage
            if (
                old in self.kept
                or old in self.shown
                or old in taken.values()
                or self.last_use[old] != number
                or old not in self.live
            ):
                continue
            a, b = self.buffers[old], self.buffers[name]
            same = a.dtype == b.dtype and _elements(a) == _elements(b) and _is_dense(a) and _is_dense(b)
            if same and _is_elementwise(kernel, old, name):
                return old
        return None

    # --- result

    def definitions(self) -> tuple[Line, ...]:
        """The kernel definitions, then the lines."""
        programs = list(_with_regions(self.program))
        constants = [b.name for program in programs for b in program.buffers if b.kind == "constant"]
        defs: list[Line] = [lines.Constant(name, number) for number, name in enumerate(constants)]
        # a kernel must not be called as a tensor is: `add_8` may be a saved tensor's name
        taken = {b.name for program in programs for b in program.buffers}
        taken.update(given.name for program in programs for given in program.inputs)
        taken.update(program.name for program in programs)
        for number, found in enumerate(self.texts.values()):
            name = unique(kernel_name(found.ops, number), taken)
            defs.append(lines.KernelDef(found.id, name, found.parameters, found.digest, tuple(found.origins)))
        return (*defs, *self.body)


def _short(op: str) -> str:
    """The operator as people say it: "aten.native_layer_norm.default" is layer_norm."""
    return op.split(".")[1].strip("_").removeprefix("native_") if op.count(".") > 1 else op


def _elements(buffer: Buffer) -> Expr:
    return mul(*buffer.size) if buffer.size else integer(1)


def _key(buffer: Buffer) -> tuple[DType, Expr]:
    return buffer.dtype, _elements(buffer)


def _with_regions(program: Program) -> Iterator[Program]:
    yield program
    for region in program.regions:
        yield from _with_regions(region)


def _is_foreign(node: Extern) -> bool:
    """Whether a call is of an operator that torch does not answer for, or of one that calls graphs."""
    return not node.op.startswith(("aten.", "prims.", "_c10d_functional."))


def _dtype(result: View | Symbol | None) -> DType | None:
    return result.dtype if isinstance(result, View) else None


def _is_planned(node: Node) -> bool:
    """Whether we allocate what the node makes; an extern that returns tensors brings its own."""
    return not isinstance(node, Extern) or node.form == "out"


def _is_dense(buffer: Buffer) -> bool:
    """Whether the elements fill their storage without gaps, in any order of dims; unknown counts as no."""
    extent = integer(1)
    for size, stride in zip(buffer.size, buffer.stride, strict=True):
        extent = add(extent, mul(add(size, -1), stride))
    return extent == _elements(buffer)


def _is_cheap_reuse(old: Buffer, new: Buffer) -> bool:
    if old.size == new.size and old.stride == new.stride:
        return True
    elements = as_int(_elements(new))
    return _is_dense(new) and (elements is None or elements * new.dtype.itemsize >= SMALL_BYTES)


def _takeover(kernel: Kernel, taken: dict[str, str]) -> dict[Ref, Ref]:
    """Renames each written storage to the one it takes over, as that one's next versions."""
    newest: dict[str, int] = {}
    for ref in reads(kernel):
        newest[ref.storage] = max(newest.get(ref.storage, 0), ref.version)
    return {
        ref: Ref(taken[ref.storage], newest[taken[ref.storage]] + 1 + ref.version)
        for ref in writes(kernel)
        if ref.storage in taken
    }


def _is_elementwise(kernel: Kernel, old: str, new: str) -> bool:
    """Whether each element of `old` is read only before, and at the index where, `new`'s is written.

    Reductions walk an axis several times, so the write has to stand in the last loop that reads.
    """
    stores = [op for op in kernel.body.ops if isinstance(op.attrs, Store) and op.attrs.ref.storage == new]
    if len(stores) != 1 or not isinstance(stores[0].attrs, Store):
        return False
    index = stores[0].attrs.index
    for op in all_ops(kernel.body):
        match op.attrs:
            case Load(ref, at) if ref.storage == old and at != index:
                return False
            case Atomic() | Scan():
                return False
            case Load(ref, _) if ref.storage == new:
                return False
            case _:
                pass
    top = {id(op) for op in kernel.body.ops}
    if any(
        id(op) not in top and isinstance(op.attrs, Load) and op.attrs.ref.storage == old for op in all_ops(kernel.body)
    ):
        return False
    return _is_read_before_write(kernel, old, new)


def _is_read_before_write(kernel: Kernel, old: str, new: str) -> bool:
    """Whether no loop of the schedule computes a load of `old` after the first loop that stores `new`."""
    order = tuple(positions(kernel.schedule.steps)) if kernel.schedule else tuple(range(len(kernel.body.ops)))
    stored = False
    for position in order:
        match kernel.body.ops[position].attrs:
            case Store(ref, _) if ref.storage == new:
                stored = True
            case Load(ref, _) if ref.storage == old and stored:
                return False
            case _:
                pass
    return True
