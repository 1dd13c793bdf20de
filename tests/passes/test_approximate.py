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
from minductor.core.dtypes import BF16
from minductor.ir.program.nodes import Kernel
from minductor.ir.program.ops import POINTWISE
from minductor.options import Options
from minductor.passes.approximate.approximate import FAST, approximate
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
    return text.count("tl.exp(")


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
    assert exact(text) >= 1 or "tl.exp" not in text.replace("tl.exp2", "")
    assert fast(text) == 0


def test_values_are_followed_through_the_parts_of_a_row() -> None:
    text = source(lambda x: torch.softmax(x, -1), empty(4, 1 << 20))
    assert text.count("@triton.jit\ndef ") >= 3, "the rows are not cut"
    assert exact(text) == 0
    assert fast(text) >= 2
    wide = source(lambda x: torch.softmax(x, -1), empty(4, 1 << 20, dtype=WIDE))
    assert exact(wide) >= 2
    assert fast(wide) == 0


def test_what_a_library_reads_with_32_bits_is_exact() -> None:
    text = source(lambda x, w: (x.float().exp() @ w).to(NARROW), empty(64, 300), empty(300, 128, dtype=WIDE))
    assert (exact(text), fast(text)) == (1, 0)


def test_each_exact_function_has_a_fast_form_of_less_cost() -> None:
    assert FAST
    for exact_name, fast_name in FAST.items():
        assert POINTWISE[fast_name].cost < POINTWISE[exact_name].cost


def test_a_target_without_the_fast_form_keeps_the_exact_one() -> None:
    s = Sketch()
    program = s.done(s.op("exp", s.input(8, 30)))
    narrow = replace(program, buffers=tuple(replace(buffer, dtype=BF16) for buffer in program.buffers))
    for lacks, name in ((frozenset[str](), "fast_exp"), (frozenset(("fast_exp",)), "exp")):
        env = Env(Options(), replace(by_name("sm_90"), lacks=lacks))
        (kernel,) = (node for node in approximate(narrow, env).nodes if isinstance(node, Kernel))
        assert name in {op.name for op in kernel.body.ops}
