"""A golden file: its place, its header, and how it is read and written.

Takes the place of a test and a view. Gives paths and Golden values. Refuses a damaged file, with the line (Damaged):
one without a header, with an unresolved merge conflict or a NUL, or without its last line, which marks the end.
Refuses a text that could not be read back (ValueError). Each file is written atomically, so any number of processes
may write.

>>> golden = Golden(Header("tests/test_a.py::test_x", "cpu", "kernel", "exact", "kernels=1"), "int a;\\n")
>>> print(golden.render("cpp"), end="")
// golden  tests/test_a.py::test_x   target=cpu  view=kernel  level=exact  form=2
// facts   kernels=1
<BLANKLINE>
int a;
<BLANKLINE>
// end of golden
>>> parse(golden.render("cpp"), "cpp") == golden
True
>>> ladder("sm_90"), ladder("cpu")
(('sm_90', 'sm', 'gpu', 'any'), ('cpu', 'any'))
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType

from pytest_plugin.vocabulary import LEVELS, suggestion

FORM = "2"  # the version of the file format; form 1 had no mark of the end
END = "end of golden"
COMMENT: Mapping[str, str] = MappingProxyType({"py": "#", "cpp": "//", "txt": "#", "ir": "#"})
# The file ending of a language, if it is not the language's name.
ENDINGS: Mapping[str, str] = MappingProxyType({"ir": "txt"})
LONGEST_NAME = 220  # bytes; systems allow 255, and the temporary file of an atomic write has a longer name
_FIRST = re.compile(r"(\S.*?)\s+target=(\S+)\s+view=(\S+)\s+level=(\S+)\s+form=(\S+)")
_CONFLICT = re.compile(r"(<{7}|\|{7}|>{7})( .*)?|={7}")  # the lines that git writes around a conflict


class Damaged(ValueError):
    """A golden file is not as it was written.

    Attributes:
        line: The number of the damaged line, counted from 1.
        why: What is wrong with it.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


@dataclass(frozen=True, slots=True)
class Header:
    """The lines above the text.

    Attributes:
        test: The id of the test, without its device.
        target: The target that the text was generated for.
        view: The view of the run.
        level: The level at which the file is compared.
        facts: The counts, as "kernels=1  bytes=64".
        notes: Lines that people wrote; they survive every update.
        form: The version of the file format.
    """

    test: str
    target: str
    view: str
    level: str
    facts: str = ""
    notes: tuple[str, ...] = ()
    form: str = FORM


@dataclass(frozen=True, slots=True)
class Golden:
    """The content of a golden file: a header and the text below it."""

    header: Header
    text: str

    def render(self, language: str) -> str:
        """Returns the content of the file."""
        mark, head = COMMENT[language], self.header
        lines = [f"golden  {head.test}   target={head.target}  view={head.view}  level={head.level}  form={head.form}"]
        if head.facts:
            lines.append(f"facts   {head.facts}")
        lines += [f"note    {note}" for note in head.notes]
        above = "".join(f"{mark} {line}\n" for line in lines)
        return f"{above}\n{self.text}\n{mark} {END}\n"

    def unwritable(self, language: str) -> str:
        """Returns why a file with this content could not be read back, or an empty text."""
        for number, line in enumerate(self.text.split("\n"), 1):
            if "\r" in line:
                hint = "lines of a golden end in \\n on every system, so compare text.replace('\\r\\n', '\\n')"
                return f"line {number} of the text has a carriage return; {hint}"
            if why := _forbidden_in_line(line):
                return f"line {number} of the text cannot stand in a golden: {why}"
            if line == f"{COMMENT[language]} {END}":
                return f"line {number} of the text is the line that ends a golden: {line}"
        try:
            self.text.encode()
            if parse(self.render(language), language) == self:
                return ""
        except UnicodeEncodeError as error:
            number = self.text.count("\n", 0, error.start) + 1
            return f"line {number} of the text is not Unicode: {error.object[error.start]!r}"
        except Damaged as damage:
            return damage.why
        return f"its header does not read back: {self.header}"


def _forbidden_in_line(line: str) -> str:
    """Returns what makes a line invalid in every golden file, or an empty text."""
    if _CONFLICT.fullmatch(line):
        return f"it is git's mark of an unresolved merge conflict: {line}"
    return "it has a NUL" if "\0" in line else ""


def parse(content: str, language: str) -> Golden:
    """Returns the golden in a file's content, whichever line ends it has. Raises Damaged."""
    lines = content.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        if why := _forbidden_in_line(line):
            raise Damaged(number, why)
        if "\r" in line:
            raise Damaged(number, "it has a carriage return before its end")
    header, position = _read_header(lines, language)
    if header.form == "1":  # form 1 had no last line; it never compares as equal, but its text is shown
        return Golden(header, "\n".join(lines[position:]))
    end = f"{COMMENT[language]} {END}"
    if lines[-2:] != [end, ""]:
        if end in lines[:-2]:
            raise Damaged(lines.index(end) + 2, "there is text after the last line of the golden")
        raise Damaged(len(lines), f"the last line is not {end!r}: the file was cut")
    return Golden(header, "\n".join(lines[position:-2]))


def _read_header(lines: list[str], language: str) -> tuple[Header, int]:
    """Returns the header, and the number of the line where the text begins."""
    mark = re.escape(COMMENT[language])
    header = _read_first_line(lines[0], mark)
    position = 1
    while position < len(lines) and (more := re.match(rf"{mark} (facts|note) +(.*)", lines[position])):
        if more[1] == "note":
            header = replace(header, notes=(*header.notes, more[2]))
        elif header.facts:
            raise Damaged(position + 1, "the header has facts twice")
        else:
            header = replace(header, facts=more[2])
        position += 1
    if position == len(lines) or lines[position]:
        raise Damaged(position + 1, "an empty line is missing between the header and the text")
    return header, position + 1


