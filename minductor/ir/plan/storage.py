"""The life of every storage of a call: how many bytes it has, when it begins and ends, and what it is called.

Takes a program, for what its storages need in any order of its nodes. Gives bytes, users, peaks, and the classes in
which a plan says the lives of its storages (ir/plan/storage_lives.py reads them off its lines). Refuses nothing.

A storage of our own is there from the first node that uses it to the last one; a donated input from the start to its
last use, since it is ours to free; what the program returns to the end. Lent inputs and constants count nothing: their
owner holds them. A buffer that takes over a dead one's storage, and a view, are more names of the same storage.

>>> from minductor.ir.program.parser import parse_program
>>> usage = Usage(parse_program('''program inference
...   input arg0: f32[8] stride [1] cpu donated
...   buffer buf0: f32[8] stride [1] cpu
...   kernel k0 (i0: 8) from exp = aten.exp.default
...     %0 = load arg0@0[i0] : f32 {i0}
...     %1 = exp %0 : f32 {i0}
...     %2 = store buf0@0[i0] %1 {i0}
...   return (buf0@0 f32[8] stride [1] offset 0)
... '''))
>>> usage.peak(range(1))
64
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from minductor.core.expressions.expr import Expr, add, as_int, free_symbols, integer, mul, substitute
from minductor.ir.program.nodes import Buffer, Program, reads, views_of, writes

# what an unknown size counts as where a number has to be had; never a fact
TYPICAL_SIZE = 256


def storage_bytes(buffer: Buffer) -> Expr:
    """What a new tensor of this layout takes: from its first element to its last one, gaps included."""
    return mul(span_elements(buffer), buffer.dtype.itemsize)


def span_elements(buffer: Buffer) -> Expr:
    """The same in elements."""
    known = [(as_int(size), as_int(stride)) for size, stride in zip(buffer.size, buffer.stride, strict=True)]
    if any(size == 0 for size, _ in known):
        return integer(0)
    count, rest = 1, integer(0)  # most sizes are numbers, which need no algebra
    for (size, stride), (n, step) in zip(zip(buffer.size, buffer.stride, strict=True), known, strict=True):
        if n is None or step is None:
            rest = add(rest, mul(add(size, -1), stride))
        else:
            count += (n - 1) * step
    return add(rest, count)


def typical_size(size: Expr) -> int:
    """The number, with TYPICAL for each symbol."""
    known = as_int(size)
    if known is None:
        known = as_int(substitute(size, dict.fromkeys(free_symbols(size), TYPICAL_SIZE)))
    return 0 if known is None else max(known, 0)


def is_foreign(op: str) -> bool:
    """Whether torch does not answer for an operator, or it calls graphs."""
    return not op.startswith(("aten.", "prims.", "_c10d_functional."))


class Usage:
    """Which storages of ours each node uses, and what they hold."""

    def __init__(self, program: Program) -> None:
        donated = {given.name for given in program.inputs if given.is_donated}
        ours = [b for b in program.buffers if b.kind == "local" or b.name in donated]
        self.size = {buffer.name: typical_size(storage_bytes(buffer)) for buffer in ours}
        self.uses: list[tuple[str, ...]] = []  # by node
        self.users: dict[str, list[int]] = {name: [] for name in self.size}
        for position, node in enumerate(program.nodes):
            names = dict.fromkeys(ref.storage for ref in (*reads(node), *writes(node)))
            self.uses.append(tuple(name for name in names if name in self.size))
            for name in self.uses[-1]:
                self.users[name].append(position)
        self.count = {name: len(users) for name, users in self.users.items()}
        returned = {view.ref.storage for view in views_of(program.outputs)}
        self.returned = frozenset(returned & self.size.keys())
        for name in self.returned:
            self.count[name] += 1  # the caller is a user that never ends
        # there before the first node; what nobody uses is let go of at once
        self.given = frozenset(name for name in donated if self.count.get(name))
        self.unused = sum(self.size[name] for name in donated - self.given if name in self.size)

    def peak(self, nodes: Iterable[int]) -> int:
        """The most bytes in use at a time if the nodes run in that order."""
        left = dict(self.count)
        live = set(self.given)
        now = sum(self.size[name] for name in live)
        most = now + self.unused
        for node in nodes:
            for name in self.uses[node]:
                if name not in live:
                    live.add(name)
                    now += self.size[name]
            most = max(most, now)
            for name in self.uses[node]:
                left[name] -= 1
                if left[name] == 0:
                    now -= self.size[name]
        return most


# --- the lives in a plan ------------------------------------------------------------------------------------------

# how a name comes to stand for a storage: a parameter; a new tensor of ours, or of the operator that made it; a window
# on another name; the next owner of another name's storage, which that loses
Making: TypeAlias = Literal["input", "constant", "allocate", "give", "alias", "transfer"]
# who answers for a storage: the call from its allocation on, the caller who left it to us, or the caller who lent it
Owner: TypeAlias = Literal["own", "donated", "lent"]


@dataclass(frozen=True, slots=True)
class Name:
    """A name of a storage. Between call `start` and the next it is made, between call `end` and the next dropped.

    No `end`: it lasts as long as the call of the graph. `of`: the name that it was made of.
    """

    name: str
    making: Making
    of: str
    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """One piece of memory, there during the calls `birth` to `death`, both included; None: it is returned, or lent.

    `is_shown`: an operator of somebody else's has seen it, and may hold on to it.
    """

    bytes: Expr
    owner: Owner
    birth: int
    death: int | None
    names: tuple[Name, ...]
    is_returned: bool = False
    is_shown: bool = False

    @property
    def name(self) -> str:
        return self.names[0].name


def peak_bytes(storages: Sequence[Storage], inside: Mapping[int, int] = MappingProxyType({})) -> int | None:
    """The most bytes that a call's own and donated storages hold at once; None if a size is not a number.

    `inside`: what is held beside them during a call, by its number.
    """
    change: dict[int, int] = {}
    for call, held in inside.items():
        change[call] = change.get(call, 0) + held
        change[call + 1] = change.get(call + 1, 0) - held
    for storage in storages:
        if storage.owner == "lent":
            continue
        size = as_int(storage.bytes)
        if size is None:
            return None
        change[storage.birth] = change.get(storage.birth, 0) + size
        if storage.death is not None:
            change[storage.death + 1] = change.get(storage.death + 1, 0) - size
    now = most = 0
    for step in sorted(change):
        now += change[step]
        most = max(most, now)
    return most
