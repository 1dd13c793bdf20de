"""Matrix products in kernels of ours: their numbers in Triton's interpreter, beside float64, and their texts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import minductor
from minductor.driver import Compiled, Compiler
from minductor.ir.artefact.launch_metadata import LAUNCHES, LaunchMetadata, read_launches
from minductor.ir.program.choices import neighbours
from minductor.runtime.launch.cuda import evaluate, steps
from minductor.runtime.tune import tune
from pytest_plugin.oracle.compiled import Compile

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]
BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64

CASES: dict[str, Case] = {
    "mm": (lambda a, b: a @ b, ((48, 64), (64, 32))),
    "odd sizes, and sums on both sides": (lambda a, b: (a + 1) @ (b - 2), ((37, 62), (62, 41))),
    "a long inner axis": (lambda a, b: a @ b, ((17, 300), (300, 20))),
    "linear": (lambda a, w, b: F.relu(F.linear(a, w, b)), ((30, 40), (50, 40), (50,))),
    "linear of three dimensions": (lambda a, w, b: F.gelu(F.linear(a, w, b)), ((2, 9, 40), (50, 40), (50,))),
    "both transposed": (lambda a, b: a.t() @ b.t(), ((33, 40), (50, 33))),
    "a transposed result": (lambda a, b: (a @ b).t().contiguous() * 2, ((33, 40), (40, 50))),
    "batches": (lambda a, b: torch.relu(a @ b), ((3, 20, 33), (3, 33, 18))),
    "an expanded operand": (lambda a, b: torch.bmm(a, b.expand(3, 33, 18)), ((3, 20, 33), (1, 33, 18))),
    "three products summed": (lambda a, b, c, d: a @ b + a @ c + d @ b, ((40, 36), (36, 20), (36, 20), (40, 36))),
    "addmm": (lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2), ((20, 30), (30, 20), (20,))),
    "addmm that ignores": (lambda a, b, c: torch.addmm(c / 0, a, b, beta=0), ((20, 30), (30, 20), (20, 20))),
    "baddbmm": (lambda a, b, c: torch.baddbmm(c, a, b, alpha=3), ((3, 20, 30), (3, 30, 20), (20, 1))),
    "a residual": (lambda a, b, c: a @ b + c, ((20, 30), (30, 24), (20, 24))),
    "a row and a column": (lambda a, b, c, d: (a * c[:, None] * d) @ b, ((20, 30), (30, 24), (20,), (30,))),
    "scales along the inner axis": (lambda a, b, d: (a * d) @ (b * d[:, None]), ((20, 40), (40, 24), (40,))),
    "a row times a matrix": (lambda a, b: a @ b, ((1, 30), (30, 24))),
    "a column times a row": (lambda a, b: a @ b + 1, ((20, 1), (1, 24))),
    "few columns": (lambda a, b: a @ b, ((40, 30), (30, 3))),
    "a chain": (lambda a, b, c: (a @ b).relu() @ c, ((20, 30), (30, 24), (24, 16))),
    "masked": (lambda a, b: torch.tril(a) @ b, ((24, 24), (24, 18))),
    "padded": (lambda a, b: F.pad(a, (1, 2)) @ b, ((24, 21), (24, 18))),
    "a softmax": (lambda a, b: torch.softmax(a, -1) @ b, ((24, 40), (40, 18))),
    "a slice": (lambda a, b: a[:, 3:] @ b[1:], ((24, 43), (41, 18))),
    "attention": (
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * 0.3, -1) @ v,
        ((2, 2, 20, 24), (2, 2, 20, 24), (2, 2, 20, 24)),
    ),
}

LONG = ("mm", "linear of three dimensions", "both transposed", "addmm", "a residual", "a chain", "padded", "attention")


def few(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.long if name in LONG else ())


@pytest.fixture(scope="module")
def ours() -> Iterator[Compiler]:
    made = Compiler()
    yield made
    made.artefacts.interpreter.close()


def check(ours: Compiler, fn: Callable[..., Any], given: list[torch.Tensor], **options: object) -> Compiled:
    """Our error is at most twice eager's, beside float64; what was compiled."""
    seen: list[Compiled] = []
    ours.observer = seen.append
    chosen = {"target": "interpret", "matmul": "native", "verify": True, **options}
    result = torch.compile(fn, backend=lambda gm, i: ours(gm, i, options=chosen))(*given)
    eager, truth = fn(*given), fn(*(t.double() for t in given))
    assert (result.dtype, result.shape, result.stride()) == (eager.dtype, eager.shape, eager.stride())
    scale = truth.abs().max().item()
    mine, theirs = ((found.double() - truth).abs().max().item() for found in (result, eager))
    # the interpreter rounds to 16 bits by cutting digits off
    slack = {BF16: 2**-7, F16: 2**-10}.get(eager.dtype, 4 * torch.finfo(eager.dtype).eps)
    assert mine <= 2 * theirs + slack * scale, (mine, theirs, scale)
    torch._dynamo.reset()
    return seen[-1]


