"""From the text of a graph to a torch.fx.GraphModule with bound kernels.

Takes the text of wrapper_fx.py, functions that launch its kernels, and the tensors and objects that it refers to by
name. Gives an ordinary GraphModule, which any pass or backend for FX may read, change and run. Refuses text that is no
such graph (ValueError).

One operator, `minductor::launch`, launches all kernels in C++; its first argument names the kernel, which stays loaded
for the life of the process. Triton kernels are entries of torch's table for such kernels, launched by
`triton_kernel_wrapper_mutation`. In the module's code, each call stands below a comment with its handle and ATen nodes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, attrgetter, floordiv, mod, mul, sub
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.graph import _BoxedCodeGen
from torch.fx.node import has_side_effect, map_arg

from minductor.core.dtypes import DType
from minductor.core.errors import WrongInput
from minductor.ir.artefact.fx_graph import LAUNCH, NAN_CHECK, FxGraph, FxKernel, FxNode, Result, Value, parse_graph
from minductor.ir.artefact.launch_metadata import LAUNCHES
from minductor.ir.program.nodes import Token
from minductor.runtime.launch import nan_asserts
from minductor.runtime.launch.fx_launcher import Launcher
from minductor.runtime.launch.launch import KERNELS, Bind, Call, fail, located, overlap
from minductor.runtime.launch.load import threads
from minductor.runtime.launch.profiler_ranges import ModuleOf, RangeInterpreter, no_module, with_ranges
from minductor.runtime.store.store import digest
from minductor.target import Target

# modules whose functions a graph may call, besides torch's operators
OWN_MODULES = tuple(
    f"minductor.runtime.launch.{name}"
    for name in ("result_checks", "control_flow", "fx", "launch", "by_size", "nan_asserts")
)
MODULES = ("builtins", "functools", "math", "operator", "torch", *OWN_MODULES)
# functions that are cheap to run on fake tensors
CHEAP = (torch.empty_strided, torch.as_strided, torch.ops.aten.sym_size.int, add, sub, mul, floordiv, mod)
_ASSIGNED = re.compile(r"\s*(\w+)\b[^=]* = ")


def graph_module(
    text: str,
    launcher: Callable[[FxGraph], Launcher],
    bound: Mapping[str, Any],
    traced: fx.GraphModule | None = None,
    *,
    is_boxed: bool = False,
    where: Callable[[str], str] = lambda node: "",
) -> fx.GraphModule:
    """The module of a printed graph.

    `bound`: lifted tensors and other objects, by name. `traced`: the ATen graph that was compiled, for what it knows of
    inputs and of the user's lines. `is_boxed`: the module takes a list and empties it, so that no caller keeps the
    inputs alive. `where`: the user's line of an ATen node, for errors of kernels.
    """
    graph = parse_graph(text)
    return _Builder(launcher(graph), bound, where).module(graph, traced, is_boxed=is_boxed)


def launch(
    text: str,
    launcher: Callable[[FxGraph], Launcher],
    bound: Mapping[str, Any],
    traced: fx.GraphModule | None = None,
    hook: Callable[[fx.GraphModule], Callable[..., Any]] | None = None,
    events: list[tuple[str, str]] | None = None,
    where: Callable[[str], str] = lambda node: "",
    module_of: ModuleOf = no_module,
) -> Call:
    """The call of a graph, or of what a backend's hook makes of the graph. Without a hook, the call records `events`.

    `where`: the user's line of an ATen node, for errors of kernels. `module_of`: its module path, for profilers.
    """
    module = graph_module(text, launcher, bound, traced, is_boxed=hook is None, where=where)
    if hook is None and events is not None:
        return lambda args: _RecordingInterpreter(module, events).boxed_run(args)
    name = f"minductor {module.__class__.__name__}"
    if hook is None:
        return with_ranges(module.forward, name, lambda: RangeInterpreter(module, module_of).boxed_run)
    run = hook(module)

    def call(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return run(*given)

    return with_ranges(call, name, lambda: call)


class _RecordingInterpreter(fx.Interpreter):
    """Runs a graph node by node and records allocations, launches, operators and freed values."""

    def __init__(self, module: fx.GraphModule, events: list[tuple[str, str]]) -> None:
        super().__init__(module)
        self.events = events

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.target is torch.empty_strided:
            self.events.append(("allocate", n.name))
        elif "minductor" in n.meta:
            is_launch = n.kwargs.keys() >= {"kernel_idx"} or str(n.target) == "minductor.launch.default"
            self.events.append(("launch", n.name) if is_launch else ("extern", str(n.target)))
        if n.op != "output":
            self.events.extend(("free", given.name) for given in self.user_to_last_uses.get(n, ()))
        return result


class _Builder:
    """Builds the modules of a printed graph and of its inner graphs."""

    def __init__(self, launch: Launcher, bound: Mapping[str, Any], where: Callable[[str], str]) -> None:
        self.launch = launch
        self.bound = bound
        self.where = where

    def module(self, graph: FxGraph, traced: Any = None, *, is_boxed: bool = False) -> fx.GraphModule:
        """The module of a graph. `traced`: the module of the ATen graph that was compiled."""
        root = torch.nn.Module()
        inner = {one.name: one for one in graph.graphs}
        for name in [node.target for node in graph.nodes if node.op == "get_attr"]:
            value = self.module(inner[name], getattr(traced, name, None)) if name in inner else self.bound[name]
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                root.register_buffer(name, value)
            else:
                setattr(root, name, value)
        made = fx.Graph()
        found: dict[str, fx.Node] = {}
        for node in graph.nodes:
            if node.target == LAUNCH:
                symbol, tensors, numbers = (_argument(value, found) for value in node.args)
                found[node.name] = self.launch(made, symbol, tensors, numbers)
            else:
                found[node.name] = add_node(made, node, found)
            if node.target == NAN_CHECK:
                has_side_effect(nan_asserts.check)  # so that no pass removes it as dead code
            places = list(map(self.where, node.checked))
            if any(places):
                _add_user_lines(found[node.name], places)
        calls = {found[node.name]: node for node in graph.nodes if node.handle is not None}
        for call, node in calls.items():
            call.meta["minductor"] = {"handle": node.handle, "origins": node.origins}
            if node.target == LAUNCH:
                call.meta["minductor"]["symbol"] = node.args[0]
        if isinstance(traced, fx.GraphModule):
            _add_metas(made, calls, traced.graph)
        if is_boxed:
            made.set_codegen(_BoxedCodeGen())
        else:  # passes and people may read the values
            _add_values(made)
        comments = {call.name: _comment(node) for call, node in calls.items()}
        made.on_generate_code(lambda before: functools.partial(_commented, comments, before))
        return fx.GraphModule(root, made, graph.name)


def _add_metas(graph: fx.Graph, calls: Mapping[fx.Node, FxNode], traced: fx.Graph) -> None:
    """Copies what the tracer knows of the inputs, and the user's lines of each call."""
    known = {node.name: node.meta for node in traced.find_nodes(op="placeholder")}
    for node in graph.find_nodes(op="placeholder"):
        node.meta.update(known.get(str(node.target), {}))
    traces = {node.name: node.stack_trace for node in traced.nodes}
    for call, node in calls.items():
        call.stack_trace = next((traces[name] for name in reversed(node.origins) if traces.get(name)), None)


