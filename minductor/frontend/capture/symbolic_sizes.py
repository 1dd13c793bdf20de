"""Converts torch's symbolic numbers (SymPy) to index expressions, and guards back to SymPy. No other file uses SymPy.

Takes SymInts, SymFloats, SymBools and guards. Gives index expressions of symbols, which are numbered in order of first
use: s0 is a size of the caller's, u0 an integer that data decides, f0 a float. A number that no index expression can
write gets a symbol of its own (d0: an integer; f0: a float; t0: a truth value) and a body that computes it.
`guards_hold` evaluates guards; torch then adds them to the guards of the caller's compiled code. Refuses
(UnsupportedInput) SymPy functions that no operator of a body computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
from torch.utils._sympy import functions as torch_functions
from torch.utils._sympy.value_ranges import bound_sympy

from minductor.core.dtypes import BOOL, F64, I64, DType
from minductor.core.errors import UnsupportedInput
from minductor.core.expressions import expr as ours
from minductor.core.expressions.expr import Expr, Rel, Symbol, integer, maximum, minimum, symbol
from minductor.core.expressions.expr_parser import parse_rel
from minductor.core.expressions.hints import Hints, clamped
from minductor.core.expressions.rewrite import simplify
from minductor.frontend.capture.captured_graph import Definition, Fact, Graph, Size
from minductor.frontend.quirks.torch_versions import example_values, is_backed
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import symbols_in


class SizeReader:
    """Converts the symbolic numbers of one graph and its regions."""

    def __init__(self) -> None:
        self.shape_env: Any = None
        self._symbols: dict[Any, Symbol] = {}  # SymPy symbol -> our symbol
        self._defined: dict[Any, Definition] = {}  # SymPy expression -> the definition of its symbol
        self._seen: dict[Any, Expr] = {}  # SymPy expression -> our expression
        self._equal: dict[Any, Any] | None = None  # SymPy expression -> a shorter one that equals it, by a guard

    def read(self, value: Any) -> Size:
        """A SymInt as an index expression; an int if it is constant."""
        self.shape_env = self.shape_env or value.node.shape_env
        found = self.expr(value.node.expr)
        known = ours.as_int(found)
        return found if known is None else known

    def assume(self, value: Any, size: int) -> None:
        """Reads a SymInt as this number wherever it stands, also within other expressions."""
        if not value.node.expr.is_Symbol:
            self._seen.setdefault(value.node.expr, integer(size))

    def scalar(self, value: Any) -> Symbol | float | bool:
        """The symbol of a SymFloat or SymBool; a number if it is constant."""
        self.shape_env = self.shape_env or value.node.shape_env
        expr = value.node.expr
        if expr in (sympy.true, sympy.false):
            return expr == sympy.true
        if expr.is_number:
            return float(expr)
        return self._symbol(expr) if expr.is_Symbol else self._definition(expr)

    def expr(self, given: Any) -> Expr:
        """A SymPy expression of integers as an index expression."""
        if given not in self._seen:
            self._seen[given] = self._convert(self._shortest(given))
        return self._seen[given]

    def _shortest(self, given: Any) -> Any:
        """An expression with each part replaced that a guard of torch's found equal to a shorter expression.

        A gate of a cell is (s1 + 2)//3 long, and as long as the state, s2. Said in one way, the sizes show that no
        index wraps around. Only symbols that were read before are put in: the graph has a source for those.
        """
        if given.is_Symbol or given.is_number or self.shape_env is None:
            return given
        if self._equal is None:
            found = (_shortened(guard.expr) for guard in self.shape_env.guards if isinstance(guard.expr, sympy.Eq))
            self._equal = dict(pair for pair in found if pair is not None)
        known = {long: short for long, short in self._equal.items() if short.free_symbols <= self._symbols.keys()}
        while known and (shorter := given.xreplace(known)) != given:  # each round leaves fewer operations
            given = shorter
        return given

    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols so far for torch's own symbols, in order of first use."""
        return tuple(self._symbols.values())

    def definitions(self) -> tuple[Definition, ...]:
        """The definitions so far of symbols that stand for expressions."""
        return tuple(self._defined.values())

    def known(self) -> tuple[Symbol, ...]:
        """All symbols so far: those for torch's symbols, then those that are defined."""
        return (*self._symbols.values(), *(made.symbol for made in self._defined.values()))

    def is_given(self, mine: Symbol, before: Sequence[Symbol]) -> bool:
        """Whether a symbol that a region uses comes from outside: it is among `before`, or a size of the caller's."""
        theirs = next((theirs for theirs, made in self._symbols.items() if made == mine), None)
        return mine in before or (theirs is not None and is_backed(self.shape_env, theirs))

    def facts(self) -> tuple[Fact, ...]:
        """The conditions on symbols that data decides: the ranges of the symbols, and torch's deferred assertions."""
        found: dict[Any, Fact] = {}
        for theirs, mine in list(self._symbols.items()):
            if is_backed(self.shape_env, theirs):
                continue
            for deferred in self.shape_env.deferred_runtime_asserts.get(theirs, ()):
                if deferred.expr not in found:
                    message = f"Runtime assertion failed for expression {deferred.expr}"
                    found[deferred.expr] = Fact(self._body(deferred.expr), message)
            if (limits := _limits(mine)) is not None:
                found.setdefault(mine, Fact(self._body(limits(theirs)), f"{theirs} is not in [{mine.lo}, {mine.hi}]"))
        return tuple(fact for fact in found.values() if symbols_in(fact.body))

    def guards(self, names: Mapping[Symbol, str]) -> tuple[Fact, ...]:
        """The conditions on sizes that torch assumed while it traced; `names` gives each symbol's name in messages.

        A guard that replaces a symbol by another one or by a number is left out: the inputs' layouts show it.
        """
        shown = {theirs: sympy.Symbol(names[mine]) for theirs, mine in self._symbols.items() if mine in names}
        found = dict.fromkeys(self.shape_env.simplify(guard.expr) for guard in self.shape_env.guards)
        message = "the arguments have other sizes than those that were traced: not {}"
        return tuple(Fact(self._body(g), message.format(g.xreplace(shown))) for g in found if g != sympy.true)

    def hints(self) -> Hints:
        """The value of each size in the example inputs, where torch knows it. Reading it adds no guard."""
        values = example_values(self.shape_env)
        found = [
            (mine, theirs.xreplace(values)) for mine, theirs in self.torch_symbols().items() if mine.kind == "size"
        ]
        return tuple((mine, clamped(mine, int(value))) for mine, value in found if value.is_Integer)

    def torch_symbols(self) -> Mapping[Symbol, Any]:
        """Our symbol -> torch's SymPy symbol or expression."""
        pairs = [(mine, theirs) for theirs, mine in self._symbols.items()]
        pairs += [(made.symbol, theirs) for theirs, made in self._defined.items()]
        return dict(pairs)

    def _convert(self, given: Any) -> Expr:
        if given.is_Integer:
            return integer(int(given))
        if given.is_Symbol:
            return self._symbol(given)
        power: Any = given.args[1] if isinstance(given, _POWERS) else None
        if power is not None and power.is_Integer and power >= 0 and not self._is_long(given):
            return ours.mul(*[self.expr(given.args[0])] * int(power))
        name = type(given).__name__
        if name not in _FUNCTIONS or not all(_is_int(a) for a in given.args) or self._is_long(given):
            return self._definition(given)
        args = [self.expr(a) for a in given.args]
        if name in _DIVISIONS and not all(_is_positive(by) for by in args[1:]):
            return self._definition(given)  # Python raises eager's error; a kernel's division would end the process
        found = _FUNCTIONS[name](*args)
        return simplify(found) if isinstance(found, ours.Max | ours.Min) else found

    def _is_long(self, given: Any) -> bool:
        """Whether an expression multiplies numbers that are no sizes: the product may be too large for an int64."""
        products = [part for part in sympy.preorder_traversal(given) if isinstance(part, (sympy.Mul, *_POWERS))]
        return any(sum(map(self._numbers, sympy.Mul.make_args(part))) > 1 for part in products)

    def _numbers(self, factor: Any) -> int:
        """How many numbers that may be negative, and so are no sizes, a factor of a product multiplies."""
        base, power = factor.args if isinstance(factor, _POWERS) else (factor, sympy.S.One)
        lows = [self.shape_env.var_to_range[s].lower for s in base.free_symbols if s in self.shape_env.var_to_range]
        return (int(power) if isinstance(power, sympy.Integer) else 2) if any(low < 0 for low in lows) else 0

    def _symbol(self, given: Any) -> Symbol:
        known = self._symbols.get(given)
        if known is not None:
            return known
        if not _is_int(given):
            known = symbol(f"f{self._count('f')}", "real", None, None)
        else:
            letter = "s" if is_backed(self.shape_env, given) else "u"
            limits = self.shape_env.var_to_range.get(given)  # None for the size of a jagged dimension
            bounds = (None, None) if limits is None else _bounds(limits)
            known = symbol(f"{letter}{self._count(letter)}", "size", *bounds)
        self._symbols[given] = known
        return known

    def _definition(self, given: Any) -> Symbol:
        """The symbol for an expression that no index expression can write, with a body that computes the symbol."""
        known = self._defined.get(given)
        if known is None:
            body = self._body(given)
            match body.ops[body.results[0]].dtype:
                case DType(kind="bool"):
                    made = symbol(f"t{self._count('t')}", "truth", 0, 1)
                case DType(kind="float"):
                    made = symbol(f"f{self._count('f')}", "real", None, None)
                case _:
                    limits = bound_sympy(given, self.shape_env.var_to_range)
                    made = symbol(f"d{self._count('d')}", "size", *_bounds(limits))
            known = self._defined[given] = Definition(made, body)
        return known.symbol

    def _count(self, letter: str) -> int:
        """How many symbols have names that begin with that letter: the number of the next one."""
        return sum(s.name.startswith(letter) for s in self.known())

    def _body(self, given: Any) -> Any:
        b = Builder()
        return b.build([_Arithmetic(b, self).value(given)])


