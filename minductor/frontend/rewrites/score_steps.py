"""Reads attention scores that a program writes out: a product, and the steps between the product and its softmax.

Takes a node of a torch.fx graph and the Site. Gives a `Product`, and the `Step`s from the product to the node, each
a scale, an added mask or a fill. None for a node that is computed otherwise. Refuses nothing: whether a step can be
part of an attention is for the conditions of the row `attention`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.rewrite_row import Site

Number: TypeAlias = int | float
StepKind: TypeAlias = Literal["scale", "divide", "add", "subtract", "fill"]

SAME_VALUES = ("aten.contiguous", "aten.clone")
CASTS = ("aten.to", "aten._to_copy", "aten.type_as", "prims.convert_element_type")
RESHAPES = ("aten.view", "aten.reshape", "aten._unsafe_view", "aten.unsqueeze", "aten.squeeze", "aten.flatten")
RESHAPES += ("aten.unflatten", "aten.expand")
_PRODUCTS = ("aten.matmul", "aten.bmm", "aten.mm")


@dataclass(frozen=True, slots=True)
class Operand:
    """A factor of a product: `order` are the axes of the node in the order batch axes, rows, columns."""

    node: fx.Node
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two matrices for each batch index. `order` has the axes of the result as `Operand.order` does.

    `left` has the axes (..., rows, inner), `right` (..., columns, inner).
    """

    node: fx.Node
    left: Operand
    right: Operand
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What one call does to scores.

    Args:
        kind: "scale" and "divide" multiply and divide by `value`, "add" and "subtract" take a mask `value`, "fill" sets
            the scores to `value` where `mask` is true, or where it is false if `keeps` is set.
        value: a number, or a node.
        sizes: the sizes of the axes that the scores have here in front of queries and keys; they may be symbols.
        mask: the boolean node of a fill.
        keeps: whether a fill keeps the scores where the mask is true.
    """

    kind: StepKind
    value: Any
    sizes: tuple[Any, ...]
    mask: fx.Node | None = None
    keeps: bool = False

    @property
    def dims(self) -> int:
        """How many axes the scores have here."""
        return len(self.sizes) + 2


@dataclass(frozen=True, slots=True)
class Scores:
    """Attention scores: the product, the steps in the order of the program, and the nodes in between.

    `batch` are the sizes of the first two axes of scores with four axes, as a reshape of scores with three axes spells
    them: numbers or nodes; None if there is no such reshape.
    """

    product: Product
    steps: tuple[Step, ...]
    nodes: tuple[fx.Node, ...]
    batch: tuple[Any, Any] | None = None


def scores_of(given: object, reader: fx.Node, site: Site) -> Scores | None:
    """The scores that another node reads from `given`; None if they are not a product with steps behind it."""
    node = _written(given, reader, site)
    value = site.tensor(node)
    call = site.call(node)
    if value is None or call is None or not isinstance(node, fx.Node):
        return None
    if (product := product_of(node, site)) is not None:
        return _product_scores(product, call, tuple(value.shape[:-2]))
    for operand, step in _readings(call, tuple(value.shape[:-2]), site):
        inner = same_matrices(operand, value, call.op, site)
        if inner is None or (step is not None and inner.dim() != value.dim()):
            continue
        if (found := scores_of(operand, node, site)) is None:
            continue
        steps = found.steps if step is None else (*found.steps, step)
        batch = batch_sizes(call) if (inner.dim(), value.dim()) == (3, 4) else found.batch
        return Scores(found.product, steps, (*found.nodes, node), batch)
    return None


def _written(node: object, reader: fx.Node, site: Site) -> object:
    """The last call before a reader that writes to a node's value in place; the node itself if there is none."""
    if not isinstance(node, fx.Node):
        return node
    calls = {user: call for user in node.users if user < reader and (call := site.call(user)) is not None}
    return max((user for user, call in calls.items() if call.op.endswith("_") and call.first is node), default=node)


def _product_scores(product: Product, call: OperatorCall, sizes: tuple[Any, ...]) -> Scores:
    """The scores that a product gives; `baddbmm` scales the product and adds to it."""
    steps: list[Step] = []
    if call.op == "aten.baddbmm":
        alpha, beta = call.get("alpha", 1), call.get("beta", 1)
        steps += [Step("scale", alpha, sizes)] if alpha != 1 else []
        if beta != 0:
            steps += [Step("divide", beta, sizes)] if beta != 1 else []
            steps.append(Step("add", call.first, sizes))
            steps += [Step("scale", beta, sizes)] if beta != 1 else []
    return Scores(product, tuple(steps), (product.node,))


def same_matrices(operand: object, value: torch.Tensor, op: str, site: Site) -> torch.Tensor | None:
    """The value of what an operator reads, if the operator keeps the last two sizes and the number of elements."""
    inner = site.tensor(operand)
    if inner is None or inner.dim() < 2 or value.dim() < 2:
        return None
    is_kept = all(is_equal(inner.shape[d], value.shape[d]) for d in (-1, -2))
    if inner.dim() == value.dim():
        is_kept = is_kept and all(is_equal(a, b) for a, b in zip(inner.shape, value.shape, strict=True))
    elif op == "aten.expand":
        return None
    return inner if is_kept else None


