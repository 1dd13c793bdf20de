"""Provenance: which ATen nodes each launch and call of a graph comes from, and what became of each kernel.

Takes a Program after the last stage, its Plan, and line maps of the generated texts. Gives a `Provenance`, which the
store keeps as provenance.json beside the report; docs/provenance.md describes the schema. Refuses another schema
(ValueError). It goes as far as the nodes of the ATen graph: the user's lines and module paths are not stored, since
equal graphs share an entry. `Report.provenance()` joins those of this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from minductor.ir.artefact.source import Unit
from minductor.ir.plan.plan import DispatchLine, ExternLine, GroupLine, KernelLine, LaunchLine, Plan
from minductor.ir.program.nodes import Extern, Kernel, MergedKernel, Node, Origin, Program
from minductor.ir.program.variant_note import VariantNote
from minductor.ir.program.variants import base_option, without_variants

SCHEMA = 1

Kind: TypeAlias = Literal["launch", "extern", "dispatch"]


class NodeSources(Protocol):
    """What a process knows of the ATen nodes of a graph beside their names."""

    def of(self, node: str) -> str:
        """The user's "file:line"; "" if it is not known."""
        ...

    def module_of(self, node: str) -> str:
        """The path of the module; "" if there is none."""
        ...

    def forward_of(self, node: str) -> str:
        """The forward graph's node of a backward's node; "" if there is none."""
        ...


class PlanCall(NamedTuple):
    """One launch, call or choice of the plan, and the ATen nodes that it comes from.

    `key`: the generated function or the operator, a colon, and the handle, which is unique in the graph. `region`: the
    subgraph that the line stands in. `variant`: the option of a choice whose group it stands in. `values`: for each op
    of the launched kernel's body, by position, its ATen nodes, under options={"provenance": 2}.
    """

    key: str
    kind: Kind
    nodes: tuple[str, ...]
    region: str = ""
    variant: str = ""
    values: tuple[tuple[str, ...], ...] = ()


class LineMap(NamedTuple):
    """The lines of one generated function, counted from 1 in `file`, with the positions of the ops they compute."""

    file: str
    rows: tuple[tuple[int, tuple[int, ...]], ...]