def _shortened(equality: Any) -> tuple[Any, Any] | None:
    """The longer side of an equality of sizes and the shorter one; None if both are as long, or one is in the other.

    >>> n, m = sympy.symbols("n m", integer=True)
    >>> _shortened(sympy.Eq(m, n - 2 * ((n + 2) // 3)))[1], _shortened(sympy.Eq(n, m))
    (m, None)
    """
    short, long = sorted(equality.args, key=lambda side: (sympy.count_ops(side), str(side)))
    if sympy.count_ops(short) == sympy.count_ops(long) or long.is_number or short in long.free_symbols:
        return None
    return long, short


def _is_int(given: Any) -> bool:
    return given.is_integer is True


def _is_positive(given: Expr) -> bool:
    low = given.range[0]
    return low is not None and low > 0


def _bounds(limits: Any) -> tuple[int | None, int | None]:
    """The limits of a range that torch computed; None for one that does not fit an int64, as no limit at all."""
    low, high = limits.lower, limits.upper
    return None if low < I64.min_value else int(low), None if high > I64.max_value else int(high)


def _limits(mine: Symbol) -> Callable[[Any], Any] | None:
    """A function that makes the range of `mine` a condition on torch's symbol; None if the range has no limits.

    The condition is not evaluated: SymPy would find it true by the range of torch's symbol.
    """
    if mine.kind != "size" or (mine.lo is None and mine.hi is None):
        return None
    low = [] if mine.lo is None else [lambda x: sympy.Ge(x, mine.lo, evaluate=False)]
    high = [] if mine.hi is None else [lambda x: sympy.Le(x, mine.hi, evaluate=False)]
    both: Any = sympy.And
    return lambda x: both(*(make(x) for make in (*low, *high)), evaluate=False)


