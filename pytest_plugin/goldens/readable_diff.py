"""The difference that a failing golden shows: the new text in the golden's own names, and only lines that differ.

Takes two texts of one language. Gives a unified difference. Refuses nothing: text that does not parse is compared line
by line. A name that was merely renumbered is not shown as a change.

>>> old = "int f() {\\n  int x1 = a(0);\\n  int x2 = b(x1);\\n}\\n"
>>> new = "int f() {\\n  int x7 = a(0);\\n  int x8 = c(x7);\\n}\\n"
>>> for line in readable_diff(old, new, "cpp").lines: print(line)
@@ -2,3 +2,3 @@
   int x1 = a(0);
-  int x2 = b(x1);
+  int x2 = c(x1);
 }
>>> readable_diff(old, new, "cpp").renamed
2
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_plugin.goldens.canonical import Line, canonical
from pytest_plugin.goldens.line_diff import opcodes, unified_diff

CONTEXT = 1
TOKEN = re.compile(r"\w+|\$\d*|[^\s\w]")
MOST_PAIRS = 2_500  # of lines that are compared with each other


@dataclass(frozen=True, slots=True)
class ReadableDiff:
    """The lines to show, and the number of names that were replaced by the golden's."""

    lines: tuple[str, ...]
    renamed: int


def readable_diff(old: str, new: str, language: str) -> ReadableDiff:
    """Returns the difference from the golden's text to the new one."""
    carried, renamed = with_golden_names(old, new, language)
    return ReadableDiff(tuple(unified_diff(old.splitlines(), carried.splitlines(), CONTEXT)), renamed)


def with_golden_names(old: str, new: str, language: str) -> tuple[str, int]:
    """Returns the new text with the golden's names, and the number of names that were replaced."""
    names = match_names(canonical_or_plain(old, language), canonical_or_plain(new, language))
    changed = {name: other for name, other in names.items() if name != other}
    if not changed:
        return new, 0
    word = r"%?\b\w+" if language == "ir" else r"\b[A-Za-z_]\w*"
    return re.sub(word, lambda name: changed.get(name[0], name[0]), new), len(changed)


def canonical_or_plain(text: str, language: str) -> tuple[Line, ...]:
    """Returns the canonical lines, or the plain lines of a text that does not parse."""
    try:
        return canonical(text, language)
    except SyntaxError:
        return canonical(text, "txt")


def match_names(old: tuple[Line, ...], new: tuple[Line, ...]) -> dict[str, str]:
    """Returns the old name of each new name.

    Lines that are equal but for their names vote for pairs of names. No old name is given twice.
    """
    votes: Counter[tuple[str, str]] = Counter()
    shapes = [[shape_of_line(line) for line in side] for side in (old, new)]
    for tag, i1, i2, j1, j2 in opcodes(*shapes):
        # Lines that were changed in place vote too, with less weight.
        weight = 4 if tag == "equal" else 1
        for i, j in (
            [(n, n) for n in range(i2 - i1)] if tag == "equal" else match_lines(shapes[0][i1:i2], shapes[1][j1:j2])
        ):
            before, after = old[i1 + i], new[j1 + j]
            if len(before.names) == len(after.names):
                for pair in dict.fromkeys(zip(after.names, before.names, strict=True)):
                    votes[pair] += weight
    found: dict[str, str] = {}
    taken: set[str] = set()
    for (after, before), _ in votes.most_common():
        if after not in found and before not in taken:
            found[after] = before
            taken.add(before)
    # A new name without an old one must not look like an old name that another new name has got.
    everything = dict.fromkeys(name for line in new for name in line.names)
    return found | {name: f"{name}_new" for name in everything if name not in found and name in taken}


def match_lines(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Returns pairs of lines that correspond: one by one if both runs are equally long, else by their common tokens.

    >>> match_lines(["a = f(x);", "return a;"], ["a = g(x);", "check();", "return a;"])
    [(0, 0), (1, 2)]
    """
    if len(before) == len(after):
        return [(n, n) for n in range(len(before))]
    if len(before) * len(after) > MOST_PAIRS:
        return []
    return _similar_pairs([TOKEN.findall(line) for line in before], [TOKEN.findall(line) for line in after])


def _similar_pairs(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Returns the pairs of lines, in order, that have most tokens in common, and at least half of them."""
    best = [[0.0] * (len(after) + 1) for _ in range(len(before) + 1)]
    scores: dict[tuple[int, int], float] = {}
    for i in reversed(range(len(before))):
        for j in reversed(range(len(after))):
            common = sum((Counter(before[i]) & Counter(after[j])).values())
            scores[i, j] = 2 * common / (len(before[i]) + len(after[j]))
            paired = scores[i, j] + best[i + 1][j + 1] if scores[i, j] > 0.5 else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            pairs.append((i, j))
            i, j = i + 1, j + 1
    return pairs


def shape_of_line(line: Line) -> str:
    """Returns the line without the numbers of its names."""
    return re.sub(r"\$\d+|\b_l\d+_", "$", line.text)
