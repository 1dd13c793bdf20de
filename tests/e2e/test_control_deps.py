"""control_deps and add_control_deps, from the user's code or a pass to the order of the calls; values are eager's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._dynamo.testing import EagerAndRecordGraphs
from torch.fx.experimental.proxy_tensor import make_fx

import minductor
from minductor import Compiler, add_control_deps, control_deps
from minductor.core.errors import UnsupportedInput
from minductor.driver import Compiled
from minductor.frontend.torch_graph.control_deps import NAME, operator

OPTIONS = {"options": {"verify": True}}


@torch.library.custom_op("minductor_tests_order::bump", mutates_args=("x",))
def bump(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("minductor_tests_order::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def square() -> torch.Tensor:
    return torch.randn(16, 16)


def steps(seen: Compiled) -> list[str]:
    """The calls of a wrapper in order, by the nodes that they come from, and when each buffer goes."""
    lines = [line.strip() for line in seen.sources["wrapper.py"].splitlines()]
    return [line for line in lines if line.startswith(("# ", "del buf")) or " = reinterpret(buf" in line]


def order(seen: Compiled) -> list[str]:
    """The nodes that each call comes from."""
    return [line.partition(": ")[2] for line in steps(seen) if line.startswith("# ")]


def checked(fn: Callable[..., Any], *args: Any, graph_pass: Any = None, **kwargs: Any) -> Compiled:
    """Compiles and compares with eager."""
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append, graph_pass=graph_pass)
    torch.testing.assert_close(
        torch.compile(fn, backend=compiler, fullgraph=True, **OPTIONS, **kwargs)(*args), fn(*args)
    )
    return seen[0]


def after(first: str, *names: str) -> Callable[[torch.fx.GraphModule], None]:
    """A pass that puts the named nodes behind the first one."""

    def run(gm: torch.fx.GraphModule) -> None:
        found = {node.name: node for node in gm.graph.nodes}
        for name in names:
            made = add_control_deps(found[name], [found[first]])
            assert (made.name, made.meta["val"].__class__) == (name, found[name].meta["val"].__class__)
        gm.graph.lint()

    return run


# --- in the user's code -------------------------------------------------------------------------------------------


def between(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    c = a + 1
    d = control_deps(c, torch.mm, b, b)
    return d, control_deps([d], lambda x: x * 2, c)


def test_an_order_is_kept_where_fusion_would_break_it() -> None:
    assert order(checked(lambda a, b: (b @ b, (a + 1) * 2), square(), square())) == ["mm", "add, mul"]
    assert order(checked(between, square(), square())) == ["add", "mm", "mul"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "minductor"])
def test_it_means_the_same_to_each_backend(backend: str) -> None:
    given = (square(), square())
    assert torch.equal(torch.compile(between, backend=backend, fullgraph=True)(*given)[1], between(*given)[1])


def test_the_graph_holds_one_call_an_operation_named_and_laid_out_as_it_was() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return control_deps(a.sum(), lambda x: torch.sin(x.t()).cos(), b)

    found: list[torch.fx.GraphModule] = []
    checked(fn, square(), torch.randn(4, 6), graph_pass=found.append)
    calls = [node for node in found[0].graph.nodes if node.target is operator()]
    assert [node.name for node in calls] == ["sin", "cos"]
    assert calls[1].meta["val"].stride() == (1, 6)
    assert operator() is getattr(torch.ops.higher_order, NAME)


def test_gradients_are_eagers() -> None:
    weight = torch.nn.Linear(16, 16)

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = a.exp()
        d = control_deps([c], weight, b)
        return (control_deps(d, lambda x, k: torch.dropout(x * k, 0.0, True), c, k=3) * d).sum()

    a, b = square().requires_grad_(), square().requires_grad_()
    wanted = torch.autograd.grad(fn(a, b), (a, b, weight.weight, weight.bias))
    found = torch.autograd.grad(
        torch.compile(fn, backend="minductor", fullgraph=True)(a, b), (a, b, *weight.parameters())
    )
    torch.testing.assert_close(found, wanted)


def test_what_is_random_in_it_is_drawn_once() -> None:
    def fn(a: torch.Tensor) -> torch.Tensor:
        return control_deps(a.sum(), lambda x: torch.dropout(x, 0.5, True), a).sum()

    a = torch.ones(64, requires_grad=True)
    out = torch.compile(fn, backend="minductor", fullgraph=True)(a)
    (grad,) = torch.autograd.grad(out, a)
    assert float(grad.sum()) == float(out.detach())
    assert 0 < float(out.detach()) < 128


@pytest.mark.skipif(
    torch.__version__ < (2, 12), reason="until 2.12 torch drops any higher-order operator that nobody uses"
)
def test_a_result_that_nobody_uses_is_computed() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        control_deps(a.sum(), torch.exp, b)
        return b * 2

    assert any("exp" in row for row in order(checked(fn, square(), square())))


def test_sizes_that_change() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        d = control_deps(a.sum(0), lambda x: torch.cat([x, x.new_ones(x.shape[0], 1)], 1), b)
        return d, control_deps(d, torch.sort, b)[0]

    compiled = torch.compile(fn, backend="minductor", fullgraph=True, dynamic=True, **OPTIONS)
    for rows in (5, 1, 0, 9):
        given = (torch.randn(rows, 3), torch.randn(rows, 4))
        torch.testing.assert_close(compiled(*given), fn(*given))


def test_several_results_and_what_stands_within() -> None:
    def inner(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sort(x)[0], control_deps(x.sum(), torch.cos, x)

    def fn(a: torch.Tensor, b: torch.Tensor, c: bool) -> tuple[torch.Tensor, ...]:
        row = control_deps(a.exp(), inner, b)
        more = torch.cond(b.sum() > 0, lambda x: control_deps(x.sum(), torch.exp, x), lambda x: x + 1, (b,))
        return (*row, more, control_deps(row[0], torch.var_mean, a)[1])

    checked(fn, square(), square(), True)


def test_transforms_of_functions_give_its_values() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return control_deps(x * 2, torch.exp, x).sum()

    x = square()
    torch.testing.assert_close(torch.vmap(fn)(x), x.exp().sum(1))
    torch.testing.assert_close(torch.func.grad(fn)(x), x.exp())
    torch.testing.assert_close(torch.compile(torch.vmap(fn), backend="minductor")(x), x.exp().sum(1))


def test_a_write_inside_is_refused() -> None:
    with pytest.raises(UnsupportedInput, match="writes what was made outside"):
        make_fx(lambda x: control_deps(x.sum(), lambda y: y.t().add_(1), x), tracing_mode="fake")(square())


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2)


@pytest.mark.parametrize(("fn", "why"), [(lambda x: x.view(-1), "alias"), (_doubled, "mutation")])
def test_what_gives_or_writes_its_argument_breaks_the_graph(fn: Callable[..., Any], why: str) -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return control_deps(a.sin(), fn, b) + 1

    a, b = torch.randn(3, 4), torch.randn(3, 4)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=why):
        torch.compile(program, backend="minductor", fullgraph=True)(a, b.clone())
    ours, theirs = b.clone(), b.clone()
    assert torch.equal(torch.compile(program, backend="minductor")(a, ours), program(a, theirs))
    assert torch.equal(ours, theirs)


def test_its_own_tensors_may_be_written() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.t()[0] = 3
        y[1:].mul_(x[1:])
        return y + 1

    checked(lambda a, b: control_deps(a.sum(), inner, b), square(), square())
    weights = torch.randn(16, 16, requires_grad=True)
    given = square()
    compiled = torch.compile(lambda a, b: control_deps(a.sum(), inner, b).sum(), backend="minductor", fullgraph=True)
    (found,) = torch.autograd.grad(compiled(given, weights * 1), weights)
    torch.testing.assert_close(found, torch.autograd.grad(inner(weights * 1).sum(), weights)[0])


def test_the_name_is_not_taken_from_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    operator.cache_clear()
    monkeypatch.setitem(torch._ops._higher_order_ops, NAME, torch.ops.higher_order.cond)
    with pytest.raises(UnsupportedInput, match="not minductor's"):
        operator()
    monkeypatch.undo()
    operator.cache_clear()
    assert operator() is operator() is torch._ops._higher_order_ops[NAME]


# --- in a pass over the graph -------------------------------------------------------------------------------------


def test_a_dependency_dies_with_its_last_reader() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (((a @ b).sin() @ b).sin() @ b) @ b

    given = (square().double(), square().double())
    plain = checked(fn, *given)
    ordered = checked(fn, *given, graph_pass=after("mm", "mm_3"))
    assert steps(plain) == steps(ordered)
    assert ordered.report.peak == plain.report.peak


@pytest.mark.parametrize("name", ["cat", "sort", "bump", "twice", "sum_2"])
def test_each_kind_of_operation_can_wait(name: str) -> None:
    """Kernels, library calls, lists of tensors, custom operators, and such that write."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> Sequence[torch.Tensor]:
        x = b + 1
        torch.ops.minductor_tests_order.bump(x, b)
        rows = torch.cat([a, b]), torch.sort(b)[0], torch.ops.minductor_tests_order.twice(b), b.sum(0)
        return *rows, x, (a * 3).sum()

    node = "auto_functionalized_v2" if name == "bump" else name
    last = {"sum_2": "sort"}.get(name, "sum_2")
    found = order(checked(fn, square(), square(), graph_pass=after(last, node)))
    assert [n for n, row in enumerate(found) if last in row] < [n for n, row in enumerate(found) if node in row]


