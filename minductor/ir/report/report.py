"""The report of one compiled graph: counts, calls, refused fusions. It is stored with the artefact.

Takes a Program and its Plan. Gives a Report, which can be printed and written as JSON. Refuses nothing. A cache hit
gives the same report as the compile that filled the cache. What happens in a call (launches, allocations) is in events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from minductor.core.expressions.expr import as_int
from minductor.ir.plan.plan import DispatchLine, ExternLine, KernelLine, LaunchLine, Line, Plan, kernel_launches
from minductor.ir.plan.storage_lives import plan_peak_bytes
from minductor.ir.program.choices import Choice
from minductor.ir.program.loops import tiled_axes
from minductor.ir.program.nodes import Extern, FusionRefusal, Kernel, MergedKernel, Program, reads, writes
from minductor.ir.program.variant_note import VariantNote
from minductor.ir.report.counted_cost import Cost, kernel_cost
from minductor.ir.report.provenance import Provenance
from minductor.ir.report.refusals import FinalNode, Refusals

SCHEMA = 3


@dataclass(frozen=True, slots=True)
class Report:
    """Counts over one graph.

    `bytes`: read and written by kernels. `peak`: the most bytes that the call's storages hold at once; None if a size
    is not a number. `block_accesses`: loads and stores of contiguous blocks; `block_pointers` and `descriptors` are the
    numbers of those that Triton code addresses in these ways. `tiles`: the number of axes, over all kernels, of which a
    GPU program computes a block. `why_not` answers from `refusals`, `nodes` and `joined`.
    """

    role: str
    kernels: int
    externs: int
    bytes: int
    operations: int
    peak: int | None
    block_accesses: int = 0
    block_pointers: int = 0
    descriptors: int = 0
    tiles: int = 0
    kernel_names: tuple[str, ...] = ()
    extern_reasons: tuple[tuple[str, str], ...] = ()
    refusals: tuple[tuple[str, str, str, str], ...] = field(default=(), repr=False)
    # Of the outermost plan: the calls in order, and the live range of each storage in numbers of calls, from 1: owner,
    # bytes or None, first call, last call or None, whether it is returned, and its names.
    calls: tuple[str, ...] = field(default=(), repr=False)
    storages: tuple[tuple[Any, ...], ...] = field(default=(), repr=False)
    nodes: tuple[tuple[str, str, str, tuple[str, ...]], ...] = field(default=(), repr=False)  # fields of FinalNode
    joined: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # Device, number of calls, and whether the device can capture them as one graph.
    partitions: tuple[tuple[str, int, bool], ...] = ()
    # Node, operator, the ATen node that it comes from, and why it cannot be captured.
    barriers: tuple[tuple[str, str, str, str], ...] = field(default=(), repr=False)
    # Kernel, id of the choice, "bits" or "perf", default, options.
    choices: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = field(default=(), repr=False)
    # Kernel, the variant that it takes, who decided (`variant_note.py: Decider`), the variants, and figures.
    variants: tuple[tuple[str, str, str, tuple[str, ...], str], ...] = field(default=(), repr=False)
    # What rewrites of the graph did, which is not stored: rewrite, node, the user's line, and why not ("" if applied).
    rewrites: tuple[tuple[str, str, str, str], ...] = field(default=(), repr=False, compare=False)
    # The bytes of what a frozen graph computes once from its weights and keeps.
    frozen_bytes: int = 0

    # Stored in a file of its own.
    origins: Provenance | None = field(default=None, repr=False, compare=False)

    def provenance(self) -> Provenance:
        """Which ATen nodes each launch and call comes from, and what became of each kernel.

        Returns:
            What is stored with the graph, and the user's lines of this process.

        Raises:
            ValueError: the report was read without the provenance beside it.
        """
        if self.origins is None:
            raise ValueError("this report was read without the provenance beside it")
        return self.origins

    def why_not(self, first: str, second: str) -> tuple[str, ...]:
        """The reasons why two kernels were not fused.

        Args:
            first: the name of a kernel at any stage, or of a generated function.
            second: the name of another one.

        Returns:
            One sentence for each reason.

        Raises:
            UnknownKernel: the graph has no kernel of one of the names.
        """
        places = tuple(FinalNode(*row) for row in self.nodes)
        return Refusals(places, self.joined, self.refusals).why_not(first, second)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values.

        Returns:
            A dict that `from_json` reads.
        """
        return {"schema": SCHEMA, **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "origins"}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """The report that `to_json` has written.

        Args:
            data: a result of `to_json`, which JSON may have turned tuples into lists of.

        Returns:
            The report.

        Raises:
            ValueError: another version of minductor has written `data`.
        """
        if data.get("schema") != SCHEMA:
            raise ValueError(f"a report of schema {data.get('schema')!r}, not {SCHEMA}")
        return cls(**{name: _frozen(value) for name, value in data.items() if name != "schema"})