class Became(NamedTuple):
    """At `stage`, `kernel` became a part of `into`, and why; under stage "memory" `into` is the key of its call."""

    stage: str
    kernel: str
    into: str
    why: str = ""
    figures: str = ""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the launches and calls of one graph come from.

    `graph`: "inference", "forward" or "backward". `lines`: by the name of a generated function. `sources`: what this
    process knows of the nodes; None if nothing was joined.
    """

    graph: str
    calls: tuple[PlanCall, ...] = ()
    lines: Mapping[str, LineMap] = field(default_factory=dict[str, LineMap])
    became: tuple[Became, ...] = ()
    sources: NodeSources | None = field(default=None, compare=False, repr=False)

    @property
    def nodes(self) -> dict[str, tuple[str, ...]]:
        """The way back: by ATen node, the keys of the calls that come from it, in the order of the plan."""
        found: dict[str, list[str]] = {}
        for call in self.calls:
            for node in call.nodes:
                found.setdefault(node, []).append(call.key)
        return {node: tuple(keys) for node, keys in found.items()}

    def joined(self, sources: NodeSources) -> Provenance:
        """The same with what a process knows of the nodes.

        Args:
            sources: gives the user's line, the module and the forward node of a node.

        Returns:
            A Provenance whose `sources` is that object.
        """
        return replace(self, sources=sources)

    def moved(self, lines: Mapping[str, int]) -> Provenance:
        """The same for files at whose start lines were added.

        Args:
            lines: by file, how many.

        Returns:
            A Provenance with the new numbers of lines.
        """
        if not any(lines.values()):
            return self
        maps = {
            symbol: each._replace(rows=tuple([(line + lines.get(each.file, 0), at) for line, at in each.rows]))
            for symbol, each in self.lines.items()
        }
        return replace(self, lines=maps)

    def line_of(self, node: str) -> str:
        """The user's line of an ATen node.

        Args:
            node: the node's name; that of a node in a region is "region.node".

        Returns:
            "file:line", or "" if no line is known.
        """
        return self.sources.of(node) if self.sources is not None else ""

    def module_of(self, node: str) -> str:
        """The path of the module that an ATen node comes from; in a backward that of the forward's operator.

        Args:
            node: the node's name; that of a node in a region is "region.node".

        Returns:
            A path such as "layers.3.mlp", or "" if none is known.
        """
        return self.sources.module_of(node) if self.sources is not None else ""

    def forward_of(self, node: str) -> str:
        """The node of the forward graph that a node of a backward graph is the gradient of, or recomputes.

        Args:
            node: the node's name; that of a node in a region is "region.node".

        Returns:
            The name of the forward graph's node, or "" if none is known.
        """
        return self.sources.forward_of(node) if self.sources is not None else ""

    def to_json(self) -> dict[str, Any]:
        """What is stored, as JSON values.

        Returns:
            A dict that `from_json` reads; docs/provenance.md describes it.
        """
        return {
            "schema": SCHEMA,
            "graph": self.graph,
            "calls": [call._asdict() for call in self.calls],
            "nodes": self.nodes,
            "lines": {symbol: each._asdict() for symbol, each in self.lines.items()},
            "became": [each._asdict() for each in self.became],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Provenance:
        """What `to_json` has written.

        Args:
            data: a result of `to_json`, which JSON may have turned tuples into lists of.

        Returns:
            The Provenance, without sources.

        Raises:
            ValueError: another version of minductor has written `data`.
        """
        if data.get("schema") != SCHEMA:
            raise ValueError(f"a provenance of schema {data.get('schema')!r}, not {SCHEMA}")
        calls = [PlanCall(**{name: _frozen(value) for name, value in call.items()}) for call in data["calls"]]
        lines = {symbol: LineMap(each["file"], _frozen(each["rows"])) for symbol, each in data["lines"].items()}
        return cls(data["graph"], tuple(calls), lines, tuple(Became(**each) for each in data["became"]))


def provenance(program: Program, plan: Plan, units: Iterable[Unit], level: int) -> Provenance:
    """The provenance of a program after the last stage, at a level of the option `provenance`."""
    symbols = {line.id: line.symbol for line in plan.lines if isinstance(line, KernelLine)}
    reader = _Reader(symbols, has_values=level > 1)
    reader.read(program, plan, "")
    lines = {symbol: LineMap(unit.file, rows) for unit in units for symbol, rows in unit.line_maps}
    return Provenance(program.name, tuple(reader.calls), lines, tuple(dict.fromkeys(reader.became)))


class _Reader:
    """Collects the calls of a plan beside the nodes of its program, which stand in the same order."""

    def __init__(self, symbols: Mapping[str, str], *, has_values: bool) -> None:
        self.symbols = symbols
        self.has_values = has_values
        self.calls: list[PlanCall] = []
        self.became: list[Became] = []

    def read(self, program: Program, plan: Plan, region: str) -> None:
        """Adds the calls of a program, then those of its regions."""
        where = f"{region}." if region else ""
        self.became += _notes(program, where)
        nodes = iter([node for node in program.nodes if isinstance(node, Kernel | Extern)])
        for line in plan.lines:
            if isinstance(line, LaunchLine | ExternLine | DispatchLine):
                self.line(line, next(nodes), region)
        for inner, lines in zip(program.regions, plan.regions, strict=True):
            self.read(inner, lines, inner.name)

    def line(self, line: LaunchLine | ExternLine | DispatchLine, node: Kernel | Extern, region: str) -> None:
        """Adds a line; a choice stands behind the lines of its variants, as its handle does."""
        if isinstance(line, DispatchLine):
            assert isinstance(node, Kernel)
            groups: dict[str, tuple[Node, ...]] = {variant.name: variant.nodes for variant in node.variants}
            groups[base_option(node)] = (without_variants(node),)
            for option, group in zip(line.choice.options, line.variants, strict=True):
                self.group(group, groups[str(option)], region, str(option))
        self.add(line, node, region)
        where = f"{region}." if region else ""
        self.became.append(Became("memory", where + node.name, self.calls[-1].key))

    def group(self, group: Iterable[GroupLine], nodes: Iterable[Node], region: str, variant: str) -> None:
        """Adds the calls of one variant of a choice."""
        calls = [line for line in group if isinstance(line, LaunchLine | ExternLine)]
        for line, node in zip(calls, nodes, strict=True):
            self.add(line, node, region, variant)

    def add(self, line: LaunchLine | ExternLine | DispatchLine, node: Node, region: str, variant: str = "") -> None:
        """Adds one call, which runs that node of the program."""
        match line:
            case LaunchLine(kernel):
                name, kind = self.symbols[kernel], "launch"
            case DispatchLine(own=LaunchLine(kernel)):
                name, kind = self.symbols[kernel], "dispatch"
            case ExternLine(op):
                name, kind = op, "extern"
        ops = node.body.ops if self.has_values and kind == "launch" and isinstance(node, Kernel) else ()
        values = [_qualified([op.node] if op.node else [], region) for op in ops]
        nodes = _qualified(_names(line.origins), region)
        self.calls.append(PlanCall(f"{name}:{line.handle}", kind, nodes, region, variant, tuple(values)))


def _names(origins: Iterable[Origin]) -> Iterable[str]:
    return dict.fromkeys(origin.node for origin in origins)


def _qualified(nodes: Iterable[str], region: str) -> tuple[str, ...]:
    """The names of nodes as `Sources` has them: with the region's name and a dot before them."""
    return tuple([f"{region}.{node}" if region else node for node in nodes])


def _notes(program: Program, where: str) -> Iterator[Became]:
    """What the notes of a program say of its kernels: which became parts of others, and which variant was taken."""
    for note in program.notes:
        match note:
            case MergedKernel(stage, name, into, reason, figures):
                yield Became(stage, where + name, where + into, reason, figures)
            case VariantNote(stage, kernel, taken, by, options, figures):
                why = f"variant {taken} of {', '.join(options)}, by {by}"
                yield Became(stage, where + kernel, where + kernel, why, figures)
            case _:
                pass


def _frozen(value: object) -> Any:
    """The value with tuples in place of lists, since JSON has no tuples."""
    return tuple([_frozen(item) for item in cast("list[object]", value)]) if isinstance(value, list) else value
