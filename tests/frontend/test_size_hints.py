"""The hints of a program: the sizes of the example inputs, on a GPU. They add no guard and reach no bits of a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.export import Dim

from minductor.frontend.capture.capture import capture
from minductor.frontend.exported.exported_program import read_program
from minductor.ir.program.nodes import Program
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.options import Options
from minductor.target import Env, by_name
from tests.frontend.tracing import CPU, compiled
from tests.rows import lower
from tests.verifying import verify

GPU = Env(Options(), by_name("sm_90"))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def named(program: Program) -> dict[str, int]:
    return {symbol.name: hint for symbol, hint in program.hints}


def mean(x: torch.Tensor) -> torch.Tensor:
    return (x.exp() * 2).mean(1)


def test_a_program_for_a_gpu_has_the_sizes_of_the_example() -> None:
    program = compiled(mean, torch.randn(24, 301), dynamic=True, env=GPU).program
    assert named(program) == {"s0": 24, "s1": 301}
    text = print_program(program)
    assert "symbol s0 [2, inf] hint 24\n" in text
    assert parse_program(text) == program


def test_the_backward_has_them_too() -> None:
    made = compiled(lambda x: x.exp().sum(), torch.randn(24, requires_grad=True), dynamic=True, env=GPU)
    assert [named(program) for program in made.programs] == [{"s0": 24}, {"s0": 24}]


@pytest.mark.parametrize("env", [CPU, Env(Options(deterministic=True), by_name("sm_90"))], ids=["cpu", "deterministic"])
def test_bits_that_must_not_depend_on_the_first_call_have_no_hints(env: Env) -> None:
    texts: set[str] = set()
    for rows, columns in ((2, 5), (300, 1500)):
        made = compiled(mean, torch.zeros(rows, columns), dynamic=True, env=env)
        assert made.graphs[0].hints and not made.program.hints
        texts.add(print_program(made.program))
    assert len(texts) == 1


def test_hints_are_no_part_of_the_text_that_the_key_is_made_of() -> None:
    small, large = (compiled(mean, torch.zeros(n, n), dynamic=True, env=GPU) for n in (4, 500))
    assert small.graphs[0].text() == large.graphs[0].text()
    assert small.graphs[0].hints != large.graphs[0].hints


def test_a_size_that_data_decide_has_none() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero() * 2 + x.shape[0]

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        program = compiled(fn, torch.tensor([1, 0, 3, 4, 0]), dynamic=True, env=GPU).program
    assert named(program) == {"s0": 5}


def test_a_number_below_1_counts_as_1() -> None:
    program = compiled(lambda x, n: x * n, torch.ones(9), -5, dynamic=True, env=GPU).program
    assert sorted(hint for _, hint in program.hints) == [1, 9]


def test_regions_inherit() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() + x.shape[0], lambda x: x.cos() - x.shape[0], (x,))

    program = compiled(fn, torch.ones(77), dynamic=True, env=GPU).program
    assert [named(region) for region in program.regions] == [{"s0": 77}] * 2
    assert parse_program(print_program(program)) == program


def test_an_export_has_none() -> None:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    exported = torch.export.export(Double(), (torch.ones(6),), dynamic_shapes={"x": {0: Dim("n")}})
    graph = capture(read_program(exported).gm, "inference")
    program = lower(graph, GPU)
    verify(program, "lower")
    assert program.symbols and not graph.hints and not program.hints


def test_reading_them_adds_no_guard() -> None:
    found: list[bool] = []

    def compiler(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        shape_env = next(i for i in inputs if isinstance(i, torch.SymInt)).node.shape_env
        known = [len(shape_env.guards), dict(shape_env.replacements), dict(shape_env.var_to_range)]
        assert capture(gm, "inference").hints
        found.append(known == [len(shape_env.guards), shape_env.replacements, shape_env.var_to_range])
        return make_boxed_func(gm.forward)

    torch.compile(mean, backend=aot_autograd(fw_compiler=compiler), dynamic=True)(torch.randn(24, 301))
    assert found == [True]
