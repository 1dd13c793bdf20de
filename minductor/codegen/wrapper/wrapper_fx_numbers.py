"""The nodes of a torch.fx graph under construction, and numbers as chains of nodes.

Takes index expressions, relations and bodies of scalars. Gives nodes that compute them; equal computations share a
node. Refuses a body with an operator that is not defined on numbers (ValueError).

>>> from minductor.core.expressions.expr import symbol
>>> nodes = Nodes()
>>> s0 = nodes.values["s0"] = nodes.add("s0", "placeholder", "s0")
>>> nodes.number(symbol("s0", "size") * 8 + 1)
Result(name='add')
>>> [f"{node.name} = {node.target}{node.args}" for node in nodes.made if node.op == "call_function"]
["mul = operator.mul(Result(name='s0'), 8)", "add = operator.add(Result(name='mul'), 1)"]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from minductor.codegen.operator_spelling import PYTHON_MATH
from minductor.core.expressions.expr import (
    And,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Identity,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Product,
    Rel,
    Sum,
    Symbol,
    TrueRel,
)
from minductor.ir.artefact.fx_graph import FxNode, Op, Result, Value
from minductor.ir.plan.plan import ExternLine, LaunchLine
from minductor.ir.program.nodes import Body, Constant, Index

_COMPARISONS: Mapping[str, str] = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le"}
_SAME_NAME = "add sub mul floordiv mod neg abs pow lshift rshift eq ne lt le gt ge"
# how an operator on numbers is written: functions, each of the result of the one before
_SCALAR: Mapping[str, tuple[str, ...]] = {
    **{name: (f"operator.{name}",) for name in _SAME_NAME.split()},
    **{name: (f"math.{name}",) for name in PYTHON_MATH.split()},
    "div": ("operator.truediv",),
    "maximum": ("torch.sym_max",),
    "minimum": ("torch.sym_min",),
    "bitwise_and": ("operator.and_",),
    "bitwise_or": ("operator.or_",),
    "bitwise_xor": ("operator.xor",),
    "logical_and": ("operator.and_",),
    "logical_or": ("operator.or_",),
    "logical_not": ("operator.not_",),
    "where": ("minductor.runtime.launch.fx.where",),
    "floor": ("math.floor", "builtins.float"),
    "ceil": ("math.ceil", "builtins.float"),
    "trunc": ("math.trunc", "builtins.float"),
    "round": ("builtins.round", "builtins.float"),
}
_CASTS: Mapping[str, str] = {"float": "builtins.float", "int": "builtins.int", "bool": "builtins.bool"}


@dataclass(slots=True)
class Nodes:
    """The nodes so far. `values`: the value of each name of the plan, whether tensor or symbol."""

    made: list[FxNode] = field(default_factory=list[FxNode])
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    _names: Counter[str] = field(default_factory=Counter[str])
    _known: dict[tuple[str, tuple[Value, ...]], Result] = field(
        default_factory=dict[tuple[str, tuple[Value, ...]], Result]
    )

    def add(
        self,
        name: str,
        op: Op,
        target: str,
        args: tuple[Value, ...] = (),
        kwargs: tuple[tuple[str, Value], ...] = (),
        line: LaunchLine | ExternLine | None = None,
        checked: tuple[str, ...] = (),
    ) -> Result:
        """Adds a node with that name, or that name and a number. `line`: the line of the plan that the node runs."""
        free = name
        while free in self._names:
            free = f"{name}_{self._names[name]}"
            self._names[name] += 1
        self._names[free] += 1
        handle, origins = (None, ()) if line is None else (line.handle, line.origins)
        nodes = tuple(origin.node for origin in origins)
        self.made.append(FxNode(free, op, target, args, kwargs, handle, nodes, checked if any(checked) else ()))
        return Result(free)

    def compute(self, target: str, *args: Value, name: str = "") -> Result:
        """A call without side effects. An equal call before it is reused."""
        key = (target, tuple(map(repr, args)))  # 1 and True are not the same
        if key not in self._known:
            word = name or target.rpartition(".")[2].strip("_")
            self._known[key] = self.add(word, "call_function", target, args)
        return self._known[key]

    def size(self, name: str, tensor: Value, dim: int, scale: int, shift: int) -> Value:
        """The number `n` for which a tensor's size is `scale * n + shift`."""
        found: Value = self.compute("torch.ops.aten.sym_size.int", tensor, dim, name=name)
        found = self.compute("operator.sub", found, shift) if shift else found
        return found if scale == 1 else self.compute("operator.floordiv", found, scale)

    def numbers(self, exprs: Iterable[Expr]) -> tuple[Value, ...]:
        return tuple([self.number(expr) for expr in exprs])

    def number(self, expr: Expr) -> Value:
        """The value of an index expression."""
        match expr:
            case Const(value):
                return value
            case Symbol(name):
                return self.values[name]
            case Identity(arg):
                return self.number(arg)
            case Min(args) | Max(args):
                target = "torch.sym_min" if isinstance(expr, Min) else "torch.sym_max"
                return reduce(lambda a, b: self.compute(target, a, b), map(self.number, args))
            case Product(factors):
                return reduce(lambda a, b: self.compute("operator.mul", a, b), map(self.number, factors))
            case FloorDiv(num, den):
                return self.compute("operator.floordiv", self.number(num), self.number(den))
            case Mod(num, den):
                return self.compute("operator.mod", self.number(num), self.number(den))
            case Sum():
                return self._sum(expr)
            case _:
                raise TypeError(f"not an index expression: {type(expr).__name__}")

    def _sum(self, expr: Sum) -> Value:
        terms = [self.number(term) for term, _ in expr.terms]
        sizes = [abs(coefficient) for _, coefficient in expr.terms]
        scaled = [t if n == 1 else self.compute("operator.mul", t, n) for t, n in zip(terms, sizes, strict=True)]
        total: Value = expr.const
        for term, (_, coefficient) in zip(scaled, expr.terms, strict=True):
            if coefficient < 0:
                total = self.compute("operator.sub", total, term)
            else:
                total = term if total == 0 else self.compute("operator.add", term, total)
        return total

    def relation(self, rel: Rel) -> Value:
        match rel:
            case Compare(op, left, right):
                return self.compute(f"operator.{_COMPARISONS[op]}", self.number(left), self.number(right))
            case And(args) | Or(args):
                target = "operator.and_" if isinstance(rel, And) else "operator.or_"
                return reduce(lambda a, b: self.compute(target, a, b), map(self.relation, args))
            case Not(arg):
                return self.compute("operator.not_", self.relation(arg))
            case _:
                return isinstance(rel, TrueRel)

    def scalar(self, body: Body) -> Value:
        """The result of a body that reads no tensor."""
        (result,) = body.results
        found: list[Value] = []
        for op in body.ops:
            args = [found[position] for position in op.args]
            match op.attrs:
                case Constant(value):
                    found.append(value)
                case Index(expr):
                    found.append(self.number(expr))
                case None if op.name == "cast" and op.dtype is not None and op.dtype.kind in _CASTS:
                    found.append(self.compute(_CASTS[op.dtype.kind], *args))
                case None if op.name in _SCALAR:
                    first, *others = _SCALAR[op.name]
                    made = self.compute(first, *args)
                    for target in others:
                        made = self.compute(target, made)
                    found.append(made)
                case _:
                    raise ValueError(f"{op.name} is no operator on numbers")
        return found[result]
