"""The texts of one compiled graph, between codegen and load.

Takes and gives plain data.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """One translation unit: its text, and the kernels in it by symbol."""

    name: str
    text: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Everything that a load needs: kernel units and the wrapper's module."""

    units: tuple[Unit, ...]
    wrapper: str
