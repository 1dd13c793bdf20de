"""Decides which buffers share a storage: written in place over a dying operand, or taken over from a dead one.

Takes an ordered program. Gives for each node what it makes, what of that has an older storage, and what dies with it.
Refuses, silently, what could be seen: a storage that is returned, lent, or known to an operator of somebody else's is
never written over.

To keep a dead storage for a later taker costs memory in between. It is done only where the peak stays what it is when
everything is freed at once: so a plan never holds more at a time than its program needs in that order, and nothing
could be gained by laying its storages out in one large block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, as_int, integer, mul
from minductor.ir.plan.storage import is_foreign, span_elements, storage_bytes, typical_size
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
    reads,
    views_of,
    writes,
)
from minductor.ir.program.schedule import positions
from minductor.ir.program.signature import all_ops
from minductor.options import Options

# Below this a fresh allocation costs less than a strided window on an old one.
SMALL_BYTES = 64 * 1024
# A storage is kept for a taker over so many nodes at most: by then it has left the caches, and looking costs time.
PATIENCE = 256

Key = tuple[DType, Expr, str]  # dtype, elements, device


@dataclass(frozen=True, slots=True)
class Sharing:
    """By position of the node; -1 stands before the first one."""

    made: Mapping[int, tuple[str, ...]]  # the storages that a node makes, in order
    in_place: Mapping[str, str]  # what is written over an operand that dies with the same node
    taken: Mapping[str, str]  # what takes over a storage that is dead before its node
    ends: Mapping[int, tuple[str, ...]]  # what nobody needs behind a node, and no other buffer has
    last_use: Mapping[str, int]


def reuse(program: Program, options: Options) -> Sharing:
    """What shares a storage with what."""
    facts = _Facts(program)
    in_place = dict(_in_place(facts)) if options.inplace else {}
    taken = dict(_taken(facts, in_place)) if options.reuse_storage else {}
    gone = {*in_place.values(), *taken.values()}
    ends = {
        number: kept
        for number, names in facts.dying.items()
        if (kept := tuple(name for name in names if name not in gone))
    }
    return Sharing(facts.made, in_place, taken, ends, facts.last_use)


class _Facts:
    """First and last uses, and whose storages are whose."""

    def __init__(self, program: Program) -> None:
        self.nodes = program.nodes
        self.buffers = program.buffer_table()
        self.last_use: dict[str, int] = {}
        self.first_use: dict[str, int] = {}
        self.made: dict[int, tuple[str, ...]] = {}
        self.shown: dict[str, int] = {}  # seen by operators of others, which may have kept them
        alive = {b.name for b in program.buffers if b.kind != "local"}
        for number, node in enumerate(program.nodes):
            touched = dict.fromkeys(ref.storage for ref in (*reads(node), *writes(node)))
            for name in touched:
                self.last_use[name] = number
            made = tuple(dict.fromkeys(ref.storage for ref in writes(node) if ref.storage not in alive))
            if made:
                self.made[number] = made
                alive.update(made)
                self.first_use.update(dict.fromkeys(made, number))
            if isinstance(node, Extern) and is_foreign(node.op):
                for name in touched:
                    self.shown.setdefault(name, number)
        self.returned = {view.ref.storage for view in views_of(program.outputs)}
        donated = {given.name for given in program.inputs if given.is_donated}
        # ours to write over, or to let others have, once their last reader is done
        self.own = {b.name for b in program.buffers if b.kind == "local" or b.name in donated} - self.returned
        tensors = [given.name for given in program.inputs if given.symbol is None]
        self.donated = [name for name in tensors if name in donated]
        self.dying: dict[int, list[str]] = {}
        if unused := [name for name in tensors if name not in self.last_use and name not in self.returned]:
            self.dying[-1] = unused
        for name, number in self.last_use.items():
            if self.buffers[name].kind != "constant" and name not in self.returned:
                self.dying.setdefault(number, []).append(name)

    def is_takeable(self, name: str) -> bool:
        """Whether a storage that has just died may become another's."""
        number = self.last_use[name]
        if name not in self.own or self.shown.get(name, number + 1) <= number or not is_dense(self.buffers[name]):
            return False
        # scratch results that nobody reads may be smaller than traced
        return not (isinstance(self.nodes[number], Extern) and self.first_use.get(name) == number)


