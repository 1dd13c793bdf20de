"""Fast exponentials on a GPU: where only 16-bit results depend on them, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import minductor
from minductor.codegen.triton.triton_kernels import unit_text
from minductor.core.dtypes import BF16
from minductor.driver import Compiler
from minductor.ir.artefact.launch_metadata import LaunchMetadata, print_launches
from minductor.ir.program.nodes import Kernel
from minductor.ir.program.ops import POINTWISE
from minductor.options import Options
from minductor.passes.approximate.approximate import FAST, FAST_BESIDE_ONE, approximate
from minductor.runtime.launch.interpret import Interpreter
from minductor.target import Env, by_name
from tests.passes.sketch import Sketch

NARROW, WIDE = torch.bfloat16, torch.float32


def empty(*size: int, dtype: torch.dtype = NARROW) -> Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def source(fn: Callable[..., Any], *args: Tensor, target: str = "sm_90") -> str:
    with torch.no_grad():
        return minductor.compile_only(fn, *args, target=target).source


def exact(text: str) -> int:
    return text.count("libdevice.exp(")


def fast(text: str) -> int:
    return text.count("= md_fast_")


@pytest.mark.parametrize("dtype", [NARROW, torch.float16])
@pytest.mark.parametrize("fn", [torch.exp, F.silu, lambda x: torch.softmax(x, -1), lambda x: (x.exp() + 1).log()])
def test_what_is_stored_with_16_bits_is_fast(fn: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    text = source(fn, empty(64, 300, dtype=dtype))
    assert (exact(text), fast(text)) == (0, 1)


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda x: x.float().exp(), id="stored with 32 bits"),
        pytest.param(lambda x: (x.exp(), x.float().exp()), id="stored twice"),
        pytest.param(lambda x: x.exp() > 1.5, id="compared"),
        pytest.param(lambda x: x.exp().int(), id="cast"),
        pytest.param(lambda x: torch.softmax(x.float(), -1), id="shares with 32 bits"),
        pytest.param(lambda x: x.float().exp().cumsum(-1).to(x.dtype), id="scanned"),
    ],
)
def test_other_values_stay_exact(fn: Callable[[Tensor], Any]) -> None:
    text = source(fn, empty(64, 300))
    assert fast(text) == 0
    assert exact(text) >= 1 or "fast" not in text


def test_values_are_followed_through_the_parts_of_a_row() -> None:
    text = source(lambda x: torch.softmax(x, -1), empty(4, 1 << 20))
    assert text.count("@triton.jit\ndef ") >= 3, "the rows are not cut"
    assert exact(text) == 0
    assert fast(text) >= 2
    wide = source(lambda x: torch.softmax(x, -1), empty(4, 1 << 20, dtype=WIDE))
    assert exact(wide) >= 2
    assert fast(wide) == 0


@pytest.mark.parametrize(
    ("fn", "is_fast"),
    [
        pytest.param(F.gelu, True, id="gelu"),
        pytest.param(lambda x: F.gelu(x, approximate="tanh"), True, id="gelu by tanh"),
        pytest.param(torch.erf, False, id="a small value is stored"),
        pytest.param(torch.tanh, False, id="small values of tanh"),
        pytest.param(lambda x: torch.erf(x) + 0.25, False, id="beside a small constant"),
        pytest.param(lambda x: torch.erf(x) + x, False, id="beside a value"),
        pytest.param(lambda x: (1 + torch.erf(x)) * torch.erf(x), False, id="beside a constant, and alone"),
        pytest.param(lambda x: 1 + torch.erf(x.float()), False, id="stored with 32 bits"),
    ],
)
def test_functions_whose_small_values_are_coarse(fn: Callable[[Tensor], Any], *, is_fast: bool) -> None:
    text = source(lambda x: fn(x), empty(64, 300))
    assert ("= md_fast_erf(" in text or "= md_fast_tanh(" in text) == is_fast
    assert ("tl.erf(" in text or "libdevice.tanh(" in text) != is_fast


def test_a_quotient_is_fast() -> None:
    assert "tl.div_rn" not in source(lambda x, y: x / y, empty(64, 300), empty(64, 300))
    assert "tl.div_rn" in source(lambda x, y: x.float() / y, empty(64, 300), empty(64, 300))


def test_fast_functions_are_as_exact_as_they_say() -> None:
    """In Triton's interpreter, in float32; beside the exact functions of float64."""
    x = torch.linspace(-9, 9, 4001)
    named: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
        "md_fast_exp": (torch.exp, lambda got, wanted: (got - wanted).abs() / wanted * 2**16),
        "md_fast_sigmoid": (torch.sigmoid, lambda got, wanted: (got - wanted).abs() / wanted * 2**16),
        "md_fast_erf": (torch.erf, lambda got, wanted: (got - wanted).abs() * 2**20),
        "md_fast_tanh": (torch.tanh, lambda got, wanted: (got - wanted).abs() * 2**20),
    }
    for name, (exact_fn, share) in named.items():
        special = torch.tensor([-torch.inf, -100.0, 0.0, 100.0, torch.inf, torch.nan])
        wide = interpreted(name, torch.cat((x, special)))
        assert share(wide[:-6].double(), exact_fn(x.double())).max() <= 1
        torch.testing.assert_close(wide[-6:], exact_fn(special), rtol=1e-4, atol=1e-6, equal_nan=True)


KERNEL = """@triton.jit
def f(a, b, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x = tl.load(a + i, i < COUNT)
    tl.store(b + i, NAME(x), i < COUNT)
"""


def interpreted(name: str, x: Tensor) -> Tensor:
    """A function of the prelude for each element, in Triton's interpreter."""
    text = unit_text([KERNEL.replace("COUNT", str(len(x))).replace("NAME", name)])
    parameters = {"a": "*fp32", "b": "*fp32", "XBLOCK": "constexpr"}
    launch = LaunchMetadata("f", parameters, (len(x) // 1024 + 1,), {"XBLOCK": 1024}, 4)
    pool = Compiler().artefacts.interpreter
    out = torch.zeros_like(x)
    try:
        assert Interpreter(text, print_launches([launch]), pool, 64).bind("f")(x, out, 1) == 0
    finally:
        pool.close()
    return out


def test_what_a_library_reads_with_32_bits_is_exact() -> None:
    text = source(lambda x, w: (x.float().exp() @ w).to(NARROW), empty(64, 300), empty(300, 128, dtype=WIDE))
    assert (exact(text), fast(text)) == (1, 0)


def test_each_exact_function_has_a_fast_form_of_less_cost() -> None:
    assert FAST
    for exact_name, fast_name in {**FAST, **FAST_BESIDE_ONE}.items():
        assert POINTWISE[fast_name].cost < POINTWISE[exact_name].cost


def test_a_target_without_the_fast_form_keeps_the_exact_one() -> None:
    s = Sketch()
    program = s.done(s.op("exp", s.input(8, 30)))
    narrow = replace(program, buffers=tuple(replace(buffer, dtype=BF16) for buffer in program.buffers))
    for lacks, name in ((frozenset[str](), "fast_exp"), (frozenset(("fast_exp",)), "exp")):
        env = Env(Options(), replace(by_name("sm_90"), lacks=lacks))
        (kernel,) = (node for node in approximate(narrow, env).nodes if isinstance(node, Kernel))
        assert name in {op.name for op in kernel.body.ops}
