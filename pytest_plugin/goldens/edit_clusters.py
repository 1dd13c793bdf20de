"""Differences of many goldens as few edits: what changed in the same way is one edit, wherever it changed.

Takes Disagreements. Gives Edits, most frequent first, and the content of a golden with some of its edits accepted.
Refuses nothing: a text that does not parse is compared line by line.

A change is a run of lines of the canonical form. Its signature has the tokens that were removed and added, with local
names numbered by first use. Changes of equal signature are one edit.

>>> text_changes("x1 = load(a);\\ny = x1;\\n", "x7 = load(a, m);\\ny = x7;\\n", "cpp")
(Change(old=(0, 1), new=(0, 1), signature=(('', ', $1'),)),)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_plugin.goldens.canonical import Line
from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.failure_text import facts_delta
from pytest_plugin.goldens.golden_file import parse
from pytest_plugin.goldens.line_diff import opcodes
from pytest_plugin.goldens.readable_diff import (
    TOKEN,
    canonical_or_plain,
    match_lines,
    match_names,
    shape_of_line,
    with_golden_names,
)

NAME = re.compile(r"\$\d+|\b_l\d+_")

Signature = tuple[tuple[str, str], ...]  # pairs of removed and added text


@dataclass(frozen=True, slots=True)
class CanonicalRow:
    """What begins on one row of a text: its canonical form, its names, and the number of the row."""

    form: str
    names: tuple[str, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Change:
    """Rows of the old text (start, stop), the rows of the new text in their place, and the signature."""

    old: tuple[int, int]
    new: tuple[int, int]
    signature: Signature


@dataclass(frozen=True, slots=True)
class Edit:
    """All changes of one signature.

    Attributes:
        signature: Pairs of removed and added text.
        places: (number of the disagreement, number of its change); the number -1 stands for the change of its counts.
        example: The first line that it changes or adds.
    """

    signature: Signature
    places: tuple[tuple[int, int], ...]
    example: str = ""

    @property
    def files(self) -> tuple[int, ...]:
        """The numbers of the disagreements that have the edit."""
        return tuple(dict.fromkeys(number for number, _ in self.places))

    def lines(self) -> list[str]:
        """Returns the text of the edit: removed lines with "- ", added ones with "+ "."""
        shown: list[str] = []
        for went, came in self.signature:
            shown += [f"- {line}" for line in went.split("\n") if line]
            shown += [f"+ {line}" for line in came.split("\n") if line]
        return shown


def canonical_rows(lines: Sequence[Line], names: Mapping[str, str]) -> tuple[CanonicalRow, ...]:
    """Joins canonical lines that begin on the same row, and replaces their names by the given ones."""
    found: list[CanonicalRow] = []
    for line in lines:
        form, own = shape_of_line(line), tuple(names.get(name, name) for name in line.names)
        if found and found[-1].number == line.number:
            found[-1] = CanonicalRow(f"{found[-1].form} {form}", (*found[-1].names, *own), line.number)
        else:
            found.append(CanonicalRow(form, own, line.number))
    return tuple(found)


def text_changes(old: str, new: str, language: str) -> tuple[Change, ...]:
    """Returns the changes from the old text to the new one, ignoring layout and local names."""
    lines = canonical_or_plain(old, language), canonical_or_plain(new, language)
    before, after = canonical_rows(lines[0], {}), canonical_rows(lines[1], match_names(*lines))
    keys = [["\0".join((row.form, *row.names)) for row in side] for side in (before, after)]
    starts = [[*(row.number for row in side), text.count("\n") + 1] for side, text in ((before, old), (after, new))]
    found: list[Change] = []
    known: dict[tuple[str, str], Signature] = {}
    for tag, i1, i2, j1, j2 in opcodes(keys[0], keys[1]):
        if tag == "equal":
            continue
        for a1, a2, b1, b2 in _matched_changes(before[i1:i2], after[j1:j2]):
            sides = before[i1 + a1 : i1 + a2], after[j1 + b1 : j1 + b2]
            spans = (starts[0][i1 + a1], starts[0][i1 + a2]), (starts[1][j1 + b1], starts[1][j1 + b2])
            found.append(Change(*spans, _signature(*sides, known)))
    return tuple(found)


def _matched_changes(
    before: Sequence[CanonicalRow], after: Sequence[CanonicalRow]
) -> Iterator[tuple[int, int, int, int]]:
    """Yields a change for each pair of corresponding lines, and for each run of lines between two such pairs."""
    i = j = 0
    for a, b in [*match_lines([row.form for row in before], [row.form for row in after]), (len(before), len(after))]:
        if i < a or j < b:
            yield i, a, j, b
        if a < len(before):
            yield a, a + 1, b, b + 1
        i, j = a + 1, b + 1


def _signature(
    before: Sequence[CanonicalRow], after: Sequence[CanonicalRow], known: dict[tuple[str, str], Signature]
) -> Signature:
    """Returns the signature of a change. `known` caches signatures of one row in place of another."""
    numbers: dict[str, str] = {}
    sides = [[_numbered(row, numbers) for row in side] for side in (before, after)]
    if len(sides[0]) != 1 or len(sides[1]) != 1:
        return (("\n".join(sides[0]), "\n".join(sides[1])),)
    pair = sides[0][0], sides[1][0]
    if pair not in known:
        known[pair] = _changed_tokens(*pair)
    return known[pair]


def _changed_tokens(before: str, after: str) -> Signature:
    """Returns the tokens that were removed from a row and those that were added."""
    old, new = _without_common_ends(TOKEN.findall(before), TOKEN.findall(after))
    codes = opcodes(old, new) if not set(old).isdisjoint(new) else [("replace", 0, len(old), 0, len(new))]
    parts = [(" ".join(old[i1:i2]), " ".join(new[j1:j2])) for tag, i1, i2, j1, j2 in codes if tag != "equal"]
    if all(NAME.sub("", went + came).strip() == "" for went, came in parts):
        return ((before, after),)  # if only names changed, the whole row is shown
    found = NAME.findall(" ".join(text for part in parts for text in part))
    again = {name: f"${n}" for n, name in enumerate(dict.fromkeys(found), 1)}
    return tuple((_renamed(went, again), _renamed(came, again)) for went, came in parts)


def _without_common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Returns two sequences of tokens without their common start and their common end."""
    least = min(len(old), len(new))
    head = next((n for n in range(least) if old[n] != new[n]), least)
    tail = next((n for n in range(least - head) if old[-1 - n] != new[-1 - n]), least - head)
    return old[head : len(old) - tail], new[head : len(new) - tail]