def _in_place(facts: _Facts) -> Iterator[tuple[str, str]]:
    """What a kernel may write over which of its operands."""
    for number, made in facts.made.items():
        kernel = facts.nodes[number]
        if not isinstance(kernel, Kernel) or kernel.variants:  # a variant may write before it has read all
            continue
        operands = dict.fromkeys(ref.storage for ref in reads(kernel))
        dying = [
            name
            for name in operands
            if name in facts.own
            and facts.last_use[name] == number
            and name not in made
            and name not in facts.shown
            and is_dense(facts.buffers[name])
        ]
        for name in made:
            new = facts.buffers[name]
            for old in dying:
                if _key(facts.buffers[old]) == _key(new) and is_dense(new) and _is_elementwise(kernel, old, name):
                    yield name, old
                    dying.remove(old)
                    break


@dataclass(slots=True)
class _Holding:
    """What is held during each node, and the most that may be."""

    during: list[int]
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        self.limit = max(self.during, default=0)

    def keep(self, size: int, after: int, before: int) -> bool:
        """Holds a storage between two nodes, if that is short and keeps the limit."""
        if before - after > PATIENCE or any(self.during[n] + size > self.limit for n in range(after + 1, before)):
            return False
        for number in range(after + 1, before):
            self.during[number] += size
        return True


def _taken(facts: _Facts, in_place: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What takes over which dead storage: of equal dtype and number of elements, the one that died last."""
    holding = _holding(facts, in_place)
    waiting: dict[Key, list[str]] = {}
    gone = set(in_place.values())
    for number, node in enumerate(facts.nodes):
        for name in facts.made.get(number, ()) if is_planned(node) else ():
            buffer = facts.buffers[name]
            if name in in_place or not (pool := waiting.get(_key(buffer))):
                continue
            old = next((other for other in reversed(pool) if _is_cheap(facts.buffers[other], buffer)), None)
            if old is not None and holding.keep(typical_size(storage_bytes(buffer)), facts.last_use[old], number):
                pool.remove(old)
                yield name, old
        for name in facts.dying.get(number, ()):
            if name not in gone and facts.is_takeable(name):
                waiting.setdefault(_key(facts.buffers[name]), []).append(name)


def _holding(facts: _Facts, in_place: Mapping[str, str]) -> _Holding:
    """With everything freed at once: two that share a storage in place are one, which is not counted twice."""
    change = [0] * (len(facts.nodes) + 1)
    first = {name: 0 for name in facts.donated if name in facts.last_use or name in facts.returned} | facts.first_use
    for name, start in first.items():
        size = typical_size(storage_bytes(facts.buffers[name]))
        change[start + (name in in_place)] += size
        if name not in facts.returned:
            change[facts.last_use[name] + 1] -= size
    return _Holding(list(accumulate(change[:-1])))


# --- questions about nodes and buffers ----------------------------------------------------------------------------


def is_planned(node: Node) -> bool:
    """Whether we allocate what the node makes; an extern that returns tensors brings its own."""
    return not isinstance(node, Extern) or node.form == "out"


def is_dense(buffer: Buffer) -> bool:
    """Whether the elements fill their storage without gaps, in any order of dims; unknown counts as no."""
    return span_elements(buffer) == _elements(buffer)


def _elements(buffer: Buffer) -> Expr:
    return mul(*buffer.size) if buffer.size else integer(1)


def _key(buffer: Buffer) -> Key:
    return buffer.dtype, _elements(buffer), buffer.device


def _is_cheap(old: Buffer, new: Buffer) -> bool:
    if old.size == new.size and old.stride == new.stride:
        return True
    elements = as_int(_elements(new))
    return is_dense(new) and (elements is None or elements * new.dtype.itemsize >= SMALL_BYTES)


def _is_elementwise(kernel: Kernel, old: str, new: str) -> bool:
    """Whether each element of `old` is read only before, and at the index where, `new`'s is written, and never written.

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
            case Store(ref, _) if ref.storage == old:  # a newer version of it: two values, one place
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
