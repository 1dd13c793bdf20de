"""The probe: what it reads out of the system's texts, and that it starts nothing."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from minductor.core.errors import CompilerNotFound
from minductor.runtime.build.probe import COMPILERS, Host, features, find_compiler, probe

ROOT = Path(__file__).parents[2]


def fake_compiler(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho fake 1.2\n")
    path.chmod(0o755)
    return path


def test_the_host_is_this_one() -> None:
    host = probe()
    assert host.torch.partition("+")[0] == torch.__version__.partition("+")[0]  # a package need not say its build
    assert 1 <= host.cores <= (os.cpu_count() or 1)
    assert (host.system, host.machine) == (os.uname().sysname.lower(), os.uname().machine)
    assert host == probe()


@pytest.mark.parametrize(("capability", "size"), [("AVX512", 64), ("AVX2", 32)], ids=["avx512", "avx2"])
def test_the_vector_width_is_no_less_than_what_torch_uses(capability: str, size: int) -> None:
    if torch.backends.cpu.get_cpu_capability() == capability:
        assert probe().vector_bytes() >= size


def test_features_of_x86_and_of_arm() -> None:
    assert features("processor\t: 0\nflags\t\t: b a\n") == ("a", "b")
    assert features("Features\t: fp asimd sve\n") == ("asimd", "fp", "sve")
    assert features("model name\t: flags of something\n") == ()


def test_a_feature_that_only_some_cores_have_is_none() -> None:
    assert features("flags: a b\nflags: b c\n") == ("b",)


@pytest.mark.parametrize(
    ("names", "size"), [(("avx512f", "avx2"), 64), (("avx2", "sse2"), 32), (("asimd",), 16), ((), 16)]
)
def test_vector_bytes(names: tuple[str, ...], size: int) -> None:
    assert dataclasses.replace(probe(), features=names).vector_bytes() == size


def test_the_fingerprint_is_of_the_instruction_set() -> None:
    host = probe()

    def changed(**fields: object) -> bool:
        other: Host = dataclasses.replace(host, **fields)  # pyright: ignore[reportArgumentType]  # names vary
        return other.fingerprint() != host.fingerprint()

    assert changed(features=(*host.features, "avx1024"))
    assert changed(machine="riscv64")
    assert not changed(cores=host.cores + 1)
    assert not changed(torch="9.9")


def test_cxx_comes_first(tmp_path: Path) -> None:
    mine = fake_compiler(tmp_path / "bin" / "my-cxx")
    fake_compiler(tmp_path / "bin" / "g++")
    found = find_compiler({"CXX": str(mine), "PATH": str(tmp_path / "bin")})
    assert (found.path, found.command, found.version()) == (mine, (str(mine),), "fake 1.2")


@pytest.mark.parametrize("name", COMPILERS)
def test_each_known_name_is_found(tmp_path: Path, name: str) -> None:
    path = fake_compiler(tmp_path / name)
    found = find_compiler({"PATH": str(tmp_path)})
    assert (found.path, found.family) == (path, "clang" if "clang" in name else "gnu")


def test_a_name_that_is_a_link_to_clang(tmp_path: Path) -> None:
    (tmp_path / "c++").symlink_to(fake_compiler(tmp_path / "real" / "clang-19"))
    assert find_compiler({"PATH": str(tmp_path)}).family == "clang"


def test_a_launcher_before_the_compiler(tmp_path: Path) -> None:
    fake_compiler(tmp_path / "ccache")
    found = find_compiler({"CXX": "ccache clang++ -B /x", "PATH": str(tmp_path)})
    assert found.command[1:] == ("clang++", "-B", "/x") and found.family == "clang"


def test_a_cxx_that_is_not_there_is_not_replaced(tmp_path: Path) -> None:
    """Another compiler than the one that was asked for makes other code."""
    fake_compiler(tmp_path / "g++")
    with pytest.raises(CompilerNotFound, match="no program '/no/such'") as caught:
        find_compiler({"CXX": "/no/such", "PATH": str(tmp_path)})
    assert caught.value.tried == ("CXX=/no/such",)


def test_a_cxx_with_an_open_quote(tmp_path: Path) -> None:
    with pytest.raises(CompilerNotFound, match="No closing quotation"):
        find_compiler({"CXX": "g++ '", "PATH": str(tmp_path)})


def test_no_compiler_names_the_tried_ones_and_how_to_install(tmp_path: Path) -> None:
    with pytest.raises(CompilerNotFound) as caught:
        find_compiler({"PATH": str(tmp_path)})
    assert caught.value.tried == COMPILERS
    assert "apt-get install g++" in str(caught.value)


def test_another_binary_under_the_same_name_has_another_stamp(tmp_path: Path) -> None:
    path = fake_compiler(tmp_path / "g++")
    before = find_compiler({"PATH": str(tmp_path)}).stamp
    assert find_compiler({"PATH": str(tmp_path)}).stamp == before
    os.utime(path, (1, 1))
    assert find_compiler({"PATH": str(tmp_path)}).stamp != before


def test_looking_imports_neither_torch_nor_triton_and_runs_nothing() -> None:
    code = """
import subprocess, sys
def refuse(*args, **kwargs): raise AssertionError(args)
subprocess.Popen = refuse
from minductor.runtime.build.probe import probe
probe().fingerprint()
print(sorted({"torch", "triton"} & set(sys.modules)))
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr
