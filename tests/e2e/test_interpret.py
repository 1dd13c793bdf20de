"""GPU kernels through Triton's interpreter, on CPU tensors, beside eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from minductor.core.errors import InterpretRefused
from minductor.driver import Compiled, Compiler
from minductor.passes.split import split

Case = tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]


def random(*sizes: tuple[int, ...]) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: tuple(torch.randn(size) for size in sizes)


def scattered() -> tuple[torch.Tensor, ...]:
    return torch.randn(8, 5), torch.randint(0, 8, (20,)), torch.randn(20, 5)


def whole_numbers() -> tuple[torch.Tensor, ...]:
    return torch.randint(-50, 50, (40,)), torch.randint(1, 9, (40,)) * torch.where(torch.rand(40) < 0.5, -1, 1)


CASES: dict[str, Case] = {
    "pointwise": (lambda x: F.gelu(2 * x + 1), random((37, 65))),
    "broadcast": (lambda x, b: torch.relu(x + b), random((37, 65), (65,))),
    "transposed": (lambda x, y: x + y.t(), random((40, 50), (50, 40))),
    "scalar": (lambda x: x * 2 + 1, random(())),
    "empty": (lambda x: x * 2, random((0, 4))),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (96,), w, b), random((33, 96), (96,), (96,))),
    "softmax": (lambda x: torch.softmax(x, -1), random((20, 130))),
    "softmax of long rows": (lambda x: torch.softmax(x, -1), random((3, 9000))),
    "softmax in the middle": (lambda x: torch.softmax(x, 1), random((4, 50, 9))),
    "sum of columns": (lambda x: x.sum(0), random((300, 70))),
    "sum of long columns": (lambda x: x.sum(0) + x.amax(0), random((3000, 7))),
    "sum of all": (lambda x: (x * x).sum(), random((30, 70))),
    "mean of two": (lambda x: x - x.mean((0, 2), keepdim=True), random((4, 5, 6))),
    "variance": (lambda x: torch.var_mean(x, dim=1), random((30, 700))),
    "variance of long rows": (lambda x: torch.var_mean(x, dim=1), random((3, 7000))),
    "argmax": (lambda x: x.argmax(1), random((30, 70))),
    "max": (lambda x: x.max(0), random((30, 70))),
    "norms": (lambda x: (x.norm(dim=1), x.abs().amin(1), (x > 0).any(1), (x > -9).all(1)), random((30, 70))),
    "scan": (lambda x: x.cumsum(1), random((30, 70))),
    "scan of long rows": (lambda x: (x.cumsum(1), x.flip(1).cumsum(1).flip(1)), random((1, 2501))),
    "scan of long columns": (lambda x: x.cummax(0), random((150, 3))),
    "sum of one long row": (lambda x: x.sum(), random((70_001,))),
    "sum of few long columns": (lambda x: x.sum(0), random((3001, 5))),
    "cat": (lambda x, y: torch.cat([x, y], 1).sin(), random((30, 7), (30, 9))),
    "pad": (lambda x: F.pad(x, (1, 2, 3, 0)) + 1, random((5, 6))),
    "pool": (lambda x: F.max_pool2d(x, 2), random((2, 3, 8, 8))),
    "triangle": (lambda x: torch.tril(x) @ x, random((8, 8))),
    "functions": (
        lambda x: torch.tanh(x) + torch.log1p(x * x) + torch.erf(x).floor() + torch.sigmoid(x) - torch.fmod(x, 0.3),
        random((50,)),
    ),
    "numbers": (lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc"), x << 2, x >> 1), whole_numbers),
    "bytes": (lambda x: (~x, x + 250, x >> 1, -x), lambda: (torch.arange(256, dtype=torch.uint8),)),
    "truth of a scalar": (lambda x, y: torch.logical_or(x > 0, y), random((40, 33), ())),
    "rounded once": (lambda x: (x.bfloat16(), (x * 9).to(torch.float8_e4m3fn).float()), random((40, 33))),
    "truths": (lambda x: ((x > 0) & (x < 1)) | ~(x > -1), random((40, 33))),
    "bfloat16": (lambda x: F.silu(x.bfloat16()) * x.bfloat16(), random((40, 33))),
    "float64": (lambda x: (x.double() / 3).exp().sum(1), random((8, 9))),
    "gather": (lambda x, i, s: x[i] * 2 + s, scattered),
    "scatter": (lambda x, i, s: x.index_add(0, i, s), scattered),
    "several at once": (lambda x, y: (x.exp() * 2, y.exp() * 2, x.sum(1), y.sum(1)), random((30, 70), (40, 70))),
    "a sum of bfloat16": (
        lambda x, i, s: x.bfloat16().scatter_add(1, i[:8, None] % 5, s[:8, :1].bfloat16()).float(),
        scattered,
    ),
    "in place": (lambda x: x.mul_(2).add_(1), random((8, 5))),
    "a scan of one row": (lambda x: (x.cumsum(0), x.abs().cummin(0)[1]), lambda: (torch.randn(9, 1).expand(9, 16),)),
    "a scan of one long row": (lambda x: x.cumsum(0), lambda: (torch.randn(2100, 1).expand(2100, 40),)),
}


# Concatenations of parts whose rows are not aligned: one kernel computes the whole result.
OF_ANY_SIZE = ("views", "in place", "several consumers", "nothing in a part")  # in `make test`
ODD_PARTS: dict[str, Case] = {
    "columns": (lambda x, y, z: torch.cat([x * 2, y.exp(), z], 1), random((30, 7), (30, 1), (30, 12))),
    "rows": (lambda x, y: torch.cat([x * 2, y + 1], 0), random((5, 7), (6, 7))),
    "middle": (lambda x, y: torch.cat([x, y.abs()], 1), random((3, 5, 7), (3, 4, 7))),
    "several consumers": (
        lambda x, y: (c := torch.cat([x, y], 1), c.sum(1), c * 2, c[:, 3:9] + 1),
        random((30, 7), (30, 6)),
    ),
    "nothing in a part": (lambda x, y, z: torch.cat([x, y, z], 1), random((30, 7), (30, 0), (30, 2))),
    "views": (lambda x, y: torch.cat([x.t(), y[:, 1:4], y[:, :1].expand(9, 3)], 1), random((6, 9), (9, 5))),
    "computed in several ways": (lambda x, y: torch.cat([x * y[:, :1], x.softmax(1) + 1], 1), random((9, 5), (9, 5))),
    "bfloat16": (lambda x, y: torch.cat([x * 2, y], 1), lambda: (torch.randn(9, 5).bfloat16(), torch.randn(9, 9))),
    "integers": (
        lambda x, y: torch.cat([x + 1, y.to(torch.int64)], 1),
        lambda: (torch.arange(15).view(5, 3), torch.arange(10, dtype=torch.int32).view(5, 2)),
    ),
    "bools": (lambda x, y: torch.cat([x > 0, ~(y > 0)], 1), random((9, 5), (9, 8))),
    "float64": (lambda x, y: torch.cat([x.double() / 3, y.double()], 1), random((9, 5), (9, 4))),
    "pads": (lambda x, y: torch.cat([F.pad(x, (1, 1)), y], 1), random((9, 5), (9, 4))),
    "gathered": (lambda x, i: torch.cat([x[i], x[i + 1] * 2], 1), lambda: (torch.randn(9, 5), torch.tensor([3, 0, 7]))),
    "in place": (
        lambda x, y: (c := torch.cat([x, y], 1).add_(1), x.mul_(c[:, :5]), y.copy_(c[:, 5:])),
        random((9, 5), (9, 4)),
    ),
    "special values": (
        lambda x, y: torch.cat([x.log(), 1 / y], 1),
        lambda: (torch.tensor([[0.0, -1, float("inf")]]), torch.tensor([[0.0, float("nan")]])),
    ),
    "stack": (lambda x, y: torch.stack([x, y * 2], 1), random((5, 7), (5, 7))),
}


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    made = Compiler()
    yield made
    made.artefacts.interpreter.close()


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, compiler: Compiler) -> None:
    function, inputs = CASES[name]
    torch.manual_seed(0)
    given = inputs()
    ours = tuple(t.clone() for t in given)
    result = torch.compile(function, backend=lambda gm, i: compiler(gm, i, options={"target": "interpret"}))(*ours)
    bound = 8e-3 if name == "bfloat16" else 2e-5  # eager rounds after each op: a digit of bfloat16 may differ
    torch.testing.assert_close(result, function(*given), rtol=bound, atol=bound)
    torch.testing.assert_close(ours, given)


def long_rows() -> torch.Tensor:
    """Rows of 20,000 logits: ordinary ones, rows that are masked in part or whole, and rows with special values."""
    x = torch.randn(7, 20_000) * 10
    x[1, :15_000] = x[2] = -torch.inf
    x[3, 77], x[4, 19_999], x[5] = torch.inf, torch.nan, 3e38
    return x


LONG_ROWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "cross entropy": lambda x: F.cross_entropy(x, torch.arange(7) * 2000, reduction="none"),
    "of sums": lambda x: torch.softmax(x * 2 + x[:1].cos(), 1).amax(1),
}


@pytest.mark.parametrize("name", LONG_ROWS)
def test_long_rows_in_parts(name: str, compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each part has its own maximum and sum: the last way to cut that is weighed."""
    monkeypatch.setattr(split, "fastest", lambda prices: [*prices][-1])
    function = LONG_ROWS[name]
    torch.manual_seed(0)
    x = long_rows()
    options = {"target": "interpret", "variant": "cut", "verify": True, "cache_dir": str(tmp_path)}
    result = torch.compile(function, backend=lambda gm, i: compiler(gm, i, options=options))(x)
    torch.testing.assert_close(result, function(x), rtol=2e-5, atol=2e-5, equal_nan=True)
    exact = function(x.double())[[0, 1, 6]]
    torch.testing.assert_close(result[[0, 1, 6]].double(), exact, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "dynamic"),
    [
        pytest.param(name, dynamic, marks=pytest.mark.long if dynamic and name not in OF_ANY_SIZE else ())
        for dynamic in (False, True)
        for name in ODD_PARTS
    ],
)
def test_concatenations_of_odd_parts(name: str, dynamic: bool, compiler: Compiler) -> None:
    function, inputs = ODD_PARTS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    given = inputs()
    ours = tuple(t.clone() for t in given)
    backend = lambda gm, i: compiler(gm, i, options={"target": "interpret", "verify": True})  # noqa: E731
    result = torch.compile(function, backend=backend, dynamic=dynamic)(*ours)
    bound = 8e-3 if name == "bfloat16" else 2e-5
    torch.testing.assert_close(result, function(*given), rtol=bound, atol=bound, equal_nan=True)
    torch.testing.assert_close(ours, given, equal_nan=True)


