"""The statements by which a wrapper tells `memory_plan_checks.py` what it does to memory, before and after each line.

Takes lines, and the planned storages. Gives Python statements, without indentation. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from minductor.core.expressions.expr import as_int
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import Line, Plan
from minductor.ir.plan.storage import Storage
from minductor.ir.plan.storage_lives import tensor_names


def table(name: str, storages: Iterable[Storage]) -> Iterator[str]:
    """The planned lives of all storages, as a module-level name."""
    yield f"{name} = memory_plan_checks.planned("
    for storage in storages:
        owner = "shown" if storage.is_shown and storage.owner == "own" else storage.owner
        names = ", ".join(repr((n.name, n.making, n.of, n.start, n.end)) for n in storage.names)
        yield f"    ({owner!r}, {as_int(storage.bytes)}, {storage.is_returned}, {names}),"
    yield ")"


def begin(plan: Plan) -> str:
    """The statement after the line that unpacks the arguments."""
    return f"life.begins({_pairs(given.name for given in plan.inputs if given.symbol is None)})"


def before(line: Line, symbols: Mapping[str, str]) -> Iterator[str]:
    """The statements before a line. `symbols`: the symbol of each kernel, by id."""
    match line:
        case lines.LaunchLine(kernel=kernel, tensors=given):
            yield f"life.call({symbols[kernel]!r}, {_pairs(given)})"
        case lines.DispatchLine(own=own, tensors=given):
            yield f"life.call({symbols[own.kernel]!r}, {_pairs(given)})"
        case lines.ExternLine(op=op, args=args, kwargs=kwargs, results=results, is_out=is_out):
            given = (*tensor_names(args), *(name for _, value in kwargs for name in tensor_names(value)))
            into = tuple(name for name in results if name is not None) if is_out else ()
            yield f"life.call({op!r}, {_pairs((*given, *into))})"
        case lines.ReturnLine(values):
            yield f"life.returns({_pairs(tensor_names(values))})"
        case _:
            return


def after(line: Line, made: Collection[str]) -> Iterator[str]:
    """The statements after a line. `made`: the names of all storages; other results of operators are numbers."""
    match line:
        case lines.AllocateLine(name=name):
            yield f"life.allocate({name!r}, {name})"
        case lines.ReuseLine(name=name, old=old):
            yield f"life.transfer({name!r}, {old!r}, {name})"
        case lines.ViewLine(name=name, of=of):
            yield f"life.alias({name!r}, {of!r}, {name})"
        case lines.FreeLine(names):
            yield f"life.free({', '.join(map(repr, names))})"
        case lines.ExternLine(results=results, is_out=False):
            yield from (f"life.give({name!r}, {name})" for name in results if name in made)
        case lines.LayoutLine(name=name):
            yield f"life.laid_out({name!r}, {name})"
        case _:
            return


def _pairs(names: Iterable[str]) -> str:
    return ", ".join(f"({name!r}, {name})" for name in dict.fromkeys(names))
