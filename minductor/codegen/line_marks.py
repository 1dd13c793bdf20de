"""Marks at the ends of generated lines, which say what a line computes; they go once the text of a file is complete.

Takes the names of generated functions and positions of ops. Gives texts with marks, the text without them, and the map
from lines to ops. Refuses nothing. A printer adds marks under options={"provenance": 2} only. They stay with their
lines when functions are indented, compared or put behind others, so that no printer counts lines.

>>> text = f"float f(float x) {{\\n  return x;{mark('f', 0)}{mark('f', 2)}\\n}}\\n"
>>> read_marks(text) == ("float f(float x) {\\n  return x;\\n}\\n", (("f", ((2, (0, 2)),)),))
True
"""

from __future__ import annotations

from minductor.ir.artefact.source import LineRows

_MARK = "\0"  # in no generated text


def mark(symbol: str, position: int) -> str:
    """The mark of a line that computes the op at that position of the kernel whose function is `symbol`."""
    return f"{_MARK}{symbol} {position}"


def without_marks(text: str) -> str:
    """The text without marks."""
    return read_marks(text)[0]


def united(one: str, other: str) -> str:
    """A text with the marks of another one, which is equal without marks, behind its own."""
    pairs = zip(one.split("\n"), other.split("\n"), strict=True)
    return "\n".join(mine + "".join(other.partition(_MARK)[1:]) for mine, other in pairs)


def read_marks(text: str) -> tuple[str, tuple[tuple[str, LineRows], ...]]:
    """The text of a file without marks; by function, the lines with marks, from 1, and the positions that they name."""
    if _MARK not in text:
        return text, ()
    found: dict[str, dict[int, set[int]]] = {}
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        plain, *marks = line.split(_MARK)
        lines.append(plain)
        for symbol, position in (each.rsplit(" ", 1) for each in marks):
            found.setdefault(symbol, {}).setdefault(number, set()).add(int(position))
    maps = ((symbol, tuple((n, tuple(sorted(at))) for n, at in rows.items())) for symbol, rows in found.items())
    return "\n".join(lines), tuple(maps)
