"""Turns a program into a Plan: the lines of one call, with an allocation and a free for every storage.

Takes an ordered Program. Gives a Plan with lines in the order of the nodes (allocate, reuse, view, launch, extern,
free, return), the definitions of its kernels, and the life of each storage. Refuses nothing.

`reuse.py` decides which storages are shared and when they are freed. Inputs belong to the caller, except donated ones,
which the call drops after their last use. Equal kernels share one definition, whatever the names of their buffers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import gcd

from minductor.analysis.capturable_nodes import partitions
from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Symbol, integer
from minductor.core.names import kernel_name, unique_name
from minductor.ir.artefact.launch_metadata import MULTIPLE
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import Line, Plan
from minductor.ir.plan.storage import is_foreign, storage_bytes
from minductor.ir.plan.storage_lives import storage_lives, used_tensors
from minductor.ir.program import nodes as ir
from minductor.ir.program.signature import (
    Signature,
    canonical,
    digest,
    error_nodes,
    nonfinite_constants,
    rename_storages,
    signature,
)
from minductor.ir.program.size_sources import size_source, size_sources
from minductor.ir.program.variants import base_option, variant_choice, without_variants
from minductor.options import Options
from minductor.passes.memory.reuse import Sharing, is_allocated_by_plan, reuse
from minductor.passes.memory.scope_lines import scope_lines
from minductor.target import Env


def memory(program: ir.Program, env: Env) -> Plan:
    """The plan of one call of the program, with its kernels, partitions and storages."""
    planner = _Planner(program, env.options)
    parts = partitions(program, env)
    plan = replace(_planned(planner, scope_lines(parts)), partitions=parts)
    definitions = planner.definitions()
    whole = (*definitions, *plan.lines)
    return replace(
        plan,
        lines=whole,
        kernels=tuple(planner.kernels.items()),
        storages=storage_lives(whole, plan.inputs, planner.bytes()),
    )


def _planned(planner: _Planner, before: Mapping[int, tuple[Line, ...]]) -> Plan:
    """The plan of a program, without definitions, and of its regions. All share the kernels of the outermost program.

    `before`: by the number of a node, lines that stand before it.
    """
    program = planner.program
    for number, node in enumerate(program.nodes):
        planner.body += before.get(number, ())
        planner.node(number, node)
    planner.body += before.get(len(program.nodes), ())
    planner.finish()
    regions: list[Plan] = []
    for region in program.regions:
        inner = _Planner(region, planner.options, planner.kernels, planner.defined, planner.numbers)
        inner.region = region.name
        inner.check_input_layouts()
        plan = _planned(inner, {})
        constants = [b.name for b in region.buffers if b.kind == "constant"]
        regions.append(replace(plan, storages=storage_lives(plan.lines, plan.inputs, inner.bytes(), constants)))
    return Plan(program.name, program.inputs, tuple(planner.body), (), program.guards, tuple(regions))


@dataclass(slots=True)
class _Definition:
    """A kernel that several launches may share. `ops` are the operators of the first launch, which name the kernel."""

    id: str
    digest: str
    ops: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    origins: list[ir.Origin]


@dataclass(slots=True)
class _Planner:
    """Writes the lines of one program, node by node. Each region has a planner of its own.

    `defined`: by canonical text, the kernels of the outermost program and its regions. `numbers`: counts their
    launches and calls. `traced`: the storages that must have the strides that were traced.
    """

    program: ir.Program
    options: Options
    kernels: dict[str, ir.Kernel] = field(default_factory=dict[str, ir.Kernel])
    defined: dict[str, _Definition] = field(default_factory=dict[str, _Definition])
    numbers: count[int] = field(default_factory=lambda: count(1))  # for the outermost program and its regions
    region: str = ""  # the region's name; the outermost program has none
    buffers: dict[str, ir.Buffer] = field(init=False)
    sharing: Sharing = field(init=False)
    returned: set[str] = field(init=False)
    traced: set[str] = field(init=False)
    body: list[Line] = field(default_factory=list[Line])
    view_count: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self.buffers = self.program.buffer_table()
        self.sharing = reuse(self.program, self.options)
        self.returned = {view.ref.storage for view in ir.views_of(self.program.outputs)}
        self.traced = {
            *read_by_layout(self.program),
            *self.sharing.taken_over.values(),
            *self.sharing.in_place.values(),
        }
        self._define_symbols()
        self._free(self.sharing.freed_after.get(-1, ()))

    def bytes(self) -> Mapping[str, Expr]:
        """The bytes of each storage, by the name of its buffer."""
        return {buffer.name: storage_bytes(buffer) for buffer in self.buffers.values()}

    def _define_symbols(self) -> None:
        """Defines each size symbol, from a parameter that is this number, else from a size of a tensor parameter."""
        given: dict[Symbol, lines.SymbolLine] = {}
        for parameter in self.program.inputs:
            if isinstance(parameter.symbol, Symbol) and parameter.symbol not in given:
                given[parameter.symbol] = lines.SymbolLine(parameter.symbol, parameter.name)
        tensors = [given.name for given in self.program.inputs if given.symbol is None]
        for symbol, where in size_sources((name, self.buffers[name].size) for name in tensors).items():
            given.setdefault(symbol, lines.SymbolLine(symbol, lines.SizeOf(*where)))
        self.body.extend(line for line in given.values() if line.source != line.symbol.name)

    def check_input_layouts(self) -> None:
        """Checks the layouts of a region's tensors, which its caller chooses: rows of a tensor, earlier results."""
        for given in self.program.inputs:
            if given.symbol is None and given.name in self.sharing.last_use:
                buffer = self.buffers[given.name]
                self.body.append(lines.LayoutLine(given.name, buffer.size, buffer.stride))

    # --- nodes

    def node(self, number: int, node: ir.Node) -> None:
        """Adds the lines of a node, and frees the storages that die with it."""
        match node:
            case ir.Kernel():
                self._launch(number, node)
            case ir.Extern():
                self._extern(number, node)
            case ir.SymbolDef(symbol, body, _):
                self.body.append(lines.SymbolLine(symbol, body))
            case ir.Require(body, message, origins):
                self.body.append(lines.AssertLine(body, message, self._qualified(origins[0].node if origins else "")))
        self._free(self.sharing.freed_after.get(number, ()))

    def _dispatch(self, number: int, kernel: ir.Kernel) -> None:
        """One line for all variants of a kernel. Its results are allocated for all of them."""
        in_place = self._results(number)
        choice, own = variant_choice(kernel), without_variants(kernel)
        nodes = {variant.name: variant.nodes for variant in kernel.variants}
        nodes[base_option(kernel)] = (own,)
        scratch = {buffer.name: buffer for variant in kernel.variants for buffer in variant.buffers}
        self.buffers |= scratch
        if in_place:  # every variant is one kernel then
            nodes = {
                name: tuple(map(partial(_written_in_place, taken=in_place), group)) for name, group in nodes.items()
            }
        groups = tuple(self._group(number, nodes[str(option)], scratch) for option in choice.options)
        (launch,) = groups[choice.options.index(base_option(kernel))]
        assert isinstance(launch, lines.LaunchLine)
        used = [name for group in groups for line in group for name in used_tensors(line)]
        # other names are views of these
        tensors = tuple(dict.fromkeys(name for name in used if name in self.buffers and name not in scratch))
        changed = {name for option in nodes.values() for name in ir.overwritten(option)} & {*launch.tensors}
        sizes = sorted({s for s in ir.symbols_in(groups) if s.kind in ir.CALL_SYMBOL_KINDS}, key=lambda s: s.name)
        given = (tensors, tuple(sizes), tuple(name for name in tensors if name in changed))
        identity = digest(f"{choice}\n{_alike(groups, tensors, self.kernel_digests())}")
        self.body.append(
            lines.DispatchLine(choice, groups, *given, launch, identity, kernel.origins, next(self.numbers))
        )
        for name, old in in_place.items():
            self._reuse(name, old)

    def kernel_digests(self) -> Mapping[str, str]:
        """The digest of each kernel's text, by the kernel's id."""
        return {definition.id: definition.digest for definition in self.defined.values()}

    def _group(self, number: int, nodes: Sequence[ir.Node], scratch: Collection[str]) -> tuple[lines.GroupLine, ...]:
        """The lines of one variant, which allocates the buffers of its own where they are first written."""
        outer, self.body = self.body, []
        touched = [{ref.storage for ref in (*ir.reads(node), *ir.writes(node))} for node in nodes]
        live: list[str] = []
        for place, node in enumerate(nodes):
            for name in sorted(touched[place] & {*scratch} - {*live}):
                self._allocate(name)
                live.append(name)
            if isinstance(node, ir.Kernel):
                self._launch_kernel(node)
            elif isinstance(node, ir.Extern):
                self._extern(number, node, is_made=True)
            later = set[str]().union(*touched[place + 1 :])
            self._free(name for name in live if name in touched[place] and name not in later)
        group, self.body = self.body, outer
        kinds = (lines.AllocateLine, lines.LaunchLine, lines.ExternLine, lines.ViewLine, lines.FreeLine)
        return tuple(line for line in group if isinstance(line, kinds))

    def _results(self, number: int) -> dict[str, str]:
        """Allocates what a kernel makes. Gives the operands over which it writes, by the name of the result."""
        made = self.sharing.created.get(number, ())
        in_place = {name: old for name in made if (old := self.sharing.in_place.get(name)) is not None}
        for name in made:
            if name not in in_place:
                self._allocate(name)
        return in_place

    def _launch(self, number: int, kernel: ir.Kernel) -> None:
        """Adds the lines of a kernel: allocations, the launch, and the transfers of storages written in place."""
        if kernel.variants:
            self._dispatch(number, kernel)
            return
        in_place = self._results(number)
        self._launch_kernel(_written_in_place(kernel, in_place))
        for name, old in in_place.items():
            self._reuse(name, old)

    def _launch_kernel(self, kernel: ir.Kernel) -> None:
        """Adds the line that launches a kernel, and defines the kernel if it is new."""
        needs = signature(kernel)
        definition = self._definition(kernel, needs)
        device = next((self.buffers[name].device for name in needs.storages), "cpu")
        given = (definition.id, needs.storages, needs.sizes, kernel.origins)
        checked = tuple(map(self._qualified, error_nodes(kernel)))
        self.body.append(lines.LaunchLine(*given, next(self.numbers), device, checked))

    def _qualified(self, node: str) -> str:
        """An ATen node's name with its region's name before it, since nodes of two graphs may have equal names."""
        return f"{self.region}.{node}" if node and self.region else node

    def _definition(self, kernel: ir.Kernel, needs: Signature) -> _Definition:
        """The definition of a kernel, shared by all kernels with the same canonical text."""
        seen = {name: ir.as_real(self.buffers[name]) for name in needs.storages}
        bare, text = canonical(kernel, needs.storages, seen)
        found = self.defined.get(text)
        if found is None:
            parameters = tuple((f"p{n}", seen[name].dtype.name) for n, name in enumerate(needs.storages))
            ops = tuple(_operator_label(o.op) for o in kernel.origins)
            found = self.defined[text] = _Definition(f"k{len(self.defined)}", digest(text), ops, parameters, [])
            self.kernels[found.id] = bare
        found.origins.extend(kernel.origins)
        return found

    def _extern(self, number: int, node: ir.Extern, *, is_made: bool = False) -> None:
        """Adds the lines of a call: storages for its results, views for its arguments, the call, checks after it."""
        views: list[str] = []
        args = tuple(self._argument(a, views) for a in node.args)
        kwargs = tuple((name, self._argument(value, views)) for name, value in node.kwargs)
        results: list[str | None] = []
        made = self.sharing.created.get(number, ())
        if is_allocated_by_plan(node) and not is_made:
            for name in made:
                self._allocate(name)
        for result in node.results:
            match result:
                case ir.View() if node.form == "out":
                    results.append(self._tensor_name(result, views))
                case ir.View(ref=ref) if ref.storage in made and ref.storage not in results:
                    results.append(ref.storage)
                case Symbol():
                    results.append(result.name)
                case ir.View() | None:
                    results.append(None)
        is_out = node.form == "out"
        dtypes = tuple(map(_dtype, node.results)) if is_foreign(node.op) and node.form == "return" else ()
        handle = next(self.numbers)
        call = lines.ExternLine(node.op, args, kwargs, tuple(results), is_out, node.origins, handle, dtypes)
        self.body.append(replace(call, device=self._device_of(node)))
        self._free(views)
        if node.form == "return" and node.op != "aten.empty_strided.default":
            self._after_call(number, node)

    def _device_of(self, node: ir.Extern) -> str:
        """The device of all tensors of a call, or ""."""
        named = {ref.storage for ref in (*ir.reads(node), *ir.writes(node))}
        devices = {self.buffers[name].device for name in named if name in self.buffers}
        return devices.pop() if len(devices) == 1 else ""

    def _after_call(self, number: int, node: ir.Extern) -> None:
        """The lines after an extern: they define sizes by its results, and check or change the layouts of these.

        Some meta functions trace other strides than the operator returns. A result that kernels or views read, by the
        traced strides, gets these strides. A result that only the user and other operators see keeps its own.
        """
        for symbol in ir.defined_symbols(node):
            if (place := size_source(node, symbol)) is not None:
                result, dim, scale, shift = place
                view = node.results[result]
                assert isinstance(view, ir.View)
                self.body.append(lines.SymbolLine(symbol, lines.SizeOf(view.ref.storage, dim, scale, shift)))
        for result in node.results:
            if not isinstance(result, ir.View):
                continue
            name = result.ref.storage
            if name in self.traced or name in self.returned or self.sharing.last_use[name] > number:
                self.body.append(lines.LayoutLine(name, result.size, result.stride if name in self.traced else None))

    def _argument(self, value: ir.Argument, views: list[str]) -> ir.Argument:
        """An argument of a call as the plan names it."""
        match value:
            case ir.View():
                return ir.Token("tensor", self._tensor_name(value, views))
            case tuple():
                return tuple(self._argument(item, views) for item in value)
            case _:
                return value

    def _tensor_name(self, view: ir.View, views: list[str]) -> str:
        """The name of a tensor with this layout: the buffer itself, or a new view, which is added to `views`."""
        if is_whole(view, self.buffers):
            return view.ref.storage
        made = self._view(view)
        views.append(made)
        return made

    def _view(self, view: ir.View) -> str:
        """Adds a line that makes a view; gives its name."""
        name = view.ref.storage
        self.view_count[name] += 1
        made = f"{name}_view{self.view_count[name]}"
        self.body.append(lines.ViewLine(made, name, view.dtype, view.size, view.stride, view.offset))
        return made

    def finish(self) -> None:
        """Adds the return line. Outputs that eager returns as separate objects get views of their own."""
        group_of = {number: group for group in self.program.distinct_outputs for number in group}
        made: dict[tuple[ir.View, tuple[int, ...]], str] = {}
        values: list[ir.Argument] = []
        for number, value in enumerate(self.program.outputs):
            if not isinstance(value, ir.View):
                values.append(self._argument(value, []))
                continue
            group = group_of.get(number, ())
            if (value, group) not in made:
                made[value, group] = self._view(value) if group else self._tensor_name(value, [])
            values.append(ir.Token("tensor", made[value, group]))
        self.body.append(lines.ReturnLine(tuple(values)))

    # --- storages

    def _allocate(self, name: str) -> None:
        """Adds the line that gives a buffer its storage: a new one, or that of a dead buffer."""
        if (old := self.sharing.taken_over.get(name)) is not None:
            self._reuse(name, old)
            return
        buffer = self.buffers[name]
        self.body.append(lines.AllocateLine(name, buffer.dtype, buffer.size, buffer.stride, buffer.device))

    def _reuse(self, name: str, old: str) -> None:
        """Adds the line that gives the storage of `old` to the buffer `name`."""
        buffer = self.buffers[name]
        self.body.append(lines.ReuseLine(name, old, buffer.dtype, buffer.size, buffer.stride))

    def _free(self, names: Iterable[str]) -> None:
        """Adds the line that frees storages, if there are any."""
        gone = tuple(names)
        if gone:
            self.body.append(lines.FreeLine(gone))

    # --- result

    def definitions(self) -> tuple[Line, ...]:
        """The lines that define the constants and the kernels of the program and its regions."""
        programs = list(_with_regions(self.program))
        constants = [b.name for program in programs for b in program.buffers if b.kind == "constant"]
        defs: list[Line] = [lines.ConstantLine(name, number) for number, name in enumerate(constants)]
        # a kernel must not have the name of a tensor, such as the saved tensor `add_8`
        taken = {b.name for program in programs for b in program.buffers}
        taken.update(given.name for program in programs for given in program.inputs)
        taken.update(program.name for program in programs)
        hints = dict(self.program.hints)
        for number, found in enumerate(self.defined.values()):
            name = unique_name(kernel_name(found.ops, number), taken)
            kernel = self.kernels[found.id]
            needs = signature(kernel)
            takes = lines.KernelLine(found.id, name, found.parameters, found.digest, tuple(found.origins))
            kinds = tuple(size.kind for size in needs.sizes)
            takes = replace(takes, numbers=kinds, errors=needs.errors, nonfinite=nonfinite_constants(kernel))
            takes = replace(takes, factors=tuple(gcd(hints.get(size, 1), MULTIPLE) for size in needs.sizes))
            written, overwritten = needs.places(needs.written), needs.places(needs.overwritten)
            defs.append(replace(takes, written=written, overwritten=overwritten))
        return tuple(defs)


