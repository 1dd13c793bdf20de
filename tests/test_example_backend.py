"""The example backend as a package of its own: installed, found, and under the tests that take a device.

In a process of its own: the device stays with torch for as long as that runs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "tests" / "example_backend"
OWN = "tests/example_backend/suite.py"
SOME = ["tests/e2e/test_pointwise.py::test_views_and_functions[toy-output view]"]
ALL = [f"tests/e2e/test_{name}.py" for name in ("dynamic", "mutation", "pointwise", "reduce")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as pip installs it; pip writes beside the sources, so it is given a copy."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", folder / "site", folder / "source"], check=True)
    return folder / "site"


def run_on_toy(installed: Path, *tests: str) -> str:
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # where the plugin may be installed
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, installed, *inherited)))}
    for name in ("CI", "RUN_CPU", "RUN_GPU"):
        environ.pop(name, None)
    settings = [
        "-n0",
        "--golden=off",
        "--minductor-device=toy",
        "-o",
        f"expected_failures={EXAMPLE.relative_to(ROOT)}/expected.toml",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", *settings, *tests]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_example_backend(installed: Path) -> None:
    assert f"ran      {len(SOME)} test on toy: " in run_on_toy(installed, OWN, *SOME)


@pytest.mark.long
def test_the_suite_on_the_example_backend(installed: Path) -> None:
    assert " tests on toy: " in run_on_toy(installed, *ALL)
