"""Turns an exported program into the one ATen graph that `capture` reads, and describes the arguments of a call.

Takes a torch.export.ExportedProgram. Gives an `Exported`: a graph that holds the program's parameters, buffers and
constants, and a `Leaf` for each argument. A buffer that the program changes is not held: it is an input behind the
user's, and the graph writes to it, as eager does. torch.export keeps composite operators, and returns the new value of
a changed buffer as a result; torch.compile does neither. So `read_program` decomposes the program once more.

Refuses (NotExportable)

- objects and effect tokens, which exist in this process only, and weights without memory,
- a write to memory on which two weights are different windows,
- a write to an input that has gaps in its memory, if the program makes windows on that memory by `as_strided`,
- in the context `refusing_eager`, whatever torch.compile would run in eager.

>>> import torch
>>> class Count(torch.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.register_buffer("calls", torch.zeros(()))
...     def forward(self, x):
...         self.calls.add_(1)
...         return x * self.calls
>>> found = read_program(torch.export.export(Count(), (torch.ones(3),)))
>>> [(leaf.name, leaf.input) for leaf in found.inputs], list(found.state)
([('x', 0)], ['calls'])
>>> [str(node.target) for node in found.gm.graph.nodes if node.op == "call_function"]
['aten.add.Tensor', 'aten.mul.Tensor', 'aten.copy_.default']
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind

from minductor.core.errors import NotExportable, UnsupportedInput
from minductor.frontend.exported.tied_weights import merge_tied_weights, weights_in_one_memory
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.frontend.torch_graph.shared_inputs import copy_has_same_windows, window_offsets

_GENERATED = re.compile(r"(buf|[finsu])\d+")  # names that generated code gives to buffers and numbers


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of a call's arguments: input number `input` of the graph, or the constant `value` if `input` is None.

    `is_changed`: the program writes to the tensor. `is_windowed`: the program calls `as_strided` on the tensor, so that
    a copy with other strides must not replace it. `begin`: the storage offset that the tensor must have, if such a call
    names an offset.
    """

    name: str
    input: int | None
    value: Any = None
    is_changed: bool = False
    is_windowed: bool = False
    begin: int | None = None


@dataclass(frozen=True, slots=True)
class Exported:
    """A program as one graph. `inputs` are the leaves of a call's arguments.

    `state` holds the buffers that the graph changes, by name; they are the graph's last inputs, in this order.
    `parameters` are the names of the call's arguments, the positional ones first. `in_spec` and `out_spec` are torch's
    trees of the arguments and the results.
    """

    gm: fx.GraphModule
    inputs: tuple[Leaf, ...]
    state: Mapping[str, torch.Tensor]
    parameters: tuple[str, ...]
    in_spec: Any
    out_spec: Any


