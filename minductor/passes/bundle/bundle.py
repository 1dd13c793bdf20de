"""Puts kernels that do the same to different tensors into one launch.

Takes a Program whose kernels have schedules. Gives one in which kernels with equal operators, none of which depends on
another one of them, are one kernel: its parts stand one behind the other, each with axes and loops of its own. Refuses
(leaves as they are) kernels that can raise an error, scatters, scans, matrix products, kernels of more than two axes,
and bundles beyond the limits below.

The step of an optimiser is the case that pays: the same few operators for each parameter. A launch for each parameter
would cost more than the work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from minductor.analysis.acyclic import AcyclicOrder
from minductor.analysis.dependencies import dependencies
from minductor.analysis.domain import buffer_bytes
from minductor.core.expressions.expr import Expr, Symbol
from minductor.ir.program.build import Builder
from minductor.ir.program.loops import Schedule, loops, moved
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
    all_ops,
    axis_over,
    reads,
    views_of,
    writes,
)
from minductor.ir.program.signature import signature
from minductor.target import Env

MAX_KERNELS = 64  # the most kernels of one bundle
MAX_GPU_OPS = 1024  # the most ops of a bundle for a GPU: Triton's compile time grows faster than the text
MAX_PARAMETERS = 256  # the most tensors and numbers that one launch takes
MAX_OPEN_BUNDLES = 4  # the bundles of equal operators, latest first, that a kernel is tried with
MAX_LIVE_BYTES = 1 << 20  # the limit on a bundle's intermediate results, which are all live at the same time

# Kernels with equal keys may be one bundle.
Key: TypeAlias = tuple[object, ...]


def bundle(program: Program, env: Env) -> Program:
    """The program with bundled kernels; the program itself if there are none, fusion is off, or it has two devices."""
    is_split = len({buffer.device for buffer in program.buffers}) > 1
    if not env.options.fuse or is_split:
        return program
    keys = [_bundle_key(node, is_gpu=env.target.is_gpu) for node in program.nodes]
    if len(set(keys)) == len(keys) or not any(keys.count(key) > 1 for key in set(keys) if key):
        return program
    groups, order = _groups(program, keys, is_gpu=env.target.is_gpu)
    if all(len(members) == 1 for members in groups.values()):
        return program
    ranked = sorted(groups, key=lambda first: order.rank[first])
    nodes = [_bundled([program.nodes[n] for n in groups[first]]) for first in ranked]
    gone = [
        MergedKernel("bundle", _name(program.nodes[n]), _name(program.nodes[first]))
        for first in ranked
        for n in groups[first][1:]
    ]
    return replace(program, nodes=tuple(nodes), notes=(*program.notes, *gone))


def _name(node: Node) -> str:
    assert isinstance(node, Kernel)
    return node.name


def _groups(program: Program, keys: list[Key | None], *, is_gpu: bool) -> tuple[dict[int, list[int]], AcyclicOrder]:
    """The nodes of each bundle, by the one that ranks first, and an order of the bundles; each other node is alone."""
    nodes = program.nodes
    edges = dict.fromkeys((e.source, e.target) for e in dependencies(program))
    order = AcyclicOrder(len(nodes), edges)
    kept = {view.ref.storage for view in views_of(program.outputs)}
    local = {
        b.name: buffer_bytes(b, program.hints) for b in program.buffers if b.kind == "local" and b.name not in kept
    }
    groups: dict[int, list[int]] = {}
    latest: dict[Key, list[int]] = {}
    parameters = [_count_parameters(node) if key else 0 for node, key in zip(nodes, keys, strict=True)]
    local_bytes = [sum(local.get(name, 0) for name in _storages(node)) for node in nodes]
    for number, key in enumerate(keys):
        groups[number] = [number]
        if key is None:
            continue
        for first in reversed(latest.setdefault(key, [])[-MAX_OPEN_BUNDLES:]):
            members = groups[first]
            fits = (
                len(members) < (min(MAX_KERNELS, MAX_GPU_OPS // len(key)) if is_gpu else MAX_KERNELS)
                and sum(parameters[m] for m in (*members, number)) <= MAX_PARAMETERS
            )
            fits = fits and sum(local_bytes[m] for m in (*members, number)) <= MAX_LIVE_BYTES
            if not fits or any((member, number) in edges for member in members):
                continue
            low, high = sorted((first, number), key=lambda n: order.rank[n])
            if order.node_between(low, high) is not None:
                continue
            order.merge(low, high)
            groups[low] = [*members, number]
            del groups[high]
            latest[key][latest[key].index(first)] = low
            break
        else:
            latest[key].append(number)
    return groups, order


def _count_parameters(node: Node) -> int:
    """How many tensors and numbers a launch of a node takes, the number of threads not counted."""
    if not isinstance(node, Kernel):
        return 0
    found = signature(node)
    return len(found.storages) + len(found.sizes)


def _storages(node: Node) -> set[str]:
    return {ref.storage for ref in (*reads(node), *writes(node))}


def _bundle_key(node: Node, *, is_gpu: bool) -> Key | None:
    """The operators of a kernel that may be part of a bundle; None for any other node.

    For a GPU the blocks of its loops as well, since all programs of a launch have blocks of the same sizes.
    """
    if not isinstance(node, Kernel) or node.schedule is None or len(node.axes) > 2 or node.schedule.dots:
        return None
    ops = tuple(all_ops(node.body))
    if any(isinstance(op.attrs, Atomic | Check | Assert | Scan) for op in ops):
        return None
    tile = tuple((loop.kind, loop.block) for loop in loops(node.schedule.steps)) if is_gpu else ()
    return (*((op.name, op.dtype) for op in ops), *tile, *(node.choices if is_gpu else ()))


def _bundled(nodes: list[Node]) -> Node:
    """Kernels as one kernel: the axes, ops and loops of each one stand behind those of the kernels before it."""
    if len(nodes) == 1:
        return nodes[0]
    kernels = [node for node in nodes if isinstance(node, Kernel)]
    axes: list[Axis] = []
    mappings: list[dict[Symbol, Expr]] = []
    for kernel in kernels:
        fresh = [axis_over(f"i{len(axes) + n}", axis.extent) for n, axis in enumerate(kernel.axes)]
        mappings.append({old.symbol: new.symbol for old, new in zip(kernel.axes, fresh, strict=True)})
        axes += fresh
    builder = Builder([axis.symbol for axis in axes])
    joined = Schedule(())
    for kernel, mapping in zip(kernels, mappings, strict=True):
        assert kernel.schedule is not None
        places = builder.splice(kernel.body, mapping)
        part = moved(kernel.schedule, places, {old.name: str(new) for old, new in mapping.items()})
        starts = (*joined.parts, len(joined.steps)) if joined.steps else ()
        rows = (*joined.kept_rows, *part.kept_rows)
        pairs = (*joined.rows_in_results, *part.rows_in_results)
        joined = Schedule((*joined.steps, *part.steps), rows, pairs, starts)
    origins = tuple(dict.fromkeys(origin for kernel in kernels for origin in kernel.origins))
    after = tuple(dict.fromkeys(ref for kernel in kernels for ref in kernel.after))
    made = replace(kernels[0], axes=tuple(axes), body=builder.build(), origins=origins, after=after)
    return replace(made, schedule=joined)