def read_by_layout(program: ir.Program) -> Iterator[str]:
    """The storages that a kernel, a view or the caller reads by the strides that were traced."""
    buffers = program.buffer_table()
    objects = {number for group in program.distinct_outputs for number in group}
    for node in program.nodes:
        if isinstance(node, ir.Kernel):
            yield from (ref.storage for ref in ir.reads(node))
        elif isinstance(node, ir.Extern):
            given = ir.views_of((node.args, tuple(value for _, value in node.kwargs)))
            yield from (view.ref.storage for view in given if not is_whole(view, buffers))
    for number, value in enumerate(program.outputs):
        for view in ir.views_of(value):
            if number in objects or number in program.fixed_stride_outputs or not is_whole(view, buffers):
                yield view.ref.storage


def is_whole(view: ir.View, buffers: Mapping[str, ir.Buffer]) -> bool:
    """Whether a view is its whole buffer, with the layout that the buffer is declared with."""
    buffer = buffers[view.ref.storage]
    layout = (view.dtype, view.size, view.stride, view.offset)
    return layout == (buffer.dtype, buffer.size, buffer.stride, integer(0))


def _operator_label(op: str) -> str:
    """The short name of an operator: layer_norm for "aten.native_layer_norm.default"."""
    return op.split(".")[1].strip("_").removeprefix("native_") if op.count(".") > 1 else op


