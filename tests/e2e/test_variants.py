"""Variants of kernels: forced, measured by a clock of the test, picked by sizes, and recorded; in all wrappers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.driver import Compiled, Compiler
from minductor.ir.artefact.launch_metadata import LAUNCHES, read_launches
from minductor.ir.program.nodes import Kernel
from minductor.ir.program.variants import kernels_with_variants, select_variants
from minductor.options import VARIANTS, Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.inline.inline import inline
from minductor.passes.schedule.schedule import schedule
from minductor.runtime.launch.by_size import MOST_KNOWN, by_size
from minductor.target import Env, by_name
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle.compiled import Compile
from tests.house.rules import ROOT
from tests.passes.test_recipes import softmax

ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x * 2, -1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "cumsum": lambda x: x.cumsum(-1),
    "sum": lambda x: x.exp().sum(-1),
    "columns": lambda x: x.exp().sum(0),
}
RECIPES = {
    "cpu": ("rows", "rows_in_parts", "two_steps"),
    "interpret": ("persistent", "looped", "online", "cut", "whole"),
}

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiler(folder: Path, seen: list[Compiled], clock: Callable[[Callable[[], object]], float] | None = None) -> Any:
    environ = {**os.environ, "MINDUCTOR_CACHE_DIR": str(folder)}
    return Compiler(environ=environ, observer=seen.append, tuning_clock=clock)


def check(run: Callable[..., Tensor], fn: Callable[..., Tensor], *args: Tensor) -> None:
    got, exact = run(*args), fn(*(x.double() for x in args))
    bound = 4 * (fn(*args).double() - exact).abs().max() + 1e-5 * exact.abs().max()
    assert got.shape == exact.shape and (got.double() - exact).abs().max() <= bound


# --- forced -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("softmax", (2, 1024)),
        ("layer_norm", (40, 128)),
        ("softmax", (3, 5000)),
        pytest.param("layer_norm", (2, 1024), marks=pytest.mark.long),
        pytest.param("softmax", (40, 128), marks=pytest.mark.long),
        pytest.param("layer_norm", (3, 5000), marks=pytest.mark.long),
    ],
)
@pytest.mark.devices("cpu", "interpret", "cuda")
def test_each_variant_is_eager(compiled: Compile, device: Device, name: str, size: tuple[int, int]) -> None:
    for variant in RECIPES["cpu" if device.id == "cpu" else "interpret"]:
        torch._dynamo.reset()
        compiled(ROWS[name], torch.randn(size), options={"variant": variant})


@pytest.mark.parametrize("length", [40000, 40001])
@pytest.mark.devices("cpu", "interpret", "cuda")
def test_a_scan_of_one_row_is_cut_or_whole(compiled: Compile, length: int) -> None:
    for variant in ("whole", "cut"):
        torch._dynamo.reset()
        run = compiled(ROWS["cumsum"], torch.randn(length), options={"variant": variant})
        assert (len(run.report.kernel_names) > 1) == (variant == "cut")


def test_a_mapping_forces_kernels_by_name(tmp_path: Path) -> None:
    seen: list[Compiled] = []

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x, -1), torch.softmax(y * 2, -1)

    x, y = torch.randn(64, 40000), torch.randn(32, 40000)
    torch.compile(fn, backend=compiler(tmp_path, seen))(x, y)
    rows = [(name, {*options} - {taken}) for name, taken, _, options, _ in seen[0].report.variants]
    second, others = rows[-1]
    asked = min(others)
    torch._dynamo.reset()
    options = {"variant": {second: asked, "none": "rows"}}
    got = torch.compile(fn, backend=compiler(tmp_path, seen), options=options)(x, y)
    torch.testing.assert_close(got, fn(x, y))
    taken = {kernel: taken for kernel, taken, by, _, _ in seen[1].report.variants if by == "option"}
    assert len(rows) > 1 and taken == {second: asked}


def test_what_a_kernel_does_not_have_is_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    explained = minductor.explain(lambda x: x.sin() + 1, torch.randn(8), options={"variant": "looped"})
    assert "the variant looped is not legal here; legal are: elements" in str(explained)
    named = minductor.explain(lambda x: x.cos() + 1, torch.randn(8), options={"variant": {"k77": "elements"}})
    assert "the option variant names this kernel, and the kernels are: " in str(named)
    static = minductor.explain(lambda x: x.tan() + 1, torch.randn(8), options={"size_hints": (64, 128)})
    assert "size_hints have no effect" in str(static)
    both = {"size_hints": (64, 128), "variant": {"k0": "elements"}}
    assert "size_hints have no effect" in str(minductor.explain(lambda x: x.exp(), torch.randn(8), options=both))
    x = torch.randn(40, 80)
    torch._dynamo.mark_dynamic(x, 0)
    unknown = minductor.explain(lambda x: x.exp().sum(0), x, options={"size_hints": {"rows": (64, 128)}})
    assert "rows: the option size_hints names this size, and the sizes are: s" in str(unknown)


# --- measured -----------------------------------------------------------------------------------------------------


class Clock:
    """Prefers the candidates in the order in which they are first timed, or the last of them."""

    def __init__(self, *, prefers_last: bool) -> None:
        self.prefers_last, self.calls = prefers_last, 0

    def __call__(self, run: Callable[[], object]) -> float:
        run()
        self.calls += 1
        return 1 / self.calls if self.prefers_last else float(self.calls)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "sum", "columns"])
@pytest.mark.parametrize("prefers_last", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("target", ["", "interpret"])
def test_a_clock_decides_and_the_next_process_remembers(
    tmp_path: Path, name: str, target: str, *, prefers_last: bool
) -> None:
    clock, seen, fn = Clock(prefers_last=prefers_last), list[Compiled](), ROWS[name]
    options = {"autotune": True, "target": target, "verify": True}
    x = torch.randn(8, 40000) if not target else torch.randn(8, 3000)
    run = torch.compile(fn, backend=compiler(tmp_path, seen, clock), options=options)
    check(run, fn, x)
    check(run, fn, x)
    measured = clock.calls
    choices = {taken for _, _, by, options, _ in seen[0].report.variants if by == "measure" for taken in options}
    assert (measured > 0) == (len(choices) > 1) == ("choose(" in seen[0].sources["wrapper.py"])
    torch._dynamo.reset()
    again = torch.compile(fn, backend=compiler(tmp_path, seen, clock), options=options)
    check(again, fn, x)
    assert clock.calls == measured and seen[1].was_hit


SHAPES = [("softmax", (2, 1024)), ("layer_norm", (40, 128))]
LONG_SHAPES = [("layer_norm", (2, 1024)), ("softmax", (40, 128))]
LONG_SHAPES += [(name, (64, 131072)) for name in ("softmax", "layer_norm")]
SHAPES += [pytest.param(*row, marks=pytest.mark.long) for row in LONG_SHAPES]
SHAPES += [("cumsum", (1 << 20,))]


@pytest.mark.parametrize(("name", "size"), SHAPES, ids=str)
def test_short_and_long_rows_are_right_in_each_variant_and_by_either_clock(
    tmp_path: Path, name: str, size: tuple[int, ...]
) -> None:
    fn, x, taken = ROWS[name], torch.randn(size), list[str]()
    for prefers_last in (False, True):
        torch._dynamo.reset()
        seen: list[Compiled] = []
        clock = Clock(prefers_last=prefers_last)
        # in C++ the choice is made before the text is written, so the text holds the winner only
        options = {"autotune": True, "wrapper": "cpp", "verify": True}
        made = compiler(tmp_path / str(prefers_last), seen, clock)
        check(torch.compile(fn, backend=made, options=options), fn, x)
        rows = [row for row in seen[0].report.variants if row[2] == "measure"]
        assert (clock.calls > 0) == bool(rows)
        taken += [won for _, won, _, _, _ in rows[-1:]]
        legal = {option for _, _, _, options, _ in seen[0].report.variants for option in options}
    assert len({*taken}) == len(taken), "each clock has a winner of its own"
    assert bool(taken) == (size[-1] > 1024), "where one variant is far the fastest by cost, none is measured"
    assert (len(legal & {*VARIANTS}) > 1) == (size[-1] > 1024), "on a CPU, few short rows have one recipe"
    for variant in legal & {*VARIANTS}:
        torch._dynamo.reset()
        forced = torch.compile(fn, backend=compiler(tmp_path, []), options={"variant": variant})
        check(forced, fn, x)


SECOND_PROCESS = """
import sys, torch
from minductor.driver import Compiler

