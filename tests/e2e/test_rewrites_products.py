"""Matrix products of whole programs under rewrites: numbers beside float64, notes, frozen bytes, random products."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import minductor
from minductor import driver
from minductor.driver import Compiled, Compiler
from minductor.driver_tasks.graph_rewrites import Rewritten, with_rewrites
from minductor.frontend.rewrites import large_linear, widen_products
from minductor.ir.report.report import Report
from minductor.runtime.build import probe
from pytest_plugin.oracle.accuracy import Policy
from pytest_plugin.oracle.compiled import Compile

BF16 = torch.bfloat16
pytestmark = pytest.mark.devices("cpu")


class Layer(nn.Module):
    """A layer of a transformer; `hidden` is the size between the linear layers behind the attention."""

    def __init__(self, size: int, hidden: int, act: Callable[[Tensor], Tensor] = F.gelu) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))
        self.up, self.down = nn.Linear(size, hidden), nn.Linear(hidden, size)
        self.norm, self.act = nn.LayerNorm(size), act

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        q, k, v = (f(x).view(batch, length, 4, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, size)
        x = self.norm(x + self.o(y))
        return x + self.down(self.act(self.up(x)))


class Int8Layer(nn.Module):
    """A linear layer with an int8 weight and a scale for each column."""

    def __init__(self, inner: int, columns: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 127, (columns, inner), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(columns).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Rewritten]:
    """What rewrites did to each graph that was compiled, in order."""
    found: list[Rewritten] = []

    def noted(report: Report, rewritten: Rewritten) -> Report:
        found.append(rewritten)
        return with_rewrites(report, rewritten)

    monkeypatch.setattr(driver, "with_rewrites", noted)
    return found


def applied(done: list[Rewritten]) -> list[str]:
    """The rewrites that were applied, in order."""
    return [note.rewrite for each in done for note in each.notes if note.is_applied]


@pytest.fixture
def slow_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are applied as on a CPU without instructions for 16 bits."""
    monkeypatch.setattr(widen_products, "is_slow", lambda dtype: dtype.itemsize == 2 and dtype.is_floating_point)


@pytest.mark.parametrize("wrapper", ("python", "cpp"))
def test_a_frozen_layer_of_a_transformer(compiled: Compile, done: list[Rewritten], wrapper: str) -> None:
    module = Layer(512, 2048, F.leaky_relu).eval()
    run = compiled(module, torch.randn(2, 32, 512), options={"freeze": True, "wrapper": wrapper}, grad=False)
    assert applied(done) == ["join_products", *["pack_linear"] * 3]  # not the square one of 2**18 weights
    joined = 3 * (module.q.weight.nbytes + module.q.bias.nbytes)
    assert done[0].frozen_bytes == joined + module.up.weight.nbytes + module.down.weight.nbytes
    (wrapper_text,) = run.wrappers
    assert wrapper_text.count("_linear_pointwise") >= 3


