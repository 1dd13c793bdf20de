"""Which tests run: other compilers, known failures, PyTorch's device classes, devices that a compiler brings."""

from collections.abc import Mapping, Sequence

import pytest

from minductor.backends import API_VERSION, Backend, register_backend, unregister_backend
from minductor.core.errors import BackendError
from minductor.target import Target
from pytest_plugin.adapters.eager import Eager
from pytest_plugin.adapters.minductor import Minductor
from tests.plugin.conftest import Run

COMPILERS = """
    import pytest
    from pytest_plugin import xfail

    @pytest.mark.compilers("eager", "minductor")
    def test_for_it(compiler):
        assert compiler.name == "eager"

    @pytest.mark.compilers("minductor")
    def test_for_another():
        raise AssertionError

    @pytest.mark.compilers("minductor", eager=xfail("it counts nothing", says="no kernels"))
    @pytest.mark.parametrize("said", ["no kernels here", "a typing error"])
    def test_known(said):
        raise AssertionError(said)

    @pytest.mark.compilers(eager=xfail("it was so"))
    def test_mended():
        pass
"""


def test_a_marker_says_which_compilers_a_test_is_for(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(COMPILERS)
    result = run("-rsx")
    result.assert_outcomes(passed=1, skipped=1, xfailed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "the failure was expected to contain 'no kernels'; it is",
            "*XPASS(strict)* it was so*",
            "lacks    1 test skipped: compiler minductor: this is eager",
        ]
    )


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("compilers('gcc')", "*::test_x: compilers has no gcc; there are minductor, inductor, eager*"),
        ("compilers()", "*::test_x: compilers names no compiler*"),
        ("compilers(eager='why')", "*::test_x: compilers(eager='why'): declare xfail('the reason')"),
    ],
)
def test_a_wrong_marker_is_a_usage_error(pytester: pytest.Pytester, run: Run, marker: str, says: str) -> None:
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.{marker}\ndef test_x():\n    pass")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])


KNOWN = """
    import pytest

    def test_wrong(device):
        assert device == "cuda"

    @pytest.mark.parametrize("n", [1, 2])
    def test_one(device, n):
        assert n == 1

    @pytest.mark.devices("cpu")
    def test_on_cpu(device):
        assert False

    def test_host():
        raise ValueError("lost")
"""
ROWS = """
[[failure]]
test = "test_known.py::test_wrong"
device = "cpu"
reason = "of no concern"

[[failure]]
test = "test_known.py::test_one[2]"
reason = "two is not one"
says = "assert 2 == 1"

[[failure]]
test = "test_known.py::test_on_cpu"
reason = "never"

[[failure]]
test = "test_known.py::test_host"
compiler = "inductor"
reason = "another compiler's"
"""


@pytest.fixture
def known(pytester: pytest.Pytester, run: Run) -> pytest.Pytester:
    pytester.makepyfile(test_known=KNOWN)
    pytester.makeini("[pytest]\naddopts = --compiler=eager\nexpected_failures = known.toml")
    (pytester.path / "known.toml").write_text(ROWS)
    return pytester


def test_known_failures_are_data(known: pytest.Pytester, run: Run) -> None:
    row = '[[failure]]\ntest = "test_known.py::test_on_cpu"\ndevice = "cuda"\nreason = "never"\n'
    (known.path / "known.toml").write_text(ROWS + row)
    result = run("-v")
    result.assert_outcomes(xfailed=3, passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_host FAILED*"])
    assert "unused" not in result.stdout.str()  # there is no cuda that it could run on


def test_a_row_that_is_out_of_date_is_told(known: pytest.Pytester, run: Run) -> None:
    known.makepyfile(test_known=KNOWN.replace("n == 1", "True"))
    run("-k", "one").assert_outcomes(passed=1, failed=1, deselected=3)
    row = '[[failure]]\ntest = "test_known.py::test_on_cpu"\ndevice = "cpu"\nreason = "never"\n'
    (known.path / "known.toml").write_text(row)
    known.makepyfile(test_known=KNOWN.replace('"cpu"', '"cuda"'))
    result = run("-n2")
    result.stdout.fnmatch_lines(
        ["unused   test_known.py::test_on_cpu on cpu: a failure is expected, but the test does not run there"]
    )


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("[[failure]]\ntest = 'test_known.py::test_x'\nreason = 'y'", "*expected of test_known.py::test_x, and there*"),
        ("[[failure]]\ntest = 'test_gone.py::test_x'\nreason = 'y'", "*expected of test_gone.py::test_x, and there*"),
        ("[[failure]]\ntest = 'test_known.py::test_one'", "*known.toml: row 1 has no reason*"),
        ("[[failure]]\ntest = 'a'\nreason = 'y'\nstrict = false", "*row 1: strict = False; a row has texts: test,*"),
        ("[[failure]]\ntest = 'a'\nreason = 'y'\ndevice = 'npu'", "*the device 'npu'; eager takes cpu, cuda*"),
        ("[[failure]]\ntest = 'a'\nreason = 'y'\ncompiler = 'gcc'", "*the compiler 'gcc'; there are minductor,*"),
        ("[[failures]]\ntest = 'a'", "*the file has tables [[][[]failure]] and nothing else*"),
        ("[[failure]", "*known.toml: *"),
    ],
)
def test_a_wrong_row_is_a_usage_error(known: pytest.Pytester, run: Run, rows: str, says: str) -> None:
    (known.path / "known.toml").write_text(rows)
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])


