"""The backend of the toy device: one record that names its parts, and its options.

Nothing else is imported with it. minductor resolves a part when it needs it: a graph that is in the store already needs
`probe`, `load` and `launch`, and neither printer nor compiler.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minductor.backends import Backend, OptionRule, Target
from minductor_toy.spelling import LACKS


@dataclass(frozen=True)
class ToyOptions:
    """Users say `torch.compile(..., options={"toy.optimise": 3})`; every field is part of the store's key."""

    optimise: int = field(default=2, metadata={"rule": OptionRule(int, "the C compiler's level", allowed=(0, 1, 2, 3))})


TARGET = Target(
    "toy_1",
    kind="toy",
    device="toy",  # torch's name for the device
    l2_bytes=1024 * 1024,
    cached_row_bytes=1024 * 1024,
    vector_bytes=64,
    lacks=LACKS,
)

BACKEND = Backend(
    kind="toy",
    api_version=2,
    targets=(TARGET,),
    probe="minductor_toy.compile:probe",
    kernels="minductor_toy.kernels:kernels",
    build="minductor_toy.compile:build",
    load="minductor_toy.compile:load",
    launch="minductor_toy.compile:launch",
    options=ToyOptions(),
    externs={"aten.mm.out": "toy.mm.out"},
    capabilities=("float64",),
)
