"""Random small convolution nets, for tests that hold rewritten graphs against eager.

Takes a seed. Gives a module in evaluation mode and images. A seed always gives the same net.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.Hardswish, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.Identity)


class RandomNet(nn.Module):
    """A random chain of steps, some of which read earlier results. It gives one to three of the results."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self.layers = nn.ModuleList()
        self.steps: list[tuple[str, Any]] = []
        self.channels = [self.draw.choice((1, 3, 4, 8))]
        self.sides = [self.draw.choice((8, 13, 16))]
        self.convolution()
        self.convolution()
        for _ in range(self.draw.randint(2, 6)):
            getattr(
                self, self.draw.choice(("convolution", "convolution", "transposed", "sum", "joined", "pool", "grow"))
            )()
        self.given = sorted({len(self.steps), *self.draw.sample(range(len(self.steps)), 2)})[-self.draw.randint(1, 3) :]

    def images(self) -> Tensor:
        """The input."""
        x = torch.randn(self.draw.randint(1, 3), self.channels[0], self.sides[0], self.sides[0])
        return x.contiguous(memory_format=torch.channels_last) if self.draw.random() < 0.3 else x

    def add(self, kind: str, step: Any, channels: int, side: int) -> None:
        """Adds a step with the channels and the side of its result."""
        self.steps.append((kind, step))
        self.channels.append(channels)
        self.sides.append(side)

    def layer(self, made: nn.Module, channels: int, side: int) -> None:
        """Adds a convolution, perhaps with a norm, and an activation."""
        parts: list[nn.Module] = [made]
        if self.draw.random() < 0.5:
            norm = nn.BatchNorm2d(channels, affine=self.draw.random() < 0.8)
            nn.init.uniform_(norm.running_mean, -0.5, 0.5)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
            parts.append(norm)
        self.layers.append(nn.Sequential(*parts, self.draw.choice(ACTIVATIONS)()))
        self.add("layer", len(self.layers) - 1, channels, side)

    def convolution(self) -> None:
        inputs, side, size = self.channels[-1], self.sides[-1], self.draw.choice((1, 3, 5, 7))
        groups = self.draw.choice([n for n in (1, 1, 2, inputs) if inputs % n == 0])
        outputs = groups * self.draw.choice((1, 2, 3, 8))
        stride, dilation = self.draw.choice((1, 1, 2)), self.draw.choice((1, 1, 2))
        padding = dilation * (size - 1) // 2
        given: dict[str, Any] = {"groups": groups, "dilation": dilation, "bias": self.draw.random() < 0.5}
        made = nn.Conv2d(inputs, outputs, size, stride, padding, **given)
        self.layer(made, outputs, (side - 1) // stride + 1)

    def transposed(self) -> None:
        outputs = self.draw.choice((2, 5, 8))
        if self.sides[-1] <= 16:
            self.layer(nn.ConvTranspose2d(self.channels[-1], outputs, 2, 2), outputs, 2 * self.sides[-1])

    def same_as_last(self) -> list[int]:
        """The earlier results of the size of the last one."""
        return [n for n, side in enumerate(self.sides[:-1]) if side == self.sides[-1]]

    def sum(self) -> None:
        alike = [n for n in self.same_as_last() if self.channels[n] == self.channels[-1]]
        if alike:
            self.add("sum", self.draw.choice(alike), self.channels[-1], self.sides[-1])

    def joined(self) -> None:
        if alike := self.same_as_last():
            other = self.draw.choice(alike)
            self.add("joined", other, self.channels[-1] + self.channels[other], self.sides[-1])

    def pool(self) -> None:
        if self.sides[-1] >= 4:
            kind = self.draw.choice(("max", "mean"))
            self.add(kind, None, self.channels[-1], self.sides[-1] // 2)

    def grow(self) -> None:
        if self.sides[-1] <= 16:
            self.add(self.draw.choice(("nearest", "bilinear")), None, self.channels[-1], 2 * self.sides[-1])

    def forward(self, x: Tensor) -> list[Tensor]:
        found = [x]
        for kind, step in self.steps:
            found.append(self.run(kind, step, found))
        return [found[n] * 1 if n == 0 else found[n] for n in self.given] + [found[-1].mean((2, 3))]

    def run(self, kind: str, step: Any, found: list[Tensor]) -> Tensor:
        """The result of one step."""
        x = found[-1]
        if kind == "layer":
            return self.layers[step](x)
        if kind in ("sum", "joined"):
            return x + found[step] if kind == "sum" else torch.cat((x, found[step]), 1)
        if kind in ("max", "mean"):
            return F.max_pool2d(x, 2) if kind == "max" else F.avg_pool2d(x, 2)
        return F.interpolate(x, scale_factor=2, mode=kind)


def random_net(seed: int) -> tuple[RandomNet, Tensor]:
    """A random net and its images."""
    torch.manual_seed(seed)
    net = RandomNet(seed)
    return net.eval(), net.images()
