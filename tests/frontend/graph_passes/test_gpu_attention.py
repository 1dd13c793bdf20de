"""Attention that was traced on the CPU, as the operators of GPUs: what they refuse, the reference refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_module_simplified
from torch.nn import functional as F

from minductor.frontend.capture.capture import capture
from minductor.frontend.graph_passes.retarget import retarget
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.ir.program.nodes import Extern
from minductor.runtime.reference.reference import run_program
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
from tests.frontend.tracing import GPU
from tests.rows import lower
from tests.verifying import verify

EFFICIENT = "aten._scaled_dot_product_efficient_attention.default"
FLASH = "aten._scaled_dot_product_flash_attention.default"


def on_gpu(fn: Callable[..., Tensor], *args: Tensor, dynamic: bool = False) -> tuple[list[str], Tensor, Tensor]:
    """The operators of the program for a GPU, what it computes, and what eager does."""
    operators: list[str] = []

    def compiled(gm: Any, inputs: Sequence[Any]) -> Any:
        graph = retarget(capture(gm, "inference"), "cuda:0")
        program = lower(graph, GPU)
        verify(program, "lower")
        operators.extend(node.op for node in program.nodes if isinstance(node, Extern))

        def call(given: list[Any]) -> tuple[Any, ...]:
            return run_program(program, given, graph.bound())

        call._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
        return call

    def backend(gm: Any, inputs: Sequence[Any]) -> Any:
        return aot_module_simplified(gm, inputs, fw_compiler=compiled, decompositions=decompositions())

    torch._dynamo.reset()
    with torch.no_grad():
        return operators, torch.compile(fn, backend=backend, dynamic=dynamic)(*args), fn(*args)


def heads(width: int, dtype: torch.dtype = torch.float32, rows: int = 7) -> Tensor:
    return torch.randn(2, 3, rows, width, dtype=dtype)


def masked(q: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, q, q, mask) * 2


MASKS: dict[str, Callable[[], Tensor]] = {
    "of all": lambda: torch.randn(2, 3, 7, 7),
    "of rows": lambda: torch.randn(7, 7),
    "that is aligned": lambda: torch.randn(7, 8)[:, :7],
    "that begins elsewhere": lambda: torch.randn(9, 8)[2:, 1:],
    "of keys": lambda: torch.randn(2, 1, 1, 7),
    "of queries": lambda: torch.randn(2, 1, 7, 1),
    "of truths": lambda: torch.rand(2, 1, 1, 7) > 0.4,
    "across": lambda: torch.randn(7, 7).t(),
}


def check_mask(name: str, *, dynamic: bool = False) -> None:
    operators, found, eager = on_gpu(masked, heads(16), MASKS[name](), dynamic=dynamic)
    assert operators == [EFFICIENT]
    torch.testing.assert_close(found, eager)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_masks_are_as_the_kernels_take_them(name: str, dynamic: bool) -> None:
    check_mask(name, dynamic=dynamic)


def test_a_mask_of_another_dtype_is_converted() -> None:
    q, mask = heads(16, torch.bfloat16), torch.randn(7, 7)
    operators, found, eager = on_gpu(masked, q, mask)
    assert operators == [EFFICIENT]
    torch.testing.assert_close(found, eager, rtol=0.05, atol=0.05)


def check_heads(width: int, dtype: torch.dtype, operator: str) -> None:
    def call(q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(2, 7, 3 * width) * 2

    operators, found, eager = on_gpu(call, heads(width, dtype))
    assert operators == [operator] and found.stride() == eager.stride()
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.03, "atol": 0.03}
    torch.testing.assert_close(found, eager, **close)


@pytest.mark.parametrize(
    ("width", "dtype", "operator"),
    [
        (5, torch.float32, EFFICIENT),
        (12, torch.float32, EFFICIENT),
        (12, torch.float16, FLASH),
        (264, torch.bfloat16, EFFICIENT),
        (64, torch.bfloat16, FLASH),
    ],
)
def test_heads_of_any_width(width: int, dtype: torch.dtype, operator: str) -> None:
    check_heads(width, dtype, operator)


@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize("side_by_side", [True, False])
def test_results_lie_as_they_were_traced(side_by_side: bool, is_masked: bool) -> None:
    check_layout(is_masked=is_masked, side_by_side=side_by_side)


def check_layout(*, is_masked: bool, side_by_side: bool = False) -> None:
    q = torch.randn(2, 7, 3, 16).transpose(1, 2) if side_by_side else heads(16)
    mask = torch.randn(7, 8)[:, :7] if is_masked else None

    def call(q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q, mask)

    for fn in (call, lambda q: call(q).as_strided((4, 3), (2, 5)) * 2):
        _, found, eager = on_gpu(fn, q)
        assert found.stride() == eager.stride()
        torch.testing.assert_close(found, eager)


def test_attention_in_float64_stays() -> None:
    operators, found, eager = on_gpu(lambda q: F.scaled_dot_product_attention(q, q, q), heads(16, torch.float64))
    assert operators == ["aten._scaled_dot_product_flash_attention_for_cpu.default"]
    torch.testing.assert_close(found, eager)


FAULTS: dict[str, Callable[[], None]] = {
    "gpu-mask-not-expanded": lambda: check_mask("of keys"),
    "gpu-result-laid-out-wrongly": lambda: check_layout(is_masked=True),
    "gpu-mask-unaligned": lambda: check_mask("of rows"),
    "gpu-heads-scaled-wide": lambda: check_heads(5, torch.float32, EFFICIENT),
    "gpu-heads-too-wide": lambda: check_heads(264, torch.bfloat16, EFFICIENT),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_noticed(fault: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        with pytest.raises((AssertionError, ValueError)):
            FAULTS[fault]()
        assert was_reached()
