"""What a trace leaves in its folder runs by itself, in another process."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
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


def test_what_is_not_here_is_said_in_one_line(tmp_path: Path) -> None:
    """Kernels for a GPU that this machine lacks: the wrapper can be imported."""
    made = minductor.compile_only(norm, torch.randn(6, 3), target="sm_90", options={"trace": f"dir:{tmp_path}"})
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
