"""Lowers higher-order operators: operators whose arguments are graphs or other operators.

- cond, while_loop, invoke_subgraph, scan and map: their graphs become regions of the program, that is, programs of
  their own that every later stage compiles with the outer one. The operator becomes an extern call that runs them.
- auto_functionalized and auto_functionalized_v2, which wrap a custom operator that mutates arguments: the custom
  operator is called in place, on a copy if the old value is still needed.
- any other one (flex_attention, call_torchbind, with_effects, print, ...): an extern call that runs it in eager.

Takes a node whose operator is a higher-order one or a collective, and its arguments. Gives its results, as a rule does.
Refuses (UnsupportedInput) the user's Triton kernels, and writes through views that reach beyond their base.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

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

# operator that is meant to run in eager -> why; one that is not in this table runs in eager for want of a rule
REASONS: Mapping[str, str] = {
    "flex_attention": "attention with a user's score function is not compiled",
    "flex_attention_backward": "attention with a user's score function is not compiled",
    "run_and_save_rng_state": "random numbers are eager's, bit for bit",
    "run_with_rng_state": "random numbers are eager's, bit for bit",
    "with_effects": "the operator has a side effect that must keep its order",
    "print": "the operator prints",
    "call_torchbind": "the operator calls a method of a user's object",
    "out_dtype": "products of integers are left to the library",
    "auto_functionalized": "a custom operator",
    "auto_functionalized_v2": "a custom operator",
}


def call(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Lowers one collective, or one higher-order operator by its row in HANDLERS, else by a call that runs in eager."""
    if op.startswith(COLLECTIVE):
        return collectives.call(ctx, op, args, kwargs)
    handler = HANDLERS.get(op.removeprefix(HIGHER_ORDER))
    result = NotImplemented if handler is None else transact(ctx, lambda: handler(ctx, op, args, kwargs))
    return _in_eager(ctx, op, args, kwargs) if result is NotImplemented else result


def _in_eager(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """An extern call that runs the operator in eager, with its graph modules as arguments."""
    name = op.removeprefix(HIGHER_ORDER)
    if name.startswith("triton_kernel_wrapper"):
        raise UnsupportedInput(ctx.node.name, "a Triton kernel of the user, which minductor does not launch")
    if name not in REASONS and ctx.env.options.fallback == "error":
        raise FallbackRefused(op, "no rule for this operator", node=ctx.node.name)
    return _call(ctx, op, args, kwargs, REASONS.get(name, "no rule for this operator"), is_ordered=True)


def _call(
    ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value], why: str, *, is_ordered: bool
) -> Value:
    """An extern call that returns new tensors; gives its results nested as in the trace."""
    results, tree = new_results(ctx, ctx.node.meta)
    ctx.add_note(f"{op}: {why}")
    ctx.add_extern(op, args, kwargs, results, why, is_ordered=is_ordered)
    return tree


# --- graphs as regions --------------------------------------------------------------------------------------------