def export_program(
    program: torch.export.ExportedProgram | Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> torch.export.ExportedProgram:
    """The function or module as torch.export exports it; an ExportedProgram is returned as it is."""
    if isinstance(program, torch.export.ExportedProgram):
        if dynamic_shapes is not None:
            why = "it has been exported already, with dynamic_shapes of its own"
            raise NotExportable("this program with other dynamic_shapes", why)
        return program
    module = program
    if not isinstance(module, torch.nn.Module):
        module = torch.nn.Module()
        module.forward = _function(program, len(args), kwargs or ())
    named = dict(kwargs or {})
    if len(named) > 1:  # torch.export takes the order of the call's keywords for that of the function's parameters
        order = [name for name in inspect.signature(module.forward).parameters if name in named]
        named = {name: named[name] for name in (*order, *named)}
    return torch.export.export(module, tuple(args), named, dynamic_shapes=dynamic_shapes)


def _function(program: Callable[..., Any], count: int, named: Iterable[str]) -> Callable[..., Any]:
    """A Python function that calls `program` with `count` positional arguments and those that are `named`.

    torch.export needs Python code and a signature, which operators lack.
    """
    if hasattr(program, "__code__"):
        return program

    def forward(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    made: Any = forward
    try:
        signature = inspect.signature(program)
    except ValueError:  # an operator in C++
        by_place = [inspect.Parameter(f"arg{n}", inspect.Parameter.POSITIONAL_ONLY) for n in range(count)]
        by_name = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in named]
        signature = inspect.Signature([*by_place, *by_name])
    made.__signature__ = signature
    return made


@contextmanager
def refusing_eager() -> Iterator[None]:
    """A context that raises NotExportable for a graph that torch.compile would run in eager."""
    try:
        yield
    except UnsupportedInput as reason:
        hint = "Keep that out of the program: torch.compile runs such a graph in eager."
        raise NotExportable("this program", reason.what, hint=hint) from reason


def read_program(
    program: torch.export.ExportedProgram, rewrite: Callable[[fx.GraphModule], object] | None = None
) -> Exported:
    """The program as one ATen graph, with its weights in it.

    Args:
        program: what torch.export gave; it stays as it is.
        rewrite: changes a copy of the program's graph before it is decomposed.
    """
    program = merge_tied_weights(program)
    if rewrite is not None:
        program = _rewritten(program, rewrite)
    try:
        program = program.run_decompositions(_decompositions())
    except AssertionError as error:
        if not (names := weights_in_one_memory(program)):
            raise
        why = "they are windows on one memory, which the program changes"
        hint = "Keep one of them, and take the other from it in `forward`."
        raise NotExportable(" and ".join(names), why, hint=hint) from error
    return _with_window_offsets(_Reader(program).read())


def _rewritten(
    program: torch.export.ExportedProgram, rewrite: Callable[[fx.GraphModule], object]
) -> torch.export.ExportedProgram:
    """The program with a changed copy of its graph."""
    graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in program.graph.nodes:
        new[node] = graph.node_copy(node, new.__getitem__)
    module = fx.GraphModule(program.graph_module, graph)
    rewrite(module)
    signature, results = program.graph_signature, module.graph.output_node().args[0]
    assert isinstance(results, Sequence)
    given = zip(signature.input_specs, graph.find_nodes(op="placeholder"), strict=True)
    inputs = [_renamed(spec, node) for spec, node in given]
    outputs = [_renamed(spec, value) for spec, value in zip(signature.output_specs, results, strict=True)]
    return torch.export.ExportedProgram(
        module,
        module.graph,
        ExportGraphSignature(inputs, outputs),
        program.state_dict,
        program.range_constraints,
        program.module_call_graph,
        program.example_inputs,
        program.constants,
        verifiers=program.verifiers,
    )


def _renamed(spec: Any, value: Any) -> Any:
    """The row of an argument or a result, with the name of its node now."""
    is_renamed = isinstance(value, fx.Node) and spec.arg.name != value.name
    return replace(spec, arg=replace(spec.arg, name=value.name)) if is_renamed else spec


def _with_window_offsets(found: Exported) -> Exported:
    """The program with `is_windowed` and `begin` set on the leaves on which it calls `as_strided`.

    Refuses a written input that AOTAutograd traced as a copy, if `as_strided` finds other elements on that copy.
    """
    inputs = found.gm.graph.find_nodes(op="placeholder")
    leaves: dict[int | None, Leaf] = {leaf.input: leaf for leaf in found.inputs if leaf.input is not None}
    for n, begin in window_offsets(found.gm, [node.meta.get("val") for node in inputs]).items():
        leaf = leaves.get(n)
        if (leaf is None or leaf.is_changed) and not copy_has_same_windows(inputs[n].meta["val"], begin):
            raise NotExportable(inputs[n].name, "it is written, and has other windows on its memory than its copy")
        if leaf is not None:
            leaves[n] = replace(leaf, is_windowed=True, begin=begin)
    return replace(found, inputs=tuple([leaves.get(leaf.input, leaf) for leaf in found.inputs]))


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """The formulas that AOTAutograd would apply: those of composite operators, and minductor's table."""
    formulas: Mapping[Any, Callable[..., Any]] = torch.export.default_decompositions()
    composite = {op: formula for op, formula in formulas.items() if _is_composite(op)}
    return {**composite, **decompositions()}


def _is_composite(op: Any) -> bool:
    key = "CompositeImplicitAutograd"
    return isinstance(op, torch._ops.OpOverload) and torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)


