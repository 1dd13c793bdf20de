"""Kernels of Triton in a torch.fx graph: what torch's table of such kernels holds, and the nodes that launch them.

Takes the text of a module of kernels, and what launches them. Gives nodes `triton_kernel_wrapper_mutation`, whose
kernel, constants, grid and arguments are as those of a user's own kernel. Refuses to launch where nobody can
(TargetElsewhere): such a graph is there to be read.

Making a node imports no Triton. Who wants the kernel as a `triton.JITFunction` asks the table's entry for its `fn`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_mutation

from minductor.core.errors import TargetElsewhere
from minductor.ir.artefact.fx_graph import FxGraph
from minductor.runtime.build import triton_jobs
from minductor.runtime.launch.cuda import ADD, ARGUMENT, FLOORDIV, MAX, MIN, MOD, MUL, SUB, Steps, steps
from minductor.runtime.launch.fx_launcher import Launcher
from minductor.runtime.launch.gpu import launch_table
from minductor.runtime.launch.launch import Bind
from minductor.runtime.store.store import digest

_OPERATORS: Mapping[int, Callable[..., Any]] = MappingProxyType(
    {
        ADD: operator.add,
        SUB: operator.sub,
        MUL: operator.mul,
        FLOORDIV: operator.floordiv,
        MOD: operator.mod,
        MIN: min,
        MAX: max,
    }
)


class Kernel:
    """An entry of torch's table: `kernel[grid](*args)` launches, as for a `triton.JITFunction`."""

    def __init__(self, text: str, symbol: str, run: Callable[..., int]) -> None:
        self.text = text
        self.symbol = symbol
        self.run = run
        kinds = triton_jobs.launches(text)[symbol][1]
        self.arg_names = tuple(kinds)
        self.given = sum(kind != "constexpr" for kind in kinds.values())

    @property
    def fn(self) -> Any:
        return getattr(triton_jobs.module_of(self.text), self.symbol)

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self.launch  # which counts its programs itself

    def launch(self, *args: Any, **constants: Any) -> None:
        """Blocks, warps and stages are what the binary was made for."""
        given = args[: self.given]
        if not args[0].is_cuda:  # the interpreter, which knows no streams
            self.run(*given, 0)
            return
        device = args[0].device
        with torch.cuda.device(device):
            self.run(*given, torch.cuda.current_stream(device).cuda_stream)


class Triton:
    """Launches the kernels of a module; `bind` gives them by symbol, and is None where they are for another machine."""

    def __init__(self, text: str, bind: Bind | None, target: str) -> None:
        self.text = text
        self.bind = bind
        self.target = target
        self.table = launch_table(text)

    def __call__(self, graph: FxGraph) -> Launcher:
        return self.node

    def node(self, graph: fx.Graph, symbol: str, tensors: Sequence[fx.Node], numbers: Sequence[Any]) -> fx.Node:
        names, programs, kinds = self.table[symbol]
        _, _, blocks, warps, *stages = triton_jobs.launches(self.text)[symbol]
        constants = {**blocks, "num_warps": warps, **dict(zip(("num_stages",), stages, strict=False))}
        given = (*tensors, *numbers)
        count = _programs(graph, steps(programs, names, len(tensors)), given)
        return graph.create_node(
            "call_function",
            triton_kernel_wrapper_mutation,
            (),
            {
                "kernel_idx": self.place(symbol),
                "constant_args_idx": _place_of_constants(constants),
                "grid": [(count, 1, 1)],
                "tma_descriptor_metadata": {},
                "kwargs": dict(zip(kinds, given, strict=True)),
            },
            symbol,
        )

    def place(self, symbol: str) -> int:
        """The kernel's place in torch's table, which follows from what it is.

        `torch.compiler.reset()` empties the table and fills it from the start: an older graph that counted its places
        would launch the kernels of another one.
        """
        found = _number(self.text, symbol, self.target, str(self.bind is None))
        with kernel_side_table.lock:
            if found not in kernel_side_table.id_to_kernel:
                kernel: Any = Kernel(self.text, symbol, self.elsewhere if self.bind is None else self.bind(symbol))
                kernel_side_table.id_to_kernel[found] = kernel
                kernel_side_table.kernel_to_id[kernel] = found
        return found

    def elsewhere(self, *args: Any) -> int:
        raise TargetElsewhere(self.target)


def _place_of_constants(constants: dict[str, Any]) -> int:
    found = _number(repr(constants))
    with kernel_side_table.lock:
        kernel_side_table.constant_args[found] = constants
    return found


def _number(*parts: str) -> int:
    """Far above those that torch counts, and one that JSON and C have."""
    return (1 << 52) + int(digest(*parts)[:12], 16)


def _programs(graph: fx.Graph, count: Steps, arguments: Sequence[Any]) -> Any:
    """A count of programs: a number, or the node that computes it."""
    stack: list[Any] = []
    for code, value in count:
        if code not in _OPERATORS:
            stack.append(arguments[value] if code == ARGUMENT else value)
            continue
        right, left = stack.pop(), stack.pop()
        is_node = isinstance(left, fx.Node) or isinstance(right, fx.Node)
        make = _OPERATORS[code]
        stack.append(graph.call_function(make, (left, right)) if is_node else make(left, right))
    return stack.pop()
