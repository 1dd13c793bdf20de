"""Rules of operators on complex tensors, as pairs of real tensors; `Lowering` uses this table if a tensor is complex.

1. Componentwise operators apply the rule for real tensors to the real and to the imaginary components: neg, clone, cat,
   sum, index, where, full, ...
2. Views: all operators of `views.py`, view_as_complex, view_as_real, real, imag.
3. Formulas of both components: add, sub, mul, div, reciprocal, square, pow with small exponents, sgn, conj, abs, angle,
   polar, eq, ne, isnan, mean, linalg_vector_norm. They take eager's steps, so that infinities and NaN agree.

Takes complex64 and complex128 tensors, and real tensors and numbers, whose imaginary components are 0. Gives a
`ComplexPair` of real tensors (one kernel for each component, which fuse), or a real tensor. Refuses (to an extern call)
complex32 and operators without a row. slice_scatter and constant_pad_nd have no row because g++ 12 miscompiles two
masked loads of neighbouring addresses with the same mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from minductor.core.dtypes import BOOL, DType, complex_parts
from minductor.core.expressions.expr import floordiv, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.schemas import operator_names
from minductor.frontend.capture.size_formulas import count
from minductor.frontend.lowering_context.complex_pairs import (
    deinterleaved,
    is_complex_memory,
    materialize,
    real_and_imaginary,
)
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import (
    ComplexPair,
    Operand,
    Rule,
    Value,
    is_zero_sized,
    promoted,
    rules_for,
    wrap_dims,
)
from minductor.frontend.rules import views
from minductor.frontend.rules.reduce import Dims
from minductor.frontend.rules.table import RULES as REAL
from minductor.ir.program.nodes import View

Complex: TypeAlias = "View | ComplexPair"
ComplexOperand: TypeAlias = "Operand | ComplexPair"
Result = TypeVar("Result", "ComplexTerm", KernelValue)


def is_complex(x: Value) -> bool:
    """Whether a value is a complex tensor."""
    return isinstance(x, ComplexPair) or (isinstance(x, View) and x.dtype.kind == "complex")


def components_of(ctx: Lowering, x: ComplexOperand) -> tuple[Operand, Operand]:
    """The real and the imaginary component of an operand; the latter is 0 if the operand is real."""
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
    """The metadata of one component of a complex result."""
    return replace(meta, dtype=complex_parts(meta.dtype))


# --- componentwise operators --------------------------------------------------------------------------------------


def componentwise(op: str, *positions: int, is_mixed: bool = False) -> Rule:
    """A rule that runs the rule of `op` for real tensors twice: with the real, then with the imaginary components.

    `positions` are those of the arguments with components; the others are passed to both. With `is_mixed` these
    arguments may be real too, with the imaginary component 0; otherwise a real one is refused.
    """
    real = REAL[op]

    def rule(ctx: Lowering, *args: Value, **kwargs: Value) -> Value:
        taken = [x for position in positions if position < len(args) for x in _as_tuple(args[position])]
        if not is_mixed and any(isinstance(x, View) and not is_complex(x) for x in taken):
            return NotImplemented
        both = [_components(ctx, x) if position in positions else (x, x) for position, x in enumerate(args)]
        with ctx.with_single_result(real_meta(ctx.meta)):
            re, im = (real(ctx, *given, **kwargs) for given in zip(*both, strict=True))
        return ComplexPair(re, im) if isinstance(re, View) and isinstance(im, View) else NotImplemented

    return rule


def _components(ctx: Lowering, x: Any) -> tuple[Value, Value]:
    """The components of an operand, or two tuples of those of a tuple of operands."""
    if not isinstance(x, tuple):
        return components_of(ctx, x)
    each = [components_of(ctx, item) for item in x]
    return tuple([re for re, _ in each]), tuple([im for _, im in each])


def _as_tuple(x: Value) -> tuple[Value, ...]:
    """The items of a list argument, or the argument itself."""
    return x if isinstance(x, tuple) else (x,)


def real_or_complex(op: str, rule: Rule) -> Rule:
    """A rule for ones_like and its kin, whose result may be real although the argument is complex, and vice versa.

    The argument only gives the layout, which the traced result has already.
    """
    real = REAL[op]

    def either(ctx: Lowering, *args: Value, **layout: Value) -> Value:
        return (rule if ctx.meta.dtype.kind == "complex" else real)(ctx, *args, **layout)

    return either


def to_copy(ctx: Lowering, x: Complex, dtype: DType | None = None, **layout: Value) -> Value:
    """Lowers _to_copy. A real result is the real component; a bool is whether a component is not 0."""
    if ctx.meta.dtype.kind == "complex":
        return componentwise("aten._to_copy.default", 0, is_mixed=True)(ctx, x)
    if ctx.meta.dtype == BOOL:
        return real_formula(lambda v: v.re.op("ne", 0.0).either(v.im.op("ne", 0.0)))(ctx, x)
    return REAL["aten._to_copy.default"](ctx, components_of(ctx, x)[0])


def copy_into(ctx: Lowering, x: View, source: ComplexOperand, non_blocking: Value = None) -> Value:
    """Lowers copy_ into complex memory: one kernel per component. Refuses memory that may hold conjugates."""
    if x.ref.storage in ctx.state.conjugates or not is_complex_memory(ctx, x):
        return NotImplemented
    if source == x or is_zero_sized(x):
        return x
    is_overlapping = isinstance(source, View) and source.ref.storage == x.ref.storage
    given: Any = formula(lambda value: value)(ctx, source) if is_overlapping else source  # copied before it is written
    for number, part in enumerate(components_of(ctx, given)):
        loop, to = KernelBuilder(x.size), deinterleaved(ctx.next_version(x))
        ctx.store(loop, (to.re, to.im)[number], loop.coords, loop.load(part, None, to.re.dtype))
    return ctx.newest(x)


def ones(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    """A complex result of ones."""
    return formula(lambda value: value)(ctx, 1)


def mean(ctx: Lowering, x: Complex, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    """Lowers mean: the sum divided by the count as a complex number, as in eager."""
    total = componentwise("aten.sum.dim_IntList", 0)(ctx, x, dims, keepdim)
    size = (x.re if isinstance(x, ComplexPair) else x).size
    if total is NotImplemented:
        return total
    return formula(quotient)(ctx, total, count(size[d] for d in wrap_dims(dims, len(size))))


# --- views --------------------------------------------------------------------------------------------------------


def window(rule: Rule) -> Rule:
    """A rule for a view operator: a view of each component, or of the interleaved memory if data decide its bounds."""

    def complex_rule(ctx: Lowering, x: Complex, *args: Value, **kwargs: Value) -> Value:
        if isinstance(x, View) or ctx.undefined_symbols(ctx.node.meta):
            return rule(ctx, materialize(ctx, x) if isinstance(x, ComplexPair) else x, *args, **kwargs)
        found: tuple[Any, Any] = (rule(ctx, x.re, *args, **kwargs), rule(ctx, x.im, *args, **kwargs))
        if isinstance(found[0], tuple):
            return tuple([ComplexPair(*both) for both in zip(*found, strict=True)])
        return ComplexPair(*found)

    return complex_rule


def view_as_complex(ctx: Lowering, x: View) -> Value:
    """Lowers view_as_complex: a view if strides and offset are known to be even, else a copy of both components."""
    stride, offset = tuple([floordiv(s, 2) for s in x.stride[:-1]]), floordiv(x.offset, 2)
    if all(2 * half == step for half, step in zip((*stride, offset), (*x.stride[:-1], x.offset), strict=True)):
        return View(x.ref, ctx.meta.dtype, x.size[:-1], stride, offset)
    re = View(x.ref, x.dtype, x.size[:-1], x.stride[:-1], x.offset)
    return make_complex(ctx, re, replace(re, offset=re.offset + x.stride[-1]))


def view_as_real(ctx: Lowering, x: Complex) -> Value:
    """Lowers view_as_real: a view if the components lie in real memory side by side, else a copy."""
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


def real(ctx: Lowering, x: Complex) -> Value:
    """Lowers real: a copy of the real component."""
    re = real_and_imaginary(ctx, x).re
    return ctx.map(lambda loop: loop.load(re))


def imag(ctx: Lowering, x: Complex) -> Value:
    """Lowers imag: a copy of the imaginary component."""
    im = real_and_imaginary(ctx, x).im
    return ctx.map(lambda loop: loop.load(im))


# --- formulas -----------------------------------------------------------------------------------------------------


class ComplexTerm(NamedTuple):
    """A complex value of a kernel's body: the Terms of its components."""

    re: KernelValue
    im: KernelValue

    @property
    def magnitude(self) -> KernelValue:
        return self.re.op("hypot", self.im)


