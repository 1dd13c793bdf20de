"""Computes the live range of each storage of a plan from the plan's lines.

Takes lines, and the bytes of each buffer. Gives each storage with its names. Refuses nothing: it expects lines in which
each name is made before it is used, and not used after it is freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from minductor.core.expressions.expr import Expr, as_int, integer
from minductor.ir.plan.plan import (
    AllocateLine,
    ConstantLine,
    DispatchLine,
    ExternLine,
    FreeLine,
    LaunchLine,
    Line,
    Plan,
    ReturnLine,
    ReuseLine,
    ViewLine,
)
from minductor.ir.plan.storage import Making, Name, Owner, Storage, is_foreign, peak_bytes, storage_bytes
from minductor.ir.program.nodes import Argument, Buffer, Input, Region, Token

# Operators that call a region once, and the operator that keeps the results of its last round only.
CALLS_REGION_ONCE = frozenset(("higher_order.cond", "higher_order.invoke_subgraph"))
KEEPS_LAST_ROUND = frozenset(("higher_order.while_loop",))


def storage_lives(
    lines: Iterable[Line], inputs: Sequence[Input], sizes: Mapping[str, Expr], lent: Iterable[str] = ()
) -> tuple[Storage, ...]:
    """The storages of one call, in the order in which they begin to live.

    `sizes`: the bytes of each buffer, by its name. `lent`: names from outside that are neither parameters nor constants
    of these lines.
    """
    reader = _Reader(sizes)
    for given in inputs:
        if given.symbol is None:
            reader.begin(given.name, "input", "donated" if given.is_donated else "lent", 0)
    for name in lent:
        reader.begin(name, "constant", "lent", 0)
    for line in lines:
        reader.line(line)
    return tuple(life.storage() for life in reader.found)


def plan_peak_bytes(plan: Plan) -> int | None:
    """The most bytes that a call of a plan holds at once, with its regions; None if a size is not a number.

    The results of a region are storages of the plan that calls it. A region in a loop is live together with the results
    of the round before. The rows of a scan or a map exist twice while they are stacked.
    """
    table = {region.name: region for region in plan.regions}
    given = {storage.name: storage for storage in plan.storages if storage.names[0].making == "give"}
    inside: dict[int, int] = {}
    calls = 0
    for line in plan.lines:
        calls += isinstance(line, LaunchLine | DispatchLine | ExternLine)
        if isinstance(line, DispatchLine):
            most = [_scratch(group) for group in line.variants]
            if None in most:
                return None
            inside[calls] = max(size for size in most if size is not None)
            continue
        called = [table[name] for name in _regions(line.args)] if isinstance(line, ExternLine) else []
        if isinstance(line, ExternLine) and called:
            made = [given[name] for name in line.results if name in given]
            held = _held(line.op, called, [given[name] for name in _stacked(line) if name in given])
            if held is None:
                return None
            if made:
                inside[made[0].birth] = held
    return peak_bytes(plan.storages, inside)


def _scratch(group: Iterable[Line]) -> int | None:
    """The most bytes of the buffers that a group of a dispatch holds for itself; None if a size is not a number."""
    live: dict[str, int] = {}
    most = 0
    for line in group:
        if isinstance(line, AllocateLine):
            size = as_int(storage_bytes(Buffer(line.name, line.dtype, line.size, line.stride)))
            if size is None:
                return None
            live[line.name] = size
            most = max(most, sum(live.values()))
        elif isinstance(line, FreeLine):
            for name in line.names:
                live.pop(name, None)  # the name of a view has no memory of its own
    return most


def _stacked(call: ExternLine) -> tuple[str | None, ...]:
    """The results of a scan or map, whose rows the regions make one by one, and which are stacked at the end."""
    if call.op in CALLS_REGION_ONCE or call.op in KEEPS_LAST_ROUND:
        return ()
    carried = call.args[1] if call.op == "higher_order.scan" else ()
    return call.results[len(carried) if isinstance(carried, tuple) else 0 :]


def _held(op: str, called: Iterable[Plan], stacked: Iterable[Storage]) -> int | None:
    """The bytes that a call of regions holds in addition to its results; None if a size is not a number."""
    most: list[int] = [0]
    for region in called:
        held, kept = plan_peak_bytes(region), _sum(s for s in region.storages if s.owner == "own" and s.is_returned)
        if held is None or kept is None:
            return None
        most.append(held - kept if op in CALLS_REGION_ONCE else held)
    again = _sum(stacked)
    return None if again is None else max(*most, again)


def _regions(value: Argument) -> tuple[str, ...]:
    match value:
        case Region(name=name):
            return (name,)
        case tuple():
            return tuple(name for item in value for name in _regions(item))
        case _:
            return ()


def _sum(storages: Iterable[Storage]) -> int | None:
    return as_int(sum((storage.bytes for storage in storages), start=integer(0)))


def tensor_names(value: Argument) -> tuple[str, ...]:
    """The names of the tensors in the arguments of a plan's line."""
    match value:
        case Token("tensor", name):
            return (name,)
        case tuple():
            return tuple(name for item in value for name in tensor_names(item))
        case _:
            return ()


