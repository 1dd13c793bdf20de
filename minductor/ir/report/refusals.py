"""Answers `Report.why_not`: why two kernels were not fused into one.

Takes the nodes of a scheduled program, the kernels that became part of others, the refused fusions, and two names: of a
kernel in the program of any stage, of a generated function, or of a call. Gives sentences. Refuses an unknown name with
UnknownKernel.

>>> nodes = (FinalNode("k0", "add_0", "", ("arg0", "buf0")), FinalNode("k2", "sum_1", "", ("buf0", "buf2")))
>>> facts = Refusals(nodes, (("k1", "k2"),), (("fuse", "k0", "k2", "reduces over i0"),))
>>> facts.why_not("add_0", "k1"), facts.why_not("k1", "k2")
(('fuse: reduces over i0',), ('k1 and k2 are one kernel: k2',))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minductor.core.errors import UnknownKernel

# `fuse` compares readers of the same data only if both limits hold for them.
MAX_NEIGHBOURS = 4  # the readers of that data before a reader, and after it, that are tried
MAX_DISTANCE = (
    64  # the most nodes between two readers; fusing readers further apart would keep other buffers alive for long
)


@dataclass(frozen=True, slots=True)
class FinalNode:
    """A kernel or call of the final program: `symbol` is the generated function, `op` the operator that is called."""

    name: str
    symbol: str
    op: str
    storages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusals:
    """`joined`: pairs of a kernel and the kernel it became part of. `refused`: a stage, two kernels and the reason."""

    places: tuple[FinalNode, ...]
    joined: tuple[tuple[str, str], ...]
    refused: tuple[tuple[str, str, str, str], ...]

    def why_not(self, first: str, second: str) -> tuple[str, ...]:
        """The reasons why two nodes are not one kernel; the order of the names does not matter."""
        into = self._into()
        mine, others = (self._known(name, into) for name in (first, second))
        if common := mine & others:
            return (f"{first} and {second} are one kernel: {self.places[min(common)].name}",)
        found: dict[str, None] = {}
        for stage, a, b, why in self.refused:
            one, other = self._places(a, into), self._places(b, into)
            if (one & mine and other & others) or (one & others and other & mine):
                found[f"{stage}: {why}"] = None
        return tuple(found) or (self._unrefused(sorted(mine), sorted(others)),)

    def _into(self) -> dict[str, list[str]]:
        into: dict[str, list[str]] = {}
        for name, whole in self.joined:
            into.setdefault(name, []).append(whole)
        return into

    def _known(self, name: str, into: dict[str, list[str]]) -> set[int]:
        found = self._places(name, into)
        if not found:
            raise UnknownKernel(name, (*(p.name for p in self.places), *(p.symbol for p in self.places), *into))
        return found

    def _places(self, name: str, into: dict[str, list[str]]) -> set[int]:
        """The final nodes that a name stands for; a function may have several launches, a kernel several successors."""
        found: set[int] = set()
        seen, waiting = {name}, [name]
        while waiting:
            here = waiting.pop()
            now = {n for n, place in enumerate(self.places) if place.name == here}
            found |= now
            fresh = [] if now else [whole for whole in into.get(here, ()) if whole not in seen]
            seen.update(fresh)
            waiting += fresh
        return found or {n for n, place in enumerate(self.places) if place.symbol == name}

    def _unrefused(self, mine: Sequence[int], others: Sequence[int]) -> str:
        """Why no stage tried to fuse any of these pairs."""
        for place in (self.places[n] for n in (*mine, *others)):
            if place.op:
                return f"{place.name} is a call of {place.op}, which no kernel joins"
        a, b = min(((a, b) for a in mine for b in others), key=lambda pair: abs(pair[0] - pair[1]))
        touched = set(self.places[b].storages)
        common = [name for name in self.places[a].storages if name in touched]
        if not common:
            return "they touch no common data"
        between = self.places[min(a, b) + 1 : max(a, b)]
        readers = sum(not set(common).isdisjoint(node.storages) for node in between)
        start = f"they share {', '.join(common)}, and were not weighed: "
        if readers >= MAX_NEIGHBOURS or len(between) >= MAX_DISTANCE:
            return (
                f"{start}they are too far apart, with {len(between)} nodes between them, {readers} of which use it too"
            )
        return f"{start}joining them saves too little"
