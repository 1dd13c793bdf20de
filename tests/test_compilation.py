"""`minductor.compile_only`: kernels for machines that are not here."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F

import minductor
from minductor.core.errors import ImaginedDevice, NothingCompiled, UnknownTarget, WrapperReplaced
from minductor.driver import Compiled, Compiler
from minductor.runtime.build.pool import Pool


def test_gives_the_facts_of_each_kernel() -> None:
    made = minductor.compile_only(lambda x: F.gelu(x) * 2, torch.ones(64, 100), target="sm_90")
    (kernel,) = made.kernels
    assert ".target sm_90" in kernel.assembly
    assert kernel.binary.startswith(b"\x7fELF")
    assert kernel.registers is not None and 0 < kernel.registers < 256
    assert kernel.spills == 0
    assert f"def {kernel.symbol}(in0, out1, XBLOCK: tl.constexpr):" in made.source
    (graph,) = made.graphs
    assert graph.role == "inference" and graph.report.kernels == 1 and graph.report.block_accesses == 2


def test_a_wrapper_that_a_device_has_not_is_pythons_with_a_warning() -> None:
    """One compile may hold graphs of several devices, of which the CPU's have theirs in C++."""
    with pytest.warns(WrapperReplaced, match="a graph for hip"):
        made = minductor.compile_only(torch.sin, torch.ones(64), target="gfx942", options={"wrapper": "cpp"})
    (graph,) = made.graphs
    assert "wrapper.py" in graph.sources and len(made.kernels) == 1


def test_arithmetic_is_as_exact_as_eagers() -> None:
    made = minductor.compile_only(
        lambda x, y: (torch.sqrt(x) * y + x / y, torch.exp(x)), torch.ones(64), torch.ones(64)
    )
    (kernel,) = made.kernels
    assert "div.rn.f32" in kernel.assembly and "sqrt.rn.f32" in kernel.assembly
    assert "mul.rn.f32" in kernel.assembly and "add.rn.f32" in kernel.assembly  # and no fma of the two
    assert "div.full" not in kernel.assembly and "ex2.approx.f32" not in kernel.assembly


def test_floats_of_8_bits_are_converted_where_the_machine_does() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).to(torch.float8_e4m3fn)

    (kernel,) = minductor.compile_only(scaled, torch.ones(64), target="sm_90").kernels
    assert "cvt.rn.satfinite.e4m3x2.f32" in kernel.assembly
    (graph,) = minductor.compile_only(scaled, torch.ones(64), target="sm_80").graphs
    assert graph.report.externs == 1


def test_equal_kernels_of_several_graphs_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[object] = []
    submit = Pool.submit
    monkeypatch.setattr(Pool, "submit", lambda pool, *job: jobs.append(job) or submit(pool, *job))

    def twice(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x).amax(1)
        torch._dynamo.graph_break()
        z = torch.sin(x + y[:, None])
        torch._dynamo.graph_break()
        return torch.sin(z).amax(1)

    made = minductor.compile_only(twice, torch.ones(8, 100))
    assert len(made.graphs) == 3 and len(jobs) == 2
    first, _, last = made.kernels
    assert first.binary == last.binary


def test_small_numbers_are_not_taken_for_zero() -> None:
    (kernel,) = minductor.compile_only(torch.log1p, torch.randn(64, 100), target="sm_90").kernels
    assert ".ftz" not in kernel.assembly


@pytest.mark.parametrize("target", ["sm_80", "sm_100", "gfx942"])
def test_other_targets(target: str) -> None:
    made = minductor.compile_only(lambda x: torch.softmax(x, -1), torch.ones(4, 300), target=target)
    (kernel,) = made.kernels
    assert kernel.spills == 0
    assert (target if target.startswith("gfx") else f".target {target}") in kernel.assembly


def test_training_leaves_no_gradient_behind() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
    made = minductor.compile_only(model, torch.ones(8, 16), grad=True)
    assert [graph.role for graph in made.graphs] == ["forward", "backward"]
    assert all(graph.kernels for graph in made.graphs)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_gradient_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="requires a gradient"):
        minductor.compile_only(torch.sin, torch.ones(4), grad=True)


def test_what_triton_cannot_write_is_called() -> None:
    made = minductor.compile_only(lambda x: torch.digamma(x) + 1, torch.ones(4))
    (graph,) = made.graphs
    assert (graph.report.kernels, graph.report.externs) == (1, 1)
    assert "digamma" not in made.source


