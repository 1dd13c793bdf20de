"""C++ compilers that lie, hang or crash: an error that says so, and nothing wrong stays in the store."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.core.errors import CompileFailed, CompilerBroken, CorruptEntry, LoadFailed, WaitsForAnother
from minductor.driver import Compiled, Compiler
from minductor.options import Options
from minductor.runtime.build.probe import probe
from minductor.runtime.build.toolchain import EXPORT, Toolchain, Unit
from minductor.runtime.store import key_lock
from minductor.runtime.store.store import Store
from minductor.target import Env, by_name

GIVEN = torch.arange(6.0)
# Each lie: what a compiler does instead of compiling, as a script of Python that knows `out`, where it should write.
LIES = {
    "no-output": ("pass", CompilerBroken, "wrote no file"),
    "no-library": ("open(out, 'w').write('hello')", LoadFailed, "no shared object"),
    "empty": ("open(out, 'w').close()", LoadFailed, "no shared object"),
    "cut-short": ("real(); data = open(out, 'rb').read(); open(out, 'wb').write(data[:-99])", LoadFailed, "cut short"),
    "another-library": ("subprocess.run(['g++', '-shared', '-x', 'c', '/dev/null', '-o', out])", LoadFailed, "has no"),
    "a-folder": ("os.mkdir(out)", (LoadFailed, CompileFailed, OSError), ""),
    "crash": ("os.kill(os.getpid(), 11)", CompilerBroken, "SIGSEGV"),
    "status": ("sys.exit(3)", CompilerBroken, "status 3"),
    "endless-errors": ("while True: os.write(2, b'x' * 65536)", CompileFailed, "compiler_timeout"),
    "endless-output": ("while True: os.write(1, b'x' * 65536)", CompileFailed, "compiler_timeout"),
    "hang": ("time.sleep(600)", CompileFailed, "compiler_timeout"),
    "deaf": ("os.close(1); os.close(2); time.sleep(600)", CompileFailed, "compiler_timeout"),
    "child-hangs": ("subprocess.run(['sleep', '600'])", CompileFailed, "compiler_timeout"),
    "reads": ("sys.stdin.read(); sys.exit(4)", CompilerBroken, "status 4"),
}
SAMPLE = ("no-output", "no-library", "another-library", "crash", "child-hangs")


def compiler(path: Path, text: str) -> str:
    """A compiler that runs `text`; `real()` compiles as it should."""
    path.write_text(
        f"#!{sys.executable} -S\n"
        "import os, subprocess, sys, time\n"
        f"open({str(path)!r} + '.runs', 'a').write(str(os.getpid()) + '\\n')\n"
        "out = sys.argv[sys.argv.index('-o') + 1]\n"
        "real = lambda: subprocess.run(['g++', *sys.argv[1:]], check=True)\n" + textwrap.dedent(text)
    )
    path.chmod(0o755)
    return str(path)


def runs(path: Path) -> list[int]:
    """The processes of a compiler that `compiler` made."""
    return [int(line) for line in Path(f"{path}.runs").read_text().split()]


def compiled(store: Store, cxx: str, *, seen: list[Compiled] | None = None, **options: Any) -> torch.Tensor:
    """One graph compiled with that compiler and run."""
    made = Compiler(store=store, environ={**os.environ, "CXX": cxx}, observer=(seen if seen is not None else []).append)
    gm = make_fx(lambda x: x * 2 + 1, tracing_mode="fake")(GIVEN)
    env = Env(Options.parse(None, options, {}), by_name("cpu"))
    return made.compile_graph(gm, [GIVEN], role="inference", env=env)([GIVEN])[0]


def ended(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(
    "lie", [pytest.param(lie, marks=() if lie in SAMPLE else pytest.mark.long, id=lie) for lie in LIES]
)
def test_a_lie_is_an_error_and_leaves_nothing(
    tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    text, error, says = LIES[lie]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    store = Store(tmp_path / "store")
    with pytest.raises(error, match=says):
        compiled(store, compiler(tmp_path / "g++", text), compiler_timeout=1)
    assert store.count() == 0 and store.temporary_size()[0] == 0
    assert ended(runs(tmp_path / "g++"))
    (tmp_path / "g++").unlink()
    torch.testing.assert_close(compiled(store, shutil.which("g++") or ""), GIVEN * 2 + 1)


@pytest.mark.parametrize("wrapper", ["python", "cpp", "fx"])
@pytest.mark.parametrize("lie", ["no-library", "another-library"])
def test_a_compiler_that_lied_once_is_asked_again(tmp_path: Path, lie: str, wrapper: str) -> None:
    """Memory that flips, a disk that was full: what does not load is built once more, and only then an error."""
    told = tmp_path / "told"
    honest = f"if not out.endswith('built.so') or os.path.exists({str(told)!r}): real(); sys.exit()\n"
    cxx = compiler(tmp_path / "g++", f"{honest}open({str(told)!r}, 'w').close()\n{LIES[lie][0]}")
    store, seen = Store(tmp_path / "store"), list[Compiled]()
    with pytest.warns(CorruptEntry):
        torch.testing.assert_close(compiled(store, cxx, seen=seen, wrapper=wrapper), GIVEN * 2 + 1)
    compiled(store, cxx, seen=seen, wrapper=wrapper)
    assert [made.was_hit for made in seen] == [False, True]


@pytest.mark.parametrize("wrapper", ["python", "cpp", "fx"])
def test_a_sealed_library_that_does_not_load_is_built_again(tmp_path: Path, wrapper: str) -> None:
    """As a minductor that sealed without loading left it: its hashes are right, and no process could ever load it."""
    store = Store(tmp_path / "store")
    cxx = shutil.which("g++") or ""
    compiled(store, cxx, wrapper=wrapper)
    (entry,) = store.entries()
    store.remove(entry)
    store.put(entry.key, {**entry.contents, "kernels.so": b"\x7fELF but nothing else"}, variant=entry.variant)
    with pytest.warns(CorruptEntry, match="no shared object"):
        torch.testing.assert_close(compiled(store, cxx, wrapper=wrapper), GIVEN * 2 + 1)
    (again,) = store.entries()
    assert again.contents["kernels.so"] == entry.contents["kernels.so"]


def test_the_limit_is_that_of_all_runs_of_a_build(tmp_path: Path) -> None:
    """Several units: what was started is stopped, and what waits is not started."""
    cxx = compiler(tmp_path / "g++", "time.sleep(600)")
    toolchain = Toolchain(probe(), {**os.environ, "CXX": cxx}, keep=tmp_path / "kept")
    units = [Unit(f"f{i}", EXPORT + f"int f{i}() {{ return 1; }}") for i in range(20)]
    with pytest.raises(CompileFailed, match=r"0\.3 s, the option compiler_timeout") as caught:
        toolchain.compile(units, tmp_path / "out.so", timeout_s=0.3)
    assert "f0.cpp" in caught.value.command and Path(caught.value.kept, "f0.cpp").exists()
    started = runs(tmp_path / "g++")
    assert ended(started) and len(started) <= probe().cores
    assert not list(tmp_path.glob(".build-*"))


def test_another_compile_of_the_graph_is_waited_for_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And then this process compiles for itself, while the other one still holds the lock."""
    monkeypatch.setattr(key_lock, "SAY_AFTER_S", 0.1)
    store, cxx, seen = Store(tmp_path / "store"), shutil.which("g++") or "", list[Compiled]()
    compiled(store, cxx, seen=seen)
    store.clear()
    with store.lock(seen[0].key), pytest.warns(WaitsForAnother, match="after 1 s"):
        compiled(store, cxx, seen=seen, compiler_timeout=1)
    assert not seen[1].was_hit and store.count() == 1


