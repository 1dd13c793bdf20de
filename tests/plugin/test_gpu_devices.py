"""Devices without a machine of theirs: Triton's interpreter, and GPUs that are compiled for only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from pytest_plugin import at_most
from pytest_plugin.adapters import Facts, Graph
from pytest_plugin.adapters.minductor import triton_kernels_of
from pytest_plugin.devices.capabilities import NEEDS, Machine
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.devices.item_device import title_and_target
from pytest_plugin.oracle.accuracy import WrongResult
from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import NoNumbers
from pytest_plugin.oracle.run import Run as ARun
from pytest_plugin.vocabulary import CAPABILITIES
from tests.plugin.conftest import Run


@pytest.mark.devices("interpret", "compile:sm_90", "cpu")
@pytest.mark.counts(kernels=2, externs=0, block_accesses=6)
def test_one_program_on_three_devices(compiled: Compile, minductor_device: Device) -> None:
    run = compiled(lambda x: torch.softmax(F.gelu(x), -1), torch.randn(20, 33), grad=True)
    assert [graph.role for graph in run.graphs] == ["forward", "backward"]
    assert ('extern "C"' in run.kernels[0]) == (minductor_device.id == "cpu")
    assert ("@triton.jit" in run.kernels[0]) == (minductor_device.id != "cpu")
    if minductor_device.kind == "compile":
        assert all(".target sm_90" in made.text and made.binary.startswith(b"\x7fELF") for made in run.assembly)
        assert run.report.spills == 0
        assert run.report.registers == max(made.registers or 0 for made in run.assembly) > 0
        for number in ("out", "grads", "numerics"):
            with pytest.raises(NoNumbers, match="compile-only: no numbers"):
                getattr(run, number)
    else:
        assert run.out.shape == (20, 33) and list(run.grads) == ["args[0]"]
        assert run.assembly == () and run.report.registers is None
        assert [kind for kind, _ in run.events].count("launch") == 2


class Fixed:
    """A compiler whose results are eager's and 1."""

    name = "fixed"
    devices = ("interpret", "compile:sm_90")
    memory_options: Mapping[str, object] = {}

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def version(self) -> str:
        return "1"

    def session(self, folder: Path, device: Device) -> Fixed:
        return self

    def compile(self, fn: Any, options: Mapping[str, object], dynamic: bool | None) -> Any:
        return lambda *args: fn(*args) + 1

    def capture(self) -> Sequence[Graph]:
        if self.error:
            raise self.error
        return ()

    def fresh_store(self, folder: Path) -> Any:
        raise AssertionError("no test asks for it")


def test_numbers_count_in_the_interpreter_and_not_where_nothing_runs() -> None:
    def fixed(device: str) -> Compile:
        return Compile(Fixed(), Path, lambda run: None, Device(device))

    with pytest.raises(WrongResult, match="3 of 3 elements are wrong"):
        fixed("interpret")(torch.sin, torch.ones(3))
    assert fixed("compile:sm_90")(torch.sin, torch.ones(3)).results is None


def test_what_does_not_compile_fails_the_call() -> None:
    compiled = Compile(Fixed(error=SyntaxError("no such register")), Path, lambda run: None, Device("compile:sm_90"))
    with pytest.raises(SyntaxError, match="no such register"):
        compiled(torch.sin, torch.ones(3))


def test_registers_are_those_of_the_hungriest_kernel() -> None:
    both = Facts(registers=40, spills=8, kernels=1) + Facts(registers=30, spills=4, kernels=1)
    assert (both.registers, both.spills, both.kernels) == (40, 12, 2)
    assert (both + Facts()).registers is None


def test_a_helper_of_the_prelude_is_no_kernel() -> None:
    text = (
        "import triton\n\n\n@triton.jit\ndef md_sign(a):\n    return a\n\n\n@triton.jit\ndef k_0(x):\n    md_sign(x)\n"
    )
    (kernel,) = triton_kernels_of(text, ["k_0"])
    assert kernel.text == "@triton.jit\ndef k_0(x):\n    md_sign(x)\n" and kernel.language == "py"


