"""How the loads and stores of a kernel move along its axes. Every choice of a loop nest starts from this.

Takes a Kernel and the program's buffers. Gives the steps and bytes of its loads and stores, the axes sorted by stride,
and the axis along which most bytes are contiguous, which becomes the vector axis. Refuses nothing.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from minductor.analysis.strides import constant_step, even_step
from minductor.core.dtypes import DType
from minductor.core.expressions.expr import as_int
from minductor.core.expressions.hints import Hints, estimate
from minductor.ir.program.nodes import Atomic, Buffer, Kernel, Load, Op, Reduce, Scan, Store, all_ops


class Touch(NamedTuple):
    """One load or store.

    `steps`: by axis, how many elements further it is at the next point; None if that is not a constant. `weight`: the
    bytes that it moves; those of a store count twice. `dtype`: of the storage. `uneven`: the axes along which its steps
    differ, or data decide them.
    """

    steps: dict[str, int | None]
    weight: int
    is_store: bool
    dtype: DType
    uneven: tuple[str, ...] = ()

    @property
    def hops_along(self) -> str | None:
        """The axis along which its elements are near each other, of an access that is contiguous along none.

        That is the last one along which its steps differ, as of an image that is read at computed places.
        """
        if any(step in (1, -1) for step in self.steps.values()):
            return None
        return self.uneven[-1] if self.uneven else None


class Touches:
    """All loads and stores of a kernel, and the questions about its axes that they answer.

    `extents`: those that are known, by axis; `sizes`: all of them, the unknown ones estimated from the hints.
    `dtypes`: of the storages.
    `reduced`, `scanned`: the names of the axes that reductions and scans run over.
    """

    def __init__(self, kernel: Kernel, buffers: dict[str, Buffer], hints: Hints) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.hints = hints
        self.axes = {axis.name: axis for axis in kernel.axes}
        self.extents = {axis.name: as_int(axis.extent) for axis in kernel.axes}
        self.sizes = {axis.name: estimate(axis.extent, hints) for axis in kernel.axes}
        self.touches: list[Touch] = []
        self.dtypes: dict[str, DType] = {}
        for op in all_ops(kernel.body):
            if isinstance(op.attrs, Load | Store | Atomic):
                self.touches.append(self.touch(op, buffers))
                self.dtypes[op.attrs.ref.storage] = self.touches[-1].dtype
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

    def of(self, kernel: Kernel) -> Touches:
        """The loads and stores of another form of the kernel."""
        return Touches(kernel, self.buffers, self.hints)

    def size(self, names: list[str]) -> int:
        """The number of points over these axes, with unknown extents estimated."""
        return prod([self.sizes[name] for name in names])

    def touch(self, op: Op, buffers: dict[str, Buffer]) -> Touch:
        """The steps and the weight of one load or store."""
        assert isinstance(op.attrs, Load | Store | Atomic)
        steps = {name: constant_step(op, axis.symbol) for name, axis in self.axes.items()}
        unknown = (name for name, step in steps.items() if step is None)
        uneven = tuple(name for name in unknown if even_step(op, self.axes[name].symbol) is None)
        is_store = not isinstance(op.attrs, Load)
        moved = [name for name, step in steps.items() if step != 0]
        dtype = buffers[op.attrs.ref.storage].dtype
        return Touch(steps, self.size(moved) * dtype.itemsize * (2 if is_store else 1), is_store, dtype, uneven)

    def contiguous_bytes(self, name: str) -> int:
        """The weight of the accesses that are contiguous along an axis, forwards or backwards, or hop along it."""
        return sum(touch.weight for touch in self.touches if touch.steps[name] in (1, -1) or touch.hops_along == name)

    def vector_axis(self) -> str | None:
        """The axis along which most bytes are contiguous; None for a kernel without axes."""
        if not self.axes:
            return None
        # Ties: an axis that no scan has to walk element by element, then the last axis.
        return max(reversed(self.axes), key=lambda name: (self.contiguous_bytes(name), name not in self.scanned))

    def by_stride(self, names: list[str]) -> list[str]:
        """The axes with the largest stride first, as outer loops should be. The access with most bytes decides.

        Accesses whose stride along an axis is not known count only if no other access moves along that axis.
        """

        def distance(name: str) -> tuple[int, int]:
            moves = [(t.weight, t.steps[name]) for t in self.touches if t.steps[name] != 0]
            if not moves:
                return (-1, 0)
            weight, step = max(moves, key=lambda move: (move[1] is not None, move[0]))
            return (1 << 60 if step is None else abs(step), weight)

        return sorted(names, key=distance, reverse=True)
