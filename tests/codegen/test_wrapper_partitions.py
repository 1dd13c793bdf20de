"""Partitions as functions of a Python wrapper: what they are given, what they return, and what stays in `call`."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import minductor
from minductor.codegen.wrapper.wrapper_partitions import partition_functions
from minductor.core.dtypes import F32
from minductor.core.expressions.expr import integer
from minductor.ir.plan import plan as lines
from minductor.ir.program.nodes import Input, Token
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated


def wrapper(fn: Callable[..., Any], *args: Any, grad: bool = False, **options: Any) -> str:
    """The text of the wrapper for an H100, of the last graph."""
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory() as folder:  # a store of its own, so that faults are not hidden by earlier texts
        asked = {"cudagraphs": True, "cache_dir": folder, **options}
        found = minductor.compile_only(fn, *args, target="sm_90", grad=grad, options=asked)
        return found.graphs[-1].sources["wrapper.py"]


def call_of(text: str) -> list[str]:
    """The lines of `call` without comments and indentation."""
    body = text.partition("def call(args):\n")[2]
    return [line.strip() for line in body.splitlines() if line.strip() and "#" not in line]


def cut(x: Tensor, w: Tensor) -> Tensor:
    """Two partitions, with a call between them that makes the host wait."""
    picked = (x @ w).relu()
    rows = torch.multinomial(picked + 1, 4)
    return picked.t() * rows.sum()


def test_each_partition_is_a_function_and_the_rest_runs_between_them() -> None:
    text = wrapper(cut, torch.randn(8, 8), torch.randn(8, 8))
    assert re.findall(r"def (\w+)\(", text)[-1] == "call"
    about = r"partition_\1,\n    'cuda:0',\n    (.*),\n    \(\),\n    \('\w+',.*\),"
    captured = re.findall(rf"^captured_(\d+) = graphs\(\n    {about}\n\)$", text, re.M)
    assert captured[0] == ("0", "('arg0_1', 'arg1_1')")
    call = call_of(text)
    assert "with torch.cuda.device(0):" in call  # entered once
    assert any("captured_0(*args)" in line for line in call) and call[2] == "args.clear()"
    assert any("multinomial" in line for line in call) and call[-1].startswith("return given((")
    assert "the host waits for a check of its input" in text  # with its reason


def check_inputs_read_twice() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return cut(x, w) * x

    call = call_of(wrapper(fn, torch.randn(8, 8), torch.randn(8, 8)))
    assert call[:2] == ["arg0_1, arg1_1 = args", "args.clear()"]
    assert any("captured_0(arg0_1, arg1_1)" in line for line in call)


def test_inputs_that_somebody_else_reads_have_names() -> None:
    check_inputs_read_twice()


def test_without_the_option_there_is_no_function() -> None:
    text = wrapper(cut, torch.randn(8, 8), torch.randn(8, 8), cudagraphs=False)
    assert "graphs(" not in text and "given(" not in text and text.count("def ") == 1


def test_sizes_are_numbers_and_are_checked_outside() -> None:
    def fn(x: Tensor) -> Tensor:
        return x.sin() * x.shape[0]

    text = wrapper(fn, _dynamic(torch.randn(8, 4)))
    function = next(line for line in text.splitlines() if line.startswith("def partition_0("))
    assert re.fullmatch(r"def partition_0\(\w+, s\d+\):", function)
    assert re.search(r"buf\d, = captured_0\(\w+, s\d+\)", text)


def _dynamic(x: Tensor) -> Tensor:
    torch._dynamo.mark_dynamic(x, 0)
    return x


def check_writes_and_views() -> None:
    """Both inputs are written; the view of one is the caller's memory, and not that of a copy."""

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        y.copy_(x[0])
        return x[1:], x * 2

    text = wrapper(fn, torch.randn(8, 16), torch.randn(16))
    assert "captured_0 = graphs(\n    partition_0,\n    'cuda:0',\n    ('arg0_1', 'arg1_1'),\n    (0, 1)," in text
    assert "return (buf2,)" in text and "arg0_1_view1 = reinterpret(arg0_1, (7, 16), (16, 1), 16)" in call_of(text)


def test_writes_and_views_of_inputs() -> None:
    check_writes_and_views()


def test_random_numbers_are_captured() -> None:
    text = wrapper(lambda x: torch.nn.functional.dropout(x, 0.5) * 2, torch.randn(64, 64))
    function = text.partition("def partition_0(")[2].partition("def call")[0]
    assert "native_dropout" in function and "cannot be captured" not in text


def test_random_numbers_of_kernels_are_captured() -> None:
    text = wrapper(lambda x: torch.rand_like(x) * 2, torch.randn(64, 64), fuse_random=True)
    assert "aten_randint" in text.partition("def partition_0(")[2].partition("def call")[0]


def check_view_behind_a_partition() -> None:
    """A view of an input that later lines use is made in `call`: one of a copy of the input would be wrong."""
    size, one = (integer(4),), (integer(1),)
    launch = lines.LaunchLine("k", ("v", "b"), (), (), 1)
    body = (
        lines.KernelLine("k", "k", (("in0", "f32"), ("out0", "f32")), "", written=(1,)),
        lines.PartitionLine(0),
        lines.ViewLine("v", "x", F32, size, one, integer(2)),
        lines.AllocateLine("b", F32, size, one, "cuda:0"),
        launch,
        lines.PartitionLine(1),
        lines.FreeLine(("x",)),
        lines.ReturnLine((Token("tensor", "v"), Token("tensor", "b"))),
    )
    parts = (lines.Partition("cuda:0", 1, 1), lines.Partition("cuda:0", 1, 1))
    (function,) = partition_functions(lines.Plan("p", (Input("x"),), body, (), partitions=parts)).values()
    assert (function.above, function.results) == ((body[2],), ("b",))
    assert function.tensors == ("x",) and function.body == body[2:5]


def test_a_view_behind_a_partition() -> None:
    check_view_behind_a_partition()


FAULTS = {
    "partition-takes-read-inputs": check_inputs_read_twice,
    "partition-write-forgotten": check_writes_and_views,
    "partition-view-of-copy": check_view_behind_a_partition,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_noticed(fault: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        with pytest.raises(AssertionError):
            FAULTS[fault]()
        assert was_reached()