def _renamed(text: str, names: dict[str, str]) -> str:
    return NAME.sub(lambda name: names[name[0]], text)


def _numbered(row: CanonicalRow, numbers: dict[str, str]) -> str:
    """Returns the row with its names numbered in the order in which the change uses them."""
    names = iter(row.names)
    # A name that the list lacks belongs to a pragma.
    return re.sub(
        r"\$",
        lambda _: numbers.setdefault(name, f"${len(numbers) + 1}") if (name := next(names, "")) else "$",
        row.form,
    )


def golden_changes(disagreement: Disagreement) -> tuple[Change, ...]:
    """Returns the changes of a golden; a difference that only its level forbids is one change of the whole text."""
    d = disagreement
    if not d.file:
        return (Change((0, 0), (0, d.new.count("\n") + 1), (("", "a golden that was not there"),)),)
    found = text_changes(d.old, d.new, d.language)
    if found or d.old == d.new:
        return found
    whole = (0, d.old.count("\n") + 1), (0, d.new.count("\n") + 1)
    return (Change(*whole, (("", "layout, comments and local names only"),)),)


def cluster_edits(disagreements: Sequence[Disagreement]) -> tuple[Edit, ...]:
    """Returns the edits of all disagreements, most frequent first."""
    places: dict[Signature, list[tuple[int, int]]] = {}
    examples: dict[Signature, str] = {}
    for number, d in enumerate(disagreements):
        old, new = d.old.split("\n"), d.new.split("\n")
        if d.file and d.old_facts != d.new_facts:
            signature = ((f"facts {facts_delta(d.old_facts, d.new_facts)}", ""),)
            places.setdefault(signature, []).append((number, -1))
        for place, change in enumerate(golden_changes(d)):
            places.setdefault(change.signature, []).append((number, place))
            touched = old[slice(*change.old)] or new[slice(*change.new)]
            examples.setdefault(change.signature, touched[0].strip() if touched else "")
        if d.file and (d.old, d.old_facts) == (d.new, d.new_facts):
            places.setdefault((("", "the header only"),), []).append((number, -1))
    edits = [Edit(signature, tuple(found), examples.get(signature, "")) for signature, found in places.items()]
    return tuple(sorted(edits, key=lambda edit: -len(edit.places)))


def content_with_edits(disagreement: Disagreement, chosen: Collection[int]) -> str:
    """Returns the golden's content with some of its changes made; with all of them it is the new content.

    Args:
        disagreement: The golden that differs.
        chosen: The numbers of the changes; -1 stands for the change of the counts.
    """
    d = disagreement
    found = golden_changes(d)
    every = {*range(len(found)), *((-1,) if d.file and (d.old_facts != d.new_facts or d.old == d.new) else ())}
    if every <= set(chosen):
        return d.new_content
    old, new = d.old.split("\n"), with_golden_names(d.old, d.new, d.language)[0].split("\n")
    merged: list[str] = []
    at = 0
    for number, change in enumerate(found):
        merged += old[at : change.old[0]]
        side, (start, stop) = (new, change.new) if number in chosen else (old, change.old)
        merged += side[start:stop]
        at = change.old[1]
    merged += old[at:]
    wanted = parse(d.new_content, d.language)
    facts = d.new_facts if -1 in chosen else d.old_facts
    golden = replace(wanted, header=replace(wanted.header, facts=facts), text="\n".join(merged))
    return golden.render(d.language)
