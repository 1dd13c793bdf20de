"""What one run of the benchmark measured, as data that goes to JSON and comes back.

Takes: measurements. Gives: frozen records, `dump` and `load`. Refuses: files of another schema number.

>>> text = dump(Results({"torch": "2"}, ("eager",), 20, (), (), {}))
>>> load(text).rounds
20
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds per call, one entry a round: CPU time of the whole process, and wall time."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The worst result of a case: its error, eager's and the bound, in eps of the dtype at the largest element."""

    result: int
    error: float
    eager: float
    bound: float

    @property
    def is_close(self) -> bool:
        return self.error <= self.bound  # false for nan


@dataclass(frozen=True, slots=True)
class Running:
    """One case: `rounds` interleaved samples of each backend that could compile it, in one process."""

    case: str
    samples: dict[str, Samples]
    accuracy: dict[str, Accuracy]
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FirstCall:
    """First calls in fresh processes: `cache` is "cold" (empty), "warm" (filled by another) or "warm+imports".

    Imports are left out of the first two.
    """

    case: str
    cache: str
    samples: dict[str, Samples]
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel or one call of an operator: the bytes that it reads and writes."""

    name: str
    read: int
    written: int

    @property
    def bytes(self) -> int:
        return self.read + self.written


@dataclass(frozen=True, slots=True)
class Counts:
    """One compiled graph: the launches of generated kernels, and the calls of operators."""

    kernels: tuple[Launch, ...]
    externs: tuple[Launch, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """One run of the benchmark. `removed`: cases that are no longer measured, with the reason."""

    machine: dict[str, str]
    backends: tuple[str, ...]
    rounds: int
    running: tuple[Running, ...]
    first_calls: tuple[FirstCall, ...]
    removed: dict[str, str]


def dump(results: Results, claims: tuple[dict[str, Any], ...] = ()) -> str:
    """The JSON text; the claims are added for readers, and not read back."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(results), "claims": claims}, indent=1) + "\n"


def samples_of(data: dict[str, Any]) -> dict[str, Samples]:
    """The samples of each backend, from their form in JSON."""
    return {name: Samples(tuple(each["cpu"]), tuple(each["wall"])) for name, each in data.items()}


def running_of(data: dict[str, Any]) -> Running:
    accuracy = {name: Accuracy(**each) for name, each in data["accuracy"].items()}
    return Running(data["case"], samples_of(data["samples"]), accuracy, data["failures"])


def load(text: str) -> Results:
    """Read `dump`'s text back."""
    data = json.loads(text)
    if data.get("schema") != SCHEMA:
        raise ValueError(f"benchmark results have schema {data.get('schema')}, this version reads {SCHEMA}")
    return Results(
        machine=data["machine"],
        backends=tuple(data["backends"]),
        rounds=data["rounds"],
        running=tuple(running_of(each) for each in data["running"]),
        first_calls=tuple(
            FirstCall(**{**each, "samples": samples_of(each["samples"])}) for each in data["first_calls"]
        ),
        removed=data["removed"],
    )