def _read_first_line(line: str, mark: str) -> Header:
    """Returns the header that the first line has."""
    first = re.match(rf"{mark} golden  (.*)", line)
    found = _FIRST.fullmatch(first[1].strip()) if first else None
    if found is None:
        raise Damaged(1, "it is not a golden's header")
    if found[4] not in LEVELS:
        raise Damaged(
            1, f"no level is called {found[4]!r}{suggestion(found[4], LEVELS)}; the levels are {', '.join(LEVELS)}"
        )
    return Header(found[1], found[2], found[3], found[4], form=found[5])


def header_of_damaged(path: Path, language: str) -> Header | None:
    """Returns the header of a damaged file, so that its notes and level survive, or None if it is damaged too."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    left = [line for line in lines if not _CONFLICT.fullmatch(line)]
    mark = re.escape(COMMENT[language])
    try:
        header = _read_first_line(left[0], mark)
    except (Damaged, IndexError):
        return None
    notes = [found[1] for line in takewhile(bool, left) if (found := re.match(rf"{mark} note +(.*)", line))]
    return replace(header, notes=tuple(notes))


def read_golden(path: Path, language: str) -> Golden:
    """Returns the golden in a file. Raises Damaged."""
    return parse(read_content(path), language)


def read_content(path: Path) -> str:
    """Returns the whole content of a file with its line ends. Raises Damaged if it is not UTF-8."""
    content = path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Damaged(content.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from None


def header_of(path: Path) -> Header | None:
    """Returns the header of a golden file, or None for any other file; reads only the first line."""
    mark = COMMENT.get(path.suffix[1:])
    if mark is None:
        return None
    with path.open("rb") as file:
        first = file.readline(4096).decode("utf-8", "replace")
    try:
        return _read_first_line(first.rstrip("\r\n"), re.escape(mark))
    except Damaged:
        return None


def write_golden(path: Path, golden: Golden, language: str) -> None:
    """Writes a golden file."""
    write_text(path, golden.render(language))


def write_text(path: Path, text: str) -> None:
    """Writes a file atomically, with the same bytes on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def ladder(target: str) -> tuple[str, ...]:
    """Returns the folders (rungs) in which a target's golden is looked for, the most specific first."""
    if target.startswith("sm_"):
        return (target, "sm", "gpu", "any")
    if target.startswith("gfx"):
        return (target, "gfx", "gpu", "any")
    return (target, "any") if target != "any" else ("any",)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one golden of one test, on each rung of the ladder.

    Attributes:
        folder: golden/<compiler>.
        target: The target of the test's device.
        inner: The path below a rung, such as e2e/test_norm/test_layer_norm.kernel.cpp.
    """

    folder: Path
    target: str
    inner: str

    def rungs(self) -> tuple[Path, ...]:
        """Returns the path on each rung, the most specific first."""
        return tuple(self.folder / rung / self.inner for rung in ladder(self.target))

    def find(self) -> Path | None:
        """Returns the path of the most specific file that exists, or None."""
        return next((path for path in self.rungs() if path.is_file()), None)

    def accept(self, golden: Golden, language: str) -> Path:
        """Writes a golden, and returns its path.

        If the most specific file of the more general rungs has the same content, nothing is written, and the file on
        the first rung is deleted.
        """
        own, *parents = self.rungs()
        parent = next((path for path in parents if path.is_file()), None)
        if parent is not None and _has_same_content(parent, golden, language):
            own.unlink(missing_ok=True)
            return parent
        if not _has_same_content(own, golden, language) or read_golden(own, language).header != golden.header:
            write_golden(own, golden, language)
        return own


def _has_same_content(path: Path, golden: Golden, language: str) -> bool:
    """Tells whether a file has this text and these counts."""
    try:
        found = read_golden(path, language)
    except (OSError, ValueError):
        return False
    return found.text == golden.text and found.header.facts == golden.header.facts


def file_name(test: str, parameters: str, view: str, language: str) -> str:
    """Returns the name of a golden file. Parameters with characters that no file name may have get a digest.

    >>> file_name("test_x", "gelu-4", "kernel", "cpp"), file_name("test_x", "", "wrapper", "py")
    ('test_x-gelu-4.kernel.cpp', 'test_x.wrapper.py')
    >>> file_name("test_x", "a/b", "kernel", "cpp")
    'test_x-a_b-c14cddc0.kernel.cpp'
    """
    slug = re.sub(r"[^\w=+,-]", "_", parameters)
    if slug != parameters or len(slug) > 80:
        slug = f"{slug[:80]}-{hashlib.sha256(parameters.encode()).hexdigest()[:8]}"
    return f"{test}{'-' if slug else ''}{slug}.{view}.{ENDINGS.get(language, language)}"


def name_misuse(name: str) -> str:
    """Returns why a name that a test gives to a text or a run cannot be a part of a file's name, or an empty text.

    >>> name_misuse("my words")
    "the name 'my words' of a golden contains ' '; allowed are letters, digits and _=+,.-"
    >>> name_misuse("words-2.0")
    ''
    """
    strange = re.search(r"[^\w=+,.-]", name)
    allowed = "allowed are letters, digits and _=+,.-"
    return f"the name {name!r} of a golden contains {strange[0]!r}; {allowed}" if strange else ""
