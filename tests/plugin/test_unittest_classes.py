"""Classes of unittest get devices."""

import pytest

from tests.plugin.conftest import Run

SUITE = """
    import unittest

    import pytest

    class TestAnnotated(unittest.TestCase):
        device: str

        def test_device(self):
            self.assertEqual((self.device, self.device_type, self.device.id), ("cpu", "cpu", "cpu"))

        def test_wrong(self):
            self.assertEqual(self.device, "cuda")

    @pytest.mark.devices("cpu", "cuda")
    class TestMarked(unittest.TestCase):
        def setUp(self):
            self.ready = True

        def test_device(self):
            assert self.ready and self.device.id in ("cpu", "cuda")

    class TestPlain(unittest.TestCase):
        def test_plain(self):
            assert not hasattr(self, "device")
"""


def test_a_class_for_each_device(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_classes=SUITE)
    result = run("-v", "-rs")
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*::TestAnnotated?cpu?::test_device PASSED*",
            "*::TestAnnotated?cpu?::test_wrong FAILED*",
            "*::TestMarked?cpu?::test_device PASSED*",
            "*::TestMarked?cuda?::test_device SKIPPED*",
            "*::TestPlain::test_plain PASSED*",
        ]
    )
    run("-k", "TestMarked and cpu").assert_outcomes(passed=1, deselected=4)
    result = run(RUN_CPU="0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


METHODS = """
    import unittest

    import pytest

    class TestAnnotated(unittest.TestCase):
        device: str

        @pytest.mark.devices("cuda")
        def test_on_a_gpu(self):
            assert self.device.id == "cuda"

        @pytest.mark.devices("cpu", "cuda")
        def test_on_both(self):
            assert self.device.id in ("cpu", "cuda")

        def test_everywhere(self):
            assert self.device.id == "cpu"

    @pytest.mark.devices("cuda")
    class TestMarked(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            assert cls.device.id == "cpu"

        @pytest.mark.devices("cpu")
        def test_on_cpu(self):
            assert self.device.id == "cpu"

        def test_on_a_gpu(self):
            assert self.device.id == "cuda"

    class TestInherited(TestMarked):
        device: str

        def test_on_cpu(self):
            assert self.device.id == "cuda"

    class TestAlone(unittest.TestCase):
        device: str

        def runTest(self):
            assert self.device.id == "cpu"
"""


def test_a_method_is_run_on_the_devices_that_it_names_only(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(METHODS)
    result = run("-v", "-rs")
    told = [line.partition("::")[2].split() for line in result.stdout.lines if ".py::" in line]
    assert [f"{words[0]} {words[1]}" for words in told] == [
        "TestAnnotated[cpu]::test_everywhere PASSED",
        "TestAnnotated[cpu]::test_on_both PASSED",
        "TestAnnotated[cuda]::test_on_a_gpu SKIPPED",
        "TestAnnotated[cuda]::test_on_both SKIPPED",
        "TestMarked[cuda]::test_on_a_gpu SKIPPED",
        "TestMarked[cpu]::test_on_cpu PASSED",
        "TestInherited[cuda]::test_on_a_gpu SKIPPED",
        "TestInherited[cuda]::test_on_cpu SKIPPED",
        "TestAlone[cpu]::runTest PASSED",
    ]
    result.stdout.fnmatch_lines(["lacks    5 tests skipped: cuda: *"])
    run("--minductor-device=cpu").assert_outcomes(passed=4)
    run("-n2").assert_outcomes(passed=4, skipped=5)


MARKED = """
    import unittest

    import pytest

    class TestBase(unittest.TestCase):
        pytestmark = pytest.mark.devices("cuda")

    @pytest.mark.skipif(True, reason="the class is")
    class TestDerived(TestBase):
        def test_device(self):
            assert 0

    @pytest.mark.needs("two_gpus")
    @pytest.mark.devices("cpu")
    class TestNeeds(TestBase):
        def test_device(self):
            assert 0

    @pytest.mark.compilers("minductor")
    class TestOfAnother(unittest.TestCase):
        device: str

        def test_device(self):
            assert 0
"""


def test_markers_of_a_class_hold_for_each_device(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(MARKED)
    result = run("-rs", "-v")
    result.assert_outcomes(skipped=3)
    assert result.ret == pytest.ExitCode.USAGE_ERROR  # nothing ran
    for line in ("*::TestDerived?cuda?::*", "*::TestNeeds?cpu?::*", "*::TestOfAnother?cpu?::*"):
        result.stdout.fnmatch_lines([f"{line} SKIPPED*"])
    for why in ("the class is", "needs two_gpus: *", "needs compiler minductor: this is eager"):
        result.stdout.fnmatch_lines([f"SKIPPED *: {why}"])
    run("-m", "compilers").assert_outcomes(skipped=1, deselected=2)
