"""The wrapper for torch.fx: how many nodes graphs have, and that they compute what eager does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from minductor.driver import Compiled, Compiler
from minductor.ir.artefact.fx_graph import LAUNCH, FxGraph, parse_graph
from minductor.runtime.store.store import Store
from pytest_plugin.oracle.compiled import Compile


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def graphs(
    fn: Callable[..., Any], *args: Any, target: str = "", dynamic: bool = False, **options: Any
) -> list[FxGraph]:
    """What is printed for a function's graphs, its gradient's too."""
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append, is_dry=bool(target))
    chosen = {"wrapper": "fx", "verify": True, "target": target, **options}
    result = torch.compile(fn, backend=compiler, dynamic=dynamic, options=chosen)(*args)
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.sum().backward()
    return [parse_graph(one.sources["wrapper.json"]) for one in seen]


def count(graph: FxGraph) -> Counter[str]:
    return Counter(node.target for node in graph.nodes if node.op == "call_function")


def two_sums(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return z.sum() + (x.sum() + y).sum()


def two_ranges(x: torch.Tensor) -> torch.Tensor:
    return x + torch.cat((torch.arange(4), torch.arange(4)))


def two_randoms(x: torch.Tensor) -> torch.Tensor:
    return x + torch.cat((torch.randn(4), torch.randn(4)))


def top_two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = torch.topk(x, 2)
    return values + 1, places * 2


ALLOCATE, VIEW, ITEM = "torch.empty_strided", "torch.as_strided", "operator.getitem"
# function, sizes of its arguments, launches, and counts of other nodes. TorchInductor's own tests have this table; a
# comment says where its numbers are others.
TABLE: dict[str, tuple[Callable[..., Any], list[Any], int, dict[str, int]]] = {
    "add": (torch.add, [8, 8], 1, {}),
    "two kernels": (lambda x, y: x.sum() + y.sum(), [517, 1029], 2, {}),
    "values that die": (two_sums, [517, 1029, 123], 3, {}),
    "a product": (lambda x, y: x @ y + y.sum(), [(129, 129), (129, 1)], 1, {"torch.ops.aten.mm.out": 1}),  # addmm
    "random numbers": (lambda x: x + torch.randn(1), [8], 1, {"torch.ops.aten.randint.low": 1}),  # 2 launches
    "joined inputs": (lambda x, y: torch.cat((x, y)) + 1, [8, 8], 1, {}),
    "joined in one buffer": (two_ranges, [8], 1, {ALLOCATE: 1}),
    "joined by parts": (two_randoms, [8], 1, {VIEW: 0}),  # 3 launches, 2 windows
    "an output of another size": (lambda x, y: (x + y).reshape(8), [(2, 4), (2, 4)], 1, {VIEW: 1}),
    "several results": (top_two, [8], 2, {ITEM: 2}),
}


@pytest.mark.parametrize("target", ["", "sm_90"])
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_counts_of_nodes(row: tuple[Callable[..., Any], list[Any], int, dict[str, int]], target: str) -> None:
    fn, sizes, launches, others = row
    (graph,) = graphs(fn, *map(torch.randn, sizes), target=target, fuse_random=True)
    found = count(graph)
    assert found[LAUNCH] == launches
    assert {name: found[name] for name in others} == others


@pytest.mark.parametrize("target", ["", "sm_90"])
def test_a_tensor_that_is_given_twice_is_one_placeholder(target: str) -> None:
    x = torch.randn(4)
    (graph,) = graphs(torch.add, x, x, target=target)
    assert [node.op for node in graph.nodes].count("placeholder") == 1 and count(graph)[LAUNCH] == 1


def test_forward_and_backward_are_two_graphs() -> None:
    w, b = torch.randn(5, 3, requires_grad=True), torch.randn(3, requires_grad=True)

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(x @ w + b, y)

    found = graphs(fn, torch.ones(5), torch.zeros(3))
    assert [graph.name for graph in found] == ["forward", "backward"]
    assert [count(graph)[LAUNCH] for graph in found] == [1, 1]  # TorchInductor's are three


def choose(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    def yes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cond(b.sum() > 100, lambda a: a.sin() + y.shape[0], lambda a: a * 3, (a,))

    return torch.cond(x.sum() > 0, yes, lambda a, b: a.cos() - b.sum(), (x, y)) + z


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.long), True])
def test_cond_inside_cond(dynamic: bool) -> None:
    """Its graphs first, with signatures of their own; and all branches are eager's."""
    x, y, z = torch.ones(5, 6), torch.ones(3), torch.ones(6)
    (graph,) = graphs(choose, x, y, z, dynamic=dynamic)
    found = count(graph)
    assert found["torch.ops.higher_order.cond"] == 1 and found["operator.getitem"] == 1
    calls = [node.op for node in graph.nodes if node.op != "placeholder"]
    assert calls[:2] == ["get_attr", "get_attr"] and calls.count("get_attr") == 2
    yes, no = graph.graphs
    assert count(yes)["torch.ops.higher_order.cond"] == 1 and not no.graphs
    placeholders = [[node.name for node in one.nodes if node.op == "placeholder"] for one in (graph, yes, no)]
    assert placeholders[0] not in placeholders[1:] and len(placeholders[1]) == len(placeholders[2])
    fast = torch.compile(choose, backend=Compiler(), dynamic=dynamic, options={"wrapper": "fx"})
    for given in ((x, y, z), (-x, y, z), (x, y * 100, z)):
        torch.testing.assert_close(fast(*given), choose(*given))


