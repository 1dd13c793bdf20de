"""The programs in examples/ run at a tiny size, print what they promise, and end with an error if one is wrong."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import minductor
from minductor.backends import unregister_backend
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
from tests.house.rules import ROOT
from tests.snippets import is_shown, snippets

EXAMPLES = ROOT / "examples"
Run = Callable[..., str]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> Iterator[Run]:
    """Runs an example as a script does, in this process and with a cache of its own. Returns what it prints."""
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))

    def run_example(name: str, *words: object, **names: Any) -> str:
        minductor.minductor.reset()
        torch.compiler.reset()
        path = EXAMPLES / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, words)])
        spec = importlib.util.spec_from_file_location(f"example_{name}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for key, value in names.items():
            monkeypatch.setitem(getattr(module, key), *value)
        module.main()
        return capsys.readouterr().out

    yield run_example
    minductor.minductor.reset()
    torch.compiler.reset()


def shown(command: str) -> str:
    """What docs/examples.md shows of a command's output."""
    blocks = [block.text for block in snippets((ROOT / "docs/examples.md").read_text(encoding="utf-8"))]
    (text,) = [block.rpartition("$ ")[2].partition("\n")[2] for block in blocks if command in block]
    return text


TINY_GPT = ("--steps", 12, "--batch", 4, "--context", 12, "--layers", 1, "--width", 16, "--heads", 2, "--rate", 0.01)


def test_train_gpt(run: Run) -> None:
    printed = run("train_gpt", *TINY_GPT)
    found = re.search(r"loss ([\d.]+) -> ([\d.]+); eager's and minductor's are at most ([\d.e-]+) apart", printed)
    assert found is not None
    first, last, apart = map(float, found.groups())
    assert last < first and apart < 1e-4


def test_train_gpt_notices_a_wrong_gradient(run: Run) -> None:
    (fault,) = (mutant for mutant in MUTANTS if mutant.name == "operands-turned")
    with mutated(fault), pytest.raises(SystemExit, match=r"did not fall|two runs part"):
        run("train_gpt", *TINY_GPT)


def test_write_a_device(run: Run) -> None:
    printed = run("write_a_device", "--rows", 4, "--columns", 6)
    assert is_shown(shown("write_a_device.py --rows 4 --columns 6"), printed)
    assert "kernels of this target have no scan" in printed
    assert printed.count("largest difference from eager") == 2


def test_write_a_device_notices_a_wrong_kernel(run: Run) -> None:
    try:
        with pytest.raises(SystemExit, match="the kernels are wrong"):
            run("write_a_device", SPELLINGS=("tanh", "np.sin({0})"))
    finally:
        unregister_backend("array")


@pytest.mark.long  # tests/plugin/test_campaign.py hunts too
def test_hunt_a_bug(run: Run, tmp_path: Path) -> None:
    printed = run("hunt_a_bug", "--programs", 2, "--trials", 12, "--script", tmp_path / "bug.py")
    assert is_shown(shown("hunt_a_bug.py --fault operands-turned"), printed)
    compile((tmp_path / "bug.py").read_text(encoding="utf-8"), "bug.py", "exec")


def test_hunt_a_bug_finds_none_in_the_compiler_as_it_is(run: Run) -> None:
    assert "no program is wrong" in run("hunt_a_bug", "--fault", "", "--programs", 1)
    with pytest.raises(SystemExit, match="no fault is called 'mask'"):
        run("hunt_a_bug", "--fault", "mask")


@pytest.mark.needs("cxx")
@pytest.mark.skipif(not (shutil.which("make") and shutil.which("cc")), reason="no make, or no compiler of C as cc")
def test_serve_from_c(tmp_path: Path) -> None:
    folder = EXAMPLES / "serve_from_c"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    words = [f"PYTHON={sys.executable}", f"BUILD={tmp_path}"]
    made = subprocess.run(["make", "-C", folder, *words], env=environ, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    lines = [line for line in made.stdout.splitlines() if line.startswith(("row ", "equal ", "NOT "))]
    assert len(lines) == 6 and is_shown(shown("make -C examples/serve_from_c"), "\n".join(lines))

    def serve(rows: bytes) -> "subprocess.CompletedProcess[bytes]":
        served = [tmp_path / "serve", tmp_path / "model", "16", tmp_path / "expected.bin"]
        return subprocess.run(served, input=rows, capture_output=True, check=False)

    rows = (tmp_path / "rows.bin").read_bytes()
    assert serve(rows).returncode == 0
    assert serve(rows[:64] * 5).returncode == 1, "other rows have other results"
    assert b"1 is not among the sizes that were exported" in serve(rows[:64]).stderr


@pytest.mark.long  # tests/test_example_backend.py and tests/plugin install a package and run on another compiler
def test_test_a_backend(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "test_a_backend", tmp_path / "source")  # pip writes beside the sources
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", tmp_path / "site", tmp_path / "source"], check=True)
    places = [str(ROOT), str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    for name in ("RUN_CPU", "RUN_GPU"):
        environ.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "examples/test_a_backend"]
    words = [*command, "--compiler=tiny", "--size=5"]
    ran = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "9 passed" in ran.stdout and is_shown(shown("--compiler=tiny"), ran.stdout)


def test_every_example_is_tested_and_says_what_it_shows() -> None:
    """A program is a file, or a folder with a Makefile or a package; its docstring is what the documentation shows."""
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    found = {path.stem for path in EXAMPLES.iterdir() if path.name != "README.md" and path.name != "__pycache__"}
    assert found <= tested and len(found) == 5
    for path in EXAMPLES.rglob("*.py"):
        assert path.read_text(encoding="utf-8").startswith('"""'), path
