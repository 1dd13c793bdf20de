"""What the loads and stores of a kernel cost, in bytes.

Takes a kernel and the buffers. Gives a number of bytes, to be compared with that of another kernel that does the same
work. Refuses nothing: sizes that are not known are estimated.

A kernel is vectorised along one axis. An access that is contiguous or constant along this axis costs its bytes. Any
other access uses only part of each cache line, or goes through a transposed block, and costs `STRIDED` times its bytes.
The price is that of the axis for which it is lowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from minductor.analysis.domain import buffer_bytes
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, linear
from minductor.core.expressions.hints import Hints, estimate
from minductor.ir.program.nodes import Buffer, Kernel, body_reads, body_writes

STRIDED = 2  # times its bytes: what an access costs that is not contiguous along the vector axis


def traffic(kernel: Kernel, table: Mapping[str, Buffer], hints: Hints) -> int:
    """The bytes of all accesses. Accesses to one storage with equal strides, as in a stencil, count once."""
    symbols = tuple(axis.symbol for axis in kernel.axes)
    found: dict[tuple[str, bool, tuple[Expr | None, ...]], int] = {}
    for accesses, is_write in ((body_reads(kernel.body), False), (body_writes(kernel.body), True)):
        for access in dict.fromkeys(accesses):
            steps = _steps(access.index, symbols)
            buffer = table[access.ref.storage]
            found[buffer.name, is_write, steps] = access_bytes(access.index, kernel, buffer, hints)
    return min((_along(number, found) for number in range(len(symbols))), default=sum(found.values()))


@lru_cache(4096)  # fusion asks for the same few indices again with each kernel that it tries
def _steps(index: Expr, symbols: tuple[Symbol, ...]) -> tuple[Expr | None, ...]:
    """How far the index moves along each axis; None for an axis along which this is not constant."""
    names = free_symbols(index)
    split = linear(index, symbols)
    if split is None:
        return tuple(None if s in names else index * 0 for s in symbols)
    return tuple(split[0][s] for s in symbols)


def _along(number: int, found: Mapping[tuple[str, bool, tuple[Expr | None, ...]], int]) -> int:
    """The bytes of the accesses in `found` if the axis with this number is the vector axis."""
    total = 0
    for (_, _, steps), size in found.items():
        step = steps[number]
        is_even = step is not None and as_int(step) in (0, 1, -1)
        total += size if is_even else STRIDED * size
    return total


def access_bytes(index: Expr, kernel: Kernel, buffer: Buffer, hints: Hints) -> int:
    """The bytes that one access touches: at most the whole buffer, and all of it if data decide the index."""
    names = free_symbols(index)
    whole = buffer_bytes(buffer, hints)
    if any(s.kind == "value" for s in names):
        return whole
    touched = estimate([axis.extent for axis in kernel.axes if axis.symbol in names], hints)
    return min(whole, touched * buffer.dtype.itemsize)
