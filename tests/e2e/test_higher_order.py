"""Higher-order operators: cond, while_loop, regions, scan, map, checkpoints, score functions; equal to eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from minductor.core.errors import FallbackRefused
from minductor.driver import Compiled, Compiler


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def clones(args: tuple[Any, ...]) -> list[Any]:
    return [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]


def same(fn: Callable[..., Any], *args: Any, dynamic: bool = False, again: tuple[Any, ...] = ()) -> list[Compiled]:
    """Results, changed arguments and gradients are eager's, and no graph runs in eager as a whole."""
    seen: list[Compiled] = []
    options = {"verify": True}
    fast = torch.compile(fn, backend=Compiler(observer=seen.append), dynamic=dynamic, fullgraph=True, options=options)
    for given in (args, *again):
        mine, theirs = clones(given), clones(given)
        state = torch.get_rng_state()
        expected = fn(*theirs)
        torch.set_rng_state(state)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*runs in eager")
            found = fast(*mine)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(mine, theirs)
        first = expected[0] if isinstance(expected, tuple) else expected
        if first.requires_grad:
            first.sum().backward()
            (found[0] if isinstance(found, tuple) else found).sum().backward()
            torch.testing.assert_close([a.grad for a in mine], [a.grad for a in theirs])
    return seen


def choose(x: torch.Tensor, sign: torch.Tensor) -> Any:
    def yes(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a.sin() + x.shape[0], a.sum(0)

    def no(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a.cos() * 2, a[0] * 3

    return torch.cond(sign.sum() > 0, yes, no, (x,))


# Neither, or both; the others are long.
PAIRS = [
    (False, False),
    (True, True),
    *(pytest.param(*pair, marks=pytest.mark.long) for pair in ((False, True), (True, False))),
]


@pytest.mark.parametrize(("dynamic", "grad"), PAIRS)
def test_cond(dynamic: bool, grad: bool) -> None:
    x, up = torch.randn(5, 6, requires_grad=grad), torch.ones(3)
    seen = same(choose, x, up, dynamic=dynamic, again=((x, -up),))
    assert "control_flow.cond, [f32" in seen[0].sources["wrapper.py"]
    assert "def true_graph_0(" in seen[0].sources["wrapper.py"]
    assert seen[0].report.kernels >= 4 and seen[0].report.externs == 1


def test_cond_inside_cond_with_branches_of_other_layouts() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        def inner(a: torch.Tensor) -> torch.Tensor:
            return torch.cond(a.sum() > 1, lambda b: b.t().clone().t() + 1, lambda b: b + 2, (a,))

        return torch.cond(x.sum() > 0, inner, lambda a: a * 2, (x,)).sum(0)

    ones = torch.ones(4, 6)
    same(fn, ones, again=((ones / 100,), (-ones,)))


def test_cond_on_a_size_and_with_lifted_constants() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a + torch.tensor([1.0, 2.0]), lambda a: a * torch.tensor(3.0), (x,))

    same(fn, torch.ones(3, 2), again=((-torch.ones(3, 2),),))


def test_cond_in_a_module() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda a: self.left(a).relu(), lambda a: self.right(a), (x,))

    net = Net()
    x = torch.ones(2, 4)
    compiled = torch.compile(net, backend=Compiler())
    for given in (x, -x):
        expected = torch.autograd.grad(net(given).sum(), list(net.parameters()), allow_unused=True)
        found = torch.autograd.grad(compiled(given).sum(), list(net.parameters()), allow_unused=True)
        for e, f in zip(expected, found, strict=True):
            torch.testing.assert_close(
                f if f is not None else torch.tensor(0.0).expand_as(e if e is not None else f),
                e if e is not None else torch.zeros_like(f),
            )


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.long), True])
def test_while_loop(dynamic: bool) -> None:
    def fn(x: torch.Tensor, times: torch.Tensor) -> Any:
        def going(n: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            return n < times

        def step(n: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return n + 1, (a * 1.5).sin() + times

        return while_loop(going, step, (torch.zeros((), dtype=torch.int64), x))

    x = torch.randn(4, 5)
    seen = same(fn, x, torch.tensor(3), dynamic=dynamic, again=((x, torch.tensor(0)),))
    assert "control_flow.while_loop, " in seen[0].sources["wrapper.py"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_while_loop_that_carries_a_number(dynamic: bool) -> None:
    def fn(x: torch.Tensor) -> Any:
        return while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, a * 2 + i), (0, x))[::-1]

    same(fn, torch.randn(4, 5), dynamic=dynamic)


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="until 2.12 Dynamo refuses branches that write")
def test_branches_that_write_their_operand() -> None:
    def fn(x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return torch.cond(sign.sum() > 0, lambda a: a.add_(1).sin(), lambda a: a.mul_(2).cos(), (x,))

    x = torch.randn(3, 4)
    same(fn, x, torch.ones(2), again=((x, -torch.ones(2)),))


@torch.compiler.nested_compile_region
def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x @ weight) + x


