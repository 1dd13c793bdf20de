"""The nodes of index expressions, and their sums, products, minimum and maximum.

Takes: integers and symbols that carry a kind and a range.
Gives: interned, immutable nodes in canonical form. A constructor applies only laws that hold for every value that the
symbols' ranges allow, so `==` compares structure and usually proves equality. `str` prints a node.
Refuses: anything that is not an integer or an expression, with TypeError.

The operators `//` and `%` of `Expr` are in `division`; import from `expr`, which offers everything.

>>> x, y = symbol("x", "axis", 0, 7), symbol("y", "axis", 0, 3)
>>> str(4 * (x + 1) + y)
'4*x + y + 4'
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from minductor.core.expressions import intervals
from minductor.core.expressions.interning import TABLE, Node, intern, node
from minductor.core.expressions.intervals import Range

# "axis": the index of a loop. "size": an integer known once per call. "value": an integer that a kernel loads or
# computes. "block": the block size of an axis. "real", "truth": a float and a bool known once per call; no expression
# contains them.
Kind: TypeAlias = Literal["axis", "size", "value", "block", "real", "truth"]
Factors: TypeAlias = "tuple[Expr, ...]"
Terms: TypeAlias = "tuple[tuple[Expr, int], ...]"


class Expr(Node):
    __slots__ = ("_key", "_range")
    _key: tuple[Any, ...]
    _range: Range

    def __add__(self, other: Expr | int) -> Expr:
        return _plus(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Expr | int) -> Expr:
        return _plus(self, other, -1)

    def __rsub__(self, other: Expr | int) -> Expr:
        return _plus(scaled(self, -1), other, 1)

    def __neg__(self) -> Expr:
        return scaled(self, -1)

    def __mul__(self, other: Expr | int) -> Expr:
        return scaled(self, other) if isinstance(other, int) else _times(self, as_expr(other))

    __rmul__ = __mul__

    def __str__(self) -> str:
        return self.text(0)

    def text(self, level: int) -> str:
        """The printed expression: at level 0 any expression, at level 1 a factor, at level 2 an atom."""
        raise TypeError(f"not an index expression: {type(self).__name__}")

    if TYPE_CHECKING:
        # A constant equals its int.
        def __eq__(self, other: object, /) -> bool: ...
        def __hash__(self) -> int: ...

        # `division` is written in terms of this class and adds the operators to it.
        def __floordiv__(self, other: Expr | int, /) -> Expr: ...
        def __rfloordiv__(self, other: Expr | int, /) -> Expr: ...
        def __mod__(self, other: Expr | int, /) -> Expr: ...
        def __rmod__(self, other: Expr | int, /) -> Expr: ...

    @property
    def range(self) -> Range:
        """The interval that follows from the ranges of the symbols; `bounds.interval` finds tighter ones."""
        try:
            return self._range
        except AttributeError:
            self._range = range_from(self, _symbol_range, _by_range)
            return self._range

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """A key that orders expressions by their structure: constants, products, symbols, then the others."""
        try:
            return self._key
        except AttributeError:
            self._key = _sort_key(self)
            return self._key


class Const(Expr):
    """An integer constant; it equals its int and has the same hash."""

    __slots__ = ("value",)
    __match_args__ = ("value",)
    value: int

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and other == self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def text(self, level: int) -> str:
        return f"({self.value})" if self.value < 0 and level else str(self.value)


class Symbol(Expr):
    __slots__ = ("hi", "kind", "lo", "name")
    __match_args__ = ("name", "kind", "lo", "hi")
    name: str
    kind: Kind
    lo: int | None
    hi: int | None

    def text(self, level: int) -> str:
        return self.name


class Sum(Expr):
    """``const + sum(coefficient * term)``: terms are sorted, none is a Const or a Sum, and no coefficient is zero."""

    __slots__ = ("const", "terms")
    __match_args__ = ("const", "terms")
    const: int
    terms: Terms

    def text(self, level: int) -> str:
        text = ""
        for term, coefficient in self.terms:
            size = abs(coefficient)
            sign = (" - " if coefficient < 0 else " + ") if text else ("-" if coefficient < 0 else "")
            text += sign + (term.text(1 if sign == "-" else 0) if size == 1 else f"{size}*{term.text(1)}")
        text += f" - {-self.const}" if self.const < 0 else f" + {self.const}" if self.const else ""
        return f"({text})" if level else text


class _Many(Expr):
    """A node over a sorted tuple of at least two arguments."""

    __slots__ = ("args",)
    __match_args__ = ("args",)
    args: Factors


class Product(_Many):
    """A product of at least two factors, which may repeat and of which none is a Const."""

    __slots__ = ()

    @property
    def factors(self) -> Factors:
        return self.args

    def text(self, level: int) -> str:
        text = "*".join([factor.text(1) for factor in self.args])
        return f"({text})" if level > 1 else text


class Min(_Many):
    __slots__ = ()

    def text(self, level: int) -> str:
        return f"min({', '.join([arg.text(0) for arg in self.args])})"


class Max(_Many):
    __slots__ = ()

    def text(self, level: int) -> str:
        return f"max({', '.join([arg.text(0) for arg in self.args])})"


class _Division(Expr):
    __slots__ = ("den", "num")
    __match_args__ = ("num", "den")
    num: Expr
    den: Expr


class FloorDiv(_Division):
    __slots__ = ()

    def text(self, level: int) -> str:
        text = f"{self.num.text(2)}//{self.den.text(2)}"
        return f"({text})" if level else text


class Mod(_Division):
    __slots__ = ()

    def text(self, level: int) -> str:
        text = f"{self.num.text(2)} % {self.den.text(2)}"
        return f"({text})" if level else text


class Identity(Expr):
    """Its argument as one unit: no rule simplifies across it."""

    __slots__ = ("arg",)
    __match_args__ = ("arg",)
    arg: Expr

    def text(self, level: int) -> str:
        return f"identity({self.arg.text(0)})"


def constant(value: int) -> Const:
    return node(Const, value)


def _sum(const: int, terms: Terms) -> Sum:
    # The code of `node`, repeated here for speed: most nodes are sums.
    key = (Sum, const, terms)
    entry = TABLE.get(key)
    if entry is not None:
        found = entry()
        if found is not None:
            return found
    made = object.__new__(Sum)
    made.const = const
    made.terms = terms
    return intern(key, made)


# Constructors: the only way to make a node. The classes themselves expect fields in canonical form.


def integer(value: int) -> Expr:
    return constant(int(value))


def symbol(name: str, kind: Kind, lo: int | None = 0, hi: int | None = None) -> Symbol:
    return node(Symbol, name, kind, lo, hi)


def index_below(name: str, kind: Kind, bound: Expr) -> Symbol:
    """The symbol of an index in [0, bound). Its range has no upper end if the bound is not a number."""
    known = as_int(bound)
    return symbol(name, kind, 0, None if known is None else max(known - 1, 0))


def as_expr(value: Expr | int) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may not be typed
        return constant(int(value))
    raise TypeError(f"an index expression is made of ints and Exprs, not {type(value).__name__}")


def is_natural(expr: Expr) -> bool:
    """Whether the ranges of an expression's symbols prove that it is at least zero."""
    low = expr.range[0]
    return low is not None and low >= 0


