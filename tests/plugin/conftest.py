"""Suites of their own, in which the plugin is tested."""

import importlib
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.fixture(scope="session")
def loaded() -> None:
    """A run inside this process forgets the modules that it loads; torch must not be loaded twice."""
    import torch

    for module in ("adapters.eager", "oracle.compiled", "session", "plugin"):
        importlib.import_module(f"pytest_plugin.{module}")
    torch.compile(lambda x: x.sin() + 1, backend="eager", fullgraph=True)(torch.ones(2))
    torch.compiler.reset()


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, loaded: None) -> Run:
    """Runs pytest on the suite in `pytester` with the eager compiler; keywords are environment variables.

    The inner run sees no GPU, so that it has the same tests on every machine.
    """
    for name in ("CI", "RUN_CPU", "RUN_GPU", "PYTORCH_TESTING_DEVICE_ONLY_FOR", "PYTORCH_TESTING_DEVICE_EXCEPT_FOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pytest_plugin.devices.capabilities.GPU_FILES", ())
    pytester.makeini("[pytest]\naddopts = --compiler=eager -p no:randomly\n")

    def run(*args: str, **environ: str) -> pytest.RunResult:
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            return pytester.runpytest_inprocess(*args)

    return run
