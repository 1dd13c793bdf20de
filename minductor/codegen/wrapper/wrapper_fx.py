"""The wrapper as a torch.fx graph: the lines of a plan as nodes.

Takes a Plan. Gives the JSON of an FxGraph (fx_graph.py), from which fx.py makes a GraphModule. Refuses `verify_memory`
(BadOptionValue).

A buffer is a node `torch.empty_strided`, a view is `torch.as_strided`, a call is the operator itself, and a number is a
chain of operators on placeholders and sizes. Frees need no node: the code that torch prints for a graph drops each
value after its last use. `cond` and `while_loop` stay torch's operators, with the sizes that their graphs need as
operands. Each variant of a kernel is a graph. There are no device scopes: a launch knows its device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from minductor.codegen.wrapper.wrapper_fx_numbers import Nodes
from minductor.codegen.wrapper.wrapper_nan_asserts import NanAsserts, Tested, stale
from minductor.core.errors import BadOptionValue
from minductor.core.expressions.expr import Expr
from minductor.ir.artefact.fx_graph import ASSERT, LAUNCH, NAN_CHECK, FxGraph, FxKernel, Result, Value, print_graph
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import Line, Plan
from minductor.ir.plan.storage_lives import tensor_names
from minductor.ir.program.nodes import Argument, Body, Input, Region, Token, View
from minductor.target import Env

CALL_NEAREST = "minductor.runtime.launch.by_size.call_nearest"
# torch's operators that graphs of FX know, and where the two graphs stand among their arguments
TWO_GRAPHS: Mapping[str, tuple[int, int]] = {"higher_order.cond": (1, 2), "higher_order.while_loop": (0, 1)}


def wrapper_fx(plan: Plan, env: Env) -> str:
    """The JSON of the torch.fx graph that runs a plan."""
    if env.options.verify_memory:
        raise BadOptionValue("verify_memory", env.options.verify_memory, "'' with a graph, whose memory torch frees")
    definitions = [line for line in plan.lines if isinstance(line, lines.KernelLine)]
    nan_asserts = NanAsserts(definitions) if env.options.nan_asserts else None
    graph = _Emitter(plan, {line.id: line for line in definitions}, nan_asserts).graph(Signature())
    kernels = tuple(FxKernel(line.symbol, line.written, line.errors) for line in definitions)
    return print_graph(replace(graph, kernels=kernels))


@dataclass(frozen=True, slots=True)
class Signature:
    """How a graph is called. Torch's operators pass tensors first, then the sizes of both graphs."""

    sizes: int = 0  # the number of its first inputs that a call passes last
    before: int = 0  # the number of sizes of the other graph, which this one ignores
    behind: int = 0
    is_value: bool = False  # whether it returns its only result as it is and not in a tuple


def signatures(plan: Plan) -> Mapping[str, Signature]:
    """The signatures of the graphs that torch's own operators call, by name. Python functions call the other graphs.

    Torch's operators take tensors and integers only, and do not allow results that share memory.
    """
    calls = [line for line in plan.lines if isinstance(line, lines.ExternLine)]
    uses = [arg.name for line in calls for arg in line.args if isinstance(arg, Region)]
    regions = {region.name: region for region in plan.regions}
    found: dict[str, Signature] = {}
    for line in calls:
        if line.op not in TWO_GRAPHS or line.kwargs:
            continue
        called = [arg for arg in line.args if isinstance(arg, Region)]
        operands = [item for arg in line.args if isinstance(arg, tuple) for item in arg]
        is_tested = line.op == "higher_order.while_loop"
        own = called[1:] if is_tested else called
        if (
            len(called) == 2
            and all(isinstance(item, Token | int | Expr) for item in operands)
            and all(_returns_new_memory(regions[region.name]) for region in own)
            and all(uses.count(region.name) == 1 for region in called)
        ):
            first, second = called
            counts = len(first.sizes), len(second.sizes)
            found[first.name] = Signature(counts[0], 0, counts[1], is_value=is_tested)
            found[second.name] = Signature(counts[1], counts[0], 0)
    return found


