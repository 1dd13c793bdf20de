"""Packages for GPUs: made without a GPU, and loaded against a driver of the test's own (tests/runtime/fake_gpu.py)."""

from __future__ import annotations

import copy
import json
import os
import platform
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import minductor
from minductor.commands.unpack import unpack
from minductor.core.errors import (
    BadArgument,
    NotExportable,
    PackageElsewhere,
    PackageRefused,
    UnknownTarget,
    WrongInput,
)
from minductor.ir.artefact.launch_metadata import INDEX_BITS, LAUNCHES, LaunchMetadata, print_launches
from minductor.runtime.build.probe import find_compiler
from minductor.runtime.build.toolchain import Toolchain
from minductor.runtime.launch.cuda import Driver, Launch
from minductor.runtime.launch.gpu import BINARIES, Binary, Kernels, cubin_name
from minductor.runtime.package import package_gpu
from minductor.runtime.package.archive import open_archive, write_archive
from minductor.runtime.package.gpu_binaries import any_pointer_launches, needed_launches
from minductor.runtime.package.package_gpu import GpuPackage, LocalGpu
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
from tests.e2e.hosts import build_host
from tests.house.rules import ROOT
from tests.runtime.fake_gpu import FakeGpu, build_driver

TARGETS = ("sm_80", "sm_90")


class Layer(torch.nn.Module):
    """Weights, two of which are the same memory, a buffer that changes, an argument that changes, a window."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.other = torch.nn.Linear(8, 8)
        self.other.weight = self.linear.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        self.calls.add_(1)
        y.mul_(2)
        made = torch.softmax(self.other(self.linear(x).tanh()), -1)
        return made, torch.sort(made, stable=True)[1], self.calls + 0, x.shape[0]


@dataclass
class Made:
    path: Path
    module: Layer
    manifest: Any
    gpu: FakeGpu

    def here(self, capability: tuple[int, int] = (9, 0)) -> LocalGpu:
        return LocalGpu(torch.device("cpu"), capability, Driver(str(self.gpu.library)), self.gpu.function)


def arguments(size: int = 16) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 8), torch.ones(size, 2)


def made_in(folder: Path) -> Made:
    module = Layer()
    gpu = FakeGpu(build_driver(folder))
    rows = Dim("rows", min=2, max=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minductor.driver.Compiler", lambda: gpu.compiler(folder / "store"))
        shapes = {"x": {0: rows}, "y": {0: rows}}
        made = minductor.export(module, arguments(), folder / "a.zip", dynamic_shapes=shapes, target=TARGETS)
    return Made(folder / "a.zip", module, made, gpu)


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_in(tmp_path_factory.mktemp("package"))


@pytest.fixture(autouse=True)
def _on_the_gpu(layer: Made, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]  pytest's
    monkeypatch.setattr(package_gpu, "local_gpu", layer.here)
    layer.gpu.launched.clear()


def sending(patch: pytest.MonkeyPatch) -> list[Tensor]:
    """What packages send to the GPU from now on: copies, as to a GPU that is there."""
    sent: list[Tensor] = []
    send = GpuPackage.sent

    def copied(self: GpuPackage, data: memoryview) -> Tensor:
        sent.append(send(self, data).clone())
        return sent[-1]

    patch.setattr(GpuPackage, "sent", copied)
    return sent


def check_results(made: Made, capability: tuple[int, int] = (9, 0), arch: str = "90") -> None:
    """Eager's results, from the machine code for this GPU, whatever the sizes and addresses; nothing is compiled."""
    gpu, compiled, eager = made.gpu, len(made.gpu.compiled), copy.deepcopy(made.module)
    gpu.numbers.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package_gpu, "local_gpu", lambda: made.here(capability))
        patch.setattr(Toolchain, "compile", None)
        sent, loaded = sending(patch), minductor.load(made.path)
        for size in (16, 5, 33):
            for start in (0, 1):  # the second one is not aligned
                held, y = torch.randn(size * 8 + 1), torch.ones(size, 2)
                x, changed = held[start : start + size * 8].view(size, 8), y.clone()
                gpu.inputs = [held, *sent]
                with gpu.computing():
                    got = loaded(x, y)
                torch.testing.assert_close((got, y), (eager(x, changed), changed))
    assert {gpu.archs[number] for number in gpu.numbers} == {arch}
    assert len(gpu.compiled) == compiled and loaded.state["calls"] == 6


