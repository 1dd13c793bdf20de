"""The rules of programs, one named check each. The driver checks them after each stage if option `verify` is set.

Takes a Program and the names of the stages that made it. Gives nothing. Refuses a program that breaks a rule with
VerifyError, which names the rule, the stage and the place. Later stages may rely on every rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from minductor.core.dtypes import DType, compute_dtype
from minductor.core.errors import VerifyError
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, Symbol, evaluate, free_symbols, integer
from minductor.ir.program import nodes as ir
from minductor.ir.program.aligned_rows import objection
from minductor.ir.program.blocks_apart import Part, blocks_apart
from minductor.ir.program.dots import find_dots
from minductor.ir.program.loops import Loop, Step, loops, positions
from minductor.ir.program.memory_access import BlockAccess
from minductor.ir.program.ops import POINTWISE, result_dtype
from minductor.ir.program.size_sources import size_source
from minductor.ir.program.variants import kernels_with_variants, select_variants, variant_choice

NAMES = "every op names an ATen node that its kernel comes from"
# A rule yields a sentence for each place in the program that breaks it.
Rule: TypeAlias = Callable[[ir.Program], Iterator[str]]


def verify(program: ir.Program, stages: Sequence[str]) -> None:
    """Checks each rule that holds after the `stages` that made the program; an error names the last of them."""
    for region in program.regions:
        verify(region, stages)
    options = {k.name: variant_choice(k).options for k in kernels_with_variants(program.nodes)}
    for number in range(max(map(len, options.values()), default=0)):
        picks = {name: str(each[min(number, len(each) - 1)]) for name, each in options.items()}
        verify(select_variants(program, picks), stages)
    for name, (since, rule) in VERIFIER_RULES.items():
        if since in stages:
            for fault in rule(program):
                raise VerifyError(stages[-1], name, fault)


def verify_names_kept(before: object, after: ir.Program, stage: str) -> None:
    """Refuses a stage that has lost all names of ATen nodes: after it the rule about them would hold of nothing.

    `before`: what the stage was given; a program that was read from text has no such names.
    """
    if isinstance(before, ir.Program) and not any(op.node for _, op in _ops_of(before)):
        return
    ops = [op for _, op in _ops_of(after)]
    if ops and not any(op.node for op in ops):
        raise VerifyError(stage, NAMES, "no op names any node")


def has_rules(stage: str) -> bool:
    """Whether there are rules that hold from this stage on."""
    return any(since == stage for since, _ in VERIFIER_RULES.values())


# --- programs -----------------------------------------------------------------------------------------------------


def _buffers_declared(program: ir.Program) -> Iterator[str]:
    known = {b.name for b in program.buffers}
    if len(known) != len(program.buffers):
        yield "two buffers have one name"
    for given in program.inputs:
        if given.symbol is None and given.name not in known:
            yield f"input {given.name} has no buffer"
    for node in program.nodes:
        for ref in (*ir.reads(node), *ir.writes(node), *ir.awaited_refs(node)):
            if ref.storage not in known:
                yield f"{ref} has no buffer"


def _defined_before_use(program: ir.Program) -> Iterator[str]:
    newest = {b.name: 0 for b in program.buffers if b.kind != "local"}
    for number, node in enumerate(program.nodes):
        for ref in ir.reads(node):
            now = newest.get(ref.storage, -1)
            if ref.version != now:
                yield f"node {number} reads {ref} while the storage holds {ref.storage}@{now}"
        for ref in ir.writes(node):
            if ref.version != newest.get(ref.storage, -1) + 1:
                yield f"node {number} makes {ref} after {ref.storage}@{newest.get(ref.storage, -1)}"
            newest[ref.storage] = ref.version
    for view in ir.views_of(program.outputs):
        if newest.get(view.ref.storage, -1) != view.ref.version:
            yield f"{view.ref} is returned and is not the last version"


def _waits_backwards(program: ir.Program) -> Iterator[str]:
    made: set[ir.Ref] = set()
    for number, node in enumerate(program.nodes):
        yield from (
            f"node {number} waits for {ref}, which no node before it makes" for ref in set(ir.awaited_refs(node)) - made
        )
        made.update(ir.writes(node))


def _own_objects(program: ir.Program) -> Iterator[str]:
    for number in [number for group in program.distinct_outputs for number in group]:
        if not (0 <= number < len(program.outputs) and isinstance(program.outputs[number], ir.View)):
            yield f"output {number} is in a group of distinct outputs and is no tensor"
        elif sum(number in group for group in program.distinct_outputs) > 1:
            yield f"output {number} is in two groups of distinct outputs"
    for group in program.distinct_outputs:
        if len({program.outputs[number] for number in group if number < len(program.outputs)}) > 1:
            yield f"outputs {group} are one group and differ"


def _laid_outputs(program: ir.Program) -> Iterator[str]:
    for number in program.fixed_stride_outputs:
        if not (0 <= number < len(program.outputs) and isinstance(program.outputs[number], ir.View)):
            yield f"output {number} has fixed strides and is no tensor"


def _names_unique(program: ir.Program) -> Iterator[str]:
    names = [node.name for node in program.nodes if isinstance(node, ir.Kernel | ir.Extern)]
    if len(set(names)) != len(names):
        yield "two nodes have one name"


def _nodes_have_origins(program: ir.Program) -> Iterator[str]:
    for number, node in enumerate(program.nodes):
        if not node.origins or not all(origin.node for origin in node.origins):
            yield f"node {number} comes from no ATen node"


def _ops_name_origins(program: ir.Program) -> Iterator[str]:
    """A program that was read from text breaks no such rule: its ops name no ATen node at all."""
    named = _ops_of(program)
    for kernel, op in named if any(op.node for _, op in named) else ():
        if not any(op.node == origin.node for origin in kernel.origins):
            yield f"{kernel.name}: {op.name} names {op.node or 'nothing'}, which is no origin of the kernel"


def _ops_of(program: ir.Program) -> list[tuple[ir.Kernel, ir.Op]]:
    """Each op, with its kernel."""
    return [(kernel, op) for kernel in _kernels(program) for op in ir.all_ops(kernel.body)]


def _regions_called(program: ir.Program) -> Iterator[str]:
    inner = {region.name: region for region in program.regions}
    if len(inner) != len(program.regions):
        yield "two regions have one name"
    for node in program.nodes:
        for given in node.args if isinstance(node, ir.Extern) else ():
            if not isinstance(given, ir.Region):
                continue
            if given.name not in inner:
                yield f"a call is given {given.name}, which is no region of this program"
            elif any(i.symbol is None for i in inner[given.name].inputs[: len(given.sizes)]):
                yield f"{given.name} is given {len(given.sizes)} sizes for inputs that are not all sizes"


def _symbols_declared(program: ir.Program) -> Iterator[str]:
    known, table = set(program.symbols), program.buffer_table()
    for node in program.nodes:
        made = ir.defined_symbols(node)
        for symbol in made:
            if symbol in known:
                yield f"symbol {symbol} is defined twice"
        if not isinstance(node, ir.SymbolDef):  # the sizes of a call's results mention the symbols that it defines
            known.update(made)
        used = ir.symbols_in(node.body) if isinstance(node, ir.SymbolDef) else ir.required_symbols(node, table)
        yield from (f"symbol {s} is used before it is defined" for s in used if _is_late(s, known))
        known.update(made)
    used = ir.symbols_in((program.outputs, program.inputs, program.guards))
    yield from (f"symbol {s} is used and never defined" for s in used if _is_late(s, known))


def _is_late(symbol: Symbol, known: set[Symbol]) -> bool:
    return symbol.kind in ir.CALL_SYMBOL_KINDS and symbol not in known


def _hints_in_range(program: ir.Program) -> Iterator[str]:
    for symbol, hint in program.hints:
        is_size = symbol in program.symbols and symbol.kind == "size"
        if not is_size or hint < (symbol.lo or 0) or (symbol.hi is not None and hint > symbol.hi):
            yield f"{hint} is the hint for {symbol}"


def _told_by_sizes(program: ir.Program) -> Iterator[str]:
    for node in program.nodes:
        if isinstance(node, ir.Extern):
            yield from (
                f"{node.name}: no size of a result gives {s}" for s in node.defines if size_source(node, s) is None
            )


def _scalars_stand_alone(program: ir.Program) -> Iterator[str]:
    """A float or bool symbol is never part of an expression: the algebra's laws hold for integers only."""
    for node in program.nodes:
        if all(s.kind not in ("real", "truth") for s in ir.symbols_in(node)):
            continue
        for expr in ir.expressions_in(node):
            if not isinstance(expr, Symbol):
                mixed = [s.name for s in free_symbols(expr) if s.kind in ("real", "truth")]
                yield from (f"{name} stands inside {expr}" for name in mixed)