@pytest.mark.parametrize(("dynamic", "grad"), PAIRS)
def test_one_region_is_called_several_times(dynamic: bool, grad: bool) -> None:
    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = block(x, weight)
        return x

    seen = same(fn, torch.randn(5, 8, requires_grad=grad), torch.randn(8, 8, requires_grad=grad), dynamic=dynamic)
    wrapper = seen[0].sources["wrapper.py"]
    assert wrapper.count("control_flow.invoke_subgraph, ") == 3
    regions = 2 if dynamic and torch.__version__ < (2, 12) else 1  # 2.11 traces it anew once its sizes are symbols
    assert wrapper.count("\ndef ") == regions + 1  # and `call`


@pytest.mark.parametrize("dynamic", [False, True])
def test_scan_and_map(dynamic: bool) -> None:
    def fn(x: torch.Tensor) -> Any:
        last, rows = scan(lambda c, row: (c * 0.5 + row, (c - row).exp()), x[0] * 0, x, dim=0)
        return last, rows, map_rows(lambda row, by: (row * by).softmax(0), x, x[1].exp())

    same(fn, torch.randn(4, 5), dynamic=dynamic)


def test_gradient_of_scan_and_map() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        last, rows = scan(lambda c, row: (c * 0.5 + row, c.sin() * row), x[0] * 0, x, dim=0)
        return last.sum() + (rows * rows).sum() + map_rows(lambda row: row.tanh(), x).sum()

    same(fn, torch.randn(4, 5, requires_grad=True))


def test_associative_scan() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return associative_scan(lambda a, b: a * 0.5 + b, x, dim=0, combine_mode="generic")

    same(fn, torch.randn(8, 3))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("drops", [0.0, 0.5])
def test_checkpoint(reentrant: bool, drops: float) -> None:
    def part(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout((x @ x.t()).sin(), drops).cos()

    def fn(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(part, x * 2, use_reentrant=reentrant) + 1  # pyright: ignore[reportOperatorIssue]  a tensor

    same(fn, torch.randn(6, 6, requires_grad=True))


def test_score_functions_run_in_eager_where_they_stand() -> None:
    def fn(q: torch.Tensor) -> torch.Tensor:
        out = flex_attention(q * 2, q, q, score_mod=lambda score, b, h, i, j: score + i - j)
        return out + 1  # pyright: ignore[reportOperatorIssue]  a tensor

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without")
        (seen,) = same(fn, torch.randn(1, 2, 16, 8))
    assert seen.report.kernels >= 2
    assert dict(seen.report.extern_reasons)["higher_order.flex_attention"].startswith("attention with")


def test_products_of_another_dtype() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return out_dtype(torch.ops.aten.mm.default, torch.int32, x, y) + 1

    same(fn, torch.randint(-9, 9, (4, 5), dtype=torch.int8), torch.randint(-9, 9, (5, 6), dtype=torch.int8))


def test_region_that_we_do_not_take_runs_in_eager_where_it_stands() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        def yes(a: torch.Tensor) -> torch.Tensor:
            return a + torch.ones(3, device="meta").dim() * a.real.shape[0]

        return torch.cond(x.sum() > 0, yes, lambda a: a - 1, (x * 2,)) * 2

    same(fn, torch.ones(3), again=((-torch.ones(3),),))


def test_fallback_error_refuses_an_operator_that_we_do_not_know() -> None:
    def fn(q: torch.Tensor) -> Any:
        return torch.ops.higher_order.strict_mode(lambda x: (x.sin(),), (q,))

    with pytest.raises(Exception) as caught:
        torch.compile(fn, backend=Compiler(), options={"fallback": "error"})(torch.ones(3))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), FallbackRefused)
