"""Which calls in a row a graph of the device (a CUDA graph) may capture as one, which it may not, and why.

Takes an ordered Program. `partition` gives it in an order with fewer cuts, if such an order needs little more memory;
`partitions` cuts it. Refuses to cut regions: what a call of graphs runs belongs to that call.

A node that cannot be captured has a reason; a run of those that can lies on one device. A target without such graphs
has no partitions. Nothing captures a partition yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import TypeAlias

from minductor.analysis.dependencies import dependencies, neighbours
from minductor.core.expressions.expr import Symbol
from minductor.ir.plan.plan import Barrier, DeviceScopeLine, Line, Partition, PartitionLine, ScopeEndLine
from minductor.ir.plan.storage import Usage, is_foreign
from minductor.ir.program.nodes import (
    Argument,
    Extern,
    Kernel,
    Node,
    Program,
    Region,
    Require,
    SymbolDef,
    makes,
    mentioned,
    reads,
    writes,
)
from minductor.target import Env, Target

GRAPHS = ("cuda", "hip")  # kinds of targets whose launches can be captured
TRACED = "cuda"  # torch's name for the devices of both
HIGHER_PEAK = 1.1  # fewer cuts are worth so much of the old peak
# operators whose results the host waits for, although none of them is a number
WAITING = frozenset(("aten.nonzero.default", "aten.masked_select.default", "aten._unique2.default"))


@dataclass(frozen=True, slots=True)
class _Kind:
    """What keeps neighbours in one partition: both can be captured, on one device, or neither can."""

    is_capturable: bool
    device: str


# None: numbers that the caller's sizes tell, which stand wherever they are needed
_Kinds: TypeAlias = Sequence[_Kind | None]


def partition(program: Program, env: Env) -> Program:
    """One program in, one out; see above."""
    if env.target.kind not in GRAPHS:
        return program
    devices = _devices(program)
    kinds = _kinds(program, devices)
    found = _grouped(kinds, program)
    order = [kinds[n] for n in found]
    if _cuts(order) >= _cuts(kinds):
        return program
    usage = Usage(program)
    if usage.peak(found) > HIGHER_PEAK * usage.peak(range(len(kinds))):
        return program
    return replace(program, nodes=tuple(program.nodes[n] for n in found))


def partitions(program: Program, target: Target) -> tuple[Partition, ...]:
    """The partitions in order; together they hold each node once. None for a target without graphs."""
    if target.kind not in GRAPHS:
        return ()
    devices = _devices(program)
    kinds = _kinds(program, devices)
    reasons = _reasons(program, devices)
    filled = _filled(kinds)
    found: list[Partition] = []
    start = 0
    for kind, run in groupby(filled):
        stop = start + len(list(run))
        nodes = program.nodes[start:stop]
        barriers = tuple(_barrier(n, why) for n, why in zip(nodes, reasons[start:stop], strict=True) if why)
        found.append(Partition(kind.device, len(nodes), _calls(nodes), barriers))
        start = stop
    return tuple(found)


def _calls(nodes: Iterable[Node]) -> int:
    return sum(isinstance(node, Kernel | Extern) for node in nodes)


def _barrier(node: Node, why: str) -> Barrier:
    origin = node.origins[0] if node.origins else None
    match node:
        case Kernel(name=name) | Extern(name=name):
            pass
        case SymbolDef(symbol=symbol):
            name = symbol.name
        case Require():
            name = "assert"
    op = node.op if isinstance(node, Extern) else origin.op if origin else ""
    return Barrier(name, op, origin.node if origin else "", why)


# --- what a node is -----------------------------------------------------------------------------------------------


def _devices(program: Program) -> dict[str, str]:
    """Where each buffer will be: a program for a GPU that was traced on the CPU alone is meant for the GPU alone."""
    found = {buffer.name: buffer.device for buffer in program.buffers}
    return dict.fromkeys(found, TRACED) if set(found.values()) == {"cpu"} else found


def _reasons(program: Program, devices: Mapping[str, str]) -> list[str]:
    """For each node why it cannot be captured; empty: it can."""
    given = {buffer.name for buffer in program.buffers if buffer.kind == "input"}
    table = program.buffer_table()
    found: list[str] = []
    decided: set[Symbol] = set()  # numbers that data decide, or that are computed from such
    for node in program.nodes:
        late = any(symbol in decided for symbol in mentioned(node, table))
        if isinstance(node, Extern) or late:
            decided.update(makes(node))
        found.append(_refusal(node, devices, given, is_late=late))
    return found


def _refusal(node: Node, devices: Mapping[str, str], given: Set[str], *, is_late: bool) -> str:
    match node:
        case Extern() if why := _call_refusal(node):
            return why
        case SymbolDef() | Require():
            return "the host computes with numbers that data decide" if is_late else ""
        case _:
            pass
    if is_late:
        return "its sizes are decided by data"
    changed = {ref.storage for ref in writes(node)}
    touched = {devices[name] for name in (*(ref.storage for ref in reads(node)), *changed)}
    if any(devices[name] == "cpu" and name in given for name in changed):
        return "it changes an input in the memory of the CPU"
    if touched == {"cpu"}:
        return "it runs on the CPU"
    if "cpu" in touched:
        return "it copies between devices" if isinstance(node, Extern) else "it reads memory of the CPU"
    if len(touched) > 1:
        return "it touches memory of several devices"
    return "" if touched else "it touches no memory of a device"


def _call_refusal(node: Extern) -> str:
    """What is against a call whatever memory it touches."""
    if any(_holds_region(argument) for argument in node.args):
        return "it calls graphs, as the host decides"
    if makes(node) or node.op in WAITING:
        return "the host waits for a number that data decide"
    if not node.is_capturable:
        return "its author says that it cannot be captured"
    is_custom = is_foreign(node.op) and not node.op.startswith("higher_order.")
    # a user's operator keeps its place among others, but says itself if it cannot be captured
    return "it has an effect at each call" if node.effect and not is_custom else ""


def _holds_region(argument: Argument) -> bool:
    match argument:
        case Region():
            return True
        case tuple():
            return any(map(_holds_region, argument))
        case _:
            return False


def _kinds(program: Program, devices: Mapping[str, str]) -> list[_Kind | None]:
    found: list[_Kind | None] = []
    for node, why in zip(program.nodes, _reasons(program, devices), strict=True):
        if not why and isinstance(node, SymbolDef | Require):
            found.append(None)
            continue
        on = [devices[ref.storage] for ref in (*writes(node), *reads(node))]
        found.append(_Kind(not why, next((device for device in on if device != "cpu"), "")))
    return found


def _filled(kinds: _Kinds) -> list[_Kind]:
    """Each number with the node before it, or the first behind it; what is on no device with its neighbours."""
    known = next((kind for kind in kinds if kind is not None), _Kind(is_capturable=False, device=""))
    found: list[_Kind] = []
    for kind in kinds:
        known = kind or known
        found.append(known)
    return _placed(found)


def _placed(kinds: list[_Kind]) -> list[_Kind]:
    """What only the host and the CPU run needs no device, and so makes no cut among others that cannot be captured."""
    found = list(kinds)
    for order in (range(1, len(found)), range(len(found) - 2, -1, -1)):
        step = -1 if order.step > 0 else 1
        for n in order:
            beside = found[n + step]
            if not found[n].is_capturable and not beside.is_capturable and not found[n].device:
                found[n] = beside
    return found


def _cuts(kinds: _Kinds) -> int:
    return len(list(groupby(_filled(kinds))))


def marks(parts: Sequence[Partition]) -> dict[int, tuple[Line, ...]]:
    """The lines before each node, by its number, that say where partitions begin and which device is the current one.

    Entering a device costs as much as a small launch, so where all partitions are on one it is entered once.
    """
    devices = {part.device for part in parts} - {"", "cpu"}
    if not devices:
        return {}
    is_shared = len(parts) > 1 and len(devices) == 1
    found: dict[int, list[Line]] = {}
    start = 0
    for number, part in enumerate(parts):
        here = found.setdefault(start, [])
        if is_shared and number == 0:
            here.append(DeviceScopeLine(*devices))
        here.append(PartitionLine(number))
        start += part.nodes
        if not is_shared and part.device in devices:
            here.append(DeviceScopeLine(part.device))
            found.setdefault(start, []).append(ScopeEndLine())
    if is_shared:
        found.setdefault(start, []).append(ScopeEndLine())
    return {number: tuple(lines) for number, lines in found.items()}


# --- fewer cuts ---------------------------------------------------------------------------------------------------


def _distance(present: _Kind | None, ready: Mapping[_Kind | None, list[int]], kind: _Kind) -> tuple[bool, int]:
    """How far a kind is from the present one: the next best are those that cannot be captured either."""
    return present is not None and kind.is_capturable != present.is_capturable, ready[kind][0]


def _grouped(kinds: _Kinds, program: Program) -> list[int]:
    """An order that goes on with the present kind while it can; among equals the old order."""
    before, after = neighbours(len(kinds), dependencies(program))
    waits = [len(sources) for sources in before]
    ready: dict[_Kind | None, list[int]] = {kind: [] for kind in dict.fromkeys(kinds)}
    for number, count in enumerate(waits):
        if count == 0:
            ready[kinds[number]].append(number)
    for queue in ready.values():
        heapify(queue)
    found: list[int] = []
    present: _Kind | None = None
    while len(found) < len(kinds):
        if ready.get(None):
            number = heappop(ready[None])
        else:
            if not ready.get(present):
                present = min(
                    (kind for kind, queue in ready.items() if queue and kind), key=partial(_distance, present, ready)
                )
            number = heappop(ready[present])
        found.append(number)
        for target in after[number]:
            waits[target] -= 1
            if waits[target] == 0:
                heappush(ready[kinds[target]], target)
    return found
