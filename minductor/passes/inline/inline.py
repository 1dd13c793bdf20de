"""Moves cheap or single-use producers into their consumers, which compute their elements again; no buffer is left.

Takes a program with one kernel for each computed buffer and without dead code, whose loads would count as uses. Gives
it without the kernels that became part of their consumers. A kernel is a candidate if it only computes and stores one
value for each point, into a storage that no other node writes and that only kernels read. Refuses, with a
`FusionRefusal`, candidates whose operands are overwritten too early, whose consumers would become too large, and those
that take longer to recompute than to store (`cost/kernel_seconds.py`).

Where a consumer loads an element, the producer's body is inserted at the point that stores this element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from minductor.analysis.domain import buffer_bytes, extents_of, is_bent, pure_store, solve
from minductor.core.dtypes import DType
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, Symbol, free_symbols
from minductor.core.expressions.rewrite import simplify
from minductor.cost.kernel_seconds import TIE, Prices
from minductor.cost.shape import MOVED, Shape, inlined, is_own
from minductor.ir.program import nodes as ir
from minductor.ir.program.build import Builder
from minductor.passes.rewriting.prune import drop_effect, prune_body, with_nodes
from minductor.target import Env

MAX_OPS, MAX_BUFFERS = (
    224,
    56,
)  # the limits of a consumer; those of `fuse` are larger, so that it can still fuse such a consumer
MAX_COPIES = 8  # the most elements of one producer that one point of a consumer may use
CHEAP = 5  # operations, loads and stores among them, of a value that is no cheaper to load than to compute
MOST_PARTNERS = 3  # consumers of a stored result with which the kernel that stores it is tried
MAX_DEPTH = 24  # so many nested producers are built as one body, which keeps the recursion shallow


@dataclass(slots=True)
class _Producer:
    """A kernel that may move into its consumers.

    `value`: the position of the stored value. `ops`: how many it adds to a body. `inner`: the producers that only it
    uses. `shape`: what decides its price, with those producers; None until a price is asked. `is_read`: the shapes of
    its consumers hold it. `depth`: nested producers.
    """

    kernel: ir.Kernel
    position: int
    store: ir.Store
    value: int
    ops: int
    inner: list[_Producer]
    shape: Shape | None = None
    is_read: bool = False
    depth: int = 0


class _Verdict(NamedTuple):
    """Why a producer stays, or moves into its consumers; where time decided, figures."""

    reason: str
    figures: str = ""
    moves: bool = False


@dataclass(slots=True)
class _Uses:
    """Who uses a producer's value, in terms of the kernels that stay.

    By the position of such a kernel: the distinct elements that one point of it asks for, and whether it is plain that
    no two points ask for the same one. An element is known by the indices of the loads that lead to it.
    """

    users: dict[int, dict[tuple[Expr, ...], bool]] = field(default_factory=dict[int, dict[tuple[Expr, ...], bool]])

    def add(self, consumer: int, key: tuple[Expr, ...], *, is_own: bool) -> None:
        """Records that a kernel asks for an element."""
        elements = self.users.get(consumer)
        if elements is None:
            self.users[consumer] = {key: is_own}
        else:
            elements[key] = is_own and elements.get(key, True)

    def only_own(self, consumer: int) -> bool:
        """Whether it is plain that each point of a kernel asks for one element, which no other point asks for."""
        keys = self.users[consumer]
        return len(keys) == 1 and all(keys.values())


def inline(program: ir.Program, env: Env) -> ir.Program:
    """The program after inlining; the program itself if fusion is off or nothing is inlined or refused."""
    if not env.options.fuse:
        return program
    refused: dict[str, str] = {}
    while True:
        work = _Inliner(program, refused, env)
        work.decide()
        bodies = work.build()
        # Some refusals are known only once a body is built. This is rare: decide again, with those producers kept.
        if not work.refusals:
            break
        refused.update(work.refusals)
    if work.inlined:
        return work.finish(bodies)
    return replace(program, notes=(*program.notes, *work.notes)) if work.notes else program


class _Inliner:
    """One attempt: `decide` which producers move, `build` the bodies, `finish` the program.

    `known_refusals`: reasons by storage that an earlier attempt has found. Nodes are known by their positions.
    """

    def __init__(self, program: ir.Program, refused: Mapping[str, str], env: Env) -> None:
        self.program = program
        self.hints = program.hints
        self.kernels = {n: node for n, node in enumerate(program.nodes) if isinstance(node, ir.Kernel)}
        self.table = program.real_table()
        self.is_mixed = len({buffer.device for buffer in program.buffers}) > 1
        self.known_refusals = refused
        self.refusals: dict[str, str] = {}
        self.notes: list[ir.FusionRefusal | ir.MergedKernel] = []
        self.readers: dict[ir.Ref, list[int]] = {}
        self.writers: dict[str, list[int]] = {}
        self.overwriter: dict[ir.Ref, int] = {}
        self.op_counts: list[int] = []
        self.max_live_bytes = env.options.max_live_bytes
        self.prices = Prices(self.table, env.target, program.hints)
        self.shapes: dict[int, Shape] = {}  # by position, of consumers with the producers that moved into them
        self.unread: dict[int, list[_Producer]] = {}  # by position, those that moved and are not yet part of the shape
        self.loads: dict[int, tuple[ir.Load, ...]] = {}  # by position, of kernels
        self.inside: dict[
            int, set[ir.Load]
        ] = {}  # by position, of kernels with masks, reductions or scans: under masks
        self.reads: list[tuple[ir.Ref, ...]] = []  # by position
        self.own: dict[object, bool] = {}  # by what is asked
        self.solved: dict[object, Mapping[Symbol, Expr] | None] = {}  # by what is asked
        self.storages: list[
            set[str]
        ] = []  # by position, the storages that a node touches, with those of producers that moved into it
        self.inlined: dict[ir.Ref, _Producer] = {}
        self.by_position: dict[int, _Producer] = {}
        for position, node in enumerate(program.nodes):
            is_kernel = isinstance(node, ir.Kernel)
            if is_kernel:
                self.loads[position] = tuple(dict.fromkeys(ir.body_reads(node.body)))
                others = [op.attrs for op in node.body.ops if isinstance(op.attrs, (ir.Masked, ir.Reduce, ir.Scan))]
                if others:
                    masked = [each.body for each in others if isinstance(each, ir.Masked)]
                    self.inside[position] = {load for body in masked for load in ir.body_reads(body)}
                reads = tuple(dict.fromkeys([load.ref for load in self.loads[position]]))
            else:
                reads = ir.reads(node)
            writes = ir.writes(node)
            self.reads.append(reads)
            for ref in reads:
                self.readers.setdefault(ref, []).append(position)
            for ref in writes:
                self.writers.setdefault(ref.storage, []).append(position)
                self.overwriter[ir.Ref(ref.storage, ref.version - 1)] = position
            self.op_counts.append(len(node.body.ops) if is_kernel else 0)
            self.storages.append({ref.storage for ref in (*reads, *writes)})

    # --- what may move

    def decide(self) -> None:
        """Decides which producers move, last node first: then all uses of a producer are known when its turn comes."""
        nodes = self.program.nodes
        fixed = {view.ref.storage for output in self.program.outputs for view in ir.views_of(output)}
        fixed.update(ref.storage for node in nodes for ref in ir.awaited_refs(node))
        producers = self._producers(fixed)
        uses: dict[ir.Ref, _Uses] = {}
        for position in range(len(nodes) - 1, -1, -1):
            node = nodes[position]
            if not isinstance(node, ir.Kernel):
                continue
            producer = producers.get(position)
            if producer is not None:
                mine = uses[producer.store.ref]
                reason = self._refusal(producer, mine)
                verdict = _Verdict(reason) if reason is not None else self._verdict(producer, mine)
                if verdict.moves:
                    self._inline_producer(producer, mine, verdict)
                    self._record_uses(position, producer.store.index, mine, uses)
                    continue
                self._note(producer, verdict)
            self._record_uses(position, None, _Uses({position: {(): True}}), uses)

    def _inline_producer(self, producer: _Producer, uses: _Uses, verdict: _Verdict) -> None:
        """Marks a producer as moved, and adds its size and storages to each consumer."""
        self.inlined[producer.store.ref] = self.by_position[producer.position] = producer
        for consumer, keys in uses.users.items():
            self.op_counts[consumer] += producer.ops * len(keys)
            self.storages[consumer] = self._storages_with(producer, consumer)
            if not producer.is_read:
                self.unread.setdefault(consumer, []).append(producer)
            name, into = producer.kernel.name, self.kernels[consumer].name
            self.notes.append(ir.MergedKernel("inline", name, into, verdict.reason, verdict.figures))

    def _storages_with(self, producer: _Producer, consumer: int) -> set[str]:
        """The storages that a consumer touches once a producer has moved into it."""
        return (self.storages[consumer] | self.storages[producer.position]) - {producer.store.ref.storage}

    def _intermediates_with(self, producer: _Producer, consumer: int) -> set[str]:
        """The intermediate results that a consumer needs once a producer has moved into it."""
        made = {ref.storage for ref in ir.writes(self.kernels[consumer])}
        return {name for name in self._storages_with(producer, consumer) - made if name in self.writers}

    def _producers(self, fixed: set[str]) -> dict[int, _Producer]:
        """The candidates by position. In program order, since a cost includes that of producers with this only use."""
        found: dict[int, _Producer] = {}
        by_ref: dict[ir.Ref, _Producer] = {}
        for position, node in enumerate(self.program.nodes):
            if not isinstance(node, ir.Kernel):
                continue
            store = pure_store(node)
            if store is None or store.ref.storage in fixed or len(self.writers[store.ref.storage]) > 1:
                continue
            readers = self.readers.get(store.ref, ())
            if self.table[store.ref.storage].kind != "local" or not all(r in self.kernels for r in readers):
                continue
            if not readers:  # only a check keeps it alive, and the check must run
                continue
            if self.is_mixed and any(self._device(r) != self._device(position) for r in readers):
                continue
            if node.after and not self._keeps_user_order(node, readers):
                continue
            producer = self._producer(node, position, store, by_ref)
            if producer is not None:
                found[position] = by_ref[store.ref] = producer
        return found

    def _device(self, position: int) -> str:
        return self.table[ir.writes(self.kernels[position])[0].storage].device

    def _keeps_user_order(self, kernel: ir.Kernel, readers: Sequence[int]) -> bool:
        """Whether all readers of a kernel's result wait for what it waits for, so that the user's order is kept."""
        return bool(readers) and all(set(self.kernels[r].after).issuperset(kernel.after) for r in readers)

    def _producer(
        self, kernel: ir.Kernel, position: int, store: ir.Store, before: Mapping[ir.Ref, _Producer]
    ) -> _Producer | None:
        """The kernel as a candidate with its costs; None if its index cannot be solved for its axes."""
        if self._solved(store.index, kernel.axes, store.index, kernel.axes) is None:
            return None
        value = next(op.args[0] for op in kernel.body.ops if op.attrs is store)
        inner = [before[ref] for ref in self.reads[position] if ref in before and len(self.readers[ref]) == 1]
        added = len(kernel.body.ops) - 2  # all ops but its store and the load that it replaces
        return _Producer(kernel, position, store, value, added, inner)

    def _record_uses(self, position: int, stored: Expr | None, mine: _Uses, uses: dict[ir.Ref, _Uses]) -> None:
        """Records for the producers of a kernel's loads which elements the consumers of the kernel (`mine`) ask for.

        `stored` is the index of the kernel's store if it moves, else None. A load at this index asks for the element
        that the kernel's own users ask for. Any other load adds its index to the key of the element. Loads under a mask
        are never shared with those outside of it.
        """
        axes, inside = self.kernels[position].axes, self.inside.get(position)
        for load in self.loads[position]:
            if load.ref.storage not in self.writers:
                continue
            is_alone = inside is None and self._is_own(load, axes)
            users = uses.get(load.ref)
            if users is None:
                users = uses[load.ref] = _Uses()
            is_masked = inside is not None and load in inside
            step = (load.index, load.index) if is_masked else () if load.index == stored else (load.index,)
            for consumer, keys in mine.users.items():
                for key, was_alone in keys.items():
                    users.add(consumer, (*key, *step) if step else key, is_own=was_alone and is_alone)

    def _is_own(self, load: ir.Load, axes: tuple[ir.Axis, ...]) -> bool:
        """Whether it is plain that each point of these axes loads an element of its own."""
        key = load.index, axes, self.table[load.ref.storage].size
        if key not in self.own:
            self.own[key] = is_own(*key, self.hints)
        return self.own[key]

    def _refusal(self, producer: _Producer, uses: _Uses) -> str | None:
        """The reason why a producer must stay, shown to the user; None if it may move."""
        name = producer.store.ref.storage
        if name in self.known_refusals:
            return self.known_refusals[name]
        last = max(uses.users)
        for ref in self.reads[producer.position]:
            if self.overwriter.get(ref, last) < last:
                return f"{ref}, which it reads, is overwritten before the last use"
        checks = (op.attrs for op in producer.kernel.body.ops if isinstance(op.attrs, ir.Check))
        if any(not at_least(check.size, 1) for check in checks) and self._is_used_under_mask(producer):
            return "it is used under a mask, where an index into a dimension without elements cannot raise an error"
        copies = max(len(keys) for keys in uses.users.values())
        if copies > MAX_COPIES:
            return f"one consumer needs {copies} different elements of it at each point"
        if any(self.op_counts[consumer] + producer.ops * len(keys) > MAX_OPS for consumer, keys in uses.users.items()):
            return f"the consumer would have more than {MAX_OPS} operations"
        most = MAX_BUFFERS - len(self.storages[producer.position])  # of a consumer, if it touches none of the same
        wide = (consumer for consumer in uses.users if len(self.storages[consumer]) > most)
        if any(len(self._storages_with(producer, consumer)) > MAX_BUFFERS for consumer in wide):
            return f"the consumer would touch more than {MAX_BUFFERS} buffers"
        for consumer in uses.users if self.max_live_bytes else ():
            held = sum(
                buffer_bytes(self.table[other], self.hints) for other in self._intermediates_with(producer, consumer)
            )
            if held > self.max_live_bytes:
                limit = f"the limit is {self.max_live_bytes}"
                return f"a consumer would need {held} bytes of intermediate results at once; {limit}"
        return None

    # --- what recomputing costs

    def _verdict(self, producer: _Producer, uses: _Uses) -> _Verdict:
        """Whether recomputing a producer in its consumers takes no longer than storing its result."""
        storage = producer.store.ref.storage
        if len(uses.users) == 1 and self._are_own(uses, storage):
            return _Verdict("its only consumer uses each of its elements once", moves=True)
        whole = self._whole(producer)
        # as cheap to compute as to load: of nothing, or of no more bytes by an operation or two
        is_cheap = sum([work.operations for work in whole.work]) <= CHEAP
        is_cheap = is_cheap and _moved([whole]) <= 2 * sum([touch.size for touch in whole.touches if touch.is_store])
        if is_cheap and (len(whole.touches) == 1 or self._are_own(uses, storage)):
            return _Verdict("its value is as cheap to compute as to load", moves=True)
        is_index = self.table[storage].dtype.kind == "int"
        consumers = [self._shape(consumer) for consumer in uses.users]
        if more := _needs_more(whole, consumers, storage):
            return _Verdict("recomputing it would need more memory and operations", more)
        made = [inlined(shape, whole, storage, is_index=is_index) for shape in consumers]
        moved, figures = _moved(made), ""
        for kept in self._stored(whole, consumers, storage, made):
            # of ways that take nearly as long, the one that moves fewer bytes
            slower = self.prices.slower(made, kept, TIE if moved <= _moved(kept) else 1 / TIE)
            if slower is not None:
                return _Verdict(
                    f"recomputing it would need more {slower.needs}", slower.figures("recomputed", "stored")
                )
            figures = figures or self.prices.compared(made, kept).figures("recomputed", "stored")
        if not (producer.inner or is_index):  # the consumers then have these shapes
            self.shapes.update(zip(uses.users, made, strict=True))
            producer.is_read = True
        return _Verdict("recomputing it takes no longer than storing it", figures, moves=True)

    def _stored(
        self, producer: Shape, consumers: Sequence[Shape], storage: str, made: Sequence[Shape]
    ) -> Iterator[Sequence[Shape]]:
        """The kernels if a producer's result is stored; if `fuse` may fuse it with one of few consumers, for each.

        `made`: the consumers as they would recompute it.
        """
        size = next(touch.size for touch in producer.touches if touch.is_store)
        once = [n for n, shape in enumerate(consumers) if _is_used_once(shape, storage, size)][:MOST_PARTNERS]
        for n in once:
            yield [*consumers[:n], self.prices.and_stored(made[n], consumers[n], storage), *consumers[n + 1 :]]
        if not once:
            yield [producer, *consumers]

    def _are_own(self, uses: _Uses, storage: str) -> bool:
        """Whether each consumer loads each element of a producer's result once, at a point of its own, in one pass."""
        return all(uses.only_own(each) or _is_used_once(self._shape(each), storage) for each in uses.users)

    def _shape(self, consumer: int) -> Shape:
        """What decides the price of a consumer with the producers that have moved into it."""
        shape = self.shapes.get(consumer) or self.prices.shape(self.kernels[consumer])
        for producer in self.unread.pop(consumer, ()):
            shape = inlined(shape, self.prices.shape(producer.kernel), producer.store.ref.storage)
        self.shapes[consumer] = shape
        return shape

    def _whole(self, producer: _Producer) -> Shape:
        """What decides the price of a producer with the producers that only it uses."""
        pending = [producer]
        while pending:
            last = pending[-1]
            missing = [inner for inner in last.inner if inner.shape is None]
            if not missing:
                shape = self.prices.shape(last.kernel)
                for inner in last.inner:
                    assert inner.shape is not None
                    shape = inlined(shape, inner.shape, inner.store.ref.storage)
                last.shape = shape
                pending.pop()
            pending += missing
        assert producer.shape is not None
        return producer.shape

    def _is_used_under_mask(self, producer: _Producer) -> bool:
        """Whether a consumer, or a consumer that this one has moved into, loads the value under a mask."""
        pending = [producer.store.ref]
        while pending:
            ref = pending.pop()
            for position in self.readers.get(ref, ()):
                ops = self.kernels[position].body.ops
                regions = [op.attrs.body for op in ops if isinstance(op.attrs, ir.Masked)]
                if any(load.ref == ref for region in regions for load in ir.body_reads(region)):
                    return True
                if position in self.by_position:
                    pending.append(self.by_position[position].store.ref)
        return False

    def _note(self, producer: _Producer, verdict: _Verdict) -> None:
        """Adds a refusal for each reader of the producer."""
        name = producer.kernel.name
        for position in self.readers[producer.store.ref]:
            reader = self.kernels[position].name
            self.notes.append(ir.FusionRefusal("inline", name, reader, verdict.reason, verdict.figures))

    # --- the new bodies

    def build(self) -> dict[int, ir.Body]:
        """The new body of each kernel that stays and has a producer in it."""
        bodies: dict[int, ir.Body] = {}
        for position, node in enumerate(self.program.nodes):
            if not isinstance(node, ir.Kernel):
                continue
            used = [self.inlined[ref] for ref in self.reads[position] if ref in self.inlined]
            if not used:
                continue
            producer = self.by_position.get(position)
            depth = 1 + max(p.depth for p in used)
            if producer is not None and depth < MAX_DEPTH:
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

    def _spliced(self, kernel: ir.Kernel) -> ir.Body:
        """The body of a kernel with the bodies of its producers in place of the loads of their results."""
        extents = extents_of(kernel.axes)
        builder = Builder([axis.symbol for axis in kernel.axes], extents)
        asked: dict[Symbol, str] = {}  # a checked index -> the storage of the producer that is loaded at this index

        def load(b: Builder, wanted: ir.Load, dtype: DType) -> int | None:
            producer = self.inlined.get(wanted.ref)
            if producer is None:
                return b.load(wanted.ref, simplify(wanted.index, extents), dtype) if is_bent(wanted.index) else None
            mapping = self._point(producer, wanted.index, kernel.axes)
            if mapping is None:
                self.refusals[producer.store.ref.storage] = "it is not known which point computes a loaded element"
                return None
            asked.update({s: producer.store.ref.storage for s in free_symbols(wanted.index) if s.kind == "value"})
            places = b.splice(producer.kernel.body, mapping, load, effects=drop_effect)
            return places[producer.value]

        builder.splice(kernel.body, {}, load)
        whole = builder.build()
        body = prune_body(whole)
        for index in _failing_indices(whole) - _failing_indices(
            body
        ):  # the check is dead, since all elements of the producer are equal
            if index in asked:
                self.refusals[asked[index]] = "an index into it would no longer be checked"
        return body

    def _point(self, producer: _Producer, index: Expr, axes: tuple[ir.Axis, ...]) -> Mapping[Symbol, Expr] | None:
        """The producer's axes at the point that computes the element at `index`; None if that is not known."""
        if not producer.kernel.body.ops[producer.value].axes:
            return {}
        return self._solved(producer.store.index, producer.kernel.axes, index, axes)

    def _solved(
        self, index: Expr, axes: tuple[ir.Axis, ...], target: Expr, others: tuple[ir.Axis, ...]
    ) -> Mapping[Symbol, Expr] | None:
        """What `solve` says of a target in the `others`. Most kernels of a program ask the same few questions."""
        key = index, axes, target, others
        if key not in self.solved:
            self.solved[key] = solve(index, axes, target, extents_of(others))
        return self.solved[key]

    def _check_overwriting(self, kernel: ir.Kernel, body: ir.Body, used: list[_Producer]) -> None:
        """Refuses the producers of a kernel that overwrites what they read.

        An in-place write is legal if every read of the old value is of the element that is being written. An atomic
        write is not: several points may write the element. The kernel's own reads were legal before.
        """
        writes = [write for write in ir.body_writes(body) if write.ref.version]  # others overwrite nothing
        own = set(ir.body_reads(kernel.body)) if writes else ()
        for write in writes:
            old = ir.Ref(write.ref.storage, write.ref.version - 1)
            elsewhere = (
                load for load in ir.body_reads(body) if load.index != write.index or isinstance(write, ir.Atomic)
            )
            if any(load.ref == old and load not in own for load in elsewhere):
                self.refusals.update({p.store.ref.storage: f"its consumer overwrites {old}, its operand" for p in used})

    def finish(self, bodies: Mapping[int, ir.Body]) -> ir.Program:
        """The program with the new bodies and without the kernels that moved. Consumers take over their origins."""
        origins: dict[int, dict[int, None]] = {}  # of nodes that have more than their own
        nodes = list(self.program.nodes)
        for position, reads in enumerate(self.reads):
            used = [self.inlined[ref].position for ref in reads if ref in self.inlined]
            if used:
                mine = origins[position] = {position: None}
                for producer in used:
                    mine.update(origins.get(producer) or {producer: None})
        for position, body in bodies.items():
            node = nodes[position]
            assert isinstance(node, ir.Kernel)
            nodes[position] = replace(node, body=body, origins=self._origins(origins[position]))
        kept = tuple(node for position, node in enumerate(nodes) if position not in self.by_position)
        return with_nodes(replace(self.program, notes=(*self.program.notes, *self.notes)), kept)

    def _origins(self, positions: Mapping[int, None]) -> tuple[ir.Origin, ...]:
        """The origins of nodes, in program order, each once."""
        return tuple(dict.fromkeys(o for p in sorted(positions) for o in self.program.nodes[p].origins))


