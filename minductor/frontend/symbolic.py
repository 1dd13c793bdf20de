"""The border to torch's symbolic sizes: SymPy expressions to ours, our relations to theirs. The only file with SymPy.

Takes SymInts and guards. Gives index expressions over symbols s0, s1, ... in order of first use, and says whether
guards hold (which makes them guards of the caller's compiled code). Refuses sizes that data decides, and operators
that the index algebra does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import sympy
from torch.utils._sympy import functions as torch_functions
from torch.utils._sympy.numbers import int_oo

from minductor.core import expr as ours
from minductor.core.errors import UnsupportedInput
from minductor.core.expr import Expr, Rel, Symbol, integer, maximum, minimum, symbol
from minductor.core.text import parse_rel
from minductor.frontend.capture import Graph, Size
from minductor.frontend.compat import is_backed


class SizeReader:
    """Reads SymInts into Exprs and remembers which symbol is whose."""

    def __init__(self) -> None:
        self.shape_env: Any = None
        self._symbols: dict[Any, Symbol] = {}
        self._seen: dict[Any, Expr] = {}

    def read(self, value: Any) -> Size:
        """A SymInt's expression; an int if it is constant."""
        self.shape_env = self.shape_env or value.node.shape_env
        found = value.node.expr
        return int(found) if found.is_Integer else self.expr(found)

    def expr(self, given: Any) -> Expr:
        known = self._seen.get(given)
        if known is None:
            known = self._seen[given] = self._convert(given)
        return known

    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(self._symbols.values())

    def torch_symbols(self) -> Mapping[Symbol, Any]:
        return MappingProxyType({mine: theirs for theirs, mine in self._symbols.items()})

    def _convert(self, given: Any) -> Expr:
        if given.is_Integer:
            return integer(int(given))
        if given.is_Symbol:
            return self._symbol(given)
        args = [self.expr(a) for a in given.args]
        if isinstance(given, sympy.Pow | torch_functions.PowByNatural):
            power = ours.as_int(args[1])
            if power is None or power < 0:
                raise UnsupportedInput("a size", f"of the form {given}")
            return ours.mul(*[args[0]] * power)
        make = _FUNCTIONS.get(type(given).__name__)
        if make is None:
            raise UnsupportedInput("a size", f"of the form {given}")
        return make(*args)

    def _symbol(self, given: Any) -> Symbol:
        known = self._symbols.get(given)
        if known is None:
            if not is_backed(self.shape_env, given):
                raise UnsupportedInput("a size", f"decided by data ({given})")
            limits = self.shape_env.var_to_range[given]
            hi = None if limits.upper is int_oo or limits.upper == int_oo else int(limits.upper)
            known = self._symbols[given] = symbol(f"s{len(self._symbols)}", "size", int(limits.lower), hi)
        return known


_FUNCTIONS: Mapping[str, Callable[..., Expr]] = MappingProxyType(
    {
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
)


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
