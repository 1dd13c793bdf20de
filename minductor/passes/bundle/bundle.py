"""Puts kernels that do the same to different tensors into one launch, side by side.

Takes a Program whose kernels have schedules. Gives one in which kernels of equal operators, none of which needs
another, are parts of one kernel: each part has its own axes and loops. Refuses kernels that can fail, and to keep more
than a little memory alive for it.

An optimiser's step is the same few operators for every parameter: a launch for each would cost more than the work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from minductor.analysis.acyclic import AcyclicOrder
from minductor.analysis.dependencies import dependencies
from minductor.analysis.domain import buffer_bytes
from minductor.core.expressions.expr import Expr, Symbol, as_int, symbol
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import (
    Assert,
    Atomic,
    Axis,
    Check,
    Kernel,
    MergedKernel,
    Node,
    Program,
    Scan,
    reads,
    views_of,
    writes,
)
from minductor.ir.program.schedule import Schedule, loops, moved
from minductor.ir.program.signature import all_ops, signature
from minductor.target import Env

PARTS = 64  # at most so many kernels become one
OPS = 1024  # of one kernel of a GPU: Triton's time grows faster than the text
PARAMETERS = 256  # tensors and numbers of one kernel
OPEN = 4  # bundles of one kind that a kernel is compared with, the latest first
HELD_BYTES = 1 << 20  # of storages of our own, whose lives a bundle makes longer

Kind: TypeAlias = tuple[object, ...]


def bundle(program: Program, env: Env) -> Program:
    """One program in, one out; see above."""
    is_split = len({buffer.device for buffer in program.buffers}) > 1
    if not env.options.fuse or is_split:
        return program
    kinds = [_kind(node, is_gpu=env.target.is_gpu) for node in program.nodes]
    if len(set(kinds)) == len(kinds) or not any(kinds.count(kind) > 1 for kind in set(kinds) if kind):
        return program
    groups, order = _groups(program, kinds, is_gpu=env.target.is_gpu)
    if all(len(members) == 1 for members in groups.values()):
        return program
    ranked = sorted(groups, key=lambda first: order.rank[first])
    nodes = [_joined([program.nodes[n] for n in groups[first]]) for first in ranked]
    gone = [
        MergedKernel("bundle", _name(program.nodes[n]), _name(program.nodes[first]))
        for first in ranked
        for n in groups[first][1:]
    ]
    return replace(program, nodes=tuple(nodes), notes=(*program.notes, *gone))


def _name(node: Node) -> str:
    assert isinstance(node, Kernel)
    return node.name


def _groups(program: Program, kinds: list[Kind | None], *, is_gpu: bool) -> tuple[dict[int, list[int]], AcyclicOrder]:
    """The members of each node to be, by the first of them, and the order that these keep."""
    nodes = program.nodes
    edges = dict.fromkeys((e.source, e.target) for e in dependencies(program))
    order = AcyclicOrder(len(nodes), edges)
    kept = {view.ref.storage for view in views_of(program.outputs)}
    local = {b.name: buffer_bytes(b) for b in program.buffers if b.kind == "local" and b.name not in kept}
    groups: dict[int, list[int]] = {}
    latest: dict[Kind, list[int]] = {}
    parameters = [_parameters(node) if kind else 0 for node, kind in zip(nodes, kinds, strict=True)]
    held = [sum(local.get(name, 0) for name in _storages(node)) for node in nodes]
    for number, kind in enumerate(kinds):
        groups[number] = [number]
        if kind is None:
            continue
        for first in reversed(latest.setdefault(kind, [])[-OPEN:]):
            members = groups[first]
            fits = (
                len(members) < (min(PARTS, OPS // len(kind)) if is_gpu else PARTS)
                and sum(parameters[m] for m in (*members, number)) <= PARAMETERS
            )
            fits = fits and sum(held[m] for m in (*members, number)) <= HELD_BYTES
            if not fits or any((member, number) in edges for member in members):
                continue
            low, high = sorted((first, number), key=lambda n: order.rank[n])
            if order.node_between(low, high) is not None:
                continue
            order.merge(low, high)
            groups[low] = [*members, number]
            del groups[high]
            latest[kind][latest[kind].index(first)] = low
            break
        else:
            latest[kind].append(number)
    return groups, order


def _parameters(node: Node) -> int:
    """How many a launch takes, but for the number of threads."""
    if not isinstance(node, Kernel):
        return 0
    found = signature(node)
    return len(found.storages) + len(found.sizes)


def _storages(node: Node) -> set[str]:
    return {ref.storage for ref in (*reads(node), *writes(node))}


def _kind(node: Node, *, is_gpu: bool) -> Kind | None:
    """The operators of a kernel that may be part of a bundle; None for all else.

    Of a GPU's kernel the tile as well: all programs of a launch have blocks of the same sizes.
    """
    if not isinstance(node, Kernel) or node.schedule is None or len(node.axes) > 2 or node.schedule.dots:
        return None
    ops = tuple(all_ops(node.body))
    if any(isinstance(op.attrs, Atomic | Check | Assert | Scan) for op in ops):
        return None
    tile = tuple((loop.kind, loop.block) for loop in loops(node.schedule.steps)) if is_gpu else ()
    return (*((op.name, op.dtype) for op in ops), *tile, *(node.choices if is_gpu else ()))


def _joined(nodes: list[Node]) -> Node:
    """Kernels as one: the axes, ops and steps of each after those of the ones before."""
    if len(nodes) == 1:
        return nodes[0]
    kernels = [node for node in nodes if isinstance(node, Kernel)]
    axes: list[Axis] = []
    mappings: list[dict[Symbol, Expr]] = []
    for kernel in kernels:
        fresh = [_renamed(axis, len(axes) + n) for n, axis in enumerate(kernel.axes)]
        mappings.append({old.symbol: new.symbol for old, new in zip(kernel.axes, fresh, strict=True)})
        axes += fresh
    builder = Builder([axis.symbol for axis in axes])
    joined = Schedule(())
    for kernel, mapping in zip(kernels, mappings, strict=True):
        assert kernel.schedule is not None
        places = builder.splice(kernel.body, mapping)
        part = moved(kernel.schedule, places, {old.name: str(new) for old, new in mapping.items()})
        starts = (*joined.parts, len(joined.steps)) if joined.steps else ()
        joined = Schedule((*joined.steps, *part.steps), (*joined.rows, *part.rows), starts)
    origins = tuple(dict.fromkeys(origin for kernel in kernels for origin in kernel.origins))
    after = tuple(dict.fromkeys(ref for kernel in kernels for ref in kernel.after))
    made = replace(kernels[0], axes=tuple(axes), body=builder.build(), origins=origins, after=after)
    return replace(made, schedule=joined)


def _renamed(axis: Axis, number: int) -> Axis:
    extent = as_int(axis.extent)
    return Axis(symbol(f"i{number}", "axis", 0, None if extent is None else max(extent - 1, 0)), axis.extent)
