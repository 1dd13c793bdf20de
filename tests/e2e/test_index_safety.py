"""An index out of range raises eager's kind of error and touches nothing outside; one proved in range is not tested.

Assertions of the graph raise with their own words, wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.driver import Compiled
from pytest_plugin.oracle.compiled import Compile

ROWS, COLUMNS = 5, 3


def rows(i: Tensor) -> Tensor:
    return i[:, None].expand(-1, COLUMNS)


# name -> function of (x: 5x3, some indices, as many rows)
USES: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "index": lambda x, i, v: x[i],
    "index of two": lambda x, i, v: x[i, i.abs() % 3],
    "index_put": lambda x, i, v: x.index_put((i,), v),
    "index_put accumulate": lambda x, i, v: x.index_put((i,), v, accumulate=True),
    "gather": lambda x, i, v: x.gather(0, rows(i).contiguous()),
    "scatter": lambda x, i, v: x.scatter(0, rows(i), v),
    "scatter value": lambda x, i, v: x.scatter(0, rows(i), 1.0),
    "scatter_add": lambda x, i, v: x.scatter_add(0, rows(i), v),
    "scatter_reduce": lambda x, i, v: x.scatter_reduce(0, rows(i), v, "amax", include_self=False),
    "index_select": lambda x, i, v: x.index_select(0, i),
    "index_add": lambda x, i, v: x.index_add(0, i, v),
    "index_add of one dimension": lambda x, i, v: x[:, 0].index_add(0, i, v[:, 0]),
    "index_add alpha": lambda x, i, v: x.index_add(0, i, v, alpha=2),
    "index_select of dimension 1": lambda x, i, v: x.t().contiguous().index_select(1, i),
    "index_copy": lambda x, i, v: x.index_copy(0, i, v),
    "index_fill": lambda x, i, v: x.index_fill(0, i, 1.0),
    "index_reduce": lambda x, i, v: x.index_reduce(0, i, v, "amax"),
    "take": lambda x, i, v: x.take(i * 4),
    "put": lambda x, i, v: x.put(i * 4, v[:, 0]),
    "put accumulate": lambda x, i, v: x.put(i * 4, v[:, 0], accumulate=True),
    "take_along_dim": lambda x, i, v: x.take_along_dim(rows(i).contiguous(), 0),
    "embedding": lambda x, i, v: F.embedding(i, x),
    "embedding_bag": lambda x, i, v: F.embedding_bag(i[None], x),
    "max_unpool1d": lambda x, i, v: F.max_unpool1d(v[None], rows(i)[None], 2),
    "nll_loss": lambda x, i, v: F.nll_loss(v, i),
    "cross_entropy": lambda x, i, v: F.cross_entropy(v, i),
    "padded": lambda x, i, v: F.pad(x[i], (1, 1, 1, 1)),
}


def error_of(call: Callable[..., Any], *args: Any) -> type[Exception] | None:
    try:
        call(*args)
    except Exception as error:
        return next((kind for kind in (IndexError, RuntimeError) if isinstance(error, kind)), type(error))
    return None


SAMPLE = ("index", "index_put", "gather", "scatter_add", "index_select", "embedding", "nll_loss")
# Each is like another one of USES: "scatter value" like "scatter", "put" like "take" and "index_put".
LIKES = ("scatter value", "index_add alpha", "index_select of dimension 1", "index_fill", "put", "cross_entropy")
NAMES_AND_DTYPES = [
    pytest.param(
        name,
        dtype,
        marks=() if name in SAMPLE or (dtype == torch.int64 and name not in LIKES) else pytest.mark.long,
        id=f"{name}-{dtype}",
    )
    for name in USES
    for dtype in (torch.int64, torch.int32)
]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize(("name", "dtype"), NAMES_AND_DTYPES)
def test_eager_s_kind_of_error(name: str, dtype: torch.dtype) -> None:
    """For each index, in range or not, also of a dtype that eager refuses; and the next call is right again."""
    torch._dynamo.reset()
    compiled = torch.compile(USES[name], backend=minductor.minductor)
    x, v = torch.randn(ROWS, COLUMNS), torch.randn(4, COLUMNS)
    numbers = (ROWS, 1 << 40, -1 << 62, -ROWS - 1, -1, 2)
    for number in numbers if dtype == torch.int64 else (ROWS, 1 << 29, -1 << 30, -ROWS - 1, -1, 2):
        index = torch.tensor([0, 1, number, 2], dtype=dtype)
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
def test_what_is_proved_is_not_tested(dynamic: bool) -> None:
    def fn(x: Tensor) -> list[Tensor]:
        return [take(x) for take in PROVED.values()]

    x = torch.randn(7, 3)
    if checks_made(fn, x, dynamic=dynamic):
        assert {name: checks_made(take, x, dynamic=dynamic) for name, take in PROVED.items()} == dict.fromkeys(
            PROVED, 0
        )
        raise AssertionError("only together are they tested")


def test_what_is_not_proved_is_tested() -> None:
    x = torch.randn(7, 3)
    assert checks_made(lambda x, i: x[i], x, torch.tensor([6])) == 1
    assert checks_made(lambda x: x[(x[:, 0] * 9).long().clamp(0, 7) - 1], x) == 0  # -1 is the last row
    assert checks_made(lambda x: x[x[:, 0].abs().sign().long().clamp(1, 7) * 6], x) == 1
    assert checks_made(lambda x: x.index_select(0, (x[:, 0] * 0).long().clamp(0, 7)), x) == 1


def test_an_index_within_a_window_that_pads_keeps_its_names_apart(compiled: Compile, device: str) -> None:
    i = torch.tensor([3, 1, 4, 1], device=device)
    compiled(
        lambda x: F.pad(F.pad(x[i], (1, 1))[i % 4].roll(1, 0), (2, 2)) + F.pad(x[i, 0], (0, 0))[:, None], X.to(device)
    )


X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))

MESSAGE = 'it\'s "bad": 100% %s {x}\n\tnext line \\ é 漢 \N{GRINNING FACE}'


def raises(fn: Callable[[Tensor], Any], good: Tensor, bad: Tensor, message: str) -> list[Compiled]:
    seen: list[Compiled] = []
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend=minductor.Compiler(observer=seen.append), fullgraph=True)
    torch.testing.assert_close(compiled(good), fn(good))
    with pytest.raises(RuntimeError) as caught:
        compiled(bad)
    said, _, place = str(caught.value).partition(f" (at {__file__}:")
    assert said == message and (place.removesuffix(")").isdecimal() or fn.__code__.co_filename != __file__)
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


SAID: dict[str, str] = {
    "index": "index 7 is out of bounds for dimension 0 with size 5 in aten.index.Tensor",
    "index_put": "index 7 is out of bounds for dimension 0 with size 5 in aten.index_put.default",
    "gather": "index 7 is out of bounds for dimension 0 with size 5 in aten.gather.default",
    "scatter": "index 7 is out of bounds for dimension 0 with size 5 in aten.scatter.src",
    "scatter_add": "index 7 is out of bounds for dimension 0 with size 5 in aten.scatter_add.default",
    "index_select": "index 7 is out of bounds for dimension 0 with size 5 in aten.index_select.default",
    "embedding": "index 7 is out of bounds for dimension 0 with size 5 in aten.embedding.default",
    "take": "out of range: tried to access index 28 on a tensor of 15 elements in aten.take.default",
    "nll_loss": "Target 7 is out of bounds. Dimension 1 has size 3 in aten.nll_loss_forward.default",
    "cross_entropy": "Target 7 is out of bounds. Dimension 1 has size 3 in aten.nll_loss_forward.default",
}


def line_of(fn: Callable[..., Any]) -> str:
    return f" (at {__file__}:{fn.__code__.co_firstlineno})"


def said_by(fn: Callable[..., Any], *args: Any, **options: Any) -> str:
    """The error of a compiled call."""
    torch._dynamo.reset()
    with pytest.raises((IndexError, RuntimeError)) as caught:
        torch.compile(fn, backend="minductor", options=options)(*args)
    return str(caught.value)


@pytest.mark.parametrize("name", SAID)
def test_the_message_has_eager_s_words_and_value_dimension_size_and_line(name: str) -> None:
    x, v, i = torch.randn(ROWS, COLUMNS), torch.randn(4, COLUMNS), torch.tensor([0, 1, 7, 2])
    said = said_by(USES[name], x, i, v)
    assert said == SAID[name] + line_of(USES[name])
    with pytest.raises((IndexError, RuntimeError)) as caught:
        USES[name](x, i, v)
    eager = str(caught.value).partition("\n")[0]
    assert eager == "index out of range in self" or said.startswith(eager.rstrip("."))


@pytest.mark.parametrize("wrapper", ["python", "cpp", "fx"])
def test_each_wrapper_tells_value_and_line(wrapper: str) -> None:
    """Of the table that is wrong, though one kernel reads both; and of the branch that ran."""

    def tables(a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        first = F.embedding(i, a)
        return first + F.embedding(j, b)

    def branches(a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        x = a[i, 0]
        return torch.cond(x.sum() > 0, lambda x, j: x.gather(0, j), lambda x, j: x.gather(0, j - 90) * 2, (x, j))

    a, b, i = torch.zeros(6, 3), torch.randn(9, 3), torch.tensor([1, 5, 4])
    bad = torch.tensor([0, 98, 1])
    start = tables.__code__.co_firstlineno
    said = "index 98 is out of bounds for dimension 0 with size {size} in aten.{op}.default (at {file}:{line})"
    for wrong, size in ((1, 6), (2, 9)):
        ids = {1: (bad, i), 2: (i, bad)}[wrong]
        expected = said.format(size=size, op="embedding", file=__file__, line=start + wrong)
        assert said_by(tables, a, b, *ids, wrapper=wrapper) == expected
    index = "index 98 is out of bounds for dimension 0 with size 6 in aten.index.Tensor"
    start = branches.__code__.co_firstlineno
    assert said_by(branches, a, b, bad, i, wrapper=wrapper) == f"{index} (at {__file__}:{start + 1})"
    expected = said.format(size=3, op="gather", file=__file__, line=start + 2)
    assert said_by(branches, a + 1, b, i, bad, wrapper=wrapper) == expected


@pytest.mark.parametrize("wrapper", ["python", "cpp", "fx"])
def test_an_assertion_tells_its_line(wrapper: str) -> None:
    def fn(x: Tensor) -> Tensor:
        torch._assert_async((x > 0).all(), MESSAGE)
        return x + 1

    place = f" (at {__file__}:{fn.__code__.co_firstlineno + 1})"
    assert said_by(fn, -torch.ones(3), wrapper=wrapper) == MESSAGE + place

    def checked(x: Tensor) -> Tensor:
        n = int(x.sum().item())
        torch._check(n > 3)
        return x * n

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        said = said_by(checked, torch.zeros(3, dtype=torch.int64), wrapper=wrapper)
    assert re.search(rf"\(at {re.escape(__file__)}:\d+\)$", said), said


def test_the_value_is_one_that_was_given() -> None:
    """Before it counts from the end; however large; of a loop of vectors or of threads; and with a size of the call."""
    x = torch.randn(3)
    for value in (-4, 3, -(1 << 63), (1 << 63) - 1, 1 << 52):
        said = f"index {value} is out of bounds for dimension 0 with size 3 in"
        assert said_by(lambda x, i: x[i], x, torch.tensor([0, value, 1])).startswith(said)
    assert said_by(lambda x, i: x[i], x, torch.tensor([9], dtype=torch.int32)).startswith("index 9 is")
    table, many = torch.randn(70), torch.arange(200_000) % 70
    for place, count in ((0, 66), (150, 200), (199_999, 200_000)):
        bad = many[:count].clone()
        bad[place] = -71
        for fn in (lambda t, i: t[i] * 2, lambda t, i: t[i].sum(), lambda t, i: (t[i] * t[-1 - i.abs()]).sum()):
            assert said_by(fn, table, bad).startswith("index -71 is out of bounds for dimension 0 with size 70 in")
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, i: x[i], backend="minductor", dynamic=True)
    for size in (5, 11):
        with pytest.raises(IndexError, match=f"index 12 is out of bounds for dimension 0 with size {size} in"):
            compiled(torch.randn(size), torch.tensor([1, 12]))


def test_value_and_check_belong_together() -> None:
    """Of two indices that are wrong at many places, by threads and lanes."""
    x = torch.randn(70, 90)
    i, j = torch.arange(100_000) % 70, torch.arange(100_000) % 90
    i[::7], j[::3] = 71, 91
    for fn in (lambda x, i, j: x[i, j] + 1, lambda x, i, j: x[i, j].sum()):
        said = said_by(fn, x, i, j)
        assert said.startswith("index 71 is out of bounds for dimension 0 with size 70 in"), said
        assert said_by(fn, x, i % 70, j).startswith("index 91 is out of bounds for dimension 1 with size 90 in")


def test_a_module_s_error_names_the_user_s_line_and_module_and_not_torch_s() -> None:
    table = torch.nn.Embedding(5, 3)

    def fn(i: Tensor) -> Tensor:
        return table(i)

    assert said_by(fn, torch.tensor([5])).endswith(f"(at {__file__}:{fn.__code__.co_firstlineno + 1} in table)")


def test_equal_programs_of_two_lines_share_a_kernel_and_not_the_line() -> None:
    """The second is not compiled but found in the store."""

    def one(x: Tensor, i: Tensor) -> Tensor:
        return x[i] * 3

    def other(x: Tensor, i: Tensor) -> Tensor:
        return x[i] * 3

    for wrapper in ("python", "cpp", "fx"):
        for fn in (one, other):
            said = said_by(fn, torch.randn(3), torch.tensor([4]), wrapper=wrapper)
            assert said.endswith(f"(at {__file__}:{fn.__code__.co_firstlineno + 1})")


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


# name -> function of indices, one of which is out of range: what is read there is known before
CONSTANT: dict[str, Callable[[Tensor], Tensor]] = {
    "ones": lambda i: torch.ones(3)[i],
    "full and more": lambda i: torch.full((3,), 2.0)[i] + i,
    "expanded": lambda i: i[:1].expand(3)[i],
    "gather": lambda i: torch.zeros(3).gather(0, i),
    "index_select": lambda i: torch.ones(3, 2).index_select(0, i),
    "embedding": lambda i: F.embedding(i, torch.ones(3, 2)),
    "take": lambda i: torch.ones(3).take(i),
    "nll_loss": lambda i: F.nll_loss(torch.zeros(2, 3), i),
    "one branch": lambda i: torch.where(i > 100, torch.ones(3)[i], 0.0),
    "padded": lambda i: F.pad(torch.ones(3)[i], (1, 1)),
    "summed": lambda i: torch.ones(3)[i].sum(),
    "several": lambda i: torch.ones(3)[i] + torch.zeros(3).sin()[i],
    "negative": lambda i: torch.ones(3)[i - 10],
}


@pytest.mark.parametrize("name", CONSTANT)
def test_an_index_into_a_constant_tensor_is_checked(name: str) -> None:
    """The load folds to a constant, and the check must not go with it."""
    torch._dynamo.reset()
    compiled = torch.compile(CONSTANT[name], backend="minductor")
    bad, good = torch.tensor([1, 7]), torch.tensor([1, 2]) + (8 if name == "negative" else 0)
    assert error_of(compiled, bad) is error_of(CONSTANT[name], bad)
    torch.testing.assert_close(compiled(good), CONSTANT[name](good))
    assert checks_made(CONSTANT[name], good) >= 1


FIRST: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda x, i: x[i],
    "of a dimension of the call's size": lambda x, i: x[:, None].expand(-1, i.shape[0]).gather(0, i[None]),
    "a sum": lambda x, i: x[i].sum(),
    "computed": lambda x, i: x[i + i.new_zeros(())] * 2,
    "behind another": lambda x, i: x[torch.arange(90)[i % 90]] + x[i],
    "embedding": lambda x, i: F.embedding(i, x[:, None]),
    "scatter_add": lambda x, i: x.scatter_add(0, i, i.to(x.dtype)),
    "nll_loss": lambda x, i: F.nll_loss(x.expand(i.shape[0], -1), i, ignore_index=1),
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_of_several_values_is_told(name: str) -> None:
    """As eager does on one thread, however many lanes and threads look for it here."""
    torch._dynamo.reset()
    compiled = torch.compile(FIRST[name], backend="minductor", dynamic=True)
    for count in (4, 30, 70_000):
        index = torch.arange(count) % 90
        assert torch.isfinite(compiled(torch.ones(90), index)).all()
        for values in ((93, 91, 92), (91, -700, 92), (-300, 99, -301)):
            index[torch.tensor([1, count // 2, count - 1])] = torch.tensor(values)
            with pytest.raises((IndexError, RuntimeError), match=rf"^(index|Target) {values[0]} is out of bounds"):
                compiled(torch.ones(90), index)
