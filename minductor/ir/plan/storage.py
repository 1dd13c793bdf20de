"""Storages of a call: their bytes, their live ranges, and the peak of memory.

Takes a program and an order of its nodes, or the storages of a plan. Gives bytes, the nodes that use each storage, the
peak in bytes, and the class `Storage`, with which a plan records live ranges (storage_lives.py computes them).
Refuses nothing.

A storage that the call allocates lives from the first node that uses it to the last one. A donated input lives from the
start to its last use, and the call may then free it. A storage that the program returns lives to the end. Other inputs
and constants count nothing, since their owner keeps them. A view, and a buffer that reuses the storage of a dead one,
are further names of the same storage.

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

from minductor.core.expressions.expr import Expr, add, as_int, integer, mul
from minductor.ir.program.nodes import Buffer, Program, reads, views_of, writes


def storage_bytes(buffer: Buffer) -> Expr:
    """The bytes of a new tensor with this layout, from its first element to its last one, with gaps."""
    return mul(span_elements(buffer), buffer.dtype.itemsize)


def span_elements(buffer: Buffer) -> Expr:
    """The elements of a new tensor with this layout, from its first one to its last one, with gaps."""
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


def is_foreign(op: str) -> bool:
    """Whether an operator is none of torch's own: it may keep references to its arguments, or call graphs."""
    return not op.startswith(("aten.", "prims.", "mkldnn.", "_c10d_functional."))


class Usage:
    """The storages that a program allocates or may free: their bytes, and the nodes that use them."""

    def __init__(self, program: Program) -> None:
        from minductor.core.expressions.hints import estimate  # a graph of the store needs no estimates

        donated = {given.name for given in program.inputs if given.is_donated}
        ours = [b for b in program.buffers if b.kind == "local" or b.name in donated]
        self.size = {buffer.name: estimate(storage_bytes(buffer), program.hints) for buffer in ours}
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
        # Donated inputs exist before the first node. Those that no node uses are freed at once.
        self.given = frozenset(name for name in donated if self.count.get(name))
        self.unused = sum(self.size[name] for name in donated - self.given if name in self.size)

    def peak(self, nodes: Iterable[int]) -> int:
        """The most bytes that are live at a time if the nodes run in that order."""
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


# --- live ranges in a plan ----------------------------------------------------------------------------------------

# How a name comes to stand for a storage: it is a parameter ("input"), a tensor of the module ("constant"), a new
# tensor that the call allocates ("allocate") or an operator returns ("give"), a view of another name ("alias"), or a
# tensor that takes the storage of another name ("transfer").
Making: TypeAlias = Literal["input", "constant", "allocate", "give", "alias", "transfer"]
# Who owns a storage: the call allocated it ("own"), the caller donated it, or the caller only lent it.
Owner: TypeAlias = Literal["own", "donated", "lent"]


@dataclass(frozen=True, slots=True)
class Name:
    """A name of a storage. It is made between call `start` and the next call, and dropped after call `end`.

    `end` is None for a name that lasts as long as the call of the graph. `of`: the name that it was made from, or "".
    """

    name: str
    making: Making
    of: str
    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory and its live range: the calls from `birth` to `death`, both included.

    `death` is None if the storage is returned or lent. `is_shown`: an operator that is not torch's was given the
    storage and may keep a reference to it.
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
    """The most bytes that the call's own and donated storages hold at once; None if a size is not a number.

    `inside`: the bytes that a call of regions holds in addition, by the number of the call.
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
