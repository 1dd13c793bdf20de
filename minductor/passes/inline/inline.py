"""Moves the bodies of cheap or single-use producers into their consumers, so that their buffers never exist.

Takes a program with one kernel per computed buffer. Gives the program without the kernels that became part of others,
and without dead nodes. Refuses, with a FusionRefusal, to move what must be materialised: what the caller or an
extern reads, what has a place in an order that was asked for, reductions, storages with several writers, and what costs
more to recompute than to keep (`_is_worth`).

A consumer's load of an element is answered by the producer's body at the point that stores this element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from minductor.analysis.domain import buffer_bytes, estimate, extents_of, has_division, pure_store, solve
from minductor.core.dtypes import DType
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, Symbol, free_symbols
from minductor.core.expressions.rewrite import simplify
from minductor.cost.footprint import CHEAP, LAUNCH, operations
from minductor.cost.products import block_counts
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import (
    Atomic,
    Body,
    Buffer,
    Check,
    FusionRefusal,
    Kernel,
    Load,
    Masked,
    MergedKernel,
    Node,
    Op,
    Origin,
    Program,
    Ref,
    Store,
    awaited_refs,
    body_reads,
    body_writes,
    reads,
    views_of,
    writes,
)
from minductor.passes.inline.extern_targets import write_into_targets
from minductor.passes.inline.split_concat import split_concat
from minductor.passes.rewriting.prune import live_nodes, prune_body, with_nodes
from minductor.target import Env

MAX_OPS, MAX_BUFFERS = 224, 56  # of a body that inlining makes; fuse may go on to its own limits
MAX_COPIES = 8  # of one producer in one consumer
DEPTH = 24  # producers on top of each other before they are built as one: keeps recursion shallow


@dataclass(slots=True)
class _Producer:
    """A kernel that computes one element of one buffer from others, and what it costs to have it do so again."""

    kernel: Kernel
    position: int
    store: Store
    value: int
    ops: int
    cost: int
    input_bytes: float
    points: int
    depth: int = 0


@dataclass(slots=True)
class _Uses:
    """Where a producer's value ends up: by kept kernel, the distinct elements asked for, with how often each runs."""

    roots: dict[int, dict[tuple[Expr, ...], float]] = field(default_factory=dict[int, dict[tuple[Expr, ...], float]])

    def add(self, root: int, key: tuple[Expr, ...], times: float) -> None:
        here = self.roots.setdefault(root, {})
        here[key] = max(here.get(key, 0.0), times)


def inline(program: Program, env: Env) -> Program:
    """One program in, one out; see above."""
    nodes = tuple([_pruned(node) for node in program.nodes])
    if any(a is not b for a, b in zip(nodes, program.nodes, strict=True)):
        program = with_nodes(program, nodes)
    live = live_nodes(program)  # of nodes without dead ops: what only those read is dead too
    if len(live) < len(program.nodes):
        program = with_nodes(program, live)
    if not env.options.fuse:
        return program
    refused: dict[str, str] = {}
    while True:
        work = _Inliner(program, refused, env.options.max_live_bytes, is_gpu=env.target.is_gpu)
        work.decide()
        bodies = work.build()
        # what a body turned out to do, rarely, is known only once it is built: choose again without these producers
        if not work.failed:
            break
        refused.update(work.failed)
    if work.inlined:
        program = work.finish(bodies)
    elif work.notes:
        program = replace(program, notes=(*program.notes, *work.notes))
    return program if work.is_mixed else write_into_targets(split_concat(program))


def _pruned(node: Node) -> Node:
    """A kernel without dead ops: what they load would count as a use."""
    if not isinstance(node, Kernel) or (body := prune_body(node.body)) is node.body:
        return node
    return replace(node, body=body)