def _nearest(given: Any) -> Any:
    """The int64 that is nearest to an integer: compared with any other int64 it gives the same result."""
    return sympy.Integer(min(max(given, I64.min_value), I64.max_value))


class _Arithmetic:
    """Adds the ops that compute SymPy expressions to the body of `b`, in int64, float64 and bool."""

    def __init__(self, b: Builder, reader: SizeReader) -> None:
        self.b = b
        self.reader = reader

    def value(self, given: Any) -> int:
        """The position of the op that computes an expression."""
        b = self.b
        if given in (sympy.true, sympy.false):
            return b.constant(given == sympy.true, BOOL)
        if given.is_Integer:
            if not I64.min_value <= given <= I64.max_value:
                raise UnsupportedInput("a number", f"as large as {given}")
            return b.constant(int(given), I64)
        if given.is_number and not given.is_integer:
            return b.constant(float(given), F64)
        if given.is_Symbol:
            return b.index(self.reader.expr(given))
        name = type(given).__name__
        if name == "Piecewise":
            return self.choice(given)
        if isinstance(given, (*_POWERS, torch_functions.FloatPow)):
            return self.power(*given.args)
        compared = isinstance(given, sympy.core.relational.Relational)
        args = [self.value(_nearest(a) if compared and a.is_Integer else a) for a in given.args]
        if name in _JOINED:
            return reduce(lambda x, y: b.op(_JOINED[name], *self.alike(x, y)), args)
        if name in _FLOATS:
            return reduce(lambda x, y: b.op("div", x, y), [b.cast(a, F64) for a in args])
        if name == "ModularIndexing":
            return b.op("mod", b.op("floordiv", args[0], args[1]), args[2])
        if name in _ROUNDED:
            how = _ROUNDED[name]
            whole = b.op(how, b.cast(args[0], F64)) if how else b.cast(args[0], F64)
            return b.cast(whole, I64) if name.endswith("ToInt") else whole
        if name.startswith("OpaqueUnaryFn_") and name.removeprefix("OpaqueUnaryFn_") in _UNARY:
            return b.op(name.removeprefix("OpaqueUnaryFn_"), b.cast(args[0], F64))
        if name in ("Not", "Abs", "Identity"):
            return args[0] if name == "Identity" else b.op("abs" if name == "Abs" else "logical_not", args[0])
        raise UnsupportedInput("a number", f"of the form {given}")

    def alike(self, *args: int) -> tuple[int, ...]:
        """The arguments cast to one dtype: float64 if one of them is float64, else int64, or bool if all are bools."""
        dtypes = [self.b.dtype(a) for a in args]
        common = next((d for d in (F64, I64) if d in dtypes), BOOL)
        return tuple(self.b.cast(a, common) for a in args)

    def power(self, base: Any, exponent: Any) -> int:
        x, y = self.value(base), self.value(exponent)
        if self.b.dtype(x) == I64 and exponent.is_Integer and exponent < 0:
            raise UnsupportedInput("a number", f"of the form {base}**{exponent}")
        return self.b.op("pow", *self.alike(x, y))

    def choice(self, given: Any) -> int:
        """The value of a Piecewise: that of the first case whose condition holds; the last condition always holds."""
        *cases, (last, _) = given.args
        chosen = self.value(last)
        for value, condition in reversed(cases):
            chosen = self.b.op("where", self.value(condition), *self.alike(self.value(value), chosen))
        return chosen


