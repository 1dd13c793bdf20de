"""The command line: each command is found, imported when used, and gives the documented exit code."""

import os
from pathlib import Path

import pytest

from minductor.__main__ import COMMANDS, main, usage
from minductor.backends import resolve
from minductor.commands.cache_command import readable
from minductor.ir.artefact.winner import WINNER, Winner
from minductor.runtime.store.store import Store, digest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(folder))
    return folder


def test_every_command_is_listed_and_exists() -> None:
    for name, command in COMMANDS.items():
        assert f"  {name} " in usage()
        assert callable(resolve(command.function))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    assert f"minductor {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--help"], 0, "usage: minductor COMMAND"),
        (["--version"], 0, "minductor 0."),
        ([], 2, "usage: minductor COMMAND"),
        (["benchh"], 2, "unknown command 'benchh': did you mean 'bench'?"),
        (["--frob"], 2, "unknown command '--frob'"),
    ],
)
def test_wrong_command_lines_say_so(argv: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert says in (err if code else out)


def test_cache_shows_and_empties(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = b'{"role": "forward", "kernel_names": ["fused_add_0"]}'
    Store(cache).put(digest("a"), {"report.json": report, "kernels.so": bytes(2048)})
    Store(cache).put(digest("b"), {"words": b"w"})
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"2 entries, {readable(Store(cache).size())} of at most 2.0 GiB, in {cache}\n"
    assert main(["cache", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(digest("a")[:16]) and lines[0].endswith("forward: fused_add_0")
    assert lines[1].endswith("no report")
    assert main(["cache", "clear"]) == 0
    assert "removed 2 entries" in capsys.readouterr().out
    assert Store(cache).entries() == ()


def test_cache_lists_what_autotuning_chose(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    won = Winner("warps=8", "fused_add_0", ((16, 31),), 2e-6, 5e-6, "NVIDIA H100", "12080")
    Store(cache).put(digest("a"), {WINNER: won.to_json().encode()})
    Store(cache).put(digest("b"), {WINNER: b"warps=8"})
    assert main(["cache", "list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(
        "winner: fused_add_0 for sizes 16 to 31: warps=8, 2.0 us instead of 5.0 us, on NVIDIA H100 with driver 12080"
    )
    assert second.endswith("winner: of another version")


def test_cache_of_somebody_else_is_refused(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    assert main(["cache", "clear"]) == 1
    assert "MINDUCTOR_CACHE_DIR" in capsys.readouterr().err


def test_cache_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["cache", "--dir", str(tmp_path / "file" / "cache")]) == 1
    assert "there is no such folder" in capsys.readouterr().err
    assert main(["cache", "--dir", str(tmp_path / "file")]) == 1
    assert "this is no cache of minductor" in capsys.readouterr().err


def test_damaged_entry_does_not_stop_the_list(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = Store(cache).put(digest("a"), {"words": b"w"})
    (entry.path / "words").write_bytes(b"v")
    assert main(["cache"]) == 0
    assert "0 entries and 1 damaged" in capsys.readouterr().out
    assert main(["cache", "list"]) == 0 and capsys.readouterr().out == ""


def test_doctor_finds_all_that_a_cpu_needs(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    rows = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines() if line[0] != " "}
    assert rows.pop("triton") in ("ok", "missing")
    assert rows == dict.fromkeys(("python", "torch", "settings", "compiler", "openmp", "vectors", "cache"), "ok")


def test_doctor_without_a_compiler(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.delenv("CXX", raising=False)
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "tried g++, c++, clang++" in out and "apt-get install g++" in out
    assert "compiler, openmp" in err


def test_doctor_with_a_compiler_that_cannot_compile(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "false")
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "set CXX to a compiler that builds C++17 with -fopenmp" in out and err.endswith("here: compiler, openmp\n")


def test_doctor_on_a_cache_that_is_not_trusted(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.mkdir()
    os.chmod(cache, 0o777)
    assert main(["doctor"]) == 1
    assert "cache    broken" in capsys.readouterr().out