def changed(x: torch.Tensor, y: torch.Tensor) -> Any:
    x[1:].add_(1)
    return x.view(2, -1), x[2:], y.expand(3, *y.shape), y.t().contiguous()


def mixed(x: torch.Tensor, y: torch.Tensor) -> Any:
    taken = torch.cat([x, y.flatten()[: x.shape[0]]]).view(-1, 2).t()
    taken.mul_(2)
    return taken, x.sort(), torch.rand_like(x) + y.sum() // 3, [x.shape[0] // 2, None]


def walk(x: torch.Tensor, y: torch.Tensor) -> Any:
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2 + y.sum()), (torch.tensor(0), x))


def found_in_data(x: torch.Tensor, y: torch.Tensor) -> Any:
    count = (x > 0).sum().item()
    torch._check(count <= x.shape[0])
    return x.nonzero() * 2, x[:count].sum(), y * count


@pytest.mark.parametrize("fn", [changed, mixed, walk, found_in_data])
@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_results_are_eagers(fn: Callable[..., Any]) -> None:
    fast = torch.compile(
        fn, backend=Compiler(), dynamic=True, fullgraph=True, options={"wrapper": "fx", "verify": True}
    )
    for size in (8, 12):
        x, y = torch.randn(size + 1)[1:], torch.randn(4, 4)
        given = [x.clone(), y.clone()]
        torch.manual_seed(1)
        expected = fn(x, y)
        torch.manual_seed(1)
        torch.testing.assert_close(fast(*given), expected, check_stride=True)
        torch.testing.assert_close(given, [x, y])


def test_a_loop_stays_torchs_and_a_warm_start_builds_the_graph_from_its_text(tmp_path: Path) -> None:
    x, y = torch.randn(5), torch.randn(3)
    for is_warm in (False, True):
        torch._dynamo.reset()
        seen: list[Compiled] = []
        compiler = Compiler(observer=seen.append, store=Store.open(tmp_path, {}))
        fast = torch.compile(walk, backend=compiler, options={"wrapper": "fx"})
        torch.testing.assert_close(fast(x, y), walk(x, y))
        assert seen[0].was_hit == is_warm
        graph = parse_graph(seen[0].sources["wrapper.json"])
        assert count(graph)["torch.ops.higher_order.while_loop"] == 1 and len(graph.graphs) == 2


@pytest.mark.devices("cpu")
@pytest.mark.golden(view="wrapper")
def test_reads_like_the_plan(compiled: Compile) -> None:
    def fn(x: torch.Tensor, weight: torch.Tensor) -> Any:
        hidden = torch.nn.functional.gelu(x @ weight)
        return hidden.view(-1), torch.cond(hidden.sum() > 0, torch.sin, torch.cos, (hidden,)), x.shape[0] * 2

    compiled(fn, torch.randn(4, 8), torch.randn(8, 8), dynamic=True, options={"wrapper": "fx"})