def test_a_run_of_one_test_takes_no_other_for_gone(known: pytest.Pytester, run: Run) -> None:
    run("test_known.py::test_wrong").assert_outcomes(xfailed=1)


TORCH = """
    from torch.testing._internal.common_device_type import (
        dtypes, expectedFailureCUDA, instantiate_device_type_tests, onlyCPU, onlyCUDA, skipCPUIf, skipCUDAIf,
    )
    from torch.testing._internal.common_utils import TestCase
    import torch

    class TestTorch(TestCase):
        @dtypes(torch.float32, torch.int64)
        def test_sum(self, device, dtype):
            self.assertEqual(torch.ones(2, device=device, dtype=dtype).sum(), 2)

        @skipCUDAIf(True, "not there")
        @expectedFailureCUDA
        def test_skipped_elsewhere(self, device):
            self.assertEqual(self.device_type, "cpu")

        @skipCPUIf(True, "not here")
        def test_skipped(self, device):
            raise AssertionError

        @onlyCUDA
        def test_of_cuda(self, device):
            raise AssertionError

        @onlyCPU
        def test_of_cpu(self, device):
            self.assertEqual(device, "cpu")

    instantiate_device_type_tests(TestTorch, globals())
"""


def test_torchs_device_classes_run_unchanged_on_the_chosen_devices(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_torch=TORCH)
    result = run("-v", "-k", "CPU")
    result.assert_outcomes(passed=4, skipped=2, deselected=result.parseoutcomes().get("deselected", 0))
    result.stdout.fnmatch_lines(["*test_skipped_cpu SKIPPED (not here)*", "*::test_sum_cpu_float32 PASSED*"])
    for settings in ({"RUN_CPU": "0"}, {"RUN_GPU": "1"}):
        assert run(**settings).ret == pytest.ExitCode.USAGE_ERROR
    result = run("--collect-only", PYTORCH_TESTING_DEVICE_EXCEPT_FOR="cuda")
    assert "TestTorchCPU" in result.stdout.str() and "TestTorchCUDA" not in result.stdout.str()


def test_nothing_left_to_run_is_a_usage_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.devices('cuda')\ndef test_x(device):\n    pass")
    result = run("--minductor-device=cpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no test is left to run: 1 test for devices that the settings leave out"])


class Brings(Eager):
    devices = ("cpu", "toy", "far")
    torch_devices: Mapping[str, str] = {"toy": "cpu", "far": "npu"}
    capabilities: Mapping[str, Sequence[str]] = {"toy": ("wheels",)}

    def absence(self, id: str) -> str:
        return "it is far away" if id == "far" else ""


def test_an_adapter_brings_devices(pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_plugin.session.find_adapter", lambda name: Brings())
    pytester.makepyfile(
        """
        import pytest, torch

        def test_on(compiled, device):
            compiled(lambda x: x + 1, torch.ones(3, device=device))

        @pytest.mark.devices("toy", "far")
        def test_named(device):
            assert (device, device.id, device.target) == ("cpu", "toy", "toy")

        @pytest.mark.devices("toy")
        @pytest.mark.needs("wheels")
        def test_rolls(device):
            pass

        @pytest.mark.devices("toy")
        @pytest.mark.needs("fp8")
        def test_counts(device):
            pass
        """
    )
    result = run("-v")
    result.assert_outcomes(passed=4, skipped=2)
    result.stdout.fnmatch_lines(["*test_on?cpu? PASSED*", "*test_on?toy? PASSED*", "*test_named?toy? PASSED*"])
    result.stdout.fnmatch_lines(["ran      1 test on cpu, 1 test on toy: *", "lacks *skipped: far: it is far away"])
    result.stdout.fnmatch_lines(["lacks *skipped: fp8: toy has wheels"])
    run("--minductor-device=toy").assert_outcomes(passed=3, skipped=1)
    run(PYTORCH_TESTING_DEVICE_ONLY_FOR="npu").stderr.fnmatch_lines(["*no device is left*far (it is far away)*"])
    result = run("--minductor-device=boat")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_registered_backend_is_a_device() -> None:
    def absent() -> str:
        raise BackendError("no toy is plugged in")

    target = Target("toy_1", "toy", device="toybox")
    parts = {"probe": absent, "kernels": len, "build": len, "load": len, "launch": len}
    register_backend(Backend(kind="toy", api_version=API_VERSION, targets=(target,), **parts))
    try:
        adapter = Minductor()
        assert adapter.devices[-1] == "toy" and adapter.torch_devices == {"toy": "toybox"}
        assert "no toy is plugged in" in adapter.absence("toy")
    finally:
        unregister_backend("toy")
    assert "toy" not in Minductor().devices


def test_how_far_numbers_may_be_off(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import torch

        def test_off(check_accuracy):
            check_accuracy(torch.tensor([1.0 + 2**-20]), torch.ones(1), torch.ones(1, dtype=torch.float64))
        """
    )
    run().assert_outcomes(failed=1)
    ini = "[pytest]\naddopts = --compiler=eager\nminductor_devices = cpu\nnumeric_policy = {}"
    pytester.makeini(ini.format("ulps=8"))
    result = run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["minductor: compiler eager, devices cpu, goldens: new, ulps=8"])
    pytester.makeini(ini.format("atol=8"))
    assert run().ret == pytest.ExitCode.USAGE_ERROR
