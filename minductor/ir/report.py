"""The static facts of one compiled graph, computed from its IR and stored with the artefact.

Takes a Plan and the Program it came from; gives a Report that prints, and survives JSON; refuses nothing.
A cache hit reports the same as the compile that filled the cache. Dynamic facts (launches, allocations) are events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from minductor.ir.cost import Cost, kernel_cost
from minductor.ir.lifetime import peak
from minductor.ir.nodes import Extern, Kernel, Program, WhyNot
from minductor.ir.plan import KernelDef, Launch, Plan

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Report:
    """Counts over one graph. `bytes` and `peak` are in bytes; `peak`: what storages of ours hold at once, or None."""

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
    is_fallback: bool = False

    def why_not(self, first: str, second: str) -> tuple[str, ...]:
        """Why two nodes were not joined, in either order."""
        return tuple(f"{stage}: {why}" for stage, a, b, why in self.refusals if {a, b} == {first, second})

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """Reads `to_json`'s result; ValueError for another schema."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"a report of schema {data.get('schema')!r}, not {SCHEMA}")
        values = {name: value for name, value in data.items() if name != "schema"}
        for name in ("kernel_names", "extern_reasons", "refusals"):
            values[name] = tuple(tuple(row) if isinstance(row, list) else row for row in values[name])  # pyright: ignore[reportUnknownArgumentType]  json
        return cls(**values)


def report(program: Program, plan: Plan) -> Report:
    """The facts of a tiled program and its plan; `kernels` counts launches."""
    programs, plans = list(_all_programs(program)), list(_all_plans(plan))
    kernels = [node for p in programs for node in p.nodes if isinstance(node, Kernel)]
    externs = [node for p in programs for node in p.nodes if isinstance(node, Extern)]
    total = sum((_cost(p) for p in programs), Cost())
    names = {line.id: line.symbol for line in plan.lines if isinstance(line, KernelDef)}
    return Report(
        role=program.name,
        kernels=len(kernels),
        externs=len(externs),
        bytes=total.bytes,
        operations=total.operations,
        peak=peak(plan.storages),
        block_accesses=sum(a.kind == "block" for kernel in kernels for a in kernel.access),
        kernel_names=tuple(names[line.kernel] for p in plans for line in p.lines if isinstance(line, Launch)),
        extern_reasons=tuple((node.op, node.reason) for node in externs),
        refusals=tuple(
            (n.stage, n.first, n.second, n.reason) for p in programs for n in p.notes if isinstance(n, WhyNot)
        ),
    )


def _cost(program: Program) -> Cost:
    """Of its own kernels, each counted once: how often a region runs is not known."""
    buffers = program.buffer_table()
    return sum((kernel_cost(node, buffers) for node in program.nodes if isinstance(node, Kernel)), Cost())


def _all_programs(program: Program) -> Iterator[Program]:
    yield program
    for region in program.regions:
        yield from _all_programs(region)


def _all_plans(plan: Plan) -> Iterator[Plan]:
    yield plan
    for region in plan.regions:
        yield from _all_plans(region)
