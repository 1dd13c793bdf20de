"""The bytes of storages, and who uses them when."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from minductor.core.dtypes import F32
from minductor.core.expressions.expr import as_int, integer, symbol
from minductor.core.expressions.hints import estimate
from minductor.ir.plan.storage import Usage, storage_bytes
from minductor.ir.program.nodes import Buffer, Input
from tests.passes.sketch import Sketch


@pytest.mark.parametrize(
    ("size", "stride"),
    [((), ()), ((3, 4), (4, 1)), ((3, 4), (1, 3)), ((3, 4), (8, 1)), ((0, 4), (4, 1)), ((3, 1), (7, 5)), ((3,), (0,))],
)
def test_a_storage_takes_what_torch_allocates(size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    buffer = Buffer("buf0", F32, tuple(map(integer, size)), tuple(map(integer, stride)))
    assert as_int(storage_bytes(buffer)) == torch.empty_strided(size, stride).untyped_storage().nbytes()


def test_the_bytes_of_an_unknown_size_are_estimated() -> None:
    n = symbol("s0", "size")
    buffer = Buffer("buf0", F32, (n, integer(2)), (integer(2), integer(1)))
    assert estimate(storage_bytes(buffer), ((n, 100),)) == 8 * 100


def test_a_donated_input_counts_until_its_last_use() -> None:
    s = Sketch()
    x = s.input(16)
    y = s.op("exp", x)
    z = s.op("neg", y)
    program = s.done(z)
    assert Usage(program).peak(range(2)) == 2 * 64
    donated = replace(program, inputs=(Input("arg0", is_donated=True),))
    assert Usage(donated).peak(range(2)) == 2 * 64
    kept = replace(donated, outputs=(*donated.outputs, x))
    assert Usage(kept).peak(range(2)) == 3 * 64
    unused = replace(
        program,
        inputs=(*program.inputs, Input("arg1", is_donated=True)),
        buffers=(*program.buffers, replace(program.buffers[0], name="arg1")),
    )
    assert Usage(unused).peak(range(2)) == 2 * 64


def test_what_is_returned_stays() -> None:
    s = Sketch()
    x = s.input(16)
    y = s.op("exp", x)
    z = s.op("neg", y)
    w = s.op("abs", z)
    assert Usage(s.done(w)).peak(range(3)) == 2 * 64
    assert Usage(s.done(y, w)).peak(range(3)) == 3 * 64
