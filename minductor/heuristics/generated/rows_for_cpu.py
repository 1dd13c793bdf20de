"""Which option of the choice `rows` is the fastest one on cpu.

Takes the features of a kernel. Gives an option, or "unsure". Refuses nothing.

`minductor heuristics learn` wrote this file: do not edit it. METADATA says from which measurements it was learned.
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA: Mapping[str, object] = {
    "choice": "rows",
    "affects": "bits",
    "target": "cpu",
    "device": "AMD EPYC",
    "versions": {
        "torch": "2.13.0",
        "triton": "3.8.0",
        "python": "3.11.7",
        "minductor": "0.1.0",
    },
    "date": "2026-11-24",
    "kernels": 500,
    "options": ("across_rows", "rows", "side_by_side", "two_steps"),
    "ranges": {
        "rows": (256, 742912),
        "row": (2, 2776),
        "row_bytes": (4, 11104),
        "alignment": (2, 512),
        "tail": (0, 15),
        "padding": (1.0, 1.9394),
        "is_contiguous": (1, 1),
        "itemsize": (2, 4),
        "loads": (2.0, 4.0156),
        "stores": (0.0020877, 4.0),
        "reductions": (1, 3),
        "values": (1, 1),
        "in_turn": (1, 3),
        "is_kept": (0, 1),
        "operations": (2.0005, 39.5),
        "functions": (0.0, 15.0),
    },
    "depth": 4,
    "leaf": 12,
    "threshold": 1.127,
    "validation": {
        "kernels": 343,
        "answered": 248,
        "changed": 20,
        "wrong": 0,
        "worst": 1.0,
        "best": 7.25,
        "gain": 1.032,
    },
    "held_out": {
        "kernels": 157,
        "answered": 119,
        "changed": 12,
        "wrong": 0,
        "worst": 1.024,
        "best": 6.025,
        "gain": 1.0406,
    },
}


def choose(features: Mapping[str, float]) -> str:
    """The option for a kernel with these features."""
    if features["in_turn"] <= 1.5:
        if features["has side_by_side"] <= 0:
            if features["has across_rows"] <= 0.5:
                return "two_steps"
            if features["has two_steps"] <= 0:
                if features["row_bytes"] <= 30:
                    return "across_rows"
                if features["alignment"] <= 50:
                    return "unsure"
                return "rows"
            return "unsure"
        return "unsure"
    if features["has two_steps"] <= 0:
        if features["has across_rows"] <= 0:
            return "side_by_side"
        return "unsure"
    return "unsure"
