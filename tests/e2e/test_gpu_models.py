"""The benchmark's cases as GPU kernels: small ones beside float64 in Triton's interpreter, and compiled for a GPU.

On a machine with a GPU they run there too.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from minductor.bench import micro, models
from pytest_plugin import at_least
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle.compiled import Compile
from tests.e2e.test_models import Step

QUICK = ("layer_norm_gelu", "softmax_causal", "cross_entropy_backward")
# sizes that are more than a small size says: a row that no program holds, and rows that fill several programs
SIZES = {16384: 5461, 65536: 96}


def small(given: Tensor) -> Tensor:
    """The same tensor with few elements; equal sizes stay equal."""
    places = tuple(slice(0, n if n <= 64 else SIZES.get(n, 40 + n % 23)) for n in given.shape)
    return given[places].clone() if given.is_floating_point() or given.dtype == torch.bool else given[places] % 40


def few(name: str) -> pytest.param:
    return pytest.param(name, marks=() if name in QUICK else pytest.mark.long)


@pytest.mark.devices("interpret", "cuda")
@pytest.mark.parametrize("name", [few(name) for name in micro.CASES])
@pytest.mark.counts(kernels=at_least(1), externs=0)
def test_micro_case(compiled: Compile, device: Device, name: str) -> None:
    case = micro.CASES[name]
    given = [small(x).to(device) for x in case.inputs()]
    assert all(x.numel() for x in given)
    compiled(case.fn, *given, grad=case.backward)


@pytest.mark.long
@pytest.mark.devices("interpret", "compile:sm_90", "cuda")
@pytest.mark.parametrize("name", models.NAMES)
@pytest.mark.counts(kernels=at_least(3))
def test_inference(compiled: Compile, device: Device, name: str) -> None:
    workload = models.make(name, size="tiny")
    compiled(workload.module.eval().to(device), *(x.to(device) for x in workload.inputs))


@pytest.mark.long
@pytest.mark.devices("interpret", "compile:sm_90")
@pytest.mark.parametrize("name", models.NAMES)
@pytest.mark.counts(kernels=at_least(10))
def test_training(compiled: Compile, name: str) -> None:
    workload = models.make(name, size="tiny")
    run = compiled(Step(workload), *workload.inputs, grad=True)
    assert [graph.role for graph in run.graphs] == ["forward", "backward"]