def tensors(sizes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(size).to(dtype) for size in sizes]


@pytest.mark.parametrize("name", [few(name) for name in CASES])
def test_equals_eager(name: str, ours: Compiler) -> None:
    fn, sizes = CASES[name]
    check(ours, fn, tensors(sizes, F32))


@pytest.mark.parametrize("dtype", [pytest.param(F64, marks=pytest.mark.long), BF16, F16], ids=str)
@pytest.mark.parametrize(
    "name",
    ["odd sizes, and sums on both sides", "linear", pytest.param("three products summed", marks=pytest.mark.long)],
)
def test_in_other_dtypes(name: str, dtype: torch.dtype, ours: Compiler) -> None:
    fn, sizes = CASES[name]
    check(ours, fn, tensors(sizes, dtype))


def text_of(fn: Callable[..., Any], *given: torch.Tensor, file: str = "kernels.py", **options: object) -> str:
    """The kernels for a GPU, or another file of their artefact."""
    return files_of(fn, *given, **options)[file]


class NotToBeCalled(Exception):
    """Raised in place of a call whose results no test needs."""


def called(*_: Any) -> Any:
    raise NotToBeCalled


def files_of(fn: Callable[..., Any], *given: torch.Tensor, **options: object) -> Mapping[str, str]:
    """The texts of an artefact for a GPU, by file."""
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append, is_dry=True)
    chosen = {"target": "sm_90", "matmul": "native", "verify": True, **options}

    def without_a_call(gm: Any, inputs: list[Any]) -> Callable[..., Any]:
        compiler(gm, inputs, options=chosen)
        return called

    with pytest.raises(NotToBeCalled):  # eager's products of these sizes take many seconds
        torch.compile(fn, backend=without_a_call)(*given)
    torch._dynamo.reset()
    return seen[-1].sources


def test_nothing_is_reshaped_around_a_product() -> None:
    a, b, c = tensors(((512, 256), (256, 512), (512,)), BF16)
    for fn in (lambda a, b, c: torch.relu(a @ b + c), lambda a, b, c: a @ b.t().contiguous().t() * c[:, None]):
        text = text_of(fn, a, b, c)
        assert text.count("tl.dot(") == 1
        assert not re.search(r"reshape|trans\(|broadcast_to|tl\.where\(.*mask", text)
        assert not re.search(r"to\(tl\.bfloat16\)", text), "operands stay as they are in memory"


def test_several_products_are_one_kernel() -> None:
    fn, sizes = CASES["three products summed"]
    text = text_of(fn, *tensors(sizes, F16))
    assert (text.count("tl.dot("), text.count("@triton.jit")) == (3, 1)


