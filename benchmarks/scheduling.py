"""How the time of each stage grows with the graph: CPU seconds for chains, wide graphs and random ones.

Takes the numbers of nodes (1,000 2,000 5,000 10,000 if none are given); gives a table of medians of three, and the
exponent of growth of each stage, fitted over the sizes. Run it by `python benchmarks/scheduling.py`;
benchmarks/scheduling.md holds what it said. The graphs are ATen graphs built by hand: tracing as many operators takes
longer than scheduling them.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensorMode

from minductor.backends import resolve
from minductor.driver import PIPELINE
from minductor.driver_tasks.collector import paused_collector
from minductor.frontend.capture.capture import capture
from minductor.frontend.capture.captured_graph import Graph
from minductor.ir.program.nodes import Kernel
from minductor.options import Options
from minductor.target import Env, by_name

SIZES = (1000, 2000, 5000, 10000)
ROWS, COLUMNS = 256, 256
UNARY = (torch.ops.aten.exp.default, torch.ops.aten.neg.default, torch.ops.aten.tanh.default)
BINARY = (torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor, torch.ops.aten.sub.Tensor)
# the stages between ATen and text that know of more than one kernel at a time
SCHEDULING = ("remove_dead_code", "inline", "split_concat", "elide_copies", "fuse", "loop_order", "order", "memory")


class Drawing:
    """An ATen graph of square matrices and their row sums."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        with FakeTensorMode():
            self.whole, self.row = torch.empty(ROWS, COLUMNS), torch.empty(ROWS, 1)

    def input(self) -> fx.Node:
        made = self.graph.placeholder(f"x{len(self.graph.nodes)}")
        made.meta["val"] = self.whole
        return made

    def op(self, op: Callable[..., Any], *args: fx.Node | float) -> fx.Node:
        made = self.graph.call_function(op, args)
        sizes = [a.meta["val"] for a in args if isinstance(a, fx.Node)]
        made.meta["val"] = self.whole if any(size is self.whole for size in sizes) else self.row
        return made

    def sum(self, x: fx.Node) -> fx.Node:
        """Along the rows, as a column."""
        made = self.graph.call_function(torch.ops.aten.sum.dim_IntList, (x, [1], True))
        made.meta["val"] = self.row
        return made

    def done(self, *outputs: fx.Node) -> Graph:
        self.graph.output(outputs)
        return capture(fx.GraphModule({}, self.graph), "inference")


def chain(count: int) -> Graph:
    """One after the other; a row sum is taken off every eighth time."""
    d = Drawing()
    x = d.input()
    for number in range(count // 8):
        for step in range(6):
            x = d.op(UNARY[(number + step) % 3], x)
        x = d.op(torch.ops.aten.sub.Tensor, x, d.sum(x))
    return d.done(x)


def wide(count: int) -> Graph:
    """Branches of five nodes from four inputs, added up pair by pair."""
    d = Drawing()
    given = [d.input() for _ in range(4)]
    ends: list[fx.Node] = []
    for number in range(count // 5):
        x = d.op(UNARY[number % 3], given[number % 4])
        x = d.op(BINARY[number % 3], x, given[(number + 1) % 4])
        x = d.op(torch.ops.aten.mul.Tensor, x, 1 + number / count)
        ends.append(d.sum(x))
    while len(ends) > 1:
        pairs = zip(ends[::2], ends[1::2], strict=False)
        ends = [d.op(BINARY[0], a, b) for a, b in pairs] + ends[len(ends) // 2 * 2 :]
    return d.done(*ends)


def random_graph(count: int) -> Graph:
    """Operands from the 40 latest values, now and then from any; one node of ten is a row sum."""
    d = Drawing()
    chance = random.Random(0)
    made = [d.input() for _ in range(4)]

    def operand() -> fx.Node:
        return chance.choice(made[-40:] if chance.random() < 0.95 else made)

    for _ in range(count):
        kind, x = chance.random(), operand()
        if kind < 0.1 and x.meta["val"] is d.whole:
            made.append(d.sum(x))
        elif kind < 0.5:
            made.append(d.op(chance.choice(UNARY), x))
        else:
            made.append(d.op(chance.choice(BINARY), x, operand()))
    return d.done(*(x for x in made if not x.users and x.op != "placeholder"))


def hub(count: int) -> Graph:
    """One row sum that everything reads, with kernels that cannot become one."""
    d = Drawing()
    given = d.input()
    total = d.sum(given)
    return d.done(
        *(d.op(torch.ops.aten.mul.Tensor, d.op(BINARY[0], given, total), 1 + n / count) for n in range(count // 2))
    )


GRAPHS: Mapping[str, Callable[[int], Graph]] = {"chain": chain, "wide": wide, "random": random_graph, "hub": hub}


def stages(graph: Graph, env: Env) -> tuple[dict[str, float], int]:
    """CPU seconds of each stage, and how many kernels come out; without the garbage collector, as in a compile."""
    spent: dict[str, float] = {}
    value: Any = graph
    kernels = 0
    for stage in PIPELINE:
        gc.collect()
        with paused_collector():
            start = time.process_time()
            for each in (*stage.graph_passes, stage):
                value = resolve(each.function)(value, env)
            spent[stage.name] = time.process_time() - start
        if stage.gives == "program":
            kernels = sum(isinstance(node, Kernel) for node in value.nodes)
    return spent, kernels


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of the straight line through the logarithms."""
    x, y = [math.log(n) for n in sizes], [math.log(max(s, 1e-4)) for s in seconds]
    mean_x, mean_y = statistics.mean(x), statistics.mean(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def table(name: str, sizes: Sequence[int], runs: int, env: Env) -> None:
    rows: dict[str, list[float]] = {}
    counts: list[int] = []
    for size in sizes:
        graph = GRAPHS[name](size)
        made = [stages(graph, env) for _ in range(runs)]
        counts.append(made[0][1])
        for stage in made[0][0]:
            rows.setdefault(stage, []).append(statistics.median(spent[stage] for spent, _ in made))
    rows["**scheduling**"] = [sum(rows[stage][n] for stage in SCHEDULING) for n in range(len(sizes))]
    every = [stage.name for stage in PIPELINE]
    rows["**all stages**"] = [sum(rows[stage][n] for stage in every) for n in range(len(sizes))]
    print(f"\n| {name} | " + " | ".join(f"{size:,}" for size in sizes) + " | exponent |")
    print("|---" * (len(sizes) + 2) + "|")
    print("| kernels | " + " | ".join(map(str, counts)) + " | |")
    for stage, seconds in rows.items():
        fitted = f"{exponent(sizes, seconds):.2f}" if len(sizes) > 1 else ""
        print(f"| {stage} | " + " | ".join(f"{s:.2f}" for s in seconds) + f" | {fitted} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--graph", choices=tuple(GRAPHS), action="append")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    env = Env(Options(), by_name("cpu"))
    for name in given.graph or GRAPHS:
        table(name, given.sizes, given.runs, env)


if __name__ == "__main__":
    main()
