"""Triton kernels in a torch.fx graph: the nodes that launch them, and the entries of torch's table of such kernels.

Takes the text of a module of kernels, their launches as JSON, and the functions that launch them. Gives nodes
`triton_kernel_wrapper_mutation`, with kernel, constants, grid and arguments as for a kernel that a user wrote. Refuses
to launch kernels that are for another machine (TargetElsewhere): such a graph can only be read.

Making a node does not import Triton. The attribute `fn` of a table entry is the kernel as a `triton.JITFunction`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_mutation

from minductor.core.errors import TargetElsewhere
from minductor.ir.artefact.fx_graph import FxGraph
from minductor.ir.artefact.launch_metadata import LaunchMetadata, Postfix, default_launches
from minductor.runtime.build import triton_jobs
from minductor.runtime.launch.cuda import OPERATORS
from minductor.runtime.launch.fx_launcher import Launcher
from minductor.runtime.launch.launch import Bind
from minductor.runtime.store.store import digest


class Kernel:
    """An entry of torch's table: `kernel[grid](*args)` launches, as for a `triton.JITFunction`."""

    def __init__(self, text: str, metadata: LaunchMetadata, run: Callable[..., int]) -> None:
        self.text = text
        self.symbol = metadata.symbol
        self.run = run
        self.arg_names = tuple(metadata.parameters)
        self.given = len(metadata.arguments)

    @property
    def fn(self) -> Any:
        return getattr(triton_jobs.module_of(self.text), self.symbol)

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self.launch  # the grid is ignored: the launch computes it

    def launch(self, *args: Any, **constants: Any) -> None:
        """Launches with the blocks, warps, stages and registers for which the binary was compiled."""
        given = args[: self.given]
        if not args[0].is_cuda:  # the interpreter has no streams
            self.run(*given, 0)
            return
        device = args[0].device
        with torch.cuda.device(device):
            self.run(*given, torch.cuda.current_stream(device).cuda_stream)


class Triton:
    """Launches the kernels of a module as `launches`, the text of LAUNCHES, says.

    `bind` gives a kernel by its symbol. It is None where the kernels are for another machine.
    """

    def __init__(self, text: str, launches: str, bind: Bind | None, target: str) -> None:
        self.text = text
        self.bind = bind
        self.target = target
        self.launches = default_launches(launches)

    def __call__(self, graph: FxGraph) -> Launcher:
        return self.node

    def node(self, graph: fx.Graph, symbol: str, tensors: Sequence[fx.Node], numbers: Sequence[Any]) -> fx.Node:
        metadata = self.launches[symbol]
        # who lowers the graph further knows nothing of the sizes for which 32 bits hold the indices
        constants = {**(metadata.wide() if metadata.greatest_index else metadata).blocks, "num_warps": metadata.warps}
        if metadata.stages is not None:
            constants["num_stages"] = metadata.stages
        if metadata.registers is not None:
            constants["maxnreg"] = metadata.registers
        arguments = dict(zip(metadata.arguments, (*tensors, *numbers), strict=True))
        count = _programs(graph, metadata.programs, arguments)
        return graph.create_node(
            "call_function",
            triton_kernel_wrapper_mutation,
            (),
            {
                "kernel_idx": self.place(symbol),
                "constant_args_idx": _place_of_constants(constants),
                "grid": [(count, 1, 1)],
                "tma_descriptor_metadata": {},
                "kwargs": arguments,
            },
            symbol,
        )

    def place(self, symbol: str) -> int:
        """The kernel's index in torch's table, a hash of the kernel.

        `torch.compiler.reset()` empties the table and counts from the start again. With counted indices, an older graph
        would launch kernels of another one.
        """
        metadata = self.launches[symbol]
        found = _number(self.text, str(metadata), self.target, str(self.bind is None))
        with kernel_side_table.lock:
            if found not in kernel_side_table.id_to_kernel:
                kernel: Any = Kernel(self.text, metadata, self.elsewhere if self.bind is None else self.bind(symbol))
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
    """An index far above those that torch counts, which still fits in JSON and in C."""
    return (1 << 52) + int(digest(*parts)[:12], 16)


def _programs(graph: fx.Graph, programs: Postfix, arguments: Mapping[str, Any]) -> Any:
    """The number of programs of a launch: a number, or the node that computes it."""
    stack: list[Any] = []
    for item in programs:
        if item not in OPERATORS:
            stack.append(arguments[item] if isinstance(item, str) else item)
            continue
        right, left = stack.pop(), stack.pop()
        is_node = isinstance(left, fx.Node) or isinstance(right, fx.Node)
        make = OPERATORS[item]
        stack.append(graph.call_function(make, (left, right)) if is_node else make(left, right))
    return stack.pop()
