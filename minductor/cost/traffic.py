"""What a kernel's accesses cost: bytes, and more of them where no loop can walk them one element after the other.

Takes a kernel and the buffers. Gives a number of bytes, to be compared between two ways to do the same work. Refuses
nothing: sizes that are not known count as typical ones.

A vector runs along one axis. What moves by one or not at all along it costs its bytes; anything else is read through
transposed blocks, or in part of each cache line, and counts as STRIDED times its bytes. The axis is the best one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from minductor.analysis.domain import buffer_bytes, estimate
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, linear
from minductor.ir.program.nodes import Buffer, Kernel, body_reads, body_writes

STRIDED = 2


def traffic(kernel: Kernel, table: Mapping[str, Buffer]) -> int:
    """The bytes of all accesses; several to one storage that move alike (a stencil's) count once."""
    symbols = tuple(axis.symbol for axis in kernel.axes)
    found: dict[tuple[str, bool, tuple[Expr | None, ...]], int] = {}
    for accesses, is_write in ((body_reads(kernel.body), False), (body_writes(kernel.body), True)):
        for access in dict.fromkeys(accesses):
            steps = _steps(access.index, symbols)
            found[access.ref.storage, is_write, steps] = access_bytes(access.index, kernel, table[access.ref.storage])
    return min((_along(number, found) for number in range(len(symbols))), default=sum(found.values()))


@lru_cache(4096)  # the same few indices are asked for with each kernel that is joined
def _steps(index: Expr, symbols: tuple[Symbol, ...]) -> tuple[Expr | None, ...]:
    """How far the index moves along each axis; None where that is no constant step."""
    names = free_symbols(index)
    split = linear(index, symbols)
    if split is None:
        return tuple(None if s in names else index * 0 for s in symbols)
    return tuple(split[0][s] for s in symbols)


def _along(number: int, found: Mapping[tuple[str, bool, tuple[Expr | None, ...]], int]) -> int:
    """What the accesses cost with the vector along an axis."""
    total = 0
    for (_, _, steps), size in found.items():
        step = steps[number]
        is_even = step is not None and as_int(step) in (0, 1, -1)
        total += size if is_even else STRIDED * size
    return total


def access_bytes(index: Expr, kernel: Kernel, buffer: Buffer) -> int:
    """The bytes that one access touches, at most all of the buffer."""
    names = free_symbols(index)
    whole = buffer_bytes(buffer)
    if any(s.kind == "value" for s in names):
        return whole
    touched = estimate(axis.extent for axis in kernel.axes if axis.symbol in names)
    return min(whole, touched * buffer.dtype.itemsize)
