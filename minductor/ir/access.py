"""How a kernel touches one buffer in one loop nest: block, strided, scalar or gather.

Takes and gives plain data; `passes/access.py` computes it, printers and the Report read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minductor.core.expr import Expr


@dataclass(frozen=True, slots=True)
class Access:
    """The load or store at `position` of a body.

    kind "block": contiguous along the vector axis; "strided": a constant stride along it; "scalar": the same element
    for the whole vector; "gather": anything else. `stride` is the step along the vector axis, in elements.
    """

    position: int
    kind: Literal["block", "strided", "scalar", "gather"]
    stride: Expr | None = None