def test_the_limit_is_no_part_of_the_key(tmp_path: Path) -> None:
    store, seen = Store(tmp_path / "store"), list[Compiled]()
    for limit in (300, 17):
        compiled(store, shutil.which("g++") or "", seen=seen, compiler_timeout=limit)
    assert [made.was_hit for made in seen] == [False, True] and store.count() == 1


def test_a_folder_that_vanishes_under_the_compiler_is_no_fault_of_it(tmp_path: Path) -> None:
    """The user removes the cache while g++ runs; the next attempt is in a folder that is there."""
    store = Store(tmp_path / "store")
    once = (
        f"if len(open({str(tmp_path / 'g++')!r} + '.runs').readlines()) == 1:\n"
        f"    import shutil; shutil.rmtree({str(store.root)!r})\n"
        "result = subprocess.run(['g++', *sys.argv[1:]])\nsys.exit(result.returncode)\n"
    )
    torch.testing.assert_close(compiled(store, compiler(tmp_path / "g++", once)), GIVEN * 2 + 1)
    assert len(runs(tmp_path / "g++")) == 2 and len(store.entries()) == 1


def test_a_library_that_vanishes_before_it_is_loaded_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    put: Callable[..., Any] = store.put
    removed: list[Path] = []

    def cleared(*args: Any, **kwargs: Any) -> Any:
        entry = put(*args, **kwargs)
        if not removed:
            removed.append(entry.path)
            Store(store.root).clear()
        return entry

    monkeypatch.setattr(store, "put", cleared)
    with pytest.warns(CorruptEntry):
        torch.testing.assert_close(compiled(store, shutil.which("g++") or ""), GIVEN * 2 + 1)
    assert len(removed) == 1 and len(store.entries()) == 1
