"""Writes at places that data decide, against eager: every operator, duplicates, layouts, dtypes, gradients, no size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import minductor
from minductor.frontend.rules import scatter
from minductor.options import Options
from minductor.target import Env, by_name
from pytest_plugin.oracle.compiled import Compile

# sizes are symbols for float32 and int64
F64, U8 = torch.float64, torch.uint8
DTYPES = (torch.float32, F64, torch.bfloat16, torch.int64, U8)


def values(*size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    made = torch.randn(*size, generator=torch.Generator().manual_seed(seed)) * 4
    return made.abs().to(dtype) if dtype == torch.uint8 else made.to(dtype)


def numbers(low: int, high: int, *size: int, seed: int = 1) -> Tensor:
    return torch.randint(low, high, size, generator=torch.Generator().manual_seed(seed))


X, ROWS, INDEX = (9, 6), (20, 6), (7, 6)
# name -> function of (x, a row of 20 indices below 6, an index of 7x6 below 6, the values: 20x6)
WRITES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Any]] = {
    "index_put": lambda x, i, at, v: x.index_put((i,), v),
    "index_put negative": lambda x, i, at, v: x.index_put((-1 - i,), v),
    "index_put both": lambda x, i, at, v: x.index_put((i, at.flatten()[:20]), v[:, 0]),
    "index_put second": lambda x, i, at, v: torch.ops.aten.index_put(x, [None, i], v[0, 0]),
    "index_put broadcast": lambda x, i, at, v: x.index_put((i[:4, None], at[0, :3]), v[:1, :3]),
    "index_put add": lambda x, i, at, v: x.index_put((i,), v, accumulate=True),
    "index_put mask": lambda x, i, at, v: x.index_put((at.T.reshape(-1)[:9] > 2,), v[0]),
    "index_put mask add": lambda x, i, at, v: x.index_put((x > 0,), v[0, 0], accumulate=True),
    "setitem": lambda x, i, at, v: _set(x, (slice(None), at[0]), v[:9]),
    "scatter": lambda x, i, at, v: x.scatter(0, at, v),
    "scatter value": lambda x, i, at, v: x.scatter(1, at, 3),
    "scatter reduce": lambda x, i, at, v: x.scatter(0, at, v, reduce="add"),
    "scatter multiply": lambda x, i, at, v: x.scatter(1, at[:, :2], 2, reduce="multiply"),
    "scatter_add": lambda x, i, at, v: x.scatter_add(0, at, v),
    "scatter_add inner": lambda x, i, at, v: x.scatter_add(-1, at, v),
    **{
        f"scatter_reduce {how} {kept}": lambda x, i, at, v, how=how, kept=kept: x.scatter_reduce(
            0, at, v, how, include_self=kept
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
        for kept in (True, False)
    },
    "index_add": lambda x, i, at, v: x.index_add(0, i, v),
    "index_add alpha": lambda x, i, at, v: x.index_add(
        1, i[:9], v[:9, :9].T.contiguous().T[:9].repeat(1, 2)[:, :9], alpha=2
    ),
    "index_copy": lambda x, i, at, v: x.index_copy(0, i, v),
    "index_fill": lambda x, i, at, v: x.index_fill(1, i[:3] - 6, 2),
    "index_reduce": lambda x, i, at, v: x.index_reduce(0, i, v, "amax"),
    "index_reduce mean": lambda x, i, at, v: x.index_reduce(0, i, v, "mean", include_self=False),
    "put": lambda x, i, at, v: x.put(i * 8 - 7, v[:, 0]),
    "put add": lambda x, i, at, v: x.put(at, v[:7], accumulate=True),
    "diagonal_scatter": lambda x, i, at, v: x.diagonal_scatter(v[0, :5], 1),
    "as_strided_scatter": lambda x, i, at, v: x.as_strided_scatter(v[:2, :3], (2, 3), (8, 2), 1),
    "masked_scatter": lambda x, i, at, v: x.masked_scatter(x > 0, v),
}


def _set(x: Tensor, where: Any, value: Tensor) -> Tensor:
    x = x.clone()
    x[where] = value
    return x


def run(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(fn, backend=minductor.minductor, **kwargs)(*args)


def arguments(dtype: torch.dtype) -> tuple[Tensor, ...]:
    return values(*X, dtype=dtype), numbers(0, 6, 20), numbers(0, 6, *INDEX), values(*ROWS, dtype=dtype, seed=2)


def together(names: Sequence[str]) -> Callable[..., list[Tensor]]:
    return lambda *args: [WRITES[name](*args) for name in names]


def supported(dtype: torch.dtype) -> list[str]:
    found: list[str] = []
    for name, write in WRITES.items():
        try:
            write(*arguments(dtype))
        except RuntimeError:  # eager has no kernel for the dtype
            continue
        found.append(name)
    return found


def close(got: Tensor, eager: Tensor, truth: Tensor) -> bool:
    """No further from the truth than eager, or a rounding."""
    assert (got.dtype, got.shape, got.stride()) == (eager.dtype, eager.shape, eager.stride())
    if not got.is_floating_point():
        return torch.equal(got, eager)
    off, allowed = (got.double() - truth).abs(), (eager.double() - truth).abs()
    return bool((off <= 2 * allowed + 4 * torch.finfo(got.dtype).eps * truth.abs()).all())


@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:The reduce argument")
@pytest.mark.parametrize(
    "dtype", [pytest.param(d, marks=pytest.mark.long if d in (F64, U8) else (), id=str(d)) for d in DTYPES]
)
def test_every_write(dtype: torch.dtype) -> None:
    names, args = supported(dtype), arguments(dtype)
    assert len(names) > 25
    fn = together(names)
    got, eager = run(fn, *args, dynamic=dtype == torch.float32), fn(*args)
    truth = fn(*(a.double() if a.is_floating_point() else a for a in args))
    for name, a, b, c in zip(names, got, eager, truth, strict=True):
        assert close(a, b, c.double()), name


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:The reduce argument")
@pytest.mark.parametrize("dynamic", [False, True])
def test_every_write_as_into_a_large_tensor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dynamic: bool) -> None:
    """16-bit sums in a buffer that has the shape of the values, which small tensors are not worth."""
    monkeypatch.setattr(scatter, "SPARSE_ELEMENTS", 0)
    monkeypatch.setattr(scatter, "SPARSE_RATIO", 0)
    names, args = supported(torch.bfloat16), arguments(torch.bfloat16)
    fn = together(names)
    got = run(fn, *args, dynamic=dynamic, options={"cache_dir": str(tmp_path), "verify": True})
    truth = fn(*(a.double() if a.is_floating_point() else a for a in args))
    for name, a, b, c in zip(names, got, fn(*args), truth, strict=True):
        assert close(a, b, c.double()), name


@pytest.mark.parametrize("layout", ["transposed", pytest.param("strided", marks=pytest.mark.long), "expanded values"])
def test_layouts(layout: str) -> None:
    x, i, at, v = arguments(torch.float32)
    match layout:
        case "transposed":
            x, at, v = x.T.contiguous().T, at.T.contiguous().T, v.T.contiguous().T
        case "strided":
            x, i, v = values(9, 18)[:, 1::3], numbers(0, 6, 40)[::2], values(40, 6)[::2]
        case _:
            v = values(1, 6).expand(20, 6)
    names = [name for name in supported(torch.float32) if name != "as_strided_scatter"]
    fn = together(names)
    for name, a, b in zip(names, run(fn, x, i, at, v), fn(x, i, at, v), strict=True):
        torch.testing.assert_close(a, b, msg=name)
        assert a.stride() == b.stride(), name


def test_the_last_of_several_writes_wins_whatever_the_layout_of_the_index() -> None:
    """In eager too, where all lies in rows; else its order is that of memory, and of its threads."""
    index = numbers(0, 3, 40, 50)
    source = torch.arange(2000.0).reshape(40, 50)
    expected = torch.zeros(3).index_put((index,), source)
    for at, v in ((index, source), (index.T.contiguous().T, source.T.contiguous().T)):
        assert torch.equal(run(lambda at, v: torch.zeros(3).index_put((at,), v), at, v), expected)


def test_sums_have_the_same_bits_for_every_number_of_threads() -> None:
    table, ids, grad = values(50, 700), numbers(0, 50, 3000), values(3000, 700)

    def fn(x: Tensor, i: Tensor, v: Tensor) -> Any:
        return x.index_add(0, i, v), x.scatter_add(1, i[:700].expand(50, 700), v[:50])

    compiled = torch.compile(fn, backend=minductor.minductor)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            found.append(compiled(table, ids, grad))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("size", [0, 1])
def test_an_index_without_elements_or_with_one(size: int) -> None:
    x, i, v = values(5, 3), numbers(0, 5, size), values(size, 3)

    def fn(x: Tensor, i: Tensor, v: Tensor) -> Any:
        return (
            x.index_put((i,), v), x.index_add(0, i, v), x.index_copy(0, i, v), x.index_fill(0, i, 1.0),
            x.scatter_add(0, i[:, None].expand(size, 3), v), x[i], x.index_select(0, i),
        )  # fmt: skip

    for dynamic in (False, True):
        for a, b in zip(run(fn, x, i, v, dynamic=dynamic), fn(x, i, v), strict=True):
            assert torch.equal(a, b)


def test_numbers_without_dimensions() -> None:
    def fn(x: Tensor, i: Tensor, v: Tensor) -> Any:
        return (
            x.scatter(0, i, v), x.scatter_add(0, i, v), x.gather(0, i), x.index_select(0, i), x.index_add(0, i, v),
            x.index_copy(0, i, v), x.index_fill(0, i, 2.0), x.take(i), x.put(i, v),
        )  # fmt: skip

    args = torch.tensor(3.0), torch.tensor(0), torch.tensor(5.0)
    for a, b in zip(run(fn, *args), fn(*args), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


SHARED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "the columns that are read": lambda x, i, v: _set(x, (slice(None), i % 3), x[:, i % 3] + 1),
    "of a temporary": lambda x, i, v: torch.ops.aten.index_put(x * 2, [None, i % 3], (x * 2)[:, i % 3] + 1),
    "known to meet": lambda x, i, v: x[:, 0].index_put((torch.arange(9) // 4,), v[:9, 0]),
    "all in one place": lambda x, i, v: x.index_put((torch.zeros(20, dtype=torch.long),), v),
    "along a row": lambda x, i, v: x.scatter(1, torch.zeros(9, 6, dtype=torch.long), x * 2),
    "in turn": lambda x, i, v: x.index_add(0, torch.arange(20) % 3, v),
}


@pytest.mark.parametrize("dynamic", [False, True])
def test_elements_that_several_points_write(dynamic: bool) -> None:
    """A point must not read what another one wrote, nor run before one that comes first."""

    def fn(x: Tensor, i: Tensor, v: Tensor) -> list[Tensor]:
        return [write(x, i, v) for write in SHARED.values()]

    x, i, _, v = arguments(torch.float32)
    for name, ours, eager in zip(SHARED, run(fn, x, i, v, dynamic=dynamic), fn(x, i, v), strict=True):
        assert torch.equal(ours, eager), name


def test_in_place_operators_write_the_tensor_itself_and_read_windows_on_it_before() -> None:
    """As a pass over the graph leaves them; eager refuses values that overlap with what is written."""

    def fn(x: Tensor, i: Tensor, held: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
        x.index_put_((i,), held(x[2:6]))
        x.scatter_(0, i[:, None].expand(4, 3), held(x[1:5]))
        x.scatter_reduce_(0, i[:, None].expand(4, 3), held(x[1:5]), "mean", include_self=False)
        x.index_add_(0, i, held(x[:4]))
        x.put_(i, held(x[0, :1]).expand(4), accumulate=True)
        return x + 1

    for dtype in (torch.float32, torch.bfloat16):
        x, i = values(8, 3, dtype=dtype), torch.tensor([3, 0, 4, 3])
        mine, eager = x.clone(), x.clone()
        graph = make_fx(lambda x, i: fn(x, i), tracing_mode="fake")(mine, i)
        env = Env(Options.parse(None, {"verify": True}, {}), by_name("cpu"))
        (got,) = minductor.Compiler().compile_graph(graph, [mine, i], role="inference", env=env)([mine, i])
        expected = fn(eager, i, Tensor.clone)
        assert torch.equal(mine, eager)
        assert torch.equal(got, expected)


@pytest.mark.counts(externs=0)
def test_gradients(compiled: Compile, device: str) -> None:
    i, at = numbers(0, 6, 20), numbers(0, 6, *INDEX)

    def fn(x: Tensor, v: Tensor) -> Tensor:
        y = x.index_put((i,), v, accumulate=True) + x.index_add(0, i, v).sin()
        y = y + x.scatter_add(0, at, v[:7]) + x.index_copy(0, torch.arange(9), v[:9]) + x.scatter(0, at[:1], v[:1])
        return (y.gather(0, at) * at).sum() + y.take(at).sum() + y[i].cos().sum() + y.index_select(1, i).sum()

    compiled(fn, values(*X), values(*ROWS), grad=True)


@pytest.mark.parametrize(
    ("padding", "scale"),
    [(None, False), (0, True), *(pytest.param(*pair, marks=pytest.mark.long) for pair in ((0, False), (None, True)))],
)
def test_embedding_s_gradient(compiled: Compile, padding: int | None, scale: bool) -> None:
    ids = numbers(0, 5, 8, 3)
    compiled(lambda w: F.embedding(ids, w, padding_idx=padding, scale_grad_by_freq=scale), values(7, 16), grad=True)


@pytest.mark.counts(kernels=2, externs=0)
def test_a_sum_of_rows_is_a_fill_and_one_kernel(compiled: Compile) -> None:
    compiled(lambda i, v: torch.zeros(10, 8).index_add(0, i, v.sin()), numbers(0, 10, 50), values(50, 8))


@pytest.mark.parametrize("reduction", ["mean", pytest.param("sum", marks=pytest.mark.long), "none"])
def test_losses(reduction: str) -> None:
    logits, target = values(4, 5, 3), numbers(0, 5, 4, 3)
    target[1, 2] = -100
    weight, shares = values(5).abs(), torch.softmax(values(4, 5, 3, seed=3), 1)

    def fn(x: Tensor) -> list[Tensor]:
        return [
            F.nll_loss(x.log_softmax(1), target, weight, reduction=reduction),
            F.cross_entropy(x, target, label_smoothing=0.2, reduction=reduction),
            F.cross_entropy(x, shares, weight, reduction=reduction),
            F.cross_entropy(x[..., None], target[..., None].clamp(0), ignore_index=2, reduction=reduction),
        ]

    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    got, expected = run(fn, ours), fn(theirs)
    sum(y.sum() for y in got).backward()
    sum(y.sum() for y in expected).backward()
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)
