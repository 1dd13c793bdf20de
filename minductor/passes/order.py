"""Puts nodes in an order that needs little memory at a time.

Takes a program. Gives it with its nodes in an order that respects every edge: the one in which the node comes next that
leaves least memory in use, or the old order if that has no higher peak. Refuses nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from minductor.ir.depend import dependencies, neighbours
from minductor.ir.lifetime import Usage
from minductor.ir.nodes import Program
from minductor.target import Env


def order(program: Program, env: Env) -> Program:
    """One program in, one out; see above. `env` is not asked: least memory is best everywhere."""
    del env
    memory = Usage(program)
    before, after = neighbours(len(program.nodes), dependencies(program))
    found = _least_memory_first(memory, before, after)
    old = range(len(program.nodes))
    if memory.peak(found) >= memory.peak(old):
        return program
    return replace(program, nodes=tuple(program.nodes[n] for n in found))


def _least_memory_first(memory: Usage, before: Sequence[set[int]], after: Sequence[set[int]]) -> list[int]:
    """List scheduling: of the nodes that may run, the one that adds least; ties in the old order.

    What a node adds only falls while it waits (others allocate what it needs, or finish with what it reads), so an
    entry that is out of date stands too late in the heap, and a better one is pushed whenever it changes.
    """
    left = dict(memory.count)
    live = set(memory.given)
    waits = [len(sources) for sources in before]
    done = [False] * len(waits)

    def added(node: int) -> int:
        total = 0
        for name in memory.uses[node]:
            total += memory.size[name] * ((name not in live) - (left[name] == 1))
        return total

    heap = [(added(node), node) for node, count in enumerate(waits) if count == 0]
    heapq.heapify(heap)
    found: list[int] = []
    while heap:
        _, node = heapq.heappop(heap)
        if done[node]:
            continue
        done[node] = True
        found.append(node)
        changed: dict[int, None] = {}
        for name in memory.uses[node]:
            if name not in live:
                live.add(name)
                changed.update(dict.fromkeys(memory.users[name]))
            left[name] -= 1
            if left[name] == 1:
                changed.update(dict.fromkeys(memory.users[name]))
        for target in after[node]:
            waits[target] -= 1
            changed[target] = None
        for other in changed:
            if not done[other] and waits[other] == 0:
                heapq.heappush(heap, (added(other), other))
    return found
