"""Which option of the choice `padding` is the fastest one on sm_90.

Takes the features of a kernel. Gives an option, or "unsure". Refuses nothing.

`minductor heuristics learn` wrote this file: do not edit it. METADATA says from which measurements it was learned.
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA: Mapping[str, object] = {
    "choice": "padding",
    "affects": "bits",
    "target": "sm_90",
    "device": "NVIDIA H200",
    "versions": {
        "torch": "2.11.0",
        "triton": "3.6.0",
        "python": "3.12.3",
        "minductor": "0.1.0",
    },
    "date": "2026-11-27",
    "kernels": 214,
    "options": ("+pad_all_products", "-pad_products"),
    "ranges": {
        "batch": (1, 64),
        "m": (18, 65024),
        "n": (17, 65024),
        "k": (19, 50257),
        "itemsize": (2, 2),
        "is_tf32": (0, 0),
        "base": (0, 1),
        "after": (0, 0),
        "left_inner": (0, 1),
        "right_inner": (0, 1),
        "alignment": (2, 128),
        "results": (6272, 133234176),
        "products": (19267584, 256099571910),
        "bytes": (579746, 391835646),
        "pad_rows": (0, 4),
        "pad_columns": (0, 7),
        "pad_inner": (0, 7),
        "copied": (8738, 266817534),
        "copies": (1, 3),
        "fused": (0, 103026850),
        "result_copied": (0, 266468352),
    },
    "depth": 4,
    "leaf": 12,
    "threshold": 2.343,
    "validation": {
        "kernels": 145,
        "answered": 71,
        "changed": 13,
        "wrong": 0,
        "worst": 1.0,
        "best": 3.684,
        "gain": 1.0524,
    },
    "held_out": {
        "kernels": 69,
        "answered": 44,
        "changed": 8,
        "wrong": 0,
        "worst": 1.0,
        "best": 3.521,
        "gain": 1.1023,
    },
}


def choose(features: Mapping[str, float]) -> str:
    """The option for a kernel with these features."""
    if features["products"] <= 332000000:
        return "unsure"
    if features["k"] <= 240:
        return "unsure"
    if features["n"] <= 140:
        return "unsure"
    if features["m"] <= 140:
        return "unsure"
    return "+pad_all_products"