def as_int(expr: Expr | int) -> int | None:
    """The value of a constant, else None."""
    if isinstance(expr, Const):
        return expr.value
    return expr if isinstance(expr, int) else None


def add(*args: Expr | int) -> Expr:
    acc: dict[Expr, int] = {}
    return from_terms(sum(collect_into(acc, as_expr(arg), 1) for arg in args), acc)


def mul(*args: Expr | int) -> Expr:
    result: Expr = constant(1)
    for arg in args:
        result = result * arg
    return result


def minimum(*args: Expr | int) -> Expr:
    return _extreme(Min, args, 1)


def maximum(*args: Expr | int) -> Expr:
    return _extreme(Max, args, -1)


def identity(a: Expr | int) -> Expr:
    a = as_expr(a)
    return a if isinstance(a, (Const, Symbol, Identity)) else node(Identity, a)


# Sums.


def _by_term(item: tuple[Expr, int]) -> tuple[Any, ...]:
    return item[0].sort_key


def from_terms(const: int, acc: Mapping[Expr, int]) -> Expr:
    items = [item for item in acc.items() if item[1]]
    if len(items) > 1:
        items.sort(key=_by_term)
    return from_sorted(const, tuple(items))


def from_sorted(const: int, terms: Terms) -> Expr:
    if not terms:
        return constant(const)
    if const == 0 and len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    return _sum(const, terms)


def collect_into(acc: dict[Expr, int], expr: Expr, factor: int) -> int:
    """Adds the terms of ``factor * expr`` to acc, and returns the constant of that product."""
    if isinstance(expr, Sum):
        for term, coefficient in expr.terms:
            acc[term] = acc.get(term, 0) + factor * coefficient
        return factor * expr.const
    if isinstance(expr, Const):
        return factor * expr.value
    acc[expr] = acc.get(expr, 0) + factor
    return 0