def _with_regions(program: ir.Program) -> Iterator[ir.Program]:
    """The program, and all regions in it."""
    yield program
    for region in program.regions:
        yield from _with_regions(region)


def _dtype(result: ir.View | Symbol | None) -> DType | None:
    return result.dtype if isinstance(result, ir.View) else None


def _written_in_place(kernel: ir.Node, taken: Mapping[str, str]) -> ir.Kernel:
    """The kernel with each result that is a key of `taken` written over the operand there."""
    assert isinstance(kernel, ir.Kernel)
    return rename_storages(kernel, _in_place_refs(kernel, taken)) if taken else kernel


def _alike(groups: Sequence[Sequence[Line]], tensors: Sequence[str], digests: Mapping[str, str]) -> str:
    """The text of groups of lines, with numbers for tensors: equal for groups that do the same to other tensors."""
    texts: list[str] = []
    names = {**digests, **{name: f"t{place}" for place, name in enumerate(tensors)}}
    for line in (line for group in groups for line in group):
        if isinstance(line, lines.AllocateLine | lines.ViewLine):
            names.setdefault(line.name, f"own{len(names)}")
        is_call = isinstance(line, lines.LaunchLine | lines.ExternLine)
        texts.append(str(replace(line, handle=0, origins=()) if is_call else line))
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), "\n".join(texts))


def _in_place_refs(kernel: ir.Kernel, taken: Mapping[str, str]) -> dict[ir.Ref, ir.Ref]:
    """For each version that is written in place (new -> old storage) the version of the old storage that it becomes."""
    newest: dict[str, int] = {}
    for ref in ir.reads(kernel):
        newest[ref.storage] = max(newest.get(ref.storage, 0), ref.version)
    return {
        ref: ir.Ref(taken[ref.storage], newest[taken[ref.storage]] + 1 + ref.version)
        for ref in ir.writes(kernel)
        if ref.storage in taken
    }
