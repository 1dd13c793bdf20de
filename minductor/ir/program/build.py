"""Builds bodies: one `Builder` for the body of a kernel or of a masked op.

Takes ops in order. Gives a Body in which equal ops are one op, and each op has the axes over which it varies. Refuses
positions that do not exist. Lowering, inlining and fusion make every body with it.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import symbol
>>> from minductor.ir.program.nodes import Ref
>>> i = symbol("i0", "axis", 0, 7)
>>> b = Builder((i,))
>>> x = b.load(Ref("arg0", 0), i, F32)
>>> b.op("mul", x, b.load(Ref("arg0", 0), i, F32)) == b.op("mul", x, x)
True
>>> b.build().ops[-1].axes
('i0',)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count

from minductor.core.dtypes import BF16, BOOL, F8E4M3FN, F8E5M2, F16, F32, F64, I64, DType
from minductor.core.expressions.bounds import NO_EXTENTS, at_least
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, index_below, integer, linear, substitute
from minductor.ir.program import nodes as ir
from minductor.ir.program.ops import COMBINES, result_dtype
from minductor.ir.program.value_bounds import value_bounds

# Called for each load of a spliced body. Returns the position of an op that has the value already, or None to load it.
LoadHook = Callable[["Builder", ir.Load, DType], int | None]
NAMED_ANEW = (ir.Check, ir.Masked)  # ops whose indices get other names in another body


class Builder:
    """Appends ops to a body and shares equal ones. `axes` are those of the kernel, in its order.

    An op gets the ATen node that `node` names when it is appended: whoever adds ops of its own sets `node` before.
    """

    def __init__(
        self, axes: Sequence[Symbol] = (), extents: Mapping[Symbol, Expr] = NO_EXTENTS, around: Builder | None = None
    ) -> None:
        self.axes = tuple(axes)
        self.extents = extents  # the extents of axes, for proofs that an index is in bounds
        self._around = around  # the builder of the enclosing body
        self._numbers: Iterator[int] = count() if around is None else around._numbers  # the numbers of checks
        self._bits = {axis.name: 1 << n for n, axis in enumerate(self.axes)}
        self._names: dict[int, tuple[str, ...]] = {0: ()}
        self._ops: list[ir.Op] = []
        self._masks: list[int] = []
        self._seen: dict[tuple[str, tuple[int, ...], ir.Attrs, DType | None], int] = {}
        self._checks: dict[Symbol, int] = {}
        self.node = "" if around is None else around.node  # the ATen node of the ops that are appended

    def __len__(self) -> int:
        return len(self._ops)

    def __getitem__(self, position: int) -> ir.Op:
        return self._ops[position]

    def dtype(self, position: int) -> DType:
        """The dtype of a value; ValueError for an effect."""
        dtype = self._ops[position].dtype
        if dtype is None:
            raise ValueError(f"%{position} is an effect and has no value")
        return dtype

    def build(self, results: Sequence[int] = ()) -> ir.Body:
        return ir.Body(tuple(self._ops), tuple(results))

    # --- leaves

    def constant(self, value: ir.LiteralValue, dtype: DType) -> int:
        """A literal, stored as `dtype`'s kind of Python number."""
        match dtype.kind:
            case "float":
                value = float(value) if not isinstance(value, complex) else value.real
                value = math.nan if math.isnan(value) else value
            case "bool":
                value = bool(value)
            case "complex":
                value = complex(value)
            case _:
                value = int(value) if not isinstance(value, complex) else int(value.real)
                value = (value - int(dtype.min_value)) % (1 << dtype.bits) + int(
                    dtype.min_value
                )  # wraps around as a cast does
        return self._put("constant", (), ir.Constant(value), dtype, 0)

    def index(self, expr: Expr, dtype: DType | None = None) -> int:
        """An index expression as an int64 value, or a float or bool symbol; cast to `dtype` if that is given."""
        if not isinstance(expr, Symbol) and any(s.kind in _KINDS for s in free_symbols(expr)):
            raise TypeError(f"a float or truth value inside an index expression: {expr}")
        checks = self._checks_of(expr)
        own = _KINDS.get(expr.kind, I64) if isinstance(expr, Symbol) else I64
        position = self._put("index", checks, ir.Index(expr), own, self._mask_of(expr, checks))
        return position if dtype is None else self.cast(position, dtype)

    def load(self, ref: ir.Ref, index: Expr, dtype: DType) -> int:
        """Element `index` of a version as `dtype`, the compute dtype of its storage."""
        checks = self._checks_of(index)
        return self._put("load", checks, ir.Load(ref, index), dtype, self._mask_of(index, checks))

    def parameter(self, number: int, dtype: DType) -> int:
        return self._put("parameter", (), ir.Parameter(number), dtype, 0)

    # --- values

    def op(self, name: str, *args: int) -> int:
        """A pointwise operator of ir/program/ops.py."""
        dtype = result_dtype(name, tuple(self.dtype(a) for a in args))
        return self._put(name, args, None, dtype, self._mask(args))

    def cast(self, value: int, dtype: DType) -> int:
        """The value cast to `dtype`; for a 16-bit or 8-bit float it is rounded and stays a float32."""
        if dtype in (BF16, F16, F8E4M3FN, F8E5M2):
            return self.round_to(self.cast(value, F32), dtype)
        if self.dtype(value) == dtype:
            return value
        return self._put("cast", (value,), None, dtype, self._mask((value,)))

    def round_to(self, value: int, dtype: DType) -> int:
        """A float32 value rounded to a value of `dtype`; a value that was rounded to it before is returned as it is."""
        if self._ops[value].attrs == ir.Round(dtype):
            return value
        return self._put("round_to", (value,), ir.Round(dtype), F32, self._mask((value,)))

    def bitcast(self, value: int, dtype: DType) -> int:
        return self._put("bitcast", (value,), None, dtype, self._mask((value,)))

    def region(self) -> Builder:
        """A builder for the body of a masked op in this body; its bounds checks get other names than those here."""
        return Builder(self.axes, self.extents, around=self)

    def check(
        self,
        value: int,
        size: Expr,
        *,
        wrap: bool,
        error: ir.ErrorKind | None = "IndexError",
        op: str = "",
        dim: int = 0,
        node: str = "",
    ) -> Expr:
        """The value as an index in [0, size); an index out of range sets the error flag and becomes 0.

        If the index is proved to be in range, the check reports no error. If the value also is a known index
        expression, that expression is returned and no check is made.
        """
        low, high = value_bounds(self._ops, value)
        if high is not None and at_least(size - 1 - high, 0, self.extents):
            is_natural = low is not None and at_least(low, 0, self.extents)
            if is_natural and low == high:
                return high
            if is_natural or (wrap and low is not None and at_least(low + size, 0, self.extents)):
                wrap, error = wrap and not is_natural, None
        key = ("check", (value,), ir.Check(_PLACE, size, wrap, error), I64)
        position = self._seen.get(key)
        if position is None:
            made = index_below(f"v{next(self._numbers)}", "value", size)
            attrs = ir.Check(made, size, wrap, error, op, dim, node)
            position = self._seen[key] = self._put("check", (value,), attrs, I64, self._mask((value,)))
            self._checks[made] = position
        attrs = self._ops[position].attrs
        assert isinstance(attrs, ir.Check)
        return attrs.symbol

    def masked(self, cond: int, captured: Sequence[int], body: ir.Body, other: ir.LiteralValue, dtype: DType) -> int:
        """The result of `body` where `cond` holds, else `other`; the body's parameters are the captured values."""
        outer = [s for s in ir.symbols_in(body) if s in self._checks]  # an index inside may use a check made outside
        args = (cond, *captured, *(self._checks[s] for s in outer))
        mask = self._mask(args) | self._region_mask(body)
        return self._put("masked", args, ir.Masked(body, other), dtype, mask)

    def reduce(self, values: Sequence[int], axes: Sequence[str], how: ir.Combine) -> int:
        """Reduces values over axes; the position is that of the first carried value, and `project` gives the others."""
        gone = sum(self._bits[a] for a in axes)
        mask = self._mask(values) & ~gone
        return self._put("reduce", tuple(values), ir.Reduce(tuple(axes), how), self.dtype(values[0]), mask)

    def scan(self, values: Sequence[int], axis: str, how: ir.Combine, *, reverse: bool = False) -> int:
        mask = self._mask(values) | self._bits[axis]
        return self._put("scan", tuple(values), ir.Scan(axis, how, reverse), self.dtype(values[0]), mask)

    def project(self, value: int, number: int) -> int:
        """The number-th carried value of a reduce or scan."""
        if number == 0:
            return value
        of = self._ops[value]
        if not isinstance(of.attrs, ir.Reduce | ir.Scan):
            raise ValueError(f"project needs a reduce or scan, not %{value} = {of.name}")
        return self._put("project", (value,), ir.Project(number), self.dtype(of.args[number]), self._masks[value])

    # --- effects: never shared

    def store(self, ref: ir.Ref, index: Expr, value: int) -> int:
        checks = self._checks_of(index)
        return self._add("store", (value, *checks), ir.Store(ref, index), None, self._mask_of(index, (value, *checks)))

    def atomic(self, ref: ir.Ref, index: Expr, value: int, kind: str) -> int:
        checks = self._checks_of(index)
        # A sum or product has a term for each point, also along an axis over which neither index nor value varies.
        is_counted = kind in ("add", "mul")
        mask = (1 << len(self.axes)) - 1 if is_counted else self._mask_of(index, (value, *checks))
        return self._add("atomic", (value, *checks), ir.Atomic(ref, index, kind), None, mask)

    def assertion(self, cond: int, message: str) -> int:
        return self._add("assert", (cond,), ir.Assert(message), None, self._mask((cond,)))

    # --- whole bodies

    def splice(
        self,
        body: ir.Body,
        mapping: Mapping[Symbol, Expr],
        load: LoadHook | None = None,
        parameters: Sequence[int] | None = None,
        effects: Callable[[ir.Op], bool] | None = None,
    ) -> list[int]:
        """Appends the ops of another body with its axis symbols replaced; returns the new position of each op.

        If the axis of a reduction is mapped to an expression, the reduction runs over the axes in that expression, so
        the mapping must be a bijection of domains. The axis of a scan may be mapped to an axis, or to an axis counted
        from its end, which reverses the scan. `load` may give the position of a loaded value. `parameters` replace
        parameter ops. `effects` says which stores to keep (default: all); a dropped store has the position of its
        value. An op that names no ATen node, as in a `Combine`, gets the builder's.
        """
        moved: dict[Symbol, Expr] = {old: new for old, new in mapping.items() if old is not new}
        if not (self._ops or moved or load or parameters or effects) and self._adopt(body):
            return list(range(len(body.ops)))
        outer = self.node  # restored below, since a load hook may splice too
        where: list[int] = []
        for op in body.ops:
            self.node = op.node or outer
            args = tuple(where[a] for a in op.args)
            if op.is_effect and effects is not None and not effects(op):
                where.append(args[0])
            elif not moved and load is None and parameters is None and not isinstance(op.attrs, NAMED_ANEW):
                where.append(self.again(op, args))
            else:
                where.append(self._move(op, args, moved, load, parameters))
        self.node = outer
        return where

    def _adopt(self, body: ir.Body) -> bool:
        """Takes over the ops of a body over the same axes, as the first ones here; False, and nothing, if it cannot."""
        ops = body.ops
        masks = {axes: sum(self._bits[name] for name in axes) for axes in {op.axes for op in ops}}
        names = {mask: tuple(a.name for a in self.axes if self._bits[a.name] & mask) for mask in masks.values()}
        if any(names[mask] != axes for axes, mask in masks.items()):  # they stand in another order there
            return False
        seen: dict[tuple[str, tuple[int, ...], ir.Attrs, DType | None], int] = {}
        for position, op in enumerate(ops):
            if isinstance(op.attrs, NAMED_ANEW):
                return False
            if not isinstance(op.attrs, ir.EFFECTS):
                seen[op.name, op.args, op.attrs, op.dtype] = position
        self._seen = seen
        self._names.update(names)
        self._masks = [masks[op.axes] for op in ops]
        self._ops = list(ops)
        return True

    def unroll(self, body: ir.Body, axis: Symbol, count: int) -> None:
        """Appends a body with one of its axes unrolled: an op that varies over the axis is there once for each value.

        A reduction over that axis and others first combines the values along the axis, then runs over the others.
        """
        moved: list[dict[Symbol, Expr]] = [{axis: integer(n)} for n in range(count)]
        where: list[list[int]] = [[] for _ in range(count)]
        for op in body.ops:
            self.node = op.node
            args = [tuple(places[a] for a in op.args) for places in where]
            if isinstance(op.attrs, ir.Reduce) and axis.name in op.attrs.axes:
                values = self._joined(args, op.attrs.combine)
                rest = [name for name in op.attrs.axes if name != axis.name]
                made = [self.reduce(values, rest, op.attrs.combine)] * count
            elif op.is_effect and axis.name not in op.axes:
                made = [self._move(op, args[0], moved[0], None, None)] * count
            else:
                made = [self._move(op, a, m, None, None) for a, m in zip(args, moved, strict=True)]
            for places, position in zip(where, made, strict=True):
                places.append(position)

    def _joined(self, groups: Sequence[tuple[int, ...]], how: ir.Combine) -> tuple[int, ...]:
        """Combines groups of carried values into one group, from the first to the last."""
        values, *others = groups
        for group in others:
            places = self.splice(how.body, {}, parameters=(*values, *group))
            values = tuple(places[result] for result in how.body.results)
        return values

    def _move(
        self,
        op: ir.Op,
        args: tuple[int, ...],
        moved: dict[Symbol, Expr],
        load: LoadHook | None,
        parameters: Sequence[int] | None,
    ) -> int:
        attrs = op.attrs
        if attrs is None or isinstance(attrs, ir.Constant):  # what most ops are
            return self._put(op.name, args, attrs, op.dtype, self._mask(args))
        match attrs:
            case ir.Load(ref, index):
                assert op.dtype is not None
                there = ir.Load(ref, substitute(index, moved)) if moved else attrs
                answer = load(self, there, op.dtype) if load is not None else None
                return self.load(ref, there.index, op.dtype) if answer is None else answer
            case ir.Index(expr):
                return self.index(substitute(expr, moved))
            case ir.Check(old, size, wrap, error, whose, dim, node):
                there = substitute(size, moved)
                new = moved[old] = self.check(args[0], there, wrap=wrap, error=error, op=whose, dim=dim, node=node)
                return self._checks[new] if isinstance(new, Symbol) and new in self._checks else args[0]
            case ir.Store(ref, index):
                return self.store(ref, substitute(index, moved), args[0])
            case ir.Atomic(ref, index, kind):
                return self.atomic(ref, substitute(index, moved), args[0], kind)
            case ir.Parameter(number) if parameters is not None:
                return parameters[number]
            case ir.Reduce(axes, how):
                return self.reduce(args, self._axes_after(axes, moved), how)
            case ir.Scan(axis, how, reverse):
                name, is_turned = _axis_after(axis, moved)
                return self.scan(args, name, how, reverse=reverse != is_turned)
            case ir.Masked(inner, other):
                assert op.dtype is not None
                region = self.region()
                places = region.splice(inner, moved, load)
                captured = args[1 : 1 + parameter_count(inner)]
                return self.masked(args[0], captured, region.build([places[r] for r in inner.results]), other, op.dtype)
            case ir.Parameter() | ir.Round() | ir.Project() | ir.Assert():
                return self._again(op, args, self._mask(args))

    def moved(
        self,
        op: ir.Op,
        args: tuple[int, ...],
        mapping: dict[Symbol, Expr],
        load: LoadHook | None = None,
    ) -> int:
        """Appends one op of another body as `splice` does; `args` are the positions of its arguments here.

        `mapping` takes what the symbol of a check becomes, for the ops behind the check.
        """
        outer, self.node = self.node, op.node or self.node
        position = self._move(op, args, mapping, load, None)
        self.node = outer
        return position

    def again(self, op: ir.Op, args: tuple[int, ...]) -> int:
        """Appends an op of another body over the same axes; `args` are the positions of its arguments here."""
        return self._again(op, args, sum(self._bits.get(axis, 0) for axis in op.axes))

    def _again(self, op: ir.Op, args: tuple[int, ...], mask: int) -> int:
        if isinstance(op.attrs, ir.Round):
            return self.round_to(args[0], op.attrs.dtype)
        put = self._add if op.is_effect else self._put
        return put(op.name, args, op.attrs, op.dtype, mask)

    def _axes_after(self, axes: Iterable[str], moved: Mapping[Symbol, Expr]) -> list[str]:
        by_name = {s.name: e for s, e in moved.items()}
        names: dict[str, None] = {}
        for axis in axes:
            target = by_name.get(axis)
            found = [axis] if target is None else [s.name for s in free_symbols(target) if s.kind == "axis"]
            names.update(dict.fromkeys(found))
        return sorted(names, key=lambda n: self._bits[n])

    # --- bookkeeping

    def _put(self, name: str, args: tuple[int, ...], attrs: ir.Attrs, dtype: DType | None, mask: int) -> int:
        key = (name, args, attrs, dtype)
        position = self._seen.get(key)
        if position is None:
            position = self._seen[key] = self._add(name, args, attrs, dtype, mask)
        return position

    def _add(self, name: str, args: tuple[int, ...], attrs: ir.Attrs, dtype: DType | None, mask: int) -> int:
        names = self._names.get(mask)
        if names is None:
            names = self._names[mask] = tuple(a.name for a in self.axes if self._bits[a.name] & mask)
        self._ops.append(ir.Op(name, args, attrs, dtype, names, self.node))
        self._masks.append(mask)
        return len(self._ops) - 1

    def _mask(self, args: Iterable[int]) -> int:
        mask = 0
        for a in args:
            mask |= self._masks[a]
        return mask

    def _mask_of(self, index: Expr, args: Iterable[int]) -> int:
        mask = self._mask(args)
        for s in free_symbols(index):
            mask |= self._bits.get(s.name, 0) | self._check_mask(s)
        return mask

    def _check_mask(self, checked: Symbol) -> int:
        """The axes over which a checked index varies; the check is in this body or in one that encloses it."""
        if checked in self._checks:
            return self._masks[self._checks[checked]]
        return 0 if self._around is None else self._around._check_mask(checked)

    def _region_mask(self, body: ir.Body) -> int:
        return sum(bit for name, bit in self._bits.items() if any(name in op.axes for op in body.ops))

    def _checks_of(self, index: Expr) -> tuple[int, ...]:
        return tuple(self._checks[s] for s in free_symbols(index) if s.kind == "value" and s in self._checks)


