"""The table of fusions: small programs, the kernels that each should take, and, where they count, the bytes.

Takes nothing; gives ROWS. `kernels` is what minductor makes, None where only values count; where the number that the
field expects of its compilers is another, `elsewhere` is that number and `because` argues the difference. An
intermediate that stands as a buffer is one that the program returns, or that an operator of torch reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Made = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """One program with its inputs and what is expected of it."""

    name: str
    program: Callable[..., Any]
    inputs: Made
    kernels: int | None
    externs: int = 0
    bytes: int | None = None
    elsewhere: int | None = None
    because: str = ""
    grad: bool = False
    dynamic: bool | None = None
    max_live_bytes: int = 0  # the option
    peak: int | None = None  # at most


def f32(*size: int) -> Tensor:
    return torch.randn(size)


def strided(size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    length = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    return torch.randn(length).as_strided(size, stride)


# --- reading in another order ---------------------------------------------------------------------------------------


def rows_into_matmul(x: Tensor, y: Tensor) -> Tensor:
    return (x.sum(-1) + 1) @ y


def add_of_transposed(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    a, b = x * 2, y * 3
    return a, b, a + b.t()


def add_of_transposed_views(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 + (y * 3).t()


def sum_and_transpose(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(-1), x.t().contiguous()


def outer_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    return y, y.sum((0, 1))


def outer_sum_of_three(x: Tensor) -> tuple[Tensor, ...]:
    a = x + 1
    b = a - 2
    c = b * 3
    return a, b, c, c.sum((0, 1))


def sums_both_ways(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(0), x.sum(1)


def two_broadcasts(x: Tensor, y: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return x + c, y + c


def copy_of_view(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.view(10, 10).clone()


def cast_and_transpose(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    y = (x * scale).bfloat16()
    return y, y.t().contiguous()


def cast_both_ways(x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """The input and its transposed, both scaled and cast, and the largest magnitudes for the next step."""
    y = x * scale
    return y.bfloat16(), y.t().contiguous().bfloat16(), x.abs().amax(-1)


def softmax_of_columns(x: Tensor) -> Tensor:
    return torch.softmax(x, 0)


def outer_sum_and_pointwise(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(0), torch.relu(x) * 2


def sums_and_transposed(x: Tensor) -> tuple[Tensor, ...]:
    z = x / 10
    return x.sum(-1).sum(), z, z.t().contiguous().t()


def mean_of_all(x: Tensor) -> Tensor:
    return x.mean()


def moments_of_all(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.var_mean(x)


def cubes(x: Tensor) -> tuple[Tensor, ...]:
    """A row sum in three dims, a pointwise neighbour in two, and a sum of the outer dims."""
    return x.sum(-1), x.view(64 * 64, 64) + 1, x.sum((0, 1))


def mixed_widths(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of an odd view, and the same data in one loop."""
    return x.view(35, 33).sum(-1), x.view(-1).exp()


# --- reading by other axes ------------------------------------------------------------------------------------------


def heads_norm(x: Tensor, w: Tensor) -> Tensor:
    q = x[:, :8192].view(x.shape[0], -1, 128)
    return (q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-6) * w).view(x.shape[0], -1)


