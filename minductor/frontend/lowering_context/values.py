"""What rules compute with: views, numbers, coordinates, torch's type promotion.

Takes and gives plain data. Refuses operands that are neither tensors nor numbers.

>>> from minductor.core.dtypes import BF16, I64
>>> promoted([view_like(BF16, 2), view_like(I64, 2), 1.5]).name
'bf16'
>>> promoted([view_like(I64, 2), True, 1.5]).name
'f32'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from minductor.core.dtypes import BOOL, C32, C64, F16, F32, I64, DType, promote
from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.algebra import maximum, minimum
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, Symbol, as_expr, integer
from minductor.frontend.capture.argument_trees import leaves
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.schemas import operator_names
from minductor.frontend.capture.size_formulas import is_one, is_zero
from minductor.ir.program.nodes import Ref, Region, Token, View

Operand: TypeAlias = "View | Expr | bool | int | float | complex"
# what a node of the graph can stand for
Value: TypeAlias = "Operand | ComplexPair | Region | str | DType | Token | tuple[Value, ...] | None"
# rule(ctx, *args, **kwargs) lowers a call of an operator with these arguments to the value that it returns
Rule: TypeAlias = Callable[..., "Value"]
Coords: TypeAlias = Sequence[Expr]  # of an element, or the sizes of a domain


def rules_for(names: str, rule: Rule) -> dict[str, Rule]:
    """Rows of a table of rules: one for each ATen operator among the names, which blanks separate."""
    return dict.fromkeys(operator_names(names), rule)


@dataclass(frozen=True, slots=True)
class ComplexPair:
    """A complex tensor as two real tensors of its size: the real and the imaginary parts."""

    re: View
    im: View

    @property
    def dtype(self) -> DType:
        return promote(self.re.dtype, C32)


_RANK: Mapping[str, int] = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}


def dtypes_in(value: object) -> Iterator[DType]:
    """The dtypes in a tree of values or metadata: of tensors and complex numbers, and dtypes that are arguments."""
    for leaf in leaves(value):
        match leaf:
            case View() | TensorMeta() | ComplexPair():
                yield leaf.dtype
            case DType():
                yield leaf
            case complex():
                yield C64
            case _:
                pass


def views_in(value: Value) -> Iterator[View]:
    """Each tensor in a tree of values; of a `ComplexPair` both tensors."""
    for leaf in leaves(value):
        match leaf:
            case View():
                yield leaf
            case ComplexPair(re, im):
                yield from (re, im)
            case _:
                pass


def is_injective(view: View) -> bool:
    """Whether it is known that no two elements of a view share memory.

    That is so if each stride is larger than the span of the dimensions with smaller strides.
    """
    reach = integer(1)
    left = [(n, s) for n, s in zip(view.size, view.stride, strict=True) if not is_one(n)]
    while left:
        least = next((one for one in left if all(at_least(s - one[1], 0) for _, s in left)), None)
        if least is None or not at_least(least[1] - reach, 0):
            return False
        left.remove(least)
        reach = reach + (least[0] - 1) * least[1]
    return True


def element(view: View, coords: Sequence[Expr]) -> Expr:
    """The flat index of an element of a view, counted from the start of its storage."""
    index = view.offset
    for stride, coord in zip(view.stride, coords, strict=True):
        index = index + stride * coord
    return index


def broadcast(view: View, coords: Sequence[Expr]) -> tuple[Expr, ...]:
    """The coordinates at which an operand is read for the result's element at `coords`, by torch's broadcasting.

    Sizes are aligned from the right, and a size of 1 is read at 0. An index that a tensor gave stays: its bounds check
    would be lost with it.
    """
    zero = integer(0)
    tail = coords[len(coords) - len(view.size) :]
    pairs = zip(view.size, tail, strict=True)
    return tuple([zero if is_one(n) and not (isinstance(c, Symbol) and c.kind == "value") else c for n, c in pairs])


def wrap_dim(dim: int, rank: int) -> int:
    """The dimension counted from the start; a negative one counts from the end. A 0-dim tensor has one, as in torch.

    A dimension out of range, which torch's tracing does not always refuse, raises UnsupportedInput: eager then raises.
    """
    known = max(rank, 1)
    if not -known <= dim < known:
        raise UnsupportedInput("an argument", f"dimension {dim} of {known}")
    return dim % known


def wrap_dims(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Dimensions to reduce, in order; none given means all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    given = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted({wrap_dim(d, rank) for d in given})) if rank else ()


def wrap_index(index: Operand, size: Expr) -> Expr:
    """The index counted from the start; a negative one counts from the end. The sign of a symbol may be unknown."""
    assert isinstance(index, int | Expr)
    place = as_expr(index)
    if at_least(place, 0):
        return place
    if at_least(-place, 1):
        return place + size
    return place - size * minimum(maximum(place, -1), 0)


# --- type promotion -----------------------------------------------------------------------------------------------


def number_dtype(value: Operand) -> DType:
    """The dtype that a Python number stands for when nothing else decides."""
    match value:
        case bool() | Symbol(kind="truth"):
            return BOOL
        case float() | Symbol(kind="real"):
            return F32
        case int() | Expr():
            return I64
        case complex():
            return C64
        case View():
            return value.dtype


def promoted(operands: Iterable[Operand]) -> DType:
    """The result dtype by torch.result_type: tensors with dimensions decide, then 0-dim tensors, then Python numbers.

    A later group counts only if its category (bool < integer < floating < complex) is higher.
    """
    groups: list[DType | None] = [None, None, None]
    for operand in operands:
        place = 2 if not isinstance(operand, View) else 0 if operand.size else 1
        so_far, dtype = groups[place], number_dtype(operand)
        groups[place] = dtype if so_far is None else promote(so_far, dtype)
    result: DType | None = None
    for lower in reversed(groups):
        result = lower if result is None else result if lower is None else _promoted_groups(lower, result)
    if result is None:
        raise ValueError("nothing to promote")
    return result


def _promoted_groups(higher: DType, lower: DType) -> DType:
    """The promotion of two groups, of which the first one has priority."""
    rank = _RANK[higher.kind]
    if rank >= _RANK[lower.kind]:
        return higher
    if lower.kind == "complex" and higher.kind == "float":
        return C32 if higher == F16 else promote(higher, C64)
    return lower if rank < 2 else promote(higher, lower)


def view_like(dtype: DType, rank: int) -> View:
    """A view of that dtype and rank, of sizes that do not matter; for tests and examples."""
    ones = (integer(1),) * rank
    return View(Ref("x", 0), dtype, ones, ones, integer(0))


def is_zero_sized(view: View) -> bool:
    """Whether a tensor is known to have no elements."""
    return any(is_zero(n) for n in view.size)