def formula(fn: Callable[..., ComplexTerm]) -> Rule:
    """A rule that computes `fn` of all its arguments in the result's dtype; one kernel per component."""

    def rule(ctx: Lowering, *operands: ComplexOperand) -> Value:
        meta = real_meta(ctx.meta)
        value = _body(ctx, fn, operands, meta.dtype)
        return ComplexPair(ctx.map(lambda loop: value(loop).re, meta), ctx.map(lambda loop: value(loop).im, meta))

    return rule


def real_formula(fn: Callable[..., KernelValue]) -> Rule:
    """A rule with a real result: one kernel of `fn` of all arguments, in their promoted dtype."""

    def rule(ctx: Lowering, *operands: ComplexOperand) -> Value:
        dtype = promoted(replace(x.re, dtype=x.dtype) if isinstance(x, ComplexPair) else x for x in operands)
        return ctx.map(_body(ctx, fn, operands, complex_parts(dtype)))

    return rule


def _body(
    ctx: Lowering, fn: Callable[..., Result], operands: Sequence[ComplexOperand], dtype: DType
) -> Callable[[KernelBuilder], Result]:
    """A function of the kernel's builder that computes `fn` of the operands' components in `dtype`."""
    given = [components_of(ctx, x) for x in operands]
    return lambda loop: fn(*(ComplexTerm(loop.load(re, None, dtype), loop.load(im, None, dtype)) for re, im in given))


