"""Twelve inference models: four convolution nets, four transformers, a mixer, an LSTM, a recommender, an autoencoder.

Takes: the name of one of `BUILDERS` and a size, "bench" or "tiny". Gives: a `Workload` in evaluation mode. `models.py`
has five of the models; this file spells the others as their libraries do: attention as products and a softmax, and
batch norms behind convolutions. Refuses: unknown names and sizes (ValueError, which names the known ones).

>>> module, inputs, _ = make("mobilenet", size="tiny")
>>> module(*inputs).shape
torch.Size([2, 10])
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minductor.bench import models
from minductor.bench.models import Transformer, Vision, Workload, join_heads, split_heads


@dataclass(frozen=True, slots=True)
class Rows:
    """The sizes of a model of plain rows: `rows` of `width` elements, `hidden` inside, `steps` in time or fields."""

    rows: int
    width: int
    hidden: int
    steps: int = 1


class InvertedResidual(nn.Module):
    """The block of MobileNetV2: a 1x1 convolution that widens, a depthwise 3x3 and a 1x1 that narrows."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 6 * inputs
        self.is_residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


def mobile_net(sizes: Vision) -> nn.Module:
    """A small MobileNetV2: a stem, four stages of two blocks, a 1x1 convolution and the mean over the image."""
    stages: list[nn.Module] = [nn.Conv2d(3, sizes.width, 3, 2, padding=1, bias=False), nn.BatchNorm2d(sizes.width)]
    stages.append(nn.ReLU6())
    inputs = sizes.width
    for stage in range(4):
        outputs = sizes.width * (stage + 2) // 2
        stages += [InvertedResidual(inputs, outputs, 1 + stage % 2), InvertedResidual(outputs, outputs, 1)]
        inputs = outputs
    last = 8 * sizes.width
    stages += [nn.Conv2d(inputs, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*stages, nn.Flatten(), nn.Linear(last, sizes.classes))


def double_convolution(inputs: int, outputs: int) -> nn.Module:
    """Two 3x3 convolutions, each with a batch norm and a relu."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Three halvings and three doublings of the image, with the results of the same size concatenated."""

    def __init__(self, sizes: Vision) -> None:
        super().__init__()
        widths = [sizes.width << level for level in range(4)]
        self.down = nn.ModuleList(map(double_convolution, [3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in widths[-2::-1])
        self.joined = nn.ModuleList(double_convolution(2 * width, width) for width in widths[-2::-1])
        self.head = nn.Conv2d(sizes.width, sizes.classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, block, same in zip(self.up, self.joined, kept[-2::-1], strict=True):
            x = block(torch.cat((same, up(x)), 1))
        return self.head(x)


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of images."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A depthwise 7x7 convolution, then a layer norm and an MLP over the channels, scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.scale * self.mlp(self.mix(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def conv_next(sizes: Vision) -> nn.Module:
    """A small ConvNeXt: patches of 4x4, three stages of two blocks with halvings between them."""
    layers: list[nn.Module] = [nn.Conv2d(3, sizes.width, 4, 4), ChannelNorm(sizes.width, eps=1e-6)]
    for stage in range(3):
        width = sizes.width << stage
        if stage:
            layers += [ChannelNorm(width // 2, eps=1e-6), nn.Conv2d(width // 2, width, 2, 2)]
        layers += [ConvNeXtBlock(width), ConvNeXtBlock(width)]
    last = sizes.width << 2
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(last), nn.Linear(last, sizes.classes)
    )


class WrittenAttention(nn.Module):
    """Attention as products and a softmax, with a projection for each of query, key and value.

    `scale` divides the scores: the root of the head's width for BERT, 1 for T5. The mask or bias is added.
    """

    def __init__(self, width: int, heads: int, *, bias: bool, scale: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = scale
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, added: Tensor) -> Tensor:
        query, key, value = (split_heads(layer(x), self.heads) for layer in (self.query, self.key, self.value))
        scores = torch.matmul(query, key.transpose(-1, -2))
        if self.scale != 1.0:
            scores = scores / self.scale
        weights = (scores + added).softmax(-1)
        return self.out(join_heads(torch.matmul(weights, value)))


class WrittenBert(models.Bert):
    """BERT whose attention is written out, with -10000 added to the scores of padding, as its first library has it."""

    def __init__(self, sizes: Transformer) -> None:
        super().__init__(sizes)
        scale = math.sqrt(sizes.width // sizes.heads)
        for block in self.blocks:
            block.attention = WrittenAttention(sizes.width, sizes.heads, bias=True, scale=scale)

    def forward(self, ids: Tensor, segments: Tensor, present: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)) + self.segments(segments)
        x = self.norm(x)
        added = (1.0 - present[:, None, None, :].to(x.dtype)) * -10000.0
        for block in self.blocks:
            x = block(x, added)
        return self.head(self.transform_norm(F.gelu(self.transform(x))))


class T5Encoder(nn.Module):
    """T5's encoder: RMS norms, no biases, scores without a scale and with a learned bias of the distance."""

    buckets: Tensor

    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        places = torch.arange(sizes.context)
        self.register_buffer("buckets", (places[None, :] - places[:, None]).clamp(-16, 15) + 16)
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.bias = nn.Embedding(32, sizes.heads)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": models.RMSNorm(sizes.width),
                    "attention": WrittenAttention(sizes.width, sizes.heads, bias=False, scale=1.0),
                    "norm2": models.RMSNorm(sizes.width),
                    "up": nn.Linear(sizes.width, 4 * sizes.width, bias=False),
                    "down": nn.Linear(4 * sizes.width, sizes.width, bias=False),
                }
            )
            for _ in range(sizes.layers)
        )
        self.norm = models.RMSNorm(sizes.width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        bias = self.bias(self.buckets).permute(2, 0, 1)[None]
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            x = x + layer["attention"](layer["norm1"](x), bias)
            x = x + layer["down"](F.relu(layer["up"](layer["norm2"](x))))
        return self.norm(x)


class MixerBlock(nn.Module):
    """An MLP over the tokens and an MLP over the channels, each behind a layer norm."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    """An MLP-mixer over patches of an image."""

    def __init__(self, sizes: Vision) -> None:
        super().__init__()
        tokens = (sizes.image // sizes.patch) ** 2
        self.embed = nn.Conv2d(3, sizes.width, sizes.patch, stride=sizes.patch)
        self.blocks = nn.Sequential(*(MixerBlock(tokens, sizes.width) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.embed(images).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


class UnrolledLstm(nn.Module):
    """An LSTM written as a loop over time."""

    def __init__(self, sizes: Rows) -> None:
        super().__init__()
        self.inputs = nn.Linear(sizes.width, 4 * sizes.hidden)
        self.hidden = nn.Linear(sizes.hidden, 4 * sizes.hidden, bias=False)
        self.head = nn.Linear(sizes.hidden, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        gates_of_inputs = self.inputs(x)
        state = cell = x.new_zeros(x.shape[0], self.head.in_features)
        for step in range(x.shape[1]):
            gates = gates_of_inputs[:, step] + self.hidden(state)
            enter, forget, change, leave = gates.chunk(4, 1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * change.tanh()
            state = leave.sigmoid() * cell.tanh()
        return self.head(state)


def mlp(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with a relu behind each but the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Recommender(nn.Module):
    """A model in the manner of DLRM: embeddings, products of all pairs of them, and an MLP before and behind."""

    pairs: Tensor

    def __init__(self, sizes: Rows) -> None:
        super().__init__()
        fields = sizes.steps + 1
        self.tables = nn.ModuleList(nn.Embedding(1000, sizes.width) for _ in range(sizes.steps))
        self.dense = mlp((13, sizes.hidden, sizes.width))
        self.top = mlp((sizes.width + fields * (fields - 1) // 2, sizes.hidden, sizes.hidden, 1))
        self.register_buffer("pairs", torch.tril_indices(fields, fields, -1))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        x = self.dense(numbers)
        fields = torch.stack([x, *(table(ids[:, place]) for place, table in enumerate(self.tables))], 1)
        products = torch.bmm(fields, fields.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((x, products), 1)).sigmoid()


def squares(result: Tensor) -> Tensor:
    """The mean of the squared distances from 1, as a loss. From 0, a result that was normed would have no gradient."""
    return (result - 1).square().mean()


def make_images(build: Callable[[Vision], nn.Module], sizes: Vision) -> Workload:
    """A model of images on noise. Its batch norms have statistics that are not those of a new module."""
    module = build(sizes)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None and layer.running_var is not None:
            layer.running_mean.normal_(std=0.2)
            layer.running_var.uniform_(0.5, 1.5)
    return Workload(module, (torch.randn(sizes.batch, 3, sizes.image, sizes.image),), squares)


def make_written_bert(sizes: Transformer) -> Workload:
    """The texts of `models.make_bert`, with the other attention."""
    _, inputs, loss_fn = models.make_bert(sizes)
    return Workload(WrittenBert(sizes), inputs, loss_fn)


def make_t5(sizes: Transformer) -> Workload:
    """T5's encoder on random texts."""
    return Workload(T5Encoder(sizes), (torch.randint(sizes.vocab, (sizes.batch, sizes.context)),), squares)


def make_lstm(sizes: Rows) -> Workload:
    """The unrolled LSTM on noise."""
    return Workload(UnrolledLstm(sizes), (torch.randn(sizes.rows, sizes.steps, sizes.width),), squares)


def make_recommender(sizes: Rows) -> Workload:
    """The recommender on random users: 13 numbers and an index into each table."""
    ids = torch.randint(1000, (sizes.rows, sizes.steps))
    return Workload(Recommender(sizes), (torch.randn(sizes.rows, 13), ids), squares)


def make_autoencoder(sizes: Rows) -> Workload:
    """An autoencoder of linear layers on noise."""
    down = (sizes.width, sizes.hidden, sizes.hidden // 2, sizes.hidden // 8)
    return Workload(mlp((*down, *down[-2::-1])), (torch.randn(sizes.rows, sizes.width),), squares)


def of_images(build: Callable[[Vision], nn.Module], **sizes: int) -> tuple[Callable[[Vision], Workload], Any]:
    """A row of `BUILDERS` for a model of images, with these sizes for "bench"."""
    tiny = Vision(width=8, image=32, batch=2, classes=10)
    return partial(make_images, build), {"bench": Vision(**{"classes": 100, **sizes}), "tiny": tiny}


# By the name of a model: the function that builds it, and its sizes.
BUILDERS: Mapping[str, tuple[Callable[[Any], Workload], Mapping[str, Any]]] = {
    "resnet": (partial(make_images, models.ResNet), models.RESNET_SIZES),
    "mobilenet": of_images(mobile_net, width=32, image=128, batch=4),
    "unet": of_images(UNet, width=16, image=96, batch=2, classes=2),
    "convnext": of_images(conv_next, width=64, image=128, batch=2),
    "bert": (make_written_bert, models.TEXT_SIZES),
    "gpt": models.BUILDERS["gpt"],
    "vit": models.BUILDERS["vit"],
    "t5": (make_t5, models.TEXT_SIZES),
    "mixer": of_images(Mixer, width=256, image=96, batch=4, layers=4),
    "lstm": (make_lstm, {"bench": Rows(16, 64, 256, 32), "tiny": Rows(2, 8, 16, 3)}),
    "dlrm": (make_recommender, {"bench": Rows(256, 64, 512, 12), "tiny": Rows(4, 8, 16, 3)}),
    "autoencoder": (make_autoencoder, {"bench": Rows(64, 784, 1024), "tiny": Rows(4, 24, 16)}),
}

NAMES = tuple(BUILDERS)


def make(name: str, *, size: str = "bench") -> Workload:
    """Builds one workload in evaluation mode; the caller's random state is left as it was."""
    module, inputs, loss_fn = models.make_from(BUILDERS, name, size=size, seed=0)
    return Workload(module.eval(), inputs, loss_fn)
