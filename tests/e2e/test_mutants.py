"""Programs that each see some faults of the compiler: what the other tests prove is that right code passes.

`pytest --mutants tests/e2e/test_mutants.py -m long` shows which kinds of checks see which fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.core.errors import NonFiniteResult
from minductor.frontend.rules import matmul
from minductor.heuristics.learned import Answer, learned
from minductor.ir.program.signature import pointer_role
from minductor.options import RECIPES
from minductor.passes.schedule import schedule
from minductor.passes.split import split
from minductor.runtime.launch.interpret import Interpreter
from minductor.runtime.store.store import Store
from minductor.runtime.tune import tune_clock
from minductor.runtime.tune.tune_memory import TrialMemory
from minductor.target import Env
from pytest_plugin import at_most
from pytest_plugin.adapters import FreshStore
from pytest_plugin.goldens.golden import Goldens
from pytest_plugin.oracle.accuracy import Policy
from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import Run
from tests.heuristics.kernels import answering
from tests.runtime.effects import Effect, check
from tests.runtime.nests import assert_nests

pytestmark = pytest.mark.long
canonical = pytest.mark.golden(level="canonical")


@pytest.mark.must_fail_under("mask-dropped", "wrong-padding", "block-access-lost")
@pytest.mark.counts(kernels=1, block_accesses=1)
@canonical
def test_pad(compiled: Compile, device: str) -> None:
    compiled(lambda x: F.pad(x, (1, 1), value=3.0), torch.randn(8, 30, device=device))


@pytest.mark.must_fail_under("wrong-identity", "lanes-not-joined", "wrong-lane", "constant-cut-short", "fusion-off")
@pytest.mark.counts(kernels=1)
@canonical
def test_row_sums(compiled: Compile, device: str) -> None:
    def f(x: Tensor) -> Tensor:
        return x.sum(-1, keepdim=True) * 0.7071067 + x

    compiled(f, torch.randn(8, 300, device=device))


@pytest.mark.must_fail_under("last-element-dropped")
@canonical
def test_pointwise(compiled: Compile, device: str) -> None:
    compiled(lambda x, y: x * y.t() + 1, torch.randn(40, 30, device=device), torch.randn(30, 40, device=device))


@pytest.mark.must_fail_under("scan-backwards")
@canonical
def test_cumulative_sum(compiled: Compile, device: str) -> None:
    compiled(lambda x: x.cumsum(1), torch.randn(4, 20, device=device))


@pytest.mark.must_fail_under("accumulator-kept")
@canonical
def test_column_sums(compiled: Compile, device: str) -> None:
    compiled(lambda x: x.sum(0), torch.randn(5000, 70, device=device))


@pytest.mark.must_fail_under("parts-not-joined")
@canonical
def test_whole_sum(compiled: Compile, device: str) -> None:
    compiled(lambda x: x.sum(), torch.randn(1 << 18, device=device))


@pytest.mark.must_fail_under("index-not-wrapped", "bound-off-by-one")
@canonical
def test_negative_indices_and_bounds(compiled: Compile, device: str) -> None:
    x = torch.randn(10, device=device)
    run = compiled(lambda x, i: x[i] * 2, x, torch.tensor([0, -1, 3], device=device))
    with pytest.raises(Exception, match=r"out of bounds|out of range"):
        torch.compile(lambda x, i: x[i] * 2, backend="minductor")(x, torch.tensor([10], device=device))
    assert run.report.kernels == 1


@pytest.mark.must_fail_under("sum-as-assignment")
@canonical
def test_scatter_add(compiled: Compile, device: str) -> None:
    index = torch.tensor([0, 0, 1, 2, 2, 2], device=device)
    compiled(lambda x, i: torch.zeros(3, device=x.device).index_add(0, i, x), torch.randn(6, device=device), index)


@pytest.mark.must_fail_under("sums-in-16-bits")
@pytest.mark.devices("cpu", "interpret")
@canonical
def test_sums_of_16_bits(compiled: Compile) -> None:
    """Beside float64: eager on the CPU rounds after each of the 1,000 steps, as the fault does."""
    index = torch.arange(4000) % 4
    halves = torch.rand(4000).bfloat16()
    compiled(lambda x, i: x[:4].index_put((i,), x, accumulate=True), halves, index, policy=Policy(k=0))


@pytest.mark.must_fail_under("operands-turned")
@canonical
def test_difference(compiled: Compile, device: str) -> None:
    compiled(lambda x, y: x.sin() - y, torch.randn(40, device=device), torch.randn(40, device=device))


@pytest.mark.must_fail_under("wrong-layout", "offset-dropped", "outputs-turned")
@pytest.mark.golden(view=("kernel", "wrapper"), level="canonical")
def test_views_of_results(compiled: Compile, device: str) -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x @ x
        return y[1:, 2:], x * 2

    compiled(f, torch.randn(6, 6, device=device))


@pytest.mark.must_fail_under("nan-not-tested", "nan-reads-forgotten")
@pytest.mark.golden(view="wrapper", level="canonical")
def test_nan_is_reported_where_it_is_made(compiled: Compile, device: str) -> None:
    run = compiled(lambda x: x.log() + 1, torch.ones(2, device=device), options={"nan_asserts": True})
    run.again(torch.tensor([torch.nan, 1], device=device))
    with pytest.raises(NonFiniteResult):
        run.again(torch.tensor([-1.0, 1], device=device))


@pytest.mark.must_fail_under("freed-early", "freed-never", "taken-while-alive", "hazard-in-place")
@pytest.mark.memory(peak=at_most("inputs + 96 KiB"), leaks=0, frees_inputs=True)
@pytest.mark.golden(view="wrapper", level="canonical")
def test_memory(compiled: Compile, device: str) -> None:
    def f(x: Tensor) -> Tensor:
        y = x @ x
        z = y.flip(0) + 1
        w = (z @ z).flip(1) * 2
        return w @ w

    compiled(f, torch.randn(128, 128, device=device))


@pytest.mark.must_fail_under("peak-forgotten")
@pytest.mark.memory(peak=at_most("1 MiB"))
@pytest.mark.golden(view="wrapper", level="canonical")
def test_no_storage_is_kept_over_the_peak(compiled: Compile, device: str) -> None:
    def f(x: Tensor) -> Tensor:
        small = x @ x
        large = (x + small.sum(0)).repeat(8, 1) @ x
        return (x + large.sum(0)) @ x

    compiled(f, torch.randn(128, 128, device=device))


@pytest.mark.must_fail_under("over-fusion", "mutation-dropped")
@pytest.mark.golden(view=("kernel", "wrapper"), level="canonical")
def test_what_is_overwritten_is_read_before(compiled: Compile, device: str) -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        x.copy_(x.flip(0) + 1)
        return y, x * 3

    compiled(f, torch.randn(8, 8, device=device))


@pytest.mark.must_fail_under("war-edge-dropped")
@pytest.mark.golden(view="wrapper", level="canonical")
def test_an_operator_reads_before_its_operand_is_overwritten(compiled: Compile, device: str) -> None:
    def f(x: Tensor) -> Tensor:
        z = x.sin()
        y = z @ x
        x.copy_(z)
        return y

    compiled(f, torch.randn(8, 8, device=device))


@pytest.mark.must_fail_under("stale-key")
def test_each_graph_has_a_key_of_its_own(compiled: Compile, device: str, fresh_store: FreshStore) -> None:
    runs = [compiled(f, torch.ones(4, 4, device=device)) for f in (lambda x: x + 1, lambda x: x * 3)]
    assert [graph.was_hit for run in runs for graph in run.graphs] == [False, False]
    assert len(Store(fresh_store.path).entries()) == 2


@pytest.mark.must_fail_under("order-of-a-set")
@pytest.mark.golden(view="wrapper", level="canonical")
@pytest.mark.deterministic(runs=2, hash_seeds=2, threads=(1, 2))
def test_texts_and_bits_are_the_same_everywhere(compiled: Compile, device: str) -> None:
    def f(*given: Tensor) -> tuple[Tensor, Tensor]:
        first, second, *others = given
        return (first @ second).sin(), sum(others, others[0]).sum(0)

    compiled(f, *(torch.randn(64, 64, device=device) for _ in range(8)))


# --- loop nests, which are also run without a compiler


@pytest.mark.must_fail_under("nest-scatter-in-any-order")
@canonical
def test_rows_that_meet_in_a_scatter(compiled: Compile) -> None:
    def f(x: Tensor, i: Tensor) -> Tensor:
        return torch.zeros(5, 8).index_add(0, i, x)

    given = torch.randn(2000, 8), torch.arange(2000) % 5
    compiled(f, *given)
    assert_nests(f, *given, target="cpu")


@pytest.mark.must_fail_under("nest-scan-in-vectors")
@canonical
def test_a_scan_along_memory(compiled: Compile) -> None:
    compiled(lambda x: x.cumsum(1), torch.randn(4, 20))
    assert_nests(lambda x: x.cumsum(1), torch.randn(4, 20), target="cpu")


@pytest.mark.must_fail_under("nest-half-a-row")
@pytest.mark.devices("interpret")
@canonical
def test_a_row_that_a_program_holds(compiled: Compile) -> None:
    compiled(lambda x: x - x.sum(-1, keepdim=True), torch.randn(8, 100))
    assert_nests(lambda x: x - x.sum(-1, keepdim=True), torch.randn(8, 100), target="interpret")


@pytest.mark.must_fail_under("nest-partial-sum")
@pytest.mark.devices("interpret")
@canonical
def test_a_long_row_that_is_read_again(compiled: Compile) -> None:
    compiled(lambda x: x - x.sum(-1, keepdim=True), torch.randn(64, 5000), options={"variant": "looped"})
    assert_nests(lambda x: x - x.sum(-1, keepdim=True), torch.randn(64, 5000), target="interpret", variant="looped")


@pytest.mark.must_fail_under("nest-part-of-a-product")
@pytest.mark.devices("interpret")
@canonical
def test_a_product_of_several_blocks(compiled: Compile) -> None:
    compiled(torch.mm, torch.randn(32, 100), torch.randn(100, 32), options={"matmul": "native"})
    assert_nests(torch.mm, torch.randn(32, 100), torch.randn(100, 32), target="interpret", matmul="native")


@pytest.mark.must_fail_under("nest-scan-begins-anew")
@pytest.mark.devices("interpret")
@canonical
def test_a_scan_of_several_blocks(compiled: Compile) -> None:
    compiled(lambda x: x.cumsum(0), torch.randn(20_000))
    assert_nests(lambda x: x.cumsum(0), torch.randn(20_000), target="interpret")


# --- variants


@pytest.mark.must_fail_under("nearest-by-difference", "first-point-for-all")
@pytest.mark.golden(view="wrapper", level="canonical")
def test_the_nearest_size_is_that_of_the_nearest_power(compiled: Compile) -> None:
    run = compiled(lambda x: x.exp().sum(0), torch.randn(300, 310), dynamic=True, options={"size_hints": (64, 1024)})
    run.again(torch.randn(60, 64))
    launched = [what for graph in run.graphs for kind, what in graph.events if kind == "launch"]
    assert len({*launched}) == 2, "300 is nearer to 1024 than to 64, since factors count"


@pytest.mark.must_fail_under("nearest-by-difference", "first-point-for-all")
def test_each_size_launches_the_kernel_of_the_nearest_hint(compiled: Compile, golden: Goldens) -> None:
    rows = [300, 60, 200, 700]
    options = {"size_hints": (64, 1024)}
    run = compiled(lambda x: x.exp().sum(0), torch.randn(rows[0], 310), dynamic=True, options=options)
    for count in rows[1:]:
        run.again(torch.randn(count, 310))
    launched = [what for graph in run.graphs for kind, what in graph.events if kind == "launch"]
    golden.text("launched", "\n".join(f"{count} x 310  {what}" for count, what in zip(rows, launched, strict=True)))


@pytest.mark.must_fail_under("other-dispatches-share")
@pytest.mark.golden(view="wrapper", level="canonical")
def test_choices_between_other_kernels_are_others(compiled: Compile) -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x.cos(), -1), torch.softmax(y.sin(), -1)

    compiled(fn, torch.randn(8, 40000), torch.randn(8, 40000), options={"autotune": True})


# --- kernels of GPUs, on the interpreter


@pytest.mark.must_fail_under("gpu-lanes-not-masked", "gpu-wrong-axis", "gpu-blocks-overlap")
@pytest.mark.devices("interpret")
@canonical
def test_row_sums_on_a_gpu(compiled: Compile) -> None:
    compiled(lambda x: x.exp().sum(-1) + 1, torch.randn(40, 100))


@pytest.mark.must_fail_under("gpu-edge-twice", "gpu-edge-missing", "gpu-edges-not-joined")
@pytest.mark.devices("interpret")
@canonical
def test_rows_with_edges_on_a_gpu(compiled: Compile) -> None:
    compiled(lambda x: x / x.exp().sum(-1, keepdim=True), torch.randn(9, 301), options={"variant": "aligned4"})


@pytest.mark.must_fail_under("gpu-wrong-identity")
@pytest.mark.devices("interpret")
@canonical
def test_a_long_row_on_a_gpu(compiled: Compile) -> None:
    compiled(lambda x: x.sum(), torch.randn(20_000), options={"variant": "looped"})


@pytest.mark.must_fail_under("gpu-finished-early", "gpu-counter-kept")
@pytest.mark.devices("interpret")
@canonical
def test_sums_of_parts_on_a_gpu(compiled: Compile) -> None:
    compiled(lambda x: x.sum(), torch.randn(1 << 17))


@pytest.mark.must_fail_under("gpu-finished-early", "gpu-blocks-counted-together", "gpu-counter-kept")
@pytest.mark.devices("interpret")
@canonical
def test_sums_of_columns_on_a_gpu(compiled: Compile) -> None:
    compiled(lambda x: x.sum(0), torch.randn(2048, 128))


@pytest.mark.must_fail_under("gpu-wrong-end")
@pytest.mark.devices("interpret")
@canonical
def test_a_long_scan_on_a_gpu(compiled: Compile) -> None:
    compiled(lambda x: x.cumsum(0), torch.randn(20_000))


@pytest.mark.must_fail_under("gpu-index-not-wrapped")
@pytest.mark.devices("interpret")
@canonical
def test_negative_indices_on_a_gpu(compiled: Compile) -> None:
    compiled(lambda x, i: x[i] * 2, torch.randn(10), torch.tensor([0, -1, 3]))


@pytest.mark.must_fail_under("gpu-not-atomic")
@pytest.mark.devices("interpret", "compile:sm_90")
@canonical
def test_scatter_add_on_a_gpu(compiled: Compile) -> None:
    index = torch.tensor([0, 0, 1, 2, 2, 2])
    compiled(lambda x, i: torch.zeros(3, device=x.device).index_add(0, i, x), torch.randn(6), index)


@pytest.mark.must_fail_under("wrong-candidate-wins")
@pytest.mark.devices("interpret")
def test_a_fast_kernel_with_other_results(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernel of the product writes NaN, and is the faster one."""
    ran: list[str] = []

    def bind(kernels: Interpreter, symbol: str) -> Callable[..., int]:
        roles = [pointer_role(name) for name in kernels.launches[symbol].arguments]

        def run(*args: Any) -> int:
            ran.append(symbol)
            args[roles.index("out")].fill_(float("nan"))
            return 0

        return run

    def clock(run: Callable[[], object]) -> float:
        ran.clear()
        run()
        return 1.0 if ran else 2.0

    monkeypatch.setattr(Interpreter, "bind", bind)
    monkeypatch.setattr(tune_clock, "wall_clock", clock)
    run = compiled(torch.mm, torch.randn(32, 48), torch.randn(48, 64), options={"autotune": True, "matmul": "auto"})
    assert ran == ["mm_0"], "it ran once, to be compared"
    assert run.report.kernels == 1


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[str]]:
    """Our kernel of a product rounds, as a candidate may, and takes a number of seconds where the library takes 1.

    Returns what lists the kernels that ran last.
    """

    def pretend(seconds: float) -> list[str]:
        ran: list[str] = []

        def bind(kernels: Interpreter, symbol: str) -> Callable[..., int]:
            roles = [pointer_role(name) for name in kernels.launches[symbol].arguments]

            def run(*args: Any) -> int:
                ran.append(symbol)
                a, b = sorted((arg for arg, role in zip(args, roles, strict=False) if role == "in"), key=len)
                torch.mm(a, b, out=args[roles.index("out")]).mul_(1.0003)
                return 0

            return run

        def clock(run: Callable[[], object]) -> float:
            ran.clear()
            run()
            found = seconds if ran else 1.0
            ran.clear()
            return found

        monkeypatch.setattr(Interpreter, "bind", bind)
        monkeypatch.setattr(tune_clock, "wall_clock", clock)
        return ran

    return pretend


@pytest.mark.must_fail_under("tie-wins")
@pytest.mark.devices("interpret")
def test_a_kernel_that_is_hardly_faster(compiled: Compile, rounding: Callable[[float], list[str]]) -> None:
    ran = rounding(0.99)
    compiled(torch.mm, torch.randn(32, 48), torch.randn(48, 64), options={"autotune": True, "matmul": "auto"})
    assert ran == [], "the library stays"


@pytest.mark.must_fail_under("clock-believed")
@pytest.mark.devices("interpret")
def test_a_kernel_that_takes_no_time(compiled: Compile, rounding: Callable[[float], list[str]]) -> None:
    ran = rounding(0.0)
    compiled(torch.mm, torch.randn(32, 48), torch.randn(48, 64), options={"autotune": True, "matmul": "auto"})
    assert ran == [], "the library stays"


@pytest.mark.must_fail_under("half-of-a-tensor-put-back")
@pytest.mark.devices("interpret")
def test_a_sum_that_is_added_to_a_transposed_tensor(compiled: Compile) -> None:
    given = (torch.randn(64, 32).t(), torch.randn(32, 48), torch.randn(48, 64))
    compiled(lambda x, a, b: x.add_(a @ b), *given, options={"autotune": True, "matmul": "auto"})
    memory = TrialMemory((torch.zeros(8, 6)[:, ::2].t(),), (0,))
    assert [span.before.numel() for span in memory.spans] == [4 * (7 * 6 + 2 * 2 + 1)], "to the last byte"