@pytest.fixture
def by_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are applied as on a CPU by AMD."""
    monkeypatch.setattr(probe, "cpu_maker", lambda: large_linear.MAKER)


LARGE: dict[str, tuple[tuple[int, ...], tuple[int, int], dict[str, bool], list[str]]] = {
    "large": ((16, 1024), (2048, 1024), {}, ["large_linear"]),
    "few rows": ((4, 1024), (2048, 1024), {}, []),
    "few columns": ((16, 2048), (1024, 2048), {}, []),
    "frozen": ((16, 1024), (2048, 1024), {"freeze": True}, []),
}


@pytest.mark.usefixtures("by_amd")
@pytest.mark.parametrize(
    "name",
    [
        "large",
        pytest.param("few rows", marks=pytest.mark.must_fail_under("large-few-rows")),
        pytest.param("few columns", marks=pytest.mark.must_fail_under("large-few-columns")),
        pytest.param("frozen", marks=pytest.mark.must_fail_under("large-frozen")),
    ],
)
def test_large_linear_layers(compiled: Compile, done: list[Rewritten], name: str) -> None:
    x, weight, options, rows = LARGE[name]
    module = nn.Linear(weight[1], weight[0]).eval()
    options = {"rewrites": "-all,+large_linear", **options}
    compiled(module, torch.randn(x), options=options, grad=False, policy=Policy(k=6))
    assert applied(done) == rows


def test_sizes_of_rows_that_change(compiled: Compile, done: list[Rewritten]) -> None:
    run = compiled(Layer(512, 2048).eval(), torch.randn(2, 32, 512), options={"freeze": True}, dynamic=True, grad=False)
    assert "pack_linear" in applied(done) and len(run.graphs) == 1
    for batch, length in ((3, 7), (1, 130)):
        run.again(torch.randn(batch, length, 512))


def test_training_packs_and_joins_nothing(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(Layer(64, 96), torch.randn(2, 8, 64), grad=True)
    assert len(done) == 2 and applied(done) == []


@pytest.mark.usefixtures("slow_cpu")
@pytest.mark.parametrize("options", ({"freeze": True}, {}), ids=str)
def test_a_layer_of_16_bits(compiled: Compile, done: list[Rewritten], options: dict[str, Any]) -> None:
    module = Layer(64, 96).to(BF16).eval()
    compiled(module, torch.randn(2, 16, 64).bfloat16(), options=options, grad=False)
    assert applied(done).count("widen_products") == 6
    if options:  # float32 copies of all weights and biases of the six linear layers
        linear = [part for part in module.children() if isinstance(part, nn.Linear)]
        assert done[0].frozen_bytes == 2 * sum(weight.nbytes for part in linear for weight in part.parameters())


@pytest.mark.usefixtures("slow_cpu")
def test_gradients_of_16_bits(compiled: Compile, done: list[Rewritten]) -> None:
    compiled(Layer(64, 96).to(BF16), torch.randn(2, 16, 64).bfloat16(), grad=True)
    forward, backward = (applied([each]).count("widen_products") for each in done)
    assert forward == 6 <= backward, "the gradient of a weight of few rows stays"


@pytest.mark.usefixtures("slow_cpu")
def test_a_convolution_of_16_bits(compiled: Compile, done: list[Rewritten]) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 4, 1, bias=False)).to(BF16).eval()
    compiled(module, torch.randn(2, 3, 9, 9).bfloat16(), grad=False)
    assert applied(done)[:2] == ["widen_products"] * 2


@pytest.mark.parametrize("dtype", (BF16, torch.float32))
@pytest.mark.parametrize("freeze", (False, True))
def test_int8_weights_have_no_copy(compiled: Compile, done: list[Rewritten], dtype: torch.dtype, freeze: bool) -> None:
    compiled(Int8Layer(64, 96, dtype), torch.randn(4, 64).to(dtype), options={"freeze": freeze}, grad=False)
    assert applied(done) == (["int8_linear"] if dtype == BF16 else [])
    assert done[0].frozen_bytes == 0


class FourBits(nn.Module):
    """Two linear layers of one operand, of whose weights a byte holds two elements, and a convolution of bytes."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("q", "k"):
            self.register_buffer(name, torch.randint(0, 255, (1024, 512), dtype=torch.uint8))
        self.register_buffer("image", torch.randint(-8, 8, (64, 64, 3, 3), dtype=torch.int8))

    def forward(self, x: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        halves = [torch.stack([each & 15, each >> 4], -1).view(1024, 1024) for each in (self.q, self.k)]
        products = [F.linear(x, (each.to(x.dtype) - 8) * 0.01) for each in halves]
        return *products, F.conv2d(image, self.image.to(x.dtype) * 0.01, padding=1)


def test_weights_that_are_converted_at_each_call_are_not_packed(compiled: Compile, done: list[Rewritten]) -> None:
    # They were packed and not kept, so each call packed them and failed.
    image = torch.randn(2, 64, 32, 32).to(memory_format=torch.channels_last)
    compiled(FourBits(), torch.randn(32, 1024), image, options={"freeze": True}, grad=False)
    assert not {"pack_linear", "join_products", "pack_convolution"} & set(applied(done))


def test_a_mask_of_bools_is_folded(compiled: Compile, done: list[Rewritten]) -> None:
    """Weights of one byte an element are not copied; a mask is no weight."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.ones(64, 64, dtype=torch.bool).tril())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.mask.to(x.dtype).cumsum(0)

    compiled(Masked(), torch.randn(64, 64), options={"freeze": True}, grad=False)
    assert done[0].frozen_bytes == 4 * 64 * 64


@pytest.mark.parametrize("freeze", (False, pytest.param(True, marks=pytest.mark.long)))
@pytest.mark.parametrize(
    ("dtype", "grad"),
    (
        pytest.param(torch.float32, False, marks=pytest.mark.long),
        (torch.float32, True),
        (BF16, False),
        pytest.param(BF16, True, marks=pytest.mark.long),
    ),
    ids=str,
)
def test_padding_on_and_off(
    compiled: Compile, done: list[Rewritten], dtype: torch.dtype, grad: bool, freeze: bool
) -> None:
    """The same program with all products padded and with none; both are held against float64 and eager's strides."""
    if grad and freeze:
        return
    module = Layer(60, 99).to(dtype)
    x = torch.randn(3, 17, 60).to(dtype)
    for rewrites in ("+pad_all_products", "-all"):
        done.clear()
        compiled(module, x, options={"rewrites": rewrites, "freeze": freeze}, grad=grad)
        assert ("pad_all_products" in applied(done)) == (rewrites != "-all")


@pytest.mark.devices("interpret")
def test_pads_are_a_part_of_the_producers_kernel(compiled: Compile, done: list[Rewritten]) -> None:
    module = nn.Sequential(nn.Linear(40, 33), nn.GELU(), nn.Linear(33, 24)).to(BF16).eval()
    for rewrites, count in (("", 2), ("-pad_products", 0)):
        done.clear()
        options = {"freeze": True, "rewrites": rewrites}
        run = compiled(module, torch.randn(16, 40).bfloat16(), options=options, grad=False)
        assert applied(done).count("pad_products") == count and run.report.kernels == 1


def test_gradients_read_padded_results() -> None:
    """In the joint graph what the forward saves is the padded result, so that the backward copies nothing."""
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(4096, 4097), nn.GELU(), nn.Linear(4097, 4096)).to(BF16)
        x = torch.empty(4096, 4096, dtype=BF16, requires_grad=True)
    counted: list[tuple[int, int]] = []
    for rewrites, row in (("", "pad_trained_products"), ("-pad_trained_products", "pad_products")):
        made = minductor.compile_only(module, x, target="sm_90", grad=True, options={"rewrites": rewrites})
        assert {name for graph in made.graphs for name, _, _, why in graph.report.rewrites if not why} == {row}
        reports = [graph.report for graph in made.graphs]
        counted.append((sum(report.kernels for report in reports), sum(report.bytes for report in reports)))
    in_joint, in_each = counted
    assert in_joint[0] < in_each[0] and in_joint[1] < in_each[1]


