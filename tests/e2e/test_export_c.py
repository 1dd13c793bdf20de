"""A host in C runs exported packages, with torch where its operators are called and without it where none is."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import minductor
from minductor.__main__ import main
from minductor.bench import models
from minductor.runtime.package.archive import write_archive
from tests.e2e.hosts import build_host

DTYPES = {torch.uint8: 0, torch.int64: 4, torch.float32: 6, torch.float64: 7, torch.bool: 11}
TORCH = Path(torch.__file__).parent / "lib"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_host(tmp_path_factory.mktemp("host"))


def call(host: Path, folder: Path, library: str, inputs: Sequence[Tensor], *, with_torch: bool) -> Any:
    """The host's run: the finished process; its result lies in `output`."""
    words: list[str] = []
    for number, tensor in enumerate(inputs):
        file = folder / f"input{number}"
        file.write_bytes(bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy()))
        words += [str(DTYPES[tensor.dtype]), str(tensor.dim()), *map(str, tensor.shape), str(file)]
    places = [str(folder / name) for name in (library, "constants.bin", "output")]
    environ = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    if with_torch:
        environ["LD_LIBRARY_PATH"] = str(TORCH)
    return subprocess.run([str(host), *places, *words], env=environ, capture_output=True, text=True, check=False)


def result(folder: Path, like: Tensor) -> Tensor:
    return torch.frombuffer(bytearray((folder / "output").read_bytes()), dtype=like.dtype).view(like.shape)