@pytest.mark.must_fail_under("target-not-put-back")
@pytest.mark.devices("interpret")
def test_a_sum_that_is_added_to_what_is_there(compiled: Compile) -> None:
    """Candidates add to the same memory one after the other, and in the end it holds one sum."""
    given = (torch.randn(32, 64), torch.randn(32, 48), torch.randn(48, 64))
    compiled(lambda x, a, b: x.add_(a @ b), *given, options={"autotune": True, "matmul": "auto"})
    check([Effect("add", is_float=True)], [2.0, 1.0, 1.0], [])


def softmax_by(module: Any, compiled: Compile, patch: pytest.MonkeyPatch, size: Sequence[int], **options: Any) -> Run:
    """The run of a softmax, if `module` has what was learned for its target."""
    generated = {("rows", module.METADATA["target"]): module}
    patch.setattr(schedule, "learned", partial(learned, generated=generated))
    return compiled(lambda x: x.softmax(-1), torch.randn(*size), options=options)


@pytest.mark.must_fail_under("learned-not-asked", "learned-bits-not-kept")
@pytest.mark.devices("cpu")
def test_a_learned_recipe(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is taken on every machine, and not if results must be deterministic."""
    run = partial(softmax_by, answering("cpu", "rows"), compiled, monkeypatch, (4096, 24))
    assert run().kernels == run(variant="rows").kernels != run(variant="side_by_side").kernels
    assert run(deterministic=True).kernels == run(variant="side_by_side").kernels


@pytest.mark.must_fail_under("learned-not-asked", "learned-bits-not-kept")
@pytest.mark.devices("cpu")
def test_the_text_of_a_learned_recipe(compiled: Compile, monkeypatch: pytest.MonkeyPatch, golden: Goldens) -> None:
    run = partial(softmax_by, answering("cpu", "rows"), compiled, monkeypatch, (4096, 24))
    golden.check(run(), level="canonical", name="learned")
    golden.check(run(deterministic=True), level="canonical", name="deterministic")


@pytest.mark.must_fail_under("learned-elsewhere")
@pytest.mark.devices("interpret")
def test_a_recipe_that_was_learned_on_another_gpu(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    run = partial(softmax_by, answering("interpret", "looped", RECIPES), compiled, monkeypatch, (16, 3000))
    assert run().kernels != run(variant="looped").kernels


@pytest.mark.must_fail_under("learned-elsewhere")
@pytest.mark.devices("interpret")
def test_the_text_where_a_recipe_was_learned_on_another_gpu(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, golden: Goldens
) -> None:
    run = softmax_by(answering("interpret", "looped", RECIPES), compiled, monkeypatch, (16, 3000))
    golden.check(run, level="canonical")


def answers(patch: pytest.MonkeyPatch, asking: ModuleType, choice: str, options: Sequence[str], option: str) -> None:
    """Makes a stage believe that it compiles for the GPU on which `option` of a choice was learned."""
    generated = {(choice, "interpret"): answering("interpret", option, options, choice)}

    def on_it(name: str, among: Sequence[str], features: Callable[[], Any], env: Env) -> Answer | None:
        there = replace(env, device="a machine", software=(("torch", "1.0"),))
        return learned(name, among, features, there, generated)

    patch.setattr(asking, "learned", on_it)


@pytest.mark.must_fail_under("concat-seam-moved")
@pytest.mark.devices("interpret")
@canonical
def test_slices_that_are_not_aligned(compiled: Compile) -> None:
    compiled(lambda x, y: torch.cat([x * 2, y], 1), torch.randn(8, 5), torch.randn(8, 6))


@pytest.mark.must_fail_under("part-shift-dropped")
@pytest.mark.devices("interpret")
@canonical
def test_a_softmax_in_parts(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "fastest", lambda prices: [*prices][-1])
    compiled(lambda x: torch.softmax(x * 60, 1), torch.randn(2, 20_000), options={"variant": "cut"})


@pytest.mark.must_fail_under("learned-cut-turned")
@pytest.mark.devices("interpret")
def test_a_row_that_was_learned_to_stay_whole(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, split, "cut", ("whole", "cut"), "whole")

    def kernels(**options: str) -> object:
        return compiled(lambda x: x.sum(-1), torch.randn(1, 1 << 18), options=options).kernels

    assert kernels() == kernels(variant="whole") != kernels(variant="cut")


@pytest.mark.must_fail_under("learned-product-to-library")
@pytest.mark.devices("interpret")
def test_a_product_that_was_learned_to_be_ours(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, matmul, "products", ("extern", "native"), "native")
    run = compiled(lambda a, b: torch.relu(a @ b), torch.randn(32, 48), torch.randn(48, 64))
    assert (run.report.kernels, run.report.externs) == (1, 0), "the rule calls the library"


@pytest.mark.must_fail_under("origin-lost", "handle-lost")
@pytest.mark.counts(kernels=2, externs=1)
def test_each_text_says_where_it_comes_from(compiled: Compile, device: str) -> None:
    """All tests compile with the option `verify`, whose rules see it as well."""
    x, w = torch.randn(8, 30, device=device), torch.randn(30, 30, device=device)
    run = compiled(lambda x, w: ((x.exp() + 1) @ w).relu().sum(-1), x, w, options={"matmul": "extern"})
    assert re.findall(r"^ *# (\d+): (\w+)", run.wrappers[0], re.MULTILINE) == [("1", "exp"), ("2", "mm"), ("3", "relu")]
