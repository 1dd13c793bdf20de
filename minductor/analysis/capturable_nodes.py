"""Which nodes of a program a CUDA graph can capture, which ones it cannot, and why.

Takes an ordered Program and an Env. Gives the program's partitions: runs of neighbouring nodes that one CUDA graph can
capture, and runs of nodes that none can, with a reason for each of these. Refuses nothing: a target without CUDA graphs
(`has_partitions`) has no partitions. A call of a graph (a cond, a while loop) is one node of its program: the nodes in
its regions are not looked at.

All nodes of a partition that can be captured lie on one device. Sizes that follow from the sizes of the inputs are
computed on the host before the launch, so the nodes that define them fit into any partition. The report shows the
partitions; `runtime/graphs/` captures them under the option `cudagraphs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import groupby
from typing import NamedTuple, TypeAlias

from minductor.core.expressions.expr import Symbol
from minductor.ir.plan.plan import Barrier, Partition
from minductor.ir.plan.storage import is_foreign
from minductor.ir.program.nodes import (
    Argument,
    Extern,
    Kernel,
    Node,
    Program,
    Region,
    Require,
    SymbolDef,
    defined_symbols,
    reads,
    required_symbols,
    writes,
)
from minductor.target import Env

GRAPH_KINDS = ("cuda", "hip")  # kinds of targets that have CUDA graphs, or AMD's equivalent
GPU_DEVICE = "cuda"  # torch's name for the devices of both kinds
# operators that make the host wait for a number of elements, although they return tensors only
SYNCHRONISING = frozenset(("aten.nonzero.default", "aten.masked_select.default", "aten._unique2.default"))
# operators that make the host wait for a check of their input
CHECKING = frozenset(("aten.multinomial.default",))


class CaptureKind(NamedTuple):
    """Neighbouring nodes of equal CaptureKind belong to one partition. The device is "" where no GPU is involved."""

    is_capturable: bool
    device: str


# One for each node. None: the node computes a size from input sizes, and may stand in any partition.
CaptureKinds: TypeAlias = Sequence[CaptureKind | None]


def capture_kinds(program: Program) -> CaptureKinds:
    """The CaptureKind of each node."""
    devices = _devices(program)
    return _kinds(program, devices, _reasons(program, devices))


def count_partitions(kinds: CaptureKinds) -> int:
    """How many partitions nodes of these kinds make in this order."""
    return len(list(groupby(_filled(kinds))))


def has_partitions(env: Env) -> bool:
    """Whether programs for this target are divided into partitions.

    In the interpreter they are only under the option `cudagraphs`, so that the logic of graphs runs without a GPU.
    """
    return env.target.kind in GRAPH_KINDS or (env.target.kind == "interpret" and env.options.cudagraphs)


def partitions(program: Program, env: Env) -> tuple[Partition, ...]:
    """The partitions of a program in order, each node in one of them; empty for a target without CUDA graphs.

    In the interpreter a partition has no device that the wrapper would have to enter.
    """
    if not has_partitions(env):
        return ()
    devices = _devices(program)
    reasons = _reasons(program, devices)
    found: list[Partition] = []
    start = 0
    for kind, run in groupby(_filled(_kinds(program, devices, reasons))):
        stop = start + len(list(run))
        nodes = program.nodes[start:stop]
        barriers = tuple(_barrier(n, why) for n, why in zip(nodes, reasons[start:stop], strict=True) if why)
        calls = sum(isinstance(node, Kernel | Extern) for node in nodes)
        device = kind.device if env.target.device != "cpu" else ""
        found.append(Partition(device, len(nodes), calls, barriers))
        start = stop
    return tuple(found)


def _barrier(node: Node, why: str) -> Barrier:
    """The Barrier that says why a node cannot be captured."""
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


# --- reasons ------------------------------------------------------------------------------------------------------


def _devices(program: Program) -> dict[str, str]:
    """The device of each buffer at run time: the GPU, for a program for a GPU that was traced on the CPU alone."""
    found = {buffer.name: buffer.device for buffer in program.buffers}
    return dict.fromkeys(found, GPU_DEVICE) if set(found.values()) == {"cpu"} else found


def _reasons(program: Program, devices: Mapping[str, str]) -> list[str]:
    """For each node the reason why it cannot be captured; "" if it can."""
    inputs = {buffer.name for buffer in program.buffers if buffer.kind == "input"}
    table = program.buffer_table()
    found: list[str] = []
    data_dependent: set[Symbol] = set()  # sizes that an operator returns, and those computed from them
    for node in program.nodes:
        is_late = any(symbol in data_dependent for symbol in required_symbols(node, table))
        if isinstance(node, Extern) or is_late:
            data_dependent.update(defined_symbols(node))
        found.append(_refusal(node, devices, inputs, is_late=is_late))
    return found


def _refusal(node: Node, devices: Mapping[str, str], inputs: Set[str], *, is_late: bool) -> str:
    """The reason why a node cannot be captured, or "". `is_late`: it uses a data-dependent size."""
    match node:
        case Extern() if why := _call_refusal(node):
            return why
        case SymbolDef() | Require():
            return "the host computes with sizes that data decide" if is_late else ""
        case _:
            pass
    if is_late:
        return "its sizes depend on data"
    changed = {ref.storage for ref in writes(node)}
    touched = {devices[name] for name in (*(ref.storage for ref in reads(node)), *changed)}
    if any(devices[name] == "cpu" and name in inputs for name in changed):
        return "it writes to an input on the CPU"
    if touched == {"cpu"}:
        return "it runs on the CPU"
    if "cpu" in touched:
        return "it copies between devices" if isinstance(node, Extern) else "it reads a tensor on the CPU"
    if len(touched) > 1:
        return "it uses tensors on several devices"
    return "" if touched else "it uses no tensor on a GPU"


def _call_refusal(node: Extern) -> str:
    """The reason why an extern cannot be captured on any device, or ""."""
    if any(_has_region(argument) for argument in node.args):
        return "the host decides which graphs it runs"
    if defined_symbols(node) or node.op in SYNCHRONISING:
        return "the host waits for a size that data decide"
    if not node.is_capturable:
        return "its author has tagged it as not capturable"
    if node.op in CHECKING:
        return "the host waits for a check of its input"
    if node.effect and node.op.startswith("aten."):  # random numbers: a graph knows the device's own generator
        has_generator = any(name == "generator" and value is not None for name, value in node.kwargs)
        return "it draws from a generator that the user gives" if has_generator else ""
    # A custom operator is ordered among effects like one, but is captured unless its author tags it (above).
    is_custom = is_foreign(node.op) and not node.op.startswith("higher_order.")
    return "it has a side effect" if node.effect and not is_custom else ""


def _has_region(argument: Argument) -> bool:
    """Whether an argument is a graph, or contains one."""
    match argument:
        case Region():
            return True
        case tuple():
            return any(map(_has_region, argument))
        case _:
            return False


# --- kinds --------------------------------------------------------------------------------------------------------


def _kinds(program: Program, devices: Mapping[str, str], reasons: Sequence[str]) -> list[CaptureKind | None]:
    """The CaptureKind of each node, by the reasons why some cannot be captured."""
    found: list[CaptureKind | None] = []
    for node, why in zip(program.nodes, reasons, strict=True):
        if not why and isinstance(node, SymbolDef | Require):
            found.append(None)
            continue
        used = [devices[ref.storage] for ref in (*writes(node), *reads(node))]
        found.append(CaptureKind(not why, next((device for device in used if device != "cpu"), "")))
    return found


def _filled(kinds: CaptureKinds) -> list[CaptureKind]:
    """The kinds with each None replaced by the kind before it, or by the first kind that there is."""
    last = next((kind for kind in kinds if kind is not None), CaptureKind(is_capturable=False, device=""))
    found: list[CaptureKind] = []
    for kind in kinds:
        last = kind or last
        found.append(last)
    return _with_devices(found)


def _with_devices(kinds: list[CaptureKind]) -> list[CaptureKind]:
    """The kinds in which work of the host and the CPU has the device of a neighbour that cannot be captured either."""
    found = list(kinds)
    for order in (range(1, len(found)), range(len(found) - 2, -1, -1)):
        step = -1 if order.step > 0 else 1
        for n in order:
            beside = found[n + step]
            if not found[n].is_capturable and not beside.is_capturable and not found[n].device:
                found[n] = beside
    return found