class _Reader:
    """Copies a program's graph into one that holds its weights."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self.graph = fx.Graph()
        self.held: dict[str, Any] = {}  # the graph's attributes: weights, and graphs of higher-order operators
        self.new: dict[fx.Node, fx.Node] = {}  # node of the program -> its copy
        self.leaves: list[Leaf] = []
        self.state: dict[str, torch.Tensor] = {}

    def read(self) -> Exported:
        *nodes, end = self.program.graph.nodes
        specs = self.program.graph_signature.input_specs
        inputs = list(zip((node for node in nodes if node.op == "placeholder"), specs, strict=True))
        results, changes = self._results(end)
        for node, spec in sorted(inputs, key=lambda pair: pair[1].kind is not InputKind.USER_INPUT):
            if spec.kind is InputKind.USER_INPUT:
                self._leaf(node, spec.arg, is_changed=node.name in changes)
            else:
                self._weight(node, spec, is_changed=spec.target in changes)
        for node in nodes:
            if node.op != "placeholder":
                self.new[node] = self.graph.node_copy(node, self.new.__getitem__)
            if node.op == "get_attr":
                self.held[node.target] = attrgetter(node.target)(self.program.graph_module)
        for node, spec in inputs:
            value = changes.get(node.name if spec.kind is InputKind.USER_INPUT else spec.target)
            if value is not None and value is not node:
                write = self.graph.call_function(torch.ops.aten.copy_.default, (self.new[node], self.new[value]))
                write.meta["val"] = node.meta["val"]
        self.graph.output(tuple(self.new[r] if isinstance(r, fx.Node) else r for r in results))
        spec = self.program.call_spec
        module = fx.GraphModule(self.held, self.graph)
        return Exported(
            module, tuple(self.leaves), self.state, _parameter_names(self.program), spec.in_spec, spec.out_spec
        )

    def _results(self, end: fx.Node) -> tuple[list[Any], dict[str | None, fx.Node]]:
        """The results of a call, and the new value of each input or buffer that the program changes, by its name."""
        results: list[Any] = []
        changes: dict[str | None, fx.Node] = {}
        values: Any = end.args[0]
        for spec, value in zip(self.program.graph_signature.output_specs, values, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                results.append(value)
            elif spec.kind.name.endswith("_MUTATION"):
                changes[spec.target] = value
            else:
                raise NotExportable("this program", f"it gives a {spec.kind.name.lower()}")
        return results, changes

    def _leaf(self, node: fx.Node, given: Any, *, is_changed: bool) -> None:
        if isinstance(given, ConstantArgument):
            self.leaves.append(Leaf(node.name, None, given.value))
            return
        self.leaves.append(Leaf(node.name, sum(leaf.input is not None for leaf in self.leaves), is_changed=is_changed))
        self.new[node] = self.graph.placeholder(f"{node.name}_" if _GENERATED.fullmatch(node.name) else node.name)
        self.new[node].meta.update(node.meta)

    def _weight(self, node: fx.Node, spec: Any, *, is_changed: bool) -> None:
        """Adds a weight of the program: an attribute of the graph, or an input if the program changes it."""
        program = self.program
        value: Any = program.state_dict.get(spec.target, program.constants.get(spec.target))
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor) or value.is_meta:
            kind = type(value).__name__
            raise NotExportable(f"{spec.target or node.name}", f"it is a {kind} without numbers of its own")
        value = value.detach().resolve_conj().resolve_neg()
        if is_changed:
            self.new[node] = self.graph.node_copy(node)
            self.state[spec.target] = value
            return
        self.held[node.name] = value
        self.new[node] = self.graph.get_attr(node.name)
        self.new[node].meta.update(node.meta)


def _parameter_names(program: torch.export.ExportedProgram) -> tuple[str, ...]:
    """The names of the arguments; `arg0`, `arg1`, ... for positional ones if the program does not name them."""
    spec: Any = program.call_spec.in_spec
    positional, by_name = spec.children()
    signature = program.module_call_graph[0].signature
    names = [] if signature is None else list(signature.forward_arg_names or ())
    if len(names) < positional.num_children:
        names = [f"arg{n}" for n in range(positional.num_children)]
    return (*names[: positional.num_children], *by_name.context)
