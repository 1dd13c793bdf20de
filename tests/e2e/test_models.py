"""The five models of the benchmark, small: outputs, every gradient and every buffer against float64."""

import pytest
import torch
from torch import Tensor, nn

from minductor.bench import models
from pytest_plugin import at_least
from pytest_plugin.oracle.accuracy import Policy
from pytest_plugin.oracle.compiled import Compile

LONG = ("bert", "llama", "vit")  # transformers: much like gpt
LONG_IN_TRAINING = (*LONG, "resnet")  # tests of layouts in training have a small net of convolutions


class Step(nn.Module):
    """A model with its loss: what a training step differentiates."""

    def __init__(self, workload: models.Workload) -> None:
        super().__init__()
        self.module = workload.module
        self.loss_fn = workload.loss_fn

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.loss_fn(self.module(*inputs))


NAMES = [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in models.NAMES]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.counts(kernels=at_least(3), externs=at_least(3))
def test_inference(compiled: Compile, name: str) -> None:
    workload = models.make(name, size="tiny")
    compiled(workload.module.eval(), *workload.inputs)


# Gradients are sums of few numbers: one of thousands is beyond twice eager's worst error where vectors have 256 bits.
SUMMED = Policy(k=3)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG_IN_TRAINING else ()) for name in models.NAMES]
)
@pytest.mark.counts(kernels=at_least(10), externs=at_least(10))
def test_training(compiled: Compile, name: str) -> None:
    workload = models.make(name, size="tiny")
    run = compiled(Step(workload), *workload.inputs, grad=True, policy=SUMMED)
    assert [graph.role for graph in run.graphs] == ["forward", "backward"]
    assert run.grads and all(grad is not None for grad in run.grads.values())


@pytest.mark.counts(kernels=at_least(3))
def test_gpt_of_another_length_compiles_once_more_and_then_no_more(compiled: Compile) -> None:
    workload = models.make("gpt", size="tiny")
    run = compiled(workload.module.eval(), *workload.inputs)
    for length in (7, 9, 12):
        run.again(torch.randint(61, (2, length)))
    assert len(run.graphs) == 2