class _Inliner:
    def __init__(self, program: Program, refused: Mapping[str, str], most: int, *, is_gpu: bool) -> None:
        self.program = program
        self.kernels = {n: node for n, node in enumerate(program.nodes) if isinstance(node, Kernel)}
        self.table = program.real_table()
        self.is_mixed = len({buffer.device for buffer in program.buffers}) > 1
        self.refused = refused
        self.failed: dict[str, str] = {}
        self.notes: list[FusionRefusal | MergedKernel] = []
        self.readers: dict[Ref, list[int]] = {}
        self.writers: dict[str, list[int]] = {}
        self.overwritten: dict[Ref, int] = {}
        self.size: list[int] = []
        self.most = most
        self.blocks = {kernel.name: block_counts(kernel) for kernel in self.kernels.values() if is_gpu}
        self.touched: list[set[str]] = []  # the storages of each kernel, with what has moved into it
        self.inlined: dict[Ref, _Producer] = {}
        self.by_position: dict[int, _Producer] = {}
        for position, node in enumerate(program.nodes):
            for ref in reads(node):
                self.readers.setdefault(ref, []).append(position)
            for ref in writes(node):
                self.writers.setdefault(ref.storage, []).append(position)
                self.overwritten[Ref(ref.storage, ref.version - 1)] = position
            self.size.append(len(node.body.ops) if isinstance(node, Kernel) else 0)
            self.touched.append({ref.storage for ref in (*reads(node), *writes(node))})

    # --- what may move

    def decide(self) -> None:
        """Sinks first, so that each producer's uses are known when its turn comes."""
        nodes = self.program.nodes
        fixed = {view.ref.storage for output in self.program.outputs for view in views_of(output)}
        fixed.update(ref.storage for node in nodes for ref in awaited_refs(node))
        producers = self._producers(fixed)
        uses: dict[Ref, _Uses] = {}
        for position in range(len(nodes) - 1, -1, -1):
            node = nodes[position]
            if not isinstance(node, Kernel):
                continue
            producer = producers.get(position)
            if producer is not None:
                mine = uses[producer.store.ref]
                reason = self._refusal(producer, mine)
                if reason is None:
                    self._move(producer, mine)
                    self._pass_on(node, producer.store.index, mine, uses)
                    continue
                self._note(producer, reason)
            self._pass_on(node, None, _Uses({position: {(): 1.0}}), uses)

    def _move(self, producer: _Producer, uses: _Uses) -> None:
        self.inlined[producer.store.ref] = self.by_position[producer.position] = producer
        for root, keys in uses.roots.items():
            self.size[root] += producer.ops * len(keys)
            self.touched[root] = self._with(producer, root)
            self.notes.append(MergedKernel("inline", producer.kernel.name, self.kernels[root].name))

    def _with(self, producer: _Producer, root: int) -> set[str]:
        """The storages of a kernel once a producer has moved into it."""
        return (self.touched[root] | self.touched[producer.position]) - {producer.store.ref.storage}

    def _waited(self, producer: _Producer, root: int) -> set[str]:
        """The intermediate results that a kernel would wait for with a producer in it."""
        made = {ref.storage for ref in writes(self.kernels[root])}
        return {name for name in self._with(producer, root) - made if name in self.writers}

    def _producers(self, fixed: set[str]) -> dict[int, _Producer]:
        """In program order, so that the cost of a producer holds that of the single-use ones before it."""
        found: dict[int, _Producer] = {}
        by_ref: dict[Ref, _Producer] = {}
        for position, node in enumerate(self.program.nodes):
            if not isinstance(node, Kernel):
                continue
            store = pure_store(node)
            if store is None or store.ref.storage in fixed or len(self.writers[store.ref.storage]) > 1:
                continue
            readers = self.readers.get(store.ref, ())
            if self.table[store.ref.storage].kind != "local" or not all(r in self.kernels for r in readers):
                continue
            if not readers:  # it stays for what it checks
                continue
            if self.is_mixed and any(self._device(r) != self._device(position) for r in readers):
                continue
            if node.after and not self._may_wait_there(node, readers):
                continue
            producer = self._producer(node, position, store, by_ref)
            if producer is not None:
                found[position] = by_ref[store.ref] = producer
        return found

    def _device(self, position: int) -> str:
        return self.table[writes(self.kernels[position])[0].storage].device

    def _may_wait_there(self, kernel: Kernel, readers: Sequence[int]) -> bool:
        """Whether all who read what a kernel makes run after what it runs after."""
        return bool(readers) and all(set(self.kernels[r].after).issuperset(kernel.after) for r in readers)

    def _producer(
        self, kernel: Kernel, position: int, store: Store, before: Mapping[Ref, _Producer]
    ) -> _Producer | None:
        if solve(store.index, kernel.axes, store.index, extents_of(kernel.axes)) is None:
            return None
        value = next(op.args[0] for op in kernel.body.ops if op.attrs is store)
        points = estimate(axis.extent for axis in kernel.axes)
        cost, moved = operations(kernel.body), 0.0
        for load in dict.fromkeys(body_reads(kernel.body)):
            inner = before.get(load.ref)
            if inner is not None and len(self.readers[load.ref]) == 1:
                cost, moved = cost + inner.cost, moved + inner.input_bytes
            else:
                moved += self._bytes_each(load, kernel, points)
        added = len(kernel.body.ops) - 2  # neither its store nor the load that it answers
        return _Producer(kernel, position, store, value, added, cost, moved, points)

    def _bytes_each(self, load: Load, kernel: Kernel, points: int) -> float:
        """Bytes of memory per point that a load brings in; what is read again by neighbours comes from a cache."""
        buffer = self.table[load.ref.storage]
        names = {symbol.name for symbol in free_symbols(load.index)}
        if any(symbol.kind == "value" for symbol in free_symbols(load.index)):
            return float(buffer.dtype.itemsize)
        touched = estimate(axis.extent for axis in kernel.axes if axis.name in names)
        return buffer.dtype.itemsize * touched / points

    def _pass_on(self, kernel: Kernel, stored: Expr | None, mine: _Uses, uses: dict[Ref, _Uses]) -> None:
        """Tells the producers of a kernel's loads where their values are used: where the kernel's own value is.

        A load at the very index of the store asks for an element that the kernel's users may ask for as well; any
        other one is known by the way to it. What a region loads is not shared with what is outside.
        """
        regions = [op.attrs.body for op in kernel.body.ops if isinstance(op.attrs, Masked)]
        inside = {load for region in regions for load in body_reads(region)}
        for load in dict.fromkeys(body_reads(kernel.body)):
            if load.ref.storage not in self.writers:
                continue
            users = uses.setdefault(load.ref, _Uses())
            elements = estimate(self.table[load.ref.storage].size)
            times = _demand(kernel, load.index, elements, self.blocks.get(kernel.name, {}))
            step = (load.index, load.index) if load in inside else () if load.index == stored else (load.index,)
            for root, keys in mine.roots.items():
                for key, outer in keys.items():
                    users.add(root, (*key, *step), outer * times)

    def _refusal(self, producer: _Producer, uses: _Uses) -> str | None:
        """Why a producer stays, or None if it moves."""
        name = producer.store.ref.storage
        if name in self.refused:
            return self.refused[name]
        last = max(uses.roots)
        for load in body_reads(producer.kernel.body):
            if self.overwritten.get(load.ref, last) < last:
                return f"{load.ref} is overwritten before the last use"
        checks = (op.attrs for op in producer.kernel.body.ops if isinstance(op.attrs, Check))
        if any(not at_least(check.size, 1) for check in checks) and self._is_masked_use(producer):
            return "a region cannot give up where it indexes a dimension without elements"
        copies = max(len(keys) for keys in uses.roots.values())
        if copies > MAX_COPIES:
            return f"one consumer needs {copies} elements of it at a time"
        if any(self.size[root] + producer.ops * len(keys) > MAX_OPS for root, keys in uses.roots.items()):
            return f"the consumer would have more than {MAX_OPS} ops"
        if any(len(self._with(producer, root)) > MAX_BUFFERS for root in uses.roots):
            return f"the consumer would have more than {MAX_BUFFERS} buffers"
        for root in uses.roots if self.most else ():
            held = sum(buffer_bytes(self.table[other]) for other in self._waited(producer, root))
            if held > self.most:
                return f"a consumer would wait for {held} bytes of intermediate results, {self.most} being the bound"
        return None if _is_worth(producer, uses, self.table[name]) else "recomputing costs more than keeping"

    def _is_masked_use(self, producer: _Producer) -> bool:
        """Whether a consumer, or what it moved into, loads the value in a region."""
        pending = [producer.store.ref]
        while pending:
            ref = pending.pop()
            for position in self.readers.get(ref, ()):
                ops = self.kernels[position].body.ops
                regions = [op.attrs.body for op in ops if isinstance(op.attrs, Masked)]
                if any(load.ref == ref for region in regions for load in body_reads(region)):
                    return True
                if position in self.by_position:
                    pending.append(self.by_position[position].store.ref)
        return False

    def _note(self, producer: _Producer, reason: str) -> None:
        for position in self.readers[producer.store.ref]:
            self.notes.append(FusionRefusal("inline", producer.kernel.name, self.kernels[position].name, reason))

    # --- the new bodies

    def build(self) -> dict[int, Body]:
        """The body of each kernel that stays."""
        bodies: dict[int, Body] = {}
        for position, node in enumerate(self.program.nodes):
            if not isinstance(node, Kernel):
                continue
            used = [self.inlined[ref] for ref in reads(node) if ref in self.inlined]
            if not used:
                continue
            producer = self.by_position.get(position)
            depth = 1 + max(p.depth for p in used)
            if producer is not None and depth < DEPTH:
                producer.depth = depth
                continue
            body = self._spliced(node)
            if producer is None:
                bodies[position] = body
                self._check_overwriting(node, body, used)
            else:
                producer.kernel = replace(node, body=body)
                producer.value = next(op.args[0] for op in body.ops if op.is_effect)
        return bodies

    def _spliced(self, kernel: Kernel) -> Body:
        extents = extents_of(kernel.axes)
        builder = Builder([axis.symbol for axis in kernel.axes], extents)
        asked: dict[Symbol, str] = {}  # checked indices -> the producer of what is loaded there

        def load(b: Builder, wanted: Load, dtype: DType) -> int | None:
            producer = self.inlined.get(wanted.ref)
            if producer is None:
                return (
                    b.load(wanted.ref, simplify(wanted.index, extents), dtype) if has_division(wanted.index) else None
                )
            mapping = self._points(producer, wanted.index, extents)
            if mapping is None:
                self.failed[producer.store.ref.storage] = "an element of it does not name one point"
                return None
            asked.update({s: producer.store.ref.storage for s in free_symbols(wanted.index) if s.kind == "value"})
            places = b.splice(producer.kernel.body, mapping, load, effects=_none, node=producer.kernel.only_node)
            return places[producer.value]

        builder.splice(kernel.body, {}, load, node=kernel.only_node)
        whole = builder.build()
        body = prune_body(whole)
        for index in _may_fail(whole) - _may_fail(body):  # as of a constant: one element is like another
            if index in asked:
                self.failed[asked[index]] = "an index into it would not be checked any more"
        return body

    def _points(self, producer: _Producer, index: Expr, extents: Mapping[Symbol, Expr]) -> Mapping[Symbol, Expr] | None:
        if not producer.kernel.body.ops[producer.value].axes:
            return {}
        return solve(producer.store.index, producer.kernel.axes, index, extents)

    def _check_overwriting(self, kernel: Kernel, body: Body, used: list[_Producer]) -> None:
        """A kernel that overwrites what it reads may read only the element that it writes; its own reads are so.

        Where several points may write one element, the second would read what the first wrote.
        """
        own = set(body_reads(kernel.body))
        for write in body_writes(body):
            old = Ref(write.ref.storage, write.ref.version - 1)
            elsewhere = (load for load in body_reads(body) if load.index != write.index or isinstance(write, Atomic))
            if any(load.ref == old and load not in own for load in elsewhere):
                self.failed.update({p.store.ref.storage: f"{old} is overwritten by its consumer" for p in used})

    def finish(self, bodies: Mapping[int, Body]) -> Program:
        """The program of the kernels that stay."""
        origins: dict[int, dict[int, None]] = {}
        nodes = list(self.program.nodes)
        for position, node in enumerate(nodes):
            mine = origins.setdefault(position, {position: None})
            for ref in reads(node):
                if ref in self.inlined:
                    mine.update(origins[self.inlined[ref].position])
        for position, body in bodies.items():
            node = nodes[position]
            assert isinstance(node, Kernel)
            nodes[position] = replace(node, body=body, origins=self._origins(origins[position]))
        kept = tuple(node for position, node in enumerate(nodes) if position not in self.by_position)
        return with_nodes(replace(self.program, notes=(*self.program.notes, *self.notes)), kept)

    def _origins(self, positions: Mapping[int, None]) -> tuple[Origin, ...]:
        """In program order."""
        return tuple(dict.fromkeys(o for p in sorted(positions) for o in self.program.nodes[p].origins))