def _table(pairs: str) -> Mapping[str, str]:
    """A mapping from pairs "key=value" that blanks separate."""
    return {name: op for name, op in (pair.split("=") for pair in pairs.split())}


_POWERS = (sympy.Pow, torch_functions.PowByNatural)
# SymPy's class -> the op that joins its arguments from the left
_JOINED: Mapping[str, str] = _table(
    "Add=add Mul=mul Max=maximum Min=minimum FloorDiv=floordiv CleanDiv=floordiv Mod=mod PythonMod=mod"
    " LShift=lshift RShift=rshift Equality=eq Unequality=ne StrictLessThan=lt LessThan=le StrictGreaterThan=gt"
    " GreaterThan=ge And=logical_and Or=logical_or BitwiseFn_bitwise_and=bitwise_and"
    " BitwiseFn_bitwise_or=bitwise_or BitwiseFn_bitwise_xor=bitwise_xor"
)
_FLOATS = ("IntTrueDiv", "FloatTrueDiv")
# SymPy's class -> the op that rounds its argument, if any
_ROUNDED: Mapping[str, str] = _table(
    "ToFloat= TruncToInt=trunc TruncToFloat=trunc FloorToInt=floor CeilToInt=ceil RoundToInt=round"
)
_UNARY = ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")

_FUNCTIONS: Mapping[str, Callable[..., Expr]] = {
    "Add": ours.add,
    "Mul": ours.mul,
    "Max": maximum,
    "Min": minimum,
    "FloorDiv": ours.floordiv,
    "CleanDiv": ours.floordiv,
    "Mod": ours.mod,
    "PythonMod": ours.mod,
    "ModularIndexing": lambda x, d, m: (x // d) % m,
    "Identity": lambda x: x,
}
_DIVISIONS = ("FloorDiv", "CleanDiv", "Mod", "PythonMod", "ModularIndexing")


def to_sympy(expr: Expr, symbols: Mapping[Symbol, Any]) -> Any:
    """An index expression as a SymPy expression; `symbols` maps our symbols to torch's."""

    def walk(e: Expr) -> Any:
        match e:
            case ours.Const():
                return sympy.Integer(e.value)
            case Symbol():
                return symbols[e]
            case ours.Sum(const, terms):
                return sympy.Add(const, *(sympy.Mul(factor, walk(term)) for term, factor in terms))
            case ours.Product(factors):
                return sympy.Mul(*map(walk, factors))
            case ours.FloorDiv(num, den):
                return torch_functions.FloorDiv(walk(num), walk(den))
            case ours.Mod(num, den):
                return torch_functions.PythonMod(walk(num), walk(den))
            case ours.Min(args):
                return torch_functions.Min(*map(walk, args))
            case ours.Max(args):
                return torch_functions.Max(*map(walk, args))
            case ours.Identity(arg):
                return walk(arg)
            case _:
                raise TypeError(f"no index expression: {e!r}")

    return walk(expr)


def relation_to_sympy(rel: Rel, symbols: Mapping[Symbol, Any]) -> Any:
    match rel:
        case ours.Compare(op, left, right):
            make = {"==": sympy.Eq, "!=": sympy.Ne, "<": sympy.Lt, "<=": sympy.Le}[op]
            return make(to_sympy(left, symbols), to_sympy(right, symbols))
        case ours.And(args):
            return sympy.And(*(relation_to_sympy(a, symbols) for a in args))
        case ours.Or(args):
            return sympy.Or(*(relation_to_sympy(a, symbols) for a in args))
        case ours.Not(arg):
            return sympy.Not(relation_to_sympy(arg, symbols))
        case ours.TrueRel():
            return sympy.true
        case _:
            return sympy.false


def evaluate_guard(rel: Rel, graph: Graph) -> bool:
    """Whether a relation holds for the traced sizes; torch then adds it to the guards of the compiled code."""
    return bool(graph.live.shape_env.evaluate_expr(relation_to_sympy(rel, graph.live.symbols)))


def guards_hold(guards: Sequence[str], graph: Graph) -> bool:
    """Whether each guard of a stored artefact, as text, holds for the traced sizes of a graph."""
    by_name = {s.name: s for s in graph.symbols}
    return all(evaluate_guard(parse_rel(text, by_name), graph) for text in guards)
