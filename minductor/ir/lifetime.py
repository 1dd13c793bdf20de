"""What memory a program needs, in terms of storages: the one rule of bytes and lifetimes.

Takes a program. Gives the bytes of its storages, which nodes use them, and the peak of any order of the nodes. Refuses
nothing.

A storage of our own is there from the first node that uses it to the last one; a donated input from the start to its
last use, since it is ours to free; what the program returns to the end. Lent inputs and constants count nothing: their
owner holds them.

>>> from minductor.ir.parser import parse_program
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

from collections.abc import Iterable

from minductor.core.expr import Expr, add, as_int, free_symbols, integer, mul, substitute
from minductor.ir.nodes import Buffer, Program, reads, views_of, writes

# what an unknown size counts as where a number has to be had; never a fact
TYPICAL = 256


def storage_bytes(buffer: Buffer) -> Expr:
    """What a new tensor of this layout takes: from its first element to its last one, gaps included."""
    if any(as_int(size) == 0 for size in buffer.size):
        return integer(0)
    elements: Expr = integer(1)
    for size, stride in zip(buffer.size, buffer.stride, strict=True):
        elements = add(elements, mul(add(size, -1), stride))
    return mul(elements, buffer.dtype.itemsize)


def typical(size: Expr) -> int:
    """The number, with TYPICAL for each symbol."""
    known = as_int(size)
    if known is None:
        known = as_int(substitute(size, dict.fromkeys(free_symbols(size), TYPICAL)))
    return 0 if known is None else max(known, 0)


class Usage:
    """Which storages of ours each node uses, and what they hold."""

    def __init__(self, program: Program) -> None:
        donated = {given.name for given in program.inputs if given.is_donated}
        ours = [b for b in program.buffers if b.kind == "local" or b.name in donated]
        self.size = {buffer.name: typical(storage_bytes(buffer)) for buffer in ours}
        self.uses: list[tuple[str, ...]] = []  # by node
        self.users: dict[str, list[int]] = {name: [] for name in self.size}
        for position, node in enumerate(program.nodes):
            names = dict.fromkeys(ref.storage for ref in (*reads(node), *writes(node)))
            self.uses.append(tuple(name for name in names if name in self.size))
            for name in self.uses[-1]:
                self.users[name].append(position)
        self.count = {name: len(users) for name, users in self.users.items()}
        returned = {view.ref.storage for view in views_of(program.outputs)}
        for name in returned & self.size.keys():
            self.count[name] += 1  # the caller is a user that never ends
        # there before the first node
        self.given = frozenset(name for name in donated if self.count.get(name))

    def peak(self, nodes: Iterable[int]) -> int:
        """The most bytes in use at a time if the nodes run in that order."""
        left = dict(self.count)
        live = set(self.given)
        now = most = sum(self.size[name] for name in live)
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
