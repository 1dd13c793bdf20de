"""The five models of the benchmark, written out in plain torch.nn.

Takes: a model's name and a size ("bench" or "tiny"). Gives: a seeded `Workload(module, inputs, loss_fn)` in float32 and
training mode; the loss is `loss_fn(module(*inputs))`. Refuses: names and sizes that are not in the tables.

Nothing is random after construction (no dropout), so any two backends must agree on every number.

>>> module, inputs, loss_fn = make("gpt", size="tiny")
>>> tuple(module(*inputs).shape), loss_fn(module(*inputs)).dim()
((2, 16, 61), 0)
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LossFn = Callable[[Tensor], Tensor]


class Workload(NamedTuple):
    """One model with its inputs; `loss_fn` closes over the targets."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    loss_fn: LossFn


@dataclass(frozen=True, slots=True)
class Transformer:
    """The sizes of one transformer and of its batch."""

    layers: int
    width: int
    heads: int
    context: int
    batch: int
    vocab: int


@dataclass(frozen=True, slots=True)
class Vision:
    """The sizes of one image model and of its batch; `patch`, `layers` and `heads` concern the ViT only."""

    width: int
    image: int
    batch: int
    classes: int
    patch: int = 8
    layers: int = 2
    heads: int = 2


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, width) seen as (batch, heads, tokens, width / heads)."""
    batch, tokens, width = x.shape
    return x.view(batch, tokens, heads, width // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """The inverse of `split_heads`, as a copy."""
    batch, heads, tokens, head_width = x.shape
    return x.transpose(1, 2).reshape(batch, tokens, heads * head_width)


class Attention(nn.Module):
    """Multi-head attention with one projection for query, key and value."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=self.causal)
        return self.out(join_heads(mixed))


