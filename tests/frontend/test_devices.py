"""Devices of a graph: what is copied to a GPU, what runs where, and what the wrapper says of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import minductor
from minductor.core.dtypes import F32
from minductor.driver import Compiled, Compiler
from minductor.frontend.capture.captured_graph import Graph, GraphInput, Node, NodeRef, TensorMeta
from minductor.frontend.graph_passes.move_scalars import devices_of, gpu_of, move_scalars
from minductor.ir.program.nodes import Token
from minductor.options import Options
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from tests.frontend.tracing import CPU
from tests.rows import lower


def meta(device: str, *size: int) -> TensorMeta:
    return TensorMeta(F32, size, tuple(1 for _ in size), 0, device)


def graph(*nodes: Node, **inputs: TensorMeta) -> Graph:
    given = tuple(GraphInput(name, about) for name, about in inputs.items())
    return Graph("inference", given, (), nodes, (NodeRef(nodes[-1].name),))


def test_a_number_on_the_cpu_is_copied_once_for_each_gpu() -> None:
    s, x, y = NodeRef("s"), NodeRef("x"), NodeRef("y")
    moved = move_scalars(
        graph(
            Node("a", "aten.mul.Tensor", (x, s), (), meta("cuda:0", 4)),
            Node("b", "aten._foreach_mul.Tensor", ((x, NodeRef("a")), s), (), (meta("cuda:0", 4), meta("cuda:0", 4))),
            Node("c", "aten.add.Tensor", (y, s), (), meta("cuda:1", 4)),
            Node("d", "aten.mul.Tensor", (s, 2), (), meta("cpu")),
            s=meta("cpu"),
            x=meta("cuda:0", 4),
            y=meta("cuda:1", 4),
        ),
        CPU,
    )
    assert [(node.name, node.op) for node in moved.nodes] == [
        ("s_on_cuda0", "aten._to_copy.default"),
        ("a", "aten.mul.Tensor"),
        ("b", "aten._foreach_mul.Tensor"),
        ("s_on_cuda1", "aten._to_copy.default"),
        ("c", "aten.add.Tensor"),
        ("d", "aten.mul.Tensor"),
    ]
    named = {node.name: node for node in moved.nodes}
    assert named["a"].args == (x, NodeRef("s_on_cuda0"))
    assert named["b"].args == ((x, NodeRef("a")), NodeRef("s_on_cuda0"))
    assert named["c"].args == (y, NodeRef("s_on_cuda1")) and named["d"].args == (s, 2)
    assert named["s_on_cuda1"].meta == meta("cuda:1")
    assert devices_of(moved) == ("cpu", "cuda:0", "cuda:1") and gpu_of(moved) == "cuda:0"


def test_a_number_that_is_known_is_made_where_it_is_used() -> None:
    full = Node("f", "aten.full.default", ((), 2.0), (("device", Token("device", "cpu")),), meta("cpu"))
    moved = move_scalars(
        graph(
            full, Node("a", "aten.mul.Tensor", (NodeRef("x"), NodeRef("f")), (), meta("cuda:0", 4)), x=meta("cuda:0", 4)
        ),
        CPU,
    )
    made = moved.nodes[1]
    assert (made.op, made.kwargs, made.meta) == (full.op, (("device", Token("device", "cuda:0")),), meta("cuda:0"))


def test_a_graph_without_such_a_number_stays() -> None:
    alone = graph(Node("a", "aten.mul.Tensor", (NodeRef("s"), 2), (), meta("cpu")), s=meta("cpu"))
    assert move_scalars(alone, CPU) is alone and gpu_of(alone) == ""
    apart = graph(
        Node("a", "aten.mul.Tensor", (NodeRef("s"), 2), (), meta("cpu")),
        Node("b", "aten.neg.default", (NodeRef("x"),), (), meta("cuda:0", 4)),
        s=meta("cpu"),
        x=meta("cuda:0", 4),
    )
    assert move_scalars(apart, CPU) is apart


def test_kernels_are_of_the_gpu_and_the_cpus_part_is_called() -> None:
    def fn(x: torch.Tensor, f: torch.Tensor, y: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.where(x > 0, x, torch.full((), 0.5)) * f
        b = torch.sin(y) * 2
        s.add_(1)
        return (b.to(x.device) + a).relu(), a.cpu() + b, x.sum(0) / s

    with FakeTensorMode():
        given = torch.empty(8, 5, device="cuda"), torch.tensor(1.5), torch.empty(8, 5), torch.tensor(0.0)
        (made,) = minductor.compile_only(fn, *given).graphs
    text = made.sources["wrapper.py"]
    called = [line.partition(" = aten_")[2].partition("(")[0] for line in text.splitlines() if " = aten_" in line]
    assert sorted(called) == ["_to_copy"] * 4 + ["add_Tensor"] * 2 + ["mul_Tensor", "sin"]
    assert made.report.kernels == len(made.kernels) and text.count("aten_copy_(arg3_1, ") == 1
    assert " 'cpu'" not in made.sources["kernels.py"] and "torch.empty_strided" not in text


def test_a_number_of_the_cpu_that_decides_a_size_on_a_gpu() -> None:
    def fn(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        longest = int(lengths.max().item())
        torch._check(longest >= 0)
        torch._check(longest <= x.shape[1])
        return x.narrow(1, 0, longest).sum(1)

    seen: list[Compiled] = []
    backend = partial(Compiler(observer=seen.append, is_dry=True), options={"verify": True, "target": "sm_90"})
    with FakeTensorMode(), torch._dynamo.config.patch(capture_scalar_outputs=True):
        given = torch.empty(8, 5, device="cuda"), torch.empty(8, dtype=torch.int64)
        with pytest.raises(DataDependentOutputException):  # behind the compiler: a fake tensor holds no number
            torch.compile(fn, backend=backend)(*given)
    (made,) = seen
    assert made.report.kernels == 1 and " = aten_max(" in made.sources["wrapper.py"]


def test_a_gpu_saves_what_it_normalises_by() -> None:
    """Inference gives the running statistics as the batch's own there, where on a CPU it gives nothing."""
    given = {"x": meta("cuda:0", 2, 3), "mean": meta("cuda:0", 3), "variance": meta("cuda:0", 3)}
    results = meta("cuda:0", 2, 3), meta("cuda:0", 3), meta("cuda:0", 3)
    args = (NodeRef("x"), None, None, NodeRef("mean"), NodeRef("variance"), 0.1, 1e-5)
    norm = Node("n", "aten._native_batch_norm_legit_no_training.default", args, (), results)
    items = [Node(f"r{k}", "getitem", (NodeRef("n"), k), (), about) for k, about in enumerate(results)]
    whole = replace(graph(norm, *items, **given), outputs=tuple(NodeRef(item.name) for item in items))
    x, mean, variance = torch.randn(2, 3), torch.randn(3), torch.rand(3)
    _, saved_mean, saved_rstd = run_program(lower(whole, Env(Options(), by_name("sm_90"))), (x, mean, variance))
    torch.testing.assert_close(saved_mean, mean, rtol=0, atol=0)
    torch.testing.assert_close(saved_rstd, (variance + 1e-5).rsqrt())