def clock(run):
    raise AssertionError("it is measured again")

def fn(x):
    return torch.softmax(x * 2, -1)

rows, columns, target = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
seen = []
made = Compiler(observer=seen.append, tuning_clock=clock)
x = torch.randn(rows, columns)
run = torch.compile(fn, backend=made, options={"autotune": True, "events": True, "target": target})
torch.testing.assert_close(run(x), fn(x))
assert seen[0].was_hit and made.artefacts.measured == 0
print([what for kind, what in seen[0].events if kind == "launch"])
"""


@pytest.mark.long
@pytest.mark.parametrize(("target", "size"), [("cpu", (64, 131072)), ("interpret", (2, 5000))])
def test_a_second_process_remembers_the_winner(tmp_path: Path, target: str, size: tuple[int, int]) -> None:
    """Of either clock, so that it is no default."""
    launched: list[str] = []
    for prefers_last in (False, True):
        torch._dynamo.reset()
        seen, folder, x = list[Compiled](), tmp_path / str(prefers_last), torch.randn(size)
        options = {"autotune": True, "events": True, "target": target}
        made = compiler(folder, seen, Clock(prefers_last=prefers_last))
        run = torch.compile(ROWS["softmax"], backend=made, options=options)
        run(x)
        seen[0].events.clear()
        check(run, ROWS["softmax"], x)
        here = str([what for kind, what in seen[0].events if kind == "launch"])
        environ = {**os.environ, "MINDUCTOR_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SECOND_PROCESS, *map(str, size), target]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
        assert (ran.returncode, ran.stdout.strip()) == (0, here), ran.stderr
        launched.append(here)
    assert launched[0] != launched[1]


def test_a_long_softmax_is_measured_on_both_targets(tmp_path: Path) -> None:
    """The tests above would pass if no kernel had a choice."""
    for target, size in (("", (8, 40000)), ("interpret", (8, 3000))):
        seen: list[Compiled] = []
        options = {"autotune": True, "target": target}
        torch._dynamo.reset()
        torch.compile(ROWS["softmax"], backend=compiler(tmp_path, seen, Clock(prefers_last=False)), options=options)(
            torch.randn(size)
        )
        assert any(by == "measure" and len(options) > 1 for _, _, by, options, _ in seen[0].report.variants), target


@pytest.mark.parametrize("name", ["few long columns", "columns", "a row in parts", "a product", "short rows", "cumsum"])
def test_what_is_compiled_without_tuning_is_the_default(name: str) -> None:
    """A tuned kernel loses to no other than itself: prices of recipes would leave `sum` of 1024 columns out, whole."""
    fn, shape = {
        "few long columns": (lambda x: x.sum(0), (1024, 1024)),
        "columns": (lambda x: x.var(0), (1024, 1024)),
        "a row in parts": (lambda x: x.exp().sum(), (2048, 2048)),
        "a product": (lambda x: torch.relu(x @ x), (512, 512)),
        "short rows": (lambda x: x.softmax(-1), (2048, 128)),
        "cumsum": (lambda x: x.cumsum(0), (1 << 20,)),
    }[name]
    seen: list[list[Any]] = []
    for autotune in (False, True):
        explained = minductor.explain(
            lambda x: fn(x), torch.randn(shape), options={"target": "sm_90", "autotune": autotune}
        )
        scheduled = select_variants(dict(explained.roads[0].values)["schedule"], {})
        seen.append([node.schedule if isinstance(node, Kernel) else node.op for node in scheduled.nodes])
    assert seen[0] == seen[1]


def test_results_that_must_not_change_have_no_measured_variants(tmp_path: Path) -> None:
    seen: list[Compiled] = []
    options = {"autotune": True, "deterministic": True}
    x, clock = torch.randn(8, 40000), Clock(prefers_last=True)
    check(torch.compile(ROWS["softmax"], backend=compiler(tmp_path, seen, clock), options=options), ROWS["softmax"], x)
    assert clock.calls == 0 and not seen[0].report.variants


@pytest.mark.parametrize("wrapper", ["cpp", "fx"])
def test_other_wrappers_are_written_when_choices_are_made(tmp_path: Path, wrapper: str) -> None:
    clock, seen = Clock(prefers_last=True), list[Compiled]()
    options = {"autotune": True, "wrapper": wrapper, "verify": True}
    x, state = torch.randn(8, 40000), torch.random.get_rng_state()
    run = torch.compile(ROWS["softmax"], backend=compiler(tmp_path, seen, clock), options=options)
    check(run, ROWS["softmax"], x)
    assert torch.equal(state, torch.random.get_rng_state())
    ((_, taken, _, options_of, _),) = [row for row in seen[0].report.variants if row[0] and row[2] == "measure"][-1:]
    assert clock.calls > 0 and taken == options_of[-1] and seen[0].report.kernels == 1
    calls = clock.calls
    check(run, ROWS["softmax"], x)
    assert clock.calls == calls


def test_operands_may_be_one_tensor_and_are_written_in_place(tmp_path: Path) -> None:
    seen: list[Compiled] = []

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return torch.softmax((x * y + y).sin(), -1)

    options, x = {"autotune": True, "verify": True, "verify_memory": "assert"}, torch.randn(8, 40000)
    run = torch.compile(fn, backend=compiler(tmp_path, seen, Clock(prefers_last=True)), options=options)
    check(run, fn, x, x)
    check(run, fn, x, x)


def test_equal_kernels_share_their_variants(tmp_path: Path) -> None:
    seen: list[Compiled] = []

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x.cos(), -1), torch.softmax(y.cos(), -1)

    x, y = torch.randn(8, 40000), torch.randn(8, 40000)
    run = torch.compile(fn, backend=compiler(tmp_path, seen), options={"autotune": True, "verify": True})
    torch.testing.assert_close(run(x, y), fn(x, y))
    wrapper = seen[0].sources["wrapper.py"]
    assert wrapper.count("= choose(") == 1 and wrapper.count("def fused_") == 2


def test_a_call_holds_the_memory_of_one_variant(tmp_path: Path) -> None:
    """The pieces of a cut row need buffers that the whole one does not."""
    reports = {}
    for variant in ("whole", "cut", ""):
        seen: list[Compiled] = []
        torch._dynamo.reset()
        options = {"autotune": not variant, "variant": variant, "target": "sm_90", "verify": True}
        made = Compiler(environ={**os.environ, "MINDUCTOR_CACHE_DIR": str(tmp_path)}, observer=seen.append, is_dry=True)
        torch.compile(ROWS["softmax"], backend=made, options=options)(torch.randn(256, 1 << 17))
        reports[variant] = seen[0].report
    # in a plan of their own, the pieces may take over each other's memory
    assert reports["whole"].peak < reports["cut"].peak <= reports[""].peak < reports["cut"].peak + (1 << 16)
    assert "cut" in {option for _, _, _, options, _ in reports[""].variants for option in options}


# --- by size ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*C\\+\\+ wrapper")
@pytest.mark.parametrize(
    ("name", "wrapper"),
    [
        *(("sum", "python"), ("columns", "cpp"), ("sum", "fx")),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (("columns", "python"), ("sum", "cpp"), ("columns", "fx"))
        ),
    ],
)
def test_sizes_pick_a_variant_without_a_clock(tmp_path: Path, wrapper: str, name: str) -> None:
    clock, seen = Clock(prefers_last=True), list[Compiled]()
    options = {"size_hints": (64, 1024, 16384), "wrapper": wrapper, "verify": True, "autotune": True}

    def fn(x: Tensor) -> Tensor:
        return x.exp().sum() if name == "sum" else x.exp().sum(0)

    run = torch.compile(fn, backend=compiler(tmp_path, seen, clock), options=options, dynamic=True)
    for size in ((70, 60), (0, 8), (2, 3000), (3000, 2), (900, 1100)):
        check(run, fn, torch.randn(size))
    assert clock.calls == 0
    text = "".join(found.sources.get(f"wrapper.{s}", "") for found in seen for s in ("py", "cpp", "json"))
    assert {"python": "by_size((", "cpp": "md_nearest(", "fx": "call_nearest"}[wrapper] in text


@pytest.mark.devices("interpret", "cuda")
def test_cut_rows_and_products_are_picked_by_size(compiled: Compile, device: Device) -> None:
    options = {"size_hints": {"s0": (16, 4096)}, "matmul": "native"}
    x, a, b = (torch.randn(size, device=str(device)) for size in ((1000,), (40, 32), (32, 48)))
    compiled(lambda x: x.exp().sum(), x, dynamic=True, options=options)
    compiled(lambda a, b: a @ b, a, b, dynamic=True, options=options)


HINTED = [((64, 256, 4096), 2), ((16, 256, 4096), 3)]


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@pytest.mark.parametrize(("hints", "distinct"), HINTED)
def test_hints_whose_products_are_equal_share_a_variant(tmp_path: Path, hints: tuple[int, ...], distinct: int) -> None:
    """The tile of 64 rows is that of 256. Others have other numbers of programs; the note shows which hints share."""
    options = {"size_hints": hints, "matmul": "native", "target": "sm_90"}
    seen: list[Compiled] = []
    made = Compiler(environ={**os.environ, "MINDUCTOR_CACHE_DIR": str(tmp_path)}, observer=seen.append, is_dry=True)
    torch.compile(product, backend=made, dynamic=True, options=options)(torch.randn(100, 80), torch.randn(80, 70))
    (row,) = [row for row in seen[0].report.variants if row[2] == "size" and "int32" not in row[3]]
    _, taken, _, variants, figures = row
    assert "by_size((" in seen[0].sources["wrapper.py"]
    launches = read_launches(seen[0].sources[LAUNCHES])
    assert len(variants) == len(launches) == len({str(launch.blocks) for launch in launches}) == distinct
    shared = re.findall(r"at \(([^)]*)\) (\S+)", figures)
    assert [at.partition(",")[0] for at, _ in shared] == list(map(str, hints)), "each hint is shown with its variant"
    assert list(dict.fromkeys(variant for _, variant in shared)) == list(variants) and taken == variants[0]


@pytest.mark.devices("interpret", "cuda")
def test_a_product_is_right_with_the_tile_of_each_hint(compiled: Compile, device: Device) -> None:
    """Sizes near each hint, beside and between its tiles."""
    options = {"size_hints": {"s0": (16, 128, 1024)}, "matmul": "native"}
    b = torch.randn(24, 40, device=str(device))
    run = compiled(product, torch.randn(100, 24, device=str(device)), b, dynamic=True, options=options)
    for rows in (13, 17, 129, 900):
        run.again(torch.randn(rows, 24, device=str(device)), b)
    launched = [what for graph in run.graphs for kind, what in graph.events if kind == "launch"]
    near_128, near_16, again_16, again_128, near_1024 = launched
    assert (near_16, near_128) == (again_16, again_128)
    tiles = 3 if device.id == "interpret" else 2  # on an H200 the two smaller hints share one
    assert len({near_16, near_128, near_1024}) == tiles


def test_the_variant_of_the_nearest_point_is_called() -> None:
    called: list[str] = []
    run = by_size([lambda *_: called.append("few"), lambda *_: called.append("many")], [(64,), (4096,)], (1,))
    for size in (100, 2000, 0, 512, 513):
        run("x", size)
    assert called == ["few", "many", "few", "few", "many"]
    for size in range(2 * MOST_KNOWN):
        run("x", size)
    known = next(cell.cell_contents for cell in run.__closure__ if isinstance(cell.cell_contents, dict))
    assert 0 < len(known) <= MOST_KNOWN


# --- targets without a clock, and without variants -----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*autotuning has no effect on gfx942")
@pytest.mark.parametrize("target", ["gfx942", pytest.param("sm_80", marks=pytest.mark.long)])
def test_a_gpu_that_nobody_measures_has_variants(target: str) -> None:
    """Forcing and sizes need no clock."""
    x = torch.randn(64, 3000)
    for variant in ("looped", "persistent"):
        options = {"variant": variant, "autotune": True}
        forced = minductor.compile_only(ROWS["softmax"], x, target=target, options=options)
        assert [(taken, by) for g in forced.graphs for _, taken, by, _, _ in g.report.variants] == [(variant, "option")]
        assert len(forced.kernels) == 1 and len(forced.kernels[0].binary) > 0
    torch._dynamo.mark_dynamic(x, 1)
    by_size = minductor.compile_only(ROWS["softmax"], x, target=target, options={"size_hints": (16, 65536)})
    rows = [row for graph in by_size.graphs for row in graph.report.variants if row[2] == "size"]
    assert {("looped", "cut")} <= {legal for _, _, _, legal, _ in rows} and len(by_size.kernels) > 1


@pytest.mark.parametrize(("target", "rows", "length"), [("cpu", 8, 40000), ("sm_90", 64, 3000)])
@pytest.mark.parametrize("has_variants", [True, False])
def test_a_target_without_variants_has_no_choice_to_measure(
    target: str, rows: int, length: int, *, has_variants: bool
) -> None:
    env = Env(Options(autotune=True), replace(by_name(target), has_variants=has_variants))
    program = schedule(fuse(inline(softmax(rows, length), env), env), env)
    assert any(kernels_with_variants(program.nodes)) == has_variants
    assert all(isinstance(node, Kernel) and node.schedule for node in program.nodes)


# --- packages -----------------------------------------------------------------------------------------------------


class Module(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x * 2, -1).sum(0)


def test_a_package_holds_the_chosen_kernel_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    x, path = torch.randn(8, 40000), tmp_path / "chosen.pt2"
    manifest = minductor.export(Module(), (x,), path=path, options={"autotune": True})
    assert manifest.choices and all(name.endswith(" variant") for name, _ in manifest.choices)
    with ZipFile(path) as archive:
        text = archive.read("kernels.cpp").decode()
    assert text.count('extern "C" int64_t fused_') + text.count('extern "C" int64_t sum_') == 2
    torch.testing.assert_close(minductor.load(path)(x), Module()(x))


def test_a_package_picks_by_size(tmp_path: Path) -> None:
    x, path = torch.randn(64, 1310), tmp_path / "sized.pt2"
    rows = torch.export.Dim("rows", min=2, max=9000)
    minductor.export(
        Module(), (x,), path=path, options={"size_hints": (64, 1024, 16384)}, dynamic_shapes={"x": {0: rows}}
    )
    with ZipFile(path) as archive:
        assert "md_nearest({" in archive.read("wrapper.cpp").decode()
    for count in (2, 100, 8000):
        x = torch.randn(count, 1310)
        torch.testing.assert_close(minductor.load(path)(x), Module()(x))
