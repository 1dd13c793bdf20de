"""A GraphDriver for tensors on the CPU that writes down what it is asked, and does what a GPU would do to memory.

`record` runs the function and takes its effects on its inputs back. `replay` runs it again and puts the results where
those of the recording lie. Like a GPU, a replay overwrites what was recorded later in the same pool: with NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from minductor.runtime.graphs.graph_driver import RecordFailed, Stream, lie_there

STREAM = Stream(0, 0)


@dataclass(eq=False)
class Recorded:
    """A recorded function, with the results that it has in its pool. `number` counts recordings."""

    number: int
    run: Callable[[], Sequence[Tensor]]
    pool: object
    results: Sequence[Tensor]
    inputs: Sequence[Tensor]


@dataclass
class RecordingDriver:
    """`asked`: what was asked, in order: ("record", n, pool), ("replay", n), ("copy", tensors), ("forbid",)."""

    asked: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    stream: Stream = STREAM
    failure: str = ""  # the next recording fails, with this text
    is_users: bool = False  # whether the user records
    recorded: list[Recorded] = field(default_factory=list[Recorded])
    messages: list[str] = field(default_factory=list[str])
    devices: list[str] = field(default_factory=list[str])
    pools: int = 0
    marks: int = 0  # how often the program marked a step
    outside_places: set[int] = field(default_factory=set[int])  # where storages lie that are in no pool

    def current_stream(self, device: str) -> Stream:
        self.devices.append(device)
        return self.stream

    def is_recording(self) -> bool:
        return self.is_users

    def make_pool(self) -> Any:
        self.pools += 1
        return self.pools

    def record(self, run: Callable[[], Sequence[Tensor]], pool: Any, stream: Stream) -> tuple[Any, Sequence[Tensor]]:
        if self.failure:
            why, self.failure = self.failure, ""
            raise RecordFailed(why)
        given = _by_address(run)
        kept = [tensor.clone() for tensor in given]
        state = torch.get_rng_state()
        results = run()
        torch.set_rng_state(state)
        for tensor, old in zip(given, kept, strict=True):
            tensor.copy_(old)
        made = Recorded(len(self.recorded), run, (pool, stream), results, given)
        self.recorded.append(made)
        self.asked.append(("record", made.number, pool))
        return made, results

    def outside(self, stream: Stream, make: Callable[[], Tensor]) -> Tensor:
        made = make()
        self.outside_places.add(made.untyped_storage().data_ptr())
        return made

    def replay(self, graph: Any) -> None:
        self.asked.append(("replay", graph.number))
        kept = {x.untyped_storage().data_ptr() for x in (*graph.results, *graph.inputs)} | self.outside_places
        for later in self.recorded[graph.number + 1 :]:
            if later.pool == graph.pool:
                for result in later.results:
                    if result.untyped_storage().data_ptr() not in kept and result.is_floating_point():
                        result.fill_(float("nan"))
        for place, result in zip(graph.results, graph.run(), strict=True):
            if result.data_ptr() != place.data_ptr():
                place.copy_(result)

    def lie_there(self, numbers: Sequence[int], addresses: Sequence[int]) -> Callable[..., bool]:
        return lie_there(numbers, addresses)

    def copy(self, into: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        self.asked.append(("copy", len(into)))
        torch.ops.aten._foreach_copy_(list(into), list(values))

    def forbid(self, tensor: Tensor, message: str) -> None:
        self.asked.append(("forbid",))
        self.messages.append(message)

    def step(self) -> int:
        return self.marks

    def did(self, kind: str) -> list[tuple[Any, ...]]:
        """What was asked of one kind."""
        return [each for each in self.asked if each[0] == kind]


def _by_address(run: Callable[[], Any]) -> list[Tensor]:
    """The tensors that a function without arguments is bound to, which it knows by their addresses from now on."""
    found: list[Tensor] = []
    for value in [cell.cell_contents for cell in run.__closure__ or ()]:
        if isinstance(value, list):
            for place, each in enumerate(value):
                if isinstance(each, Tensor) and each.untyped_storage().nbytes():
                    value[place] = _unowned(each)
                    found.append(value[place])
    return found


def _unowned(tensor: Tensor) -> Tensor:
    """A tensor of the same memory that does not keep the memory alive, as a GPU's graph does not."""
    storage = tensor.untyped_storage()
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(whole.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