def _axis_after(axis: str, moved: Mapping[Symbol, Expr]) -> tuple[str, bool]:
    """The axis of a scan after a mapping, and whether the scan is reversed; ValueError if it is not an axis."""
    target = next((expr for old, expr in moved.items() if old.name == axis), None)
    if target is None:
        return axis, False
    step = axis_step(target)
    if step is None:
        raise ValueError(f"a scan along {axis} cannot run along {target}")
    return step[0].name, step[1] < 0


def axis_step(index: Expr) -> tuple[Symbol, int] | None:
    """The only axis in an index expression and its coefficient, if that is 1 or -1; else None."""
    found = [s for s in free_symbols(index) if s.kind == "axis"]
    split = linear(index, found)
    step = None if split is None or len(found) != 1 else as_int(split[0][found[0]])
    return None if step not in (1, -1) else (found[0], step)


def parameter_count(body: ir.Body) -> int:
    """The number of parameters of a body."""
    return max((op.attrs.number + 1 for op in body.ops if isinstance(op.attrs, ir.Parameter)), default=0)


_PLACE = index_below("v", "value", integer(1))  # in keys, for the symbol of any check
_KINDS: Mapping[str, DType] = {"real": F64, "truth": BOOL}


# --- the named ways to combine ------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def combine(name: str, dtype: DType) -> ir.Combine:
    """The named reduction for values of `dtype`; ValueError for an unknown name."""
    simple = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "xor": "bitwise_xor"}
    logical = {"any": "logical_or", "all": "logical_and"}
    b = Builder()
    if name in simple or name in logical:
        result = b.op((simple | logical)[name], b.parameter(0, dtype), b.parameter(1, dtype))
        return ir.Combine(name, (_identity(name, dtype),), b.build([result]))
    match name:
        case "argmax" | "argmin":
            extreme = _identity("max" if name == "argmax" else "min", dtype)
            return ir.Combine(name, (extreme, I64.max_value), _arg_extreme(b, name, dtype))
        case "last_max" | "last_min":
            extreme = _identity(name.removeprefix("last_"), dtype)
            return ir.Combine(name, (extreme, 0), _last_extreme(b, name, dtype))
        case "logsumexp":
            return ir.Combine(name, (-math.inf, 0.0), _log_sum_exp(b, dtype))
        case "welford":
            return ir.Combine(name, (0.0, 0.0, 0.0), _welford(b, dtype))
        case "online_softmax" | "fast_online_softmax":
            exp = "exp" if name == "online_softmax" else "fast_exp"
            return ir.Combine(name, (-math.inf, -math.inf, 0.0), _online_softmax(b, dtype, exp))
        case _:
            raise ValueError(f"unknown way to combine: {name!r}")


