"""The functions that a wrapper in C++ has for its partitions, under the option `cudagraphs`.

Takes a Plan and its `PartitionFunction`s. Gives a Plan of its own for each function, the steps of `call` around them,
and the Python that makes of each function what `call` calls: Python records it and replays it (runtime/graphs/).
Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from minductor.codegen.wrapper.wrapper_partitions import PartitionFunction, recorded
from minductor.core.expressions.expr import Expr, Symbol
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import Line, Plan
from minductor.ir.program.nodes import Input, Token, symbols_in

Step: TypeAlias = "Line | PartitionFunction"


def steps(plan: Plan, functions: Mapping[int, PartitionFunction]) -> Iterator[Step]:
    """The lines of a plan, with the lines that stay above each function, and the function in place of the others."""
    number = 0
    while number < len(plan.lines):
        yield plan.lines[number]
        number += 1
        if (function := functions.get(number - 1)) is not None:
            yield from function.above
            yield function
            number = function.end


def plan_of(function: PartitionFunction) -> Plan:
    """The function as a plan, whose inputs are its tensors, then its numbers."""
    taken = {line.old for line in function.body if isinstance(line, lines.ReuseLine)}
    symbols = {symbol.name: symbol for symbol in symbols_in(function.body)}
    inputs = [Input(name, is_donated=name in taken) for name in function.tensors]
    inputs += [Input(name, symbols[name]) for name in function.numbers]
    results = lines.ReturnLine(tuple(Token("tensor", name) for name in function.results))
    return Plan(function.name, tuple(inputs), (*function.body, results), ())


def outside(plan: Plan, around: Iterable[Step]) -> Plan:
    """The plan without what its functions do."""
    return replace(plan, lines=tuple(step for step in around if not isinstance(step, PartitionFunction)))


def result_numbers(line: lines.AllocateLine) -> list[Symbol]:
    """The numbers that the layout of a result depends on."""
    return sorted(symbols_in((line.size, line.stride)), key=lambda symbol: symbol.name)


def recorded_functions(functions: Iterable[PartitionFunction]) -> Iterator[str]:
    """The lines of Python that make the storages of results, and that name what records each function."""
    yield "import torch"
    for function in functions:
        for line in function.body:
            if isinstance(line, lines.AllocateLine) and (last := function.kept.get(line.name)) is not None:
                layout = f"{_tuple(line.size)}, {_tuple(line.stride)}, torch.{line.dtype.torch_name}, {line.device!r}"
                yield f"def result_{last}({', '.join(symbol.name for symbol in result_numbers(line))}):"
                yield f"    return (empty_result({last}, {layout}),)"
        yield from recorded(function)


def _tuple(numbers: Iterable[Expr]) -> str:
    return f"({''.join(f'{number}, ' for number in numbers)})"
