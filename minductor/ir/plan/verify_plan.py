"""The rules of plans, checked after stage `memory` and after a plan was read from JSON; emitters rely on them.

Takes a Plan. Gives nothing. Refuses a plan that breaks a rule with VerifyError, which names the rule and the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from minductor.core.errors import VerifyError
from minductor.ir.plan.plan import (
    AllocateLine,
    ConstantLine,
    DeviceScopeLine,
    DispatchLine,
    ExternLine,
    FreeLine,
    KernelLine,
    LaunchLine,
    LayoutLine,
    Line,
    PartitionLine,
    Plan,
    ReturnLine,
    ReuseLine,
    ScopeEndLine,
    SizeOf,
    SymbolLine,
    ViewLine,
    handles,
    lines_with_groups,
)
from minductor.ir.plan.storage_lives import storage_lives, tensor_names, used_tensors
from minductor.ir.program.nodes import CALL_SYMBOL_KINDS, Kernel, symbols_in
from minductor.ir.program.signature import nonfinite_constants, signature


def verify_plan(plan: Plan) -> None:
    """Checks every rule of plans."""
    for name, rule in PLAN_RULES:
        for fault in rule(plan):
            raise VerifyError("memory", name, fault)


def _scope_faults(plan: Plan) -> Iterator[str]:
    for region in plan.regions:
        yield from (f"{region.name}: {fault}" for fault in _scope_faults(region))
    numbers = [line.number for line in plan.lines if isinstance(line, PartitionLine)]
    if numbers and numbers != list(range(len(plan.partitions))):
        yield f"partitions begin in the order {numbers}, and there are {len(plan.partitions)}"
    inside, is_shared = "", False
    has_scopes = any(
        isinstance(line, DeviceScopeLine) for line in plan.lines
    )  # a region runs in the scope of its caller
    for number, line in enumerate(plan.lines):
        match line:
            case LaunchLine(device=device) if has_scopes and device not in ("cpu", inside):
                yield f"line {number} launches on {device}, which is not current"
            case DeviceScopeLine(device):
                if inside:
                    yield f"line {number} enters {device} while {inside} is current"
                inside, is_shared = device, not any(isinstance(seen, PartitionLine) for seen in plan.lines[:number])
            case PartitionLine() if inside and not is_shared:
                yield f"line {number} begins a partition within another one's scope"
            case ScopeEndLine():
                if not inside:
                    yield f"line {number} ends a scope that nothing began"
                inside = ""
            case _:
                pass
    if inside:
        yield f"the scope of {inside} does not end"


def _name_faults(plan: Plan, outer: Plan | None = None) -> Iterator[str]:
    top = outer or plan  # the outermost plan, which defines the kernels and constants
    for region in plan.regions:
        yield from (f"{region.name}: {fault}" for fault in _name_faults(region, top))
    live = {given.name for given in plan.inputs}
    live.update(line.name for line in top.lines if isinstance(line, ConstantLine) and outer is not None)
    yield from _line_faults(plan.lines, live, top)


def _line_faults(lines: Iterable[Line], live: set[str], top: Plan) -> Iterator[str]:
    """Faults in the use of names by lines, in order; `live`: the names that exist before the first line."""
    defined = {line.id: line for line in top.lines if isinstance(line, KernelLine)}
    for number, line in enumerate(lines):
        for name in (*_used(line), *_numbers(line)):
            if name not in live:
                yield f"line {number} uses {name}, which is not alive"
        match line:
            case FreeLine(names):
                if len(set(names)) != len(names):
                    yield f"line {number} frees a name twice"
                live -= set(names)
            case ReuseLine(old=old):
                live.discard(old)
            case LaunchLine(kernel=kernel, tensors=given, sizes=sizes):
                needs = defined.get(kernel)
                if needs is None:
                    yield f"line {number} launches {kernel}, which is not defined"
                elif (len(given), len(sizes)) != (len(needs.signature), len(needs.numbers)):
                    yield f"line {number} launches {kernel} with {len(given)} tensors and {len(sizes)} sizes"
            case DispatchLine():
                for option, group in zip(line.choice.options, line.variants, strict=True):
                    known = {*line.tensors, *(size.name for size in line.sizes)}
                    yield from (f"line {number}, {option}: {fault}" for fault in _line_faults(group, known, top))
            case _:
                pass
        for name in _made(line):
            if name in live:
                yield f"line {number} makes {name}, which is alive"
            live.add(name)


def _kernel_faults(plan: Plan) -> Iterator[str]:
    """Faults in definitions of kernels; a plan that was read from JSON has no kernels to compare them with."""
    defined = [line for line in plan.lines if isinstance(line, KernelLine)]
    if len({line.id for line in defined}) != len(defined) or len({line.symbol for line in defined}) != len(defined):
        yield "two kernels have one name"
    kernels = dict(plan.kernels)
    for line in defined if kernels else ():
        needs = signature(kernels[line.id])
        said = (len(line.signature), line.numbers, line.errors, line.written, line.overwritten, line.nonfinite)
        places = (needs.places(needs.written), needs.places(needs.overwritten), nonfinite_constants(kernels[line.id]))
        if said != (len(needs.storages), tuple(size.kind for size in needs.sizes), needs.errors, *places):
            yield f"{line.id} is defined with what its kernel does not have"


def _overwriting_faults(plan: Plan) -> Iterator[str]:
    """Faults of dispatches: the tuner restores each tensor that a group overwrites, between two measurements."""
    kernels = dict(plan.kernels)
    for region in plan.regions:
        yield from _overwriting_faults(replace(region, kernels=plan.kernels))
    for number, line in enumerate(plan.lines if kernels else ()):
        if not isinstance(line, DispatchLine):
            continue
        for option, group in zip(line.choice.options, line.variants, strict=True):
            windows = {inner.name: inner.of for inner in group if isinstance(inner, ViewLine)}
            read, written = ({windows.get(name, name) for name in names} for names in _read_and_written(group, kernels))
            for name in sorted(read & written & {*line.own.tensors} - {*line.overwritten}):
                yield f"line {number}, {option} overwrites {name}, which the choice does not put back"


def _read_and_written(group: Iterable[Line], kernels: Mapping[str, Kernel]) -> tuple[set[str], set[str]]:
    """The tensors whose contents the lines read or add to, and those that they write."""
    read: set[str] = set()
    written: set[str] = set()
    for line in group:
        match line:
            case LaunchLine(kernel=kernel, tensors=given):
                needs = signature(kernels[kernel])
                for tensor, storage in zip(given, needs.storages, strict=True):
                    if storage in needs.written:
                        written.add(tensor)
                    if storage not in needs.written or storage in needs.overwritten:
                        read.add(tensor)
            case ExternLine(args=args, kwargs=kwargs, results=results, is_out=True):
                read.update(tensor_names((*args, *(value for _, value in kwargs))))
                written.update(name for name in results if name is not None)
            case _:
                pass
    return read, written


def _end_faults(plan: Plan) -> Iterator[str]:
    for region in plan.regions:
        yield from (f"{region.name}: {fault}" for fault in _end_faults(region))
    ends = [number for number, line in enumerate(plan.lines) if isinstance(line, ReturnLine)]
    after = {type(line) for line in plan.lines[ends[0] + 1 :]} if ends else set[type]()
    if len(ends) != 1 or after - {ScopeEndLine}:
        yield f"{len(ends)} lines return, and {len(after)} kinds of lines stand behind"
    for storage in plan.storages:
        if storage.owner != "lent" and storage.death is None and not storage.is_returned:
            yield f"{storage.name} is neither freed nor returned"


def _life_faults(plan: Plan) -> Iterator[str]:
    for region in plan.regions:
        yield from (f"{region.name}: {fault}" for fault in _life_faults(region))
    sizes = {name.name: storage.bytes for storage in plan.storages for name in storage.names}
    defined = {line.name for line in plan.lines if isinstance(line, ConstantLine)}
    constants = [s.name for s in plan.storages if s.names[0].making == "constant" and s.name not in defined]
    found = {storage.name: storage for storage in storage_lives(plan.lines, plan.inputs, sizes, constants)}
    for storage in plan.storages:
        if (other := found.pop(storage.name, None)) != storage:
            yield f"{storage.name} was planned as {storage}, and is {other}"
    yield from (f"{name} was not planned" for name in found)


def _handle_faults(plan: Plan) -> Iterator[str]:
    numbers = list(handles(plan))
    for before, number in pairwise(numbers):
        if number <= before:
            yield f"call {number} stands behind call {before}"


def _origin_faults(plan: Plan) -> Iterator[str]:
    for region in plan.regions:
        yield from (f"{region.name}: {fault}" for fault in _origin_faults(region))
    for line in lines_with_groups(plan):
        is_call = isinstance(line, LaunchLine | ExternLine | DispatchLine)
        if is_call and not (line.origins and all(origin.node for origin in line.origins)):
            yield f"call {line.handle} comes from no ATen node"


def _made(line: Line) -> tuple[str, ...]:
    match line:
        case ConstantLine(name=name) | AllocateLine(name=name) | ReuseLine(name=name) | ViewLine(name=name):
            return (name,)
        case ExternLine(results=results, is_out=False):
            return tuple(name for name in results if name is not None)
        case SymbolLine(symbol, _):
            return (symbol.name,)
        case _:
            return ()


def _used(line: Line) -> tuple[str, ...]:
    match line:
        case ReuseLine(old=old):
            return (old,)
        case FreeLine(names):
            return names
        case SymbolLine(_, SizeOf(tensor=name)) | SymbolLine(_, str() as name) | LayoutLine(name=name):
            return (name,)
        case ReturnLine(values):
            return tensor_names(values)
        case _:
            return used_tensors(line)


def _numbers(line: Line) -> tuple[str, ...]:
    """The names of the call's numbers that a line mentions; the lines of a dispatch are checked one by one."""
    mentioned = line.source if isinstance(line, SymbolLine) else line.sizes if isinstance(line, DispatchLine) else line
    return tuple(symbol.name for symbol in symbols_in(mentioned) if symbol.kind in CALL_SYMBOL_KINDS)


# Each rule yields a sentence for every place that breaks it.
PLAN_RULES: tuple[tuple[str, Callable[[Plan], Iterator[str]]], ...] = (
    ("a name is used only between its definition and its end", _name_faults),
    ("the definition of a kernel matches the kernel", _kernel_faults),
    ("a measured choice restores the tensors that its variants overwrite", _overwriting_faults),
    ("a plan ends with its only return, and frees or returns every storage", _end_faults),
    ("a device is current for whole partitions, or within one", _scope_faults),
    ("lines give each storage the live range that was planned", _life_faults),
    ("every call comes from an ATen node", _origin_faults),
    ("handles of calls grow throughout a plan and its regions", _handle_faults),
)
