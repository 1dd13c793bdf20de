"""How each Triton kernel of a graph is launched, as data: the file `launches.json` beside the kernels' module.

Takes LaunchMetadata; gives their JSON, one launch a line. Takes that JSON; gives the LaunchMetadata back. Refuses text
that is no such JSON (ValueError or KeyError).

codegen/triton writes the file. The workers that compile or interpret kernels, the launchers of CUDA and of FX graphs,
`compile_only` and the pytest plugin read it.

>>> programs = ("s0", 3, "+", 4, "//")
>>> launch = LaunchMetadata("k_0", {"in0": "*fp32", "s0": "i64", "XBLOCK": "constexpr"}, programs, {"XBLOCK": 4}, 2)
>>> read_launches(print_launches([launch])) == (launch,)
True
>>> launch.name, LaunchMetadata("k_0", {}, (1,), {}, 8, variant="warps=8").name, list(launch.arguments)
('k_0', 'k_0 warps=8', ['in0', 's0'])
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

LAUNCHES = "launches.json"  # the file's name
# The name of a parameter behind the arguments: a tensor of one int32, which is 0 before and after the launch. No two
# launches that may run at the same time are given the same one.
COUNTER = "counter"
# A whole number that a launch computes, in reverse Polish notation. An item is a constant, the name of an argument, or
# one of the operators "+", "-", "*", "//", "%", "min" and "max", which takes the two values before it.
Postfix: TypeAlias = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class LaunchMetadata:
    """One way to launch one kernel. Where choices are measured, a kernel has several launches with other `variant`s."""

    symbol: str  # the kernel's function in the module
    parameters: Mapping[str, str]  # of that function, in order: name -> Triton's type; "constexpr" for a block size
    programs: Postfix  # how many programs a launch has, from the arguments
    blocks: Mapping[str, int]  # the size of each block parameter
    warps: int
    stages: int | None = None  # of software pipelining; None leaves the number to Triton
    registers: int | None = None  # the most of a thread; None leaves the number to the compiler
    variant: str = ""  # how the launch differs from the default one, such as "XBLOCK=512"; "" is the default

    @property
    def name(self) -> str:
        """The symbol and the variant: unique among the launches of a graph."""
        return f"{self.symbol} {self.variant}".strip()

    @property
    def arguments(self) -> dict[str, str]:
        """The parameters that each call of the kernel passes: all but the counter and the block sizes."""
        return {name: kind for name, kind in self.parameters.items() if kind != "constexpr" and name != COUNTER}

    @property
    def pointers(self) -> int:
        """The number of tensors. Tensors are the first arguments."""
        return sum(kind.startswith("*") for kind in self.arguments.values())

    @property
    def has_counter(self) -> bool:
        """Whether the launch counts the programs that have ended, so that the last one finishes the kernel."""
        return COUNTER in self.parameters


def print_launches(launches: Iterable[LaunchMetadata]) -> str:
    """The launches as JSON, one a line."""
    return "[\n" + ",\n".join(json.dumps(asdict(launch)) for launch in launches) + "\n]\n"


def read_launches(text: str) -> tuple[LaunchMetadata, ...]:
    """The launches that were printed; none for the empty text, which a graph without Triton kernels has."""
    rows: list[dict[str, Any]] = json.loads(text or "[]")
    return tuple(LaunchMetadata(programs=tuple(row.pop("programs")), **row) for row in rows)


def default_launches(text: str) -> dict[str, LaunchMetadata]:
    """The default launch of each kernel, by symbol, from what `print_launches` gave."""
    return {launch.symbol: launch for launch in read_launches(text) if not launch.variant}