def test_a_node_moves_behind_what_it_waits_for() -> None:
    def names(gm: torch.fx.GraphModule) -> list[str]:
        return [node.name for node in gm.graph.nodes if node.op == "call_function"]

    gm = make_fx(lambda x: (x.sin(), x.cos(), x.exp().neg()), tracing_mode="fake")(square())
    nodes = {node.name: node for node in gm.graph.nodes}
    add_control_deps(nodes["sin"], [nodes["exp"]])
    assert names(gm) == ["cos", "exp", "sin", "neg"]
    with pytest.raises(ValueError, match="needs exp"):
        add_control_deps(nodes["exp"], [nodes["neg"]])
    with pytest.raises(ValueError, match="is no call"):
        add_control_deps(nodes["x_1"], [nodes["neg"]])
    gm.graph.lint()


def test_a_graph_that_holds_it_can_be_traced_again() -> None:
    recorded = EagerAndRecordGraphs()
    given = (square(), square())
    torch.compile(between, backend=recorded, fullgraph=True)(*given)
    again = make_fx(recorded.graphs[0])(*given)
    assert sum(node.target is operator() for node in again.graph.nodes) == 2
    torch.testing.assert_close(again(*given), between(*given))


def test_it_is_public() -> None:
    assert minductor.control_deps is control_deps
    assert minductor.add_control_deps is add_control_deps