def _call_with_regions(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Lowers an operator that calls graphs: an extern call whose graphs are regions of the program.

    Refuses graphs that are called with anything but tensors and numbers, or that cannot be lowered.
    """
    if kwargs:
        return NotImplemented
    if op.removeprefix(HIGHER_ORDER) not in ("cond", "invoke_subgraph") and _takes_overlaps(ctx, args):
        return NotImplemented
    given = tuple([_region(ctx, a.name) if isinstance(a, Token) and a.kind == "external" else a for a in args])
    if any(isinstance(a, Token) or a is NotImplemented for a in given):
        return NotImplemented
    called = {a.name for a in given if isinstance(a, Region)}
    ordered = any(has_effect(region) for region in ctx.state.regions.values() if region.name in called)
    return _call(ctx, op, given, {}, "its graphs are compiled", is_ordered=ordered)


def _takes_overlaps(ctx: Lowering, args: Sequence[Value]) -> bool:
    """Whether a graph was traced with an expanded input, whose elements share memory.

    A later iteration of a loop may pass a tensor of another layout in its place.
    """
    called = {a.name for a in args if isinstance(a, Token)}
    metas = [given.meta for region in ctx.graph.regions if region.name in called for given in region.graph.inputs]
    return any(
        0 in meta.stride and any(s == 0 and n != 1 for n, s in zip(meta.size, meta.stride, strict=True))
        for meta in metas
        if isinstance(meta, TensorMeta)
    )


def _region(ctx: Lowering, name: str) -> Region:
    """A graph as a region of the program, lowered on its first use; NotImplemented if it cannot be lowered."""
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
    """Whether a program writes an input or a constant in place."""
    outside = {b.name for b in program.buffers if b.kind != "local"}
    return any(ref.storage in outside for node in program.nodes for ref in ir.writes(node))


def has_effect(program: Program) -> bool:
    """Whether a program or one of its regions has a side effect that must keep its order."""
    inner = any(has_effect(region) for region in program.regions)
    return inner or any(isinstance(node, Extern) and node.effect for node in program.nodes)


# --- custom operators that mutate their arguments -----------------------------------------------------------------


def _functionalized(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Lowers auto_functionalized: each argument that the operator mutates is passed, and its new value returned."""
    target = _operator(args)
    if target is None:
        return NotImplemented
    named = dict(kwargs)
    written = [name for name, _ in schemas.mutable_parameters(target) if named[name] is not None]
    raw = dict(ctx.node.kwargs)
    bases: dict[str, View] = {}
    for name in written:
        view, arg = named[name], raw[name]
        if not isinstance(view, View) or not isinstance(arg, NodeRef):
            return NotImplemented  # it mutates a list of tensors
        target_view = _mutable_tensor(ctx, view, arg)
        if target_view is None:
            return NotImplemented
        bases[name] = target_view
    named.update(bases)
    row = iter(bases.values())
    every = [next(row) if named[name] is not None else None for name, _ in schemas.mutable_parameters(target)]
    return _call_in_place(ctx, target, named, every)


def _functionalized_v2(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Lowers auto_functionalized_v2: each mutated storage is passed once (`_all_bases`), arguments as views of them."""
    target = _operator(args)
    if target is None or schemas.only_writes_results(target):
        return NotImplemented
    named = dict(kwargs)
    given, raw = named.pop("_all_bases"), dict(ctx.node.kwargs)["_all_bases"]
    assert isinstance(given, tuple) and isinstance(raw, tuple)
    bases: list[View | None] = []
    for view, arg in zip(given, raw, strict=True):
        made = _mutable_tensor(ctx, view, arg) if isinstance(view, View) and isinstance(arg, NodeRef) else None
        if made is None and view is not None:
            return NotImplemented
        bases.append(made)
    offsets = [as_expr(m.offset) if isinstance(m := ctx.traced_meta(a), TensorMeta) else integer(0) for a in raw]
    for name, is_list in schemas.mutable_parameters(target):
        if not is_list:
            named[name] = _argument_view(ctx, named, f"_{name}", bases, offsets)
            continue
        length = named.pop(f"_{name}_length")
        numbers = range(length) if isinstance(length, int) else ()
        items = tuple([_argument_view(ctx, named, f"_{name}_{n}", bases, offsets) for n in numbers])
        named[name] = items if isinstance(length, int) else None
    return _call_in_place(ctx, target, named, bases)


def _operator(args: Sequence[Value]) -> str | None:
    """The name of the wrapped operator; None if it is none of torch's."""
    (target,) = args
    return target.name if isinstance(target, Token) and target.kind == "operator" else None


def _argument_view(
    ctx: Lowering, named: dict[str, Value], prefix: str, bases: Sequence[View | None], offsets: Sequence[Expr]
) -> View | None:
    """The argument `prefix` as a view of its base; removes the entries `{prefix}_*` that describe it from `named`.

    torch does not record the view's dtype. A real view of a complex base would be read with the base's dtype and reach
    beyond its memory, so a view that does is refused.
    """
    number = named.pop(f"{prefix}_base_index")
    if not isinstance(number, int) or (base := bases[number]) is None:
        return None
    named.pop(f"{prefix}_alias", None)
    if f"{prefix}_storage_offset" in named:
        size, stride, (offset,) = (_exprs(named.pop(f"{prefix}_{p}")) for p in ("size", "stride", "storage_offset"))
        view = View(base.ref, base.dtype, size, stride, base.offset + offset - offsets[number])
        behind = view.offset + span(size, stride) - base.offset - span(base.size, base.stride)
        if at_least(behind, 1) and all(at_least(n, 1) for n in size):
            raise UnsupportedInput(ctx.node.name, "a mutation through a view of another dtype")
        return view
    if f"{prefix}_slice_dim" in named:
        dim = named.pop(f"{prefix}_slice_dim")
        (low,), (high,) = (_exprs(named.pop(f"{prefix}_slice_{p}")) for p in ("start", "end"))
        assert isinstance(dim, int)
        size = (*base.size[:dim], high - low, *base.size[dim + 1 :])
        return replace(base, size=size, offset=base.offset + low * base.stride[dim])
    return base


def _exprs(value: Value) -> tuple[Expr, ...]:
    """A number, or a tuple of them, as a tuple of expressions."""
    given = value if isinstance(value, tuple) else (value,)
    return tuple([as_expr(n) for n in given if isinstance(n, int | Expr)])


def _mutable_tensor(ctx: Lowering, view: View, arg: NodeRef) -> View | None:
    """The tensor that a mutating call may write: `view` itself if its old value is dead, else a copy.

    None if the elements do not fill their memory, because a copy would not have what lies between them.
    """
    if not _is_filled(view):
        return None
    if is_unwanted(ctx, view.ref.storage):
        return view
    meta = ctx.traced_meta(arg)
    assert isinstance(meta, TensorMeta)
    copy = ctx.buffer(view.dtype, view.size, view.stride)
    with ctx.with_single_result(meta):
        if ctx.is_computable(meta, (view,)):
            return ctx.map(lambda loop: loop.load(view), meta)
    ctx.add_extern("aten.clone.default", (view,), {}, (copy,), "the operator mutates a copy")
    return copy


def _is_filled(view: View) -> bool:
    """Whether a tensor's elements are known to fill its memory, in some order of the dimensions."""
    order = sorted(range(len(view.size)), key=lambda d: _sort_key(view.stride[d]), reverse=True)
    return is_row_major([view.size[d] for d in order], [view.stride[d] for d in order])


def _sort_key(stride: Expr) -> tuple[int, int]:
    """Sorts strides by size: known numbers first, then products of more symbols."""
    known = as_int(stride)
    return (0, known) if known is not None else (len(free_symbols(stride)), len(str(stride)))


def _call_in_place(ctx: Lowering, op: str, named: Mapping[str, Value], bases: Sequence[View | None]) -> Value:
    """Adds the in-place call; gives the operator's own results, then the bases after the call."""
    assert isinstance(ctx.node.meta, tuple)
    count = len(ctx.node.meta) - len(bases)
    why = schemas.reason_for_call(op)
    ctx.add_note(f"{op}: {why}")
    facts = schemas.operator_facts(op)
    assert facts is not None
    results = in_place(ctx, op, (), named, ctx.node.meta[:count] if facts.returned else (), why)
    return (*(results or (None,)), *(ctx.newest(base) for base in bases))


# higher-order operator -> its rule; these take the operator's name too
HANDLERS: Mapping[str, Callable[[Lowering, str, Sequence[Value], Mapping[str, Value]], Value]] = {
    "cond": _call_with_regions,
    "while_loop": _call_with_regions,
    "invoke_subgraph": _call_with_regions,
    "scan": _call_with_regions,
    "map_impl": _call_with_regions,
    "auto_functionalized": _functionalized,
    "auto_functionalized_v2": _functionalized_v2,
}
