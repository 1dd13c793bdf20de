"""Trains a small GPT on text that the program makes, in eager and compiled by minductor, from the same weights.

    python examples/train_gpt.py --steps 200

The text is sums of two digits, "3+5=8;", whose results the model learns to write. The program prints both losses as
they fall, how far apart they are, the times of a step, and what the compiled model writes. It ends with an error if the
loss does not fall or the two runs part.

Three things carry over to your own training: compile the function that returns the loss, so that the loss is fused with
the model; call `backward` on its result as ever, since the backward is compiled with it; leave the optimizer outside.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ALPHABET = "0123456789+=;"


class Block(nn.Module):
    """Causal attention and a two-layer perceptron, each behind a layer norm and beside a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    """Logits of the next character, for each character of a batch of texts."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(len(ALPHABET), width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(ALPHABET))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


def encoded(text: str) -> Tensor:
    return torch.tensor([ALPHABET.index(character) for character in text])


def batches(steps: int, batch: int, context: int) -> list[tuple[Tensor, Tensor]]:
    """For each step, windows of random sums and the characters that follow; the same at every call."""
    source = torch.Generator().manual_seed(0)
    found: list[tuple[Tensor, Tensor]] = []
    for _ in range(steps):
        pairs = torch.randint(10, (batch, context, 2), generator=source).tolist()
        rows = ["".join(f"{a}+{b}={a + b};" for a, b in row)[: context + 1] for row in pairs]
        ids = torch.stack([encoded(row) for row in rows])
        found.append((ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))
    return found


def train(name: str, model: GPT, backend: str, data: list[tuple[Tensor, Tensor]], rate: float) -> list[float]:
    """Trains the model in place. Returns the loss of each step."""

    def loss_of(ids: Tensor, following: Tensor) -> Tensor:
        return F.cross_entropy(model(ids).flatten(0, 1), following.flatten())

    compiled: Callable[[Tensor, Tensor], Tensor] = torch.compile(loss_of, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses: list[float] = []
    seconds: list[float] = []
    for step, (ids, following) in enumerate(data, 1):
        start = time.perf_counter()
        loss = compiled(ids, following)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        if step == 1 or step % max(1, len(data) // 5) == 0:
            print(f"{name:>10}  step {step:4}  loss {losses[-1]:.4f}")
    later = statistics.median(seconds[1:] or seconds)
    print(f"{name:>10}  first step {seconds[0]:.2f} s, later ones {1000 * later:.1f} ms\n")
    return losses


@torch.no_grad()
def written(model: GPT, prompt: str, context: int) -> str:
    """What the model writes behind the prompt, up to the end of the sum."""
    text = prompt
    while len(text) < context and not text.endswith(";"):
        text += ALPHABET[int(model(encoded(text)[None])[0, -1].argmax())]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small GPT in eager and compiled.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2e-3)
    given = parser.parse_args()

    torch.manual_seed(0)
    model = GPT(given.layers, given.width, given.heads, given.context)
    twin = copy.deepcopy(model)
    data = batches(given.steps, given.batch, given.context)
    eager = train("eager", twin, "eager", data, given.rate)
    compiled = train("minductor", model, "minductor", data, given.rate)

    apart = max(abs(a - b) / a for a, b in zip(eager, compiled, strict=True))
    print(f"loss {compiled[0]:.4f} -> {compiled[-1]:.4f}; eager's and minductor's are at most {apart:.1e} apart")
    print(f"the compiled model writes: {written(model, '3+5=', given.context)}")
    if not compiled[-1] < compiled[0]:
        raise SystemExit("the loss did not fall")
    if apart > 0.02:  # rounding differs and grows over the steps; a wrong gradient shows within a few of them
        raise SystemExit("the two runs part: `python examples/hunt_a_bug.py` shows how to find out why")


if __name__ == "__main__":
    main()
