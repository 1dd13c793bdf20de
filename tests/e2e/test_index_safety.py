"""An index out of range raises eager's kind of error and touches nothing outside; one proved in range is not tested.

Assertions of the graph raise with their own words, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.driver import Compiled
from pytest_plugin.compiled import Compile

ROWS, COLUMNS = 5, 3


def rows(i: Tensor) -> Tensor:
    return i[:, None].expand(-1, COLUMNS)


# name -> function of (x: 5x3, some indices, as many rows)
USES: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "index": lambda x, i, v: x[i],
    "index of two": lambda x, i, v: x[i, i.abs() % 3],
    "index_put": lambda x, i, v: x.index_put((i,), v),
    "index_put accumulate": lambda x, i, v: x.index_put((i,), v, accumulate=True),
    "gather": lambda x, i, v: x.gather(0, rows(i)),
    "scatter": lambda x, i, v: x.scatter(0, rows(i), v),
    "scatter value": lambda x, i, v: x.scatter(0, rows(i), 1.0),
    "scatter_add": lambda x, i, v: x.scatter_add(0, rows(i), v),
    "scatter_reduce": lambda x, i, v: x.scatter_reduce(0, rows(i), v, "amax", include_self=False),
    "index_select": lambda x, i, v: x.index_select(0, i),
    "index_add": lambda x, i, v: x.index_add(0, i, v),
    "index_add of one dimension": lambda x, i, v: x[:, 0].index_add(0, i, v[:, 0]),
    "index_copy": lambda x, i, v: x.index_copy(0, i, v),
    "index_fill": lambda x, i, v: x.index_fill(0, i, 1.0),
    "index_reduce": lambda x, i, v: x.index_reduce(0, i, v, "amax"),
    "take": lambda x, i, v: x.take(i * 4),
    "put": lambda x, i, v: x.put(i * 4, v[:, 0]),
    "embedding": lambda x, i, v: F.embedding(i, x),
    "nll_loss": lambda x, i, v: F.nll_loss(v, i),
    "cross_entropy": lambda x, i, v: F.cross_entropy(v, i),
    "padded": lambda x, i, v: F.pad(x[i], (1, 1, 1, 1)),
}


def error_of(call: Callable[..., Any], *args: Any) -> type[Exception] | None:
    try:
        call(*args)
    except Exception as error:
        return IndexError if isinstance(error, IndexError) else type(error)
    return None


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", USES)
def test_eager_s_kind_of_error(name: str) -> None:
    """For each index, in range or not; and the next call is right again."""
    torch._dynamo.reset()
    compiled = torch.compile(USES[name], backend=minductor.minductor)
    x, v = torch.randn(ROWS, COLUMNS), torch.randn(4, COLUMNS)
    for number in (ROWS, 1 << 40, -1 << 62, -ROWS - 1, -1, 2):
        index = torch.tensor([0, 1, number, 2])
        expected = error_of(USES[name], x, index, v)
        assert error_of(compiled, x, index, v) is expected, number
        if expected is None:
            torch.testing.assert_close(compiled(x, index, v), USES[name](x, index, v))


def test_nothing_outside_a_tensor_is_written() -> None:
    """The tensor lies in the middle of a larger one, whose margins must not change."""
    around = torch.zeros(40)
    names = ("index_put", "index_put accumulate", "scatter", "scatter_add", "index_add", "index_copy", "put")

    def fn(x: Tensor, i: Tensor, v: Tensor, name: str) -> Tensor:
        return x.copy_(USES[name](x, i, v))

    for name in names:
        torch._dynamo.reset()
        window = around[10:25].view(ROWS, COLUMNS)
        index = torch.tensor([9, -9, 1 << 40, -1 << 62])
        with pytest.raises((IndexError, RuntimeError)):
            torch.compile(fn, backend=minductor.minductor)(window, index, torch.ones(4, COLUMNS), name)
        assert not around[:10].any() and not around[25:].any(), name


def test_a_dimension_without_elements_has_no_place_to_read() -> None:
    """Its size is data, so that it may be 0 although tracing takes it for more."""

    def fn(x: Tensor, i: Tensor) -> Tensor:
        kept = x[x > 0]
        return kept[i] * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(fn, backend=minductor.minductor)
        x, i = torch.arange(1.0, 6.0), torch.tensor([4, 0])
        assert torch.equal(compiled(x, i), fn(x, i))
        with pytest.raises(IndexError):
            compiled(-x, i)


def checks_made(fn: Callable[..., Any], *args: Any, dynamic: bool = False) -> int:
    """How many bounds checks the kernels make."""
    seen: list[Compiled] = []
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend=minductor.Compiler(observer=seen.append), dynamic=dynamic)
    torch.testing.assert_close(compiled(*args), fn(*args))
    return sum(text.count("_wrong = ") for made in seen for text in made.sources.values())


PROVED: dict[str, Callable[[Tensor], Tensor]] = {
    "arange": lambda x: x[torch.arange(x.shape[0])],
    "reversed": lambda x: x[x.shape[0] - 1 - torch.arange(x.shape[0])],
    "every second": lambda x: x.index_select(0, torch.arange(0, x.shape[0], 2)),
    "modulo": lambda x: x.gather(0, (torch.arange(3 * x.shape[0]) % x.shape[0])[:, None].expand(-1, 3)),
    "clamped": lambda x: x[(x[:, 0] * 9).long().clamp(0, x.shape[0] - 1)],
    "remainder of data": lambda x: x[(x[:, 0] * 9).long() % x.shape[0]],
    "a choice": lambda x: x[torch.where(x[:, 0] > 0, 1, 0)],
    "a byte": lambda x: x.new_zeros(256)[(x[:, 0] > 0).to(torch.uint8).long()],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROVED)
def test_what_is_proved_is_not_tested(name: str, dynamic: bool) -> None:
    assert checks_made(PROVED[name], torch.randn(7, 3), dynamic=dynamic) == 0


def test_what_is_not_proved_is_tested() -> None:
    x = torch.randn(7, 3)
    assert checks_made(lambda x, i: x[i], x, torch.tensor([6])) == 1
    assert checks_made(lambda x: x[(x[:, 0] * 9).long().clamp(0, 7) - 1], x) == 0  # -1 is the last row
    assert checks_made(lambda x: x[x[:, 0].abs().sign().long().clamp(1, 7) * 6], x) == 1
    assert checks_made(lambda x: x.index_select(0, (x[:, 0] * 0).long().clamp(0, 7)), x) == 1


def test_an_index_within_a_window_that_pads_keeps_its_names_apart(compiled: Compile, device: str) -> None:
    i = torch.tensor([3, 1, 4, 1], device=device)
    compiled(lambda x: F.pad(F.pad(x[i], (1, 1))[i % 4].roll(1, 0), (2, 2)) + F.pad(x[i, 0], (0, 0))[:, None], X)


X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))

MESSAGE = 'it\'s "bad": 100% %s {x}\n\tnext line \\ é 漢 \N{GRINNING FACE}'


def raises(fn: Callable[[Tensor], Any], good: Tensor, bad: Tensor, message: str) -> list[Compiled]:
    seen: list[Compiled] = []
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend=minductor.Compiler(observer=seen.append), fullgraph=True)
    torch.testing.assert_close(compiled(good), fn(good))
    with pytest.raises(RuntimeError) as caught:
        compiled(bad)
    assert str(caught.value) == message
    return seen


def test_an_assertion_is_one_kernel_with_what_stands_around_it() -> None:
    def fn(x: Tensor) -> Tensor:
        torch._assert_async(torch.all(x > 0), MESSAGE)
        return x.sin()

    for size in (7, 200_000):
        (made,) = raises(fn, torch.ones(size), -torch.ones(size), MESSAGE)
        assert made.report.kernels == 1 and not made.report.externs


def test_an_assert_statement() -> None:
    """Made of text: pytest writes the asserts of this file anew."""
    made: dict[str, Any] = {"torch": torch}
    exec("def fn(x):\n  assert torch.all(x > 0), 'not positive'\n  return x + 1", made)
    raises(made["fn"], torch.ones(9), torch.zeros(9), "not positive")


def test_an_assertion_that_nothing_needs_is_not_dead_and_the_first_that_fails_speaks() -> None:
    def fn(x: Tensor) -> Tensor:
        torch._assert_async(x.sum() > 0, "first")
        torch._assert_async(x[0] > 0, "second")
        return torch.zeros(3)

    raises(fn, torch.ones(9), -torch.ones(9), "first")
    raises(fn, torch.ones(9), torch.tensor([-1.0] + 8 * [1.0]), "second")


def test_inside_a_parallel_loop() -> None:
    def fn(x: Tensor) -> Tensor:
        return (x * 4096).int() // x.int()

    raises(fn, torch.ones(300_000), torch.ones(300_000).index_fill(0, torch.tensor([299_999]), 0), "ZeroDivisionError")


@pytest.mark.parametrize(("reduction", "wrong"), [("none", 1.5), ("mean", -0.5), ("sum", torch.nan)])
def test_a_cross_entropy_is_of_probabilities(reduction: str, wrong: float) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(x, y, reduction=reduction)

    half, good, bad = torch.full((9,), 0.5), torch.ones(9), torch.tensor(8 * [0.5] + [wrong])
    (made,) = raises(lambda x: fn(x, half), good, bad, "all elements of input should be between 0 and 1")
    assert made.report.kernels == 1 and not made.report.externs
    raises(lambda x: fn(half, x), good, bad, "all elements of target should be between 0 and 1")


def test_the_message_names_operator_dimension_and_size() -> None:
    def fn(x: Tensor, i: Tensor) -> Tensor:
        return x.gather(1, i).exp()

    said = r"aten\.gather\.default: index out of range: it is out of bounds for dimension 1 with size 5"
    with pytest.raises(RuntimeError, match=said):
        torch.compile(fn, backend="minductor")(torch.randn(2, 5), torch.tensor([[0, 7], [1, 2]]))


@pytest.mark.parametrize("name", ["index", "gather", "index_select", "embedding"])
def test_a_dimension_of_one_has_one_index(name: str) -> None:
    uses = {**USES, "gather": lambda x, i, v: x.gather(0, i[:, None])}
    compiled = torch.compile(uses[name], backend=minductor.minductor)
    for value in (0, 1, -2):
        args = torch.ones(1, 1), torch.tensor([value]), torch.ones(1, 1)
        assert error_of(compiled, *args) == error_of(uses[name], *args)


def test_a_place_of_one_needs_no_index(compiled: Compile) -> None:
    """The load is dead, and so is then what made the index, though the index is proved to be 0 by nobody else."""
    compiled(lambda x: x.any(0).gather(0, torch.zeros_like(x[0], dtype=torch.int64)), torch.ones(1, 1))
