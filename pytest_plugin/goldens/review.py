"""Accepting differences of goldens edit by edit: in the terminal, or from a report that another machine wrote.

Takes Disagreements and decisions. Gives the paths of the goldens that it writes. Refuses the number of an edit that
does not exist (ValueError).

    python -m pytest_plugin.goldens.review .pytest_cache/d/minductor/golden --edits 1,3
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.edit_clusters import Edit, cluster_edits, content_with_edits, golden_changes
from pytest_plugin.goldens.failure_text import failure_text
from pytest_plugin.goldens.golden_file import Place, parse, write_golden
from pytest_plugin.vocabulary import amount

DATA = "review.json"
QUESTION = "[a]ccept, [r]eject, [s]how a golden, accept a[l]l that follow, [q]uit: "
LINES_SHOWN, FILES_SHOWN = 20, 4


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """The paths of goldens after a review.

    Attributes:
        written: Goldens that are now as generated.
        partly: Goldens of which only some edits were accepted.
        rejected: Goldens that were not changed.
    """

    written: tuple[str, ...]
    partly: tuple[str, ...]
    rejected: tuple[str, ...]


def describe(edit: Edit, disagreements: Sequence[Disagreement], number: int, total: int) -> str:
    """Returns the text of an edit: how often it occurs, what it changes, and in which files."""
    files = [disagreements[file] for file in edit.files]
    shown = edit.lines()
    more = [f"  ... {len(shown) - LINES_SHOWN} more lines"] if len(shown) > LINES_SHOWN else []
    names = [f"  as in {edit.example}"] if edit.example else []
    names += [f"  in {d.own}" for d in files[:FILES_SHOWN]]
    if len(files) > FILES_SHOWN:
        names.append(f"  and {len(files) - FILES_SHOWN} more")
    head = f"edit {number} of {total}: {amount(len(edit.places), 'time')} in {amount(len(files), 'golden')}"
    return "\n".join([head, *(f"  {line}" for line in shown[:LINES_SHOWN]), *more, *names])


def ask_about(
    disagreements: Sequence[Disagreement], ask: Callable[[str], str], say: Callable[[str], None]
) -> tuple[int, ...]:
    """Asks about each edit, and returns the numbers of the accepted ones; the end of the input counts as `q`."""
    edits = cluster_edits(disagreements)
    chosen: list[int] = []
    for number, edit in enumerate(edits):
        say(describe(edit, disagreements, number + 1, len(edits)))
        while True:
            match ask(QUESTION).strip().lower():
                case "a":
                    chosen.append(number)
                case "l":
                    return (*chosen, *range(number, len(edits)))
                case "r":
                    pass
                case "q" | "":
                    return tuple(chosen)
                case "s":
                    say(failure_text(disagreements[edit.files[0]], None, limit=None))
                    continue
                case other:
                    say(f"{other!r} is no answer")
                    continue
            break
    return tuple(chosen)


def apply_edits(
    disagreements: Sequence[Disagreement], chosen: Collection[int], root: Path, folder: Path | None = None
) -> ReviewOutcome:
    """Writes the goldens with the chosen edits.

    Args:
        disagreements: The goldens that differ.
        chosen: The numbers of the accepted edits, counted from 0.
        root: The root of the tests.
        folder: The folder of the compiler's goldens, if a more general file may make a golden superfluous.

    Returns:
        What was written.

    Raises:
        ValueError: There is no edit of that number.
    """
    edits = cluster_edits(disagreements)
    for number in chosen:
        if not 0 <= number < len(edits):
            raise ValueError(f"there is no edit {number + 1}; there are {len(edits)}")
    written: list[str] = []
    partly: list[str] = []
    rejected: list[str] = []
    for number, d in enumerate(disagreements):
        places = [place for edit in chosen for file, place in edits[edit].places if file == number]
        if not places:
            rejected.append(d.own)
            continue
        content = content_with_edits(d, places)
        _write_accepted(d, content, root, folder)
        (written if content == d.new_content else partly).append(d.own)
    return ReviewOutcome(tuple(written), tuple(partly), tuple(rejected))


def _write_accepted(d: Disagreement, content: str, root: Path, folder: Path | None) -> None:
    golden, path = parse(content, d.language), root / d.own
    if folder is not None and content == d.new_content and path.is_relative_to(folder / d.target):
        inner = path.relative_to(folder / d.target).as_posix()
        Place(folder, d.target, inner).accept(golden, d.language)
    else:
        write_golden(path, golden, d.language)


def report_data(disagreements: Sequence[Disagreement]) -> dict[str, object]:
    """Returns all that a review needs, as plain values."""
    edits = [
        {"lines": edit.lines(), "example": edit.example, "files": list(edit.files), "places": len(edit.places)}
        for edit in cluster_edits(disagreements)
    ]
    goldens = [{**d.plain(), "changes": len(golden_changes(d))} for d in disagreements]
    return {"edits": edits, "goldens": goldens}


def load_report(folder: Path) -> tuple[Disagreement, ...]:
    """Returns the disagreements in a report's folder."""
    found = json.loads((folder / DATA).read_text(encoding="utf-8"))["goldens"]
    return tuple(Disagreement(**{name: value for name, value in d.items() if name != "changes"}) for d in found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `python -m pytest_plugin.goldens.review`, and returns its exit code."""
    title = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m pytest_plugin.goldens.review", description=title)
    parser.add_argument("report", type=Path, help=f"the folder with {DATA}")
    parser.add_argument("--edits", default="", help="numbers with commas between; all unless given")
    parser.add_argument("--root", type=Path, default=Path(), help="where the tests are run")
    parser.add_argument("--list", action="store_true", help="only print the edits")
    args = parser.parse_args(arguments)
    disagreements = load_report(args.report)
    edits = cluster_edits(disagreements)
    if args.list:
        for number, edit in enumerate(edits, 1):
            print(describe(edit, disagreements, number, len(edits)))
        return 0
    numbers = [int(number) - 1 for number in args.edits.split(",") if number] or list(range(len(edits)))
    try:
        outcome = apply_edits(disagreements, numbers, args.root)
    except ValueError as error:
        parser.error(str(error))
    for word, paths in (("written", outcome.written), ("partly", outcome.partly), ("rejected", outcome.rejected)):
        for path in paths:
            print(f"{word:<8} {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
