"""Lowers a node by its rule as a transaction: what the rule made is kept as a whole, or undone as a whole.

Takes the lowering, a rule and the arguments of the current node. Gives the node's value: the rule's, or that of an
extern call where the rule cannot be used. Refuses what the rule refuses (UnsupportedInput).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from minductor.core.dtypes import DType
from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.expr import Expr
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.schemas import REFUSED_KINDS, element_numbers
from minductor.frontend.lowering_context.extern_calls import extern
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Value
from minductor.ir.program.nodes import Atomic, Body, Buffer, Kernel, Node, Reduce, Scan, all_ops


def transact(ctx: Lowering, work: Callable[[], Value]) -> Value:
    """Returns `work()`. If that is NotImplemented, or raises, `ctx.state` is as it was before."""
    before, result = ctx.state.snapshot(), NotImplemented
    try:
        result = work()
    finally:
        if result is NotImplemented:
            ctx.state.restore(before)
    return result


def lower_by_rule(
    ctx: Lowering, rule: Callable[..., Value], args: Sequence[Value], kwargs: Mapping[str, Value]
) -> Value:
    """Returns the rule's value, or the result of an extern call of the same operator, with a note of the reason.

    The node becomes a call if the rule returns NotImplemented, if eager would raise, if the target's language lacks
    an operator that the rule's kernels need (`Target.lacks`), if results must be deterministic and those of its kernels
    are not, or if the rule needs to know a number that is a symbol.
    """
    op, reason = ctx.node.op, ""

    def work() -> Value:
        nonlocal reason
        start = len(ctx.state.nodes)
        result = rule(ctx, *args, **kwargs)
        reason = missing(ctx.state.nodes[start:], ctx.state.buffers, ctx.env.target.lacks)
        if not reason and ctx.env.target.is_gpu and ctx.env.options.deterministic:
            reason = unordered(ctx.state.nodes[start:], ctx.state.buffers)
        return NotImplemented if reason else result

    result: Value = NotImplemented
    if _can_hold(ctx, args, kwargs):
        try:
            result = transact(ctx, work)
        except UnsupportedInput:
            raise
        except (TypeError, ValueError, AssertionError):
            # A rule computes with Python numbers. Symbols in lists are sizes, which every rule takes.
            if not any(isinstance(a, Expr) for a in (*args, *kwargs.values())):
                raise
    return extern(ctx, op, args, kwargs, reason) if result is NotImplemented else result


def _can_hold(ctx: Lowering, args: Sequence[Value], kwargs: Mapping[str, Value]) -> bool:
    """Whether eager computes this operator in the result's dtype, and that dtype holds the numbers that it is given."""
    meta = ctx.node.meta[0] if isinstance(ctx.node.meta, tuple) and ctx.node.meta else ctx.node.meta
    if not isinstance(meta, TensorMeta):
        return True
    if meta.dtype.kind in REFUSED_KINDS.get(ctx.node.op.split(".")[1], ()):
        return False
    given = (kwargs.get(name, args[n] if n < len(args) else None) for n, name in element_numbers(ctx.node.op))
    return all(_is_held(number, meta.dtype) for number in given if isinstance(number, int | float))


def _is_held(number: float, dtype: DType) -> bool:
    """Whether a number can be an element of that dtype, by eager's rules.

    >>> from minductor.core.dtypes import F32, U8
    >>> _is_held(1e40, F32), _is_held(math.inf, F32), _is_held(256, U8), _is_held(-1, U8)
    (False, True, False, True)
    """
    if dtype.kind in ("bool", "complex"):
        return True
    if math.isnan(number) or math.isinf(number):
        return dtype.kind == "float"
    lowest = -dtype.max_value if dtype.kind == "uint" else dtype.min_value  # -1 may stand for all bits set
    return lowest <= (number if dtype.kind == "float" else int(number)) <= dtype.max_value


def missing(nodes: Iterable[Node], buffers: Mapping[str, Buffer], lacks: frozenset[str]) -> str:
    """The operator that kernels among the nodes need and the target's language lacks, for the user; "" if none."""
    for node in nodes if lacks else ():
        if isinstance(node, Kernel):
            for op, dtype in _named(node.body, buffers):
                if not lacks.isdisjoint((op, f"{op} {dtype}")):
                    return f"kernels of this target have no {op} of {dtype}"
    return ""


def unordered(nodes: Iterable[Node], buffers: Mapping[str, Buffer]) -> str:
    """What makes results of kernels for a GPU depend on which program comes first, for the user; "" if nothing does.

    Sums and products of floating-point numbers are rounded, and of values that are stored to one element, one stays.
    """
    for node in nodes:
        for op in all_ops(node.body) if isinstance(node, Kernel) else ():
            if isinstance(op.attrs, Atomic):
                dtype, kind = buffers[op.attrs.ref.storage].dtype, op.attrs.kind
                if kind == "set" or (kind in ("add", "mul") and dtype.kind == "float"):
                    return (
                        f"its programs would write one element of {dtype} in any order; results must be deterministic"
                    )
    return ""


def _named(body: Body, buffers: Mapping[str, Buffer]) -> Iterator[tuple[str, str]]:
    """Each operator with the dtype of its result, also in nested bodies and in the bodies of reductions and scans."""
    for op in all_ops(body):
        match op.attrs:
            case Atomic(ref, _, kind):
                yield f"atomic_{kind}", str(buffers[ref.storage].dtype)
            case Reduce(_, how) | Scan(_, how, _):
                yield op.name, str(op.dtype)
                yield from _named(how.body, buffers)
            case _:
                yield op.name, str(op.dtype)
