"""Which parts of a source line are keywords, numbers, comments and so on, where Pygments is installed.

Takes texts and the name of a language. Gives for each line a list of numbers: the number of a class in CLASSES and a
length, in turns, from the start of the line. Gives empty lists where Pygments is missing, or knows no such language.
"""

from __future__ import annotations

from collections.abc import Sequence

# The classes that the page has colours for. Class 0 is plain text.
CLASSES = ("", "keyword", "type", "number", "string", "comment", "name", "function", "operator")
# The start of the name of a kind of token -> its class; the first one that fits counts.
KINDS = (
    ("Token.Keyword.Type", 2),
    ("Token.Keyword", 1),
    ("Token.Literal.Number", 3),
    ("Token.Literal.String", 4),
    ("Token.Comment.Preproc", 1),
    ("Token.Comment", 5),
    ("Token.Name.Function", 7),
    ("Token.Name.Builtin", 2),
    ("Token.Name.Decorator", 7),
    ("Token.Operator.Word", 1),
)


def is_highlighting() -> bool:
    """Whether Pygments is installed."""
    from importlib.util import find_spec

    return find_spec("pygments") is not None


def highlight(lines: Sequence[str], language: str) -> list[list[int]]:
    """The classes of each line's parts; [] for a line that is plain to its end."""
    if not is_highlighting():
        return [[] for _ in lines]
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return [[] for _ in lines]
    rows: list[list[int]] = [[]]
    for kind, text in lexer.get_tokens("\n".join(lines)):
        number = _class_of(str(kind))
        for place, part in enumerate(text.split("\n")):
            if place:
                rows.append([])
            if part:
                _append(rows[-1], number, len(part))
    rows = rows[: len(lines)] + [[] for _ in range(len(lines) - len(rows))]
    return [row[:-2] if row[-2:-1] == [0] else row for row in rows]


def _class_of(kind: str) -> int:
    return next((number for start, number in KINDS if kind.startswith(start)), 0)


def _append(row: list[int], number: int, length: int) -> None:
    """Adds a part to a row; to the part before if that has the same class."""
    if row and row[-2] == number:
        row[-1] += length
    else:
        row += [number, length]
