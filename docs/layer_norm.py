"""The example of README.md and docs/architecture.md: `minductor explain docs/layer_norm.py::layer_norm --check`."""

import torch
from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(torch.nn.functional.gelu(2 * x + 1), weight.shape, weight, bias)


def example_inputs() -> tuple[Tensor, ...]:
    return torch.randn(4096, 1024), torch.ones(1024), torch.zeros(1024)