SUITE = """
    import pytest

    @pytest.mark.devices("cuda")
    def test_gpu(device):
        pass

    @pytest.mark.devices("cpu", "cuda")
    def test_both(device):
        assert device.id == "cpu"

    @pytest.mark.devices("compile:sm_90", "compile:sm_80", min_arch="sm_90")
    def test_text(device):
        pass

    def test_any(device):
        pass
"""


def test_a_marker_names_devices(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SUITE)
    result = run("-v", "-rs")
    result.assert_outcomes(passed=2, skipped=3)
    result.stdout.fnmatch_lines(
        [
            "*::test_gpu[[]cuda[]] SKIPPED *",
            "*::test_both[[]cpu[]] PASSED*",
            "*::test_text[[]compile:sm_90[]] SKIPPED*",
            "*::test_any[[]cpu[]] PASSED*",
            "*this machine shows no GPU",
            "*the compiler takes cpu, cuda",
        ]
    )
    assert "sm_80" not in result.stdout.str()


@pytest.mark.parametrize(
    ("args", "environ", "outcomes"),
    [
        (("--minductor-device=cpu",), {}, {"passed": 2, "deselected": 2}),
        ((), {"RUN_GPU": "0"}, {"passed": 2, "skipped": 1, "deselected": 1}),
        ((), {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu"}, {"passed": 2, "skipped": 1, "deselected": 1}),
        pytest.param(("-n2",), {}, {"passed": 2, "skipped": 3}, marks=pytest.mark.long),
    ],
)
def test_settings_narrow_what_markers_name(
    pytester: pytest.Pytester,
    run: Run,
    args: tuple[str, ...],
    environ: dict[str, str],
    outcomes: dict[str, int],
) -> None:
    pytester.makepyfile(SUITE)
    run(*args, **environ).assert_outcomes(**outcomes)


def test_a_test_that_lost_all_its_devices_has_none() -> None:
    """pytest puts a value of its own into the place of a parameter that has no values."""
    callspec = SimpleNamespace(params={"minductor_device": pytest.HIDDEN_PARAM})
    item: Any = SimpleNamespace(nodeid="test_a.py::test_b[NOTSET-3]", callspec=callspec)
    assert title_and_target(item) == ("test_a.py::test_b[NOTSET-3]", "any")


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("devices('gpu')", "*'gpu' is no device; the devices are*"),
        ("devices()", "*devices names no device"),
        ("devices('cpu', arch='sm_90')", "*devices has no arch; it has min_arch"),
        ("devices('cuda', min_arch=90)", "*min_arch=90*an architecture is sm_80*"),
        ("needs('tritn')", "*needs has no tritn; there are triton, gpu,*"),
        ("needs(gpu=1, triton=2)", "*needs names no capability*"),
        ("needs()", "*needs names no capability*"),
    ],
)
def test_a_wrong_marker_is_a_usage_error(pytester: pytest.Pytester, run: Run, marker: str, says: str) -> None:
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.{marker}\ndef test_x(device):\n    pass")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])


