"""Ranges for profilers: under one, each launch and each call of an operator shows by its name, handle and modules.

Takes the call of a graph, and what makes its ranges: the text of its Python wrapper, or its graph module. Gives a call
that asks once whether a profiler of torch's is on (torch.profiler, emit_nvtx, emit_itt) and then runs a second instance
of the wrapper, made at the first such call. Refuses nothing.

A range is called "fused_mul_gelu_0:3 layers.3.mlp": the kernel's symbol or the operator, the handle that the wrapper
has in the comment above, and the module paths of the ATen nodes there. All ranges of a call lie in one with the graph's
name. A wrapper in C++ has only that one, and so have variants among which a measurement chooses. Without comments
(options={"provenance": 0}) a launch has the symbol only.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.autograd import profiler
from torch.autograd.profiler import record_function

Call = Callable[[list[Any]], Sequence[Any]]
ModuleOf = Callable[[str], str]  # the module path of an ATen node

MOST_MODULES = 4  # in the name of one range
_HANDLE = re.compile(r"\s*# (\d+)(?:: (.*))?$")
_RANGE = "_minductor_range"  # the name of record_function in the second instance
# A wrapper in Python asks itself: 3 ns a call, where a function around its `call` takes 40 (benchmarks/overhead.md).
_CALL = "\ndef call(args):\n"
_QUESTION = "    if _minductor_profiler._is_profiler_enabled: return _minductor_profiled(args)\n"


def no_module(node: str) -> str:
    """The ModuleOf of a graph whose modules nobody knows."""
    return ""


def with_ranges(plain: Call, name: str, make: Callable[[], Call]) -> Call:
    """A call that runs `plain`, and under a profiler what `make` gives, in a range called `name`."""
    profiled = _in_range(name, make)

    def call(args: list[Any]) -> Sequence[Any]:
        return profiled(args) if profiler._is_profiler_enabled else plain(args)

    return call


def _in_range(name: str, make: Callable[[], Call]) -> Call:
    made = functools.cache(make)

    def call(args: list[Any]) -> Sequence[Any]:
        with record_function(name):
            return made()(args)

    return call


def range_name(called: object, handle: int | str, nodes: Iterable[str], module_of: ModuleOf) -> str:
    """The name of a launch's range.

    >>> range_name("mul_0", 3, ["mul", "add"], {"mul": "layers.0", "add": "layers.0"}.__getitem__)
    'mul_0:3 layers.0'
    >>> range_name("mul_0", 3, "abcdef", "layer{}".format)
    'mul_0:3 layera, layerb, layerc, layerd and 2 more'
    """
    paths = [path for path in dict.fromkeys(map(module_of, nodes)) if path]
    more = f" and {len(paths) - MOST_MODULES} more" if len(paths) > MOST_MODULES else ""
    return f"{called}:{handle} {', '.join(paths[:MOST_MODULES])}{more}".rstrip()


# --- wrappers in Python


def asking(wrapper: str) -> str:
    """The wrapper with a `call` that asks for a profiler first; unchanged if its `call` takes more than a list."""
    return wrapper.replace(_CALL, _CALL + _QUESTION, 1)


def answered(wrapper: str, namespace: dict[str, Any], name: str, module_of: ModuleOf) -> Call:
    """The call of a module with these globals that was made from the text `asking` gave. Its range is called `name`."""

    def make() -> Call:
        return instance_with_ranges(wrapper, namespace, module_of)

    plain: Call = namespace["call"]
    if _QUESTION not in wrapper:
        return with_ranges(plain, name, make)
    namespace["_minductor_profiler"], namespace["_minductor_profiled"] = profiler, _in_range(name, make)
    return plain


def instance_with_ranges(wrapper: str, namespace: Mapping[str, Any], module_of: ModuleOf) -> Call:
    """The wrapper's call with a range around each launch and operator.

    It shares kernels, constants and what was measured with the first instance, whose globals are `namespace`; the
    functions and their choices by size are made anew.
    """
    tree = ast.parse(wrapper)
    kernels = [each for each in tree.body if isinstance(each, ast.Assign) and _is_call_of(each.value, "kernels")]
    symbols = frozenset(name.id for each in kernels for name in each.targets if isinstance(name, ast.Name))
    tree.body = [each for each in tree.body if isinstance(each, ast.FunctionDef) or _is_choice_by_size(each)]
    variants = {name.id for each in tree.body if _is_choice_by_size(each) for name in _names(each)}
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            is_region = function.name != "call" and function.name not in variants
            of = functools.partial(_in_region, function.name, module_of) if is_region else module_of
            writer = _RangeWriter(wrapper.splitlines(), namespace, symbols, of)
            asks = function.name == "call" and _QUESTION in wrapper
            function.body = [writer.ranged(each) for each in function.body[asks:]]
    own = {**namespace, _RANGE: record_function}
    exec(compile(ast.fix_missing_locations(tree), namespace["__name__"], "exec"), own)
    return own["call"]


def _in_region(region: str, module_of: ModuleOf, node: str) -> str:
    return module_of(f"{region}.{node}")


def _names(statement: ast.stmt) -> Iterator[ast.Name]:
    return (node for node in ast.walk(statement) if isinstance(node, ast.Name))


def _is_call_of(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == name


def _is_choice_by_size(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and _is_call_of(statement.value, "by_size")


@dataclass(frozen=True, slots=True)
class _RangeWriter:
    """Puts the statements of one function of a wrapper into ranges.

    `lines`: the wrapper's text. `namespace`: the globals of its first instance. `symbols`: the names of its kernels.
    """

    lines: Sequence[str]
    namespace: Mapping[str, Any]
    symbols: frozenset[str]
    module_of: ModuleOf

    def ranged(self, statement: ast.stmt) -> ast.stmt:
        """The statement in a range, if it launches or calls something; so are the statements of its blocks."""
        above = _HANDLE.match(self.lines[statement.lineno - 2]) if statement.lineno > 1 else None
        if above is not None:
            nodes = above[2].split(", ") if above[2] else ()
            text = range_name(self.called(statement), above[1], nodes, self.module_of)
        elif isinstance(statement, ast.With):  # a device's scope, or a test for NaN
            statement.body = [self.ranged(each) for each in statement.body]
            return statement
        elif self.is_launch(statement):  # a wrapper without comments
            text = self.called(statement)
        else:
            return statement
        begin = ast.Call(ast.Name(_RANGE, ast.Load()), [ast.Constant(text)], [])
        return ast.copy_location(ast.With([ast.withitem(begin)], [statement]), statement)

    def is_launch(self, statement: ast.stmt) -> bool:
        """Whether a statement launches a kernel."""
        call = next(_calls(statement), None)
        return call is not None and ast.unparse(call.func) in self.symbols

    def called(self, statement: ast.stmt) -> str:
        """The kernel's symbol or the operator that a statement calls, as provenance.json names it."""
        call = next(_calls(statement), None)
        if call is None:
            return "call"
        text = ast.unparse(call.func)
        if text.startswith("result_checks."):  # takes the operator's name and then the operator
            return str(ast.literal_eval(call.args[0]))
        if isinstance(found := self.namespace.get(text), torch._ops.OpOverload):
            return str(found)
        if text == "torch.Tensor.item":
            return "aten._local_scalar_dense.default"
        if text.startswith("torch.") and any(word.arg == "out" for word in call.keywords):
            return f"aten.{text.removeprefix('torch.')}.out"
        own = text.rpartition("_")[0]  # the function that chooses among variants is called SYMBOL_HANDLE
        return own if text not in self.symbols and own in self.symbols else text


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls in a statement, outermost first."""
    return (node for node in ast.walk(statement) if isinstance(node, ast.Call))


# --- torch.fx graphs


class RangeInterpreter(fx.Interpreter):
    """Runs a graph node by node, its launches and operators in ranges."""

    def __init__(self, module: fx.GraphModule, module_of: ModuleOf) -> None:
        super().__init__(module)
        self.module_of = module_of

    def run_node(self, n: fx.Node) -> Any:
        if (about := n.meta.get("minductor")) is None:
            return super().run_node(n)
        with record_function(
            range_name(about.get("symbol", n.target), about["handle"], about["origins"], self.module_of)
        ):
            return super().run_node(n)
