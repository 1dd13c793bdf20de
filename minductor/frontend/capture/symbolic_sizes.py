"""The border to torch's symbolic numbers: SymPy expressions to ours, our relations to theirs. The only file with SymPy.

Takes SymInts, SymFloats, SymBools and guards. Gives index expressions over symbols in order of first use (s0: given by
the caller; u0: decided by data; f0: a float), and for what the index algebra does not have a symbol of its own with
the body that computes it (d0: a size; f0: a float; t0: a truth value). Says whether guards hold (which makes them
guards of the caller's compiled code). Refuses functions that no operator of a body computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from minductor.frontend.capture.captured_graph import Definition, Fact, Graph, Size
from minductor.frontend.quirks.torch_versions import is_backed
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import symbols_in


class SizeReader:
    """Reads symbolic numbers and remembers which symbol is whose."""

    def __init__(self) -> None:
        self.shape_env: Any = None
        self._symbols: dict[Any, Symbol] = {}
        self._defined: dict[Any, Definition] = {}
        self._seen: dict[Any, Expr] = {}

    def read(self, value: Any) -> Size:
        """A SymInt's expression; an int if it is constant."""
        self.shape_env = self.shape_env or value.node.shape_env
        found = value.node.expr
        return int(found) if found.is_Integer else self.expr(found)

    def scalar(self, value: Any) -> Symbol | float | bool:
        """The symbol of a SymFloat or SymBool; a number if it is constant."""
        self.shape_env = self.shape_env or value.node.shape_env
        found = value.node.expr
        if found in (sympy.true, sympy.false):
            return found == sympy.true
        if found.is_number:
            return float(found)
        return self._symbol(found) if found.is_Symbol else self._definition(found)

    def expr(self, given: Any) -> Expr:
        known = self._seen.get(given)
        if known is None:
            known = self._seen[given] = self._convert(given)
        return known

    def symbols(self) -> tuple[Symbol, ...]:
        """Those that nothing here defines."""
        return tuple(self._symbols.values())

    def definitions(self) -> tuple[Definition, ...]:
        return tuple(self._defined.values())

    def known(self) -> tuple[Symbol, ...]:
        """Every symbol met so far."""
        return (*self._symbols.values(), *(made.symbol for made in self._defined.values()))

    def is_given(self, mine: Symbol, before: Sequence[Symbol]) -> bool:
        """Whether a symbol that a region mentions comes from outside: met `before` it, or of the caller's sizes."""
        theirs = next((theirs for theirs, made in self._symbols.items() if made == mine), None)
        return mine in before or (theirs is not None and is_backed(self.shape_env, theirs))

    def facts(self) -> tuple[Fact, ...]:
        """What torch has put off until the data are known: of each symbol that it decides, its range and relations."""
        found: dict[Any, Fact] = {}
        for theirs, mine in list(self._symbols.items()):
            if is_backed(self.shape_env, theirs):
                continue
            for put_off in self.shape_env.deferred_runtime_asserts.get(theirs, ()):
                if put_off.expr not in found:
                    message = f"Runtime assertion failed for expression {put_off.expr}"
                    found[put_off.expr] = Fact(self._body(put_off.expr), message)
            if (limits := _limits(mine)) is not None:
                found.setdefault(mine, Fact(self._body(limits(theirs)), f"{theirs} is not in [{mine.lo}, {mine.hi}]"))
        return tuple(fact for fact in found.values() if symbols_in(fact.body))

    def guards(self, names: Mapping[Symbol, str]) -> tuple[Fact, ...]:
        """What torch has assumed of sizes while it traced; `names`: what tells a symbol, for the messages.

        What says that a symbol is another's, or a number, is in the layouts of the inputs, and has gone here.
        """
        shown = {theirs: sympy.Symbol(names[mine]) for theirs, mine in self._symbols.items() if mine in names}
        found = dict.fromkeys(self.shape_env.simplify(guard.expr) for guard in self.shape_env.guards)
        message = "the arguments have other sizes than those that were traced: not {}"
        return tuple(Fact(self._body(g), message.format(g.xreplace(shown))) for g in found if g != sympy.true)

    def torch_symbols(self) -> Mapping[Symbol, Any]:
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
            return self._definition(given)  # in Python, which raises eager's error where a kernel would end the process
        return _FUNCTIONS[name](*args)

    def _is_long(self, given: Any) -> bool:
        """Whether it has a product of numbers that are no sizes: Python's integers hold it, a kernel's need not."""
        products = [part for part in sympy.preorder_traversal(given) if isinstance(part, (sympy.Mul, *_POWERS))]
        return any(sum(map(self._numbers, sympy.Mul.make_args(part))) > 1 for part in products)

    def _numbers(self, factor: Any) -> int:
        """How many numbers that may be negative are multiplied in a factor."""
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
            limits = self.shape_env.var_to_range.get(given)  # none for the size of a jagged dimension: it is a mark
            bounds = (None, None) if limits is None else _bounds(limits)
            known = symbol(f"{letter}{self._count(letter)}", "size", *bounds)
        self._symbols[given] = known
        return known

    def _definition(self, given: Any) -> Symbol:
        """A symbol for what the index algebra does not have."""
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
        made = (*self._symbols.values(), *(d.symbol for d in self._defined.values()))
        return sum(s.name.startswith(letter) for s in made)

    def _body(self, given: Any) -> Any:
        b = Builder()
        return b.build([_Arithmetic(b, self).value(given)])


