"""Strides that are computed here, against those of the tensors that eager makes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from minductor.frontend.quirks.eager_strides import eager_strides, layout_of, transform_strides, view_strides

aten = torch.ops.aten


def window(pick: random.Random, size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Of that size, in any order, with gaps, and with dimensions of size 1 whose stride is anything."""
    order = pick.sample(range(len(size)), len(size))
    wide = [n + pick.choice([0, 0, 1, 2]) for n in size]
    whole = torch.rand([wide[d] for d in order]).to(dtype).permute([order.index(d) for d in range(len(size))])
    return whole[tuple(slice(0, n) for n in size)]


def test_places_in_any_layout() -> None:
    pick = random.Random(0)
    for _ in range(200):
        size = [pick.choice([1, 1, 2, 3]) for _ in range(pick.randint(1, 4))]
        x = window(pick, size)
        indices: list[torch.Tensor | None] = [None] * len(size)
        for d in pick.sample(range(len(size)), pick.randint(1, min(2, len(size)))):
            indices[d] = window(pick, [pick.choice([1, 2]) for _ in range(pick.randint(0, 2))], torch.int64)
        found = aten.index.Tensor(x, indices)
        if found.dim():
            shown = [None if i is None else (i.shape, i.stride()) for i in indices]
            assert eager_strides(aten.index.Tensor, (x, indices), found) == found.stride(), (size, x.stride(), shown)


def test_images_in_any_layout() -> None:
    pick = random.Random(0)
    rows = {
        aten._native_batch_norm_legit.no_stats: (None, None, True, 0.1, 1e-5),
        aten.channel_shuffle.default: (1,),
        aten.grid_sampler_2d.default: (torch.zeros(2, 3, 2, 2), 0, 0, False),
        aten.replication_pad2d.default: ((1, 1, 1, 1),),
        aten.upsample_bicubic2d.default: ((3, 2), False),
        aten.upsample_nearest2d.default: ((3, 2),),
    }
    for _ in range(100):
        x = window(pick, [2, *(pick.choice([1, 1, 2, 3]) for _ in range(3))])
        for op, more in rows.items():
            result = op(x, *more)
            found = result[0] if isinstance(result, tuple) else result
            assert eager_strides(op, (x, *more), found) == found.stride(), (op, x.shape, x.stride())


def test_rolls_in_any_layout() -> None:
    """Of a part without elements nobody suggests that the channels are last."""
    pick = random.Random(0)
    for _ in range(100):
        x = window(pick, [pick.choice([1, 2, 3]) for _ in range(pick.randint(1, 4))])
        x = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 and pick.random() < 0.5 else x
        count = pick.randint(1, 2)
        args = [pick.randint(-3, 3) for _ in range(count)], [pick.randrange(-x.dim(), x.dim()) for _ in range(count)]
        found = torch.roll(x, *args)
        assert eager_strides(aten.roll.default, (x, *args), found) == found.stride(), (x.shape, x.stride(), args)


def test_gated_halves_in_any_layout() -> None:
    pick = random.Random(0)
    for _ in range(200):
        size = [pick.choice([1, 2, 4]) for _ in range(pick.randint(1, 4))]
        dim = pick.randrange(len(size))
        size[dim] = pick.choice([2, 4, 6])
        x = window(pick, size)
        found = aten.glu.default(x, dim)
        assert eager_strides(aten.glu.default, (x, dim), found) == found.stride(), (x.shape, x.stride(), dim)


def test_views_in_any_layout() -> None:
    pick = random.Random(0)
    for _ in range(200):
        x = window(pick, [pick.choice([1, 1, 2, 3]) for _ in range(pick.randint(1, 4))])
        size = [n for n in x.shape if n > 1 or pick.random() < 0.5]
        size.insert(pick.randint(0, len(size)), 1)
        assert view_strides(layout_of(x), tuple(size)) == x.view(size).stride(), (x.shape, x.stride(), size)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_powers_of_two_in_any_layout() -> None:
    pick = random.Random(0)
    for _ in range(100):
        size = [pick.choice([1, 2, 3]) for _ in range(pick.randint(1, 4))]
        x, y = (window(pick, [n if pick.random() < 0.7 else 1 for n in size]) for _ in "xy")
        for exponent in (y, y.int()):
            found = torch.ldexp(x, exponent)
            assert eager_strides(aten.ldexp.Tensor, (x, exponent), found) == found.stride(), (
                x.stride(),
                exponent.stride(),
            )


def test_truths_of_one_argument_with_gaps() -> None:
    """It is not cast to bool, which would make a copy without gaps."""
    x = torch.ones(100).as_strided((4, 1, 4), (5, 20, 1))
    for op in (aten.isnan, aten.signbit, aten.logical_not, aten.isposinf):
        assert eager_strides(op.default, (x,), found := op.default(x)) == found.stride() == (4, 16, 1)


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="another library computes them")
def test_fourier_transforms_in_any_layout() -> None:
    pick = random.Random(0)
    for _ in range(100):
        size = [pick.choice([1, 2, 3, 4]) for _ in range(pick.randint(1, 4))]
        x, z = window(pick, size), window(pick, size, torch.complex64)
        dims = pick.sample(range(len(size)), pick.randint(1, len(size)))
        calls = (
            (aten._fft_c2c, z, True),
            (aten._fft_r2c, x, pick.random() < 0.5),
            (aten._fft_c2r, z, 2 * size[dims[-1]] - 1),
        )
        for op, given, last in calls:
            found = op.default(given, dims, 0, last)
            expected = transform_strides(op.default, given, dims, tuple(found.shape))
            assert expected == found.stride(), (op, size, given.stride(), dims)