def test_both_operands_end_in_zeros() -> None:
    text = text_of(lambda a, b: a @ (b + 1), *tensors(((64, 62), (62, 64)), BF16))
    (dot,) = re.findall(r"tl\.dot\((\w+), (\w+)\.to\(tl\.bfloat16\)", text)
    assert re.search(rf"{dot[0]} = tl\.load\(.*i2_mask, other=0\.0\)", text)
    assert f"{dot[1]} = tl.where(i2_down_mask, " in text


def test_what_float32_is_rounded_to() -> None:
    given = tensors(((64, 64), (64, 64)), F32)
    assert 'input_precision="ieee"' in text_of(torch.mm, *given)
    assert 'input_precision="tf32"' in text_of(torch.mm, *given, matmul_precision="tf32")
    row = text_of(torch.mm, given[0][:1], given[1], matmul_precision="tf32")  # no work for a matrix unit
    assert "tf32" not in row and "tl.sum(" in row
    assert "tf32" not in text_of(lambda a, b: (a[:, :, None] * b[None]).sum(1), *given, matmul_precision="tf32")


@pytest.mark.parametrize(
    ("matmul", "sizes", "count"), [("auto", (512, 64), 0), ("extern", (512, 8), 0), ("auto", (512, 8), 1)]
)
def test_who_computes_a_product(matmul: str, sizes: tuple[int, int], count: int) -> None:
    rows, inner = sizes
    text = text_of(lambda a, b: torch.relu(a @ b), *tensors(((rows, inner), (inner, rows)), F32), matmul=matmul)
    assert text.count("tl.dot(") == count


def test_gpu_code_has_matrix_instructions() -> None:
    given = tensors(((1024, 256), (256, 1024)), BF16)
    for target, instruction in (("sm_80", "mma.sync"), ("sm_90", "wgmma.mma_async")):
        made = minductor.compile_only(
            lambda a, b: torch.relu(a @ b), *given, target=target, options={"matmul": "native"}
        )
        (kernel,) = made.kernels
        assert instruction in kernel.assembly and kernel.spills == 0


# --- products by choice -------------------------------------------------------------------------------------------


class Clock:
    """Calls it what it is told: the first candidate of each choice is fast, or the last one."""

    def __init__(self, *, is_first_fast: bool) -> None:
        self.sign = 1 if is_first_fast else -1
        self.asked = 0

    def __call__(self, run: Callable[[], object]) -> float:
        run()
        self.asked += 1
        return 2.0 ** (self.sign * (self.asked % 2 == 0))


@pytest.fixture
def tuned(ours: Compiler, tmp_path: Path) -> Callable[..., torch.Tensor]:
    """Runs the linear layer with a clock and a store of its own, by name."""
    fn, sizes = CASES["linear"]

    def run(store: str, clock: Clock, **options: object) -> torch.Tensor:
        made = Compiler(environ={**os.environ, "MINDUCTOR_CACHE_DIR": str(tmp_path / store)}, tuning_clock=clock)
        made.artefacts.interpreter = ours.artefacts.interpreter
        chosen = {"target": "interpret", "autotune": True, "verify": True, "verify_memory": "assert", **options}
        torch._dynamo.reset()
        return torch.compile(fn, backend=lambda gm, i: made(gm, i, options=chosen))(*tensors(sizes, F32))

    return run


def test_the_library_or_our_kernel_is_a_choice_by_measure(tuned: Callable[..., torch.Tensor]) -> None:
    fn, sizes = CASES["linear"]
    seen: list[torch.Tensor] = []
    for is_first_fast in (True, False):
        clock, warm = Clock(is_first_fast=is_first_fast), Clock(is_first_fast=not is_first_fast)
        seen.append(tuned(str(is_first_fast), clock))
        torch.testing.assert_close(seen[-1], fn(*tensors(sizes, F32)))
        assert torch.equal(tuned(str(is_first_fast), warm), seen[-1])
        assert (clock.asked > 0, warm.asked) == (True, 0), "a warm start measures nothing"
    assert not torch.equal(*seen), "the two ways differ in bits"


