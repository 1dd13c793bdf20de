"""A step that unrolls a short contiguous axis, so that the vector loop of a CPU runs along the axis next to it.

Takes the draft of a kernel without reductions. Gives the draft of the kernel without that axis: each op that varied
along it is there once for each of its elements. Points of three coordinates, pixels of three colours and boxes of four
sides fill no vector by themselves; g++ takes vectors of several points apart in registers. Refuses (None) longer axes,
kernels with many operations, and loads or stores at places that data decide.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.analysis.domain import extents_of
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Atomic, Check
from minductor.passes.schedule.draft import Draft

SHORT = 4  # elements; g++ takes apart what lies at up to so many places beside each other
MOST_OPS = 256  # of the unrolled body, whose values fill the registers


def unroll_short_axis(draft: Draft) -> Draft | None:
    """Unrolls the short vector axis; the axis next to it becomes the vector axis."""
    kernel, short = draft.kernel, draft.vector
    extent = None if short is None else draft.touches.extents[short]
    beside = [name for name in draft.kept if name != short]
    if short is None or extent is None or not 1 < extent <= SHORT or not beside or draft.joined:
        return None
    ops = kernel.body.ops
    if len(ops) * extent > MOST_OPS or any(isinstance(op.attrs, Atomic | Check) for op in ops):
        return None
    axes = tuple(axis for axis in kernel.axes if axis.name != short)
    builder = Builder([axis.symbol for axis in axes], extents_of(axes))
    builder.unroll(kernel.body, draft.touches.axes[short].symbol, extent)
    made = replace(kernel, axes=axes, body=builder.build())
    return draft._replace(kernel=made, touches=draft.touches.of(made), vector=beside[-1], kept=tuple(beside))
