"""What a trace leaves in its folder runs by itself, in another process."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import minductor
from minductor.driver import Compiler
from minductor.runtime.store.store import Store
from tests.house.rules import ROOT


def norm(x: Tensor) -> Tensor:
    return (x * 2 + 1).softmax(-1)


def sorts(x: Tensor) -> Any:
    return torch.sort(x.exp(), dim=0)


def holds(x: Tensor) -> Tensor:
    return x.exp() * torch.tensor([3.0, 5.0, 7.0])


def traced(folder: Path, fn: Callable[..., Any], *args: Any, dynamic: bool = False, **options: Any) -> Path:
    """The folder of the graph's files."""
    torch._dynamo.reset()
    backend = partial(Compiler(store=Store(folder / "store")), options={"trace": f"dir:{folder}/trace", **options})
    torch.compile(fn, backend=backend, dynamic=dynamic)(*args)
    return folder / "trace" / "inference"


def started(file: Path) -> tuple[int, str, str]:
    """A run of the file in a process of its own: its code, and what it writes."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(file)]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
    return ran.returncode, ran.stdout, ran.stderr


def gives(said: str) -> list[str]:
    """What a run says that the graph gives."""
    head, *results, end = said.splitlines()
    assert re.fullmatch(rf"inference on .*: \d arguments, {len(results)} results", head)
    assert re.fullmatch(r"  the fastest of 10 calls took \d+\.\d us", end)
    return [line.partition(": ")[2] for line in results]


ROWS = "(6, 3) stride (3, 1) on cpu"


def test_a_wrapper_runs_as_a_file(tmp_path: Path) -> None:
    code, said, complaint = started(traced(tmp_path, norm, torch.randn(6, 3)) / "wrapper.py")
    assert (code, gives(said), complaint) == (0, [f"float32 {ROWS}"], "")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", [norm, sorts, holds])
def test_it_computes_what_was_compiled(
    tmp_path: Path, fn: Callable[..., Any], dynamic: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels, a call of torch, and a constant; with sizes that only the call knows."""
    x = torch.randn(6, 3)
    folder = traced(tmp_path, fn, x, dynamic=dynamic)
    capsys.readouterr()
    module = runpy.run_path(str(folder / "wrapper.py"), run_name="__main__")
    wanted = tree_leaves(fn(x))
    assert gives(capsys.readouterr().out) == [f"{str(value.dtype)[6:]} {ROWS}" for value in wanted]
    inputs = json.loads((folder / "example.json").read_text())["inputs"]
    torch.testing.assert_close(tree_leaves(module["call"]([given.get("value", x) for given in inputs])), wanted)


