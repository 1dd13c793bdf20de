"""The table of block accesses: programs, and how many of their accesses are blocks of memory.

Takes nothing; gives ROWS. `accesses`, `kernels` and `tiles` are what minductor makes for sm_90; `descriptors` how many
of the accesses the hardware's tensor copies can make. Where the field expects other numbers of block pointers or
kernels, `elsewhere` has them and `because` argues the difference. Of two columns there, one for axes that lie flat one
behind the other and one for axes of their own, minductor has the second: only a merged axis is cut in digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Made = Callable[[], tuple[Any, ...]]
MAX = 4096  # the largest block of an axis elsewhere


@dataclass(frozen=True, slots=True)
class Row:
    """One program with its inputs and what is expected of it."""

    name: str
    program: Callable[..., Any]
    inputs: Made
    accesses: int
    kernels: int = 1
    tiles: int | None = None
    reduced: int | None = None  # axes that a program reduces blocks of
    descriptors: int | None = None
    pointers: int | None = None  # where not every block is one of several elements, counted in 32 bits
    elsewhere: tuple[int, int] | None = None  # block pointers and kernels
    because: str = ""
    is_divided: bool = False  # by default: the blocks that are boxes are too small for the rest of the program
    dynamic: bool | None = None
    options: tuple[tuple[str, object], ...] = ()


def view(
    full: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...] | None = None, offset: int = 0
) -> Tensor:
    """A window on a tensor of random numbers."""
    base = torch.randn(full)
    return base.as_strided(size, stride or base.stride(), offset)


def apart(*size: int) -> Tensor:
    """A tensor in one of twice its size in every dimension."""
    return view(tuple(2 * n for n in size), size)


def two(*args: Any) -> Made:
    return lambda: (view(*args), view(*args))


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


VIEWS = (
    Row("view of 3 dims", add, two((64, 32, 32), (32, 16, 8)), 3, tiles=3, descriptors=3),
    Row("view of 4 dims", add, two((16, 8, 8, 8), (8, 8, 4, 2)), 3, tiles=3, descriptors=0),
    Row("view of 4 equal dims", add, two((8, 8, 8, 8), (4, 4, 4, 4)), 3, tiles=3, descriptors=3),
    Row("view at an offset", add, two((8, 8), (4, 4), None, 10), 3, tiles=2, descriptors=3),
    Row("view in steps", add, two((8, 8), (4, 4), (16, 2)), 3, tiles=2, descriptors=1),
    Row("view turned", add, two((8, 8), (4, 4), (1, 8)), 3, tiles=2, descriptors=3),
    Row("view of odd rows", add, two((5, 9), (5, 8)), 3, tiles=2, descriptors=1),
    Row("view of odd columns", add, two((15, 9), (15, 3)), 3, tiles=2, descriptors=0),
    Row("view of one element", add, two((1, 1, 1), (1, 1, 1)), 0, tiles=0),
    Row("view of whole blocks", add, two((2, 4 * MAX), (2, 3 * MAX)), 3, tiles=1, descriptors=3),
)


def whole_blocks() -> tuple[Tensor]:
    """Five rows of a multiple of the largest block, one behind the other, whatever the size of the middle is."""
    x = torch.randn(10, 3, MAX)
    torch._dynamo.mark_dynamic(x, 1)
    return (x,)


def scaled_sum(x: Tensor, y: Tensor) -> Tensor:
    return (x + 1) + (y * 2)


def singleton_dims(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x.expand(1, 3, 4, 32).cos() * y + z


def broadcast_like(x: Tensor, y: Tensor) -> Tensor:
    return x.expand(y.shape).clone()


def pair(first: tuple[int, ...], second: tuple[int, ...]) -> Made:
    return lambda: (torch.randn(first), torch.randn(second))


def expand(first: tuple[int, ...], second: tuple[int, ...], accesses: int, **more: Any) -> Row:
    return Row(f"expand {first} to {second}", broadcast_like, pair(first, second), accesses, **more)


BROADCASTS = (
    Row("broadcast of columns", scaled_sum, lambda: (apart(8, 8), apart(8, 1)), 3),
    Row("broadcast of rows", scaled_sum, lambda: (apart(8, 8), apart(1, 8)), 3),
    Row("broadcast of both", scaled_sum, lambda: (apart(4, 1, 4), apart(1, 4, 1)), 3),
    Row("broadcast of outer dims", scaled_sum, lambda: (apart(1, 1, 1, 4), apart(4, 4, 4, 4)), 3),
    expand((32, 1), (32, 32), 2),
    expand((1, 8), (8, 8), 2),
    expand((4, 1, 3), (4, 4, 3), 2),
    expand((4, 1, 3), (4, 5, 3), 2),
    expand((1, 5, 5), (5, 5, 5), 2),
    expand((5, 5, 1), (5, 5, 5), 2),
    expand((5, 1, 1), (5, 5, 5), 2),
    expand((1, 1, 5), (5, 5, 5), 2),
    expand((1, 5, 1), (5, 5, 5), 2),
    expand((7, 1, 1, 4), (7, 3, 4, 4), 2),
    expand((5, 6, 1, 1), (5, 6, 4, 3), 2),
    Row("broadcast of a column view", add, lambda: (torch.randn(8, 8), torch.randn(8, 8)[:, :1]), 3),
    Row("expand and clone", lambda x: x.expand(32, 32).clone(), lambda: (torch.randn(1, 32),), 2, tiles=2),
    Row(
        "broadcast with singleton dims",
        lambda x, y, z: (
            torch.cos(x.as_strided((1, 4, 2, 32), (128, 1, 0, 4))).permute(0, 1, 2, 3).reshape(1, 4, 1, 64)
            * y.as_strided((1, 3, 4, 64), (768, 64, 192, 1)).permute(0, 2, 1, 3)
            + z
        ),
        lambda: (torch.randn(128), torch.randn(768), torch.randn(1, 4, 3, 64)),
        4,
    ),
)


OWN = "each axis has offsets of its own, of any size"
LAST_JOINS = "the last program of the kernel for the parts joins them"
ONE_PASS = "so few elements are reduced by one kernel, and no part of a result is written and read again"


def total(*dims: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.sum(dims) if dims else x.sum()


REDUCTIONS = (
    Row("sum of (4, 4)", total(), lambda: (apart(4, 4),), 1, reduced=2),
    Row("sum of (4, 4, 4)", total(), lambda: (apart(4, 4, 4),), 1, reduced=3),
    Row("sum of (8, 8, 8)", total(), lambda: (apart(8, 8, 8),), 1, reduced=3),
    Row("sum of (15, 15)", total(), lambda: (apart(15, 15),), 1, reduced=2, elsewhere=(0, 1), because=OWN),
    Row("sum of whole blocks by 2", total(), lambda: (apart(3 * MAX, 2),), 3, elsewhere=(3, 2), because=LAST_JOINS),
    Row("sum of 2 by whole blocks", total(), lambda: (apart(2, 3 * MAX),), 1, elsewhere=(2, 2), because=ONE_PASS),
    Row("sum of (128, 128)", total(), lambda: (apart(128, 128),), 1, elsewhere=(3, 2), because=ONE_PASS),
    Row("mixed sum of (8, 8)", lambda x, y: (x + y).sum(), lambda: (apart(8, 8), apart(8, 8)), 2),
    Row("mixed sum of (128, 128)", lambda x, y: (x + y).sum(), lambda: (apart(128, 128), apart(128, 128)), 2),
    Row("difference of whole blocks by 2", lambda x: x - 1, lambda: (view((3 * MAX, 3), (3 * MAX, 2)),), 2),
    Row("sum of 3 dims", total(), lambda: (apart(3, 7, 11),), 1, reduced=3, elsewhere=(0, 1), because=OWN),
    Row("argmax of (3, 3)", torch.argmax, lambda: (apart(3, 3),), 1),
    Row("argmax of (129, 129)", torch.argmax, lambda: (apart(129, 129),), 1),
    Row("sum of (129, 129)", total(), lambda: (apart(129, 129),), 1, elsewhere=(3, 2), because=ONE_PASS),
    Row("var_mean of (5, 5)", torch.var_mean, lambda: (apart(5, 5),), 1),
    Row("var_mean of (8, 8)", torch.var_mean, lambda: (apart(8, 8),), 1),
    Row("var_mean of (128, 128)", torch.var_mean, lambda: (apart(128, 128),), 1, elsewhere=(7, 2), because=ONE_PASS),
    Row(
        "var_mean of (259, 311)",
        torch.var_mean,
        lambda: (apart(259, 311),),
        7,
        kernels=1,
        elsewhere=(6, 2),
        because=LAST_JOINS,
        pointers=6,
    ),
    Row("sum and argmax", lambda x: x.sum() + x.argmax(), lambda: (apart(5, 7),), 1),
    Row("sum and argmax of two", lambda x, y: x.sum() + y.argmax(), lambda: (apart(5, 7), torch.randn(5, 7)), 2),
    Row("sum of (9, 11)", total(), lambda: (apart(9, 11),), 1),
    Row("amax of trailing dims", lambda x: x.amax((-1, -2)), lambda: (apart(7, 5, 3, 2),), 2),
    Row("amax of a padded dim", lambda x: x.amax(-1), lambda: (torch.randn(9, 11, 2),), 2),
    Row(
        "sum of a product by rows",
        lambda x, y: (x * y[:, None]).sum(),
        lambda: (torch.randn(64, 128), torch.randn(64)),
        2,
    ),
    Row(
        "softmax of a reshaped tensor",
        lambda x: torch.softmax(x.reshape(8, 1024), -1),
        lambda: (torch.randn(2, 4, 1024),),
        2,
        elsewhere=(5, 2),
        because="a walk along the rows in two ways is measured there; here the row is short enough to stand in a tile",
    ),
    Row(
        "mean of random numbers",
        lambda x: torch.bernoulli(x, 0.3).sum() / x.numel(),
        lambda: (torch.randn(200, 200),),
        1,
    ),
)


CUT = "what was computed in between is computed where it is read: the axis is cut in digits, and there is one kernel"


def complex_reshape(x: Tensor) -> Tensor:
    x = x + x
    y = x.view(8, 8, 16, 16).permute(0, 2, 1, 3).reshape(8, 2048) + x
    return y.view(8, 16, 8, 16).permute(0, 2, 1, 3).reshape(8, 2048) * 2


def many_outputs(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = x * y
    return z, z + 1, z * 2, z.neg()


def affine_three_times(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    return tuple(
        (x - m[None, :, None, None]) * s[None, :, None, None] for m, s in zip(rest[::2], rest[1::2], strict=True)
    )


def unbacked(x: Tensor, n: Tensor) -> Tensor:
    return x.repeat(1, n.item(), 2).permute(0, 2, 1).contiguous()


OTHERS = (
    Row("complex reshape", complex_reshape, lambda: (torch.randn(8, 2048),), 3, elsewhere=(4, 2), because=CUT),
    Row(
        "permuted in 3 ways",
        lambda x, y, z: x + y.permute(1, 2, 0) + z.permute(2, 0, 1),
        lambda: (torch.randn(51, 51, 51), torch.randn(51, 51, 51), torch.randn(51, 51, 51)),
        4,
        tiles=2,
    ),
    Row("order of axes", add, lambda: (apart(5, 5, 5), apart(5, 5, 5)), 3, tiles=3),
    Row("many outputs", many_outputs, lambda: (torch.randn(8, 11, 128), torch.randn(128)), 6, tiles=2),
    Row(
        "affine three times",
        affine_three_times,
        lambda: (torch.randn(4, 32, 8, 8), *(torch.randn(32) for _ in range(6))),
        10,
    ),
    Row("unfold", lambda x: F.unfold(x, 2), lambda: (torch.randn(2, 3, 5, 5).half(),), 2),
    Row("flip", lambda x, y: x.flip([0, 1, 2]) + y, lambda: (apart(8, 8, 8), apart(8, 8, 8)), 3),
    Row("odd view of 2 dims", add, two((5, 9), (3, 7)), 3, tiles=2),
    Row("odd view of half", add, two((32, 32), (16, 32)), 3, tiles=1),
    Row("odd view of 3 dims", add, two((11, 13, 7), (9, 13, 5)), 3),
    Row("odd view of 4 dims", add, two((3, 11, 13, 7), (2, 9, 13, 7)), 3, tiles=1),
    Row("odd view of 4 others", add, two((3, 11, 13, 7), (2, 11, 9, 7)), 3),
    Row("odd view of 5 dims", add, two((5, 5, 5, 5, 5), (3, 3, 5, 3, 5)), 3, elsewhere=(1, 1), because=OWN),
    Row("pointwise of sizes of the call", torch.div, lambda: (apart(4, 4), apart(4, 4)), 3, dynamic=True),
    Row(
        "product of sizes of the call",
        lambda x: x.prod(),
        lambda: (apart(4, 4),),
        1,
        dynamic=True,
        pointers=1,
    ),
    Row(
        "rows of sizes of the call",
        lambda x, y: torch.softmax(x.t() + y, -1),
        lambda: (torch.randn(70, 33), torch.randn(33, 70)),
        3,
        dynamic=True,
    ),
    Row(
        "part of rows of sizes of the call",
        lambda x: x[:, :1024].reshape(-1) + 1,
        lambda: (torch.randn(3, 2048),),
        2,
        dynamic=True,
        descriptors=0,
    ),
    Row(
        "half of rows of multiples of the largest block",
        lambda x: x.view(5, 2 * MAX * x.shape[1])[:, : MAX * x.shape[1]].reshape(-1) + 1,
        whole_blocks,
        2,
        descriptors=0,
    ),
    Row(
        "sum of half of such rows",
        lambda x: x.view(5, 2 * MAX * x.shape[1])[:, : MAX * x.shape[1]].reshape(-1).exp().sum(),
        whole_blocks,
        2,
        pointers=1,
    ),
    Row(
        "half of such rows at an offset",
        lambda x: x.view(5, 2 * MAX * x.shape[1])[:, MAX * x.shape[1] :].reshape(-1) + 1,
        whole_blocks,
        2,
    ),
    Row(
        "part of rows of multiples of no block",
        lambda x: x.view(5, 2 * MAX * x.shape[1])[:, : 999 * x.shape[1]].reshape(-1) + 1,
        whole_blocks,
        1,
        is_divided=True,
    ),
    Row(
        "pad of sizes of the call",
        lambda x: F.pad(x, (4, 4, 3, 0)) + 1,
        lambda: (torch.randn(8, 32),),
        2,
        dynamic=True,
        pointers=1,
    ),
    Row(
        "part of 3 dims in a row",
        lambda x: x[:, :5, :64].reshape(-1) + 1,
        lambda: (torch.randn(3, 8, 67),),
        1,
        pointers=2,
        is_divided=True,
    ),
    Row(
        "part of 3 dims in rows",
        lambda x, y: x[:, :3, :5, :64].reshape(20, -1) + y,
        lambda: (torch.randn(20, 4, 8, 67), torch.randn(960)),
        3,
    ),
    Row("pad", lambda x: F.pad(x, (4, 4, 3, 0)) + 1, lambda: (torch.randn(8, 32),), 2),
    Row("cat", lambda x, y: torch.cat([x, y], 1).sin(), lambda: (torch.randn(8, 32), torch.randn(8, 16)), 4, kernels=2),
    Row("transposed (128,)", lambda x: x + 1, lambda: (torch.randn(128),), 2),
    Row("transposed (128, 64)", lambda x, y: x.t() + y, lambda: (torch.randn(64, 128), torch.randn(128, 64)), 3),
    Row(
        "transposed (256, 32, 16)",
        lambda x, y: x.permute(2, 0, 1) + y,
        lambda: (torch.randn(256, 32, 16), torch.randn(16, 256, 32)),
        3,
    ),
    Row("a start between", lambda x: x[1:] + 1, lambda: (torch.randn(1025),), 2),
    Row("embedding", lambda i, w: w[i].sum(1), lambda: (torch.randint(0, 50, (4, 6)), torch.randn(50, 64)), 2),
)

ROWS: tuple[Row, ...] = (*VIEWS, *BROADCASTS, *REDUCTIONS, *OTHERS)