@pytest.mark.parametrize(("capability", "arch"), [((8, 0), "80"), ((8, 6), "80"), ((9, 0), "90")])
def test_results_are_eagers_by_the_code_for_this_gpu(layer: Made, capability: tuple[int, int], arch: str) -> None:
    check_results(layer, capability, arch)


def test_the_manifest_says_what_is_in_the_package(layer: Made) -> None:
    entries = open_archive(layer.path).entries
    assert [(code.target, code.cuda) for code in layer.manifest.gpus] == [("sm_80", "12.8"), ("sm_90", "12.8")]
    assert set(layer.manifest.digests) == set(entries) - {"manifest.json"}
    assert {name.partition(".")[0] for name in entries if name.startswith("sm_")} == {
        f"{target}_{part}"
        for target in TARGETS
        for part in ("binaries", "cubins", "kernels", "launches", "plan", "wrapper")
    }
    assert {name.partition(":")[0] for name, _ in layer.manifest.choices} == {*TARGETS}
    assert layer.manifest.needs_torch == ("aten.sort.stable",)
    rows = json.loads(bytes(entries["sm_90_binaries.json"]))
    assert all(not row["is_aligned"] for row in rows["any"].values()) and len(rows["any"]) > 1


def check_processor(made: Made, folder: Path) -> None:
    """Machine code for the processor of the machine with the GPU, which may have no AVX."""
    assert made.manifest.features == ()
    for target in TARGETS:
        library = folder / "library.so"
        library.write_bytes(open_archive(made.path).entries[f"{target}_kernels.so"])
        text = subprocess.run(["objdump", "-d", str(library)], capture_output=True, text=True, check=True).stdout
        assert "\tmovups" in text and "\tvmov" not in text


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads instructions of x86-64")
def test_a_package_runs_on_other_processors(layer: Made, tmp_path: Path) -> None:
    check_processor(layer, tmp_path)


@pytest.mark.parametrize(
    ("capability", "why"),
    [((7, 5), "sm_80, sm_90, and this GPU is sm_75"), ((10, 0), "sm_80, sm_90, and this GPU is sm_100")],
)
def test_a_package_for_other_gpus_names_what_it_has(
    layer: Made, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], why: str
) -> None:
    monkeypatch.setattr(package_gpu, "local_gpu", lambda: layer.here(capability))
    with pytest.raises(PackageElsewhere, match=why):
        minductor.load(layer.path)


def test_a_process_without_a_gpu_is_told_so(layer: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_gpu, "local_gpu", lambda: None)
    with pytest.raises(PackageElsewhere, match=r"GPUs of NVIDIA \(sm_80, sm_90\), and torch finds none"):
        minductor.load(layer.path)


def check_old_driver(made: Made) -> None:
    """The error has both versions of CUDA; a driver of an earlier minor version is new enough."""
    try:
        made.gpu.set("version", 12020)
        minductor.load(made.path)
        made.gpu.set("version", 11040)
        with pytest.raises(PackageElsewhere, match=r"made with CUDA 12\.8, and the driver here has CUDA 11\.4"):
            minductor.load(made.path)
    finally:
        made.gpu.set("version", 12080)


def test_a_driver_that_is_too_old_is_refused(layer: Made) -> None:
    check_old_driver(layer)


def altered(made: Made, path: Path, entry: str, old: str, new: str) -> Path:
    """The package with a text replaced, sealed again, as another exporter could have written it."""
    entries = {name: bytes(data) for name, data in open_archive(made.path).entries.items()}
    assert old.encode() in entries[entry]
    entries[entry] = entries[entry].replace(old.encode(), new.encode())
    write_archive(path, {name: [data] for name, data in entries.items()})
    return path


def test_a_kernel_that_needs_more_shared_memory_is_refused(layer: Made, tmp_path: Path) -> None:
    path = altered(layer, tmp_path / "a.zip", "sm_90_binaries.json", '"shared": 0', '"shared": 400000')
    with pytest.raises(PackageElsewhere, match="needs 400000 bytes of shared memory, and sm_90 has"):
        minductor.load(path)


def test_machine_code_outside_of_its_entry_is_refused(layer: Made, tmp_path: Path) -> None:
    path = altered(layer, tmp_path / "a.zip", "sm_90_binaries.json", '"offset": 0', '"offset": 9999')
    with pytest.raises(PackageRefused, match=r"is outside of cubins\.bin"):
        minductor.load(path)


