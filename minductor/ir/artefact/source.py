"""The generated texts of one compiled graph: what codegen gives to the build.

Takes texts and names. Gives frozen records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

LineRows: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A translation unit: its text, the symbols of the kernels in it, and the suffix of its file.

    `line_maps`: for each symbol, the lines of its function, counted from 1, with the positions of the ops that each
    computes, under options={"provenance": 2}.
    """

    name: str
    text: str
    symbols: tuple[str, ...]
    suffix: str = "cpp"
    line_maps: tuple[tuple[str, LineRows], ...] = ()

    @property
    def file(self) -> str:
        return f"{self.name}.{self.suffix}"


@dataclass(frozen=True, slots=True)
class Source:
    """The units with kernels and the text of the wrapper. `language`: the suffix of the wrapper's file."""

    units: tuple[Unit, ...]
    wrapper: str
    language: str = "py"

    @property
    def wrapper_file(self) -> str:
        return f"wrapper.{self.language}"