def _add_user_lines(call: fx.Node, places: Sequence[str]) -> None:
    """Adds the user's lines to the errors of a launch, assertion or test for NaN.

    Kernels on a GPU stop the device instead.
    """
    if call.target is torch.ops.aten._assert_scalar.default:
        call.update_arg(1, located(str(call.args[1]), places[0]))
    elif str(call.target) == "minductor.launch.default" or call.target is nan_asserts.check:
        call.update_kwarg("places", "\n".join(places))


def add_node(graph: fx.Graph, node: FxNode, found: Mapping[str, fx.Node]) -> fx.Node:
    """Adds a node other than a launch. `found`: the earlier nodes, by their names in the text."""
    args = tuple([_argument(value, found) for value in node.args])
    kwargs = {name: _argument(value, found) for name, value in node.kwargs}
    match node.op:
        case "placeholder":
            return graph.placeholder(node.target)
        case "output":
            return graph.output(*args)
        case "get_attr":
            return graph.create_node("get_attr", node.target, name=node.name)
        case "call_function":
            return graph.create_node("call_function", _function(node.target), args, kwargs, node.name)


def _add_values(graph: fx.Graph) -> None:
    """Computes `meta["val"]` of numbers, buffers and views, as the tracer would. Adds no guards."""
    mode: Any = detect_fake_mode([node.meta["val"] for node in graph.nodes if "val" in node.meta])
    if mode is None:
        return
    with mode, contextlib.nullcontext() if mode.shape_env is None else mode.shape_env.suppress_guards():
        for node in graph.nodes:
            if node.target in CHEAP and all("val" in given.meta for given in node.all_input_nodes):
                args, kwargs = map_arg((node.args, node.kwargs), lambda given: given.meta["val"])
                if not free_unbacked_symbols(args):
                    node.meta["val"] = node.target(*args, **kwargs)