def heads_norm_kept(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The same from a slice that stands as a buffer of its own."""
    flat = x[:, :8192] + 1
    q = flat.view(x.shape[0], -1, 128)
    return flat, (q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-6) * w).view(x.shape[0], -1)


def heads_norm_transposed(x: Tensor, w: Tensor) -> Tensor:
    q = x[:, :8192].view(x.shape[0], -1, 128)
    return (q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-6) * w).transpose(0, 1).contiguous()


def heads_norm_added(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    normed = heads_norm(x, w)
    return normed, torch.sigmoid(normed + y) * y


def group_scales_for_matmul(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    groups = x.view(x.shape[0], -1, 128)
    scale = groups.abs().amax(-1) / 448
    scaled = (groups / scale.unsqueeze(-1)).view(x.shape)
    return scaled @ w, scale


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x[:, :128], x[:, 128:]
    y = torch.cat([a * 2, b + 1], 1)
    return y, (y.view(16, 2, 128).transpose(1, 2).reshape(16, 256) + x).relu()


def block_scales(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.view(x.shape[0], -1, 32).abs().amax(-1) + 1
    columns = torch.arange(x.shape[1]) // 32
    return scale, x / scale[:, columns]


def block_scales_repeated(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.view(x.shape[0], -1, 32).abs().amax(-1) + 1
    return scale, x / scale.repeat_interleave(32, 1)


def norm_then_block_scales(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    blocks = y.view(x.shape[0], -1, 32)
    scale = blocks.abs().amax(-1, keepdim=True) + 1e-4
    return (blocks / scale).view(x.shape), scale


def upsampled_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(F.interpolate(x, scale_factor=2.0, mode="nearest"), 32, w, b)


def neighbours_of_other_shapes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both read a few common elements; to walk them together would lose more than it saves."""
    return (x + y[0, 0]).view(16, 64, 128).transpose(0, 1).contiguous(), y.sum(-1)


def scanned_from_both_ends(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.cumsum(0)
    return y, y.flip(0).cumsum(0)


def attention_layout(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 0.5
    return y, y.view(2, 16, 4, 8).transpose(1, 2).contiguous()


def swizzled_block_scales(x: Tensor) -> Tensor:
    """Scales of 32 elements each, laid out in tiles of 128 by 4 as the matmul reads them."""
    scale = x.view(128, 4, 32).abs().amax(-1) + 1
    return scale.view(1, 4, 32, 1, 4).permute(0, 3, 2, 1, 4).contiguous()


def not_invertible(x: Tensor) -> Tensor:
    return (x + 1).as_strided((2, 3, 2), (6, 1, 1)).clone()


def head_norm_and_rotary(q: Tensor, w: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    n = q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-6) * w
    a, b = n.chunk(2, -1)
    return n * cos + torch.cat([-b, a], -1) * sin


def head_norm_and_interleaved_rotary(q: Tensor, w: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    n = q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-6) * w
    a, b = n[..., ::2], n[..., 1::2]
    return n * cos + torch.stack([-b, a], -1).flatten(-2) * sin


def downsampling_conv(x: Tensor, w: Tensor) -> Tensor:
    return F.conv1d(x, w, stride=4).relu() + 1


def embedded(tokens: Tensor, words: Tensor, places: Tensor) -> Tensor:
    x = F.embedding(tokens, words) + F.embedding(torch.arange(tokens.shape[1]), places)
    return F.layer_norm(x, (words.shape[1],))


# --- mutation -------------------------------------------------------------------------------------------------------


def flipped_onto_itself(a: Tensor) -> None:
    a.copy_(torch.flip(a, (0,)))


def shifted_onto_itself(a: Tensor) -> None:
    a[:, 20:40] += 1
    a[:, 2:900] = a[:, 1:899] + 2


def read_then_overwritten(a: Tensor, b: Tensor) -> Tensor:
    y = a.exp()
    a.copy_(b * 2)
    return y


def disjoint_halves(a: Tensor, b: Tensor) -> None:
    a[:, :64] = a[:, 64:] + b


def scattered(a: Tensor, b: Tensor, at: Tensor) -> Tensor:
    y = a * 2
    a.index_put_((at,), b)
    return y


def overlapping_write(a: Tensor, b: Tensor) -> Tensor:
    y = a * 2
    a.as_strided((4, 4), (2, 1), 8).copy_(b)
    return y


# --- others of the field's lists ------------------------------------------------------------------------------------


def row_statistics(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(-1), x.amax(-1), x.argmax(-1), x.var(-1)


def joined(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x.relu(), y.exp()], 1)


def stacked(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack([x + 1, y * 2, x - y], -1)


def gelu_three_times(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    g = F.gelu(x)
    return g * y, g + y, g.sum(-1)


def many_small(*xs: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch._foreach_add(torch._foreach_mul(list(xs), 2.0), 1.0))  # pyright: ignore[reportPrivateUsage]  the public ones are optimizers


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def after_matmul(x: Tensor, y: Tensor, b: Tensor) -> Tensor:
    return (x @ y).relu() + b


# --- memory ---------------------------------------------------------------------------------------------------------


def sums_of_two_products(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Each sum right behind its product, or both products stand at a time."""
    return (a @ c).sum(-1) + (b @ c).sum(-1)


def accumulated(y: Tensor, z: Tensor, *xs: Tensor) -> Tensor:
    total = torch.addmm(z, xs[0], y)
    for x in xs[1:]:
        total = total + torch.addmm(z, x, y)
    return total


def squares() -> tuple[Tensor, ...]:
    return tuple(f32(128, 128) for _ in range(6))


SQUARE = 128 * 128 * 4

ROWS = (
    # reading in another order
    Row(
        "rows_into_matmul",
        rows_into_matmul,
        lambda: (strided((20, 20, 30), (900, 30, 1)), f32(20, 20)),
        1,
        1,
        (400 * 30 + 400) * 4,
    ),
    # large ones take less time apart on a CPU, 112 us and not 135: one kernel would transpose both y and its triple
    Row("add_of_transposed", add_of_transposed, lambda: (f32(128, 64), f32(64, 128)), 1, bytes=5 * 128 * 64 * 4),
    Row("add_of_transposed_views", add_of_transposed_views, lambda: (f32(256, 512), f32(512, 256)), 1),
    Row("sum_and_transpose", sum_and_transpose, lambda: (f32(48, 96),), 1, bytes=(2 * 48 * 96 + 48) * 4),
    Row("outer_sum", outer_sum, lambda: (f32(2, 4, 512),), 1),
    Row("outer_sum_of_three", outer_sum_of_three, lambda: (f32(2, 4, 512),), 1),
    Row(
        "sums_both_ways",
        sums_both_ways,
        lambda: (f32(1024, 2048),),
        1,
        elsewhere=2,
        because="the data is read once, for rows and for columns",
    ),
    Row(
        "two_broadcasts",
        two_broadcasts,
        lambda: (f32(4, 256, 1024), f32(2, 512, 1024), f32(1024)),
        1,
        elsewhere=2,
        because="the loops are two; their launch is one",
    ),
    Row("copy_of_view", copy_of_view, lambda: (f32(100),), 1, bytes=1200),
    Row(
        "cast_and_transpose",
        cast_and_transpose,
        lambda: (f32(48, 64), f32(1)),  # 512 x 512 takes less time apart on one thread of a CPU (82 and 111 us)
        1,
    ),
    Row(
        "cast_both_ways",
        cast_both_ways,
        lambda: (f32(48, 64).bfloat16(), f32(1)),  # large ones take less time apart on a CPU
        1,
        bytes=48 * 64 * 6 + 48 * 2 + 4,
    ),
    Row("softmax_of_columns", softmax_of_columns, lambda: (f32(32, 1 << 17),), 1),
    Row("outer_sum_and_pointwise", outer_sum_and_pointwise, lambda: (f32(32, 1 << 14),), 1),
    Row(
        "sums_and_transposed", sums_and_transposed, lambda: (f32(200, 100),), 2, bytes=(3 * 200 * 100 + 2 * 200 + 1) * 4
    ),
    Row("mean_of_all", mean_of_all, lambda: (f32(5, 5),), 1),
    Row("moments_of_all", moments_of_all, lambda: (f32(5, 5),), 1),
    Row("cubes", cubes, lambda: (f32(64, 64, 64),), 1),
    Row("mixed_widths", mixed_widths, lambda: (f32(21, 55),), 1),
    # reading by other axes
    Row("heads_norm", heads_norm, lambda: (f32(16, 10240), f32(128)), 1),
    Row("heads_norm_kept", heads_norm_kept, lambda: (f32(16, 10240), f32(128)), 1),
    Row("heads_norm_transposed", heads_norm_transposed, lambda: (f32(16, 10240), f32(128)), 1),
    Row("heads_norm_added", heads_norm_added, lambda: (f32(16, 10240), f32(128), f32(16, 8192)), 1),
    Row("group_scales_for_matmul", group_scales_for_matmul, lambda: (f32(8, 7168), f32(7168, 16)), 1, 1),
    Row("halves", halves, lambda: (f32(16, 256),), None),
    Row("block_scales", block_scales, lambda: (f32(8, 8192),), 1, bytes=(2 * 8 * 8192 + 8 * 256) * 4),
    Row("block_scales_repeated", block_scales_repeated, lambda: (f32(8, 8192),), 1),
    Row("norm_then_block_scales", norm_then_block_scales, lambda: (f32(8, 8192),), 2),
    Row("upsampled_norm", upsampled_norm, lambda: (f32(2, 32, 16, 16), f32(32), f32(32)), None),
    Row("neighbours_of_other_shapes", neighbours_of_other_shapes, lambda: (f32(16, 8192), f32(16, 8192)), 2),
    Row("scanned_from_both_ends", scanned_from_both_ends, lambda: (f32(8),), 2),
    Row("attention_layout", attention_layout, lambda: (f32(2, 16, 32),), 1),
    Row("swizzled_block_scales", swizzled_block_scales, lambda: (f32(128, 128),), 1),
    Row(
        "head_norm_and_rotary",
        head_norm_and_rotary,
        lambda: (f32(4, 8, 128, 64), f32(64), f32(128, 64), f32(128, 64)),
        1,
    ),
    Row(
        "head_norm_and_interleaved_rotary",
        head_norm_and_interleaved_rotary,
        lambda: (f32(4, 8, 128, 64), f32(64), f32(128, 64), f32(128, 64)),
        1,
    ),
    Row("not_invertible", not_invertible, lambda: (f32(4, 4),), None),
    Row("downsampling_conv", downsampling_conv, lambda: (f32(2, 3, 64), f32(5, 3, 1)), 1, 1, dynamic=True),
    Row("embedded", embedded, lambda: (torch.randint(2048, (8, 512)), f32(2048, 64), f32(512, 64)), None, grad=True),
    # mutation
    Row("flipped_onto_itself", flipped_onto_itself, lambda: (f32(20),), 2),
    Row("shifted_onto_itself", shifted_onto_itself, lambda: (f32(1, 1000),), None),
    Row("read_then_overwritten", read_then_overwritten, lambda: (f32(64, 64), f32(64, 64)), 1),
    Row("disjoint_halves", disjoint_halves, lambda: (f32(64, 128), f32(64, 64)), 1, bytes=3 * 64 * 64 * 4),
    Row("scattered", scattered, lambda: (f32(64), f32(10), torch.randint(64, (10,))), 2),
    Row("overlapping_write", overlapping_write, lambda: (f32(64), f32(4, 4)), None),
    # what else is expected to be one
    Row("row_statistics", row_statistics, lambda: (f32(64, 256),), 1),
    Row("joined", joined, lambda: (f32(64, 256), f32(64, 128)), 2, bytes=2 * 64 * 384 * 4),
    Row("stacked", stacked, lambda: (f32(128, 64), f32(64, 128)), 1, bytes=5 * 128 * 64 * 4),
    Row("gelu_three_times", gelu_three_times, lambda: (f32(64, 256), f32(64, 256)), 1),
    Row("many_small", many_small, lambda: tuple(f32(32) for _ in range(20)), 1),
    Row("layer_norm", layer_norm, lambda: (f32(256, 128), f32(128), f32(128)), 2, grad=True),
    Row("after_matmul", after_matmul, lambda: (f32(64, 64), f32(64, 64), f32(64)), 1, 1),
    # memory
    Row(
        "sums_of_two_products",
        sums_of_two_products,
        lambda: (f32(1024, 16), f32(1024, 16), f32(16, 1024)),
        2,
        2,
        peak=1024 * 1024 * 4 + 8192,
    ),
    Row("accumulated", accumulated, squares, 1, 4, peak=4 * SQUARE),
    Row("accumulated_by_three", accumulated, squares, 2, 4, max_live_bytes=3 * SQUARE, peak=3 * SQUARE),
    Row("accumulated_by_one", accumulated, squares, 3, 4, max_live_bytes=SQUARE // 4, peak=2 * SQUARE),
)
