"""Complex numbers as pairs of real ones: one kernel computes the real parts of a result, another the imaginary ones.

Takes complex64 and complex128 tensors, and beside them real tensors and numbers, whose imaginary parts are 0. Gives a
`ComplexPair`, or a real tensor. Refuses complex32 and operators without a row, which become extern calls.

There are three kinds of rows: what the rule for real tensors does to each part apart; views; and formulas, which take
the steps that eager takes, so that infinities and NaN stand where eager has them. Slices that are written and padding
have no row: of two loads side by side that are masked alike, g++ 12 reads others in a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from minductor.core.dtypes import BOOL, DType, complex_parts
from minductor.core.expressions.expr import floordiv, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count
from minductor.frontend.lowering_context.complex_pairs import (
    deinterleaved,
    is_complex_memory,
    materialize,
    real_and_imaginary,
)
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import ComplexPair, Operand, Value, is_zero_sized, promoted, wrap_dims
from minductor.frontend.rules import views
from minductor.frontend.rules.reduce import Dims
from minductor.frontend.rules.table import RULES as REAL
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]
Result = TypeVar("Result", "Number", KernelValue)


def is_complex(x: Value) -> bool:
    return isinstance(x, ComplexPair) or (isinstance(x, View) and x.dtype.kind == "complex")


def parts_of(ctx: Lowering, x: Operand | ComplexPair) -> tuple[Operand, Operand]:
    """The parts of an operand; what is real is its own real part."""
    match x:
        case ComplexPair():
            return x.re, x.im
        case View(dtype=dtype) if dtype.kind == "complex":
            found = real_and_imaginary(ctx, x)
            return found.re, found.im
        case complex():
            return x.real, x.imag
        case _:
            return x, 0


def real_meta(meta: TensorMeta) -> TensorMeta:
    return replace(meta, dtype=complex_parts(meta.dtype))


# --- each part apart ----------------------------------------------------------------------------------------------


def apart(op: str, *places: int, is_mixed: bool = False) -> Rule:
    """The rule for real tensors, given the real parts of the arguments at these places, then the imaginary ones.

    `is_mixed`: they may be real tensors, of which the rule is given 0 as the imaginary part.
    """
    real = REAL[op]

    def rule(ctx: Lowering, *args: Value, **kwargs: Value) -> Value:
        taken = [x for place in places if place < len(args) for x in _listed(args[place])]
        if not is_mixed and any(isinstance(x, View) and not is_complex(x) for x in taken):
            return NotImplemented
        both = [_both(ctx, x) if place in places else (x, x) for place, x in enumerate(args)]
        with ctx.with_single_result(real_meta(ctx.meta)):
            re, im = (real(ctx, *given, **kwargs) for given in zip(*both, strict=True))
        return ComplexPair(re, im) if isinstance(re, View) and isinstance(im, View) else NotImplemented

    return rule


def _both(ctx: Lowering, x: Any) -> tuple[Value, Value]:
    """The parts of an operand, or the lists of those of a list."""
    if not isinstance(x, tuple):
        return parts_of(ctx, x)
    each = [parts_of(ctx, item) for item in x]
    return tuple([re for re, _ in each]), tuple([im for _, im in each])


def _listed(x: Value) -> tuple[Value, ...]:
    return x if isinstance(x, tuple) else (x,)


def created(op: str, rule: Rule) -> Rule:
    """Tensors like a complex one that may be real ones: the argument concerns the layout, which the metadata has."""
    real = REAL[op]

    def either(ctx: Lowering, *args: Value, **layout: Value) -> Value:
        return (rule if ctx.meta.dtype.kind == "complex" else real)(ctx, *args, **layout)

    return either


def to_copy(ctx: Lowering, x: View | ComplexPair, dtype: DType | None = None, **layout: Value) -> Value:
    """A real result is the real part, and a truth value whether one of the parts is not 0."""
    if ctx.meta.dtype.kind == "complex":
        return apart("aten._to_copy.default", 0, is_mixed=True)(ctx, x)
    if ctx.meta.dtype == BOOL:
        return real_formula(lambda v: v.re.op("ne", 0.0).either(v.im.op("ne", 0.0)))(ctx, x)
    return REAL["aten._to_copy.default"](ctx, parts_of(ctx, x)[0])


def copy_into(ctx: Lowering, x: View, source: Operand | ComplexPair, non_blocking: Value = None) -> Value:
    """aten.copy_: a version of x's storage for each part."""
    if x.ref.storage in ctx.state.conjugates or not is_complex_memory(ctx, x):
        return NotImplemented
    if source == x or is_zero_sized(x):
        return x
    is_held = isinstance(source, View) and source.ref.storage == x.ref.storage  # all of it is read before
    given: Any = formula(lambda value: value)(ctx, source) if is_held else source
    for number, part in enumerate(parts_of(ctx, given)):
        loop, to = KernelBuilder(x.size), deinterleaved(ctx.next_version(x))
        ctx.store(loop, (to.re, to.im)[number], loop.coords, loop.load(part, None, to.re.dtype))
    return ctx.newest(x)


