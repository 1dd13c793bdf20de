"""Measurements of a made-up choice whose faster option is known, and kernels that ask for it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from minductor.heuristics.features import FEATURES, OF_KERNEL
from minductor.heuristics.metadata import Metadata
from minductor.heuristics.samples import Sample, Times

LENGTHS, OF_A_LENGTH = tuple(int(16 * 2 ** (n / 4)) for n in range(40)), 5
BOUNDARY = 1000  # elements of a row: a held row is faster below, a looped one above, if there are MIDDLE rows
MIDDLE = 1024
RECIPES = ("rows", "side_by_side", "phases")  # of a softmax of short rows on a CPU
DEVICE, VERSIONS = "GPU X", {"torch": "2.11.0", "triton": "3.6.0", "python": "3.12.0"}


def features(rows: float, row: float) -> dict[str, float]:
    """Features of a kernel of which only the sizes count."""
    return {**dict.fromkeys(OF_KERNEL, 1.0), "rows": rows, "row": row}


def times(rows: float, row: float) -> dict[str, float]:
    """Seconds of each option, which are equal at the boundary. With more rows it lies at longer rows."""
    return {"held": 1e-5 * row / (BOUNDARY * (rows / MIDDLE) ** 0.75), "looped": 1e-5}


def sample(rows: int, row: int, **given: Any) -> Sample:
    """A measurement; its default is the faster option, so that each wrong answer is a loss."""
    seconds = times(rows, row)
    made = Sample(
        *("rows", f"{rows}x{row}", f"{rows}x{row}", "sm_90", DEVICE, "2026-01-01", VERSIONS, features(rows, row)),
        default=min(seconds, key=seconds.__getitem__),
        times={name: Times(each, 0.01, 15) for name, each in seconds.items()},
    )
    return made._replace(**given)


def samples(**given: Any) -> list[Sample]:
    """Measurements on both sides of the boundary, whose default is always to loop."""
    draw = random.Random(0)
    sizes = [(int(2 ** draw.uniform(6, 14)), row) for row in LENGTHS for _ in range(OF_A_LENGTH)]
    return [sample(*each, **{"default": "looped", **given}) for each in sizes]


def module(text: str) -> SimpleNamespace:
    """The module that a generated text is."""
    names: dict[str, Any] = {"__name__": "generated"}
    exec(compile(text, "generated", "exec"), names)
    return SimpleNamespace(METADATA=names["METADATA"], choose=names["choose"], __name__="generated")


def damaged(made: SimpleNamespace, **given: Any) -> SimpleNamespace:
    """The module with other metadata; None takes an entry out."""
    metadata: Mapping[str, Any] = {**made.METADATA, **given}
    return SimpleNamespace(
        METADATA={name: value for name, value in metadata.items() if value is not None},
        choose=made.choose,
        __name__="generated",
    )


def answering(target: str, option: str, options: Sequence[str] = RECIPES, choice: str = "rows", **given: Any) -> Any:
    """A module for a target that answers the same for all kernels."""
    metadata = Metadata(
        *(choice, "bits", target, "a machine", {"torch": "1.0"}, "2026-01-01", 50, tuple(options)),
        ranges=dict.fromkeys(FEATURES[choice], (0, 1e12)),
        **{"depth": 2, "leaf": 3, "threshold": 1.1, "validation": {}, "held_out": {}},
    )
    return SimpleNamespace(METADATA=metadata._asdict() | given, choose=lambda features: option, __name__="generated")