def is_standard_combine(how: ir.Combine, dtype: DType | None) -> bool:
    """Whether `how` equals `combine(how.name, dtype)`, so that printing its name is enough."""
    return dtype is not None and how.name in COMBINES and how == combine(how.name, dtype)


def _identity(name: str, dtype: DType) -> ir.LiteralValue:
    match name:
        case "sum" | "xor":
            return 0.0 if dtype.kind == "float" else 0
        case "prod":
            return 1.0 if dtype.kind == "float" else 1
        case "max":
            return -math.inf if dtype.kind == "float" else dtype.min_value
        case "min":
            return math.inf if dtype.kind == "float" else dtype.max_value
        case _:
            return name == "all"


def _arg_extreme(b: Builder, name: str, dtype: DType) -> ir.Body:
    """(value, index): a NaN beats every number, a tie goes to the smaller index."""
    v0, i0, v1, i1 = b.parameter(0, dtype), b.parameter(1, I64), b.parameter(2, dtype), b.parameter(3, I64)
    better = b.op("gt" if name == "argmax" else "lt", v1, v0)
    equal = b.op("eq", v0, v1)
    if dtype.kind == "float":
        nan0, nan1 = b.op("isnan", v0), b.op("isnan", v1)
        better = b.op("logical_or", better, b.op("logical_and", nan1, b.op("logical_not", nan0)))
        equal = b.op("logical_or", equal, b.op("logical_and", nan0, nan1))
    second = b.op("logical_or", better, b.op("logical_and", equal, b.op("lt", i1, i0)))
    return b.build([b.op("where", second, v1, v0), b.op("where", second, i1, i0)])


