"""The road from end to end: values, the store, threads, processes, forks, and what goes wrong on the way."""

import errno
import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from minductor.backends import find_backend
from minductor.core.dtypes import F32
from minductor.core.errors import (
    BadOptionValue,
    CorruptEntry,
    FallbackRefused,
    RanInEager,
    StoreUnwritable,
    TargetElsewhere,
    UnknownTarget,
    UnsupportedInput,
    VerifyError,
)
from minductor.driver import PIPELINE, Compiled, Compiler
from minductor.frontend.capture.capture import capture
from minductor.frontend.capture.captured_graph import Graph, GraphInput, NodeRef, TensorMeta
from minductor.ir.program import verify_program
from minductor.options import Options
from minductor.runtime.launch import cuda
from minductor.runtime.store.store import Store
from minductor.target import Env, Target, by_name, of_capability
from minductor.tracing.trace import Record, Trace
from tests.house.rules import ROOT

ENV = Env(Options(), by_name("cpu"))


def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(2 * x + 1), (32,), weight, bias)


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(16, 32), torch.randn(32), torch.randn(32)]


@dataclass
class Watched:
    """A Compiler, the stages that it ran, and what it made."""

    root: Path
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    stages: list[str] = field(default_factory=list)
    seen: list[Compiled] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(self.root)
        trace, observer = Trace((self,)), self.seen.append
        self.compiler = Compiler(store=self.store, trace=trace, observer=observer, environ=self.environ)

    def record(self, record: Record) -> None:
        self.stages.append(record.stage)

    def run(self, fn: Callable[..., Any] = norm, args: list[torch.Tensor] | None = None) -> Any:
        """Past Dynamo and AOTAutograd, which cost seconds: traced, compiled and called."""
        given = inputs() if args is None else args
        gm = make_fx(fn, tracing_mode="fake")(*given)
        return self.compiler.compile_graph(gm, given, role="inference", env=ENV)(list(given))[0]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "store")


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_values_and_gradients_are_eagers(watched: Watched) -> None:
    plain, ours = [[t.requires_grad_() for t in inputs()] for _ in range(2)]
    expected = norm(*plain)
    result = torch.compile(norm, backend=watched.compiler)(*ours)
    torch.testing.assert_close(result, expected)
    slope = torch.linspace(-1, 1, expected.numel()).reshape(expected.shape)
    result.backward(slope)
    expected.backward(slope)
    for mine, theirs in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert [compiled.role for compiled in watched.seen] == ["forward", "backward"]
    assert watched.seen[0].report.kernels == 1 and watched.seen[0].report.externs == 0


def test_every_stage_runs_once_in_order(watched: Watched) -> None:
    watched.run()
    assert watched.stages == ["lower.eliminate_dead_code", *(stage.name for stage in PIPELINE), "codegen", "compile"]


def test_a_graph_pass_that_changes_nothing_is_not_shown(watched: Watched) -> None:
    watched.run(torch.exp, [torch.ones(3)])
    assert watched.stages[0] == "lower"


@pytest.mark.parametrize("name", ["remove_dead_code", "inline", "split_concat", "elide_copies", "merge_axes"])
def test_what_a_row_breaks_is_found_behind_it(name: str, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    (stage,) = [stage for stage in PIPELINE if stage.name == name]
    monkeypatch.setattr(stage.function.partition(":")[0] + f".{name}", lambda p, env: replace(p, nodes=p.nodes * 2))
    graph = capture(make_fx(torch.exp, tracing_mode="fake")(torch.ones(3)), "inference")
    with pytest.raises(VerifyError, match=f"stage '{name}' breaks"):
        watched.compiler.compile_program(graph, Env(Options(verify=True), ENV.target), find_backend("cpu"))


def test_an_unchanged_program_is_verified_once(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, object]] = []
    monkeypatch.setattr(verify_program, "verify", lambda program, stages: seen.append((stages[-1], program)))
    graph = capture(make_fx(torch.exp, tracing_mode="fake")(torch.ones(3)), "inference")
    watched.compiler.compile_program(graph, Env(Options(verify=True), ENV.target), find_backend("cpu"))
    # `fuse`, `split` and `bundle` change nothing here, but rules begin with them
    assert [name for name, _ in seen] == ["lower", "fuse", "split", "schedule", "bundle", "access"]
    assert seen[0][1] is seen[1][1]