def report(program: Program, plan: Plan) -> Report:
    """The report of a program after the last stage, and its plan."""
    parts = list(_parts(program, plan))
    kernels = [node for _, p, _ in parts for node in p.nodes if isinstance(node, Kernel)]
    externs = [node for _, p, _ in parts for node in p.nodes if isinstance(node, Extern)]
    total = sum((_cost(p) for _, p, _ in parts), Cost())
    names = {line.id: line.symbol for line in plan.lines if isinstance(line, KernelLine)}
    notes = [(where, note) for where, p, _ in parts for note in p.notes]
    return Report(
        role=program.name,
        kernels=len(kernels),
        externs=len(externs),
        bytes=total.bytes,
        operations=total.operations,
        peak=plan_peak_bytes(plan),
        block_accesses=sum(a.kind == "block" for kernel in kernels for a in kernel.access),
        block_pointers=sum(a.form == "pointer" for kernel in kernels for a in kernel.access),
        descriptors=sum(a.form == "descriptor" for kernel in kernels for a in kernel.access),
        tiles=sum(len(tiled_axes(kernel.schedule)) for kernel in kernels if kernel.schedule is not None),
        kernel_names=tuple(names[line.kernel] for _, _, p in parts for line in kernel_launches(p.lines)),
        extern_reasons=tuple((node.op, node.reason) for node in externs),
        refusals=tuple(
            (n.stage, _in(w, n.first), _in(w, n.second), n.why) for w, n in notes if isinstance(n, FusionRefusal)
        ),
        nodes=tuple(
            (_in(w, name), symbol, op, tuple([_in(w, s) for s in touched]))
            for w, p, lines in parts
            for name, symbol, op, touched in _places(p, lines, names)
        ),
        partitions=tuple((part.device, part.calls, part.is_capturable) for part in plan.partitions),
        barriers=tuple((b.node, b.op, b.origin, b.reason) for part in plan.partitions for b in part.barriers),
        joined=tuple(
            (_in(w, n.name), _in(w, n.into)) for w, n in notes if isinstance(n, MergedKernel) and n.stage != "split"
        ),
        calls=tuple(call for line in plan.lines for call in _called(line, names)),
        choices=tuple(
            (name, choice.id, choice.affects, str(choice.default), tuple(map(str, choice.options)))
            for _, p, lines in parts
            for name, choice in _choices(p, lines, names)
        ),
        variants=tuple(
            (_in(w, n.kernel), n.taken, n.by, n.options, n.figures) for w, n in notes if isinstance(n, VariantNote)
        ),
        storages=tuple(
            (s.owner, as_int(s.bytes), s.birth, s.death, s.is_returned, *(n.name for n in s.names))
            for s in plan.storages
            if s.names[0].making != "constant"
        ),
    )


def _called(line: Line, names: Mapping[str, str]) -> Iterator[str]:
    match line:
        case LaunchLine(kernel) | DispatchLine(own=LaunchLine(kernel)):
            yield names[kernel]
        case ExternLine(op=op):
            yield op
        case _:
            return


def _choices(program: Program, plan: Plan, symbols: Mapping[str, str]) -> Iterator[tuple[str, Choice]]:
    """The choices of each kernel, once for each generated function."""
    seen: set[str] = set()
    kernels = (node for node in program.nodes if isinstance(node, Kernel))
    for kernel, line in zip(kernels, kernel_launches(plan.lines), strict=True):
        if symbols[line.kernel] not in seen:
            seen.add(symbols[line.kernel])
            yield from ((symbols[line.kernel], choice) for choice in kernel.choices)


def _frozen(value: Any) -> Any:
    """The value with tuples in place of lists, since JSON has no tuples."""
    return tuple([_frozen(item) for item in value]) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def _places(
    program: Program, plan: Plan, symbols: Mapping[str, str]
) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """The fields of a FinalNode for each kernel and call; a plan launches kernels in the program's order."""
    symbol = iter(symbols[line.kernel] for line in kernel_launches(plan.lines))
    for node in program.nodes:
        touched = tuple(dict.fromkeys(ref.storage for ref in (*reads(node), *writes(node))))
        match node:
            case Kernel(name=name):
                yield name, next(symbol), "", touched
            case Extern(name=name, op=op):
                yield name, "", op, touched
            case _:
                pass


def _in(where: str, name: str) -> str:
    """A node's name as users give it: in a region, with the region's name and a dot before it."""
    return f"{where}.{name}" if where else name


def _cost(program: Program) -> Cost:
    """The cost of a program's own kernels, each once, since the number of runs of a region is not known."""
    buffers = program.real_table()
    return sum(
        (kernel_cost(node, buffers, program.hints) for node in program.nodes if isinstance(node, Kernel)), Cost()
    )


def _parts(program: Program, plan: Plan, where: str = "") -> Iterator[tuple[str, Program, Plan]]:
    """A program and its regions with their plans, each with its qualified name."""
    yield where, program, plan
    for region, lines in zip(program.regions, plan.regions, strict=True):
        yield from _parts(region, lines, _in(where, region.name))