# --- bodies -------------------------------------------------------------------------------------------------------


def _ops_well_formed(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        order = [axis.name for axis in kernel.axes]
        faults = _body(kernel.body, order, {}, _points(kernel), is_region=False)
        yield from (f"{kernel.name}: {fault}" for fault in faults)
        if not any(op.is_effect for op in kernel.body.ops):
            yield f"{kernel.name} has no effect"


def _points(kernel: ir.Kernel) -> dict[int, set[str]]:
    """By the position of each operation of a bundled kernel, the axes of its part; {} for other kernels."""
    schedule, found = kernel.schedule, dict[int, set[str]]()
    if schedule is None or not schedule.parts:
        return found
    for start, stop in pairwise((0, *schedule.parts, len(schedule.steps))):
        steps = schedule.steps[start:stop]
        axes = {loop.axis for loop in loops(steps)}
        axes.update(axis for position in positions(steps) for axis in kernel.body.ops[position].loop_axes)
        found |= dict.fromkeys(positions(steps), axes)
    return found


def _body(
    body: ir.Body,
    order: list[str],
    checks: dict[str, frozenset[str]],
    points: Mapping[int, set[str]] = MappingProxyType({}),
    *,
    is_region: bool,
) -> Iterator[str]:
    """Faults of operations. `points`: the axes whose points each operation runs at, if these are not all of `order`."""
    checks = dict(checks)
    for position, op in enumerate(body.ops):
        if any(a >= position or a < 0 for a in op.args):
            yield f"%{position} uses an op that does not stand before it"
            return
        if op.is_effect and is_region:
            yield f"%{position} is an effect inside a region"
        if isinstance(op.attrs, ir.Masked):
            yield from _body(op.attrs.body, order, checks, is_region=True)
        if fault := _dtype_fault(op, body):
            yield f"%{position} = {op.name}: {fault}"
        axes, unknown = _axes(op, body, checks)
        if isinstance(op.attrs, ir.Atomic) and op.attrs.kind in ("add", "mul"):
            axes |= points.get(position, set(order))  # each point of the kernel adds a term
        if unknown:
            yield f"%{position} uses symbol {unknown} that no check before it makes"
        expected = tuple(a for a in order if a in axes)
        if not isinstance(op.attrs, ir.Parameter) and op.axes != expected:
            yield f"%{position} = {op.name} says axes {op.axes}, and has {expected}"
        if isinstance(op.attrs, ir.Check):
            checks[op.attrs.symbol.name] = frozenset(op.axes)
        if not axes <= set(order):
            yield f"%{position} varies over {sorted(axes - set(order))}, which are no axes of the kernel"


def _axes(op: ir.Op, body: ir.Body, checks: Mapping[str, frozenset[str]]) -> tuple[set[str], str]:
    """The axes that an op must have, and the name of an undefined value symbol in it, or ""."""
    axes = {a for p in op.args for a in body.ops[p].axes}
    unknown = ""
    for expr in _indices(op):
        for symbol in free_symbols(expr):
            if symbol.kind == "axis":
                axes.add(symbol.name)
            elif symbol.kind == "value":
                axes |= checks.get(symbol.name, frozenset())
                unknown = "" if symbol.name in checks else symbol.name
    match op.attrs:
        case ir.Masked(inner, _):
            axes.update(a for o in inner.ops for a in o.axes)
        case ir.Reduce(over, _):
            axes -= set(over)
        case ir.Scan(axis, _, _):
            axes.add(axis)
        case _:
            pass
    return axes, unknown


def _indices(op: ir.Op) -> tuple[Expr, ...]:
    match op.attrs:
        case ir.Load(_, index) | ir.Store(_, index) | ir.Atomic(_, index, _):
            return (index,)
        case ir.Index(expr):
            return (expr,)
        case _:
            return ()


def _dtype_fault(op: ir.Op, body: ir.Body) -> str:
    dtypes = [body.ops[a].dtype for a in op.args]
    match op.attrs:
        case None if op.name not in ("cast", "bitcast"):
            if op.name not in POINTWISE:
                return "unknown operator"
            given = tuple(d for d in dtypes if d is not None)
            if len(given) != POINTWISE[op.name].arity:
                return f"takes {POINTWISE[op.name].arity} values"
            if op.dtype != result_dtype(op.name, given):
                return f"is {op.dtype}, and gives {result_dtype(op.name, given)}"
            same = given[1:] if op.name == "where" else given
            if len(set(same)) > 1:
                return f"takes values of one dtype, not {given}"
        case ir.Masked(inner, _) if inner.ops[inner.results[0]].dtype != op.dtype:
            return f"is {op.dtype}, and its region yields another dtype"
        case ir.Reduce(_, how) | ir.Scan(_, how, _) if len(how.identity) != len(op.args):
            return f"{how.name} carries {len(how.identity)} values"
        case ir.Project(number):
            of = body.ops[op.args[0]]
            if not isinstance(of.attrs, ir.Reduce | ir.Scan) or number >= len(of.args):
                return "has nothing to project from"
        case ir.Round() | ir.Constant() | ir.Load() | ir.Index() | ir.Check():
            return "" if op.dtype is not None else "is a value without a dtype"
        case _:
            pass
    return ""


def _views_of_their_kind(program: ir.Program) -> Iterator[str]:
    """Only kernels address a complex storage as real numbers; calls and outputs see complex ones."""
    kinds = {buffer.name: buffer.dtype.kind == "complex" for buffer in program.buffers}
    calls = [(n.args, tuple(v for _, v in n.kwargs), n.results) for n in program.nodes if isinstance(n, ir.Extern)]
    for view in ir.views_of((*program.outputs, *calls)):
        if (view.dtype.kind == "complex") != kinds.get(view.ref.storage):
            yield f"{view.ref} is passed as {view.dtype}"


def _stores_convert(program: ir.Program) -> Iterator[str]:
    table = program.real_table()
    for kernel in _kernels(program):
        for position, op in enumerate(kernel.body.ops):
            match op.attrs:
                case ir.Load(ref, _):
                    fault = _conversion(table[ref.storage].dtype, op.dtype)
                case ir.Store(ref, _) | ir.Atomic(ref, _, _):
                    fault = _conversion(table[ref.storage].dtype, kernel.body.ops[op.args[0]].dtype)
                case _:
                    fault = ""
            if fault:
                yield f"{kernel.name}: %{position} {fault}"


def _conversion(stored: DType, value: DType | None) -> str:
    if value in (stored, compute_dtype(stored)):
        return ""
    return f"has {value} for a buffer of {stored}"


def _limits(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        refs = {ref.storage for ref in (*ir.reads(kernel), *(w.ref for w in ir.body_writes(kernel.body)))}
        count = 1 + len(kernel.schedule.parts if kernel.schedule else ())
        if len(kernel.body.ops) > ir.MAX_OPS * count and len(kernel.origins) > 1:
            yield f"{kernel.name} has {len(kernel.body.ops)} ops, more than {ir.MAX_OPS}"
        if len(refs) > ir.MAX_BUFFERS * count and len(kernel.origins) > 1:
            yield f"{kernel.name} has {len(refs)} buffers, more than {ir.MAX_BUFFERS}"


def _scheduled(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        if kernel.schedule is None:
            yield f"{kernel.name} has no schedule"
            continue
        times = list(positions(kernel.schedule.steps))
        for position, op in enumerate(kernel.body.ops):
            if op.is_effect and times.count(position) != 1:
                yield f"{kernel.name}: the effect %{position} runs {times.count(position)} times"


def _masks_known_before(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        ops = kernel.body.ops
        for loop in loops(kernel.schedule.steps if kernel.schedule else ()):
            for position in loop.unmasked:
                is_mask = position in loop.body and isinstance(ops[position].attrs, ir.Masked)
                asked = ops[position].args[0] if is_mask else position
                if not is_mask or asked in positions(loop.body) or loop.axis in ops[asked].axes:
                    yield f"{kernel.name}: before the loop over {loop.axis} the mask of %{position} is not known"


def _rows_known_before(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        ops = kernel.body.ops
        for loop in loops(kernel.schedule.steps if kernel.schedule else ()):
            for position in loop.fetched:
                attrs = ops[position].attrs
                names = {s.name for s in free_symbols(attrs.index)} if isinstance(attrs, ir.Load) else {loop.axis}
                if position not in loop.body or loop.axis in names:
                    yield f"{kernel.name}: before the loop over {loop.axis} the row of %{position} is not known"


def _whole_blocks_kept_inside(program: ir.Program) -> Iterator[str]:
    """What a loop computes beyond the end of its axis has a place in arrays of a block only, and is not in memory."""
    for kernel in _kernels(program):
        for outer in loops(kernel.schedule.steps) if kernel.schedule else ():
            here = frozenset(positions(outer.body)) if outer.is_blocked else frozenset[int]()
            late = {a for p, op in enumerate(kernel.body.ops) if p not in here for a in op.args}
            for loop in loops(outer.body):
                if loop.is_whole and loop.axis == outer.axis and here and not late.isdisjoint(positions(loop.body)):
                    yield f"{kernel.name}: a loop over whole blocks of {loop.axis} computes what other loops read"
                inside = [kernel.body.ops[p] for p in positions(loop.body)] if loop.is_whole else []
                if any(isinstance(op.attrs, ir.Load | ir.Masked) and loop.axis in op.axes for op in inside):
                    yield f"{kernel.name}: a loop over whole blocks of {loop.axis} loads beyond the end of the axis"


def _cut_in_order(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        extents = {axis.name: axis.extent for axis in kernel.axes}
        for loop in loops(kernel.schedule.steps if kernel.schedule else ()):
            ends = (integer(0), *loop.cuts, extents[loop.axis])
            told = (*loop.cuts, *(() if loop.most is None else (loop.most,)))
            is_known = all(s.kind in ir.CALL_SYMBOL_KINDS for at in told for s in free_symbols(at))
            is_inside = all(at_least(ends[-1] - at, 0) for at in loop.cuts)
            is_turned = any(at_least(a - b, 1) for a, b in pairwise(ends))
            if not is_known or (loop.cuts and (is_turned or not is_inside)):
                yield f"{kernel.name}: the loop over {loop.axis} is cut at {', '.join(map(str, loop.cuts))}"


def _aligned_rows_whole(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        for step in kernel.schedule.steps if kernel.schedule else ():
            for loop in loops((step,)):
                if loop.aligned and (reason := objection(kernel, loop, (step,))):
                    yield f"{kernel.name}: the loop over {loop.axis}: {reason}"


def _loaded_ahead(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        for loop in (loop for loop in loops(kernel.schedule.steps if kernel.schedule else ()) if loop.stages):
            if loop.kind != "serial" or loop.block < 1 or loop.stages < 2:
                yield f"{kernel.name}: the loop over {loop.axis} has {loop.stages} stages and walks over no blocks"
            accesses = [kernel.body.ops[p].attrs for p in positions(loop.body)]
            written = {each.ref.storage: each.index for each in accesses if isinstance(each, ir.Store | ir.Atomic)}
            loads = (op.attrs for p in positions(loop.body) for op in ir.all_ops(ir.Body((kernel.body.ops[p],))))
            for load in loads:
                if isinstance(load, ir.Load) and load.index != written.get(load.ref.storage, load.index):
                    yield f"{kernel.name}: the loop over {loop.axis} loads {load.ref} ahead, which it writes"


def _dots_are_products(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        dots = kernel.schedule.dots if kernel.schedule else ()
        if not dots:
            continue
        found = find_dots(kernel)
        if found is None or set(dots) != set(found.reduces):
            yield f"{kernel.name}: {', '.join(f'%{p}' for p in dots)} are not its matrix products"


def _variants_agree(program: ir.Program) -> Iterator[str]:
    for kernel in kernels_with_variants(program.nodes):
        for variant in kernel.variants:
            own = {buffer.name for buffer in variant.buffers}
            made = {ref for node in variant.nodes for ref in ir.writes(node) if ref.storage not in own}
            read = {ref for node in variant.nodes for ref in ir.reads(node) if ref.storage not in own}
            if made != {*ir.writes(kernel)}:
                yield f"{kernel.name}: the variant {variant.name} makes {sorted(map(str, made))}"
            if not read <= {*ir.reads(kernel)}:
                yield f"{kernel.name}: the variant {variant.name} reads {sorted(map(str, read))}"


def _parts_apart(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        parts = kernel.schedule.parts if kernel.schedule else ()
        if kernel.schedule is None or not parts:
            continue
        bounds = (0, *parts, len(kernel.schedule.steps))
        if any(a >= b for a, b in pairwise(bounds)):
            yield f"{kernel.name} has parts that begin at {parts}"
        owner: dict[str, int] = {}
        for number, (start, stop) in enumerate(pairwise(bounds)):
            for loop in loops(kernel.schedule.steps[start:stop]):
                if owner.setdefault(loop.axis, number) != number:
                    yield f"{kernel.name}: two parts run over {loop.axis}"
        if not {*ir.writes(kernel)}.isdisjoint(ir.reads(kernel)):
            yield f"{kernel.name}: a part reads what another one writes"


def _finished_by_one(program: ir.Program) -> Iterator[str]:
    """Parts that finish a kernel are one program each, and they alone read what the kernel writes, in parts before."""
    for kernel in _kernels(program):
        if kernel.schedule is None or not kernel.schedule.finishing:
            continue
        bounds = (0, *kernel.schedule.parts, len(kernel.schedule.steps))
        parts = [kernel.schedule.steps[start:stop] for start, stop in pairwise(bounds)]
        first = len(parts) - kernel.schedule.finishing
        if first < 1:
            yield f"{kernel.name} has {len(parts)} parts, of which {kernel.schedule.finishing} finish it"
        extents = {axis.name: axis.extent for axis in kernel.axes}
        grid = [loop for part in parts[:first] for loop in loops(part) if loop.kind == "grid"]
        if not all(at_least(extents[loop.axis] - 1, 0) for loop in grid):
            yield f"{kernel.name} may have no program, and one finishes it"
        bodies = [ir.Body(tuple(kernel.body.ops[p] for p in positions(part))) for part in parts]
        late = {write.ref for body in bodies[first:] for write in ir.body_writes(body)}
        for number, (part, body) in enumerate(zip(parts, bodies, strict=True)):
            made = {*ir.writes(kernel)} if number < first else late
            if not {load.ref for load in ir.body_reads(body)}.isdisjoint(made):
                yield f"{kernel.name}: part {number} reads what no earlier part has written"
            for loop in loops(part) if number >= first else ():
                if loop.kind != "grid" or at_least(loop.block - extents[loop.axis], 0):
                    continue
                if not _is_block_apart(kernel, loop, parts):
                    yield f"{kernel.name}: part {number} is several programs, and one finishes the kernel"


def _is_block_apart(kernel: ir.Kernel, loop: Loop, parts: Sequence[tuple[Step, ...]]) -> bool:
    """Whether each block of a finishing part's loop needs only the block of the first part that it is counted with."""
    assert kernel.schedule is not None
    axes = {axis.name: axis for axis in kernel.axes}
    one, *others = [each for each in loops(parts[0]) if each.axis == kernel.schedule.finishing_blocks] or [None]
    if one is None or others or len(parts) != 2 or one.kind != "grid" or one.block != loop.block:
        return False
    first, last = (ir.Body(tuple(kernel.body.ops[p] for p in positions(part))) for part in parts)
    used = {each.ref.storage for each in (*ir.body_reads(first), *ir.body_writes(first))}
    if axes[one.axis].extent != axes[loop.axis].extent or any(w.ref.storage in used for w in ir.body_writes(last)):
        return False
    return blocks_apart(Part(first, axes[one.axis], kernel.axes), Part(last, axes[loop.axis], kernel.axes))


def _accessed(program: ir.Program) -> Iterator[str]:
    for kernel in _kernels(program):
        touching = [n for n, op in enumerate(kernel.body.ops) if isinstance(op.attrs, ir.Load | ir.Store | ir.Atomic)]
        outer = [a.position for a in kernel.access if not a.inside]
        if outer != touching:
            yield f"{kernel.name} has accesses of {outer}, not {touching}"


def _blocks_are_indices(program: ir.Program) -> Iterator[str]:
    """A block describes the same elements as the index; checked at a few points."""
    for kernel in _kernels(program):
        indices = dict(_touched(kernel.body))
        for access in kernel.access:
            index = indices.get(access.path)
            if index is None:
                yield f"{kernel.name} has an access at {access.path}, where nothing is touched"
            elif access.block is not None and not _is_index(access.block, index, kernel.axes):
                yield f"{kernel.name}: the block of {access.path} is not {index}"


def _hints_for_each_time(program: ir.Program) -> Iterator[str]:
    """Hints for the cache stand at loads and stores of a GPU; what will be read again is not to be evicted first."""
    for kernel in _kernels(program):
        steps = () if kernel.schedule is None else kernel.schedule.steps
        times = Counter(positions(steps))
        is_gpu = any(loop.kind == "grid" for loop in loops(steps))
        for access in kernel.access:
            if not access.evictions:
                continue
            attrs, place = kernel.body.ops[access.position].attrs, f"{kernel.name}: the access at {access.path}"
            if not is_gpu:
                yield f"{place} has a hint for a cache that takes none"
            elif not isinstance(attrs, ir.Load | ir.Store) or not access.is_plain:
                yield f"{place} has a hint, and is no plain load or store"
            elif len(access.evictions) != times[access.position]:
                yield f"{place} has {len(access.evictions)} hints, and runs {times[access.position]} times"
            elif "first" in access.evictions[:-1] or access.evictions[-1] == "last":
                yield f"{place} asks to be evicted {', '.join(access.evictions)}"


def _touched(body: ir.Body, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Expr]]:
    """The path and the index of each load and store; a path is as in `Access.path`."""
    for position, op in enumerate(body.ops):
        match op.attrs:
            case ir.Load(_, index) | ir.Store(_, index) | ir.Atomic(_, index, _):
                yield (*path, position), index
            case ir.Masked(inner, _):
                yield from _touched(inner, (*path, position))
            case _:
                pass


def _is_index(block: BlockAccess, index: Expr, axes: tuple[ir.Axis, ...]) -> bool:
    written = block.index({axis.name: axis.symbol for axis in axes})
    found = ir.symbols_in((index, written, axes))
    sizes = {s.name: max(s.lo or 0, 2 if s.hi is None else min(s.hi, 2)) for s in found if s.kind != "axis"}
    for thirds in range(4):
        at = {axis.name: (evaluate(axis.extent, sizes) - 1) * thirds // 3 for axis in axes}
        if evaluate(index, sizes | at) != evaluate(written, sizes | at):
            return False
    return True


def _kernels(program: ir.Program) -> Iterator[ir.Kernel]:
    return (node for node in program.nodes if isinstance(node, ir.Kernel))


# Each rule with the stage that makes it hold, a name in PIPELINE of pipeline.py, and its check.
VERIFIER_RULES: Mapping[str, tuple[str, Rule]] = {
    "every storage is declared": ("lower", _buffers_declared),
    "a version is made once, before its readers, and read before the next": ("lower", _defined_before_use),
    "a node waits only for versions that an earlier node makes": ("lower", _waits_backwards),
    "an output is in one group of distinct outputs, and a group is one view": ("lower", _own_objects),
    "outputs with fixed strides are tensors": ("lower", _laid_outputs),
    "no two nodes have the same name": ("lower", _names_unique),
    "every node comes from an ATen node": ("lower", _nodes_have_origins),
    NAMES: ("lower", _ops_name_origins),
    "a call names regions of its program and passes their sizes": ("lower", _regions_called),
    "a symbol is defined once, before its first use": ("lower", _symbols_declared),
    "a hint is in the range of a size that the caller supplies": ("lower", _hints_in_range),
    "each symbol that a call defines follows from a size of a result": ("lower", _told_by_sizes),
    "no index expression contains a float or bool symbol": ("lower", _scalars_stand_alone),
    "ops have valid arguments, dtypes and axes": ("lower", _ops_well_formed),
    "calls and outputs see a complex storage as complex": ("lower", _views_of_their_kind),
    "loads and stores convert between the dtypes of storage and computation": ("lower", _stores_convert),
    "a kernel stays small enough to compile": ("fuse", _limits),
    "each effect stands once in the schedule": ("schedule", _scheduled),
    "the masks that a loop leaves out are known before it begins": ("schedule", _masks_known_before),
    "a row that is fetched is known before its loop begins": ("schedule", _rows_known_before),
    "a loop over whole blocks computes what its block alone reads": ("schedule", _whole_blocks_kept_inside),
    "the cuts of a loop are in ascending order": ("schedule", _cut_in_order),
    "bulk and edges of an aligned row hold each element once": ("schedule", _aligned_rows_whole),
    "what a pipelined loop loads ahead, it does not write meanwhile": ("schedule", _loaded_ahead),
    "a matrix product of a schedule is a sum of products": ("schedule", _dots_are_products),
    "a variant writes what its kernel writes, and reads only what its kernel reads": ("split", _variants_agree),
    "the parts of a bundled kernel are independent": ("bundle", _parts_apart),
    "one program finishes a kernel, with what others have written": ("bundle", _finished_by_one),
    "each load and store has an access": ("access", _accessed),
    "a block of memory holds the elements of its index": ("access", _blocks_are_indices),
    "a hint for the cache stands for each time that an access runs": ("access", _hints_for_each_time),
}
