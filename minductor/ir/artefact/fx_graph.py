"""A torch.fx graph as plain data, without torch: the wrapper in the language "fx".

Takes nodes, or JSON. Gives their JSON, one node in a line, or the graph again: `parse_graph(print_graph(g)) == g`.
Refuses JSON of another schema or form, with ValueError.

A target is a dotted name: "torch.empty_strided", "operator.add", "torch.ops.aten.mm.out". The launch of a kernel has
the target LAUNCH in every language of kernels; its arguments are the kernel's name, tensors and numbers. A subgraph
that an operator is given is one of `graphs`. A node `get_attr` refers to it, as to a constant.

>>> x = FxNode("x", "placeholder", "x")
>>> y = FxNode("y", "call_function", "operator.mul", (Result("x"), 2), handle=1, origins=("mul",))
>>> print(print_graph(FxGraph("f", (x, y, FxNode("output", "output", "output", ((Result("y"),),))))), end="")
{"schema": 1, "name": "f", "kernels": [], "graphs": [], "nodes": [
{"name": "x", "op": "placeholder", "target": "x"},
{"name": "y", "op": "call_function", "target": "operator.mul", "args": [{"result": "x"}, 2], "handle": 1, "origins": \
["mul"]},
{"name": "output", "op": "output", "target": "output", "args": [[{"result": "y"}]]}
]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never, cast

from minductor.core.dtypes import DType, by_name
from minductor.ir.program.nodes import Token

SCHEMA = 1
LAUNCH = "minductor.launch"
ASSERT = "torch.ops.aten._assert_scalar.default"
NAN_CHECK = "minductor.runtime.launch.nan_asserts.check"

Op: TypeAlias = Literal["placeholder", "get_attr", "call_function", "output"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the node of that name, as an argument."""

    name: str


Value: TypeAlias = Result | DType | Token | tuple["Value", ...] | bool | int | float | complex | str | None


@dataclass(frozen=True, slots=True)
class FxNode:
    """One node of the graph.

    `handle`: the handle of the plan's line, for a launch or a call. `origins`: the ATen nodes that it comes from.
    `checked`: the ATen node of each error that a launch or an assertion may raise; all nodes of a launch for NAN_CHECK.
    """

    name: str
    op: Op
    target: str
    args: tuple[Value, ...] = ()
    kwargs: tuple[tuple[str, Value], ...] = ()
    handle: int | None = None
    origins: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FxKernel:
    """A kernel that nodes launch. `written`: the numbers of the tensor parameters that it writes.

    Status k means `errors[k - 1]`, which is an exception's name and its message.
    """

    symbol: str
    written: tuple[int, ...]
    errors: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FxGraph:
    """A graph: nodes in order. The outermost graph lists the kernels of its subgraphs too."""

    name: str
    nodes: tuple[FxNode, ...]
    graphs: tuple[FxGraph, ...] = ()
    kernels: tuple[FxKernel, ...] = ()


def print_graph(graph: FxGraph) -> str:
    """The graph as JSON."""
    return _graph_text(graph) + "\n"


def _graph_text(graph: FxGraph) -> str:
    kernels = [[kernel.symbol, kernel.written, kernel.errors] for kernel in graph.kernels]
    head = f'{{"schema": {SCHEMA}, "name": {json.dumps(graph.name)}, "kernels": {json.dumps(kernels)}, '
    graphs = ", ".join(map(_graph_text, graph.graphs))
    nodes = ",\n".join(json.dumps(_node_json(node)) for node in graph.nodes)
    return f'{head}"graphs": [{graphs}], "nodes": [\n{nodes}\n]}}'


def _node_json(node: FxNode) -> dict[str, Any]:
    found: dict[str, Any] = {"name": node.name, "op": node.op, "target": node.target}
    if node.args:
        found["args"] = _value_json(node.args)
    if node.kwargs:
        found["kwargs"] = {name: _value_json(value) for name, value in node.kwargs}
    if node.handle is not None:
        found.update(handle=node.handle, origins=node.origins)
    if node.checked:
        found["checked"] = node.checked
    return found


def _value_json(value: Value) -> Any:
    match value:
        case Result(name):
            return {"result": name}
        case DType():
            return {"dtype": value.name}
        case Token(kind, name):
            return {kind: name}
        case tuple():
            return [_value_json(item) for item in value]
        case float() if not math.isfinite(value):  # JSON has no inf and nan
            return {"float": repr(value)}
        case complex():
            return {"complex": repr(value)}
        case None | bool() | int() | float() | str():
            return value
        case _:
            assert_never(value)


def parse_graph(text: str) -> FxGraph:
    """The graph that `print_graph` printed."""
    try:
        return _graph(json.loads(text))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no graph of schema {SCHEMA}: {error!r}") from error


def _graph(found: Mapping[str, Any]) -> FxGraph:
    if found["schema"] != SCHEMA:
        raise ValueError(f"a graph of schema {found['schema']}, not {SCHEMA}")
    kernels = tuple(
        FxKernel(symbol, tuple(written), tuple((kind, message) for kind, message in errors))
        for symbol, written, errors in found["kernels"]
    )
    graphs = tuple(_graph(inner) for inner in found["graphs"])
    return FxGraph(found["name"], tuple(map(_node, found["nodes"])), graphs, kernels)


def _node(found: Mapping[str, Any]) -> FxNode:
    args = tuple(_value(item) for item in found.get("args", ()))
    kwargs = tuple((name, _value(value)) for name, value in found.get("kwargs", {}).items())
    about = (found.get("handle"), tuple(found.get("origins", ())), tuple(found.get("checked", ())))
    return FxNode(found["name"], found["op"], found["target"], args, kwargs, *about)


def _value(found: object) -> Value:
    match found:
        case {"result": str(name)}:
            return Result(name)
        case {"dtype": str(name)}:
            return by_name(name)
        case {"float": str(text)}:
            return float(text)
        case {"complex": str(text)}:
            return complex(text)
        case dict():
            ((kind, name),) = cast("dict[str, str]", found).items()
            return Token(kind, name)
        case list():
            return tuple(_value(item) for item in cast("list[object]", found))
        case None | bool() | int() | float() | str():
            return found
        case _:
            raise ValueError(f"no value of a graph: {found!r}")
