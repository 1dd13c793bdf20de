"""Each pointwise operator against eager, in the dtypes that it takes, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from minductor.driver import Compiler
from minductor.frontend.capture.capture import capture
from minductor.ir.program.nodes import Assert
from minductor.ir.program.printer import print_program
from minductor.options import Options
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from tests.frontend.tracing import CPU, grads, integers, lowered, randn
from tests.rows import lower

X, Y, ROW = randn(3, 4, 5), randn(3, 4, 5, seed=1), randn(5, seed=2)
HALF, DOUBLE, WHOLE, TRUTH = X.bfloat16(), X.double(), integers(-5, 6, 3, 4), X > 0

FLOATING = (
    "reciprocal rsqrt sqrt exp exp2 expm1 log log2 log10 log1p sigmoid tanh sin cos tan erf erfc erfinv asin acos atan"
    " sinh cosh asinh atanh lgamma digamma sinc"
)
ANY = "isnan isinf isfinite square logical_not sign"
ROUNDING = "floor ceil round trunc neg abs relu signbit"


@pytest.mark.parametrize("name", FLOATING.split())
def test_floating_point_function(name: str) -> None:
    function = getattr(torch, name)
    assert not lowered(lambda *given: tuple(map(function, given)), X, HALF, DOUBLE, WHOLE, TRUTH).externs


@pytest.mark.parametrize("name", [*ANY.split(), *ROUNDING.split()])
def test_function_of_any_number(name: str) -> None:
    kinds = (X, HALF, WHOLE) if name in ROUNDING.split() else (X, HALF, WHOLE, TRUTH)
    function = getattr(torch, name)
    assert not lowered(lambda *given: tuple(map(function, given)), *kinds).externs


PAIRS = {
    "floats": (X, Y),
    "row": (X, ROW),
    "mixed": (X, HALF),
    "half": (HALF, Y.bfloat16()),
    "wholes": (WHOLE, WHOLE.flip(0).abs() + 1),
    "float and whole": (X, WHOLE[0, 0] + 7),
    "0-dim double": (HALF, torch.tensor(1.5, dtype=torch.float64)),
    "0-dim whole": (WHOLE, torch.tensor(3, dtype=torch.int8)),
}
BINARY = "add mul div maximum minimum fmax fmin remainder fmod eq ne lt le gt ge logical_and logical_xor sub"


LONG = ("minimum", "fmin", "le", "gt", "ge", "logical_xor")  # each is like another one


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in BINARY.split()])
def test_two_tensors(name: str) -> None:
    function, (left, right) = getattr(torch, name), zip(*PAIRS.values(), strict=True)
    count = len(PAIRS)
    assert not lowered(lambda *both: tuple(map(function, both[:count], both[count:])), *left, *right).externs


@pytest.mark.parametrize("name", ["add", "mul", "div", "remainder", "eq", "lt", "ge", "floor_divide"])
@pytest.mark.parametrize("number", [3, 2.5, -1.1], ids=str)
def test_tensor_and_number(name: str, number: float) -> None:
    function = getattr(torch, name)
    # a remainder jumps: half precision and float32 differ by the divisor
    kinds = (X, WHOLE) if name == "remainder" else (X, HALF, WHOLE)
    assert not lowered(lambda *given: tuple(function(x, number) for x in given), *kinds).externs


def test_bools_add_and_multiply_as_logic() -> None:
    assert not lowered(lambda a, b: (a + b, a * b, a & b, a ^ b, ~a, a | b), TRUTH, TRUTH.flip(0)).externs


def test_bits() -> None:
    def bits(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a & b, a | 3, a ^ b, ~a, a << b.abs(), a >> b.abs()

    assert not lowered(bits, WHOLE, WHOLE.flip(0)).externs


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.7], ids=str)
def test_power(exponent: float) -> None:
    assert not lowered(lambda x: x.abs() ** exponent, *grads(X)).externs
    assert not lowered(lambda x: 2**x, X).externs


def test_integer_power_stays_an_integer() -> None:
    assert not lowered(lambda x: (x**2, x**3, x**5), WHOLE).externs


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 2, 0.5),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "hardswish": lambda x: F.hardswish(4 * x),
    "hardsigmoid": lambda x: F.hardsigmoid(4 * x),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "logsigmoid": F.logsigmoid,
    "logit": lambda x: torch.logit(x.sigmoid(), 0.1),
    "threshold": lambda x: F.threshold(x, 0.1, 7.0),
    "nan_to_num": torch.nan_to_num,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp by NaN": lambda x: (x.clamp(max=math.nan), x.clamp(math.nan), x.clamp_max(math.nan), x.clamp(0, math.nan)),
    "clamp tensors": lambda x: x.clamp(x.sin(), x.cos()),
    "glu": lambda x: F.glu(x[..., :4], -1),
    "prelu": lambda x: F.prelu(x, x[0, :, 0]),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 0.1),
    "lerp": lambda x: torch.lerp(x, x.flip(0), x.sigmoid()),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.abs() + 1, value=0.5),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 3.0),
    "round trip": lambda x: x.to(torch.bfloat16).float() * 3,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_forward_and_backward(name: str) -> None:
    assert not lowered(lambda x: ACTIVATIONS[name](x), *grads(X)).externs
    assert not lowered(lambda x: ACTIVATIONS[name](x), HALF).externs


def test_nan_passes_where_eager_lets_it() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])
    for fn in (F.relu, F.leaky_relu, F.hardtanh, F.softshrink, F.elu, lambda x: x.clamp(-1, 1), torch.nan_to_num):
        lowered(lambda x, fn=fn: fn(x), x)


CASTS = [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.bool]


@pytest.mark.parametrize("dtype", CASTS, ids=str)
def test_cast(dtype: torch.dtype) -> None:
    for x in (X * 10, WHOLE, TRUTH):
        assert not lowered(lambda x: x.to(dtype), x).externs


def test_bits_of_floats_are_reread_or_copied_out() -> None:
    assert not lowered(lambda x: x.view(torch.int32) + 1, X).externs
    assert lowered(lambda x: x.view(torch.int16) + 1, HALF).externs == ["aten.view_copy.dtype_out"]


def test_a_cast_rounds_even_inside_a_kernel() -> None:
    (cast,) = (k for k in lowered(lambda x: x.bfloat16().float(), X).kernels if k.origins[0].node == "_to_copy")
    assert [op.name for op in cast.body.ops] == ["load", "round_to", "store"]


def test_eager_precision_rounds_after_each_op() -> None:
    env = Env(Options(precision="eager"), by_name("cpu"))
    assert "round_to" in print_program(lowered(lambda x: x * 2 + 1, HALF, env=env).program)
    assert "round_to" not in print_program(lowered(lambda x: x * 2 + 1, HALF).program)


def test_a_number_is_rounded_before_a_comparison() -> None:
    x = torch.tensor([1.1, 2.0]).bfloat16()
    lowered(lambda x: (x == 1.1, x < 1.1), x)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integer_division_by_zero_is_asserted(name: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return getattr(torch, name)(x, y)

    whole = torch.tensor([3, -4, 5])
    asserts = [op for k in lowered(fn, whole, whole).kernels for op in k.body.ops if isinstance(op.attrs, Assert)]
    assert [op.attrs for op in asserts] == [Assert("ZeroDivisionError")]
    for x in (whole, whole.float()):
        constant = lowered(lambda x: fn(x, torch.tensor(2.5)) if x.is_floating_point() else x // 3, x)
        assert not any(isinstance(op.attrs, Assert) for k in constant.kernels for op in k.body.ops)
    gm = make_fx(fn, tracing_mode="fake")(whole, whole)
    program = lower(capture(gm, "inference"), CPU)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_program(program, [whole, torch.tensor([1, 0, 2])])


def test_a_number_wraps_into_the_dtype_that_it_is_compared_in() -> None:
    x = torch.tensor([255, 1, 0], dtype=torch.uint8)
    (program,) = lowered(lambda x: (x == -1, x > -1), x).programs
    assert "constant 255 : u8" in print_program(program)


def test_the_next_number_of_a_narrow_float_is_its_own() -> None:
    x, y = torch.tensor([1.0, 0.0, -0.0, torch.inf]), torch.tensor([2.0, -1.0, 1.0, 0.0])
    assert not lowered(torch.nextafter, x, y).externs
    assert lowered(torch.nextafter, x.bfloat16(), y.bfloat16()).externs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_roots_of_minus_zero_and_minus_infinity(dtype: torch.dtype) -> None:
    x = torch.tensor([-0.0, -torch.inf, 4.0], dtype=dtype)
    assert not lowered(lambda x: (1 / x**0.5, x**-0.5, x**-1), x).externs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_infinity_is_that_of_the_dtype(dtype: torch.dtype) -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1, 60000], dtype=dtype)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.nan_to_num(), (x * 2).nan_to_num(), (x * 2).isinf(), x.nan_to_num(1, posinf=2, neginf=3)

    for ours, theirs in zip(torch.compile(fn, backend=Compiler())(x), fn(x), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_functions_that_jump_see_what_memory_holds(dtype: torch.dtype) -> None:
    x = randn(16, 16, seed=3).to(dtype)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide, small = x * 13.7, x * 1e-9  # which is 0 in float16
        steps = wide.trunc(), wide.frac(), wide % 0.25, wide // 0.25, wide.long(), small.sign()
        return *steps, small.bool(), small != 0, torch.logical_not(small), small.any(1), small.where(small.bool(), x)

    for ours, theirs in zip(torch.compile(fn, backend=Compiler())(x), fn(x), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("fn", [torch.add, torch.sub])
def test_a_truth_as_the_factor_of_numbers_is_eager_s_to_refuse(fn: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(RuntimeError, match="Boolean alpha"):
        lowered(lambda x: fn(x, x, alpha=True), torch.arange(3))
