"""What the builder of a torch.fx graph asks of the code that launches kernels: the type `Launcher`.

Takes and gives nothing. `fx.py` implements the type for kernels in C++, `fx_triton.py` for kernels in Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import fx


class Launcher(Protocol):
    """Adds the node that launches the kernel `symbol` with these tensors and numbers to the graph."""

    def __call__(self, graph: fx.Graph, symbol: str, tensors: Sequence[fx.Node], numbers: Sequence[Any]) -> fx.Node: ...
