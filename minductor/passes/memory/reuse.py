"""Decides which buffers share a storage: results written in place over operands, or into storages of dead buffers.

Takes an ordered program and the options. Gives a `Sharing`: for each node the buffers that it makes, which of them get
the storage of an older buffer, and which storages are freed after the node. Refuses, without a note, all that the
caller could see: a storage that is returned, that belongs to a lent input, or that a custom operator has seen is never
reused.

An in-place write is legal if every read of the old value is of the element that is being written.

A dead storage that is kept for a later buffer costs memory in between. It is kept only if that does not raise the peak
above that of freeing each storage at once. So a plan never needs more memory than its program does in this order, and
no layout of all storages in one large block would need less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, as_int, integer, mul
from minductor.core.expressions.hints import estimate
from minductor.ir.plan.storage import is_foreign, span_elements, storage_bytes
from minductor.ir.program.loops import positions
from minductor.ir.program.nodes import (
    Atomic,
    Buffer,
    Extern,
    Kernel,
    Load,
    Node,
    Program,
    Scan,
    Store,
    all_ops,
    reads,
    views_of,
    writes,
)
from minductor.options import Options

# bytes; below this a new allocation costs less than a view with other strides on an old storage
SMALL_BYTES = 64 * 1024
# nodes over which a dead storage is kept; later it has left the caches, and searching for it takes time
MAX_NODES_KEPT = 256

StorageKey = tuple[DType, Expr, str]  # dtype, elements, device


class Sharing(NamedTuple):
    """Which buffers share storages, and when storages are freed. Nodes are known by their positions."""

    created: Mapping[int, tuple[str, ...]]  # by node: the buffers that it makes, in order
    in_place: Mapping[str, str]  # a buffer -> the operand of the same kernel over which it is written
    taken_over: Mapping[str, str]  # a buffer -> a dead buffer whose storage it gets
    freed_after: Mapping[int, tuple[str, ...]]  # by node: the storages that are freed after it; -1: before all nodes
    last_use: Mapping[str, int]  # by buffer: the last node that reads or writes it


def reuse(program: Program, options: Options) -> Sharing:
    """How the buffers of a program share storages, as far as the options allow it."""
    facts = _StorageFacts(program, keeps_results_apart=options.cudagraphs)
    in_place = dict(_in_place(facts)) if options.inplace else {}
    taken = dict(_taken_over(facts, in_place)) if options.reuse_storage else {}
    gone = {*in_place.values(), *taken.values()}
    ends = {
        number: kept
        for number, names in facts.dying_after.items()
        if (kept := tuple(name for name in names if name not in gone))
    }
    return Sharing(facts.created, in_place, taken, ends, facts.last_use)


class _StorageFacts:
    """The first and last use of each buffer, when it dies, and whether its storage may be reused.

    `keeps_results_apart`: no result lies in a storage that the plan does not allocate. A CUDA graph makes its results
    where no other graph writes. Donated inputs and what operators make lie elsewhere, so such a result would be copied.
    """

    def __init__(self, program: Program, *, keeps_results_apart: bool) -> None:
        self.nodes = program.nodes
        self.hints = program.hints
        self.buffers = program.buffer_table()
        self.last_use: dict[str, int] = {}
        self.first_use: dict[str, int] = {}
        self.created: dict[int, tuple[str, ...]] = {}
        self.foreign_use: dict[str, int] = {}  # the first custom operator that saw a storage: it may have kept it
        alive = {b.name for b in program.buffers if b.kind != "local"}
        for number, node in enumerate(program.nodes):
            touched = dict.fromkeys(ref.storage for ref in (*reads(node), *writes(node)))
            for name in touched:
                self.last_use[name] = number
            made = tuple(dict.fromkeys(ref.storage for ref in writes(node) if ref.storage not in alive))
            if made:
                self.created[number] = made
                alive.update(made)
                self.first_use.update(dict.fromkeys(made, number))
            if isinstance(node, Extern) and is_foreign(node.op):
                for name in touched:
                    self.foreign_use.setdefault(name, number)
        self.returned = {view.ref.storage for view in views_of(program.outputs)}
        donated = {given.name for given in program.inputs if given.is_donated}
        # storages that may be reused after their last reader: our own and donated ones that are not returned
        self.reusable = {b.name for b in program.buffers if b.kind == "local" or b.name in donated} - self.returned
        tensors = [given.name for given in program.inputs if given.symbol is None]
        self.donated = [name for name in tensors if name in donated]
        self.apart = set(self.returned) if keeps_results_apart else set[str]()
        # the buffers that lie in storages which the plan does not allocate
        self.elsewhere = {*self.donated} | {
            name
            for number, made in self.created.items()
            if not is_allocated_by_plan(self.nodes[number])
            for name in made
        }
        self.dying_after: dict[int, list[str]] = {}
        if unused := [name for name in tensors if name not in self.last_use and name not in self.returned]:
            self.dying_after[-1] = unused
        for name, number in self.last_use.items():
            if self.buffers[name].kind != "constant" and name not in self.returned:
                self.dying_after.setdefault(number, []).append(name)

    def bytes_of(self, buffer: Buffer) -> int:
        """The bytes of a buffer, with unknown sizes estimated."""
        return estimate(storage_bytes(buffer), self.hints)

    def may_lie_in(self, name: str, old: str) -> bool:
        """Whether a buffer may get the storage of an older one, as far as results are kept apart."""
        return name not in self.apart or old not in self.elsewhere

    def put(self, name: str, old: str) -> None:
        """Notes that a buffer gets the storage of an older one."""
        if old in self.elsewhere:
            self.elsewhere.add(name)
        if name in self.apart:
            self.apart.add(old)

    def can_be_taken_over(self, name: str) -> bool:
        """Whether another buffer may take over the storage of a buffer that has just died."""
        number = self.last_use[name]
        if name not in self.reusable or self.foreign_use.get(name, number + 1) <= number:
            return False
        if not is_dense(self.buffers[name]):
            return False
        # an extern may return scratch results, which no node reads, that are smaller than traced
        return not (isinstance(self.nodes[number], Extern) and self.first_use.get(name) == number)


def _in_place(facts: _StorageFacts) -> Iterator[tuple[str, str]]:
    """Pairs of a kernel's result and the operand over which it is written."""
    for number, made in facts.created.items():
        kernel = facts.nodes[number]
        if not isinstance(kernel, Kernel):
            continue
        ways = [kernel, *(variant.nodes[0] for variant in kernel.variants if len(variant.nodes) == 1)]
        if len(ways) <= len(kernel.variants):  # a variant of several nodes may write before it has read all operands
            continue
        operands = dict.fromkeys(ref.storage for ref in reads(kernel))
        dying = [
            name
            for name in operands
            if name in facts.reusable
            and facts.last_use[name] == number
            and name not in made
            and name not in facts.foreign_use
            and is_dense(facts.buffers[name])
        ]
        for name in made:
            new = facts.buffers[name]
            for old in dying:
                is_alike = _key(facts.buffers[old]) == _key(new) and is_dense(new)
                if is_alike and facts.may_lie_in(name, old) and _all_elementwise(ways, old, name):
                    facts.put(name, old)
                    yield name, old
                    dying.remove(old)
                    break