@pytest.mark.parametrize("name", [pytest.param("resnet", marks=pytest.mark.long), "gpt"])
def test_models_give_eagers_results(host: Path, tmp_path: Path, name: str) -> None:
    module, inputs, _ = models.make(name, size="tiny")
    module.eval()
    manifest = minductor.export(module, inputs, tmp_path / "model.zip")
    assert manifest.c_library == "kernels.so" and manifest.needs_torch
    assert main(["unpack", str(tmp_path / "model.zip"), str(tmp_path / "model")]) == 0
    ran = call(host, tmp_path / "model", manifest.c_library, inputs, with_torch=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    expected = module(*inputs)
    torch.testing.assert_close(result(tmp_path / "model", expected), expected.detach())


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.table = torch.nn.Embedding(5, 8)

    def forward(self, x: Tensor, index: Tensor, n: int) -> Tensor:
        return torch.softmax(self.norm(x) * self.table(index), -1) * n


def test_a_plan_without_calls_needs_no_torch(host: Path, tmp_path: Path) -> None:
    module = Plain()
    rows = Dim("rows", min=2, max=64)
    x, index = torch.randn(6, 8), torch.randint(0, 5, (6,))
    shapes = {"x": {0: rows}, "index": {0: rows}, "n": Dim.DYNAMIC}
    manifest = minductor.export(module, (x, index, 3), tmp_path / "model.zip", dynamic_shapes=shapes)
    assert (manifest.needs_torch, manifest.c_library) == ((), "plain.so")
    assert main(["unpack", str(tmp_path / "model.zip"), str(tmp_path / "model")]) == 0
    needed = subprocess.run(
        ["readelf", "-d", str(tmp_path / "model/plain.so")], capture_output=True, text=True, check=True
    )
    assert "torch" not in needed.stdout
    n = torch.tensor(4)

    def run(*inputs: Tensor) -> Any:
        return call(host, tmp_path / "model", "plain.so", inputs, with_torch=False)

    for size in (6, 2, 64):
        x, index = torch.randn(size, 8), torch.randint(0, 5, (size,))
        assert run(x, index, n).stderr == ""
        expected = module(x, index, 4).detach()
        torch.testing.assert_close(result(tmp_path / "model", expected), expected)
        torch.testing.assert_close(minductor.load(tmp_path / "model.zip")(x, index, 4), expected)
    for inputs, why in (
        ((x, index), "takes 3 inputs and gives 1 outputs, not 2 and 1"),
        ((x.double(), index, n), "x: its dtype is 7, and 6 was exported"),
        ((x[0], index, n), "x: it has 1 dimensions, and 2 were exported"),
        ((torch.randn(65, 8), index, n), "x: 65 is not among the sizes that were exported"),
        ((x, index[1:], n), "index: its sizes are (63,), and here they have to be (64,)"),
        ((x[:, 1:], index, n), "x: its sizes are (64, 7), and here they have to be (64, 8)"),
        ((x, index + 5, n), "IndexError: "),
    ):
        ran = run(*inputs)
        assert ran.returncode == 1 and why in ran.stderr
    (tmp_path / "model/constants.bin").write_bytes(b"")
    assert "no constants" in run(x, index, n).stderr


def test_a_number_that_others_tell_is_checked(host: Path, tmp_path: Path) -> None:
    def scale(x: Tensor, n: int, m: int) -> Tensor:
        return x * (n * m) if n == m else x

    x, shapes = torch.ones(3), (None, Dim.AUTO, Dim.AUTO)
    manifest = minductor.export(scale, (x, 2, 2), tmp_path / "model.zip", dynamic_shapes=shapes)
    assert main(["unpack", str(tmp_path / "model.zip"), str(tmp_path / "model")]) == 0
    for m, said in ((4, ""), (5, "m: 5 is not")):
        numbers = (torch.tensor(4), torch.tensor(m))
        ran = call(host, tmp_path / "model", manifest.c_library, (x, *numbers), with_torch=False)
        assert (said in ran.stderr) and ran.returncode == bool(said)
    assert torch.equal(result(tmp_path / "model", x), x * 16)


def test_a_plan_without_torch_tests_for_nan(host: Path, tmp_path: Path) -> None:
    x = torch.ones(2, 3)
    manifest = minductor.export(torch.log, (x,), tmp_path / "log.zip", options={"nan_asserts": True})
    assert manifest.c_library == "plain.so"
    assert main(["unpack", str(tmp_path / "log.zip"), str(tmp_path / "log")]) == 0
    assert call(host, tmp_path / "log", "plain.so", (x,), with_torch=False).stderr == ""
    x[1, 2] = -1
    ran = call(host, tmp_path / "log", "plain.so", (x,), with_torch=False)
    said = (
        r"NonFiniteResult: kernel log_0 stores NaN in 1 of the 6 elements of buf\d+, the first at \[1, 2\];.*\(2, 3\)\n"
    )
    assert ran.returncode == 1 and re.fullmatch(said, ran.stderr)


def test_an_operator_that_fails_says_so(host: Path, tmp_path: Path) -> None:
    manifest = minductor.export(torch.linalg.svdvals, (torch.eye(3),), tmp_path / "model.zip")
    assert main(["unpack", str(tmp_path / "model.zip"), str(tmp_path / "model")]) == 0
    with pytest.raises(RuntimeError) as eagers:
        torch.linalg.svdvals(torch.full((3, 3), torch.nan))
    ran = call(host, tmp_path / "model", manifest.c_library, (torch.full((3, 3), torch.nan),), with_torch=True)
    if torch.__version__ >= (2, 13):
        assert (ran.returncode, ran.stderr) == (1, f"RuntimeError: {eagers.value}\n")
    else:  # torch writes its message to stderr itself
        assert ran.returncode == 1 and str(eagers.value) in ran.stderr
        assert "svd" in ran.stderr.splitlines()[-1] and "failed; stderr has its message" in ran.stderr.splitlines()[-1]


def test_unpack_writes_over_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.zip").write_bytes(b"no package")
    assert main(["unpack", str(tmp_path / "a.zip"), str(tmp_path / "a")]) == 1
    assert "MD082" in capsys.readouterr().err and not (tmp_path / "a").exists()


def test_unpack_refuses_a_package_without_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for entries in ({"a.json": [b"{}"]}, {"manifest.json": [b"{}"]}):
        write_archive(tmp_path / "a.zip", entries)
        assert main(["unpack", str(tmp_path / "a.zip"), str(tmp_path / "a")]) == 1
        assert "MD082" in capsys.readouterr().err and not (tmp_path / "a").exists()
