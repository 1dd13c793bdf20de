"""Higher-order operators: calls that are given graphs, and calls of operators that write their arguments.

Takes a node whose operator is one, and its arguments. Gives its results, as a rule does. Three ways, best first:

- `cond`, `while_loop`, `invoke_subgraph`, `scan` and `map`: the graphs become regions of the program, programs of their
  own that every stage compiles with the outer one;
- `auto_functionalized`: the operator is called in place, on a copy where the old value is still wanted;
- anything else is called in eager where it stands, with the graph modules themselves.

Refuses kernels of Triton, which no CPU runs, and windows that reach behind the memory that an operator writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from minductor.core.errors import FallbackRefused, UnsupportedInput
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr, as_int, free_symbols, integer
from minductor.frontend.capture import schemas
from minductor.frontend.capture.captured_graph import COLLECTIVE, HIGHER_ORDER, NodeRef, TensorMeta
from minductor.frontend.capture.size_formulas import is_row_major, span
from minductor.frontend.lowering_context.extern_calls import in_place, new_results
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.overwriting import is_unwanted
from minductor.frontend.lowering_context.rule_transaction import transact
from minductor.frontend.lowering_context.values import Value
from minductor.frontend.rules import collectives
from minductor.ir.program import nodes as ir
from minductor.ir.program.nodes import Extern, Program, Region, Token, View

# Operators that are meant to run in eager, with the reason; any other one does so because it is not known here.
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "flex_attention": "attention with a user's score function has no kernel of ours",
        "flex_attention_backward": "attention with a user's score function has no kernel of ours",
        "run_and_save_rng_state": "random numbers are eager's, bit for bit",
        "run_with_rng_state": "random numbers are eager's, bit for bit",
        "with_effects": "its order among other effects is all that it says",
        "print": "it prints",
        "call_torchbind": "a method of the user's object",
        "out_dtype": "products of integers are the library's",
        "auto_functionalized": "a custom operator",
        "auto_functionalized_v2": "a custom operator",
    }
)


def call(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """What `Lowering` does with a higher-order operator, or a collective."""
    if op.startswith(COLLECTIVE):
        return collectives.call(ctx, op, args, kwargs)
    handler = HANDLERS.get(op.removeprefix(HIGHER_ORDER))
    result = NotImplemented if handler is None else transact(ctx, lambda: handler(ctx, op, args, kwargs))
    return _in_eager(ctx, op, args, kwargs) if result is NotImplemented else result


def _in_eager(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    name = op.removeprefix(HIGHER_ORDER)
    if name.startswith("triton_kernel_wrapper"):
        raise UnsupportedInput(ctx.node.name, "a kernel of Triton, which the CPU does not run")
    if name not in REASONS and ctx.env.options.fallback == "error":
        raise FallbackRefused(op, "no rule for this operator", node=ctx.node.name)
    return _called(ctx, op, args, kwargs, REASONS.get(name, "no rule for this operator"), is_ordered=True)


def _called(
    ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value], why: str, *, is_ordered: bool
) -> Value:
    """An extern call that gives new tensors, with its results in the tree that the tracer saw."""
    results, tree = new_results(ctx, ctx.node.meta)
    ctx.add_note(f"{op}: {why}")
    ctx.add_extern(op, args, kwargs, results, why, is_ordered=is_ordered)
    return tree


# --- graphs as regions --------------------------------------------------------------------------------------------


def _control(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """An operator that calls its graphs with tensors and integers only."""
    if kwargs:
        return NotImplemented
    if op.removeprefix(HIGHER_ORDER) not in ("cond", "invoke_subgraph") and _takes_overlaps(ctx, args):
        return NotImplemented
    given = tuple([_region(ctx, a.name) if isinstance(a, Token) and a.kind == "external" else a for a in args])
    if any(isinstance(a, Token) or a is NotImplemented for a in given):
        return NotImplemented
    called = {a.name for a in given if isinstance(a, Region)}
    ordered = any(has_effect(region) for region in ctx.state.regions.values() if region.name in called)
    return _called(ctx, op, given, {}, "its graphs are compiled", is_ordered=ordered)


def _takes_overlaps(ctx: Lowering, args: Sequence[Value]) -> bool:
    """Whether a graph was traced with elements that share memory, which those of a later round need not do."""
    called = {a.name for a in args if isinstance(a, Token)}
    metas = [given.meta for region in ctx.graph.regions if region.name in called for given in region.graph.inputs]
    return any(
        0 in meta.stride and any(s == 0 and n != 1 for n, s in zip(meta.size, meta.stride, strict=True))
        for meta in metas
        if isinstance(meta, TensorMeta)
    )


def _region(ctx: Lowering, name: str) -> Region:
    """A graph as a region of the program, lowered when it is first met; NotImplemented if that cannot be."""
    found = next((region for region in ctx.graph.regions if region.name == name), None)
    if found is None:
        return NotImplemented
    if name not in ctx.state.regions:
        try:
            program = ctx.lower_subgraph(found.graph, ctx.env)
        except UnsupportedInput:
            return NotImplemented
        if is_writing(program):
            return NotImplemented
        ctx.state.guards += program.guards
        ctx.state.regions[name] = replace(program, name=name, guards=())
    return Region(name, found.sizes)


def is_writing(program: Program) -> bool:
    """Whether a program changes a tensor that it was given."""
    outside = {b.name for b in program.buffers if b.kind != "local"}
    return any(ref.storage in outside for node in program.nodes for ref in ir.writes(node))


def has_effect(program: Program) -> bool:
    """Whether a program does something that has a place among other effects."""
    inner = any(has_effect(region) for region in program.regions)
    return inner or any(isinstance(node, Extern) and node.effect for node in program.nodes)


# --- operators that write -----------------------------------------------------------------------------------------


def _functionalized(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """auto_functionalized: each argument that the operator writes is given as a tensor, and comes back changed."""
    target = _operator(args)
    if target is None:
        return NotImplemented
    named = dict(kwargs)
    written = [name for name, _ in schemas.mutable(target) if named[name] is not None]
    raw = dict(ctx.node.kwargs)
    bases: dict[str, View] = {}
    for name in written:
        view, arg = named[name], raw[name]
        if not isinstance(view, View) or not isinstance(arg, NodeRef):
            return NotImplemented  # a list of tensors
        target_view = _overwritten(ctx, view, arg)
        if target_view is None:
            return NotImplemented
        bases[name] = target_view
    named.update(bases)
    row = iter(bases.values())
    every = [next(row) if named[name] is not None else None for name, _ in schemas.mutable(target)]
    return _call_in_place(ctx, target, named, every)


def _functionalized_v2(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """auto_functionalized_v2: the storages that the operator writes are given once, and its arguments as views."""
    target = _operator(args)
    if target is None or schemas.is_out(target):
        return NotImplemented
    named = dict(kwargs)
    given, raw = named.pop("_all_bases"), dict(ctx.node.kwargs)["_all_bases"]
    assert isinstance(given, tuple) and isinstance(raw, tuple)
    bases: list[View | None] = []
    for view, arg in zip(given, raw, strict=True):
        made = _overwritten(ctx, view, arg) if isinstance(view, View) and isinstance(arg, NodeRef) else None
        if made is None and view is not None:
            return NotImplemented
        bases.append(made)
    offsets = [as_expr(m.offset) if isinstance(m := ctx.traced_meta(a), TensorMeta) else integer(0) for a in raw]
    for name, is_list in schemas.mutable(target):
        if not is_list:
            named[name] = _window(ctx, named, f"_{name}", bases, offsets)
            continue
        length = named.pop(f"_{name}_length")
        parts = range(length) if isinstance(length, int) else ()
        items = tuple([_window(ctx, named, f"_{name}_{n}", bases, offsets) for n in parts])
        named[name] = items if isinstance(length, int) else None
    return _call_in_place(ctx, target, named, bases)


def _operator(args: Sequence[Value]) -> str | None:
    (target,) = args
    return target.name if isinstance(target, Token) and target.kind == "operator" else None


def _window(
    ctx: Lowering, named: dict[str, Value], prefix: str, bases: Sequence[View | None], offsets: Sequence[Expr]
) -> View | None:
    """The view of a base that an argument is; takes what describes it out of the arguments.

    Torch notes no dtype of it: a view of complex numbers as real ones reaches behind their memory here.
    """
    number = named.pop(f"{prefix}_base_index")
    if not isinstance(number, int) or (base := bases[number]) is None:
        return None
    named.pop(f"{prefix}_alias", None)
    if f"{prefix}_storage_offset" in named:
        size, stride, (offset,) = (_row(named.pop(f"{prefix}_{p}")) for p in ("size", "stride", "storage_offset"))
        view = View(base.ref, base.dtype, size, stride, base.offset + offset - offsets[number])
        behind = view.offset + span(size, stride) - base.offset - span(base.size, base.stride)
        if at_least(behind, 1) and all(at_least(n, 1) for n in size):
            raise UnsupportedInput(ctx.node.name, "a write through a view of another dtype")
        return view
    if f"{prefix}_slice_dim" in named:
        dim = named.pop(f"{prefix}_slice_dim")
        (low,), (high,) = (_row(named.pop(f"{prefix}_slice_{p}")) for p in ("start", "end"))
        assert isinstance(dim, int)
        size = (*base.size[:dim], high - low, *base.size[dim + 1 :])
        return replace(base, size=size, offset=base.offset + low * base.stride[dim])
    return base


def _row(value: Value) -> tuple[Expr, ...]:
    """A size, or some, as a row of expressions."""
    row = value if isinstance(value, tuple) else (value,)
    return tuple([as_expr(n) for n in row if isinstance(n, int | Expr)])


def _overwritten(ctx: Lowering, view: View, arg: NodeRef) -> View | None:
    """The tensor that a call may write in place of `arg`: itself if nobody wants its old value, else a copy."""
    if not _is_filled(view):
        return None  # a copy would not hold what lies in the gaps
    if is_unwanted(ctx, view.ref.storage):
        return view
    meta = ctx.traced_meta(arg)
    assert isinstance(meta, TensorMeta)
    copy = ctx.buffer(view.dtype, view.size, view.stride)
    with ctx.with_single_result(meta):
        if ctx.is_computable(meta, (view,)):
            return ctx.map(lambda loop: loop.load(view), meta)
    ctx.add_extern("aten.clone.default", (view,), {}, (copy,), "the operator writes a copy")
    return copy


def _is_filled(view: View) -> bool:
    """Whether a tensor's elements fill its memory, in some order of its dimensions; unknown counts as no."""
    order = sorted(range(len(view.size)), key=lambda d: _rank(view.stride[d]), reverse=True)
    return is_row_major([view.size[d] for d in order], [view.stride[d] for d in order])


def _rank(stride: Expr) -> tuple[int, int]:
    known = as_int(stride)
    return (0, known) if known is not None else (len(free_symbols(stride)), len(str(stride)))


def _call_in_place(ctx: Lowering, op: str, named: Mapping[str, Value], bases: Sequence[View | None]) -> Value:
    """The call, and the values it leaves: the operator's own results, then the bases after the write."""
    assert isinstance(ctx.node.meta, tuple)
    count = len(ctx.node.meta) - len(bases)
    why = schemas.reason(op)
    ctx.add_note(f"{op}: {why}")
    facts = schemas.facts(op)
    assert facts is not None
    own = in_place(ctx, op, (), named, ctx.node.meta[:count] if facts.returned else (), why)
    return (*(own or (None,)), *(ctx.newest(base) for base in bases))


# --- the table ----------------------------------------------------------------------------------------------------

HANDLERS: Mapping[str, Callable[[Lowering, str, Sequence[Value], Mapping[str, Value]], Value]] = MappingProxyType(
    {
        "cond": _control,
        "while_loop": _control,
        "invoke_subgraph": _control,
        "scan": _control,
        "map_impl": _control,
        "auto_functionalized": _functionalized,
        "auto_functionalized_v2": _functionalized_v2,
    }
)
