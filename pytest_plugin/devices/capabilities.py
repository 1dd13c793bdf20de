"""What a machine can do, by the names that `@pytest.mark.needs(...)` takes, and why it cannot.

Takes the name of a capability. Gives the reason why it is absent, or an empty text. Refuses other names (ValueError).
What only torch knows about a GPU is asked once, in a process of its own, so that a test run touches no GPU that no test
uses.

>>> Machine({"gpu": "this machine shows no GPU"}).absence("big_gpu")
'this machine shows no GPU'
>>> Machine().misuse("tritn")
'needs has no tritn; it has triton, gpu, bf16, fp8, descriptors, big_gpu, two_gpus, cxx, chromium'
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

# The device files of GPUs on Linux: NVIDIA, AMD, and the Windows subsystem.
GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
QUESTION = """
import json, torch
found = {}
if torch.cuda.is_available():
    given = torch.cuda.get_device_properties(0)
    arch = 10 * given.major + given.minor
    name = getattr(given, "gcnArchName", "").partition(":")[0] if torch.version.hip else f"sm_{arch}"
    found = {"target": name, "arch": arch, "bytes": given.total_memory, "processors": given.multi_processor_count,
             "count": torch.cuda.device_count()}
print(json.dumps(found))
"""
BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "chrome")
BIG_GPU_MULTIPROCESSORS = 68  # a GPU with fewer is slower with the largest tiles


@dataclass(slots=True)
class Machine:
    """The answers so far: by capability, the reason why it is absent, or an empty text."""

    known: dict[str, str] = field(default_factory=dict[str, str])
    _gpu: dict[str, Any] | None = None

    def misuse(self, name: object) -> str:
        """Returns what is wrong with the name of a capability, or an empty text."""
        return "" if name in NEEDS else f"needs has no {name}; it has {', '.join(NEEDS)}"

    def absence(self, name: str) -> str:
        """Returns why a capability is absent, or an empty text. Raises ValueError for an unknown name."""
        if why := self.misuse(name):
            raise ValueError(why)
        if name not in self.known:
            without = self.absence("gpu") if name in OF_GPU else ""
            self.known[name] = without or NEEDS[name](self)
        return self.known[name]

    def gpu(self) -> Mapping[str, Any]:
        """Returns the first GPU's target, architecture, memory and multiprocessors, and the number of GPUs.

        The mapping is empty if torch sees no GPU.
        """
        if self._gpu is None:
            done = subprocess.run([sys.executable, "-c", QUESTION], capture_output=True, text=True, check=False)
            try:
                self._gpu = json.loads(done.stdout.splitlines()[-1])
            except (IndexError, ValueError):
                self._gpu = {}
        return self._gpu or {}

    def take(self, known: Mapping[str, str], gpu: Mapping[str, Any]) -> None:
        """Takes the answers that another process has."""
        self.known.update(known)
        self._gpu = dict(gpu) if gpu else None


def _gpu(machine: Machine) -> str:
    """Asks torch only if the system has a device file of a GPU."""
    if sys.platform == "linux" and not any(Path(file).exists() for file in GPU_FILES):
        return "this machine shows no GPU"
    return "" if machine.gpu() else "torch sees no GPU"


def _triton(machine: Machine) -> str:
    del machine
    return "" if importlib.util.find_spec("triton") else "triton is not installed"


def _cxx(machine: Machine) -> str:
    del machine
    return "" if shutil.which("g++") or shutil.which("clang++") else "no C++ compiler is on the path"


def _chromium(machine: Machine) -> str:
    del machine
    return "" if any(map(shutil.which, BROWSERS)) else f"none of {', '.join(BROWSERS)} is on the path"


def _needs_arch(least: int, what: str) -> Callable[[Machine], str]:
    def absence(machine: Machine) -> str:
        found = machine.gpu()["arch"]
        return "" if found >= least else f"the GPU is sm_{found}; {what} exist from sm_{least} on"

    return absence


def _big_gpu(machine: Machine) -> str:
    found = machine.gpu()["processors"]
    return (
        ""
        if found >= BIG_GPU_MULTIPROCESSORS
        else f"the GPU has {found} multiprocessors, and not {BIG_GPU_MULTIPROCESSORS}"
    )


def _two_gpus(machine: Machine) -> str:
    return "" if machine.gpu()["count"] > 1 else "there is one GPU"


NEEDS: Mapping[str, Callable[[Machine], Any]] = MappingProxyType(
    {
        "triton": _triton,
        "gpu": _gpu,
        "bf16": _needs_arch(80, "units for bfloat16"),
        "fp8": _needs_arch(89, "units for 8-bit floats"),
        "descriptors": _needs_arch(90, "tensor descriptors"),
        "big_gpu": _big_gpu,
        "two_gpus": _two_gpus,
        "cxx": _cxx,
        "chromium": _chromium,
    }
)
OF_GPU = ("bf16", "fp8", "descriptors", "big_gpu", "two_gpus")
