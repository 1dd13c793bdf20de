"""The operations of a tile as Triton expressions.

Takes operations and the texts of their arguments. Gives an expression for each. Refuses what Triton kernels do not
compute (Unwritable).

>>> from minductor.core.dtypes import F32
>>> literal(0.5, F32), literal(float("-inf"), F32)
('0.5', 'float("-inf")')
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from minductor.codegen.cpp import cpp_text
from minductor.codegen.operator_spelling import spell_triton
from minductor.core.dtypes import F8E5M2, TF32, DType
from minductor.core.errors import Unwritable
from minductor.core.expressions.algebra import Const, Symbol
from minductor.core.expressions.expr import Expr
from minductor.ir.program.nodes import Constant, Index, LiteralValue, Op, Round

TYPES: Mapping[str, str] = {
    "f32": "tl.float32",
    "f64": "tl.float64",
    "bf16": "tl.bfloat16",
    "f16": "tl.float16",
    "bool": "tl.int1",
    "f8e4m3fn": "tl.float8e4nv",
    "f8e5m2": "tl.float8e5",
    **{f"i{n}": f"tl.int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"tl.uint{n}" for n in (8, 16, 32, 64)},
}

WORDS = cpp_text.IndexWords("//", "tl.minimum", "tl.maximum")


def triton_type(dtype: DType) -> str:
    if dtype.name not in TYPES:
        raise Unwritable(f"Triton kernels do not compute in {dtype.name}")
    return TYPES[dtype.name]


def is_block_of_one(ops: Sequence[Op], op: Op, tile: Set[str]) -> bool:
    """Whether what an op stores is a block with one element: of the axes of the tile some were reduced, and the others
    are not its own.
    """
    todo, seen = [*op.args], set[int]()
    while todo and tile.isdisjoint(op.axes):
        position = todo.pop()
        if position in seen:
            continue
        seen.add(position)
        reduced = tile & {*ops[position].reduced_axes}
        if reduced and reduced != tile:
            return True
        todo += () if reduced else ops[position].args
    return False


def scanned(
    names: Sequence[str],
    values: Sequence[str],
    axis: int,
    function: str,
    *,
    is_reverse: bool,
    row: Sequence[str] | None,
) -> list[str]:
    """The lines of a scan along a dimension of a tile. `row`: the size and the shape of a block of one row.

    Triton 3.6 does not compile the scan of such a block as it is.
    """
    if row is not None:
        values, axis = [f"tl.reshape({value}, [{row[0]}])" for value in values], 0
    given = values[0] if len(values) == 1 else f"({', '.join(values)})"
    reverse = ", reverse=True" if is_reverse else ""
    line = f"{', '.join(names)} = tl.associative_scan({given}, {axis}, {function}{reverse})"
    return [line, *(f"{name} = tl.reshape({name}, {row[1]})" for name in names if row is not None)]


def literal(value: LiteralValue, dtype: DType) -> str:
    """A constant of a dtype, as Python writes it."""
    if isinstance(value, complex):
        raise Unwritable("Triton kernels do not compute in complex numbers")
    match dtype.kind:
        case "bool":
            return "True" if value else "False"
        case "float":
            number = float(value)
            return repr(number) if math.isfinite(number) else f'float("{number}")'
        case _:
            return str(int(value))


def arguments(op: Op, ops: Sequence[Op], names: Sequence[str] | Mapping[int, str]) -> list[str]:
    """The arguments of an operation: names, and constants as text.

    Beside a tensor, a Python number takes the tensor's dtype. Beside other numbers, a number with a point is a float32.
    Any other constant must name its dtype.
    """
    found = [ops[a] for a in op.args]
    values = [o for o in found[op.name == "where" :] if not isinstance(o.attrs, Constant)]
    says_dtype = bool(values) or (op.name == "where" and op.dtype is not None and op.dtype.name == "f32")
    is_bare = says_dtype and op.attrs is None and op.name not in ("cast", "bitcast") and is_open(op, found)
    return [
        _constant(o.attrs.value, o.dtype, is_bare=is_bare) if isinstance(o.attrs, Constant) and o.dtype else names[a]
        for a, o in zip(op.args, found, strict=True)
    ]


def is_open(op: Op, args: Sequence[Op]) -> bool:
    """Whether an operation is written with operators, and not as a call of a function that requires tensors."""
    dtype = args[-1].dtype
    text = "" if dtype is None else spell_triton(op.name, dtype, *("x" for _ in args))
    return "libdevice." not in text and "md_" not in text


def _constant(value: LiteralValue, dtype: DType, *, is_bare: bool) -> str:
    text = literal(value, dtype)
    if not is_bare:
        return f"tl.full([], {text}, {triton_type(dtype)})"
    return f"({text})" if text.startswith("-") else text


def expression(op: Op, args: Sequence[str], dtypes: Sequence[DType]) -> str:
    """The value of an operation that does not access memory."""
    assert op.dtype is not None
    match op.attrs:
        case Index(expr):
            wide = index_text(expr)
            return wide if isinstance(expr, Symbol) and expr.kind in ("real", "truth") else _whole(wide, expr)
        case Round(dtype) if dtype == TF32:
            return args[0]  # an optional rounding, which only matrix units do
        case Round(dtype):
            return f"{narrowed(args[0], dtype)}.to(tl.float32)"
        case _:
            pass
    if op.name == "cast":
        return cast(args[0], dtypes[0], op.dtype)
    if op.name == "bitcast":
        return f"{args[0]}.to({triton_type(op.dtype)}, bitcast=True)"
    text = spell_triton(op.name, dtypes[-1], *args)
    if not text:
        raise Unwritable(f"Triton has no {op.name} of {dtypes[-1]}")
    return text


def narrowed(value: str, dtype: DType) -> str:
    """A float32 value as a narrower float, rounded as in eager."""
    return f"md_to_f8e5m2({value})" if dtype == F8E5M2 else f"{value}.to({triton_type(dtype)})"


def is_narrow(dtype: DType) -> bool:
    """Whether kernels compute in float32 what memory holds in fewer bits."""
    return dtype.kind == "float" and dtype.itemsize < 4


def cast(value: str, old: DType, new: DType) -> str:
    """A value as another dtype."""
    if new.kind == "bool":
        return f"{value} != 0"
    if old.kind == "float" and new.kind == "uint" and new.itemsize < 8:
        return f"{value}.to(tl.int64).to({triton_type(new)})"  # negative values wrap around
    return f"{value}.to({triton_type(new)})"


def _whole(text: str, expr: Expr) -> str:
    """An index as a 64-bit value. An index without an axis is a Python number, or a scalar."""
    if isinstance(expr, Const):
        return f"tl.full([], {text}, tl.int64)"
    return f"{text if text.isidentifier() else f'({text})'}.to(tl.int64)"


def index_text(expr: Expr) -> str:
    """An index expression over axes, sizes and checked indices."""
    return cpp_text.index_text(expr, WORDS)
