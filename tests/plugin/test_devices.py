"""Which devices a run gets: the rules, and what pytest makes of them."""

import pytest

from pytest_plugin.devices.device_choice import Device, DeviceChoice, DeviceSettings, Misuse, choose_devices, torch_type
from tests.plugin.conftest import Run

ABSENT, PRESENT = "no GPU here", ""


def chosen(
    gpu: str = ABSENT, kinds: tuple[str, ...] = ("cpu", "cuda", "interpret", "compile:sm_90"), **settings: object
) -> DeviceChoice:
    known = {id: torch_type(id) for id in kinds}
    return choose_devices(DeviceSettings(**settings), known, lambda id: gpu if id == "cuda" else "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gpu", "settings", "devices"),
    [
        (ABSENT, {}, ("cpu",)),
        (PRESENT, {}, ("cpu", "cuda")),
        (PRESENT, {"run_gpu": "0"}, ("cpu",)),
        (PRESENT, {"run_cpu": "0"}, ("cuda",)),
        (PRESENT, {"run_gpu": "1", "run_cpu": "1"}, ("cpu", "cuda")),
        (ABSENT, {"run_cpu": "1"}, ("cpu",)),
        (ABSENT, {"run_cpu": ""}, ("cpu",)),
        (PRESENT, {"only_for": " cpu "}, ("cpu",)),
        (PRESENT, {"only_for": "cpu, cuda"}, ("cpu", "cuda")),
        (PRESENT, {"only_for": ""}, ("cpu", "cuda")),
        (PRESENT, {"except_for": "cpu"}, ("cuda",)),
        (PRESENT, {"only_for": "cpu,cuda", "except_for": "cuda"}, ("cpu",)),
        (PRESENT, {"option": "cuda"}, ("cuda",)),
        (PRESENT, {"option": " cuda , cpu"}, ("cuda", "cpu")),
        (PRESENT, {"option": "cpu", "run_gpu": "1"}, ("cpu",)),
        (PRESENT, {"option": "cpu", "only_for": "cuda"}, ("cpu",)),
        (PRESENT, {"option": "cpu,cuda", "except_for": "cpu"}, ("cpu", "cuda")),
        (PRESENT, {"option": "cpu", "only_for": "cpu", "run_gpu": "1"}, ("cpu",)),
        (ABSENT, {"option": "interpret,compile:sm_90"}, ("interpret", "compile:sm_90")),
        (ABSENT, {"option": "interpret,compile:sm_90,cpu", "only_for": "cpu"}, ("interpret", "compile:sm_90", "cpu")),
        (PRESENT, {"option": "interpret,cuda", "run_cpu": "0"}, ("cuda",)),
        (ABSENT, {"ini": ("cpu", "cuda", "interpret")}, ("cpu", "interpret")),
        (ABSENT, {"ini": ("interpret",), "option": "cpu"}, ("cpu",)),
    ],
)
def test_choice(gpu: str, settings: dict[str, object], devices: tuple[str, ...]) -> None:
    assert chosen(gpu, **settings).devices == devices


@pytest.mark.parametrize(
    ("gpu", "settings", "says"),
    [
        (ABSENT, {"run_gpu": "1"}, "RUN_GPU=1 requires cuda.*no GPU here"),
        (PRESENT, {"run_gpu": "1", "kinds": ("cpu",)}, "RUN_GPU=1 requires cuda.*takes cpu"),
        (PRESENT, {"run_gpu": "yes"}, "RUN_GPU='yes'"),
        (
            PRESENT,
            {"run_gpu": "1", "only_for": "cpu"},
            "RUN_GPU=1 requires cuda, which PYTORCH_TESTING_DEVICE_ONLY_FOR",
        ),
        (ABSENT, {"run_gpu": "1", "option": "cpu"}, "RUN_GPU=1 requires cuda.*no GPU here"),
        (ABSENT, {"option": "cpu", "only_for": "gpu"}, "ONLY_FOR names 'gpu'"),
        (ABSENT, {"run_cpu": "0"}, "no device is left.*RUN_CPU=0.*no GPU here"),
        (ABSENT, {"option": "cuda"}, "--minductor-device names cuda.*no GPU here"),
        (ABSENT, {"option": "interpret", "kinds": ("cpu",)}, "names interpret.*takes cpu"),
        (ABSENT, {"option": "compile:sm_91"}, "names compile:sm_91.*takes cpu, cuda, interpret, compile:sm_90"),
        (ABSENT, {"option": "gpu"}, "'gpu' is no device"),
        (ABSENT, {"option": "cpu,,cuda"}, "an empty name"),
        (ABSENT, {"option": "compile"}, "'compile' is no device"),
        (ABSENT, {"option": "cpu:"}, "'cpu:' is no device"),
        (ABSENT, {"ini": ("cqu",)}, "'cqu' is no device"),
        (PRESENT, {"only_for": "gpu"}, "ONLY_FOR names 'gpu'"),
        (PRESENT, {"except_for": "cpu,cuda"}, "no device is left"),
    ],
)
def test_misuse(gpu: str, settings: dict[str, object], says: str) -> None:
    with pytest.raises(Misuse, match=says):
        chosen(gpu, **settings)


