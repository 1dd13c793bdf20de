"""One division for each row of a softmax: a product where 16-bit storage hides its rounding, else a corrected one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from minductor.core.dtypes import BF16, F16, F32, DType
from minductor.ir.program.nodes import Kernel
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.schedule.reciprocal import divide_once
from minductor.passes.schedule.schedule import schedule
from minductor.target import Env, by_name
from tests.passes.sketch import Sketch
from tests.rows import inline

ENV = Env(Options(), by_name("sm_90"))


def quotients(stored: DType, *, top: str = "max", reader: str = "") -> list[str]:
    """The divisions and products of a softmax whose result is `stored`.

    `top`: what is subtracted from a row. `reader`: an operation on the quotients, whose result is stored instead.
    """
    s = Sketch()
    x = s.input(64, 256)
    shifted = s.op("exp", s.op("sub", x, s.reduce(top, x, 1)))
    y = s.op("div", shifted, s.reduce("sum", shifted, 1))
    program = s.done(s.op(reader, y) if reader else y)
    made = fuse(inline(program, ENV), ENV)
    (kernel,) = (node for node in made.nodes if isinstance(node, Kernel))
    table = {name: replace(buffer, dtype=stored) for name, buffer in made.real_table().items()}
    return [op.name for op in divide_once(kernel, table).body.ops if op.name in ("div", "mul")]


@pytest.mark.parametrize("stored", [BF16, F16])
def test_quotients_that_are_stored_with_16_bits_are_products(stored: DType) -> None:
    assert quotients(stored) == ["div", "mul"]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"stored": F32}, id="stored with 32 bits"),
        pytest.param({"stored": BF16, "reader": "neg"}, id="read by something else"),
        pytest.param({"stored": BF16, "top": "min"}, id="a sum that may be so small that its reciprocal is infinite"),
    ],
)
def test_other_quotients_stay(case: dict[str, object]) -> None:
    assert quotients(**case) == ["div"]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("lacks", [(), ("fma",), ("fma f32",)])
def test_a_device_without_fused_multiply_add_divides(lacks: tuple[str, ...]) -> None:
    s = Sketch()
    x = s.input(64, 256)
    shifted = s.op("exp", s.op("sub", x, s.reduce("max", x, 1)))
    env = Env(Options(), replace(by_name("cpu"), lacks=frozenset(lacks)))
    made = schedule(fuse(inline(s.done(s.op("div", shifted, s.reduce("sum", shifted, 1))), env), env), env)
    (kernel,) = (node for node in made.nodes if isinstance(node, Kernel))
    assert ("fma" in {op.name for op in kernel.body.ops}) == (not lacks)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_corrected_products_are_the_quotients(dtype: torch.dtype) -> None:
    """Bit by bit, in rows with NaN, infinities and exponentials that round to zero as well."""

    def program(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shares = (x - x.amax(-1, keepdim=True)).exp()
        total = shares.sum(-1, keepdim=True)
        return shares, total, shares / total

    x = torch.randn(400, 1000, generator=torch.Generator().manual_seed(0), dtype=dtype) * 9
    x[0, 3], x[1, 4], x[2, 5], x[3] = torch.nan, torch.inf, -torch.inf, -torch.inf
    x[4, :500] = -1e4
    compiled = torch.compile(program, backend="minductor", fullgraph=True)
    shares, total, quotients = compiled(x)
    torch.testing.assert_close(quotients, shares / total, rtol=0, atol=0, equal_nan=True)
