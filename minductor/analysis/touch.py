"""How the accesses of a kernel move along its axes: what every choice of a loop nest begins with.

Takes a Kernel and the program's buffers. Gives the steps and weights of its loads and stores, the axes in the order of
their strides, and the axis along which most bytes are contiguous. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from minductor.analysis.strides import constant_step
from minductor.core.expressions.expr import as_int
from minductor.ir.program.nodes import Atomic, Body, Buffer, Kernel, Load, Masked, Op, Reduce, Scan, Store

ASSUMED = 1024  # the extent of an axis whose size is known only at the call


@dataclass(frozen=True, slots=True)
class Touch:
    """A load or store: how far it moves along each axis (None: not by a constant step), and its weight in bytes."""

    steps: dict[str, int | None]
    weight: int
    is_store: bool


class Touches:
    """All accesses of a kernel, and what follows for its axes."""

    def __init__(self, kernel: Kernel, buffers: dict[str, Buffer]) -> None:
        self.kernel = kernel
        self.axes = {axis.name: axis for axis in kernel.axes}
        self.extents = {axis.name: as_int(axis.extent) for axis in kernel.axes}
        self.touches = [self.touch(op, buffers) for op in _memory_ops(kernel.body)]
        self.reduced: dict[str, None] = {}
        self.scanned: set[str] = set()
        for op in kernel.body.ops:
            match op.attrs:
                case Reduce(axes, _):
                    self.reduced.update(dict.fromkeys(axes))
                case Scan(axis, _, _):
                    self.scanned.add(axis)
                case _:
                    pass

    def size(self, names: list[str]) -> int:
        total = 1
        for name in names:
            extent = self.extents[name]
            total *= ASSUMED if extent is None else extent
        return total

    def touch(self, op: Op, buffers: dict[str, Buffer]) -> Touch:
        assert isinstance(op.attrs, Load | Store | Atomic)
        steps = {name: constant_step(op, axis.symbol) for name, axis in self.axes.items()}
        is_store = not isinstance(op.attrs, Load)
        moved = [name for name, step in steps.items() if step != 0]
        itemsize = buffers[op.attrs.ref.storage].dtype.itemsize
        return Touch(steps, self.size(moved) * itemsize * (2 if is_store else 1), is_store)

    def contiguous_bytes(self, name: str) -> int:
        return sum(touch.weight for touch in self.touches if touch.steps[name] in (1, -1))

    def vector_axis(self) -> str | None:
        if not self.axes:
            return None
        # with equal claims, an axis that need not be walked element by element, and of these the last
        return max(reversed(self.axes), key=lambda name: (self.contiguous_bytes(name), name not in self.scanned))

    def by_stride(self, names: list[str]) -> list[str]:
        """Outer loops first: those that move farthest through the heaviest accesses of those with a known step."""

        def distance(name: str) -> tuple[int, int]:
            moves = [(t.weight, t.steps[name]) for t in self.touches if t.steps[name] != 0]
            if not moves:
                return (-1, 0)
            weight, step = max(moves, key=lambda move: (move[1] is not None, move[0]))
            return (1 << 60 if step is None else abs(step), weight)

        return sorted(names, key=distance, reverse=True)


def _memory_ops(body: Body) -> Iterator[Op]:
    for op in body.ops:
        match op.attrs:
            case Load() | Store() | Atomic():
                yield op
            case Masked(inner, _):
                yield from _memory_ops(inner)
            case _:
                pass