def used_tensors(line: Line) -> tuple[str, ...]:
    """The names of the tensors that a launch, a call or a view uses, with those that a call writes."""
    match line:
        case LaunchLine(tensors=given) | DispatchLine(tensors=given):
            return given
        case ExternLine(args=args, kwargs=kwargs, results=results, is_out=is_out):
            named = (name for _, value in kwargs for name in tensor_names(value))
            into = (name for name in results if name is not None and is_out)
            return (*tensor_names(args), *named, *into)
        case ViewLine(of=of):
            return (of,)
        case _:
            return ()


@dataclass(slots=True)
class _Life:
    """A storage while its live range is being computed."""

    bytes: Expr
    owner: Owner
    birth: int
    names: dict[str, Name] = field(default_factory=dict[str, Name])
    held: set[str] = field(default_factory=set[str])  # the names that are not dropped yet
    death: int | None = None
    is_returned: bool = False
    is_shown: bool = False

    def storage(self) -> Storage:
        names = tuple(self.names.values())
        return Storage(self.bytes, self.owner, self.birth, self.death, names, self.is_returned, self.is_shown)


@dataclass(slots=True)
class _Reader:
    sizes: Mapping[str, Expr]
    found: list[_Life] = field(default_factory=list[_Life])
    owner: dict[str, _Life] = field(default_factory=dict[str, _Life])
    calls: int = 0

    def line(self, line: Line) -> None:
        match line:
            case ConstantLine(name=name):
                self.begin(name, "constant", "lent", 0)
            case AllocateLine(name=name):
                self.begin(name, "allocate", "own", self.calls + 1)
            case ReuseLine(name=name, old=old):
                self.join(name, "transfer", old)
                self.drop(old)
            case ViewLine(name=name, of=of):
                self.join(name, "alias", of)
            case FreeLine(names):
                for name in names:
                    self.drop(name)
            case LaunchLine() | DispatchLine():
                self.calls += 1
            case ExternLine():
                self.extern(line)
            case ReturnLine(values):
                for name in tensor_names(values):
                    self.owner[name].is_returned = True
            case _:
                pass

    def extern(self, line: ExternLine) -> None:
        self.calls += 1
        # The other results are numbers.
        made = [name for name in line.results if name in self.sizes and name is not None]
        if not line.is_out:
            for name in made:
                self.begin(name, "give", "own", self.calls)
        if is_foreign(line.op):
            given = (*tensor_names(line.args), *(name for _, value in line.kwargs for name in tensor_names(value)))
            for name in (*given, *made):
                self.owner[name].is_shown = True

    def begin(self, name: str, making: Making, owner: Owner, birth: int) -> None:
        life = self.owner[name] = _Life(self.sizes.get(name, integer(0)), owner, birth)
        self.found.append(life)
        life.names[name] = Name(name, making, "", self.calls)
        life.held.add(name)

    def join(self, name: str, making: Making, of: str) -> None:
        life = self.owner[name] = self.owner[of]
        life.names[name] = Name(name, making, of, self.calls)
        life.held.add(name)

    def drop(self, name: str) -> None:
        life = self.owner.pop(name)
        life.names[name] = replace(life.names[name], end=self.calls)
        life.held.discard(name)
        if not life.held:
            life.death = self.calls