def test_what_a_test_needs_is_the_reason_it_is_skipped_for(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.needs("triton", "big_gpu")
        def test_big():
            pass

        @pytest.mark.needs("triton")
        def test_small():
            pass
        """
    )
    result = run("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["lacks    1 test skipped: big_gpu: this machine shows no GPU"])


@pytest.mark.parametrize("marker", ["devices('cuda')", "needs('gpu')", "compilers('minductor')"])
def test_a_run_whose_tests_are_all_skipped_for_what_they_lack_is_not_green(
    pytester: pytest.Pytester, run: Run, marker: str
) -> None:
    skipped = f"import pytest\n\n@pytest.mark.{marker}\ndef test_x(device):\n    pass\n"
    pytester.makepyfile(skipped)
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        ["lacks    1 test skipped: *", "nothing ran: every test was skipped for something that it lacks"]
    )
    assert run("--collect-only").ret == 0
    pytester.makepyfile(f"{skipped}\ndef test_y():\n    pass\n")
    assert run().ret == 0


def test_capabilities() -> None:
    assert tuple(NEEDS) == CAPABILITIES
    hopper = {"arch": 90, "bytes": 1 << 36, "processors": 132, "count": 1}
    machine = Machine({"gpu": "", "chromium": ""}, hopper)
    assert [name for name in CAPABILITIES if machine.absence(name)] == ["two_gpus"]
    old = Machine({"gpu": ""}, {**hopper, "arch": 75, "processors": 30, "count": 2})
    assert old.absence("bf16") == "the GPU is sm_75; units for bfloat16 exist from sm_80 on"
    assert old.absence("big_gpu") == "the GPU has 30 multiprocessors, and not 68" and not old.absence("two_gpus")


@pytest.mark.parametrize("kernels", [0, 1])
def test_a_device_for_which_nothing_was_compiled_proves_nothing(kernels: int) -> None:
    from pytest_plugin.summary.evidence import Evidence

    graph = Graph("inference", (), facts=Facts(kernels=kernels))
    run = ARun(None, len, lambda: [graph])
    wrong = Evidence([run]).count_errors("test_x", Device("compile:sm_90"), {}, is_counted=False)
    assert wrong.startswith("nothing compiled") == (not kernels)
    declared = Evidence([run]).count_errors("test_x", Device("compile:sm_90"), {"kernels": at_most(1)}, is_counted=True)
    assert declared.startswith("nothing compiled") == (not kernels)


def test_each_worker_sees_one_gpu_before_anything_is_imported(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(Machine, "absence", lambda self, name: self.known.get(name, ""))
    monkeypatch.setattr(Machine, "gpu", lambda self: {"arch": 90, "count": 2})
    pytester.makeconftest("import os\n\nSEEN = os.environ.get('CUDA_VISIBLE_DEVICES')")
    pytester.makepyfile(
        """
        import os, pathlib, pytest
        from conftest import SEEN

        @pytest.mark.parametrize("n", range(4))
        def test_pinned(n, worker_id):
            assert SEEN == worker_id[2:]

        @pytest.mark.needs("two_gpus")
        def test_both():
            raise AssertionError
        """
    )
    result = run("-n2")
    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.fnmatch_lines(["lacks    1 test skipped: two_gpus: each worker sees one GPU"])


def test_goldens_of_a_gpu_are_those_of_its_architecture(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if this machine had an H100: workers take what the controller asked."""
    found = {"target": "sm_90", "arch": 90, "bytes": 1, "processors": 132, "count": 1}
    monkeypatch.setattr(Machine, "absence", lambda machine, name: machine.known.setdefault(name, ""))
    monkeypatch.setattr(Machine, "gpu", lambda machine: found)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.devices("cpu", "cuda")
        def test_on(device, golden):
            assert device.target == {"cpu": "cpu", "cuda": "sm_90"}[device.id]
            golden.text("words", device.id)
        """
    )
    run("--golden=accept").assert_outcomes(passed=2)
    assert sorted(path.parent.parent.name for path in pytester.path.rglob("*.words.txt")) == ["cpu", "sm_90"]
    run("--golden=check", "-n0").assert_outcomes(passed=2)


def test_workers_know_the_gpu_of_the_controller() -> None:
    machine = Machine()
    machine.take({"gpu": ""}, {"target": "sm_90", "arch": 90})
    assert machine.gpu()["target"] == "sm_90" and machine.absence("gpu") == ""


@pytest.mark.devices("cuda")
def test_a_gpu_is_given_the_text_of_its_named_target(compiled: Compile, minductor_device: Device) -> None:
    import minductor

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.gelu(x), -1) + x.sum(0)

    x = torch.randn(200, 300)
    run = compiled(fn, x.to(minductor_device))
    (graph,) = minductor.compile_only(fn, x, target=minductor_device.target).graphs
    assert all(kernel in graph.sources["kernels.py"] for kernel in run.kernels) and len(run.kernels) > 1
