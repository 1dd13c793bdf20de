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