def test_missing_devices_have_reasons() -> None:
    choice = chosen(PRESENT, run_gpu="0", kinds=("cpu", "cuda"))
    assert choice.missing == (("cuda", "RUN_GPU=0"),)


def test_a_device_is_its_torch_name() -> None:
    device = Device("compile:sm_90")
    assert (device, device.id, device.kind, device.target) == ("cpu", "compile:sm_90", "compile", "sm_90")
    assert (Device("cuda"), Device("interpret"), Device("cpu").target) == ("cuda", "cpu", "cpu")


SUITE = """
    def test_on(device):
        assert device == "cpu"

    def test_host():
        pass
"""


def test_ids_open_with_the_device(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("n", [4])
        def test_on(n, device, minductor_device):
            assert device is minductor_device
        """
    )
    result = run("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_on?cpu-4? PASSED*"])


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"RUN_GPU": "1"}, "*ERROR: RUN_GPU=1 requires cuda*"),
        ({"RUN_CPU": "0"}, "*ERROR: no device is left*"),
        ({"PYTORCH_TESTING_DEVICE_ONLY_FOR": "gpu"}, "*ERROR: PYTORCH_TESTING_DEVICE_ONLY_FOR names 'gpu'*"),
    ],
)
def test_misuse_is_a_usage_error(
    pytester: pytest.Pytester, run: Run, workers: str, environ: dict[str, str], says: str
) -> None:
    if workers == "-n2" and "RUN_GPU" not in environ:
        return  # the way through the workers is the same for every text
    pytester.makepyfile(SUITE)
    result = run(workers, **environ)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "passed" not in result.stdout.str()
    (result.stdout if workers == "-n2" else result.stderr).fnmatch_lines([says])


def test_a_suite_that_asks_for_no_device_is_left_alone(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_host():\n    pass")
    result = run(RUN_GPU="1", RUN_CPU="0")
    result.assert_outcomes(passed=1)
    assert "minductor:" not in result.stdout.str() and "= minductor =" not in result.stdout.str()


def test_a_wrong_option_is_refused_at_once(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_host():\n    pass")
    result = run("--minductor-device=cqu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'cqu' is no device; the devices are cpu, interpret, cuda and compile:<target>"])


def test_header_says_what_is_missing_and_why(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SUITE)
    result = run(RUN_GPU="0")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["minductor: compiler eager, devices cpu; no cuda: RUN_GPU=0, goldens: new"])


def test_the_summary_says_what_was_required_and_proved(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        @pytest.mark.must_fail_under("fusion-off")
        @pytest.mark.deterministic(runs=2)
        def test_on(compiled):
            compiled(lambda x: x + 1, torch.ones(3))
        """
    )
    result = run(RUN_CPU="1")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "required cpu (RUN_CPU=1)",
            "ran      1 test on cpu: 1 graph, 1 kernel launched, 0 externs called",
            "checked  numeric 1, counts 0, repeats 1",
            "unproved 1 test: the compiler under test has no table of faults",
        ]
    )