def _argument(value: Value, found: Mapping[str, fx.Node]) -> Any:
    match value:
        case Result(name):
            return found[name]
        case DType():
            return getattr(torch, value.torch_name)
        case Token("device", name):
            return torch.device(name)
        case Token("operator", name):
            return attrgetter(name)(torch.ops)
        case Token(_, name):
            return getattr(torch, name)
        case tuple():
            return tuple([_argument(item, found) for item in value])
        case _:
            return value


def _function(target: str) -> Callable[..., Any]:
    if target.startswith("torch.ops."):
        return attrgetter(target.removeprefix("torch.ops."))(torch.ops)
    module, _, name = target.rpartition(".")
    if module not in MODULES:
        raise ValueError(f"a graph that calls {target}")
    return getattr(importlib.import_module(module), name)


def _comment(node: FxNode) -> str:
    return f"{node.handle}: {', '.join(node.origins)}" if node.origins else str(node.handle)


def _commented(
    comments: Mapping[str, str], before: Callable[[list[str]], list[str]] | None, body: list[str]
) -> list[str]:
    """The lines of a graph's code, with comments above the nodes of these names."""
    made: list[str] = []
    for line in body if before is None else before(body):
        match = _ASSIGNED.match(line)
        if match is not None and match[1] in comments:
            made.append(f"# {comments[match[1]]}\n")
        made.append(line)
    return made


def launcher(files: Mapping[str, bytes], kernels: Bind | None, target: Target) -> Callable[[FxGraph], Launcher]:
    """What adds launches of an artefact's kernels. `kernels` is None if there are none, or for another machine."""
    if target.is_gpu and KERNELS in files:
        from minductor.runtime.launch.fx_triton import Triton

        return Triton(files[KERNELS].decode(), files[LAUNCHES].decode(), kernels, target.name)
    return Native(kernels, digest(*(part for name in sorted(files) for part in (name, files[name]))))


# --- what graphs call ---------------------------------------------------------------------------------------------


def where(condition: Any, value: Any, other: Any) -> Any:
    """One of two numbers."""
    return value if condition else other


def check(
    name: str,
    value: Any,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    begin: int | None = None,
) -> None:
    """Refuses an input that differs from what the kernels were compiled for. `begin` matters to programs that count
    elements from the start of the input's memory.
    """
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise WrongInput(name, f"it is a {type(value).__name__}, and a plain tensor was compiled for")
    for what, found, wanted in (("dtype", value.dtype, dtype), ("device", value.device, device)):
        if found != wanted:
            raise WrongInput(name, f"its {what} is {found}, and {wanted} was compiled for")
    if value.shape != size:
        raise WrongInput(name, f"its size is {tuple(value.shape)}, and {size} was compiled for")
    if value.requires_grad and torch.is_grad_enabled():
        raise WrongInput(name, "it requires a gradient, and graphs are for inference: call them under torch.no_grad()")
    if begin is not None and value.storage_offset() != begin:
        raise WrongInput(name, f"it begins at element {value.storage_offset()}, and {begin} was compiled for")
    steps = zip(size, value.stride(), stride, strict=True)
    if value.numel() and any(found != wanted for n, found, wanted in steps if n > 1):
        raise WrongInput(name, f"its strides are {value.stride()}, and {stride} were compiled for")