def test_indices_have_64_bits_only_where_32_do_not_do() -> None:
    far = torch.empty(4 << 30, dtype=torch.int8).view(4, 1 << 30)[:, :3]  # memory that nobody touches
    assert "tl.arange(0, YBLOCK)[:, None].to(tl.int64)" in minductor.compile_only(lambda x: x + 1, far).source
    counted = minductor.compile_only(lambda: torch.arange(0, 10**10, 1 << 20)).source
    assert "tl.arange(0, XBLOCK).to(tl.int64)" in counted, "no index is large, but a value is"
    assert "int64" not in minductor.compile_only(lambda x: x + 1, torch.ones(300, 500)).source


def test_short_rows_of_a_long_sum_are_taken_several_at_once() -> None:
    x = torch.ones(700, 3, 49)
    (kernel,) = minductor.compile_only(lambda x: x.sum((0, 2)), x, options={"variant": "looped"}).kernels
    assert kernel.blocks == {"R0_BLOCK": 64, "R1_BLOCK": 32}


def test_the_cpu_is_no_target_of_it() -> None:
    with pytest.raises(ValueError, match="is no GPU"):
        minductor.compile_only(torch.sin, torch.ones(4), target="cpu")
    with pytest.raises(UnknownTarget, match="did you mean 'sm_90'"):
        minductor.compile_only(torch.sin, torch.ones(4), target="sm_91")


def test_a_target_that_is_not_here_does_not_run() -> None:
    with pytest.raises(Exception, match="graphs compile for target sm_90 here, but do not run here"):
        torch.compile(torch.sin, backend="minductor", options={"target": "sm_90"})(torch.ones(4))


def test_a_block_of_one_element_is_stored_at_a_block_of_addresses() -> None:
    """A row is reduced in a tile whose other axis it does not have. Triton takes no block for a scalar address."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.abs()
        return torch.cummin(y, 0)[1], (y > 0.5).any(0), y

    made = minductor.compile_only(fn, torch.randn(4100, 1).expand(4100, 18))
    assert " + tl.zeros([1, 1], tl.int32), x" in made.graphs[0].sources["kernels.py"]
    assert made.kernels


def test_a_scan_of_one_row_is_one_of_a_block_with_one_dimension() -> None:
    """Triton 3.6 compiles no scan of a block of 1 x 4 elements in a tile of 16 x 4."""
    made = minductor.compile_only(lambda x: x.cumsum(0), torch.randint(9, (4, 1), dtype=torch.int32).expand(4, 16))
    assert "tl.associative_scan(tl.reshape(x1, [R0_BLOCK]), 0, " in made.graphs[0].sources["kernels.py"]
    assert "x2 = tl.reshape(x2, [1, R0_BLOCK])" in made.graphs[0].sources["kernels.py"]


def test_a_row_along_which_steps_are_not_constant_has_a_price() -> None:
    """The first row of a scattered slice comes from elsewhere, so that no access is contiguous."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.normalize(x.flip(-2), dim=0)
        return torch.slice_scatter(y, y[:1] * 2, 0, 0, 1).sum(2)

    assert minductor.compile_only(fn, torch.randn(72, 16, 129).bfloat16().permute(1, 2, 0)).kernels


def test_the_graph_is_the_targets() -> None:
    """Devices in metadata, in what makes tensors and in the wrapper; attention is the GPU's own."""

    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        half = (x * 2).to(torch.bfloat16)
        plain = F.scaled_dot_product_attention(half, half, half, is_causal=True)
        masked = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return plain + masked + torch.rand(16, device=x.device) + torch.arange(16, device="cpu")

    given = torch.randn(2, 4, 8, 16, requires_grad=True), torch.randn(8, 8)
    forward, backward = minductor.compile_only(fn, *given, grad=True).graphs
    text = forward.sources["wrapper.py"]
    assert "_scaled_dot_product_flash_attention.default" in text and "for_cpu.default" not in text
    assert "buf1, buf1, buf1, 0.0, True, scale=None)" in text
    assert "_scaled_dot_product_efficient_attention.default" in text and ", True, 0.0, False, scale=None)" in text
    assert "'cpu'" not in text and "empty_strided(" not in text and "device=torch.device('cuda:0')" in text
    assert "    with torch.cuda.device(0):\n" in text and "stream = raw_stream(0)" in text
    text = backward.sources["wrapper.py"]
    assert "_scaled_dot_product_flash_attention_backward.default" in text and "for_cpu_backward.default" not in text
    assert "_scaled_dot_product_efficient_attention_backward.default" in text
    [inference] = minductor.compile_only(F.scaled_dot_product_attention, *(given[0].detach() for _ in range(3))).graphs
    assert ", None, False, 0.0, False, scale=None)" in inference.sources["wrapper.py"], "nobody asked for statistics"


