"""Programs whose floats are integers, so that every order of additions gives the same sums.

Takes a Program, scheduled or not, and gives one with the same ops at the same positions, where floats are int64. An op
that would round is another one that mixes integers as well. Sums and products wrap around, so they are exact. Refuses
complex numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from minductor.core.dtypes import BOOL, I64, DType
from minductor.ir.program import nodes as ir
from minductor.ir.program.build import Builder
from minductor.ir.program.ops import POINTWISE

EXACT = {
    *("neg", "abs", "sign", "square", "relu", "add", "sub", "mul", "maximum", "minimum", "where", "cast"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not"),
    *("isnan", "isinf", "signbit"),
}
# by the number of operands, what stands for an op that rounds
INSTEAD = {1: "bitwise_not", 2: "bitwise_xor", 3: "philox"}
LARGEST = (1 << 63) - 1


def as_integers(program: ir.Program) -> ir.Program:
    """The program with integers in place of floats."""
    return replace(
        program,
        buffers=tuple(_buffer(buffer) for buffer in program.buffers),
        nodes=tuple(_node(node) for node in program.nodes),
        outputs=_argument(program.outputs),  # type: ignore[arg-type]
        regions=tuple(as_integers(region) for region in program.regions),
    )


def as_integer_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of small random integers in place of floats, with equal strides."""
    generator = torch.Generator().manual_seed(len(tensors))
    made: list[Tensor] = []
    for tensor in tensors:
        if tensor.is_floating_point():
            numbers = torch.empty_strided(tensor.shape, tensor.stride(), dtype=torch.int64)
            tensor = numbers.copy_(torch.randint(-9, 10, tensor.shape, generator=generator))
        made.append(tensor.clone())
    return made


def _dtype(dtype: DType) -> DType:
    assert dtype.kind != "complex"
    return I64 if dtype.kind == "float" else dtype


def _buffer(buffer: ir.Buffer) -> ir.Buffer:
    return replace(buffer, dtype=_dtype(buffer.dtype))


def _node(node: ir.Node) -> ir.Node:
    match node:
        case ir.Kernel(body=body, variants=variants):
            made = tuple(
                replace(v, buffers=tuple(map(_buffer, v.buffers)), nodes=tuple(map(_node, v.nodes)))  # type: ignore[arg-type]
                for v in variants
            )
            return replace(node, body=_body(body), variants=made)
        case ir.Extern(args=args, kwargs=kwargs, results=results):
            named = tuple((name, _argument(value)) for name, value in kwargs)
            return replace(node, args=_argument(args), kwargs=named, results=_argument(results))  # type: ignore[arg-type]
        case ir.SymbolDef() | ir.Require():
            return node


def _argument(value: ir.Argument) -> ir.Argument:
    match value:
        case ir.View(dtype=dtype):
            return replace(value, dtype=_dtype(dtype))
        case tuple():
            return tuple(_argument(item) for item in value)
        case _:
            return value


def _body(body: ir.Body) -> ir.Body:
    return replace(body, ops=tuple(_op(op, [body.ops[a] for a in op.args]) for op in body.ops))


def _op(op: ir.Op, args: Sequence[ir.Op]) -> ir.Op:
    is_float = any(o.dtype is not None and o.dtype.kind == "float" for o in (op, *args))
    dtype = op.dtype and _dtype(op.dtype)
    match op.attrs:
        case ir.Constant(value):
            return replace(op, attrs=ir.Constant(_number(value)) if is_float else op.attrs, dtype=dtype)
        case ir.Masked(body, other):
            return replace(op, attrs=ir.Masked(_body(body), _number(other) if is_float else other), dtype=dtype)
        case ir.Reduce(combine=how) | ir.Scan(combine=how):
            return replace(op, attrs=replace(op.attrs, combine=_combine(how)), dtype=dtype)
        case ir.Round():
            return replace(op, name="bitwise_not", attrs=None, dtype=dtype)
        case None if is_float and op.name not in EXACT:
            name = INSTEAD[POINTWISE[op.name].arity]
            return replace(op, name="ne" if dtype == BOOL and len(args) == 2 else name, dtype=dtype)
        case _:
            return replace(op, dtype=dtype)


def _number(value: ir.LiteralValue) -> int:
    assert not isinstance(value, complex)
    if isinstance(value, float) and not abs(value) < LARGEST:
        return 0 if math.isnan(value) else LARGEST if value > 0 else -LARGEST
    return round(8 * value) if isinstance(value, float) and abs(value) < 1 else round(value)


def _combine(how: ir.Combine) -> ir.Combine:
    """The combine of integers. What rounds is added up instead: the other ops would not be associative."""
    count = len(how.identity)
    exact = all(op.attrs is not None or op.name in EXACT or op.dtype == BOOL for op in how.body.ops)
    if exact:
        kept = not any(op.dtype is not None and op.dtype.kind == "float" for op in how.body.ops)
        identity = how.identity if kept else tuple(_number(value) for value in how.identity)
        return replace(how, identity=identity, body=_body(how.body))
    b = Builder()
    given = [b.parameter(n, I64) for n in range(2 * count)]
    sums = [b.op("add", first, second) for first, second in zip(given[:count], given[count:], strict=True)]
    return replace(how, identity=(0,) * count, body=b.build(sums))
