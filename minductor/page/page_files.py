"""The user's files that a page shows, with the lines that its graphs come from.

Takes paths and lines. Gives the number of a file on the page, and the JSON of the files: of a long file the lines
around those that are used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from minductor.page.page_highlight import highlight

WHOLE, AROUND = 1500, 30  # lines: of files up to WHOLE all are shown, else those so near to a used line


class Files:
    """The files by path, and the lines of each that a node comes from."""

    def __init__(self) -> None:
        self.used: dict[str, set[int]] = {}

    def spot(self, path: str, line: int) -> list[int] | None:
        """The number of a file and the line; None for a place that is no file, such as a function typed at a prompt."""
        if path not in self.used and not Path(path).is_file():
            return None
        self.used.setdefault(path, set()).add(line)
        return [list(self.used).index(path), line]

    def rows(self) -> list[dict[str, Any]]:
        """The files as JSON: `numbers` are those of the lines that are shown, if these are not all."""
        return [_row(path, used) for path, used in self.used.items()]


def _row(path: str, used: set[int]) -> dict[str, Any]:
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    marks = highlight(lines, "python")
    shown = list(range(1, len(lines) + 1))
    if len(lines) > WHOLE:
        near = {line for each in used for line in range(each - AROUND, each + AROUND + 1)}
        shown = [number for number in shown if number in near]
    name = os.path.relpath(path)
    return {
        "name": path if name.startswith("..") else name,
        "lines": [lines[number - 1] for number in shown],
        "marks": [marks[number - 1] for number in shown],
        **({"numbers": shown} if len(shown) < len(lines) else {}),
    }
