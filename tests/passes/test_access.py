"""Each load and store is classified along the vector loop that it stands in.

Takes small kernels; gives nothing; refuses a wrong kind or step.
"""

from __future__ import annotations

from minductor.core.dtypes import F32, I64
from minductor.core.expr import integer
from minductor.ir.nodes import Kernel, Load, Program
from minductor.options import Options
from minductor.passes.access import access
from minductor.passes.tile import tile
from minductor.target import Env, by_name
from tests.codegen.cases import S0, S1, Sketch, case, integers, randn

CPU = Env(Options(), by_name("cpu"))


def kinds(program: Program) -> dict[str, str]:
    """By storage: the kind, with the step where there is one."""
    (kernel,) = access(tile(program, CPU), CPU).nodes
    assert isinstance(kernel, Kernel)
    found: dict[str, str] = {}
    for each in kernel.access:
        attrs = kernel.body.ops[each.position].attrs
        name = attrs.ref.storage  # type: ignore[union-attr]
        found[name] = each.kind if each.stride is None else f"{each.kind} {each.stride}"
        assert isinstance(attrs, Load) or name.startswith("out")
    return found


def test_every_kind() -> None:
    s = Sketch((6, 200))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(50, 200), I64, j), integer(50), wrap=False)
    values = [
        s.read("block", randn(6, 200), F32, 200 * i + j),
        s.read("row", randn(6), F32, i),
        s.read("strided", randn(6, 800), F32, 800 * i + 4 * j),
        s.read("halves", randn(100), F32, j // 2),
        s.read("gathered", randn(50), F32, at),
    ]
    total = values[0]
    for value in values[1:]:
        total = s.b.op("add", total, value)
    s.write(total, F32)
    assert kinds(s.program()) == {
        "block": "block 1",
        "row": "scalar",
        "strided": "strided 4",
        "halves": "gather",
        "gathered": "gather",
        "ids": "block 1",
        "out0": "block 1",
    }


def test_a_symbolic_step_is_strided() -> None:
    s = Sketch((S0, S1))
    i, j = s.i
    s.write(s.b.op("add", s.read("a", randn(1), F32, j * S0 + i), s.read("b", randn(1), F32, i * S1 + j)), F32)
    assert kinds(s.program())["a"] == "strided s0"


def test_row_results_are_scalar_and_the_pass_is_idempotent() -> None:
    assert kinds(case("sum_inner").program) == {"a": "block 1", "out0": "scalar"}
    once = access(tile(case("softmax").program, CPU), CPU)
    assert access(once, CPU) is once
