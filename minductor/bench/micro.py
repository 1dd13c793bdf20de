"""The micro cases of the benchmark: small functions that a compiler ought to fuse, one table row each.

Takes: nothing. Gives: `CASES`, a mapping of name to `Micro(fn, inputs, backward)`. Refuses: nothing. A case that is no
longer measured moves from `CASES` to `REMOVED`, with the reason; a test compares both with the recorded list.

Sizes are so large that the arithmetic takes most of the time, and not the call. Each function also runs in float64, to
measure errors, so it has only operations that compute the same in any precision.

>>> case = CASES["sum_inner"]
>>> tuple(case.fn(*case.inputs()).shape)
(2048,)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Inputs = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Micro:
    """One function; with `backward`, the gradients of its floating inputs are part of what is timed."""

    fn: Callable[..., Any]
    inputs: Inputs
    backward: bool = False


def randn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Inputs:
    """Normal inputs, made when called."""
    return lambda: tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


def images_with_scale() -> tuple[Tensor, ...]:
    return torch.randn(8, 64, 48, 48), torch.randn(64), torch.randn(64)


def scores_with_mask() -> tuple[Tensor, ...]:
    return torch.randn(8, 8, 192, 192), torch.ones(192, 192, dtype=torch.bool).triu(1)


def logits_with_targets() -> tuple[Tensor, ...]:
    return torch.randn(2048, 1000), torch.randint(1000, (2048,))


def table_with_ids() -> tuple[Tensor, ...]:
    return torch.randn(5000, 256), torch.randn(256, 256), torch.randint(5000, (16, 256))


def values_with_places() -> tuple[Tensor, ...]:
    return torch.randn(2048, 1024), torch.randint(1024, (2048, 512))


def layer_norm_gelu(x: Tensor) -> Tensor:
    return F.layer_norm(F.gelu(2 * x + 1), (x.shape[-1],))


def pointwise_chain(x: Tensor, y: Tensor) -> Tensor:
    z = torch.tanh(x) * torch.sigmoid(y) + x * 0.5
    return torch.clamp(z * z - y, -3.0, 3.0).exp() + z.abs().sqrt()


def pointwise_two_results(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = (x - y).square()
    return torch.log1p(z), z * torch.rsqrt(z + 1.0)


def bias_gelu_residual(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return F.gelu(x + bias, approximate="tanh") + residual


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def softmax_rows(x: Tensor) -> Tensor:
    return torch.softmax(x * 0.5, dim=-1)


def softmax_columns(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=0)


def softmax_causal(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax((scores * 0.125).masked_fill(mask, float("-inf")), dim=-1)


def log_softmax_rows(x: Tensor) -> Tensor:
    return F.log_softmax(x, dim=-1)


def layer_norm_residual(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x + residual, (x.shape[-1],), weight, bias)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, 8, weight, bias))


def batch_norm_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, None, None, weight, bias, training=True))


def sum_inner(x: Tensor) -> Tensor:
    return (x * x + 1.0).sum(-1)


def sum_outer(x: Tensor) -> Tensor:
    return (x * x + 1.0).sum(0)


def sum_middle(x: Tensor) -> Tensor:
    return (x * x + 1.0).sum(1)


def sum_several(x: Tensor) -> Tensor:
    return (x.abs() + 1.0).sum((0, 2, 3))


def mean_squared_error(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).square().mean()


def amax_and_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.sigmoid(x)
    return y.amax(-1), y.sum(-1)


def transposed_add(x: Tensor, y: Tensor) -> Tensor:
    return x.t() * 2.0 + y


def channels_last_scale(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x.permute(0, 2, 3, 1) * weight + bias).contiguous()


def gather_scale(x: Tensor, index: Tensor) -> Tensor:
    return torch.gather(x, 1, index) * 2.0 + 1.0


def embedding_sum(table: Tensor, positions: Tensor, ids: Tensor) -> Tensor:
    return F.layer_norm(F.embedding(ids, table) + positions, (table.shape[-1],))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets)


def cat_pointwise(x: Tensor, y: Tensor) -> Tensor:
    return F.relu(torch.cat((x * 2.0, y - 1.0), dim=-1)) + 0.5


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def where_masked(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > y, x * 2.0, y).masked_fill(x < -1.0, 0.0)


def normalise_by_var_mean(x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True)
    return (x - mean) / (variance + 1.0).sqrt()


def argmax_rows(x: Tensor, bias: Tensor) -> Tensor:
    return (x + bias).argmax(-1)


def outer_broadcast(column: Tensor, row: Tensor, x: Tensor) -> Tensor:
    return torch.exp(-(column - row).square()) * x


BF16 = torch.bfloat16

CASES: Mapping[str, Micro] = {
    "layer_norm_gelu": Micro(layer_norm_gelu, randn((4096, 1024))),
    "pointwise_chain": Micro(pointwise_chain, randn((1024, 1024), (1024, 1024))),
    "pointwise_chain_backward": Micro(pointwise_chain, randn((512, 1024), (512, 1024)), backward=True),
    "pointwise_two_results": Micro(pointwise_two_results, randn((1024, 1024), (1024, 1024))),
    "bias_gelu_residual": Micro(bias_gelu_residual, randn((2048, 1024), (1024,), (2048, 1024))),
    "swiglu_backward": Micro(swiglu, randn((1024, 1024), (1024, 1024)), backward=True),
    "softmax_short_rows": Micro(softmax_rows, randn((65536, 32))),
    "softmax_long_rows": Micro(softmax_rows, randn((128, 16384))),
    "softmax_dim0": Micro(softmax_columns, randn((2048, 1024))),
    "softmax_causal": Micro(softmax_causal, scores_with_mask),
    "softmax_backward": Micro(softmax_rows, randn((2048, 1024)), backward=True),
    "log_softmax": Micro(log_softmax_rows, randn((2048, 1000))),
    "layer_norm_forward": Micro(layer_norm_residual, randn((4096, 768), (4096, 768), (768,), (768,))),
    "layer_norm_backward": Micro(layer_norm_residual, randn((2048, 768), (2048, 768), (768,), (768,)), backward=True),
    "rms_norm_forward": Micro(rms_norm, randn((4096, 768), (768,))),
    "rms_norm_backward": Micro(rms_norm, randn((2048, 768), (768,)), backward=True),
    "group_norm_forward": Micro(group_norm_silu, images_with_scale),
    "group_norm_backward": Micro(group_norm_silu, images_with_scale, backward=True),
    "batch_norm_forward": Micro(batch_norm_relu, images_with_scale),
    "batch_norm_backward": Micro(batch_norm_relu, images_with_scale, backward=True),
    "sum_inner": Micro(sum_inner, randn((2048, 1024))),
    "sum_outer": Micro(sum_outer, randn((2048, 1024))),
    "sum_middle": Micro(sum_middle, randn((32, 256, 256))),
    "sum_several_dims": Micro(sum_several, randn((16, 32, 64, 64))),
    "mean_all": Micro(mean_squared_error, randn((2048, 1024), (2048, 1024))),
    "amax_and_sum": Micro(amax_and_sum, randn((2048, 1024))),
    "transposed_add": Micro(transposed_add, randn((2048, 1024), (1024, 2048))),
    "channels_last_scale": Micro(channels_last_scale, images_with_scale),
    "gather": Micro(gather_scale, values_with_places),
    "embedding_layer_norm": Micro(embedding_sum, table_with_ids),
    "cross_entropy_forward": Micro(cross_entropy, logits_with_targets),
    "cross_entropy_backward": Micro(cross_entropy, logits_with_targets, backward=True),
    "bf16_pointwise": Micro(pointwise_chain, randn((1024, 1024), (1024, 1024), dtype=BF16)),
    "bf16_layer_norm": Micro(layer_norm_residual, randn((2048, 768), (2048, 768), (768,), (768,), dtype=BF16)),
    "cat_pointwise": Micro(cat_pointwise, randn((2048, 512), (2048, 384))),
    "rotary": Micro(rotary, randn((8, 8, 256, 64), (256, 64), (256, 64))),
    "where_masked_fill": Micro(where_masked, randn((2048, 1024), (2048, 1024))),
    "var_mean": Micro(normalise_by_var_mean, randn((2048, 1024))),
    "argmax": Micro(argmax_rows, randn((2048, 1024), (1024,))),
    "outer_broadcast": Micro(outer_broadcast, randn((2048, 1), (1024,), (2048, 1024))),
}

# The cases that are no longer measured, with the reason. The report prints them.
REMOVED: Mapping[str, str] = {}
