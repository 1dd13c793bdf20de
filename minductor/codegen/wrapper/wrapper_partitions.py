"""The functions that a wrapper has for its partitions, under the option `cudagraphs`.

Takes a Plan with partitions. Gives, for each partition that a CUDA graph can capture, a `PartitionFunction`: its lines,
what it is given, what it returns, and what stays in `call` around it. Refuses nothing: a partition that cannot be a
function (`_fits`) stays a part of `call`.

A function is given tensors and numbers by name and returns tensors. Three kinds of lines stay in `call`, before the
function is called, since a graph does not run them: numbers, assertions about numbers, and views of tensors that the
function was given, if something behind it uses them. A name that the function frees or gives away is deleted in `call`
as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from minductor.codegen.wrapper.operator_schema import parse_schema
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import Line, Plan
from minductor.ir.plan.storage_lives import tensor_names, used_tensors
from minductor.ir.program.nodes import CALL_SYMBOL_KINDS, symbols_in


@dataclass(frozen=True, slots=True)
class PartitionFunction:
    """One partition as a function of `tensors`, then `numbers`, which returns `results`.

    `inputs`: for each of `tensors` the input of the graph in whose storage it lies, or "".
    `above`: lines that `call` runs before it calls the function. `dropped`: the names that `call` deletes behind it.
    `written`: those of `tensors` that the function writes and that somebody reads behind it. `nodes`: for each result
    an ATen node that computes it, or "". `kept`: by the name of a storage that it allocates and that only the caller
    uses behind it, the number of the last value in it that the graph returns. `end`: the number, in the plan, of the
    first line behind the partition. `takes_all`: the graph's inputs are its arguments, in order, and nobody else reads
    them.
    """

    number: int
    device: str
    body: tuple[Line, ...]
    above: tuple[Line, ...]
    tensors: tuple[str, ...]
    inputs: tuple[str, ...]
    numbers: tuple[str, ...]
    results: tuple[str, ...]
    dropped: tuple[str, ...]
    written: tuple[str, ...]
    nodes: tuple[str, ...]
    kept: Mapping[str, int]
    end: int
    takes_all: bool

    @property
    def name(self) -> str:
        return f"partition_{self.number}"


def partition_comment(plan: Plan, number: int, mark: str) -> Iterator[str]:
    """A comment that says whether a CUDA graph can capture the lines below, and if not, why."""
    part = plan.partitions[number]
    yield f"{mark} partition {number}: {'can' if part.is_capturable else 'cannot'} be captured"
    yield from (f"{mark}   {barrier.origin or barrier.node}: {barrier.reason}" for barrier in part.barriers)


def recorded(function: PartitionFunction) -> Iterator[str]:
    """The Python that names what records a function: `captured_` and its number."""
    written = tuple(function.tensors.index(name) for name in function.written)
    about = (function.name, repr(function.device), function.inputs, written, function.nodes)
    yield f"captured_{function.number} = graphs("
    yield from (f"    {each}," for each in about)
    yield ")"


def partition_functions(plan: Plan) -> Mapping[int, PartitionFunction]:
    """The functions of a plan, by the number of the line in which their partition begins."""
    written = {line.id: line.written for line in plan.lines if isinstance(line, lines.KernelLine)}
    constants = {line.name for line in plan.lines if isinstance(line, lines.ConstantLine)}
    found: dict[int, PartitionFunction] = {}
    for start, line in enumerate(plan.lines):
        if isinstance(line, lines.PartitionLine) and plan.partitions[line.number].is_capturable:
            end = _end(plan.lines, start)
            inside = plan.lines[start + 1 : end]
            if _fits(inside):
                found[start] = _function(plan, line.number, inside, end, written, constants)
    return found


def _end(plan_lines: Sequence[Line], start: int) -> int:
    """The number of the first line behind the partition that begins at line `start`."""
    opened = 0
    for number in range(start + 1, len(plan_lines)):
        match plan_lines[number]:
            case lines.PartitionLine() | lines.ReturnLine():
                return number
            case lines.DeviceScopeLine():
                opened += 1
            case lines.ScopeEndLine():
                if opened == 0:
                    return number
                opened -= 1
                if opened == 0:
                    return number + 1
            case _:
                pass
    return len(plan_lines)


def _fits(inside: Sequence[Line]) -> bool:
    """Whether a partition can be a function: it launches something, and its numbers depend on no tensor it makes."""
    made = {name for line in inside for name in _made(line)}
    sources = (line.source for line in inside if isinstance(line, lines.SymbolLine))
    is_late = any(isinstance(source, lines.SizeOf) and source.tensor in made for source in sources)
    return not is_late and any(
        isinstance(line, lines.LaunchLine | lines.DispatchLine | lines.ExternLine) for line in inside
    )


def _function(
    plan: Plan,
    number: int,
    inside: Sequence[Line],
    end: int,
    written: Mapping[str, tuple[int, ...]],
    constants: set[str],
) -> PartitionFunction:
    made = {name: None for line in inside for name in _made(line)}
    gone = {name for line in inside for name in _dropped(line)}
    later = {name for line in plan.lines[end:] for name in _named(line)}
    roots = _roots(inside)
    views = [line for line in inside if isinstance(line, lines.ViewLine) and roots[line.name] not in made]
    escaping = {line.name for line in views} & later - gone
    above = [line for line in inside if isinstance(line, lines.SymbolLine | lines.AssertLine)]
    # A view of a view needs the view below it too.
    needed = _with_bases(views, escaping)
    above += [line for line in views if line.name in needed]
    results = tuple(name for name in made if name in later and name not in gone and name not in escaping)
    needed_inside = {name for line in inside for name in (*used_tensors(line), *_old(line))}
    body = tuple(_kept(inside, made.keys() | needed_inside, escaping - needed_inside))
    used = dict.fromkeys(name for line in body for name in (*used_tensors(line), *_old(line)))
    numbers = _numbers(body)
    order = {given.name: place for place, given in enumerate(plan.inputs)}
    tensors = tuple(name for name in used if name not in made and name not in constants)
    tensors = tuple(sorted(tensors, key=lambda name: order.get(name, len(order))))
    changed = {roots.get(name, name) for line in body for name in _changed(line, written)}
    kept = _kept_roots(plan, end, made)
    owners = _roots(plan.lines)
    rest = (*plan.lines[: end - len(inside)], *plan.lines[end:])
    takes_all = (*tensors, *numbers) == tuple(order) and order.keys().isdisjoint(
        name for x in rest for name in _named(x)
    )
    lies_in = [owners.get(name, name) for name in tensors]
    return PartitionFunction(
        number,
        plan.partitions[number].device,
        body,
        tuple(above),
        tensors,
        tuple(name if name in order else "" for name in lies_in),
        numbers,
        results,
        tuple(sorted(gone - made.keys())),
        tuple(name for name in tensors if name in changed and owners.get(name, name) in kept),
        tuple(_node(body, name, roots, written) for name in results),
        _kept_results(plan, body, end, owners),
        end,
        takes_all and not above,
    )


def _kept_results(plan: Plan, body: Sequence[Line], end: int, owners: Mapping[str, str]) -> dict[str, int]:
    """`PartitionFunction.kept`; `owners`: as `_roots` gives them, of the plan."""
    calls = (lines.LaunchLine, lines.DispatchLine, lines.ExternLine, lines.ReuseLine, lines.LayoutLine)
    later = {owners.get(name, name) for line in plan.lines[end:] if isinstance(line, calls) for name in _named(line)}
    own = {line.name for line in body if isinstance(line, lines.AllocateLine)} - later
    values = [value for line in plan.lines[end:] if isinstance(line, lines.ReturnLine) for value in line.values]
    lies_in = {number: owners.get(name, name) for number, value in enumerate(values) for name in tensor_names((value,))}
    return {name: number for number, name in lies_in.items() if name in own}


def _roots(block: Iterable[Line]) -> dict[str, str]:
    """The name of each view or reused storage of some lines -> the name in whose storage it lies."""
    found: dict[str, str] = {}
    for line in block:
        match line:
            case lines.ViewLine(name=name, of=old) | lines.ReuseLine(name=name, old=old):
                found[name] = found.get(old, old)
            case _:
                pass
    return found


def _kept_roots(plan: Plan, end: int, made: Collection[str]) -> set[str]:
    """The storages that somebody reads after a partition: the caller's own, and those of names that later lines use.

    `made`: the names that the partition makes.
    """
    owners = _roots(plan.lines)
    found = {given.name for given in plan.inputs if given.symbol is None and not given.is_donated}
    later = {name for line in plan.lines[end:] for name in _named(line)} - set(made)
    return found | {owners.get(name, name) for name in later}


def _kept(inside: Sequence[Line], known: Collection[str], outside: Collection[str]) -> Iterator[Line]:
    """The lines of a function that knows the names `known`. Views whose names are in `outside` are made in `call`."""
    for line in inside:
        match line:
            case lines.SymbolLine() | lines.AssertLine():
                continue
            case lines.ViewLine(name=name) if name in outside:
                continue
            case lines.FreeLine(names=names):
                if mine := tuple(name for name in names if name in known):
                    yield lines.FreeLine(mine)
            case _:
                yield line


def _with_bases(views: Sequence[lines.ViewLine], wanted: set[str]) -> set[str]:
    """The names of the views that are needed to make the `wanted` ones."""
    found = set(wanted)
    for view in reversed(views):
        if view.name in found:
            found.add(view.of)
    return found


def _numbers(body: Iterable[Line]) -> tuple[str, ...]:
    """The names of the numbers that the lines read."""
    symbols = {symbol for symbol in symbols_in(tuple(body)) if symbol.kind in CALL_SYMBOL_KINDS}
    return tuple(sorted(symbol.name for symbol in symbols))


def _made(line: Line) -> tuple[str, ...]:
    """The names of the tensors that a line makes."""
    match line:
        case lines.AllocateLine(name=name) | lines.ReuseLine(name=name) | lines.ViewLine(name=name):
            return (name,)
        case lines.ExternLine(results=results, is_out=False):
            return tuple(name for name in results if name is not None)
        case _:
            return ()


def _old(line: Line) -> tuple[str, ...]:
    """The names besides those of `used_tensors` that a line needs."""
    match line:
        case lines.ReuseLine(old=name) | lines.LayoutLine(name=name):
            return (name,)
        case _:
            return ()


def _dropped(line: Line) -> tuple[str, ...]:
    """The names that no later line may use."""
    match line:
        case lines.FreeLine(names=names):
            return names
        case lines.ReuseLine(old=old):
            return (old,)
        case _:
            return ()


def _named(line: Line) -> Iterator[str]:
    """The names of the tensors that a line needs or drops."""
    yield from used_tensors(line)
    yield from _old(line)
    yield from _dropped(line)
    match line:
        case lines.ReturnLine(values=values):
            yield from tensor_names(values)
        case lines.SymbolLine(source=lines.SizeOf(tensor=tensor)):
            yield tensor
        case _:
            pass


def _changed(line: Line, written: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """The names of the tensors that a line writes."""
    match line:
        case lines.LaunchLine(kernel=kernel, tensors=tensors):
            yield from (tensors[place] for place in written[kernel])
        case lines.DispatchLine(own=own):
            yield from (own.tensors[place] for place in written[own.kernel])
        case lines.ExternLine(args=args, kwargs=kwargs, results=results, is_out=is_out, schema=text):
            yield from (name for name in results if is_out and name is not None)
            if not text:
                return
            given = dict(kwargs)
            for place, parameter in enumerate(parse_schema(text).parameters):
                if parameter.is_written:
                    yield from tensor_names(args[place] if place < len(args) else given.get(parameter.name))
        case _:
            pass


def _node(body: Sequence[Line], name: str, roots: Mapping[str, str], written: Mapping[str, tuple[int, ...]]) -> str:
    """The last ATen node of the last line that computes a result; "" if none is known."""
    root = roots.get(name, name)
    for line in reversed(body):
        if not isinstance(line, lines.LaunchLine | lines.DispatchLine | lines.ExternLine) or not line.origins:
            continue
        if any(roots.get(each, each) == root for each in (*_changed(line, written), *_made(line))):
            return line.origins[-1].node
    return ""
