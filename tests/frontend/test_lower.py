"""Layouts, versions, mutation, extern calls and sizes: what lowering promises beside the numbers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from minductor.core.errors import FallbackRefused
from minductor.frontend.capture import schemas
from minductor.frontend.capture.capture import capture
from minductor.ir.program.nodes import Extern, NodeNote, Ref, View, reads, writes
from minductor.options import Options
from minductor.pipeline import LOWERING_STEPS, resolve
from minductor.target import Env, by_name
from tests.frontend.tracing import CPU, compiled, grads, integers, loads, lowered, randn
from tests.rows import lower

X = randn(4, 5)


# --- mutation -----------------------------------------------------------------------------------------------------


def add_in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def write_a_slice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x[1:3] = 5
    return x.sum(), x


def through_a_view(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.t()
    y.mul_(2)
    return y, x + 1


def reverse_in_place(x: torch.Tensor) -> torch.Tensor:
    x.copy_(x.flip(0))
    return x


@pytest.mark.parametrize("fn", [add_in_place, write_a_slice, through_a_view, reverse_in_place])
def test_input_mutation(fn) -> None:
    for x in (randn(4, 5), randn(8, 5)[2:6], randn(5, 8).t()[2:6]):
        seen = compiled(fn, x)
        assert any(Ref(i.name, 1) in writes(n) for i in seen.program.inputs for n in seen.program.nodes)


def test_after_a_write_the_input_is_its_new_version() -> None:
    seen = compiled(lambda x: (x.add_(1), x)[1], randn(4, 5))
    outputs = [o for o in seen.program.outputs if isinstance(o, View)]
    assert all(o.ref.version == 1 for o in outputs if o.ref.storage == seen.program.inputs[0].name)


def test_reads_after_a_write_see_the_new_version() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first = x * 3
        window = x[1:]
        torch.ops.aten.copy_(x, y)
        return first[1:] + window

    gm = make_fx(fn, tracing_mode="fake")(randn(4, 4), randn(4, 4))
    program = lower(capture(gm, "inference"), CPU)
    assert [reads(node)[0] for node in program.nodes] == [Ref("x_1", 0), Ref("y_1", 0), Ref("buf0", 0)]
    assert reads(program.nodes[-1])[1] == Ref("x_1", 1)


def test_a_copy_from_its_own_memory_reads_all_of_it_first() -> None:
    gm = make_fx(lambda x: torch.ops.aten.copy_(x, x.t()), tracing_mode="fake")(randn(4, 4))
    program = lower(capture(gm, "inference"), CPU)
    read, written = program.nodes
    assert not set(writes(read)) & {Ref("x_1", 1)} and writes(written) == (Ref("x_1", 1),)
    assert Ref("x_1", 0) not in reads(written)


def test_optimiser_step_on_many_tensors() -> None:
    def step(p: torch.Tensor, q: torch.Tensor, m: torch.Tensor, n: torch.Tensor) -> None:
        torch._foreach_mul_([m, n], 0.9)
        torch._foreach_addcdiv_([p, q], [m, n], [m.abs() + 1, n.abs() + 1], value=-0.1)

    assert not compiled(step, randn(4, 5), randn(3), randn(4, 5, seed=1), randn(3, seed=1)).externs


# --- extern calls -------------------------------------------------------------------------------------------------


def test_products_write_into_planned_memory() -> None:
    seen = lowered(lambda a, b, c: (torch.addmm(c, a, b), a @ b), randn(3, 4), randn(4, 5), randn(5))
    externs = [n for n in seen.program.nodes if isinstance(n, Extern)]
    assert [(n.op, n.form) for n in externs] == [("aten.addmm.out", "out"), ("aten.mm.out", "out")]
    assert {n.reason for n in externs} == {"matrix products are the library's"}
    assert [n.subject for n in seen.program.notes if isinstance(n, NodeNote)] == ["addmm", "mm"]


def test_convolution_keeps_the_traced_layout() -> None:
    image = randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    kernel = randn(4, 3, 3, 3)
    seen = lowered(lambda x, w: F.relu(F.conv2d(x, w)), *grads(image, kernel))
    assert seen.externs == ["aten.convolution.default", "aten.convolution_backward.default"]


def test_several_results() -> None:
    lowered(lambda x: (x.sort(-1), x.topk(2), F.max_pool2d(x[None], 2)), X)


def test_operators_that_return_views_are_copied() -> None:
    seen = lowered(lambda x: torch.view_as_complex(x) * 2, randn(4, 3, 2).half())
    assert seen.externs == ["aten.view_as_complex_copy.out", "aten.mul.Tensor"]


def test_a_copied_view_keeps_its_strides() -> None:
    halves = randn(2, 4, 3).half()
    seen = lowered(lambda z: torch.view_as_real(z).sum(-1) + 1, torch.complex(*halves).t())
    assert seen.externs == ["aten.view_as_real_copy.out"]


def test_views_of_complex_tensors_cost_nothing() -> None:
    assert not lowered(lambda z: z.t()[1:].unsqueeze(0), torch.complex(randn(4, 3), randn(4, 3))).externs


def test_random_numbers_are_eager_s_and_stay_in_order() -> None:
    seen = compiled(lambda x: F.dropout(x, 0.3) + torch.rand_like(x) + torch.randn(5), X)
    assert [n.effect for n in seen.program.nodes if isinstance(n, Extern)].count(True) == 3
    compiled(lambda x: F.dropout(x, 0.3), *grads(X))


def test_attention_draws_no_random_numbers() -> None:
    given = randn(2, 2, 8, 4)
    seen = lowered(lambda q: F.scaled_dot_product_attention(q, q, q), *grads(given))
    externs = [n for n in seen.program.nodes if isinstance(n, Extern)]
    assert [n.effect for n in externs] == [False]


def test_no_rule_is_an_error_if_asked() -> None:
    env = Env(Options(fallback="error"), by_name("cpu"))
    with pytest.raises(FallbackRefused, match="geqrf"):
        lowered(lambda x: torch.geqrf(x)[0], X, env=env)
    lowered(lambda x: x @ x.t(), X, env=env)  # a call by design is none


# --- sizes, outputs, dead code ------------------------------------------------------------------------------------


def test_symbolic_sizes() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        norm = F.layer_norm(F.gelu(2 * x + 1), (x.shape[-1],))
        pairs = x.view(x.shape[0] * x.shape[1] // 2, 2).sum(0)
        return norm, x.softmax(0) + y, x.mean(), x.reshape(-1)[3:], pairs, x.flip(0), x.roll(1, 0), x.argmax()

    seen = compiled(fn, randn(6, 8), randn(8), dynamic=True)
    assert [s.name for s in seen.program.symbols] == ["s0", "s1"]
    assert not seen.externs


def test_symbolic_sizes_of_joined_and_created_tensors() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joined, padded = torch.cat([x, x * 2], 1), F.pad(x, (1, 2))
        return joined, padded, x[i], torch.arange(x.shape[0]), x.new_zeros(x.shape[1] * 2), x.var(0), x.shape[0]

    compiled(fn, randn(6, 8), integers(0, 6, 5), dynamic=True)


def test_symbolic_training_step() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x @ w, torch.arange(x.shape[0]) % w.shape[1])

    compiled(fn, *grads(randn(6, 8), randn(8, 5)), dynamic=True)


def test_outputs_that_are_no_new_tensors() -> None:
    seen = lowered(lambda x: (x, None, x[1:], 3), X)
    assert not seen.program.nodes


def test_one_buffer_per_computed_value_and_dead_ones_are_dropped() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.sin().exp()
        return x.t() * 2

    seen = lowered(fn, X)
    assert len(seen.kernels) == 1
    assert loads(seen.program) == ["arg0_1@0"]


# --- schemas ------------------------------------------------------------------------------------------------------


def test_facts_of_schemas() -> None:
    copy = schemas.operator_facts("aten.copy_.default")
    assert copy is not None and copy.written == (0,) and copy.returned == (0,)
    sort = schemas.operator_facts("aten.sort.default")
    assert sort is not None and not sort.written and not sort.is_random
    rand = schemas.operator_facts("aten.rand.default")
    assert rand is not None and rand.is_random
    assert schemas.operator_facts("aten.no_such_operator.default") is None
    assert schemas.operator_facts("getitem") is None


@pytest.mark.parametrize("op", schemas.OUT_FORMS)
def test_out_forms_exist_and_take_out(op: str) -> None:
    found = schemas.find_overload(schemas.OUT_FORMS[op])
    assert [a.name for a in found._schema.arguments if a.is_out] == ["out"]


# --- steps --------------------------------------------------------------------------------------------------------


def test_a_subgraph_is_lowered_by_the_steps_of_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lower` runs for the graphs of `cond` what the driver runs for a whole graph."""
    module = importlib.import_module("minductor.frontend.lower.lower")
    ran: list[Any] = []

    def noted(value: Any, env: Env, *, right: Callable[[Any, Env], Any]) -> Any:
        ran.append(right)
        return right(value, env)

    steps = [resolve(step.function) for step in LOWERING_STEPS]
    for step in steps:
        monkeypatch.setattr(module, step.__name__, partial(noted, right=step))
    module.lower(capture(make_fx(lambda x: x * 2)(X), "inference"), CPU)
    assert ran == steps