def _plus(a: Expr, b: Expr | int, sign: int) -> Expr:
    kind = type(b)
    if kind is Const or isinstance(b, int):
        n = sign * (b.value if isinstance(b, Const) else cast(int, b))
        const, terms = const_and_terms(a)
        return from_sorted(const + n, terms) if n else a
    if type(a) is Const:
        return _plus(scaled(b, sign), a, 1)
    if kind is Sum:
        const, terms = const_and_terms(a)
        acc = dict(terms)
        return from_terms(const + collect_into(acc, b, sign), acc)
    return _with_term(a, as_expr(b), sign)


def _with_term(a: Expr, term: Expr, coefficient: int) -> Expr:
    if isinstance(a, Sum):
        const, terms = a.const, a.terms
    else:
        const, terms = 0, ((a, 1),)
    for place, (other, present) in enumerate(terms):
        if other is term:
            coefficient += present
            new = ((term, coefficient),) if coefficient else ()
            return from_sorted(const, terms[:place] + new + terms[place + 1 :])
    key = term.sort_key
    place = len(terms)
    while place and terms[place - 1][0].sort_key > key:
        place -= 1
    return _sum(const, (*terms[:place], (term, coefficient), *terms[place:]))


def scaled(a: Expr, n: int) -> Expr:
    if n == 1:
        return a
    if n == 0 or type(a) is Const:
        return constant(n * a.value if type(a) is Const else 0)
    if type(a) is Sum:
        return from_sorted(n * a.const, tuple([(term, n * coefficient) for term, coefficient in a.terms]))
    return _sum(0, ((a, n),))


def const_and_terms(expr: Expr) -> tuple[int, Terms]:
    """An expression as a constant and pairs (term, coefficient), whose sum it is.

    >>> x = symbol("x", "axis")
    >>> const_and_terms(4 * x + 3) == (3, ((x, 4),)), const_and_terms(x) == (0, ((x, 1),))
    (True, True)
    """
    if isinstance(expr, Sum):
        return expr.const, expr.terms
    if isinstance(expr, Const):
        return expr.value, ()
    return 0, ((expr, 1),)


# Products.


def factors_of(term: Expr) -> Factors:
    return term.args if isinstance(term, Product) else (term,)


def _by_sort_key(expr: Expr) -> tuple[Any, ...]:
    return expr.sort_key


def product_of(factors: Iterable[Expr]) -> Expr:
    args = sorted(factors, key=_by_sort_key)
    if len(args) > 1:
        return node(Product, tuple(args))
    return args[0] if args else constant(1)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const):
        return scaled(b, a.value)
    if isinstance(b, Const):
        return scaled(a, b.value)
    if isinstance(b, Sum) and not isinstance(a, Sum):
        a, b = b, a
    if isinstance(a, Sum):
        if len(a.terms) == 1 and a.const == 0:
            return scaled(_times(a.terms[0][0], b), a.terms[0][1])
        if isinstance(b, Sum) and len(b.terms) == 1 and b.const == 0:
            return scaled(_times(a, b.terms[0][0]), b.terms[0][1])
        if any(isinstance(factor, Sum) for factor in factors_of(b)):
            return _times_sums(a, b)
        return distribute(a, b)
    return product_of((*factors_of(a), *factors_of(b)))


def distribute(a: Expr, b: Expr) -> Expr:
    """a * b, multiplied out; no term of a or b may be a product of sums."""
    acc: dict[Expr, int] = {}
    const, right = const_and_terms(b)
    total = collect_into(acc, a, const)
    offset, left = const_and_terms(a)
    for term, coefficient in right:
        acc[term] = acc.get(term, 0) + offset * coefficient
        for other, factor in left:
            product = product_of((*factors_of(other), *factors_of(term)))
            acc[product] = acc.get(product, 0) + factor * coefficient
    return from_terms(total, acc)


def _times_sums(a: Sum, b: Expr) -> Expr:
    """The product of a sum and an expression with a sum among its factors; it is not multiplied out.

    The common factors of each sum become factors of the product: without this, (x*y + x)*(z + 1) had two forms.
    """
    factors: list[Expr] = []
    scale = 1
    for arg in (a, *factors_of(b)):
        if isinstance(arg, Sum):
            coefficient, common, rest = content(arg)
            scale *= coefficient
            factors += [*common, rest]
        else:
            factors.append(arg)
    return scaled(product_of(factors), scale)