def test_each_power_of_two_of_a_size_is_measured(
    ours: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "TRIES", 1)
    monkeypatch.setattr(tune, "WORK_SECONDS", math.inf)  # a busy machine would measure fewer candidates
    clock = Clock(is_first_fast=False)
    made = Compiler(environ={**os.environ, "MINDUCTOR_CACHE_DIR": str(tmp_path)}, tuning_clock=clock)
    made.artefacts.interpreter = ours.artefacts.interpreter
    options = {"target": "interpret", "autotune": True, "verify": True}
    run = torch.compile(
        lambda a, b: torch.relu(a @ b), backend=lambda gm, i: made(gm, i, options=options), dynamic=True
    )
    asked: list[int] = []
    for rows in (17, 30, 40, 20):
        a, b = tensors(((rows, 32), (32, 32)), F32)
        torch.testing.assert_close(run(a, b), torch.relu(a @ b))
        asked.append(clock.asked)
    assert asked[0] == asked[1] > 0, "17 and 30 have five bits"
    assert asked[2] == asked[3] == 2 * asked[0], "40 has six"


def test_no_clock_changes_bits_where_they_are_to_stay(tuned: Callable[..., torch.Tensor]) -> None:
    clocks = [Clock(is_first_fast=first) for first in (True, False)]
    first, second = (tuned(str(n), clock, deterministic=True) for n, clock in enumerate(clocks))
    assert torch.equal(first, second)
    assert [clock.asked for clock in clocks] == [0, 0]


@pytest.mark.parametrize("name", ["odd sizes, and sums on both sides", "a softmax", "baddbmm", "a residual"])
def test_all_variants_compute_the_same(name: str, ours: Compiler) -> None:
    """The library's way is the default, which is taken where nothing may be measured; other tests take the kernel's."""
    fn, sizes = CASES[name]
    found = check(ours, fn, tensors(sizes, F32), matmul="auto", autotune=True, deterministic=True)
    assert "_extern(" not in found.sources["wrapper.py"] and "choose(" not in found.sources["wrapper.py"]
    assert found.report.externs > 0
    open_choice = check(ours, fn, tensors(sizes, F32), matmul="auto", autotune=True)
    assert "_extern(" in open_choice.sources["wrapper.py"]
    assert ("variant", "bits", "extern", ("extern", "native")) in {c[1:5] for c in open_choice.report.choices}


def test_factors_of_two_dtypes_are_no_call_of_the_library() -> None:
    """It takes operands of one dtype only."""
    chosen = {"file": "wrapper.py", "matmul": "auto", "autotune": True}
    for is_rounded in ((False, False), (True, True), (False, True)):

        def fn(*given: torch.Tensor, is_rounded: tuple[bool, bool] = is_rounded) -> torch.Tensor:
            x, y = (g.bfloat16().float() if r else g for g, r in zip(given, is_rounded, strict=True))
            return (x[:, :, None] * y[None]).sum(1)

        text = text_of(fn, *tensors(((32, 64), (64, 32)), F32), **chosen)
        assert ("_extern(" in text) == (is_rounded[0] == is_rounded[1])


@pytest.mark.golden
@pytest.mark.devices("compile:sm_90")
@pytest.mark.counts(kernels=1, externs=0, spills=0)
def test_a_linear_layer_is_one_kernel(compiled: Compile) -> None:
    given = tensors(((320, 256), (512, 256), (512,), (320, 512)), BF16)
    compiled(lambda x, w, b, y: F.relu(F.linear(x + 1, w, b)) + y, *given, options={"matmul": "native"})