def _readings(call: OperatorCall, sizes: tuple[Any, ...], site: Site) -> Iterator[tuple[object, Step | None]]:
    """The ways to read a call as a step: the operand that may be scores, and the step; None for no step."""
    op = call.op.removesuffix("_")
    arguments = list(call.arguments.values())
    if op in SAME_VALUES or op in CASTS or op in RESHAPES:
        yield call.first, None
    elif op == "aten.masked_fill":
        yield call.first, Step("fill", number_of(call.get("value"), site), sizes, call.get("mask"))
    elif op == "aten.where" and len(arguments) == 3:
        condition, one, other = (call.get(name) for name in ("condition", "self", "other"))
        yield one, Step("fill", number_of(other, site), sizes, condition, keeps=True)
        yield other, Step("fill", number_of(one, site), sizes, condition)
    elif op in ("aten.mul", "aten.div", "aten.add", "aten.sub") and len(arguments) == 2:
        kinds: dict[str, StepKind] = {"mul": "scale", "div": "divide", "add": "add", "sub": "subtract"}
        kind = kinds[op.removeprefix("aten.")]
        one, other = arguments
        yield one, Step(kind, number_of(other, site), sizes)
        if kind in ("scale", "add") and not call.op.endswith("_"):
            yield other, Step(kind, number_of(one, site), sizes)


def number_of(argument: object, site: Site) -> object:
    """The number that an argument is, also as a tensor that the graph makes of one number; else the argument."""
    call = site.call(argument)
    if call is None:
        return argument
    value = site.tensor(argument)
    if value is None or value.dim() != 0:
        return argument
    if call.op in CASTS:
        return inner if isinstance(inner := number_of(call.first, site), int | float) else argument
    given = {"aten.full": call.get("fill_value"), "aten.scalar_tensor": call.first, "aten.tensor": call.first}
    number = given.get(call.op)
    return number if isinstance(number, int | float) else argument


def batch_sizes(call: OperatorCall) -> tuple[Any, Any] | None:
    """The first two sizes to which a call reshapes, as the call spells them: numbers or nodes."""
    if call.op == "aten.unsqueeze":
        return {0: (1, -1), -4: (1, -1), 1: (-1, 1), -3: (-1, 1)}.get(call.get("dim"))
    sizes = call.get("size", call.get("shape"))
    if call.op == "aten.unflatten":
        sizes = call.get("sizes")
    if not isinstance(sizes, Sequence) or len(sizes) < 2:
        return None
    return sizes[0], sizes[1]


def product_of(node: fx.Node, site: Site) -> Product | None:
    """The product that a node computes, for each batch index one of matrices; None if it computes none."""
    call = site.call(node)
    if call is None:
        return None
    if call.op == "aten.einsum":
        return _einsum_product(node, call, site)
    if call.op not in (*_PRODUCTS, "aten.baddbmm"):
        return None
    left, right = list(call.arguments.values())[1:3] if call.op == "aten.baddbmm" else _two(call)
    a, b, value = site.tensor(left), site.tensor(right), site.tensor(node)
    if a is None or b is None or value is None or not a.dim() == b.dim() == value.dim() >= 2:
        return None
    axes = tuple(range(a.dim()))
    swapped = (*axes[:-2], axes[-1], axes[-2])
    return Product(node, Operand(left, axes), Operand(right, swapped), axes)


def _two(call: OperatorCall) -> tuple[Any, Any]:
    first, second, *_ = (*call.arguments.values(), None, None)
    return first, second


def _einsum_product(node: fx.Node, call: OperatorCall, site: Site) -> Product | None:
    """The product of an einsum of two operands that sums over one axis."""
    equation, operands = _two(call)
    if not isinstance(equation, str) or not isinstance(operands, Sequence) or len(operands) != 2:
        return None
    terms, arrow, result = equation.replace(" ", "").partition("->")
    a, comma, b = terms.partition(",")
    inner = [letter for letter in a if letter in b and letter not in result]
    rows = [letter for letter in a if letter not in b]
    columns = [letter for letter in b if letter not in a]
    batch = [letter for letter in a if letter in b and letter in result]
    if not arrow or not comma or not len(inner) == len(rows) == len(columns) == 1:
        return None
    wanted = {*batch, *rows, *columns}
    if wanted != set(result) or any(len(set(term)) != len(term) for term in (a, b, result)):
        return None
    left = tuple(a.index(letter) for letter in (*batch, *rows, *inner))
    right = tuple(b.index(letter) for letter in (*batch, *columns, *inner))
    order = tuple(result.index(letter) for letter in (*batch, *rows, *columns))
    if any(site.tensor(operand) is None for operand in operands):
        return None
    one, other = Operand(operands[0], left), Operand(operands[1], right)
    if order[-2] > order[-1] and order[-1] == len(order) - 2:  # the columns of the result are the second axis from last
        return Product(node, other, one, (*order[:-2], order[-1], order[-2]))
    return Product(node, one, other, order)


def is_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are equal for all calls; no guard is added to find out."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(a == b))


def is_finite(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)
