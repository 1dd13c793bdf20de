"""What the plugin costs a test beside compiling, running and the oracle's two eager runs.

    python benchmarks/plugin_overhead.py

Runs a suite of 24 tests that are counted, held against a golden and against a memory limit, and prints CPU milliseconds
of this process: of a whole test, and of it without the three runs, the first of which compiles.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pytest_plugin.oracle import reference_runs

SUITE = """
import pytest, torch
from pytest_plugin import at_most

@pytest.mark.parametrize("n", range(24))
@pytest.mark.counts(kernels=1)
@pytest.mark.memory(peak=at_most("inputs + output + 1 KiB"), leaks=0)
@pytest.mark.golden
def test_softmax(compiled, device, n):
    compiled(lambda x: torch.softmax(x * (n + 2), -1) + x, torch.randn(8, 100, device=device))
"""
WARM = 2  # tests that load what the others use


class Stopwatch:
    """A plugin that measures each test, and what of it the runs of programs take."""

    def __init__(self) -> None:
        self.running = 0.0
        self.tests: list[tuple[float, float]] = []

    def timed(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return run(*args, **kwargs)
            finally:
                self.running += time.process_time() - start

        return call

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.running, start = 0.0, time.process_time()
        result = yield
        self.tests.append((time.process_time() - start, self.running))
        return result


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_suite.py").write_text(SUITE, encoding="utf-8")
        common = [folder, f"--rootdir={folder}", "-q", "-n0", "-p", "no:cacheprovider", "-p", "pytest_plugin.plugin"]
        pytest.main([*common, "--golden=accept"])
        watch = Stopwatch()
        with mock.patch.object(reference_runs, "run_call", watch.timed(reference_runs.run_call)):
            assert pytest.main([*common, "--golden=check"], plugins=[watch]) == 0
    tests = [(1e3 * whole, 1e3 * (whole - running)) for whole, running in watch.tests[WARM:]]
    for name, values in zip(("a whole test", "beside the runs"), zip(*tests, strict=True), strict=True):
        middle = statistics.median(values)
        print(f"{name:<16} median {middle:6.1f} ms, least {min(values):6.1f}, most {max(values):6.1f}")


if __name__ == "__main__":
    main()
