"""Measurements of the options of a choice: one JSON value a line for each kernel.

Takes lines of text, or a measurement. Gives measurements, or a line. Refuses lines that are no measurement
(BadHeuristic names the line); a line for a kernel that could not be measured says why, and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from minductor.core.errors import BadHeuristic


class Times(NamedTuple):
    """What one option takes. `spread`: of the middle half of the rounds, as a share of the median."""

    seconds: float
    spread: float
    rounds: int


class Sample(NamedTuple):
    """One kernel with the times of each option.

    `case` names the kernel. Kernels of one `group` are alike: they are either all learned from or all held out.
    `default`: the option that is taken without a learned choice. `versions`: of the software, by name.
    """

    choice: str
    case: str
    group: str
    target: str
    device: str
    date: str
    versions: Mapping[str, str]
    features: Mapping[str, float]
    default: str
    times: Mapping[str, Times]

    def least(self) -> float:
        """The seconds of the fastest option."""
        return min(each.seconds for each in self.times.values())


def line_of(sample: Sample) -> str:
    """A measurement as one line.

    >>> times = {"held": Times(1.0, 0.0, 3)}
    >>> sample = Sample("rows", "sum", "8x8", "cpu", "a CPU", "2026-01-01", {}, {"row": 8}, "held", times)
    >>> read([line_of(sample)])[0] == sample
    True
    """
    return json.dumps(sample._asdict() | {"times": {name: each._asdict() for name, each in sample.times.items()}})


def failed_line(case: str, why: str) -> str:
    """The line for a kernel that could not be measured, so that it is not tried again."""
    return json.dumps({"case": case, "failed": why})


def cases_of(lines: Iterable[str]) -> set[str]:
    """The names of the kernels that lines are about, those that failed too. A last line that was cut short is none."""
    found = set[str]()
    for line in lines:
        try:
            found.add(json.loads(line)["case"])
        except (ValueError, KeyError, TypeError):
            continue
    return found


def read(lines: Iterable[str], where: str = "") -> list[Sample]:
    """The measurements in lines of the file `where`."""
    return [
        sample
        for number, line in enumerate(lines, 1)
        if line.strip() and (sample := _sample(line, f"{where}:{number}")) is not None
    ]


def _sample(line: str, where: str) -> Sample | None:
    """The measurement in a line; None if it says that there is none."""
    try:
        value = cast("dict[str, Any]", json.loads(line))
        if "failed" in value:
            return None
        times = {name: Times(**each) for name, each in value.pop("times").items()}
        sample = Sample(**value, times=times)
        is_sound = bool(times) and all(each.seconds > 0 for each in times.values()) and sample.default in times
        numbers = all(isinstance(each, int | float) for each in value["features"].values())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadHeuristic("this line is no measurement", where=where, why=str(error)) from error
    if not (is_sound and numbers):
        why = "it needs a positive time for each option, one of them the default, and features that are numbers"
        raise BadHeuristic("this line is no measurement", where=where, why=why)
    return sample