def test_tensors_of_a_gpu_that_is_not_here() -> None:
    """torch traces some of what is done with them; the rest is refused."""
    with FakeTensorMode():
        x, w = torch.empty(4, 5, device="cuda"), torch.empty(6, 5, device="cuda")
        made = minductor.compile_only(lambda x, w: F.linear(x, w).tanh() * torch.arange(6, device="cuda"), x, w)
        if not torch.backends.cuda.is_built():
            with pytest.raises(ImaginedDevice, match=r"an operation of GPU tensors cannot[^~]*compile_only the same"):
                minductor.compile_only(lambda x: x[1] + 1, x)
            with pytest.raises(ImaginedDevice, match="a gradient of GPU tensors"):
                minductor.compile_only(torch.sin, x.requires_grad_(), grad=True)
        result = torch.compile(torch.cos, backend=minductor.minductor)(w)
    assert made.kernels[0].spills == 0
    assert "torch.cuda.device(0)" in made.graphs[0].sources["wrapper.py"]
    assert isinstance(result, FakeTensor) and result.device.type == "cuda"


def limited(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y * x.shape[0]


class Limited(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos() * x.shape[0]


MODULE = Limited()
RECOMPILED = (
    pytest.param(limited, 2, id="function"),
    pytest.param(MODULE, 1, id="module"),
    pytest.param(MODULE.forward, 1, id="method", marks=pytest.mark.long),
    pytest.param(partial(limited), 2, id="partial", marks=pytest.mark.long),
)


@pytest.mark.parametrize(("program", "graphs"), RECOMPILED)
def test_calls_before_neither_end_nor_shape_it(program: Any, graphs: int) -> None:
    """Beyond Dynamo's limit of 8 compiles a call gave nothing, and from the second size on a symbol."""
    torch._dynamo.reset()
    for size in range(3, 14):
        made = minductor.compile_only(program, torch.ones(size, 7), target="interpret")
        assert len(made.graphs) == graphs
        assert all(f"({size}, 7)" in graph.sources["wrapper.py"] for graph in made.graphs)


def test_a_function_at_the_limit_of_its_own_compiles_is_compiled() -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        compiled = torch.compile(limited, backend="eager")
        for size in range(3, 14):
            compiled(torch.ones(size, 7))
    assert len(minductor.compile_only(limited, torch.ones(2, 7), target="interpret").graphs) == 2
    assert len(minductor.explain(limited, torch.ones(2, 7)).roads) == 2


def test_a_compiled_program_stays_compiled_and_static() -> None:
    """The state of the user's own torch.compile is as if there had been no call."""
    torch._dynamo.reset()
    seen: list[Compiled] = []
    compiled = torch.compile(limited, backend=Compiler(observer=seen.append))
    compiled(torch.ones(4, 7))
    assert len(seen) == 2
    for size in (5, 6):
        assert len(minductor.compile_only(limited, torch.ones(size, 7), target="interpret").graphs) == 2
        assert len(minductor.explain(limited, torch.ones(size, 7)).roads) == 2
    compiled(torch.ones(4, 7))
    assert len(seen) == 2, "it was compiled already"
    compiled(torch.ones(8, 7))
    assert [made.sources["wrapper.py"].count("(8, 7)") for made in seen[2:]] == [0, 0], "two sizes that it was given"


def test_nothing_compiled_is_an_error() -> None:
    with pytest.raises(NothingCompiled, match=r"nothing of .*<lambda> was compiled"):
        minductor.compile_only(lambda: 3)


def test_tensors_without_memory_stand_for_those_of_a_gpu() -> None:
    """Sizes that no memory here would hold are compiled as well; arguments that name the device are the GPU's."""

    def moved(x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(x.shape[1], device=x.device)

    here, meta = (minductor.compile_only(moved, torch.empty(8, 1 << 20, device=d)) for d in ("cpu", "meta"))
    assert here.source == meta.source and len(meta.kernels) == 1
    assert minductor.compile_only(moved, torch.empty(1 << 24, 1 << 20, device="meta")).kernels