def _is_int(given: Any) -> bool:
    return given.is_integer is True


def _is_positive(given: Expr) -> bool:
    low = given.range[0]
    return low is not None and low > 0


def _bounds(limits: Any) -> tuple[int | None, int | None]:
    """A range of torch's, with None for no limit: torch multiplies ranges to beyond what an int64 holds."""
    low, high = limits.lower, limits.upper
    return None if low < I64.min_value else int(low), None if high > I64.max_value else int(high)


def _limits(mine: Symbol) -> Callable[[Any], Any] | None:
    """The range of a symbol as a relation on torch's; not evaluated, since torch would answer it by the range."""
    if mine.kind != "size" or (mine.lo is None and mine.hi is None):
        return None
    low = [] if mine.lo is None else [lambda x: sympy.Ge(x, mine.lo, evaluate=False)]
    high = [] if mine.hi is None else [lambda x: sympy.Le(x, mine.hi, evaluate=False)]
    both: Any = sympy.And
    return lambda x: both(*(make(x) for make in (*low, *high)), evaluate=False)


def _nearest(given: Any) -> Any:
    """An integer that compares with each int64 as this one does (but with the outermost ones, which nothing counts)."""
    return sympy.Integer(min(max(given, I64.min_value), I64.max_value))


class _Arithmetic:
    """SymPy's expressions as ops of a body, on int64, float64 and bool."""

    def __init__(self, b: Builder, reader: SizeReader) -> None:
        self.b = b
        self.reader = reader

    def value(self, given: Any) -> int:
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
        """The arguments in one dtype: float if one of them is, else int unless all are truth values."""
        dtypes = [self.b.dtype(a) for a in args]
        wanted = next((d for d in (F64, I64) if d in dtypes), BOOL)
        return tuple(self.b.cast(a, wanted) for a in args)

    def power(self, base: Any, exponent: Any) -> int:
        x, y = self.value(base), self.value(exponent)
        if self.b.dtype(x) == I64 and exponent.is_Integer and exponent < 0:
            raise UnsupportedInput("a number", f"of the form {base}**{exponent}")
        return self.b.op("pow", *self.alike(x, y))

    def choice(self, given: Any) -> int:
        """The value of the first case that holds; the last one always does."""
        *cases, (last, _) = given.args
        found = self.value(last)
        for value, condition in reversed(cases):
            found = self.b.op("where", self.value(condition), *self.alike(self.value(value), found))
        return found


def _names(names: str) -> Iterator[tuple[str, str]]:
    return ((name, op) for name, op in (pair.split("=") for pair in names.split()))


_POWERS = (sympy.Pow, torch_functions.PowByNatural)
# SymPy's class -> the op that joins its arguments from the left
_JOINED: Mapping[str, str] = dict(
    _names(
        "Add=add Mul=mul Max=maximum Min=minimum FloorDiv=floordiv CleanDiv=floordiv Mod=mod PythonMod=mod"
        " LShift=lshift RShift=rshift Equality=eq Unequality=ne StrictLessThan=lt LessThan=le StrictGreaterThan=gt"
        " GreaterThan=ge And=logical_and Or=logical_or BitwiseFn_bitwise_and=bitwise_and"
        " BitwiseFn_bitwise_or=bitwise_or BitwiseFn_bitwise_xor=bitwise_xor"
    )
)
_FLOATS = ("IntTrueDiv", "FloatTrueDiv")
_ROUNDED: Mapping[str, str] = dict(
    _names("ToFloat= TruncToInt=trunc TruncToFloat=trunc FloorToInt=floor CeilToInt=ceil RoundToInt=round")
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
    """One of our expressions in torch's terms."""

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
    """Whether a relation holds for the sizes at hand; from then on torch checks it at each call."""
    return bool(graph.live.shape_env.evaluate_expr(relation_to_sympy(rel, graph.live.symbols)))


def guards_hold(guards: Sequence[str], graph: Graph) -> bool:
    """Whether each guard of a stored artefact, as text, holds for this graph's sizes."""
    by_name = {s.name: s for s in graph.symbols}
    return all(evaluate_guard(parse_rel(text, by_name), graph) for text in guards)