# --- random products

SIZES = st.sampled_from((1, 3, 8, 13, 32))


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int, torch.dtype]:
    """The sizes of a chain of linear layers, the number of rows, and a dtype."""
    sizes = [draw(SIZES) for _ in range(draw(st.integers(2, 4)))]
    return list(pairwise(sizes)), draw(SIZES), draw(st.sampled_from((torch.float32, BF16)))


class Chain(nn.Module):
    """Linear layers with an activation behind each, and a sum of two products of one operand."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*size) for size in sizes)
        self.gates = nn.ModuleList(nn.Linear(*size) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        for layer, gate in zip(self.layers, self.gates, strict=True):
            x = F.leaky_relu(layer(x)) * gate(x).sigmoid()
        return x


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(programs(), st.booleans())
def test_random_chains_agree(program: tuple[list[tuple[int, int]], int, torch.dtype], is_padded: bool) -> None:
    sizes, rows, dtype = program
    torch.manual_seed(0)
    module, x = Chain(sizes).to(dtype).eval(), torch.randn(rows, sizes[0][0]).to(dtype)
    with torch.no_grad():
        eager = module(x)
        truth = Chain(sizes).double()
        truth.load_state_dict(module.state_dict())
        exact = truth(x.double())
        least = torch.finfo(dtype).eps * exact.abs().max()
        for rewrites in ("-all", "+pad_all_products" if is_padded else ""):
            for freeze in (False, True):
                torch._dynamo.reset()
                seen: list[Compiled] = []
                options = {"freeze": freeze, "rewrites": rewrites, "fallback": "error"}
                found = torch.compile(module, backend=Compiler(observer=seen.append), options=options)(x)
                assert seen and (found.dtype, found.stride()) == (eager.dtype, eager.stride())
                assert (found - exact).abs().max() <= 6 * (eager - exact).abs().max() + 2 * least
