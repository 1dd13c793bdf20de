"""A golden file: where it lies, its header, and how it is read and written.

Takes a test's place and a view; gives paths and Golden values. Refuses a file without a header (ValueError). Writes are
atomic, one file each, so any number of processes may write.

>>> golden = Golden(Header("tests/test_a.py::test_x", "cpu", "kernel", "exact", "kernels=1"), "int a;\\n")
>>> print(golden.render("cpp"), end="")
// golden  tests/test_a.py::test_x   target=cpu  view=kernel  level=exact  form=1
// facts   kernels=1
<BLANKLINE>
int a;
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
from pathlib import Path
from types import MappingProxyType

FORM = "1"
COMMENT: Mapping[str, str] = MappingProxyType({"py": "#", "cpp": "//", "txt": "#", "ir": "#"})
# A file's ending, where it is not the language.
ENDINGS: Mapping[str, str] = MappingProxyType({"ir": "txt"})
_FIRST = re.compile(r"(\S.*?)\s+target=(\S+)\s+view=(\S+)\s+level=(\S+)\s+form=(\S+)")


@dataclass(frozen=True, slots=True)
class Header:
    """What stands above the text. The notes are people's, and survive every update."""

    test: str
    target: str
    view: str
    level: str
    facts: str = ""
    notes: tuple[str, ...] = ()
    form: str = FORM


@dataclass(frozen=True, slots=True)
class Golden:
    """A header and the text below it."""

    header: Header
    text: str

    def render(self, language: str) -> str:
        mark, head = COMMENT[language], self.header
        lines = [f"golden  {head.test}   target={head.target}  view={head.view}  level={head.level}  form={head.form}"]
        if head.facts:
            lines.append(f"facts   {head.facts}")
        lines += [f"note    {note}" for note in head.notes]
        return "".join(f"{mark} {line}\n" for line in lines) + "\n" + self.text


def parse(content: str, language: str) -> Golden:
    """The golden in a file's content, whichever line ends it has."""
    mark = re.escape(COMMENT[language])
    lines = content.replace("\r\n", "\n").split("\n")
    first = re.match(rf"{mark} golden  (.*)", lines[0])
    found = _FIRST.fullmatch(first[1].strip()) if first else None
    if found is None:
        raise ValueError("the first line is not a golden's header")
    header = Header(found[1], found[2], found[3], found[4], form=found[5])
    position = 1
    while position < len(lines) and (more := re.match(rf"{mark} (facts|note) +(.*)", lines[position])):
        if more[1] == "facts":
            header = replace(header, facts=more[2])
        else:
            header = replace(header, notes=(*header.notes, more[2]))
        position += 1
    # one empty line parts the header from the text
    return Golden(header, "\n".join(lines[position + 1 :]))


def read(path: Path, language: str) -> Golden:
    return parse(content_of(path), language)


def content_of(path: Path) -> str:
    """All of the file, its line ends included."""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def header_of(path: Path) -> Header | None:
    """The header of a golden file, or nothing if it is another file; reads no more than that."""
    mark = COMMENT.get(path.suffix[1:])
    if mark is None:
        return None
    with path.open("rb") as file:
        first = file.readline(4096).decode("utf-8", "replace")
    try:
        return parse(first, path.suffix[1:]).header
    except ValueError:
        return None


def write(path: Path, golden: Golden, language: str) -> None:
    write_text(path, golden.render(language))


def write_text(path: Path, text: str) -> None:
    """All of it or nothing; the same bytes on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def ladder(target: str) -> tuple[str, ...]:
    """The folders in which a target's golden is looked for, the most special first."""
    if target.startswith("sm_"):
        return (target, "sm", "gpu", "any")
    if target.startswith("gfx"):
        return (target, "gfx", "gpu", "any")
    return (target, "any") if target != "any" else ("any",)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one golden of one test lies on each rung."""

    folder: Path  # golden/<compiler>
    target: str
    inner: str  # e2e/test_norm/test_layer_norm.kernel.cpp

    def rungs(self) -> tuple[Path, ...]:
        return tuple(self.folder / rung / self.inner for rung in ladder(self.target))

    def find(self) -> Path | None:
        return next((path for path in self.rungs() if path.is_file()), None)

    def accept(self, golden: Golden, language: str) -> Path:
        """Writes where it is not yet said: a rung above that says the same makes our own one superfluous."""
        own, *parents = self.rungs()
        parent = next((path for path in parents if path.is_file()), None)
        if parent is not None and _says(parent, golden, language):
            own.unlink(missing_ok=True)
            return parent
        if not _says(own, golden, language) or read(own, language).header != golden.header:
            write(own, golden, language)
        return own


def _says(path: Path, golden: Golden, language: str) -> bool:
    try:
        found = read(path, language)
    except (OSError, ValueError):
        return False
    return found.text == golden.text and found.header.facts == golden.header.facts


def file_name(test: str, parameters: str, view: str, language: str) -> str:
    """A test's own file name; parameters that cannot stand in one are told apart by a digest.

    >>> file_name("test_x", "gelu-4", "kernel", "cpp"), file_name("test_x", "", "wrapper", "py")
    ('test_x-gelu-4.kernel.cpp', 'test_x.wrapper.py')
    >>> file_name("test_x", "a/b", "kernel", "cpp")
    'test_x-a_b-c14cddc0.kernel.cpp'
    """
    slug = re.sub(r"[^\w=+,-]", "_", parameters)
    if slug != parameters or len(slug) > 80:
        slug = f"{slug[:80]}-{hashlib.sha256(parameters.encode()).hexdigest()[:8]}"
    return f"{test}{'-' if slug else ''}{slug}.{view}.{ENDINGS.get(language, language)}"