def _last_extreme(b: Builder, name: str, dtype: DType) -> ir.Body:
    """(value, index): a NaN beats every number, a tie goes to the second group."""
    v0, i0, v1, i1 = b.parameter(0, dtype), b.parameter(1, I64), b.parameter(2, dtype), b.parameter(3, I64)
    second = b.op("ge" if name == "last_max" else "le", v1, v0)
    if dtype.kind == "float":
        second = b.op("logical_or", second, b.op("isnan", v1))
    return b.build([b.op("where", second, v1, v0), b.op("where", second, i1, i0)])


def _log_sum_exp(b: Builder, dtype: DType) -> ir.Body:
    """(maximum, sum of exp(x - maximum)); equal maxima are not subtracted, since they may be infinite."""
    m0, s0, m1, s1 = (b.parameter(k, dtype) for k in range(4))
    top, low = b.op("maximum", m0, m1), b.op("minimum", m0, m1)
    distance = b.op("where", b.op("eq", top, low), b.constant(0.0, dtype), b.op("sub", low, top))
    share, is_first = b.op("exp", distance), b.op("ge", m0, m1)
    left = b.op("where", is_first, s0, b.op("mul", s0, share))
    right = b.op("where", is_first, b.op("mul", s1, share), s1)
    return b.build([top, b.op("add", left, right)])