def _moved(shapes: Sequence[Shape]) -> int:
    """The bytes that kernels load and store, each element once in a kernel."""
    return sum([touch.size for shape in shapes for touch in shape.touches])


def _needs_more(producer: Shape, consumers: Sequence[Shape], storage: str) -> str:
    """The bytes and operations that recomputing takes more than storing, as text; "" if it may take less of either.

    No price is asked then. It is told of kernels only that walk through the producer's elements as the producer does;
    one of them may become one kernel with it.
    """
    (store,) = [touch for touch in producer.touches if touch.is_store]
    loads = [touch for touch in producer.touches if not touch.is_store]
    added: list[int] = []  # bytes that each consumer loads if it recomputes
    for shape in consumers:
        moved = [(touch.storage, touch.steps) for touch in shape.touches if not touch.is_store]
        is_alike = shape.extents == producer.extents and (storage, store.steps) in moved
        if not is_alike or not _is_used_once(shape, storage):
            return ""
        added.append(sum([load.size for load in loads if (load.storage, load.steps) not in moved]))
    memory = sum(added) - min(added[:MOST_PARTNERS]) - len(added) * store.size
    work = sum(work.operations * producer.points(work.axes) for work in producer.work)
    operations = (len(added) - 1) * (work - MOVED * producer.points(producer.every))
    return f"{memory} bytes and {operations:.0f} operations more" if memory > 0 < operations else ""


def _is_used_once(consumer: Shape, storage: str, size: int = 0) -> bool:
    """Whether a consumer loads elements of a storage once: each at a point of its own, in one pass.

    `size`: how many bytes of them there are at least.
    """
    uses = [touch for touch in consumer.touches if touch.storage == storage and touch.size >= size]
    if len(uses) != 1 or uses[0].drawn or uses[0].times * uses[0].passes != 1:
        return False
    points = consumer.points(consumer.every)
    return points == consumer.points(uses[0].axes) and points * uses[0].itemsize <= uses[0].size


def _failing_indices(body: ir.Body) -> set[Symbol]:
    """The index symbols whose check raises an error if they are out of range."""
    return {op.attrs.symbol for op in body.ops if isinstance(op.attrs, ir.Check) and op.attrs.error is not None}
