"""Relations between index expressions: comparisons, and their conjunction, disjunction and negation.

Takes: two expressions or ints; or relations.
Gives: interned `Rel` values in canonical form. A comparison that the symbols' ranges decide is `TRUE` or `FALSE`.
Refuses: the truth value of a relation, with TypeError: ask `bounds.is_proved`.

>>> from minductor.core.expressions.algebra import symbol
>>> x, y = symbol("x", "axis", 0, 7), symbol("y", "axis", 0, 7)
>>> str(lt(x, 8)), str(ge(x, y)), str(any_of(eq(x, y), negate(le(x, 3))))
('true', 'y <= x', '(3 < x) or (x == y)')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from minductor.core.expressions.algebra import Const, Expr, as_expr
from minductor.core.expressions.interning import Node, node

CompareOp: TypeAlias = Literal["==", "!=", "<", "<="]


class Rel(Node):
    """A relation between index expressions."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError(f"'{self}' has no truth value by itself: ask bounds.is_proved, or compare with `is not None`")

    @property
    def sort_key(self) -> tuple[Any, ...]:
        match self:
            case Compare(op, left, right):
                return 0, left.sort_key, right.sort_key, op
            case And(args) | Or(args):
                return 1 if isinstance(self, And) else 2, tuple(arg.sort_key for arg in args)
            case Not(arg):
                return 3, (arg.sort_key,)
            case _:
                return 4, type(self).__name__


class Compare(Rel):
    __slots__ = ("left", "op", "right")
    __match_args__ = ("op", "left", "right")
    op: CompareOp
    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


class _Junction(Rel):
    __slots__ = ("args",)
    __match_args__ = ("args",)
    args: tuple[Rel, ...]


class And(_Junction):
    __slots__ = ()

    def __str__(self) -> str:
        return " and ".join([f"({arg})" for arg in self.args])


class Or(_Junction):
    __slots__ = ()

    def __str__(self) -> str:
        return " or ".join([f"({arg})" for arg in self.args])


class Not(Rel):
    __slots__ = ("arg",)
    __match_args__ = ("arg",)
    arg: Rel

    def __str__(self) -> str:
        return f"not ({self.arg})"


class TrueRel(Rel):
    __slots__ = ()

    def __str__(self) -> str:
        return "true"


class FalseRel(Rel):
    __slots__ = ()

    def __str__(self) -> str:
        return "false"


TRUE = node(TrueRel)
FALSE = node(FalseRel)


def _truth(value: object) -> Rel:
    return TRUE if value else FALSE


def eq(a: Expr | int, b: Expr | int) -> Rel:
    a, b = as_expr(a), as_expr(b)
    low, high = (a - b).range
    if low is not None and low == high:
        return _truth(low == 0)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return FALSE
    if isinstance(a, Const) or (a.sort_key > b.sort_key and not isinstance(b, Const)):
        a, b = b, a
    return node(Compare, "==", a, b)


def ne(a: Expr | int, b: Expr | int) -> Rel:
    return negate(eq(a, b))


def lt(a: Expr | int, b: Expr | int) -> Rel:
    a, b = as_expr(a), as_expr(b)
    low, high = (a - b).range
    if high is not None and high < 0:
        return TRUE
    return FALSE if low is not None and low >= 0 else node(Compare, "<", a, b)


def le(a: Expr | int, b: Expr | int) -> Rel:
    a, b = as_expr(a), as_expr(b)
    low, high = (a - b).range
    if high is not None and high <= 0:
        return TRUE
    return FALSE if low is not None and low > 0 else node(Compare, "<=", a, b)


def gt(a: Expr | int, b: Expr | int) -> Rel:
    return lt(b, a)


def ge(a: Expr | int, b: Expr | int) -> Rel:
    return le(b, a)


def all_of(*rels: Rel) -> Rel:
    return _joined(And, rels, TRUE, FALSE)


def any_of(*rels: Rel) -> Rel:
    return _joined(Or, rels, FALSE, TRUE)


def _joined(cls: type[_Junction], rels: Iterable[Rel], neutral: Rel, decisive: Rel) -> Rel:
    """A conjunction or disjunction. `neutral` changes nothing in it, and `decisive` alone decides it."""
    flat: dict[Rel, None] = {}
    for rel in rels:
        flat.update(dict.fromkeys(rel.args if isinstance(rel, cls) else (rel,)))
    flat.pop(neutral, None)
    if decisive in flat:
        return decisive
    kept = tuple(sorted(flat, key=lambda rel: rel.sort_key))
    return node(cls, kept) if len(kept) > 1 else kept[0] if kept else neutral


def negate(rel: Rel) -> Rel:
    match rel:
        case Compare(op, left, right):
            match op:
                case "==":
                    return node(Compare, "!=", left, right)
                case "!=":
                    return node(Compare, "==", left, right)
                case "<":
                    return le(right, left)
                case "<=":
                    return lt(right, left)
        case Not(arg):
            return arg
        case TrueRel():
            return FALSE
        case FalseRel():
            return TRUE
        case _:
            return node(Not, rel)


def compare(op: CompareOp, a: Expr | int, b: Expr | int) -> Rel:
    return {"==": eq, "!=": ne, "<": lt, "<=": le}[op](a, b)


def rel_children(rel: Rel) -> tuple[Expr | Rel, ...]:
    """The expressions or relations that a relation is made of."""
    match rel:
        case Compare(_, left, right):
            return left, right
        case And(args) | Or(args):
            return args
        case Not(arg):
            return (arg,)
        case _:
            return ()
