"""Runs a rule, and takes back what it made where that cannot be.

Takes the lowering, a rule and its arguments. Gives the rule's value; or an extern call if the kernels would need what
the target's language has not (`Target.lacks`); or NotImplemented if the rule needs to know a number that is a symbol:
only one at the top of the arguments, since those in lists are sizes, which every rule takes; or if eager raises, as
a number is no element of the result, or the operator computes none of that dtype. Refuses what the rule refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from minductor.core.dtypes import DType
from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.expr import Expr
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.schemas import REFUSED_KINDS, element_numbers
from minductor.frontend.lowering_context.values import Value
from minductor.ir.program.nodes import Atomic, Body, Buffer, Kernel, Node, Reduce, Scan
from minductor.ir.program.signature import all_ops

if TYPE_CHECKING:
    from minductor.frontend.lower.lower import Lowering


def attempt(ctx: Lowering, rule: Callable[..., Value], args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """See above."""
    if not _can_hold(ctx, args, kwargs):
        return NotImplemented
    counts = (len(ctx.nodes), len(ctx.buffers), len(ctx.notes))
    versions, seed = dict(ctx.versions), ctx.seed
    reason = ""
    try:
        result = rule(ctx, *args, **kwargs)
    except UnsupportedInput:
        raise
    except (TypeError, ValueError, AssertionError):
        if not any(isinstance(a, Expr) for a in (*args, *kwargs.values())):
            raise
    else:
        lacks = ctx.env.target.lacks
        reason = missing(ctx.nodes[counts[0] :], {b.name: b for b in ctx.buffers}, lacks) if lacks else ""
        if not reason and result is not NotImplemented:
            return result
    del ctx.nodes[counts[0] :], ctx.buffers[counts[1] :], ctx.notes[counts[2] :]
    ctx.versions, ctx.seed = versions, seed
    return ctx.extern(ctx.node.op, args, kwargs, reason) if reason else NotImplemented


def _can_hold(ctx: Lowering, args: Sequence[Value], kwargs: Mapping[str, Value]) -> bool:
    """Whether the elements of the result can be what the operator computes, and the numbers that it is given."""
    meta = ctx.node.meta[0] if isinstance(ctx.node.meta, tuple) and ctx.node.meta else ctx.node.meta
    if not isinstance(meta, TensorMeta):
        return True
    if meta.dtype.kind in REFUSED_KINDS.get(ctx.node.op.split(".")[1], ()):
        return False
    given = (kwargs.get(name, args[n] if n < len(args) else None) for n, name in element_numbers(ctx.node.op))
    return all(_is_held(number, meta.dtype) for number in given if isinstance(number, int | float))


def _is_held(number: float, dtype: DType) -> bool:
    """
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
    """What kernels would need and the target's language does not have; "" if nothing."""
    for node in nodes:
        if isinstance(node, Kernel):
            for op, dtype in _named(node.body, buffers):
                if not lacks.isdisjoint((op, f"{op} {dtype}")):
                    return f"kernels of this target have no {op} of {dtype}"
    return ""


def _named(body: Body, buffers: Mapping[str, Buffer]) -> Iterator[tuple[str, str]]:
    """Each operator, in regions and in what joins values too, with the dtype of what it makes."""
    for op in all_ops(body):
        match op.attrs:
            case Atomic(ref, _, kind):
                yield f"atomic_{kind}", str(buffers[ref.storage].dtype)
            case Reduce(_, how) | Scan(_, how, _):
                yield op.name, str(op.dtype)
                yield from _named(how.body, buffers)
            case _:
                yield op.name, str(op.dtype)