def test_second_compiler_finds_it_and_reports_the_same(watched: Watched) -> None:
    first = watched.run()
    again = Watched(watched.root)
    assert torch.equal(again.run(), first)
    (made,), (found,) = watched.seen, again.seen
    assert (made.was_hit, found.was_hit) == (False, True)
    assert (found.key, found.report, found.sources) == (made.key, made.report, made.sources)
    assert again.stages == ["store"]


@pytest.mark.parametrize("change", ["shape", "dtype", "stride", "operator", "options", "device"])
def test_key_tells_apart(watched: Watched, change: str) -> None:
    def key(fn: Callable[..., Any], *args: torch.Tensor, env: Env = ENV) -> str:
        from minductor.frontend.capture.capture import capture

        return watched.compiler.key(capture(make_fx(fn, tracing_mode="fake")(*args), "inference"), env)

    x = torch.ones(4, 4)
    first = key(torch.exp, x)
    assert key(torch.exp, x.clone()) == first
    match change:
        case "shape":
            assert key(torch.exp, torch.ones(4, 5)) != first
        case "dtype":
            assert key(torch.exp, x.double()) != first
        case "stride":
            assert key(torch.exp, x.t()) != first
        case "operator":
            assert key(torch.sin, x) != first
        case "device":
            assert key(torch.exp, x, env=replace(ENV, device="GPU X")) != first
        case _:
            assert key(torch.exp, x, env=Env(Options(precision="eager"), ENV.target)) != first
            assert key(torch.exp, x, env=Env(Options(verify=True), ENV.target)) == first


