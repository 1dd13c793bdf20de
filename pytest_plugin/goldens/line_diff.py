"""The difference of two sequences of lines, in time that grows with their length.

Takes two sequences. Gives runs of equal and of changed lines, and a unified difference. Refuses nothing. Lines that
occur once on either side are the anchors (as in git's patience algorithm). Between anchors, short runs are compared by
difflib, whose time is quadratic, and long runs without an anchor are replaced as a whole.

>>> list(opcodes("abcxd", "abyd"))
[('equal', 0, 2, 0, 2), ('replace', 2, 4, 2, 3), ('equal', 4, 5, 3, 4)]
>>> print("\\n".join(unified_diff(["a", "b"], ["a", "c"])))
@@ -1,2 +1,2 @@
 a
-b
+c
"""

from __future__ import annotations

import bisect
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

# (tag, start and stop in the one sequence, start and stop in the other), as difflib has it
Opcode = tuple[str, int, int, int, int]
MOST_PAIRS = 100_000  # of lines that difflib compares


def opcodes(old: Sequence[str], new: Sequence[str]) -> tuple[Opcode, ...]:
    """Returns runs of equal and of changed lines in turn, which cover both sequences, as difflib's opcodes."""
    pairs: list[tuple[int, int]] = []
    work = [(0, len(old), 0, len(new))]
    while work:
        i1, i2, j1, j2 = work.pop()
        while i1 < i2 and j1 < j2 and old[i1] == new[j1]:
            pairs.append((i1, j1))
            i1, j1 = i1 + 1, j1 + 1
        while i1 < i2 and j1 < j2 and old[i2 - 1] == new[j2 - 1]:
            i2, j2 = i2 - 1, j2 - 1
            pairs.append((i2, j2))
        if i1 == i2 or j1 == j2:
            continue
        anchors = _anchors(old[i1:i2], new[j1:j2])
        if anchors:
            edges = [(i1 - 1, j1 - 1), *((i1 + i, j1 + j) for i, j in anchors), (i2, j2)]
            pairs += edges[1:-1]
            work += [(a[0] + 1, b[0], a[1] + 1, b[1]) for a, b in pairwise(edges)]
        elif (i2 - i1) * (j2 - j1) <= MOST_PAIRS:
            matcher = difflib.SequenceMatcher(None, old[i1:i2], new[j1:j2], autojunk=False)
            pairs += [(i1 + m.a + n, j1 + m.b + n) for m in matcher.get_matching_blocks() for n in range(m.size)]
    return tuple(_opcodes_between(sorted(pairs), len(old), len(new)))


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Returns pairs of lines that occur once on both sides, as many as have the same order on both sides."""
    once = [{line for line, count in Counter(lines).items() if count == 1} for lines in (old, new)]
    places = {line: j for j, line in enumerate(new) if line in once[1]}
    found = [(i, places[line]) for i, line in enumerate(old) if line in once[0] and line in places]
    # The longest increasing subsequence.
    tails: list[int] = []  # by length, the smallest end of a sequence of that length
    ends: list[int] = []  # the number of the pair at that end
    previous: list[int] = []
    for number, (_, j) in enumerate(found):
        length = bisect.bisect_left(tails, j)
        previous.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(j)
            ends.append(number)
        else:
            tails[length], ends[length] = j, number
    chain: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chain.append(found[number])
        number = previous[number]
    return chain[::-1]


def _opcodes_between(pairs: Sequence[tuple[int, int]], old: int, new: int) -> Iterator[Opcode]:
    i = j = 0
    for a, b in [*_equal_runs(pairs), ((old, old), (new, new))]:
        if i < a[0] or j < b[0]:
            tag = "replace" if i < a[0] and j < b[0] else "delete" if i < a[0] else "insert"
            yield tag, i, a[0], j, b[0]
        if a[0] < a[1]:
            yield "equal", a[0], a[1], b[0], b[1]
        i, j = a[1], b[1]


def _equal_runs(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    start = 0
    for end in range(1, len(pairs) + 1):
        if end == len(pairs) or pairs[end] != (pairs[end - 1][0] + 1, pairs[end - 1][1] + 1):
            (i, j), length = pairs[start], end - start
            yield (i, i + length), (j, j + length)
            start = end


def unified_diff(old: Sequence[str], new: Sequence[str], context: int = 1) -> list[str]:
    """Returns the hunks of a unified difference, without the two lines that name files.

    Args:
        old: The lines of the one side.
        new: The lines of the other.
        context: How many equal lines are shown around a change.
    """
    shown: list[str] = []
    for group in _hunks(opcodes(old, new), context):
        i1, i2, j1, j2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        shown.append(f"@@ -{_hunk_range(i1, i2)} +{_hunk_range(j1, j2)} @@")
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                shown += [f" {line}" for line in old[a1:a2]]
            else:
                shown += [f"-{line}" for line in old[a1:a2]]
                shown += [f"+{line}" for line in new[b1:b2]]
    return shown


def _hunk_range(start: int, stop: int) -> str:
    """Returns a range as diff writes it: an empty range names the line before it."""
    return f"{start + 1 if stop > start else start},{stop - start}"


def _hunks(codes: Sequence[Opcode], context: int) -> Iterator[list[Opcode]]:
    """Yields groups of changes with up to `context` equal lines around them; longer equal runs separate them."""
    group: list[Opcode] = []
    for number, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        is_last = number == len(codes) - 1
        if group and not is_last and i2 - i1 <= 2 * context:
            group.append((tag, i1, i2, j1, j2))
            continue
        if group:
            end = min(context, i2 - i1)
            yield [*group, *([(tag, i1, i1 + end, j1, j1 + end)] if end else [])]
            group = []
        start = min(context, i2 - i1)
        if not is_last and start:
            group = [(tag, i2 - start, i2, j2 - start, j2)]
    if any(code[0] != "equal" for code in group):
        yield group
