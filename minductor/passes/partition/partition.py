"""Reorders nodes so that a GPU's program has fewer partitions, each of which a CUDA graph can or cannot capture.

Takes an ordered Program. Gives it in an order with fewer partitions, if there is one whose peak of memory is at most
`HIGHER_PEAK` times the old one. Refuses nothing: targets without CUDA graphs and programs without a better order come
back as they are. `analysis/capturable_nodes.py` says which nodes can be captured; `memory` writes the partitions into
the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush

from minductor.analysis.capturable_nodes import (
    CaptureKind,
    CaptureKinds,
    capture_kinds,
    count_partitions,
    has_partitions,
)
from minductor.analysis.dependencies import dependencies, neighbours
from minductor.ir.plan.storage import Usage
from minductor.ir.program.nodes import Program
from minductor.target import Env

HIGHER_PEAK = 1.1  # times the old peak: the most that an order with fewer partitions may need


def partition(program: Program, env: Env) -> Program:
    """The program with fewer partitions, or the program itself."""
    if not has_partitions(env):
        return program
    kinds = capture_kinds(program)
    order = _grouped(kinds, program)
    if count_partitions([kinds[n] for n in order]) >= count_partitions(kinds):
        return program
    usage = Usage(program)
    if usage.peak(order) > HIGHER_PEAK * usage.peak(range(len(kinds))):
        return program
    return replace(program, nodes=tuple(program.nodes[n] for n in order))


def _grouped(kinds: CaptureKinds, program: Program) -> list[int]:
    """An order of the nodes that changes to another kind only if no ready node has the present kind.

    Of several ready nodes of that kind the first in the old order comes first.
    """
    before, after = neighbours(len(kinds), dependencies(program))
    waits = [len(sources) for sources in before]
    ready: dict[CaptureKind | None, list[int]] = {kind: [] for kind in dict.fromkeys(kinds)}
    for number, count in enumerate(waits):
        if count == 0:
            ready[kinds[number]].append(number)
    for queue in ready.values():
        heapify(queue)
    found: list[int] = []
    present: CaptureKind | None = None
    while len(found) < len(kinds):
        if ready.get(None):
            number = heappop(ready[None])
        else:
            if not ready.get(present):
                waiting = (kind for kind, queue in ready.items() if queue and kind)
                present = min(waiting, key=partial(_distance, present, ready))
            number = heappop(ready[present])
        found.append(number)
        for target in after[number]:
            waits[target] -= 1
            if waits[target] == 0:
                heappush(ready[kinds[target]], target)
    return found


def _distance(
    present: CaptureKind | None, ready: Mapping[CaptureKind | None, list[int]], kind: CaptureKind
) -> tuple[bool, int]:
    """A sort key for the next kind: first those that are capturable like the present one, then the earliest node."""
    return present is not None and kind.is_capturable != present.is_capturable, ready[kind][0]