def test_ini_names_devices(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\nminductor_devices = cpu interpret\naddopts = --compiler=eager")
    result = run("-v")
    result.stdout.fnmatch_lines(["minductor: *devices cpu; no interpret: the compiler takes cpu, cuda*"])
    result.assert_outcomes(passed=2)


def test_the_option_wins_over_the_variables_of_pytorch(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_on(device):
            assert device == "cpu"

        @pytest.mark.devices("cpu", "cuda")
        def test_marked(device):
            assert device == "cpu"
        """
    )
    result = run("--minductor-device=cpu", "-v", PYTORCH_TESTING_DEVICE_ONLY_FOR="cuda")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_on?cpu? PASSED*", "*test_marked?cpu? PASSED*"])
    assert run(PYTORCH_TESTING_DEVICE_ONLY_FOR="cuda").ret == pytest.ExitCode.USAGE_ERROR
    result = run("-k", "marked", RUN_GPU="yes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: RUN_GPU='yes': unset is 'if it is there', 0 is never, 1 is required"])


SKIPPED = """
    import unittest

    import pytest
    from pytest_plugin import skip_on

    @pytest.mark.skip_on("cuda", "cpu", reason="no float64")
    def test_marked(device):
        assert 0

    @pytest.mark.skip_on("cpu", "no float32")
    def test_marked_with_two_words(device):
        assert 0

    @skip_on("cpu", "slow there")
    def test_decorated(compiled):
        assert 0

    @skip_on("cuda", "slow there")
    def test_elsewhere(device):
        assert device.id == "cpu"

    @skip_on("cpu", reason="not yet")
    class TestPlain:
        def test_in_a_class(self, device):
            assert 0

        def test_without_device(self):
            pass

    @skip_on("cpu", "not yet")
    class TestUnit(unittest.TestCase):
        device: str

        def test_unit(self):
            assert 0

    class TestMethods(unittest.TestCase):
        device: str

        @skip_on("cpu", "this one")
        def test_skipped(self):
            assert 0

        @skip_on("cuda", "this one")
        def test_runs(self):
            assert self.device.id == "cpu"
"""


def test_a_test_is_skipped_on_a_device_with_the_reason(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SKIPPED)
    result = run("-rs", "-v")
    result.assert_outcomes(passed=3, skipped=6)
    result.stdout.fnmatch_lines(["*::TestMethods?cpu?::test_skipped SKIPPED*"])
    for why in ("no float64", "no float32", "slow there", "not yet", "this one"):
        result.stdout.fnmatch_lines([f"SKIPPED *: not on cpu: {why}"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@pytest.mark.skip_on('gpu', reason='x')\ndef test_x(device): pass", "*skip_on: 'gpu' is no device; the *"),
        ("@pytest.mark.skip_on('cpu')\ndef test_x(device): pass", "*skip_on takes the reason: skip_on('cpu', reason=*"),
        ("@pytest.mark.skip_on('cpu', 'cuda')\ndef test_x(device): pass", "*skip_on takes the reason: *"),
        ("@pytest.mark.skip_on('gpu', 'why')\ndef test_x(device): pass", "*skip_on: 'gpu' is no device; *"),
        ("@skip_on('cpu', ' ')\ndef test_x(device): pass", "*skip_on takes the reason*"),
        ("@pytest.mark.skip_on(reason='x')\ndef test_x(device): pass", "*skip_on names no device"),
        ("@pytest.mark.skip_on('cpu', why='x')\ndef test_x(device): pass", "*skip_on has no why; it has reason"),
        (
            "@skip_on('cpu', 'x')\ndef test_x(): pass",
            "*skip_on on a test that asks for no device: a function requests *",
        ),
        ("@pytest.mark.devices('cpu')\ndef test_x(): pass", "*devices on a test that asks for no device: *"),
        (
            "class TestX(unittest.TestCase):\n    @pytest.mark.devices('cpu')\n    def test_x(self): pass",
            "*devices on a test that asks for no device: *a unittest class has the annotation `device: str`",
        ),
    ],
)
def test_markers_that_cannot_be_followed(pytester: pytest.Pytester, run: Run, text: str, says: str) -> None:
    pytester.makepyfile(f"import unittest\nimport pytest\nfrom pytest_plugin import skip_on\n\n{text}")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])