def plus(x: ComplexTerm, y: ComplexTerm) -> ComplexTerm:
    """x + y."""
    return ComplexTerm(x.re + y.re, x.im + y.im)


def times(x: ComplexTerm, y: ComplexTerm) -> ComplexTerm:
    """x * y by four products, as in eager."""
    return ComplexTerm(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def quotient(x: ComplexTerm, y: ComplexTerm) -> ComplexTerm:
    """x / y, scaled by the larger component of y to avoid overflow (Smith, "Algorithm 116: complex division", 1962)."""
    is_re = y.re.op("abs") >= y.im.op("abs")
    large, small = is_re.where(y.re, y.im), is_re.where(y.im, y.re)
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    re = is_re.where(x.re + x.im * ratio, x.re * ratio + x.im) * scale
    im = is_re.where(x.im - x.re * ratio, x.im * ratio - x.re) * scale
    is_zero = y.re.equals(0.0).both(y.im.equals(0.0))
    return ComplexTerm(is_zero.where(x.re / y.re.op("abs"), re), is_zero.where(x.im / y.im.op("abs"), im))


def reciprocal(x: ComplexTerm) -> ComplexTerm:
    """1 / x."""
    return quotient(ComplexTerm(x.re.number(1.0), x.re.number(0.0)), x)


def sign(x: ComplexTerm) -> ComplexTerm:
    """x / |x|, and 0 for 0."""
    size = x.magnitude
    is_zero = size.equals(0.0)
    return ComplexTerm(is_zero.where(0.0, x.re / size), is_zero.where(0.0, x.im / size))


def add(ctx: Lowering, x: ComplexOperand, y: ComplexOperand, alpha: Operand = 1) -> Value:
    """Lowers add: x + alpha * y. As in eager, alpha is a complex number, so that 1 times an infinity has a NaN."""
    return formula(lambda a, b, factor: plus(a, times(factor, b)))(ctx, x, y, alpha)


def sub(ctx: Lowering, x: ComplexOperand, y: ComplexOperand, alpha: complex = 1) -> Value:
    """Lowers sub: x - alpha * y."""
    return add(ctx, x, y, -alpha)


def rsub(ctx: Lowering, x: ComplexOperand, y: ComplexOperand, alpha: complex = 1) -> Value:
    """Lowers rsub: y - alpha * x."""
    return add(ctx, y, x, -alpha)


def power(ctx: Lowering, x: Complex, exponent: Operand) -> Value:
    """Lowers pow with the exponents 0, 1 and 2, which eager computes without `pow`."""
    match exponent:
        case 0:
            return ones(ctx)
        case 1:
            return formula(lambda a: a)(ctx, x)
        case 2:
            return formula(lambda a: times(a, a))(ctx, x)
        case _:
            return NotImplemented


def conjugate(ctx: Lowering, x: Complex) -> Value:
    """Lowers _conj and conj_physical."""
    return formula(lambda a: ComplexTerm(a.re, -a.im))(ctx, x)


def of_parts(fn: Callable[..., ComplexTerm]) -> Rule:
    """A rule for complex and polar, which make a complex tensor of two real ones of one dtype."""

    def rule(ctx: Lowering, a: View, b: View) -> Value:
        return formula(fn)(ctx, a, b) if a.dtype == b.dtype else NotImplemented

    return rule


make_complex = of_parts(lambda re, im: ComplexTerm(re.re, im.re))


def norm(ctx: Lowering, x: Complex, *args: Value, **kwargs: Value) -> Value:
    """Lowers linalg_vector_norm: the norm of the magnitudes, which a kernel computes first."""
    given = real_and_imaginary(ctx, x)
    size = ctx.buffer(given.re.dtype, given.re.size)
    if is_zero_sized(size):
        return NotImplemented
    ctx.fill(size, lambda loop: loop.load(given.re).op("hypot", loop.load(given.im)))
    return REAL["aten.linalg_vector_norm.default"](ctx, size, *args, **kwargs)


# --- the table ----------------------------------------------------------------------------------------------------

# componentwise operators by the positions of their complex arguments: the first one; the first two; see `componentwise`
_FIRST_ARGUMENT = (
    "neg clone lift_fresh_copy tril triu flip roll repeat select_backward index.Tensor index_select"
    " gather sum sum.dim_IntList cumsum cat stack zero"
)
_FIRST_TWO = "select_scatter diagonal_scatter"
# componentwise operators whose arguments may be real too -> the positions of these arguments
_MIXED: Mapping[str, tuple[int, ...]] = {
    "zeros": (),
    "scalar_tensor": (0,),
    "copy full fill.Scalar fill.Tensor": (1,),
    "masked_fill.Scalar masked_fill.Tensor": (0, 2),
    "where.self where.ScalarOther where.ScalarSelf where.Scalar": (1, 2),
}
_ALLOCATED = "empty.memory_format empty_strided empty_like empty_permuted new_empty new_empty_strided"

RULES: Mapping[str, Rule] = {
    **{op: window(rule) for op, rule in views.RULES.items()},
    **{op: componentwise(op, 0) for op in operator_names(_FIRST_ARGUMENT)},
    **{op: componentwise(op, 0, 1) for op in operator_names(_FIRST_TWO)},
    **{op: componentwise(op, *at, is_mixed=True) for names, at in _MIXED.items() for op in operator_names(names)},
    **{op: REAL[op] for op in operator_names(_ALLOCATED)},
    **{op: real_or_complex(op, ones) for op in operator_names("ones ones_like new_ones")},
    **{op: real_or_complex(op, componentwise(op, 0)) for op in operator_names("zeros_like new_zeros")},
    **{
        op: real_or_complex(op, componentwise(op, position, is_mixed=True))
        for op, position in (("aten.full_like.default", 1), ("aten.new_full.default", 2))
    },
    "aten._to_copy.default": to_copy,
    "aten.copy_.default": copy_into,
    **rules_for("mean mean.dim", mean),
    "aten.linalg_vector_norm.default": norm,
    "aten.view_as_complex.default": view_as_complex,
    "aten.view_as_real.default": view_as_real,
    "aten.real.default": real,
    "aten.imag.default": imag,
    **rules_for("_conj conj_physical", conjugate),
    "aten.complex.default": make_complex,
    "aten.polar.default": of_parts(lambda r, at: ComplexTerm(r.re * at.re.op("cos"), r.re * at.re.op("sin"))),
    "aten.abs.default": real_formula(lambda x: x.magnitude),
    "aten.angle.default": real_formula(lambda x: x.im.op("atan2", x.re)),
    "aten.isnan.default": real_formula(lambda x: x.re.op("isnan").either(x.im.op("isnan"))),
    **rules_for("eq.Tensor eq.Scalar", real_formula(lambda x, y: x.re.equals(y.re).both(x.im.equals(y.im)))),
    **rules_for("ne.Tensor ne.Scalar", real_formula(lambda x, y: x.re.op("ne", y.re).either(x.im.op("ne", y.im)))),
    **rules_for("add.Tensor add.Scalar", add),
    **rules_for("sub.Tensor sub.Scalar", sub),
    **rules_for("rsub.Tensor rsub.Scalar", rsub),
    **rules_for("mul.Tensor mul.Scalar", formula(times)),
    **rules_for("div.Tensor div.Scalar true_divide.Tensor", formula(quotient)),
    "aten.reciprocal.default": formula(reciprocal),
    "aten.square.default": formula(lambda x: times(x, x)),
    "aten.pow.Tensor_Scalar": power,
    "aten.sgn.default": formula(sign),
}