@pytest.mark.parametrize("name", ["kernels.so", "wrapper.py", "report.json"])
def test_damaged_entry_is_built_again(watched: Watched, name: str) -> None:
    expected = watched.run()
    (file,) = watched.root.rglob(name)
    data = file.read_bytes()
    # Another file under the name: this process has the first one mapped, and to cut that short would end it.
    (file.parent / "half").write_bytes(data[: len(data) // 2])
    (file.parent / "half").replace(file)
    again = Watched(watched.root)
    with pytest.warns(CorruptEntry):
        assert torch.equal(again.run(), expected)
    assert not again.seen[0].was_hit and file.read_bytes() == data


def test_where_the_disk_is_full_another_store_stands_in(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/full")

    monkeypatch.setattr(watched.store, "scratch", full)
    with pytest.warns(StoreUnwritable, match="No space left on device: '/full'"):
        first = watched.run()
    torch.testing.assert_close(watched.run(), first)
    torch.testing.assert_close(first, norm(*inputs()))
    assert [compiled.was_hit for compiled in watched.seen] == [False, True]


def test_two_threads_compile_one_graph_once(watched: Watched) -> None:
    given = inputs()
    gm = make_fx(norm, tracing_mode="fake")(*given)
    barrier, results = threading.Barrier(2, timeout=60), list[Any]()

    def work() -> None:
        barrier.wait()
        call = watched.compiler.compile_graph(gm, given, role="inference", env=ENV)
        results.append(call(list(given))[0])

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 2 and torch.equal(results[0], results[1])
    assert watched.stages.count("lower") == 1


def test_unknown_option_surfaces_through_torch() -> None:
    with pytest.raises(BackendCompilerFailed, match="did you mean 'fuse'"):
        torch.compile(norm, backend=Compiler(), options={"fuze": True})(*inputs())


def test_unknown_target_is_refused(watched: Watched) -> None:
    with pytest.raises(UnknownTarget, match="did you mean 'cpu'"):
        watched.compiler(torch.nn.Identity(), [], options={"target": "cpuu"})


def test_torch_refuses_mode_with_options_and_we_take_both() -> None:
    with pytest.raises(RuntimeError, match="mode or options"):
        torch.compile(norm, backend=Compiler(), mode="default", options={"fuse": True})
    gm = make_fx(lambda *args: (norm(*args),))(*inputs())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = Options.parse("max-autotune-no-cudagraphs", {"fuse": False}, {})
        assert Env(chosen, by_name("gfx942")).supported()[1] == ("autotuning has no effect on gfx942",)
    with pytest.warns(UserWarning, match="CUDA graphs have no effect on cpu"):
        Compiler()(gm, inputs(), mode="reduce-overhead", options={"cudagraphs": True})


def elsewhere(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sin(), torch.ones(3, device="meta") + 1


def test_graph_that_we_do_not_take_runs_in_eager_with_one_warning() -> None:
    x = torch.ones(3)
    with pytest.warns(RanInEager) as seen:
        assert torch.equal(torch.compile(elsewhere, backend=Compiler())(x)[0], x.sin())
    assert len([w for w in seen if w.category is RanInEager]) == 1


@pytest.mark.parametrize("kind", ["layout torch._mkldnn", "zeros that has no memory"])
def test_memory_that_fake_tensors_do_not_show_runs_in_eager(kind: str) -> None:
    x = torch.randn(3).to_mkldnn() if "mkldnn" in kind else torch.ops.aten._efficientzerotensor([3])
    torch._dynamo.reset()
    with pytest.warns(RanInEager, match=kind):
        found = torch.compile(lambda x: x.to_dense() + 1, backend=Compiler())(x)
    assert torch.equal(found, x.to_dense() + 1)


def test_fake_tensors_of_the_program_stay_fake() -> None:
    torch._dynamo.reset()
    with FakeTensorMode(), pytest.warns(RanInEager, match="a fake tensor"):
        found = torch.compile(lambda x: x @ x.t(), backend=Compiler())(torch.empty(2, 3))
    assert isinstance(found, FakeTensor)
    assert found.shape == (2, 2)


def test_graph_that_lowering_does_not_take_runs_in_eager_too(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: Any, env: Env) -> Any:
        raise UnsupportedInput("gelu", "an operator of no name")

    monkeypatch.setattr(importlib.import_module("minductor.frontend.lower.lower"), "lower_nodes", refuse)
    with pytest.warns(RanInEager, match=f"at: {__file__}:.*\n  why: .*an operator of no name"):
        result = torch.compile(norm, backend=watched.compiler)(*inputs())
    torch.testing.assert_close(result, norm(*inputs()))
    assert watched.store.entries() == ()


def test_graph_that_we_do_not_take_is_refused_where_asked() -> None:
    with pytest.raises(BackendCompilerFailed, match="would run in eager") as caught:
        torch.compile(elsewhere, backend=Compiler(), options={"fallback": "error"})(torch.ones(3))
    assert isinstance(caught.value.inner_exception, FallbackRefused)
    with pytest.raises(BackendCompilerFailed, match="geqrf") as caught:
        torch.compile(lambda x: torch.geqrf(x), backend=Compiler(), options={"fallback": "error"})(torch.ones(3, 3))
    assert f"at: {__file__}:" in str(caught.value)


def test_without_a_compiler_the_message_says_how_to_get_one(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "store", environ={"PATH": str(tmp_path)})
    with pytest.raises(BackendCompilerFailed, match="no C\\+\\+ compiler found") as caught:
        torch.compile(norm, backend=watched.compiler)(*inputs())
    assert "tried g++, c++, clang++" in str(caught.value) and "apt-get install g++" in str(caught.value)


def test_fault_in_a_stage_is_named(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Any, env: Env) -> Any:
        raise KeyError("lost")

    monkeypatch.setattr(importlib.import_module("minductor.passes.schedule.schedule"), "schedule", broken)
    with pytest.raises(Exception, match="stage 'schedule' failed: KeyError: 'lost'"):
        watched.run()
    assert watched.store.entries() == ()


def test_kernel_that_does_not_compile_names_its_line_and_the_users(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpp = importlib.import_module("minductor.codegen.cpp.cpp_kernels")
    right = cpp.kernel_text
    monkeypatch.setattr(cpp, "kernel_text", lambda *a, **named: right(*a, **named).replace("return 0;", "return 0 +;"))
    with pytest.raises(BackendCompilerFailed) as caught:
        torch.compile(norm, backend=watched.compiler)(*inputs())
    text = str(caught.value)
    line = norm.__code__.co_firstlineno + 1
    assert "return 0 +;" in text and f"{__file__}:{line}" in text
    kept = Path(text.partition("the source is kept in ")[2].partition(";")[0])
    assert "return 0 +;" in kept.read_text()
    shutil.rmtree(kept.parent)
    assert watched.store.entries() == ()


def test_cache_dir_option_and_reset(tmp_path: Path) -> None:
    compiler = Compiler(environ={**os.environ, "MINDUCTOR_CACHE_DIR": str(tmp_path / "other")})
    chosen: dict[str, Any] = {"cache_dir": str(tmp_path / "named")}
    torch.compile(lambda x: x + 1, backend=compiler, options=chosen)(torch.ones(3))
    assert list((tmp_path / "named").rglob("wrapper.py")) and not (tmp_path / "other").exists()
    compiler.reset()


# --- processes

# Compiles and runs one graph, forks, and says what it loaded. The compiler's runs are in $LOG.
PROGRAM = """
import json, os, signal, sys, torch
from minductor.driver import Compiler
torch.set_num_threads(2)
def norm(x, weight, bias):
    return torch.nn.functional.layer_norm(torch.nn.functional.gelu(2 * x + 1), (512,), weight, bias)
torch.manual_seed(0)
args = torch.randn(512, 512), torch.randn(512), torch.randn(512)
compiler, seen = None, []
compiled = torch.compile(norm, backend=Compiler(observer=seen.append))
result = compiled(*args)
right = torch.allclose(result, norm(*args), atol=1e-5)
signal.alarm(60)
child = os.fork()
if child == 0:
    signal.alarm(20)  # a kernel that waits for threads which the fork did not copy waits for ever
    # by numpy, because eager's own comparison would wait so
    os._exit(0 if compiled(*args).numpy().tobytes() == result.numpy().tobytes() else 3)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ours = sorted(name for name in sys.modules if name.startswith("minductor."))
print(json.dumps({"right": right, "child": status, "hit": seen[0].was_hit, "modules": ours}))
"""
# Two processes that import torch once: the first one forks the second, and ends with its status.
PAIR = f"""
import os, sys, torch._dynamo
other = os.fork()
{PROGRAM}
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], dict[str, Any], list[int]]:
    """Two processes at once on an empty store, then a third; and how often the C++ compiler had run by then."""
    folder = tmp_path_factory.mktemp("processes")
    log, compiler = folder / "log", folder / "counting-g++"
    compiler.write_text(f'#!/bin/sh\necho run >> "{log}"\nexec g++ "$@"\n')
    compiler.chmod(0o700)
    environ = {**os.environ, "CXX": str(compiler), "MINDUCTOR_CACHE_DIR": str(folder / "store")}

    def printed(program: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-W", "ignore", "-c", program]
        done = subprocess.run(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, timeout=120, check=True
        )
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    both = printed(PAIR)
    assert len(both) == 2
    runs = [len(log.read_text().splitlines())]
    (warm,) = printed(PROGRAM)
    return both, warm, [*runs, len(log.read_text().splitlines())]


def test_two_processes_compile_one_graph_once(processes: Any) -> None:
    both, _, runs = processes
    assert all(process["right"] for process in both)
    assert runs[0] == 1


def test_warm_process_loads_neither_passes_nor_codegen_nor_a_compiler(processes: Any) -> None:
    both, warm, runs = processes
    assert warm["right"] and warm["hit"] and runs[1] == runs[0]
    banned = ("minductor.frontend.lower.", "minductor.frontend.rules", "minductor.passes", "minductor.codegen")
    assert not [name for name in warm["modules"] if name.startswith(banned)]
    cold = {name for process in both if not process["hit"] for name in process["modules"]}
    assert "minductor.frontend.lower.lower" in cold and "minductor.passes.schedule.schedule" in cold, (
        "the names are the real ones"
    )


def test_forked_child_runs_kernels(processes: Any) -> None:
    both, warm, _ = processes
    assert [process["child"] for process in (*both, warm)] == [0, 0, 0]


def placed(device: str, target: str = "", *, is_dry: bool = False) -> tuple[str, str, bool]:
    """What a graph on a device is compiled for: its device then, the target, and whether it only is compiled."""
    meta = TensorMeta(F32, (2,), (1,), 0, device)
    graph = Graph("inference", (GraphInput("x", meta),), (), (), (NodeRef("x"),))
    env = Env(Options(target=target), by_name(target or "cpu"))
    made, chosen, dry = Compiler(is_dry=is_dry)._place(graph, env)
    return getattr(made.inputs[0].meta, "device", ""), chosen.target.name, dry


def test_a_graph_is_for_the_device_of_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert placed("cpu") == ("cpu", "cpu", False)
    assert placed("cpu", "interpret") == ("cpu", "interpret", False)
    assert placed("cpu", "sm_80", is_dry=True) == ("cuda:0", "sm_80", True)
    assert placed("cpu", "interpret", is_dry=True) == ("cpu", "interpret", True)
    with pytest.raises(TargetElsewhere, match="graphs compile for target sm_80 here, but do not run here"):
        placed("cpu", "sm_80")
    # a GPU that is there as metadata only
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert placed("cuda:1") == ("cuda:1", "sm_90", True)
    assert placed("cuda:1", "sm_80") == ("cuda:1", "sm_80", True)
    asked: list[str] = []

    def target_of(device: str) -> Target | None:
        asked.append(device)
        return None if device == "cuda:7" else of_capability(8, 9)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "target_of", target_of)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device}")
    assert placed("cuda:1") == ("cuda:1", "sm_89", False) and asked == ["cuda:1"]
    assert placed("cuda:1", "sm_80") == ("cuda:1", "sm_80", False)
    assert placed("cpu") == ("cpu", "cpu", False)
    with pytest.raises(TargetElsewhere, match="graphs compile for target sm_90 here"):
        placed("cuda:1", "sm_90")
    with pytest.raises(BadOptionValue, match="one that works on cuda:0"):
        placed("cuda:0", "cpu")
    with pytest.raises(UnsupportedInput, match="on cuda:7"):
        placed("cuda:7")


def test_a_launch_on_a_gpu_knows_its_name_and_the_software(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learned choices are for one of them; what only is compiled, and what runs on a CPU, is for none."""
    graph = Graph("inference", (GraphInput("x", TensorMeta(F32, (2,), (1,), 0, "cuda:1")),), (), (), (NodeRef("x"),))
    env = Env(Options(), by_name("cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Compiler()._place(graph, env)[1].device == ""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "target_of", lambda device: of_capability(9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device}")
    placed_env = Compiler()._place(graph, env)[1]
    assert placed_env.device == "GPU cuda:1"
    assert dict(placed_env.software)["torch"] == torch.__version__.partition("+")[0]


def test_a_triton_without_block_pointers_spells_them_by_offsets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("minductor.runtime.build.probe.has_block_pointers", lambda version: False)
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append, is_dry=True)
    options = {"target": "sm_90", "block_access": "pointer", "cache_dir": str(tmp_path)}
    with pytest.warns(UserWarning, match="this Triton has no block pointers"):
        torch.compile(torch.neg, backend=lambda gm, i: compiler(gm, i, options=options))(torch.ones(64))
    assert (seen[0].report.block_accesses, seen[0].report.block_pointers) == (2, 0)