def test_300_flipped_bytes_are_errors(layer: Made, tmp_path: Path) -> None:
    data, chance, path = layer.path.read_bytes(), random.Random(0), tmp_path / "a.zip"
    for _ in range(300):
        broken = bytearray(data)
        broken[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(PackageRefused):
            minductor.load(path)


def check_weights(made: Made) -> None:
    """Weights are sent once, in one piece, those that are the same memory too; what changes is the package's own."""
    with pytest.MonkeyPatch.context() as patch:
        sent, loaded = sending(patch), minductor.load(made.path)
        loaded(*arguments())
    weights = made.manifest.weights
    assert len({weight.offset for weight in weights}) == len(weights), "a weight is in the file once"
    (piece,) = sent
    assert len(piece) == max(weight.offset + weight.bytes + -weight.bytes % 64 for weight in weights)
    assert not piece.data_ptr() <= loaded.state["calls"].data_ptr() < piece.data_ptr() + len(piece)


def test_weights_are_sent_once(layer: Made) -> None:
    check_weights(layer)


def test_a_wrong_call_says_what_is_wrong(layer: Made) -> None:
    loaded = minductor.load(layer.path)
    with pytest.raises(WrongInput, match="it is on meta, and cpu was exported"):
        loaded(torch.ones(16, 8, device="meta"), torch.ones(16, 2))
    with pytest.raises(WrongInput, match="is 65, and 2 to 64"):
        loaded(*arguments(65))


# What the process that loads may not have.
BANNED = (
    *("torch._dynamo", "torch._functorch.aot_autograd", "torch._inductor", "sympy", "triton"),
    *(f"minductor.{name}" for name in ("driver", "frontend", "passes", "codegen", "api", "backends")),
)


def test_loading_needs_no_compiler(layer: Made) -> None:
    text = f"""
import ctypes, json, sys, torch, minductor
from pathlib import Path
from minductor.runtime.launch.cuda import Driver
from minductor.runtime.package import package_gpu
ours, torchs = {str(layer.gpu.library)!r}, str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
ours, torchs = map(ctypes.CDLL, (ours, torchs))
def find(name):
    found = getattr(ours, name, None) or getattr(torchs, name.replace("_cuda_", "_cpu_"))
    return ctypes.cast(found, ctypes.c_void_p).value
gpu = package_gpu.LocalGpu(torch.device("cpu"), (9, 0), Driver({str(layer.gpu.library)!r}), find)
package_gpu.local_gpu = lambda: gpu
minductor.load({str(layer.path)!r})(torch.ones(16, 8), torch.ones(16, 2))
print(json.dumps(sorted(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True, capture_output=True, text=True)
    assert [name for name in json.loads(ran.stdout) if name.startswith(BANNED)] == []


# --- hosts in C


KERNEL = """
#include "{driver}"
#include <cmath>
#include <cstdio>

// What the kernel of `Scaled` does; it tells which binary it is.
static void scale(const char* name, const unsigned long long* words, unsigned) {{
  std::fprintf(stderr, "binary %s\\n", name);
  const float* in = reinterpret_cast<const float*>(words[0]);
  const float* weight = reinterpret_cast<const float*>(words[1]);
  float* out = reinterpret_cast<float*>(words[2]);
  for (unsigned long long n = 0; n < words[3]; n++) out[n] = std::tanh(in[n]) * weight[0];
}}
__attribute__((constructor)) static void set() {{ run = scale; }}
"""


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.25]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * self.weight


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libraries that stand for the driver's and torch's, whose kernel computes in C++."""
    folder = tmp_path_factory.mktemp("libraries")
    unit = folder / "kernel.cpp"
    unit.write_text(KERNEL.format(driver=ROOT / "tests/runtime/fake_driver.cpp"))
    command = [*find_compiler(os.environ).command, "-shared", "-fPIC", str(unit), "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, check=True)
    shutil.copy(folder / "libcuda.so.1", folder / "libtorch_cuda.so")
    return folder


@pytest.fixture(scope="module")
def unpacked(layer: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a package of `Scaled`."""
    folder = tmp_path_factory.mktemp("scaled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minductor.driver.Compiler", lambda: layer.gpu.compiler(folder / "store"))
        shapes = ({0: Dim("n", min=2, max=1 << 40)},)
        minductor.export(Scaled(), (torch.randn(64),), folder / "a.zip", dynamic_shapes=shapes, target=TARGETS)
    assert unpack(folder / "a.zip", folder / "parts") == ("sm_80_kernels.so", "sm_90_kernels.so")
    return folder / "parts"


def call_from_c(host: Path, unpacked: Path, libraries: Path, x: Tensor, shift: int = 0) -> Any:
    (unpacked / "input").write_bytes(bytes(x.view(torch.uint8).numpy()))
    places = [str(unpacked / name) for name in ("sm_90_kernels.so", "constants.bin", "output")]
    torchs = Path(torch.__file__).parent / "lib"
    environ = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{torchs}", "HOST_SHIFT": str(shift)}
    words = ["6", "1", str(len(x)), str(unpacked / "input")]
    return subprocess.run([str(host), *places, *words], env=environ, capture_output=True, text=True, check=False)


def test_a_host_in_c_runs_it(layer: Made, host: Path, unpacked: Path, libraries: Path) -> None:
    """Another binary takes a pointer that is not aligned."""
    for size, shift in ((64, 0), (1000, 0), (64, 4)):
        x = torch.randn(size)
        ran = call_from_c(host, unpacked, libraries, x, shift)
        assert ran.returncode == 0, ran.stderr
        (number,) = {int(line.split()[1]) for line in ran.stderr.splitlines() if line.startswith("binary ")}
        assert (layer.gpu.compiled[number][2], layer.gpu.archs[number]) == (shift == 0, "90")
        found = torch.frombuffer(bytearray((unpacked / "output").read_bytes()), dtype=torch.float32)
        torch.testing.assert_close(found, torch.tanh(x) * 0.25)
    ran = call_from_c(host, unpacked, libraries, torch.randn(1))
    assert "1 is not among the sizes that were exported" in ran.stderr


def test_a_host_in_c_is_told_what_is_missing(host: Path, unpacked: Path, libraries: Path, tmp_path: Path) -> None:
    x, empty = torch.randn(64), tmp_path / "empty"
    empty.mkdir()
    if not torch.cuda.is_available():  # else the host finds torch's own library
        ran = call_from_c(host, unpacked, empty, x)
        assert ran.returncode == 2 and "minductor: aoti_torch_device_type_cuda: libtorch_cuda.so" in ran.stderr
    shutil.copytree(unpacked, tmp_path / "parts")
    (tmp_path / "parts" / "sm_90_cubins.bin").write_bytes(b"short")
    ran = call_from_c(host, tmp_path / "parts", libraries, x)
    assert ran.returncode == 2 and "sm_90_cubins.bin is missing or too short" in ran.stderr
    (tmp_path / "parts" / "sm_90_cubins.bin").write_bytes(bytes(1 << 16))
    ran = call_from_c(host, tmp_path / "parts", libraries, x)
    assert ran.returncode == 2
    assert "machine code in sm_90_cubins.bin, made with CUDA 12.8: device kernel image is invalid (200)" in ran.stderr
    if not torch.cuda.is_available():
        assert "the driver, of CUDA 12.8 for a GPU of compute capability 8.6, does not load" in ran.stderr


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_host(tmp_path_factory.mktemp("host"))


# --- making a package


def f(x: Tensor) -> Tensor:
    return torch.tanh(x) * 0.5


def rows_of(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a CPU and a GPU": ({"target": ("cpu", "sm_90")}, NotExportable, "not on both"),
    "AMD": ({"target": "gfx942"}, NotExportable, "runs on the CPU or on GPUs of NVIDIA"),
    "nobody": ({"target": ("sm_90", "sm_99")}, UnknownTarget, "sm_99"),
    "no name": ({"target": ()}, BadArgument, "the name of a target"),
    "a number": ({"target": 90}, BadArgument, "the name of a target"),
    "two answers": ({"target": "sm_80", "options": {"target": "sm_90"}}, BadArgument, "the target as an argument"),
    "a device": ({}, NotExportable, "it is on meta"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_target_is_refused(tmp_path: Path, what: str) -> None:
    how, kind, why = REFUSED[what]
    x = torch.ones(3, device="meta") if what == "a device" else torch.ones(3)
    with pytest.raises(kind, match=why):
        minductor.export(f, (x,), tmp_path / "a.zip", **how)


def test_what_cpp_has_no_form_for_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(NotExportable, match="cannot express the option nan_asserts on a GPU"):
        minductor.export(f, (torch.ones(3),), tmp_path / "a.zip", target="sm_90", options={"nan_asserts": True})


def test_attention_in_float64_is_not_exported(tmp_path: Path) -> None:
    q, attention = torch.randn(2, 3, 7, 16, dtype=torch.float64), torch.nn.functional.scaled_dot_product_attention
    with pytest.raises(NotExportable, match="attention in float64") as caught:
        minductor.export(attention, (q, q, q), tmp_path / "a.zip", target="sm_90")
    assert "export it in float32" in str(caught.value) and not (tmp_path / "a.zip").exists()


def test_a_package_has_the_launches_that_a_call_may_ask_for() -> None:
    """`Kernels` asks for no other one, whatever the sizes and the addresses."""
    kinds = {"in0": "*fp32", "n": "i32", INDEX_BITS: "constexpr"}
    plain = LaunchMetadata("a", kinds, ("n",), {INDEX_BITS: 32}, 4)
    narrow = replace(plain, symbol="b", greatest_index=("n", 4, "*"))
    launches = [plain, narrow, replace(narrow, symbol="c", multiples={"n": 16})]
    made = list(needed_launches(launches)), list(any_pointer_launches(launches))
    other = {launch.name for launch in made[0]}, {launch.name for launch in made[1]}
    assert other[0] == {"b INDEX_BITS=64", "c any sizes", "c INDEX_BITS=64"}
    assert other[1] == {"a", "b", "b INDEX_BITS=64", "c any sizes", "c INDEX_BITS=64"}
    asked: dict[str, set[str]] = {"aligned": set(), "any": set()}

    def files(role: str) -> Callable[[LaunchMetadata], dict[str, bytes]]:
        def give(launch: LaunchMetadata) -> dict[str, bytes]:
            asked[role].add(launch.name)
            facts = asdict(Binary(launch.symbol, 128, 0, is_aligned=role == "aligned"))
            return {
                cubin_name(launch.name): b"kernel 4" + launch.symbol.encode(),
                BINARIES: json.dumps({launch.name: facts}).encode(),
            }

        return give

    contents = {LAUNCHES: print_launches(launches).encode()}
    for launch in launches:
        contents |= {key: data for key, data in files("aligned")(launch).items() if key != BINARIES}
    rows = {launch.name: asdict(Binary(launch.symbol, 128, 0)) for launch in launches}
    contents[BINARIES] = json.dumps(rows).encode()
    asked["aligned"].clear()
    driver = _NoDriver("libm.so.6")
    kernels = Kernels(contents, driver, None, files("any"), files("aligned"))
    held = torch.zeros(8)
    for launch in launches:
        run = kernels.bind(launch.symbol)
        for x in (held, held[1:]):
            for n in (16, 17, 1 << 30):
                assert run(x, n, 0) == 0
    assert asked == {"aligned": other[0], "any": other[1]}


class _NoDriver(Driver):
    """Loads and launches nothing."""

    def load(self, binary: bytes, launch: Launch) -> int:
        return 1

    def _launch(self, symbol: str, kernel: int, launch: Launch, programs: int, words: Any, args: Any) -> None:
        pass


@pytest.mark.long
def test_triton_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """Each binary is machine code for its target."""
    shapes = ({0: Dim("rows", min=2, max=1 << 20), 1: Dim("columns", min=2, max=1 << 20)},)
    given = (torch.ones(8, 64),)
    made = minductor.export(rows_of, given, tmp_path / "a.zip", dynamic_shapes=shapes, target=TARGETS)
    entries = open_archive(tmp_path / "a.zip").entries
    for code in made.gpus:
        assert code.cuda.split(".")[0].isdecimal()
        rows = json.loads(bytes(entries[f"{code.target}_binaries.json"]))
        assert [{name.partition(" ")[2] for name in rows[role]} for role in rows] == [{"", "INDEX_BITS=64"}] * 2
        for role in rows.values():
            for row in role.values():
                binary = bytes(entries[f"{code.target}_cubins.bin"])[row["offset"] : row["offset"] + row["bytes"]]
                assert binary.startswith(b"\x7fELF") and code.target.encode() in binary


# --- faults

FAULTS: dict[str, Callable[[Made], None]] = {
    "package-oldest-code": check_results,
    "package-driver-unseen": check_old_driver,
    "package-any-pointers-aligned": check_results,
    "package-gpu-state-shared": check_weights,
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_noticed(layer: Made, fault: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            FAULTS[fault](layer)
        assert was_reached()


@pytest.mark.long
def test_code_for_one_processor_is_noticed(tmp_path: Path) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == "package-for-one-processor")
    with mutated(mutant) as was_reached:
        made = made_in(tmp_path)
        with pytest.raises(AssertionError):
            check_processor(made, tmp_path)
        assert was_reached()