@dataclass(slots=True)
class _MemoryProfile:
    """The live bytes during each node, and the limit for them: their peak if each storage is freed at once."""

    during: list[int]
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        self.limit = max(self.during, default=0)

    def keep(self, size: int, after: int, before: int) -> bool:
        """Keeps `size` bytes live between two nodes, if these are near enough and the limit holds; whether it did."""
        if before - after > MAX_NODES_KEPT or any(self.during[n] + size > self.limit for n in range(after + 1, before)):
            return False
        for number in range(after + 1, before):
            self.during[number] += size
        return True


def _taken_over(facts: _StorageFacts, in_place: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Pairs of a buffer and the dead buffer whose storage it gets: of equal dtype, size and device, the last to die."""
    holding = _memory_profile(facts, in_place)
    waiting: dict[StorageKey, list[str]] = {}
    gone = set(in_place.values())
    for number, node in enumerate(facts.nodes):
        for name in facts.created.get(number, ()) if is_allocated_by_plan(node) else ():
            buffer = facts.buffers[name]
            if name in in_place or not (pool := waiting.get(_key(buffer))):
                continue
            fitting = (other for other in reversed(pool) if _is_cheap(facts.buffers[other], buffer))
            old = next((other for other in fitting if facts.may_lie_in(name, other)), None)
            if old is not None and holding.keep(facts.bytes_of(buffer), facts.last_use[old], number):
                pool.remove(old)
                facts.put(name, old)
                yield name, old
        for name in facts.dying_after.get(number, ()):
            if name not in gone and facts.can_be_taken_over(name):
                waiting.setdefault(_key(facts.buffers[name]), []).append(name)


def _memory_profile(facts: _StorageFacts, in_place: Mapping[str, str]) -> _MemoryProfile:
    """The profile if each storage is freed at once. A result written in place is not counted beside its operand."""
    change = [0] * (len(facts.nodes) + 1)
    first = {name: 0 for name in facts.donated if name in facts.last_use or name in facts.returned} | facts.first_use
    for name, start in first.items():
        size = facts.bytes_of(facts.buffers[name])
        change[start + (name in in_place)] += size
        if name not in facts.returned:
            change[facts.last_use[name] + 1] -= size
    return _MemoryProfile(list(accumulate(change[:-1])))


# --- questions about nodes and buffers ----------------------------------------------------------------------------


def is_allocated_by_plan(node: Node) -> bool:
    """Whether the plan allocates the results of a node. An extern that returns tensors allocates them itself."""
    return not isinstance(node, Extern) or node.form == "out"


def is_dense(buffer: Buffer) -> bool:
    """Whether the elements fill their storage without gaps, in any order of dims; False if that is not known."""
    return span_elements(buffer) == _elements(buffer)


def _elements(buffer: Buffer) -> Expr:
    return mul(*buffer.size) if buffer.size else integer(1)


def _key(buffer: Buffer) -> StorageKey:
    """What two buffers must have in common to share a storage: dtype, number of elements, and device."""
    return buffer.dtype, _elements(buffer), buffer.device


def _is_cheap(old: Buffer, new: Buffer) -> bool:
    """Whether using the storage of `old` for `new` costs no more than an allocation, and needs no gaps."""
    if old.size == new.size and old.stride == new.stride:
        return True
    elements = as_int(_elements(new))
    return is_dense(new) and (elements is None or elements * new.dtype.itemsize >= SMALL_BYTES)


def _all_elementwise(ways: Sequence[Node], old: str, new: str) -> bool:
    """Whether each variant of a kernel may write `new` in place over `old`."""
    return all(isinstance(way, Kernel) and _is_elementwise(way, old, new) for way in ways)


def _is_elementwise(kernel: Kernel, old: str, new: str) -> bool:
    """Whether a kernel may write `new` in place over `old`.

    It may if every read of `old` is of the element that is being written, and before that write. The kernel must not
    write `old` itself, read `new`, read `old` under a mask, scan, or scatter. A reduction walks along an axis several
    times, so the write has to be in the last loop that reads `old`.
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
            case Store(ref, _) if ref.storage == old:  # a newer version of `old` needs the storage
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
    """Whether no op of the schedule loads `old` after the first op that stores `new`, or whose row is kept there."""
    order = tuple(positions(kernel.schedule.steps)) if kernel.schedule else tuple(range(len(kernel.body.ops)))
    kept = dict(kernel.schedule.rows_in_results) if kernel.schedule else {}
    stored = False
    for position in order:
        match kernel.body.ops[kept.get(position, position)].attrs:
            case Store(ref, _) if ref.storage == new:
                stored = True
            case Load(ref, _) if ref.storage == old and stored:
                return False
            case _:
                pass
    return True