@pytest.mark.parametrize("inner", [4, 16])
def test_what_is_added_to_a_short_product_spills_no_registers(inner: int) -> None:
    """Triton would begin the sum with it: 4.8 KB of each thread were kept in memory, and it took 13 times as long."""
    sizes = ((912, inner), (inner, 1839), (912, 1839))
    for fn in (lambda a, b, y: a @ b + y, lambda a, b, y: y + a @ b):
        made = minductor.compile_only(fn, *tensors(sizes, F32), options={"matmul": "native"})
        assert [kernel.spills for kernel in made.kernels] == [0] and " - (-" in made.source
    a, b, y = tensors(((40, inner), (inner, 70), (40, 70)), F32)
    run = torch.compile(
        lambda a, b, y: (y + a @ b, a @ b + 1.0), backend=minductor.minductor, options={"target": "interpret"}
    )
    torch.testing.assert_close(run(a, b, y), (y + a @ b, a @ b + 1.0))


@pytest.mark.parametrize(("columns", "kernels"), [(64, 1), pytest.param(4096, 2, marks=pytest.mark.long)])
def test_an_operand_is_computed_on_the_way_if_that_is_seldom(columns: int, kernels: int) -> None:
    """Each block of columns computes the operand again."""
    a, b = tensors(((8192, 128), (128, columns)), BF16)
    for fn in (lambda a, b: torch.softmax(a, -1) @ b, lambda a, b: F.gelu(a) @ b):
        files = files_of(fn, a, b)
        assert (files["kernels.py"].count("tl.dot("), len(read_launches(files[LAUNCHES]))) == (1, kernels)
    assert len(read_launches(text_of(lambda a, b: (a + 1) @ b, a, b, file=LAUNCHES))) == 1


