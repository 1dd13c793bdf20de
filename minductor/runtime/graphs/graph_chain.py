"""The partitions of a forward graph and of its backward graph, which share pools; and of a graph for inference.

Takes a GraphDriver. Gives each wrapper what its text calls: `graphs`, which makes a CapturedPartition of a partition's
function, `empty_result`, which makes the storage of a result, and `given`, which copies results out of the pool.
Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import TracingContext

from minductor.runtime.graphs.graph_driver import GraphDriver
from minductor.runtime.graphs.graph_partition import CapturedPartition, Note, Shared
from minductor.runtime.graphs.graph_pool import copied_out
from minductor.runtime.graphs.graph_recording import About, Function
from minductor.runtime.graphs.graph_results import ResultMemory, new_result

Where = Callable[[str], str]


def uncaptured(function: Function, *about: object) -> Function:
    """What `graphs` is in a wrapper that is loaded without a driver: each partition runs its function."""
    return function


def all_given(values: Sequence[Any]) -> Sequence[Any]:
    """What `given` is in a wrapper that is loaded without a driver."""
    return values


@dataclass(eq=False, slots=True)
class WrapperGraphs:
    """The graphs of one wrapper.

    `results`: how many of the values that it returns go to the user, who may keep them; None: all. The others are
    saved for the backward graph. `are_gradients`: autograd may keep these results from step to step. `static`: the
    names of the inputs that are parameters or buffers of a module.
    """

    shared: Shared
    where: Where
    results: int | None = None
    are_gradients: bool = False
    static: frozenset[str] = frozenset()

    def graphs(
        self,
        function: Function,
        device: str,
        inputs: tuple[str, ...],
        written: tuple[int, ...],
        nodes: tuple[str, ...],
    ) -> CapturedPartition:
        """The function that the wrapper calls for a partition; see `wrapper_partitions.py` for the arguments."""
        places = tuple(self.where(node) if node else "" for node in nodes)
        static = frozenset(number for number, name in enumerate(inputs) if name in self.static)
        name, memory = function.__name__, self.shared.memory
        about = About(function, name, device, len(inputs), static, written, places, memory, self.are_gradients)
        return CapturedPartition(about, self.shared)

    def empty_result(
        self, last: int, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: str
    ) -> torch.Tensor:
        """A tensor in a new storage, in which values lie that the wrapper returns, of which `last` is the last.

        It lies outside of the pool if all these values go to the user.
        """
        if self.results is not None and last >= self.results:
            return new_result(last, size, stride, dtype, device)
        return self.shared.memory.empty(size, stride, dtype, device)

    def given(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values that the wrapper returns: those for the user lie outside of the pool.

        Once the program marks its steps, it has promised to read results in their own step only: they are not copied.
        """
        lent: set[int] = set()
        for pool in self.shared.pools.values():  # one for each stream: mostly one, which often lends nothing
            if pool.storages:
                lent = lent | pool.storages if lent else pool.storages
        if not lent or (self.shared.driver.step() and not self.are_gradients):
            return values
        count = len(values) if self.results is None else self.results
        return (*copied_out(self.shared.driver, values[:count], lent), *values[count:])


class GraphChain:
    """The graphs that AOTAutograd makes of one graph of Dynamo's. Freeing the last wrapper frees the pools."""

    def __init__(self, driver: GraphDriver, warn: Note, tell: Note, static: Iterable[int] = ()) -> None:
        """`static`: the numbers of the inputs of the first graph that are parameters or buffers of a module."""
        self.shared = Shared(driver, warn, tell, ResultMemory(driver))
        self.static = static_inputs(static)

    def of_wrapper(self, where: Where, results: int | None, *, are_gradients: bool) -> WrapperGraphs:
        """The graphs of the wrapper of a forward, backward or inference graph."""
        return WrapperGraphs(self.shared, where, results, are_gradients, self.static)


def static_inputs(numbers: Iterable[int]) -> frozenset[str]:
    """The names of inputs by their numbers, in each graph of a chain.

    AOTAutograd names input `n` of a graph for inference `arg{n}_1`, and of a forward graph `primals_{n + 1}`, in the
    backward graph as well if it is saved for that.

    >>> sorted(static_inputs([0]))
    ['arg0_1', 'primals_1']
    """
    return frozenset(name for number in numbers for name in (f"arg{number}_1", f"primals_{number + 1}"))


def saved_from(role: str) -> int | None:
    """From which of its results on a graph that is being compiled saves them for its backward; None: it saves none."""
    if role != "forward":
        return None
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return None if metadata is None else int(metadata.num_forward_returns)
