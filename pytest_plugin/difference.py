"""What a failing golden shows: the new text in the golden's own names, and only the lines that differ.

Takes two texts of one language; gives a unified difference. Refuses nothing: text that does not parse is compared line
by line. A name that was merely renumbered never appears.

>>> old = "int f() {\\n  int x1 = a(0);\\n  int x2 = b(x1);\\n}\\n"
>>> new = "int f() {\\n  int x7 = a(0);\\n  int x8 = c(x7);\\n}\\n"
>>> for line in difference(old, new, "cpp").lines: print(line)
@@ -2,3 +2,3 @@
   int x1 = a(0);
-  int x2 = b(x1);
+  int x2 = c(x1);
 }
>>> difference(old, new, "cpp").renamed
2
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_plugin.canonical import Line, canonical

CONTEXT = 1


@dataclass(frozen=True, slots=True)
class Changes:
    """The lines to show, and how many names were carried over."""

    lines: tuple[str, ...]
    renamed: int


def difference(old: str, new: str, language: str) -> Changes:
    """From the golden's text to the new one."""
    names = _aligned(_lines(old, language), _lines(new, language))
    changed = {name: other for name, other in names.items() if name != other}
    carried = re.sub(r"[A-Za-z_]\w*", lambda name: changed.get(name[0], name[0]), new)
    shown = difflib.unified_diff(old.splitlines(), carried.splitlines(), lineterm="", n=CONTEXT)
    return Changes(tuple(shown)[2:], len(changed))


def _lines(text: str, language: str) -> tuple[Line, ...]:
    try:
        return canonical(text, language)
    except SyntaxError:
        return canonical(text, "txt")


def _aligned(old: tuple[Line, ...], new: tuple[Line, ...]) -> dict[str, str]:
    """New name -> old name, by vote of the lines that are equal but for names; no old name is given twice."""
    votes: Counter[tuple[str, str]] = Counter()
    for tag, i1, i2, j1, j2 in _opcodes([_shape(line) for line in old], [_shape(line) for line in new]):
        # lines that were changed in place still say which name is which, with less weight
        weight = 4 if tag == "equal" else 1
        if tag == "equal" or (tag == "replace" and i2 - i1 == j2 - j1):
            for before, after in zip(old[i1:i2], new[j1:j2], strict=True):
                if len(before.names) == len(after.names):
                    votes.update({pair: weight for pair in zip(after.names, before.names, strict=True)})
    found: dict[str, str] = {}
    taken: set[str] = set()
    for (after, before), _ in votes.most_common():
        if after not in found and before not in taken:
            found[after] = before
            taken.add(before)
    # a new name without a partner must not read like an old one that another name became
    everything = dict.fromkeys(name for line in new for name in line.names)
    return found | {name: f"{name}_new" for name in everything if name not in found and name in taken}


def _opcodes(old: list[str], new: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """As difflib's, with the equal start and end found first: difflib takes lines that are often equal for noise."""
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    end = next((n for n in range(shorter - start) if old[-1 - n] != new[-1 - n]), shorter - start)
    yield "equal", 0, start, 0, start
    middle = difflib.SequenceMatcher(None, old[start : len(old) - end], new[start : len(new) - end])
    for tag, i1, i2, j1, j2 in middle.get_opcodes():
        yield tag, i1 + start, i2 + start, j1 + start, j2 + start
    yield "equal", len(old) - end, len(old), len(new) - end, len(new)


def _shape(line: Line) -> str:
    return re.sub(r"\$\d+|\b_l\d+_", "$", line.text)