def _welford(b: Builder, dtype: DType) -> ir.Body:
    """(mean, sum of squared distances, count), after Chan, Golub and LeVeque (1979)."""
    m0, s0, n0, m1, s1, n1 = (b.parameter(k, dtype) for k in range(6))
    n = b.op("add", n0, n1)
    zero = b.constant(0.0, dtype)
    share = b.op("where", b.op("eq", n, zero), zero, b.op("fast_div", n1, n))  # an error of it scales a difference
    delta = b.op("sub", m1, m0)
    mean = b.op("add", m0, b.op("mul", delta, share))
    cross = b.op("mul", b.op("mul", delta, delta), b.op("mul", n0, share))
    return b.build([mean, b.op("add", b.op("add", s0, s1), cross), n])


def _online_softmax(b: Builder, dtype: DType, exp: str) -> ir.Body:
    """(maximum, shift, sum of exp(x - shift)), after Milakov and Gimelshein (2018), whose shift is the maximum."""
    m0, h0, s0, m1, h1, s1 = (b.parameter(k, dtype) for k in range(6))
    shift, low = b.op("maximum", h0, h1), b.op("minimum", h0, h1)
    factor = b.op("where", b.op("eq", h0, h1), b.constant(1.0, dtype), b.op(exp, b.op("sub", low, shift)))
    second = b.op("gt", h1, h0)
    larger, smaller = b.op("where", second, s1, s0), b.op("where", second, s0, s1)
    return b.build([b.op("maximum", m0, m1), shift, b.op("add", b.op("mul", smaller, factor), larger)])