def ones(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    return formula(lambda value: value)(ctx, 1)


def mean(
    ctx: Lowering, x: View | ComplexPair, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    total = apart("aten.sum.dim_IntList", 0)(ctx, x, dims, keepdim)
    size = (x.re if isinstance(x, ComplexPair) else x).size
    if total is NotImplemented:
        return total
    return formula(quotient)(ctx, total, count(size[d] for d in wrap_dims(dims, len(size))))


# --- views --------------------------------------------------------------------------------------------------------


def window(rule: Rule) -> Rule:
    """The same window on each part; where data decide which, on memory of torch's kind."""

    def complex_rule(ctx: Lowering, x: View | ComplexPair, *args: Value, **kwargs: Value) -> Value:
        if isinstance(x, View) or ctx.undefined_symbols(ctx.node.meta):
            return rule(ctx, materialize(ctx, x) if isinstance(x, ComplexPair) else x, *args, **kwargs)
        found: tuple[Any, Any] = (rule(ctx, x.re, *args, **kwargs), rule(ctx, x.im, *args, **kwargs))
        return (
            tuple([ComplexPair(*both) for both in zip(*found, strict=True)])
            if isinstance(found[0], tuple)
            else ComplexPair(*found)
        )

    return complex_rule


def view_as_complex(ctx: Lowering, x: View) -> Value:
    """Real memory read in pairs; a copy where it is not known to begin at an even place."""
    stride, offset = tuple([floordiv(s, 2) for s in x.stride[:-1]]), floordiv(x.offset, 2)
    if all(2 * half == step for half, step in zip((*stride, offset), (*x.stride[:-1], x.offset), strict=True)):
        return View(x.ref, ctx.meta.dtype, x.size[:-1], stride, offset)
    re = View(x.ref, x.dtype, x.size[:-1], x.stride[:-1], x.offset)
    return make_complex(ctx, re, replace(re, offset=re.offset + x.stride[-1]))


def view_as_real(ctx: Lowering, x: View | ComplexPair) -> Value:
    """Both parts in real memory; a window, where they are there already."""
    if isinstance(x, View):
        re = real_and_imaginary(ctx, x).re
        both = View(re.ref, re.dtype, (*re.size, integer(2)), (*re.stride, integer(1)), re.offset)
        return ctx.map(lambda loop: loop.load(both)) if is_complex_memory(ctx, re) else both
    out = ctx.result()
    if is_zero_sized(out):
        return ctx.uninitialised(out)
    for number, part in enumerate((x.re, x.im)):
        loop = KernelBuilder(x.re.size)
        ctx.store(loop, ctx.next_version(out) if number else out, (*loop.coords, integer(number)), loop.load(part))
    return ctx.newest(out)


def real(ctx: Lowering, x: View | ComplexPair) -> Value:
    re = real_and_imaginary(ctx, x).re
    return ctx.map(lambda loop: loop.load(re))


def imag(ctx: Lowering, x: View | ComplexPair) -> Value:
    im = real_and_imaginary(ctx, x).im
    return ctx.map(lambda loop: loop.load(im))


# --- formulas -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """A complex value in a body under construction."""

    re: KernelValue
    im: KernelValue

    @property
    def magnitude(self) -> KernelValue:
        return self.re.op("hypot", self.im)


def formula(fn: Callable[..., Number]) -> Rule:
    """All arguments are operands, computed in the result's dtype."""

    def rule(ctx: Lowering, *operands: Operand | ComplexPair) -> Value:
        meta = real_meta(ctx.meta)
        value = _applied(ctx, fn, operands, meta.dtype)
        return ComplexPair(ctx.map(lambda loop: value(loop).re, meta), ctx.map(lambda loop: value(loop).im, meta))

    return rule


def real_formula(fn: Callable[..., KernelValue]) -> Rule:
    """Complex operands, computed in their common dtype, and a real result."""

    def rule(ctx: Lowering, *operands: Operand | ComplexPair) -> Value:
        dtype = promoted(replace(x.re, dtype=x.dtype) if isinstance(x, ComplexPair) else x for x in operands)
        return ctx.map(_applied(ctx, fn, operands, complex_parts(dtype)))

    return rule


def _applied(
    ctx: Lowering, fn: Callable[..., Result], operands: Sequence[Operand | ComplexPair], dtype: DType
) -> Callable[[KernelBuilder], Result]:
    given = [parts_of(ctx, x) for x in operands]
    return lambda loop: fn(*(Number(loop.load(re, None, dtype), loop.load(im, None, dtype)) for re, im in given))


def plus(x: Number, y: Number) -> Number:
    return Number(x.re + y.re, x.im + y.im)


def times(x: Number, y: Number) -> Number:
    return Number(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def quotient(x: Number, y: Number) -> Number:
    """Divides by the larger part of y first, so that nothing overflows that need not."""
    is_re = y.re.op("abs") >= y.im.op("abs")
    large, small = is_re.where(y.re, y.im), is_re.where(y.im, y.re)
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    re = is_re.where(x.re + x.im * ratio, x.re * ratio + x.im) * scale
    im = is_re.where(x.im - x.re * ratio, x.im * ratio - x.re) * scale
    is_zero = y.re.equals(0.0).both(y.im.equals(0.0))
    return Number(is_zero.where(x.re / y.re.op("abs"), re), is_zero.where(x.im / y.im.op("abs"), im))


def reciprocal(x: Number) -> Number:
    return quotient(Number(x.re.number(1.0), x.re.number(0.0)), x)


def sign(x: Number) -> Number:
    """The number of magnitude 1 in that direction; 0 has none."""
    size = x.magnitude
    is_zero = size.equals(0.0)
    return Number(is_zero.where(0.0, x.re / size), is_zero.where(0.0, x.im / size))


def add(ctx: Lowering, x: Operand | ComplexPair, y: Operand | ComplexPair, alpha: Operand = 1) -> Value:
    """As eager, which multiplies by a complex number, 1 too: of an infinity this makes NaN."""
    return formula(lambda a, b, factor: plus(a, times(factor, b)))(ctx, x, y, alpha)


def sub(ctx: Lowering, x: Operand | ComplexPair, y: Operand | ComplexPair, alpha: complex = 1) -> Value:
    return add(ctx, x, y, -alpha)


def rsub(ctx: Lowering, x: Operand | ComplexPair, y: Operand | ComplexPair, alpha: complex = 1) -> Value:
    return add(ctx, y, x, -alpha)


def power(ctx: Lowering, x: View | ComplexPair, exponent: Operand) -> Value:
    """Those that eager computes as products."""
    match exponent:
        case 0:
            return ones(ctx)
        case 1:
            return formula(lambda a: a)(ctx, x)
        case 2:
            return formula(lambda a: times(a, a))(ctx, x)
        case _:
            return NotImplemented


def conjugate(ctx: Lowering, x: View | ComplexPair) -> Value:
    return formula(lambda a: Number(a.re, -a.im))(ctx, x)


def of_parts(fn: Callable[..., Number]) -> Rule:
    """Two real tensors, which have to be of one dtype."""

    def rule(ctx: Lowering, a: View, b: View) -> Value:
        return formula(fn)(ctx, a, b) if a.dtype == b.dtype else NotImplemented

    return rule


make_complex = of_parts(lambda re, im: Number(re.re, im.re))


def norm(ctx: Lowering, x: View | ComplexPair, *args: Value, **kwargs: Value) -> Value:
    """That of the magnitudes."""
    given = real_and_imaginary(ctx, x)
    size = ctx.buffer(given.re.dtype, given.re.size)
    if is_zero_sized(size):
        return NotImplemented
    loop = KernelBuilder(size.size)
    ctx.store(loop, size, loop.coords, loop.load(given.re).op("hypot", loop.load(given.im)))
    return REAL["aten.linalg_vector_norm.default"](ctx, size, *args, **kwargs)


# --- the table ----------------------------------------------------------------------------------------------------

_FIRST = (
    "neg clone lift_fresh_copy tril triu flip roll repeat select_backward index.Tensor index_select"
    " gather sum sum.dim_IntList cumsum cat stack zero"
)
_TWO = "select_scatter diagonal_scatter"
_MIXED: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "copy": (1,),
        "full": (1,),
        "fill.Scalar": (1,),
        "fill.Tensor": (1,),
        "scalar_tensor": (0,),
        "zeros": (),
        "masked_fill.Scalar": (0, 2),
        "masked_fill.Tensor": (0, 2),
        "where.self": (1, 2),
        "where.ScalarOther": (1, 2),
        "where.ScalarSelf": (1, 2),
        "where.Scalar": (1, 2),
    }
)
_ALLOCATED = "empty.memory_format empty_strided empty_like empty_permuted new_empty new_empty_strided"


def _full(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


def _each(name: str, rule: Rule, kinds: str = "Tensor Scalar") -> dict[str, Rule]:
    return {f"aten.{name}.{kind}": rule for kind in kinds.split()}


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{op: window(rule) for op, rule in views.RULES.items()},
        **{_full(name): apart(_full(name), 0) for name in _FIRST.split()},
        **{_full(name): apart(_full(name), 0, 1) for name in _TWO.split()},
        **{_full(name): apart(_full(name), *places, is_mixed=True) for name, places in _MIXED.items()},
        **{_full(name): REAL[_full(name)] for name in _ALLOCATED.split()},
        **{_full(name): created(_full(name), ones) for name in ("ones", "ones_like", "new_ones")},
        **{_full(name): created(_full(name), apart(_full(name), 0)) for name in ("zeros_like", "new_zeros")},
        "aten.full_like.default": created("aten.full_like.default", apart("aten.full_like.default", 1, is_mixed=True)),
        "aten.new_full.default": created("aten.new_full.default", apart("aten.new_full.default", 2, is_mixed=True)),
        "aten._to_copy.default": to_copy,
        "aten.copy_.default": copy_into,
        "aten.mean.default": mean,
        "aten.mean.dim": mean,
        "aten.linalg_vector_norm.default": norm,
        "aten.view_as_complex.default": view_as_complex,
        "aten.view_as_real.default": view_as_real,
        "aten.real.default": real,
        "aten.imag.default": imag,
        "aten._conj.default": conjugate,
        "aten.conj_physical.default": conjugate,
        "aten.complex.default": make_complex,
        "aten.polar.default": of_parts(lambda size, at: Number(size.re * at.re.op("cos"), size.re * at.re.op("sin"))),
        "aten.abs.default": real_formula(lambda x: x.magnitude),
        "aten.angle.default": real_formula(lambda x: x.im.op("atan2", x.re)),
        "aten.isnan.default": real_formula(lambda x: x.re.op("isnan").either(x.im.op("isnan"))),
        **_each("eq", real_formula(lambda x, y: x.re.equals(y.re).both(x.im.equals(y.im)))),
        **_each("ne", real_formula(lambda x, y: x.re.op("ne", y.re).either(x.im.op("ne", y.im)))),
        **_each("add", add),
        **_each("sub", sub),
        **_each("rsub", rsub),
        **_each("mul", formula(times)),
        **_each("div", formula(quotient)),
        "aten.true_divide.Tensor": formula(quotient),
        "aten.reciprocal.default": formula(reciprocal),
        "aten.square.default": formula(lambda x: times(x, x)),
        "aten.pow.Tensor_Scalar": power,
        "aten.sgn.default": formula(sign),
    }
)
