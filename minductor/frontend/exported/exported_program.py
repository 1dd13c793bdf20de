"""An exported program as the one ATen graph that `capture` reads, and what stands around that graph.

Takes a torch.export.ExportedProgram. Gives a graph that holds its parameters, buffers and constants itself, takes what
it changes as inputs behind the user's, and writes into these itself, as eager does; and which leaf of the call is what.
Refuses objects and tokens of effects, which exist in this process only, weights without memory, a change of memory on
which two weights are different windows, and one of memory with gaps on which the program makes windows; `without_eager`
also what a compile would leave to eager (NotExportable).

Export keeps composite operators whole and gives the new value of what changes as a result; compile does neither. So
the program is decomposed once more, by the operators' own formulas and ours.

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
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from minductor.core.errors import NotExportable, UnsupportedInput
from minductor.frontend.exported.tied_weights import merge_tied_weights, weights_in_one_memory
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.frontend.torch_graph.shared_inputs import copy_has_same_windows, window_offsets

_GENERATED = re.compile(r"(buf|[finsu])\d+")  # names of buffers and numbers, which an argument's would be taken for


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of a call's arguments: an input of the graph, by its number, or else a value that was traced in.

    `is_windowed`: the program makes windows on memory, which a copy of another layout does not have. `begin`: where the
    tensor begins in its memory, if they count places from the start of that.
    """

    name: str
    input: int | None
    value: Any = None
    is_changed: bool = False
    is_windowed: bool = False
    begin: int | None = None


@dataclass(frozen=True, slots=True)
class Exported:
    """The graph; the leaves of its calls; the tensors that it changes and are not of the call, by name, in order.

    `parameters` are the names of the call's arguments, those without a keyword first; the specs are torch's trees.
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
    """The function or module, exported by torch; a program that has been exported is given back."""
    if isinstance(program, torch.export.ExportedProgram):
        if dynamic_shapes is not None:
            why = "it has been exported already, and the dynamic_shapes of that are in it"
            raise NotExportable("this program with other dynamic_shapes", why)
        return program
    module = program
    if not isinstance(module, torch.nn.Module):
        module = torch.nn.Module()
        module.forward = _function(program, len(args), kwargs or ())
    named = dict(kwargs or {})
    if len(named) > 1:  # torch takes the order of the call for that of the function
        order = [name for name in inspect.signature(module.forward).parameters if name in named]
        named = {name: named[name] for name in (*order, *named)}
    return torch.export.export(module, tuple(args), named, dynamic_shapes=dynamic_shapes)


def _function(program: Callable[..., Any], given: int, named: Iterable[str]) -> Callable[..., Any]:
    """A Python function that calls `program`: torch.export needs code and a signature, which operators lack."""
    if hasattr(program, "__code__"):
        return program

    def forward(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    made: Any = forward
    try:
        signature = inspect.signature(program)
    except ValueError:  # an operator in C++
        by_place = [inspect.Parameter(f"arg{n}", inspect.Parameter.POSITIONAL_ONLY) for n in range(given)]
        by_name = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in named]
        signature = inspect.Signature([*by_place, *by_name])
    made.__signature__ = signature
    return made


@contextmanager
def refusing_eager() -> Iterator[None]:
    """A context in which a graph that minductor does not take is NotExportable: an exported program has no eager."""
    try:
        yield
    except UnsupportedInput as reason:
        hint = "Keep that out of the program: torch.compile runs such a graph in eager."
        raise NotExportable("this program", reason.what, hint=hint) from reason


def read_program(program: torch.export.ExportedProgram) -> Exported:
    """The graph of a program, with its weights in it."""
    program = merge_tied_weights(program)
    try:
        program = program.run_decompositions(_decompositions())
    except AssertionError as error:
        if not (names := weights_in_one_memory(program)):
            raise
        why = "they are windows on one memory, which the program changes"
        hint = "Keep one of them, and take the other from it in `forward`."
        raise NotExportable(" and ".join(names), why, hint=hint) from error
    return _with_window_offsets(_Reader(program).read())


def _with_window_offsets(found: Exported) -> Exported:
    """The program with the checks that `as_strided` needs noted at its leaves; refuses inputs whose copy differs."""
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
    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self.graph = fx.Graph()
        self.held: dict[str, Any] = {}  # what the graph reads by name: weights, graphs of higher-order operators
        self.new: dict[fx.Node, fx.Node] = {}
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
        """What the call gives, and the new value of each input or buffer that it changes, by name."""
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
        """A tensor of the program's: held by the graph, or one more input if it changes."""
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
    """The names of the arguments; those that have none are numbered."""
    spec: Any = program.call_spec.in_spec
    positional, by_name = spec.children()
    signature = program.module_call_graph[0].signature
    names = [] if signature is None else list(signature.forward_arg_names or ())
    if len(names) < positional.num_children:
        names = [f"arg{n}" for n in range(positional.num_children)]
    return (*names[: positional.num_children], *by_name.context)
