"""Compiles a function with some of its tensors as frozen weights: they are buffers of a module.

Takes a function, a Compiler, and which positions are weights. Gives a function of all the tensors; it is compiled at
its first call, and its weights are those of that call. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Holding(nn.Module):
    """A function whose arguments at some positions are buffers."""

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any], held: Sequence[int]) -> None:
        super().__init__()
        self.fn, self.count = fn, len(args)
        for number in held:
            self.register_buffer(f"held{number}", args[number])

    def forward(self, *rest: Any) -> Any:
        given = iter(rest)
        return self.fn(
            *[getattr(self, f"held{n}") if hasattr(self, f"held{n}") else next(given) for n in range(self.count)]
        )


def frozen(fn: Callable[..., Any], compiler: Any, held: slice, **how: Any) -> Callable[..., Any]:
    """The function with `options={"freeze": True}`; the tensors among the arguments at `held` are weights."""
    made: list[tuple[Callable[..., Any], tuple[int, ...]]] = []

    def call(*args: Any) -> Any:
        if not made:
            places = range(len(args))[held]
            weights = tuple(n for n in places if isinstance(args[n], Tensor))
            made.append((torch.compile(Holding(fn, args, weights), backend=compiler, **how), weights))
        compiled, weights = made[0]
        return compiled(*[value for number, value in enumerate(args) if number not in weights])

    return call