def test_options_of_launches_keep_bits_where_they_are_to_stay() -> None:
    """The blocks of the inner axis, and warps that join values, decide in which order sums are added up."""
    given = tensors(((64, 300), (300, 64)), F32)
    texts = [text_of(torch.mm, *given, file=LAUNCHES, autotune=True, deterministic=d) for d in (False, True)]
    (free,), (kept,) = (read_launches(text) for text in texts)
    assert dict(free.choices) == {**kept.choices, "R0_BLOCK": (16, 32, 64)}
    text = text_of(lambda a, b: a.sum(1), *given, file=LAUNCHES, autotune=True, deterministic=True)
    assert not read_launches(text)[0].choices


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(97, 80), (128, 256)], ids=["masked", "whole blocks"])
def test_a_launch_of_other_block_sizes_covers_all_elements(rows: int, columns: int, *, is_dynamic: bool) -> None:
    """Its number of programs is derived from that of the block parameters."""
    a, b = tensors(((rows, 300), (300, columns)), F32)
    if is_dynamic:
        torch._dynamo.mark_dynamic(a, 0)
    (launch,) = read_launches(text_of(torch.mm, a, b, file=LAUNCHES, autotune=True))
    sizes = {name: rows for name, kind in launch.arguments.items() if kind == "i32"}
    assert bool(sizes) == is_dynamic

    def count(launch: LaunchMetadata) -> int:
        places = {name: number for number, name in enumerate(sizes)}
        return evaluate(steps(launch.programs, places), list(sizes.values()))

    blocks = ("XBLOCK", "YBLOCK")
    for config in neighbours(launch.choices, launch.config):
        for other in (config, *neighbours(launch.choices, config)):
            x, y = (other[name] for name in blocks)
            made = launch.configured(other)
            assert count(made) == -(-rows // y) * -(-columns // x)
            assert (made.blocks["XBLOCK"], made.warps, made.variant) == (x, other["warps"], launch.label(other))
            assert launch.config_of(made.variant) == other


def _named_inside(text: str, variant: str) -> list[tuple[str, list[str]]]:
    """The calls of a wrapper's variant: what is called, and the nodes that the comment above names."""
    (lines,) = re.findall(rf"^def \w+_{variant}\(.*\):\n((?:    .*\n)+)", text, re.MULTILINE)
    found = re.findall(r"    # \d+: (.*)\n    ([\w.]+)\(", lines)
    return [(called, nodes.split(", ")) for nodes, called in found]


NAMED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], list[tuple[str, list[str]]]]] = {
    "an epilogue": (
        lambda a, b: F.gelu(a @ b) + 1,
        ((256, 256), (256, 256)),
        [("torch.mm", ["mm"]), ("fused_gelu_add_0", ["gelu", "add"])],
    ),
    "a computed operand": (
        lambda a, b: torch.tanh(F.gelu(a + 2) @ b),
        ((256, 256), (256, 32)),
        [("fused_add_gelu_0", ["add", "gelu"]), ("torch.mm", ["mm"]), ("tanh_1", ["tanh"])],
    ),
    "an operand of the sum that was computed before the product": (
        lambda a, b, c: a @ b + torch.exp(c),
        ((256, 256), (256, 256), (256, 256)),
        [("torch.mm", ["mm"]), ("fused_exp_add_0", ["exp", "add"])],
    ),
    "the same in two operands and after": (
        lambda a, b: torch.relu(torch.relu(a) @ torch.relu(b)),
        ((256, 32), (32, 256)),
        [("relu_0", ["relu"]), ("relu_1", ["relu_1"]), ("torch.mm", ["mm"]), ("relu_2", ["relu_2"])],
    ),
    "a product that adds": (
        lambda a, w, b: F.relu(F.linear(a, w, b)),
        ((256, 256), (512, 256), (512,)),
        [("torch.mm", ["addmm"]), ("fused_addmm_relu_0", ["addmm", "relu"])],
    ),
    "copies": (
        lambda a, b: (a.flip(0).clone() @ b).clone() * 2,
        ((256, 256), (256, 256)),
        [("flip_0", ["flip"]), ("torch.mm", ["clone", "mm"]), ("fused_clone_mul_1", ["clone_1", "mul"])],
    ),
    "a product that is a result too": (
        lambda a, b: (product := a @ b, F.gelu(product)),
        ((256, 256), (256, 256)),
        [("torch.mm", ["mm"]), ("gelu_0", ["gelu"])],
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_calls_of_a_variant_name_the_nodes_that_they_compute(name: str) -> None:
    fn, sizes, named = NAMED[name]
    given = tensors(sizes, BF16)
    text = text_of(fn, *given, file="wrapper.py", matmul="auto", autotune=True)
    assert _named_inside(text, "extern") == named
    ((_, every),) = _named_inside(text, "native")
    assert {*every} == {node for _, nodes in named for node in nodes}


def test_two_products_of_one_operand_are_told_apart() -> None:
    given = tensors(((256, 256),) * 3, BF16)
    text = text_of(lambda a, b, c: a @ b - a @ c, *given, file="wrapper.py", matmul="auto", autotune=True)
    found = re.findall(r"# \d+: (.*)\n    (torch\.mm\(\w+, \w+|sub_0\()", text)
    assert {*found} == {("mm", "torch.mm(arg0_1, arg1_1"), ("mm_1", "torch.mm(arg0_1, arg2_1"), ("sub", "sub_0(")}


def test_a_call_that_writes_the_result_names_what_it_adds() -> None:
    given = tensors(((256, 256),) * 3, F32)
    text = text_of(lambda a, b, c: a @ b + c, *given, file="wrapper.py", matmul="auto", autotune=True)
    assert _named_inside(text, "extern") == [("torch.addmm", ["mm", "add"])]


def test_a_bias_is_given_to_the_library_as_a_vector() -> None:
    """Torch copies a matrix into the result before the product; a vector the library adds itself."""
    given = tensors(((256, 512), (128, 512), (128,)), F32)
    text = text_of(F.linear, *given, file="wrapper.py", matmul="auto", autotune=True)
    assert re.search(r"torch\.addmm\(arg\d_1, ", text), text
    assert "(0, 1)" not in text