def _is_worth(producer: _Producer, uses: _Uses, buffer: Buffer) -> bool:
    """Whether recomputing where it is used beats keeping the buffer. The only judgement of cost in this pass.

    Counted per element of the buffer, one operation as one byte. Keeping it costs its inputs once, then a write and a
    read for each consumer; but fuse will merge one of several consumers with it, which needs no read then. A new kernel
    costs LAUNCH. Recomputing costs the inputs for each consumer and the operations each time after the first. Of what
    consumers ask for in part, only that part counts.
    """
    copies = sum(len(keys) for keys in uses.roots.values())
    asked = [sum(keys.values()) for keys in uses.roots.values()]
    if producer.input_bytes == 0 and producer.cost <= CHEAP:
        return True
    # what a consumer reads of a whole: a gather may ask for a thousandth of it
    shares = [min(1.0, times) for times in asked]
    again = copies if producer.cost <= CHEAP and min(shares) == 1 else sum(asked)
    buffer_bytes = (1 + sum(shares) - max(shares)) * buffer.dtype.itemsize
    kept = buffer_bytes + producer.input_bytes + LAUNCH / producer.points
    return sum(shares) * producer.input_bytes + producer.cost * (again - 1) <= kept


def _demand(kernel: Kernel, index: Expr, elements: int, blocks: Mapping[str, int]) -> float:
    """How often a kernel asks for each element: once for each point of the axes outside those in the index.

    Where data decide the index, each of its points asks for some element. A matrix product asks once for each block of
    an axis.
    """
    names = {symbol.name for symbol in free_symbols(index)}
    if any(symbol.kind == "value" for symbol in free_symbols(index)):
        return estimate(axis.extent for axis in kernel.axes) / max(1, elements)
    inner = max((n for n, axis in enumerate(kernel.axes) if axis.name in names), default=-1)
    outside = (axis for axis in kernel.axes[: inner + 1] if axis.name not in names)
    return float(prod(blocks.get(axis.name) or estimate((axis.extent,)) for axis in outside))


def _may_fail(body: Body) -> set[Symbol]:
    """The checked indices that may be out of range."""
    return {op.attrs.symbol for op in body.ops if isinstance(op.attrs, Check) and op.attrs.error is not None}


def _none(_: Op) -> bool:
    return False