def content(expr: Expr) -> tuple[int, Factors, Expr]:
    """The greatest common integer of the terms, their common factors, and the expression divided by both.

    The first coefficient of the quotient is positive.

    >>> x, y = symbol("x", "axis"), symbol("y", "axis")
    >>> [str(part) for part in content(-2 * x * y - 4 * x)]
    ['-2', '(Symbol<x>,)', 'y + 2']
    """
    const, terms = const_and_terms(expr)
    if not terms:
        return (const, (), constant(1)) if const else (1, (), expr)
    number = math.gcd(const, *(coefficient for _, coefficient in terms))
    common: list[Expr] = [] if const else list(factors_of(terms[0][0]))
    for term, _ in terms[1:]:
        theirs = list(factors_of(term))
        common = [factor for factor in common if take_out(theirs, factor)]
    rest = divide_out(expr, number, common)
    if const_and_terms(rest)[1] and const_and_terms(rest)[1][0][1] < 0:
        return -number, tuple(common), -rest
    return number, tuple(common), rest


def divide_out(expr: Expr, number: int, common: Iterable[Expr]) -> Expr:
    """The expression divided by a number and by factors that all of its terms have.

    >>> x, s = symbol("x", "axis"), symbol("s", "size", 2)
    >>> str(divide_out(2 * (x + 1) * (s - 1), 2, [s - 1]))
    'x + 1'
    """
    const, terms = const_and_terms(expr)
    const //= number
    acc: dict[Expr, int] = {}
    for term, coefficient in terms:
        left = list(factors_of(term))
        for factor in common:
            left.remove(factor)
        const += collect_into(acc, product_of(left), coefficient // number)
    return from_terms(const, acc)


def take_out(factors: list[Expr], factor: Expr) -> bool:
    if factor not in factors:
        return False
    factors.remove(factor)
    return True


# Minimum and maximum.


def _extreme(cls: type[Min] | type[Max], args: Iterable[Expr | int], sign: int) -> Expr:
    flat: list[Expr] = []
    for arg in map(as_expr, args):
        flat += arg.args if isinstance(arg, cls) else (arg,)
    if not flat:
        raise ValueError("a minimum or maximum of nothing")
    kept: list[Expr] = []
    for arg in flat:
        if any(is_natural(sign * (arg - other)) for other in kept):
            continue
        kept = [other for other in kept if not is_natural(sign * (other - arg))]
        kept.append(arg)
    return kept[0] if len(kept) == 1 else node(cls, tuple(sorted(kept, key=_by_sort_key)))


# Children, range and order of a node.


def children(expr: Expr) -> Factors:
    """The operands of a node; () for a constant or symbol."""
    match expr:
        case Sum():
            return tuple(term for term, _ in expr.terms)
        case Product() | Min() | Max():
            return expr.args
        case FloorDiv() | Mod():
            return expr.num, expr.den
        case Identity():
            return (expr.arg,)
        case _:
            return ()


def range_from(expr: Expr, symbol_range: Callable[[Symbol], Range], inner: Callable[[Expr], Range]) -> Range:
    """The interval of a node from the intervals of its children, which `inner` gives."""
    match expr:
        case Sum(const, terms):
            return _sum_range(const, terms, inner)
        case Const(value):
            return value, value
        case Symbol():
            return symbol_range(expr)
        case Product(factors):
            return functools.reduce(intervals.mul, map(inner, factors))
        case FloorDiv(num, den):
            return intervals.floordiv(inner(num), inner(den))
        case Mod(num, den):
            return intervals.mod(inner(num), inner(den))
        case Min(args):
            return functools.reduce(intervals.minimum, map(inner, args))
        case Max(args):
            return functools.reduce(intervals.maximum, map(inner, args))
        case Identity(arg):
            return inner(arg)
        case _:
            raise TypeError(f"not an index expression: {type(expr).__name__}")


def _sum_range(const: int, terms: Terms, inner: Callable[[Expr], Range]) -> Range:
    low: int | None = const
    high: int | None = const
    for term, c in terms:
        least, most = inner(term)
        if c < 0:
            least, most = most, least
        low = None if low is None or least is None else low + c * least
        high = None if high is None or most is None else high + c * most
    return low, high


def _symbol_range(s: Symbol) -> Range:
    return s.lo, s.hi


def _by_range(expr: Expr) -> Range:
    return expr.range


def _sort_key(expr: Expr) -> tuple[Any, ...]:
    match expr:
        case Const(value):
            return 0, value
        case Symbol(name, kind, lo, hi):
            stem = name.rstrip("0123456789")
            number = int(name[len(stem) :] or -1)
            return 2, stem, number, name, kind, lo is None, lo or 0, hi is None, hi or 0
        case Sum(const, terms):
            return 8, tuple((term.sort_key, coefficient) for term, coefficient in terms), const
        case _:
            return _RANKS[type(expr)], tuple(child.sort_key for child in children(expr))


_RANKS: Mapping[type[Expr], int] = {Product: 1, FloorDiv: 3, Mod: 4, Min: 5, Max: 6, Identity: 7}