def few_rows(x: torch.Tensor) -> Any:
    """Reductions of each kind along rows: statistics, a first place, truths, and a row that is used again."""
    return torch.softmax(x, -1), *torch.var_mean(x, -1), x.argmax(-1), (x > 3).any(-1), x - x.amin(-1, keepdim=True)


def few_columns(x: torch.Tensor) -> Any:
    """The same along an axis in the middle, which is short and not contiguous."""
    return torch.softmax(x, 1), *torch.var_mean(x, 1), x.argmax(1), (x > 1).any(1), x - x.amin(1, keepdim=True)


@pytest.mark.parametrize(
    ("recipe", "function", "size"),
    [
        *((recipe, few_rows, (3, 300)) for recipe in ("persistent", "persistent4", "looped")),
        *((recipe, few_rows, (2, 2050)) for recipe in ("persistent8", "persistent32", "looped")),
        *((recipe, few_columns, (3, 5, 70)) for recipe in ("persistent", "unrolled")),
        ("unrolled", few_columns, (2, 64, 33)),
        ("persistent4", lambda x: (x.sum((0, 2)), x.amax((0, 2))), (7, 3, 49)),
    ],
)
def test_every_recipe_gives_the_values_of_eager(
    recipe: str, function: Callable[..., Any], size: tuple[int, ...], compiler: Compiler
) -> None:
    torch.manual_seed(0)
    x = torch.randn(size)
    options = {"target": "interpret", "variant": recipe}
    result = torch.compile(function, backend=lambda gm, i: compiler(gm, i, options=options))(x)
    torch.testing.assert_close(result, function(x), rtol=2e-5, atol=2e-5)


