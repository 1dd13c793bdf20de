"""The texts of one compiled graph, between codegen and load.

Takes and gives plain data.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """One translation unit: its text, the kernels in it by symbol, and how its file's name ends."""

    name: str
    text: str
    symbols: tuple[str, ...]
    suffix: str = "cpp"

    @property
    def file(self) -> str:
        return f"{self.name}.{self.suffix}"


@dataclass(frozen=True, slots=True)
class Source:
    """Everything that a load needs: kernel units and the wrapper's text; `language` is how the wrapper's file ends."""

    units: tuple[Unit, ...]
    wrapper: str
    language: str = "py"

    @property
    def wrapper_file(self) -> str:
        return f"wrapper.{self.language}"
