"""Profilers: launches and operators of a call are ranges with names, handles and modules; without one, none is made."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from minductor.driver import Compiled, Compiler
from minductor.frontend.capture.capture import sources
from minductor.runtime.launch import profiler_ranges
from minductor.runtime.store.store import Store


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Mlp(), Mlp()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(F.layer_norm(x, (8,)))
        return x


class Profiled:
    """A compiled function, and the ranges of minductor's in one call: the name of each, with the graph's it lies in."""

    def __init__(self, fn: Any, folder: Path, **options: Any) -> None:
        torch._dynamo.reset()
        self.seen: list[Compiled] = []
        self.compiler = Compiler(store=Store(folder), observer=self.seen.append)
        self.fn = torch.compile(
            fn, backend=partial(self.compiler, options=options), dynamic=options.pop("dynamic", None)
        )

    def step(self, *args: Any) -> Any:
        made = self.fn(*args)
        if isinstance(made, Tensor) and made.requires_grad:
            made.sum().backward()
        return made

    def profiled(self, *args: Any) -> profile:
        """A profiler, after a call that compiles."""
        self.step(*args)
        return profile(activities=[ProfilerActivity.CPU])

    def ranges(self, *args: Any) -> list[tuple[str, str]]:
        with self.profiled(*args) as profiler:
            self.step(*args)
        found: list[tuple[str, str]] = []
        for event in profiler.events() or ():
            if not re.match(r"\S+:\d+( |$)", event.name) or event.name.startswith("Torch-Compiled"):
                continue
            outer = event.cpu_parent
            while outer is not None and not outer.name.startswith("minductor "):
                outer = outer.cpu_parent
            if outer is not None:
                found.append((event.name, outer.name.split()[1]))
        return found

    def keys(self) -> list[str]:
        """The keys of the calls in provenance.json, of all graphs."""
        return [call.key for seen in self.seen for call in seen.report.provenance().calls]

    def handles(self) -> list[tuple[str, str]]:
        """Each handle of the wrappers' texts with its graph."""
        texts = ((seen.role, seen.sources["wrapper.py"]) for seen in self.seen)
        return [(n, role) for role, text in texts for n in re.findall(r"^ *# (\d+)(?:: .*)?$", text, re.MULTILINE)]


def test_each_launch_and_operator_of_a_training_step_is_a_range(tmp_path: Path) -> None:
    model = Profiled(Blocks(), tmp_path)
    found = model.ranges(torch.randn(4, 8, requires_grad=True))
    assert [(re.findall(r":(\d+)", name)[0], graph) for name, graph in found] == model.handles()
    assert [name.partition(" ")[0] for name, _ in found] == model.keys()
    names = [name for name, graph in found if graph == "forward"]
    assert [re.sub(r":\d+", "", name) for name in names if "gelu" in name] == [f"gelu_1 layers.{n}" for n in (0, 1)]
    assert any(re.fullmatch(r"aten\.addmm\.out:\d+ layers\.1\.down", name) for name in names)
    assert any(re.fullmatch(r"fused_.*gelu_backward\S*:\d+ layers\.0.*", name) for name, _ in found)


@pytest.mark.parametrize("option", [{"nan_asserts": True}, {"verify_memory": "assert"}, {"target": "interpret"}])
def test_other_ways_to_print_a_launch(option: dict[str, Any], tmp_path: Path) -> None:
    model = Profiled(Blocks(), tmp_path, **option)
    found = model.ranges(torch.randn(4, 8, requires_grad=True))
    assert [(re.findall(r":(\d+)", name)[0], graph) for name, graph in found] == model.handles()
    assert [name.partition(" ")[0] for name, _ in found] == model.keys()
    assert any(" layers.1" in name and "gelu" in name for name, _ in found)


def test_a_wrapper_without_comments_has_the_names_of_its_kernels(tmp_path: Path) -> None:
    model = Profiled(Blocks(), tmp_path, provenance=0)
    x = torch.randn(4, 8)
    with torch.no_grad(), model.profiled(x) as profiler:
        model.step(x)
    names = [event.name for event in profiler.events() or ()]
    assert names.count("gelu_1") == 2 and not any(":1" in name for name in names)


def test_calls_of_every_kind_have_the_keys_of_provenance(tmp_path: Path) -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        return (
            torch.sort(x @ y, dim=0),
            torch.linalg.qr(x)[0].sin(),
            x.sum().item(),
            torch.ops.aten._foreach_exp([x, y]),
        )

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        model = Profiled(fn, tmp_path)
        found = model.ranges(torch.eye(4), torch.eye(4))
    assert [name.partition(" ")[0] for name, _ in found] == model.keys() and len(found) >= 5