def test_gradients(compiler: Compiler) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 20, requires_grad=True)
    y = x.detach().clone().requires_grad_()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(torch.tanh(x), (20,)).square().sum()

    torch.compile(loss, backend=lambda gm, i: compiler(gm, i, options={"target": "interpret"}))(x).backward()
    loss(y).backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=2e-5, atol=2e-5)


def test_sizes_of_the_call(compiler: Compiler) -> None:
    backend = lambda gm, i: compiler(gm, i, options={"target": "interpret"})  # noqa: E731
    double = torch.compile(lambda x: (x * 2).sum(1), backend=backend, dynamic=True)
    for size in ((3, 5), (4, 70), (2, 1500)):
        x = torch.randn(size)
        torch.testing.assert_close(double(x), (x * 2).sum(1), rtol=2e-5, atol=2e-5)


def test_an_index_that_can_only_be_0_adds_nothing_to_its_block(tmp_path: Path) -> None:
    """The rule of blocks must not ask what another index would do."""
    x, index = torch.randn(2, 2, 1), torch.tensor([0, -1])
    made = Compiler()
    options = {"target": "interpret", "cache_dir": str(tmp_path), "verify": True}
    torch._dynamo.reset()
    result = torch.compile(lambda x, i: x[..., i], backend=lambda gm, i: made(gm, i, options=options))(x, index)
    made.artefacts.interpreter.close()
    assert torch.equal(result, x[..., index])


