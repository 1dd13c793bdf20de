"""First calls of graphs of many operators: `python benchmarks/many_operators.py [--operators N] [backend ...]`.

Takes names of backends, by default aot_eager and minductor. Runs the first call of two graphs in a fresh process for
each backend, with an empty cache: a chain of tanh, sin, where, sigmoid and division with the mean of rows at each 25th
operator, and ten such branches that are added. Prints CPU seconds of the process and of its children, that is of g++.
Imports are left out: a graph of one operator is compiled before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

import torch
from torch import Tensor

BRANCHES = 10


def operator(x: Tensor, y: Tensor, number: int) -> Tensor:
    if number % 25 == 24:
        return x - x.mean(-1, keepdim=True)
    match number % 5:
        case 0:
            return x.tanh()
        case 1:
            return x.sin()
        case 2:
            return torch.where(x > 0, x, y)
        case 3:
            return x.sigmoid()
        case _:
            return x / (y.abs() + 1)


def chain(x: Tensor, y: Tensor, count: int) -> Tensor:
    for number in range(count):
        x = operator(x, y, number)
    return x


def wide(x: Tensor, y: Tensor, count: int) -> Tensor:
    return sum((chain(x + branch, y, count // BRANCHES) for branch in range(BRANCHES)), torch.zeros(()))


def measure(name: str, backend: str, count: int) -> None:
    """Prints the seconds of the first call of one graph in this process."""
    torch.set_num_threads(1)
    fn = {"chain": chain, "wide": wide}[name]
    x, y = torch.randn(64, 128), torch.randn(64, 128)
    torch.compile(lambda x: x + 1, backend=backend)(x)
    before = os.times()
    with torch.no_grad():
        torch.compile(lambda x, y: fn(x, y, count), backend=backend)(x, y)
    after = os.times()
    own = after.user + after.system - before.user - before.system
    children = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{name:6} {backend:10} {count:6} operators: {own:6.2f} s, children {children:6.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operators", type=int, default=3200)
    parser.add_argument("--graph", help=argparse.SUPPRESS)
    parser.add_argument("backends", nargs="*", default=["aot_eager", "minductor"])
    options = parser.parse_args()
    if options.graph:
        return measure(options.graph, options.backends[0], options.operators)
    for graph in ("chain", "wide"):
        for backend in options.backends:
            with tempfile.TemporaryDirectory() as folder:
                environ = {**os.environ, "MINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
                command = [sys.executable, __file__, backend, "--graph", graph, "--operators", str(options.operators)]
                subprocess.run(command, env=environ, check=True)


if __name__ == "__main__":
    main()