def _returns_new_memory(plan: Plan) -> bool:
    """Whether each tensor that a graph returns has memory that nothing else refers to."""
    storage_of = {name.name: storage for storage in plan.storages for name in storage.names}
    given = [name for line in plan.lines if isinstance(line, lines.ReturnLine) for name in tensor_names(line.values)]
    owned = {storage_of[name].name for name in given if name in storage_of and storage_of[name].owner == "own"}
    return len(owned) == len(given)


class _Emitter:
    """Makes the nodes of one plan, or of a region of that name. `definitions`: of kernels, by their ids."""

    def __init__(
        self, plan: Plan, definitions: Mapping[str, lines.KernelLine], nan_asserts: NanAsserts | None, region: str = ""
    ) -> None:
        self.plan = plan
        self.definitions = definitions
        self.nan_asserts = nan_asserts
        self.region = region
        written = {name: kernel.written for name, kernel in definitions.items()}
        self.stale = stale(plan.lines, written) if nan_asserts else frozenset[str]()
        self.nodes = Nodes()
        self.signatures = signatures(plan)
        self.layouts: dict[
            str, tuple[tuple[Expr, ...], tuple[Expr, ...]]
        ] = {}  # the sizes and strides of tensors for which they are known
        self.starts: set[Value] = set()  # tensors that begin where their storage does
        self.groups: list[FxGraph] = []  # the graphs of variants

    def graph(self, signature: Signature) -> FxGraph:
        """The graph, with the graphs inside it."""
        self.placeholders(signature)
        for region in self.plan.regions:
            self.attribute(region.name)
        graphs = tuple(
            _Emitter(region, self.definitions, self.nan_asserts, region.name).graph(
                self.signatures.get(region.name, Signature())
            )
            for region in self.plan.regions
        )
        for line in self.plan.lines:
            self.line(line, is_value=signature.is_value)
        return FxGraph(self.plan.name, tuple(self.nodes.made), (*graphs, *self.groups))

    def placeholders(self, signature: Signature) -> None:
        names = [given.name for given in self.plan.inputs]
        sizes = names[: signature.sizes]
        unused = [f"unused_{n}" for n in range(signature.before + signature.behind)]
        order = (*unused[: signature.before], *sizes, *unused[signature.before :])
        for name in (*names[signature.sizes :], *order):
            self.nodes.values[name] = self.nodes.add(name, "placeholder", name)

    def attribute(self, name: str) -> Value:
        """A node for a graph, a lifted tensor, or another object that is bound by its name."""
        if name not in self.nodes.values:
            self.nodes.values[name] = self.nodes.add(name, "get_attr", name)
        return self.nodes.values[name]

    def line(self, line: Line, *, is_value: bool = False) -> None:
        nodes = self.nodes
        match line:
            case lines.LaunchLine():
                self.launch(line)
            case lines.DispatchLine():
                self.dispatch(line)
            case lines.ExternLine():
                self.extern(line)
            case lines.AllocateLine():
                self.allocate(line)
            case lines.ReuseLine():
                self.reuse(line)
            case lines.ViewLine(name, of, _, size, stride, offset):
                nodes.values[name] = self.window(name, of, size, stride, offset)
            case lines.SymbolLine(symbol, source):
                nodes.values[symbol.name] = self.source(symbol.name, source)
            case lines.LayoutLine(name, size, stride):
                given = (self.tensor(name), nodes.numbers(size), None if stride is None else nodes.numbers(stride))
                nodes.values[name] = nodes.add(name, "call_function", "minductor.runtime.launch.launch.laid_out", given)
                if stride is not None:
                    self.layouts[name] = (size, stride)
            case lines.AssertLine(condition, message, node):
                holds = nodes.scalar(condition) if isinstance(condition, Body) else nodes.relation(condition)
                given = (holds, message)
                nodes.add("require", "call_function", ASSERT, given, checked=(node,))
            case lines.ReturnLine(values):
                found = tuple([self.argument(value) for value in values])
                nodes.add("output", "output", "output", found if is_value else (found,))
            case lines.ConstantLine() | lines.KernelLine() | lines.FreeLine() | lines.PartitionLine():
                pass
            case lines.DeviceScopeLine() | lines.ScopeEndLine():
                pass
            case _:
                assert_never(line)

    # --- lines

    def launch(self, line: lines.LaunchLine) -> None:
        symbol = self.definitions[line.kernel].symbol
        given = (symbol, tuple([self.tensor(name) for name in line.tensors]), self.nodes.numbers(line.sizes))
        tested = self.nan_asserts and self.nan_asserts.tested(line, self.region)
        watch = (self.watch(tested),) if tested else ()
        self.nodes.add(symbol, "call_function", LAUNCH, given, line=line, checked=line.checked)
        if tested:
            self.nodes.add("check", "call_function", NAN_CHECK, watch, checked=tested.nodes)

    def watch(self, tested: Tested) -> Result:
        """The node before a launch that is tested for NaN and infinity."""
        written, read = (tuple([self.tensor(name) for name in names]) for names in (tested.written, tested.read))
        numbers = [self.nodes.number(n) if isinstance(n, Expr) else n for n in tested.numbers]
        given = (tested.kernel, tested.written, written, (*read, *numbers))
        return self.nodes.add("watch", "call_function", "minductor.runtime.launch.nan_asserts.watch", given)

    def zero(self, name: str) -> None:
        """Fills a storage with zeros whose old contents could look like results."""
        if name in self.stale:
            self.nodes.add("zero", "call_function", "torch.ops.aten.zero_.default", (self.tensor(name),))

    def dispatch(self, line: lines.DispatchLine) -> None:
        """A call that runs one graph of several, by sizes. A choice that is measured was made before."""
        rule = line.choice.by_size
        if rule is None:
            for inner in lines.selected(line, line.choice.default):
                self.line(inner)
            return
        graphs = {option: self.group(line, str(option)) for option in line.choice.options}
        nodes = self.nodes
        given = (
            tuple([graphs[option] for _, option in rule.points]),
            tuple([point for point, _ in rule.points]),
            tuple([nodes.values[name] for name in rule.symbols]),
            (*[self.tensor(name) for name in line.tensors], *nodes.numbers(line.sizes)),
        )
        nodes.add(f"dispatch_{line.handle}", "call_function", CALL_NEAREST, given)

    def group(self, line: lines.DispatchLine, option: str) -> Value:
        """The graph of a variant of a dispatch; its inputs are the tensors and sizes of the dispatch."""
        name = f"{self.definitions[line.own.kernel].symbol}_{line.handle}_{option}"
        inputs = (*map(Input, line.tensors), *(Input(size.name, size) for size in line.sizes))
        plan = Plan(name, inputs, (*lines.selected(line, option), lines.ReturnLine(())), ())
        made = _Emitter(plan, self.definitions, self.nan_asserts, self.region)
        made.layouts = dict(self.layouts)
        self.groups.append(made.graph(Signature()))
        return self.attribute(name)

    def allocate(self, line: lines.AllocateLine) -> None:
        layout = (self.nodes.numbers(line.size), self.nodes.numbers(line.stride))
        kind = (("dtype", line.dtype), ("device", Token("device", line.device)))
        made = self.nodes.add(line.name, "call_function", "torch.empty_strided", layout, kind)
        self.nodes.values[line.name] = made
        self.layouts[line.name] = (line.size, line.stride)
        self.starts.add(made)
        self.zero(line.name)

    def reuse(self, line: lines.ReuseLine) -> None:
        old = self.tensor(line.old)
        if self.layouts.get(line.old) != (line.size, line.stride):
            layout = (self.nodes.numbers(line.size), self.nodes.numbers(line.stride))
            made = self.nodes.add(line.name, "call_function", "torch.as_strided", (old, *layout))
            if old in self.starts:
                self.starts.add(made)
            old = made
        self.nodes.values[line.name] = old
        self.layouts[line.name] = (line.size, line.stride)
        self.zero(line.name)

    def window(self, name: str, of: str, size: Iterable[Expr], stride: Iterable[Expr], offset: Expr) -> Result:
        """The node of a view. `offset` counts from the start of `of`, in torch.as_strided from that of the storage."""
        tensor, start = self.tensor(of), self.nodes.number(offset)
        given = (tensor, self.nodes.numbers(size), self.nodes.numbers(stride))
        if start != 0 and tensor not in self.starts:
            own = self.nodes.compute("torch.ops.aten.sym_storage_offset.default", tensor)
            start = self.nodes.compute("operator.add", own, start)
        rest = () if start == 0 else (start,)
        return self.nodes.add(name, "call_function", "torch.as_strided", (*given, *rest))

    def unpack(self, names: Sequence[str | None], of: Value) -> None:
        for number, name in enumerate(names):
            if name is not None:
                item = self.nodes.add(name, "call_function", "operator.getitem", (of, number))
                self.nodes.values[name] = item

    def source(self, name: str, source: str | lines.SizeOf | Body) -> Value:
        match source:
            case lines.SizeOf(tensor, dim, scale, shift):
                return self.nodes.size(name, self.tensor(tensor), dim, scale, shift)
            case str():
                return self.nodes.values[source]
            case Body():
                return self.nodes.scalar(source)

    # --- calls

    def extern(self, line: lines.ExternLine) -> None:
        args, kwargs = self.given(line)
        names = [name for name in line.results if name is not None]
        is_row = len(line.results) > 1 or line.op.startswith("aten._foreach_")
        is_checked = bool(line.dtypes) and not self.is_left_to_torch(line)
        is_named = len(names) == 1 and not (line.is_out or is_row or line.dtypes)
        word = names[0] if is_named else line.op.split(".")[1].strip("_")
        made = self.nodes.add(word, "call_function", self.called(line), args, kwargs, line)
        if is_checked:
            made = self.checked(line, made, args, kwargs)
        if is_named:
            self.nodes.values[names[0]] = made
        elif not line.is_out:
            self.unpack(line.results, made)

    def is_left_to_torch(self, line: lines.ExternLine) -> bool:
        """Whether torch's operator makes a call of graphs."""
        return any(isinstance(arg, Region) and arg.name in self.signatures for arg in line.args)

    def called(self, line: lines.ExternLine) -> str:
        """The function: torch's operator, or our function for an operator that takes graphs."""
        if self.is_left_to_torch(line) or not any(isinstance(arg, Region) for arg in line.args):
            return f"torch.ops.{line.op}"
        return f"minductor.runtime.launch.control_flow.{line.op.removeprefix('higher_order.')}"

    def given(self, line: lines.ExternLine) -> tuple[tuple[Value, ...], tuple[tuple[str, Value], ...]]:
        """The arguments. Torch's operators also get the sizes of both graphs, after the tensors."""
        args = [self.argument(arg) for arg in line.args]
        if self.is_left_to_torch(line):
            sizes = [size for arg in line.args if isinstance(arg, Region) for size in self.nodes.numbers(arg.sizes)]
            last = args.pop()
            args.append((*last, *sizes) if isinstance(last, tuple) else last)
        kwargs = [(name, self.argument(value)) for name, value in line.kwargs]
        into = [("out", self.tensor(name)) for name in line.results if name is not None and line.is_out]
        return tuple(args), (*kwargs, *into)

    def checked(
        self, line: lines.ExternLine, made: Value, args: tuple[Value, ...], kwargs: tuple[tuple[str, Value], ...]
    ) -> Result:
        """The results of a custom or higher-order operator, after a check at run time that they are new tensors."""
        given = (*args, *(value for _, value in kwargs))
        if line.op.startswith("higher_order."):
            about: tuple[Value, ...] = (made, len(line.dtypes), given)
            return self.nodes.add("own", "call_function", "minductor.runtime.launch.result_checks.separated", about)
        about = (line.op, made, line.dtypes, given)
        return self.nodes.add("vetted", "call_function", "minductor.runtime.launch.result_checks.checked", about)

    # --- values

    def tensor(self, name: str) -> Value:
        return self.nodes.values[name] if name in self.nodes.values else self.attribute(name)

    def argument(self, value: Argument) -> Value:
        match value:
            case Token("tensor" | "external", name):
                return self.tensor(name)
            case Region(name, sizes):
                region = self.nodes.values[name]
                if not sizes or name in self.signatures:
                    return region
                return self.nodes.compute("functools.partial", region, *self.nodes.numbers(sizes))
            case Expr():
                return self.nodes.number(value)
            case tuple():
                return tuple([self.argument(item) for item in value])
            case View():
                raise ValueError(f"memory left a view in the plan: {value}")
            case _:
                return value