def check_apart(name: str, changed: torch.Tensor, others: Sequence[torch.Tensor]) -> None:
    """Refuses an input that is written and shares memory with another one: kernels assume that they do not overlap."""
    real = (torch.Tensor, torch.nn.Parameter)  # a tracer's tensors have no memory
    if type(changed) in real and any(type(other) in real and overlap(changed, other) for other in others):
        raise WrongInput(name, "another input shares its memory, and the program changes it")


def check_range(name: str, value: Any, low: int | None, high: int | None) -> None:
    """Refuses a number outside the range that kernels were compiled for."""
    if (low is not None and value < low) or (high is not None and value > high):
        ends = ("any" if end is None else end for end in (low, high))
        raise WrongInput(name, f"it is {value}, and {' to '.join(map(str, ends))} was compiled for")


def check_value(name: str, value: Any, compiled: bool | int | float | str | None) -> None:
    """Refuses a value other than the one that was traced."""
    if type(value) is not type(compiled) or value != compiled:
        raise WrongInput(name, f"it is {value!r}, and {compiled!r} was compiled for")


# --- kernels in C++ -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    run: Callable[..., int]
    written: frozenset[int]
    errors: tuple[tuple[str, str], ...]


class Native:
    """Launches kernels of a shared object. `bind` returns a kernel by its symbol; `digest` identifies the shared
    object.
    """

    def __init__(self, bind: Bind | None, digest: str) -> None:
        self.bind = bind
        self.digest = digest[:12]

    def __call__(self, graph: FxGraph) -> Launcher:
        kernels = {kernel.symbol: kernel for kernel in graph.kernels}
        return functools.partial(self.node, kernels)

    def node(
        self,
        kernels: Mapping[str, FxKernel],
        graph: fx.Graph,
        symbol: str,
        tensors: Sequence[fx.Node],
        numbers: Sequence[Any],
    ) -> fx.Node:
        about = kernels[symbol]
        process = _process()
        name = f"{symbol} {self.digest}"
        if name not in process.loaded:
            assert self.bind is not None, "a graph without kernels launches none"
            process.loaded[name] = _Kernel(self.bind(symbol), frozenset(about.written), about.errors)
        read = [tensor for number, tensor in enumerate(tensors) if number not in about.written]
        written = [tensors[number] for number in about.written]
        return graph.create_node("call_function", process.operator, (name, read, written, list(numbers)), name=symbol)


@dataclass(frozen=True, slots=True)
class _Process:
    """The loaded kernels of this process, by name, and the operator that launches one. It exists while its library
    does.
    """

    loaded: dict[str, _Kernel]
    operator: Callable[..., None]
    library: torch.library.Library


@functools.cache
def _process() -> _Process:
    """Made for the first graph."""
    loaded: dict[str, _Kernel] = {}

    def launch(
        kernel: str,
        read: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        places: str = "",
    ) -> None:
        found = loaded[kernel]
        sides = {False: iter(read), True: iter(written)}
        tensors = [next(sides[number in found.written]) for number in range(len(read) + len(written))]
        if status := found.run(*tensors, *numbers, threads().count()):
            fail(found.errors, status, places.split("\n"))

    def nothing(*args: Any, **named: Any) -> None:
        """Tensors without memory have nothing to write."""

    library = torch.library.Library("minductor", "FRAGMENT")
    library.define('launch(str kernel, Tensor[] read, Tensor(a!)[] written, Scalar[] numbers, str places="") -> ()')
    library.impl("launch", launch, "CompositeExplicitAutograd")
    library.impl("launch", nothing, "Meta")
    return _Process(loaded, torch.ops.minductor.launch.default, library)