@pytest.mark.parametrize("how", ["hit", "cpp", pytest.param("interpret", marks=pytest.mark.long)])
def test_what_the_store_had_another_wrapper_and_triton_run(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    x, options = torch.randn(6, 3), {"cpp": {"wrapper": "cpp"}, "interpret": {"target": "interpret"}}
    folder = traced(tmp_path, sorts, x, **options.get(how, {}))
    if how == "hit":
        folder = traced(tmp_path, sorts, x, trace=f"dir:{tmp_path}/again").parents[1] / "again" / "inference"
    capsys.readouterr()
    runpy.run_path(str(folder / ("run.py" if how == "cpp" else "wrapper.py")), run_name="__main__")
    assert gives(capsys.readouterr().out) == [f"float32 {ROWS}", f"int64 {ROWS}"]


@pytest.mark.parametrize("graphs", [False, True])
def test_what_is_not_here_is_said_in_one_line(tmp_path: Path, *, graphs: bool) -> None:
    """Kernels for a GPU that this machine lacks: the wrapper can be imported."""
    options = {"trace": f"dir:{tmp_path}", "cudagraphs": graphs}
    made = minductor.compile_only(norm, torch.randn(6, 3), target="sm_90", options=options)
    file = str(tmp_path / "inference/wrapper.py")
    assert made.source and "softmax" in Path(file).read_text()
    assert callable(runpy.run_path(file)["call"])
    if not torch.cuda.is_available():
        why = "wrapper.py: its kernels are for sm_90, and torch finds no GPU of NVIDIA here"
        with pytest.raises(SystemExit, match=f"^{re.escape(why)}$"):
            runpy.run_path(file, run_name="__main__")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("is_dry", [False, True])
def test_a_wrapper_runs_on_a_gpu(tmp_path: Path, is_dry: bool) -> None:
    x = torch.randn(6, 3)
    if is_dry:
        minductor.compile_only(norm, x, target="sm_90", options={"trace": f"dir:{tmp_path}/trace"})
    else:
        traced(tmp_path, norm, x.cuda())
    code, said, complaint = started(tmp_path / "trace/inference/wrapper.py")
    assert (code, complaint) == (0, "")
    assert gives(said) == ["float32 (6, 3) stride (3, 1) on cuda:0"]


# --- what a debugger and a shell can do with the files ---------------------------------------------------------------


class Trained(torch.nn.Module):
    """Layers, a branch that data decide, and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(3, 5), torch.nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.dropout(self.down(self.up(x).relu()), 0.5)
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos().exp(), (x,))


def trained(folder: Path, dynamic: bool = False, **options: Any) -> list[Path]:
    """The folders of the graphs of a training step."""
    torch._dynamo.reset()
    backend = partial(Compiler(store=Store(folder / "store")), options={"trace": f"dir:{folder}/trace", **options})
    torch.compile(Trained(), backend=backend, dynamic=dynamic)(torch.randn(6, 3, requires_grad=True)).sum().backward()
    return sorted((folder / "trace").iterdir())


@pytest.mark.parametrize(
    ("wrapper", "dynamic"), [pytest.param("python", False, marks=pytest.mark.long), ("python", True), ("cpp", False)]
)
def test_both_graphs_of_a_training_step_run(
    tmp_path: Path, wrapper: str, dynamic: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = trained(tmp_path, dynamic, wrapper=wrapper)
    assert [folder.name for folder in folders] == ["backward", "forward"]
    for folder in folders:
        capsys.readouterr()
        runpy.run_path(str(folder / ("run.py" if wrapper == "cpp" else "wrapper.py")), run_name="__main__")
        said = capsys.readouterr().out
        assert re.match(rf"{folder.name} on cpu: \d+ arguments, \d+ results\n", said) and "took" in said
        assert "torch.ops.aten" in (folder / "aten_graph.py").read_text()
        assert json.loads((folder / "provenance.json").read_text())["graph"] == folder.name


@pytest.mark.parametrize("wrapper", [pytest.param("python", marks=pytest.mark.long), "cpp"])
def test_kernels_begin_with_the_command_that_builds_them(tmp_path: Path, wrapper: str) -> None:
    folder = traced(tmp_path, norm, torch.randn(6, 3), wrapper=wrapper)
    units = sorted(folder.glob("*.cpp"))
    assert [unit.stem for unit in units] == ["kernels", "wrapper"][: 1 + (wrapper == "cpp")]
    stored = next((tmp_path / "store").rglob("kernels.cpp")).read_text()
    text = (folder / "kernels.cpp").read_text()
    assert text.endswith(stored) and len(text.splitlines()) == len(stored.splitlines()), "no line moves"
    commands = {re.match(r"/\* Built by: (.*?) \*/ ", unit.read_text())[1] for unit in units}  # pyright: ignore
    (folder / "kernels.so").unlink()
    subprocess.run(commands.pop(), shell=True, cwd=folder, check=True, timeout=120)
    assert not commands
    code, said, complaint = started(folder / ("run.py" if wrapper == "cpp" else "wrapper.py"))
    assert (code, gives(said), complaint) == (0, [f"float32 {ROWS}"], "")


def test_a_graph_of_fx_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = traced(tmp_path, sorts, torch.randn(6, 3), wrapper="fx")
    capsys.readouterr()
    runpy.run_path(str(folder / "run.py"), run_name="__main__")
    assert gives(capsys.readouterr().out) == [f"float32 {ROWS}", f"int64 {ROWS}"]


OPERATOR = """
import torch

@torch.library.custom_op("minductor_rerun::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

twice.register_fake(torch.empty_like)
"""


@pytest.mark.parametrize("wrapper", ["python", pytest.param("cpp", marks=pytest.mark.long)])
def test_an_operator_of_the_user_s(tmp_path: Path, wrapper: str) -> None:
    (tmp_path / "module_of_an_operator.py").write_text(OPERATOR)
    made = runpy.run_path(str(tmp_path / "module_of_an_operator.py"))["twice"]
    file = traced(tmp_path, lambda x: made(x.sin()) + 1, torch.randn(6, 3), wrapper=wrapper)
    file /= "run.py" if wrapper == "cpp" else "wrapper.py"
    code, said, complaint = started(file)
    assert (code, said) == (1, "") and len(complaint.splitlines()) == 1
    assert "it calls minductor_rerun.twice.default, which no module has registered here" in complaint
    (command,) = re.findall(r'python -c "(.*)"', complaint)
    command = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {command}"
    command = command.replace("MODULE", "module_of_an_operator").replace(f"'{file.name}'", repr(str(file)))
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", command], env=environ, capture_output=True, text=True, check=True)
    assert gives(ran.stdout) == [f"float32 {ROWS}"]


def debugged(command: list[str], said: str) -> str:
    """What a debugger writes that is told to do what `said` says."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command], input=said, env=environ, capture_output=True, text=True, check=False, timeout=300
    ).stdout


def test_a_debugger_steps_through_a_wrapper(tmp_path: Path) -> None:
    file = traced(tmp_path, norm, torch.randn(6, 3)) / "wrapper.py"
    lines = file.read_text().splitlines()
    launch = next(n for n, line in enumerate(lines, 1) if re.match(r" +fused_\w+\(", line))
    said = debugged(["-m", "pdb", str(file)], f"tbreak {launch}\nc\np arg0_1.shape\nn\nwhere\nq\n")
    assert f"> {file}({launch})call()" in said and "torch.Size([6, 3])" in said
    assert f"{file}({launch + 1})call()" in said, "the step after the launch"


def test_a_breakpoint_in_a_wrapper_stops_there(tmp_path: Path) -> None:
    file = traced(tmp_path, norm, torch.randn(6, 3)) / "wrapper.py"
    text = file.read_text()
    file.write_text(text.replace("    args.clear()\n", "    args.clear()\n    breakpoint()\n"))
    said = debugged([str(file)], "p sorted(locals())\nq\n")
    assert f"> {file}(" in said and "'arg0_1'" in said


def test_triton_kernels_compile_as_a_file(tmp_path: Path) -> None:
    minductor.compile_only(norm, torch.randn(6, 300), target="sm_90", options={"trace": f"dir:{tmp_path}/trace"})
    folder = tmp_path / "trace" / "inference"
    code, said, complaint = started(folder / "kernels.py")
    assert (code, complaint) == (0, "")
    (line,) = said.splitlines()
    assert re.match(r"fused_\w+\.ptx: \d+ registers, 0 bytes spilled, \d+ bytes shared$", line)
    assert ".target sm_90" in (folder / line.partition(":")[0]).read_text()


def test_kernels_that_are_interpreted_say_so(tmp_path: Path) -> None:
    folder = traced(tmp_path, norm, torch.randn(6, 3), target="interpret")
    with pytest.raises(SystemExit, match=r"^kernels.py: the target interpret interprets its kernels; nothing is comp"):
        runpy.run_path(str(folder / "kernels.py"), run_name="__main__")


# --- depyf ------------------------------------------------------------------------------------------------------------

OURS = {"wrapper.py", "kernels.cpp", "kernels.so", "aten_graph.py", "06_fuse.txt"}


def test_depyf_s_folder_gets_the_graphs_that_are_compiled_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what depyf leaves in its module; the next test has depyf itself."""
    state: dict[str, Any] = {"dump_src_dir": str(tmp_path / "dump"), "is_inside_prepare_debug": True}
    module = types.ModuleType("depyf.explain.global_variables")
    module.__dict__["data"] = state
    monkeypatch.setitem(sys.modules, module.__name__, module)
    compiler = Compiler(store=Store(tmp_path / "store"))
    for is_inside in (False, True):
        state["is_inside_prepare_debug"] = is_inside
        torch._dynamo.reset()
        torch.compile(lambda x: norm(x) + is_inside, backend=compiler)(torch.randn(6, 3))  # noqa: B023
        assert (tmp_path / "dump").exists() == is_inside
    (folder,) = (tmp_path / "dump" / "minductor").iterdir()
    assert {file.name for file in folder.iterdir()} >= OURS
    assert gives(started(folder / "wrapper.py")[1]) == [f"float32 {ROWS}"]


@pytest.mark.filterwarnings("ignore:.*debug `torch.compile`")
def test_under_prepare_debug(tmp_path: Path) -> None:
    depyf = pytest.importorskip("depyf", reason="needs depyf, of the extra `test`")
    torch._dynamo.reset()
    compiler = Compiler(store=Store(tmp_path / "store"))
    with depyf.prepare_debug(str(tmp_path / "dump")):
        x = torch.randn(6, 3, requires_grad=True)
        made = torch.compile(Trained(), backend=compiler)(x)
        made.sum().backward()
    names = {file.name for file in (tmp_path / "dump").iterdir()}
    assert any(name.startswith("full_code_for_") for name in names) and "minductor" in names
    for graph in ("forward", "backward"):
        assert {file.name for file in (tmp_path / "dump" / "minductor" / graph).iterdir()} >= OURS