SHIFT = 32.0


def softmax_terms(b: Builder, x: int) -> tuple[int, int, int]:
    """The three values with which an element x enters an "online_softmax": x, its shift, and exp(x - shift).

    The shift is the nearest multiple of 32, and finite. So x - shift is exact, and its exp does not overflow. A sum is
    corrected only when the shift grows, and then by a factor of at most exp(-32), so that hardly any rounding error
    adds up. A sum that is corrected whenever the maximum grows would add an error each time.
    """
    shift = softmax_shift(b, x)
    return x, shift, b.op("exp", b.op("sub", x, shift))


def softmax_shift(b: Builder, x: int) -> int:
    """The shift of an element, see `softmax_terms`; that of several elements is the shift of their maximum."""
    dtype = b.dtype(x)
    limit = float(dtype.max_value)
    finite = b.op("minimum", b.op("maximum", x, b.constant(-limit, dtype)), b.constant(limit, dtype))
    steps = b.op("round", b.op("mul", finite, b.constant(1 / SHIFT, dtype)))
    return b.op("mul", steps, b.constant(SHIFT, dtype))


def softmax_total(b: Builder, joined: int) -> int:
    """The sum of exp(x - maximum) from the result of an "online_softmax"; NaN if the maximum is infinite."""
    return b.op("mul", b.project(joined, 2), b.op("exp", b.op("sub", b.project(joined, 1), joined)))