def test_regions_have_ranges(tmp_path: Path) -> None:
    blocks = nn.ModuleList([Mlp(), Mlp()])

    def pick(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: blocks[0](x), lambda x: blocks[1](x).sin(), (x,))

    with torch.no_grad():
        found = [name for name, _ in Profiled(pick, tmp_path).ranges(torch.ones(3, 8))]
    assert any(re.fullmatch(r"\S*gelu\S*:\d+ blocks\.0", name) for name in found)
    assert not any("blocks.1" in name for name in found), "the other branch did not run"


def test_choices_are_not_made_again(tmp_path: Path) -> None:
    """A kernel whose variants were measured is a range, and nothing is measured for the profiler."""
    model = Profiled(lambda x: x.softmax(-1).sum(0), tmp_path, autotune=True)
    x = torch.randn(64, 1000)
    model.step(x)
    model.step(x)
    before = model.compiler.artefacts.measured
    assert model.ranges(x) and model.compiler.artefacts.measured == before


def test_variants_that_sizes_pick_have_ranges(tmp_path: Path) -> None:
    model = Profiled(lambda x: x.exp().sum(), tmp_path, dynamic=True, size_hints=(64, 1024, 16384))
    found = model.ranges(torch.randn(70, 60))
    assert "by_size((" in model.seen[0].sources["wrapper.py"]
    outer, *inner = [name.partition(" ")[0] for name, _ in found]
    assert inner and {outer, *inner} <= {*model.keys()}
    assert outer in [c.key for c in model.seen[0].report.provenance().calls if c.kind == "dispatch"]


def test_a_graph_of_fx(tmp_path: Path) -> None:
    with torch.no_grad():
        found = Profiled(Blocks(), tmp_path, wrapper="fx").ranges(torch.randn(4, 8))
    names = [re.sub(r":\d+", "", name) for name, _ in found]
    assert {"gelu_1 layers.0", "gelu_1 layers.1", "aten.addmm.out layers.0.up"} <= {*names}


@pytest.mark.parametrize("wrapper", ["python", "cpp", "fx"])
def test_a_call_is_a_range_with_the_name_of_its_graph(wrapper: str, tmp_path: Path) -> None:
    model = Profiled(lambda x: x.sin(), tmp_path, wrapper=wrapper)
    model.step(torch.ones(3))
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        model.step(torch.ones(3))
    assert [e.name.split()[1] for e in profiler.events() or () if e.name.startswith("minductor ")] == ["inference"]


def test_the_other_instance_is_made_under_a_profiler_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    instance: Callable[..., Any] = profiler_ranges.instance_with_ranges
    monkeypatch.setattr(profiler_ranges, "instance_with_ranges", lambda *args: made.append("made") or instance(*args))
    model = Profiled(lambda x: x.sin(), tmp_path)
    model.step(torch.ones(3))
    assert made == []
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU]):
            model.step(torch.ones(3))
    assert made == ["made"]


def test_another_profiler_sees_the_same_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """emit_itt and emit_nvtx get their ranges from record_function."""
    names: list[str] = []
    record: Any = profiler_ranges.record_function
    monkeypatch.setattr(profiler_ranges, "record_function", lambda name: names.append(name) or record(name))
    model = Profiled(lambda x: x.sin(), tmp_path)
    model.step(torch.ones(3))
    with torch.autograd.profiler.emit_itt():
        model.step(torch.ones(3))
    assert [name.partition(" ")[0] for name in names] == ["minductor", "sin_0:1"]


def test_errors_are_the_same_under_a_profiler(tmp_path: Path) -> None:
    def fn(x: Tensor, at: Tensor) -> Tensor:
        return x[at] + 1

    model = Profiled(fn, tmp_path)
    wrong = torch.tensor([1, 7])
    with pytest.raises(IndexError) as plain:
        model.fn(torch.ones(3), wrong)
    with profile(activities=[ProfilerActivity.CPU]), pytest.raises(IndexError) as profiled:
        model.fn(torch.ones(3), wrong)
    assert str(profiled.value) == str(plain.value) and "test_profiler_ranges.py" in str(plain.value)
    places = [[(e.path, e.lineno) for e in info.traceback if "<minductor" in str(e.path)] for info in (plain, profiled)]
    assert places[0][-1] == places[1][-1]


def test_the_names_of_modules_keep_no_graph() -> None:
    graph = fx.symbolic_trace(Blocks())
    module_of = sources(graph).modules()
    kept = weakref.ref(graph)
    del graph
    gc.collect()
    assert kept() is None and module_of("gelu_1") == "layers.1"
