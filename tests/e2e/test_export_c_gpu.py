"""A package that was made for GPUs on the CPU runs on a GPU, from a host in C."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

import minductor
from minductor.__main__ import main
from minductor.runtime.launch.cuda import target_of
from pytest_plugin.devices.device_choice import Device
from tests.e2e.hosts import build_host

pytestmark = pytest.mark.devices("cuda")
FLOAT32 = "6"  # of minductor.h


class Layer(nn.Module):
    """A product by the library, kernels of ours, and an operator of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(64, 96), nn.LayerNorm(96)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sort(F.gelu(self.norm(self.first(x))), -1)[0].sum(0)


def test_a_host_in_c_runs_a_package_on_the_gpu(device: Device, tmp_path: Path) -> None:
    here, model = target_of(str(device)), Layer()
    assert here is not None
    targets = tuple(dict.fromkeys(("sm_80", here.name)))
    shapes = ({0: Dim("rows", min=2, max=256)},)
    minductor.export(model, (torch.randn(8, 64),), tmp_path / "a.zip", dynamic_shapes=shapes, target=targets)
    assert main(["unpack", str(tmp_path / "a.zip"), str(tmp_path / "parts")]) == 0
    host = build_host(tmp_path)
    eager = model.to(device)
    places = [str(tmp_path / name) for name in (f"parts/{here.name}_kernels.so", "parts/constants.bin", "output")]
    environ = {**os.environ, "LD_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib"), "HOST_GPU": "1"}
    for rows, shift in ((8, 0), (5, 4), (256, 0)):
        x = torch.randn(rows, 64)
        (tmp_path / "input").write_bytes(bytes(x.view(-1).view(torch.uint8).numpy()))
        words = [FLOAT32, "2", str(rows), "64", str(tmp_path / "input")]
        given = {**environ, "HOST_SHIFT": str(shift)}
        ran = subprocess.run([str(host), *places, *words], env=given, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        found = torch.frombuffer(bytearray((tmp_path / "output").read_bytes()), dtype=torch.float32)
        torch.testing.assert_close(found, eager(x.to(device)).detach().cpu(), rtol=1e-3, atol=1e-3)
