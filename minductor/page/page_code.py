"""The generated texts of a graph as lines, where each line knows its ATen nodes.

Takes the texts of kernels and of the wrapper, and facts about the graph. Gives JSON. The comments in the texts name the
nodes of each kernel and of each call; a line map, where there is one, names those of each line of a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from minductor.page.page_highlight import highlight
from minductor.page.page_nodes import Nodes

LANGUAGES: Mapping[str, str] = MappingProxyType({"py": "python", "cpp": "cpp", "json": "json"})
KERNEL_COMMENT = re.compile(r"(?://|#) [\w.]+: (\w+(?:, \w+)*)$")
CALL_COMMENT = re.compile(r"\s*(?://|#) (\d+): (\w+(?:, \w+)*)$")
DEFINITION = re.compile(r'(?:extern "C" int64_t|static int64_t|def|void) (\w+)\(')
WORD = re.compile(r"[A-Za-z_]\w*")


def language_of(file: str) -> str:
    """The language of a file, as Pygments names it."""
    return LANGUAGES.get(file.rpartition(".")[2], "text")


def kernel_code(
    file: str,
    text: str,
    nodes: Nodes,
    known: Mapping[str, Sequence[int]],
    rows: Mapping[str, Mapping[int, Sequence[int]]],
) -> dict[str, Any]:
    """A file with kernels: its lines with their nodes, and where each function begins and ends.

    `known`: the generated functions with the numbers of their nodes; [] for those of the comments. `rows`: by function
    the nodes of its lines, counted from 0 in the file, where a line map says them.
    """
    lines = text.splitlines()
    of: list[list[int]] = [[] for _ in lines]
    functions: list[list[Any]] = []
    commented: list[str] = []
    first = 0
    for number, line in enumerate(lines):
        if found := KERNEL_COMMENT.match(line):
            first = first if commented else number
            commented += found[1].split(", ")
        elif (found := DEFINITION.match(line)) and found[1] in known:
            end = _end(lines, number)
            start = first if commented else number
            functions.append([found[1], start, end])
            _give(of, start, end, list(known[found[1]]) or nodes.numbers(commented))
            for place in range(first, number) if commented else ():
                if comment := KERNEL_COMMENT.match(lines[place]):
                    of[place] = nodes.numbers(comment[1].split(", "))
            if found[1] in rows:
                _map(of, lines, number, end, rows[found[1]])
            commented = []
        elif line and not line.startswith(("@", "#", "//", "template")):
            commented = []
    return _code(file, lines, of, functions=functions)


def _end(lines: Sequence[str], start: int) -> int:
    """The number of the line behind a function that begins at line `start`."""
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if line.startswith("}"):
            return number + 1
        if line and not line.startswith((" ", ")", "#")):
            return number
    return len(lines)


def _map(of: list[list[int]], lines: Sequence[str], start: int, end: int, rows: Mapping[int, Sequence[int]]) -> None:
    """Gives lines the nodes that a line map says. A line that opens a block has those of the lines in the block."""
    for number, numbers in rows.items():
        of[number] = list(numbers)
    opened: dict[int, list[int]] = {}  # the nodes of the latest block by its indent
    for number in range(start + 1, end):
        indent = _indent(lines[number])
        if number in rows or lines[number].startswith("#"):
            continue
        inside: set[int] = set()
        for inner in range(number + 1, end):
            if not lines[inner].startswith("#") and _indent(lines[inner]) <= indent:
                break
            inside.update(rows.get(inner, ()))
        if inside:
            opened[indent] = of[number] = sorted(inside)
        elif lines[number].lstrip().startswith("}"):
            of[number] = opened.get(indent, of[number])
    for number in range(end - 2, start, -1):  # what is asked of the compiler belongs to the line below
        if lines[number].startswith("#pragma"):
            of[number] = of[number + 1]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _give(of: list[list[int]], start: int, end: int, numbers: list[int]) -> None:
    for number in range(start, end):
        of[number] = numbers


def wrapper_code(
    file: str, text: str, nodes: Nodes, known: Mapping[int, Sequence[int]], made: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """The wrapper: its lines with their nodes, and the handle of each line that makes a call.

    `known`: the numbers of nodes by handle; the comments say those of other handles. `made`: the ATen nodes by the name
    of a tensor, for lines that no comment stands above.
    """
    lines = text.splitlines()
    of: list[list[int]] = [[] for _ in lines]
    handles: list[list[int]] = []
    above: tuple[int, list[int], int] | None = None  # the handle, the nodes and the indent of the latest comment
    is_inside = False
    for number, line in enumerate(lines):
        indent = _indent(line)
        if found := CALL_COMMENT.match(line):
            of_comment = known.get(int(found[1])) or nodes.numbers(found[2].split(", "))
            above = int(found[1]), list(of_comment), indent
            is_inside = False
        elif above is not None and is_inside and indent <= above[2]:
            above = above if line.strip() in (")", "}", "};") else None
        if above is not None:
            of[number] = above[1]
            handles.append([number, above[0]])
            is_inside = not CALL_COMMENT.match(line)
        else:
            words = dict.fromkeys(WORD.findall(line))
            of[number] = nodes.numbers(name for word in words for name in made.get(word, ()))
    return _code(file, lines, of, handles=handles)


def plain_code(file: str, text: str) -> dict[str, Any]:
    """A text whose lines come from no node in particular."""
    lines = text.splitlines()
    return _code(file, lines, [[] for _ in lines])


def _code(file: str, lines: Sequence[str], of: Sequence[Sequence[int]], **more: Any) -> dict[str, Any]:
    """The JSON of a text; `runs`: the nodes of lines, each row with the number of lines that it stands for."""
    runs: list[list[Any]] = []
    for numbers in of:
        if runs and runs[-1][1] == numbers:
            runs[-1][0] += 1
        else:
            runs.append([1, list(numbers)])
    language = language_of(file)
    marks = highlight(lines, language) if lines else []
    return {"file": file, "language": language, "lines": list(lines), "marks": marks, "runs": runs, **more}