def test_numbers_of_the_call_have_64_bits(compiler: Compiler) -> None:
    backend = lambda gm, i: compiler(gm, i, options={"target": "interpret"})  # noqa: E731
    x, n = torch.arange(40), 10**9
    tripled = torch.compile(lambda x, n: x + n * 3, backend=backend, dynamic=True)
    assert torch.equal(tripled(x, n), x + n * 3)
    image = torch.randn(2, 3, 9)
    resized = torch.compile(lambda x: F.interpolate(x, size=[13], mode="linear"), backend=backend, dynamic=True)
    torch.testing.assert_close(resized(image), F.interpolate(image, size=[13], mode="linear"))


WRONG_INDEX = "index is out of bounds for dimension 0 with size 6 in aten."
# What eager refuses: a function, arguments that it takes, others that it does not, and what is said of them.
REFUSED: dict[str, tuple[Callable[..., torch.Tensor], Any, Any, str]] = {
    "index": (lambda x, i: x[i] * 2, [5, -6], [6, 0], f"{WRONG_INDEX}index.Tensor"),
    "gather": (lambda x, i: x.gather(0, i) * 2, [5, 0], [0, -1], f"{WRONG_INDEX}gather.default"),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x + 1), [5, 0], [7, 0], f"{WRONG_INDEX}scatter_add.default"),
    "target": (lambda x, i: F.cross_entropy(x.expand(2, 6), i), [5, 0], [5, 6], "Target is out of bounds. Dimension 1"),
    "division": (lambda x, i: 7 // i + x[0], [5, 1], [5, 0], "ZeroDivisionError"),
    "assertion": (
        lambda x, i: (torch._assert_async((i > 0).all(), "{Sizes}: positive"), i + 1)[1],
        [1],
        [0],
        "{Sizes}: ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_error_is_of_eagers_kind(compiler: Compiler, name: str) -> None:
    fn, good, bad, says = REFUSED[name]
    compiled = torch.compile(fn, backend=lambda gm, i: compiler(gm, i, options={"target": "interpret"}))
    x = torch.arange(6.0)
    torch.testing.assert_close(compiled(x, torch.tensor(good)), fn(x, torch.tensor(good)))
    kinds: list[type] = []
    for call in (fn, compiled):
        with pytest.raises(Exception) as caught:
            call(x, torch.tensor(bad))
        kinds.append(caught.type)
    assert kinds[0] is kinds[1] in (IndexError, RuntimeError)
    assert str(caught.value).startswith(says)


def test_a_large_launch_is_refused(compiler: Compiler) -> None:
    backend = lambda gm, i: compiler(gm, i, options={"target": "interpret"})  # noqa: E731
    with pytest.raises(InterpretRefused, match="16384 programs"):
        torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(1 << 24))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3fn", "e5m2"])
def test_floats_of_8_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    """To the nearest and, of two, the even one; what is too large ends where eager says."""
    seen: list[Compiled] = []
    made = Compiler(observer=seen.append)
    inf = float("inf")
    edges = [0.0, -0.0, 448, 464, 464.1, -480, 1e9, 57344, 61439, 61440, -1e30, inf, -inf, float("nan")]
    tiny = [2.0**-n * part for n in (9, 10, 16, 17) for part in (1, 1.001, -1.5)]
    x = torch.cat([torch.tensor(edges + tiny), torch.randn(990) * 100])

    def convert(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        narrow = (x * 1).to(dtype)
        return narrow, narrow.float() * 2, narrow.bfloat16(), torch.zeros_like(narrow).copy_(x + x)

    options = {"target": "interpret", "cache_dir": str(tmp_path), "verify": True}
    results = torch.compile(convert, backend=lambda gm, i: made(gm, i, options=options))(x)
    made.artefacts.interpreter.close()
    for result, expected in zip(results, convert(x), strict=True):
        torch.testing.assert_close(result.float(), expected.float(), rtol=0, atol=0, equal_nan=True)
    assert seen[0].report.externs == 0
