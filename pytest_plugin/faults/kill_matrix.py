"""What became of each mutant: its result under one test, and the table over all tests that the summary prints.

Takes the result of each mutant under each test. Gives lines of text. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_plugin.vocabulary import amount


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What became of a mutant under one test.

    Attributes:
        mutant: Its name.
        was_reached: Whether the faulty code ran.
        was_applied: Whether a plan, a text, a result or a store hit differs from the run without the fault.
        kinds: The kinds of checks that failed.
    """

    mutant: str
    was_reached: bool
    was_applied: bool
    kinds: tuple[str, ...]

    @property
    def is_killed(self) -> bool:
        """Whether the test noticed the fault: its code ran, it changed something, and a check failed."""
        return self.was_reached and self.was_applied and bool(self.kinds)

    def plain(self) -> list[Any]:
        """Returns the fields as a list, which xdist can carry."""
        return [self.mutant, self.was_reached, self.was_applied, list(self.kinds)]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> MutantResult:
        """Returns the result that `plain` made the list of."""
        return cls(plain[0], plain[1], plain[2], tuple(plain[3]))


def kill_matrix(rows: Mapping[str, Sequence[MutantResult]], *, verbose: bool) -> Iterator[str]:
    """Yields the lines about each mutant over all tests; with `verbose`, also a line for each test."""
    mutants = list(dict.fromkeys(kill.mutant for kills in rows.values() for kill in kills))
    by_mutant = {name: [k for kills in rows.values() for k in kills if k.mutant == name] for name in mutants}
    killed = [name for name in mutants if any(kill.is_killed for kill in by_mutant[name])]
    kinds = {name: {kind for kill in by_mutant[name] if kill.is_killed for kind in kill.kinds} for name in mutants}
    double = sum(len(kinds[name]) > 1 for name in mutants)
    yield f"mutants  {len(killed)} of {len(mutants)} killed, {double} by two kinds of checks or more"
    width = max(map(len, mutants), default=0)
    for name in mutants:
        kills = by_mutant[name]
        counts = [(kind, sum(k.is_killed and kind in k.kinds for k in kills)) for kind in sorted(kinds[name])]
        summary = ", ".join(f"{kind} {count}" for kind, count in counts)
        if not summary:
            reached, applied = sum(k.was_reached for k in kills), sum(k.was_applied and k.was_reached for k in kills)
            summary = f"SURVIVED: its code ran in {amount(reached, 'test')}, and changed something in {applied}"
        yield f"  {name:<{width}}  {summary}"
    if verbose:
        for test, kills in rows.items():
            letters = {kill.mutant: _letters_of_checks(kill) for kill in kills}
            yield f"  {test}: " + " ".join(
                f"{name}={letters[name]}" for name in mutants if letters.get(name, "-") != "-"
            )


def _letters_of_checks(kill: MutantResult) -> str:
    """Returns the initials of the checks that failed: N numeric, G golden, C counts, M memory, D deterministic, E
    error.

    "." is a mutant that survived, "-" one that was not reached or changed nothing.
    """
    if not (kill.was_reached and kill.was_applied):
        return "-"
    return "".join(kind[0].upper() for kind in kill.kinds) or "."