class PreNormBlock(nn.Module):
    """Attention and a gelu MLP, each behind a layer norm: the block of GPT and ViT."""

    def __init__(self, width: int, heads: int, *, causal: bool, gelu: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(gelu), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder with learned positions and tied embeddings."""

    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.positions = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.ModuleList(
            PreNormBlock(sizes.width, sizes.heads, causal=True, gelu="tanh") for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)
        self.head.weight = self.tokens.weight
        # Tied to the head: with the default spread of 1 the first losses would be in the hundreds.
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class BertBlock(nn.Module):
    """The block of BERT: the norms come after the residual sums, and padding is masked."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal=False)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """An encoder with token, position and segment embeddings and a masked-language head."""

    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.positions = nn.Embedding(sizes.context, sizes.width)
        self.segments = nn.Embedding(2, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, eps=1e-12)
        self.blocks = nn.ModuleList(BertBlock(sizes.width, sizes.heads) for _ in range(sizes.layers))
        self.transform = nn.Linear(sizes.width, sizes.width)
        self.transform_norm = nn.LayerNorm(sizes.width, eps=1e-12)
        self.head = nn.Linear(sizes.width, sizes.vocab)

    def forward(self, ids: Tensor, segments: Tensor, present: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.tokens(ids) + self.positions(positions) + self.segments(segments))
        mask = present[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.transform_norm(F.gelu(self.transform(x))))


class RMSNorm(nn.Module):
    """x / rms(x), scaled; spelled out, as Llama's own code does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding: turns the pairs (x[i], x[i + half]) by the angle of their position."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class LlamaBlock(nn.Module):
    """Rotary causal attention and a SwiGLU MLP behind RMS norms, without biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        hidden = width * 8 // 3 // 32 * 32
        self.heads = heads
        self.norm1 = RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = RMSNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.norm1(x)
        query = rotate(split_heads(self.query(y), self.heads), cos, sin)
        key = rotate(split_heads(self.key(y), self.heads), cos, sin)
        value = split_heads(self.value(y), self.heads)
        x = x + self.out(join_heads(F.scaled_dot_product_attention(query, key, value, is_causal=True)))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A decoder in the manner of Llama; the rotary tables are buffers."""

    cos: Tensor
    sin: Tensor

    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        head_width = sizes.width // sizes.heads
        speeds = 10000.0 ** (-torch.arange(0, head_width, 2) / head_width)
        angles = torch.outer(torch.arange(sizes.context), speeds).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.blocks = nn.ModuleList(LlamaBlock(sizes.width, sizes.heads) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norms around a shortcut, projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-18: a 7x7 stem, four stages of two blocks, the mean over the image."""

    def __init__(self, sizes: Vision) -> None:
        super().__init__()
        width = sizes.width
        self.stem = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn = nn.BatchNorm2d(width)
        stages: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            outputs = width << stage
            stages += [ResidualBlock(inputs, outputs, 1 if stage == 0 else 2), ResidualBlock(outputs, outputs, 1)]
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, sizes.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.stem(images))), 3, stride=2, padding=1)
        return self.head(self.stages(x).mean((2, 3)))


class ViT(nn.Module):
    """Patches as tokens, a class token, learned positions, pre-norm blocks."""

    def __init__(self, sizes: Vision) -> None:
        super().__init__()
        patches = (sizes.image // sizes.patch) ** 2
        self.embed = nn.Conv2d(3, sizes.width, sizes.patch, stride=sizes.patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, sizes.width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, patches + 1, sizes.width) * 0.02)
        self.blocks = nn.Sequential(
            *(PreNormBlock(sizes.width, sizes.heads, causal=False, gelu="none") for _ in range(sizes.layers))
        )
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def token_loss(targets: Tensor) -> LossFn:
    """Mean cross entropy over every token; a target of -100 does not count."""

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return loss


def class_loss(targets: Tensor) -> LossFn:
    """Mean cross entropy over the images, with the usual label smoothing."""

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, label_smoothing=0.1)

    return loss


def make_decoder(cls: Callable[[Transformer], nn.Module], sizes: Transformer) -> Workload:
    """A decoder that predicts each next token of a random text."""
    text = torch.randint(sizes.vocab, (sizes.batch, sizes.context + 1))
    return Workload(cls(sizes), (text[:, :-1].contiguous(),), token_loss(text[:, 1:].contiguous()))


def make_bert(sizes: Transformer) -> Workload:
    """An encoder on padded texts of two segments; one token in seven is to be guessed."""
    shape = (sizes.batch, sizes.context)
    ids = torch.randint(sizes.vocab, shape)
    place = torch.arange(sizes.context).expand(shape)
    lengths = torch.randint(sizes.context // 2, sizes.context + 1, (sizes.batch, 1))
    guessed = (torch.rand(shape) < 0.15) & (place < lengths)
    guessed[:, 0] = True  # a mean over no token at all would be nan
    inputs = (ids.masked_fill(guessed, 0), (place >= sizes.context // 3).long(), place < lengths)
    return Workload(Bert(sizes), inputs, token_loss(ids.masked_fill(~guessed, -100)))


def make_image_model(cls: Callable[[Vision], nn.Module], sizes: Vision) -> Workload:
    """An image classifier on noise."""
    images = torch.randn(sizes.batch, 3, sizes.image, sizes.image)
    return Workload(cls(sizes), (images,), class_loss(torch.randint(sizes.classes, (sizes.batch,))))


TEXT_SIZES: Mapping[str, Transformer] = {
    "bench": Transformer(layers=4, width=256, heads=8, context=128, batch=8, vocab=1024),
    "tiny": Transformer(layers=2, width=32, heads=2, context=16, batch=2, vocab=61),
}
RESNET_SIZES: Mapping[str, Vision] = {
    "bench": Vision(width=64, image=96, batch=4, classes=100),
    "tiny": Vision(width=8, image=32, batch=2, classes=10),
}
VIT_SIZES: Mapping[str, Vision] = {
    "bench": Vision(width=256, image=96, batch=4, classes=100, layers=6, heads=8),
    "tiny": Vision(width=32, image=16, batch=2, classes=10, patch=4),
}

# By the name of a model: the function that builds it, and its sizes.
BUILDERS: Mapping[str, tuple[Callable[[Any], Workload], Mapping[str, Any]]] = {
    "gpt": (partial(make_decoder, GPT), TEXT_SIZES),
    "bert": (make_bert, TEXT_SIZES),
    "llama": (partial(make_decoder, Llama), TEXT_SIZES),
    "resnet": (partial(make_image_model, ResNet), RESNET_SIZES),
    "vit": (partial(make_image_model, ViT), VIT_SIZES),
}

NAMES = tuple(BUILDERS)


def make(name: str, *, size: str = "bench", seed: int = 0) -> Workload:
    """Build one workload; the caller's random state is left as it was."""
    return make_from(BUILDERS, name, size=size, seed=seed)


def make_from(
    builders: Mapping[str, tuple[Callable[[Any], Workload], Mapping[str, Any]]], name: str, *, size: str, seed: int
) -> Workload:
    """Build the workload of one row of `builders`, which is a table like `BUILDERS`."""
    if name not in builders:
        raise ValueError(f"no model is called {name!r}: the models are {', '.join(builders)}")
    build, sizes = builders[name]
    if size not in sizes:
        raise ValueError(f"{name} has no size {size!r}: the sizes are {', '.join(sizes)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(sizes[size])


def as_float64(workload: Workload) -> Workload:
    """A copy with the same numbers in float64, to measure errors against; ids and masks stay as they are."""
    module = copy.deepcopy(workload.module).double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in workload.inputs)
    return Workload(module, inputs, workload.loss_fn)
