"""The words of docs/glossary.md and the answers of docs/architecture.md name files and names that are in the code."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.rules import ROOT

MAX_WORDS, MAX_LINES, MIN_ANSWERS = 60, 250, 40
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("glossary", "architecture")}
FILES = [
    path
    for folder in ("minductor", "pytest_plugin", "tests")
    for path in (ROOT / folder).rglob("*.*")
    if path.is_file()
]


def rows(page: str) -> list[tuple[str, ...]]:
    """The cells of each row of the page's tables, without their heads."""
    lines = page.splitlines()
    return [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line, following in zip(lines, (*lines[1:], ""), strict=True)
        if line.startswith("| ") and not following.startswith("|---")
    ]


def defined(text: str) -> set[str]:
    """The names that the top level of a module defines."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
            case _:
                pass
    return names


def has_member(text: str, owner: str, name: str) -> bool:
    """Whether a module defines the class `owner`, with `name` as a method or a field."""
    if f"class {owner}" not in text:
        return False
    members = {
        getattr(node, "name", "") or ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node)
        for kind in ast.parse(text).body
        if isinstance(kind, ast.ClassDef) and kind.name == owner
        for node in kind.body
    }
    return name in members


def missing(page: str, files: list[Path]) -> list[str]:
    """The addresses in a page's code spans, such as `fuse.py: fuse` and `passes/fuse/`, that lead nowhere."""
    found: list[str] = []
    for path, name in re.findall(r"`([\w/]+\.py)(?:: ([\w.]+))?`", page):
        at = [file for file in files if file.as_posix().endswith(f"/{path}")]
        wanted = name.partition(".")[0]
        if not at or (wanted and not any(wanted in defined(file.read_text(encoding="utf-8")) for file in at)):
            found.append(f"{path}: {name}")
    for owner, name in re.findall(r"`(?:\w+\.py: )?([A-Z]\w*[a-z]\w*)\.(\w+)`", page):
        if not any(has_member(file.read_text(encoding="utf-8"), owner, name) for file in files if file.suffix == ".py"):
            found.append(f"{owner}.{name}")
    folders = {parent.as_posix() for file in files for parent in file.parents}
    return found + [
        path for path in re.findall(r"`([\w/]+)/`", page) if not any(f.endswith(f"/{path}") for f in folders)
    ]


@pytest.mark.parametrize("name", PAGES)
def test_every_address_leads_somewhere(name: str) -> None:
    page = PAGES[name]
    assert missing(page, FILES) == []


def test_an_address_that_leads_nowhere_is_found() -> None:
    page = "| a | `fuse.py: fuse` | | `nowhere.py` | `fuse.py: nothing` | `passes/nothing/` | `passes/fuse/` |"
    page += " `Compiler.nothing` | `Compiler.key` |"
    assert missing(page, FILES) == ["nowhere.py: ", "fuse.py: nothing", "Compiler.nothing", "passes/nothing"]


def test_a_word_stands_once_and_there_are_few() -> None:
    words = [row[0] for row in rows(PAGES["glossary"])]
    assert words == sorted(set(words)) and 40 <= len(words) <= MAX_WORDS


def test_the_map_is_short_and_answers_much() -> None:
    assert len(PAGES["architecture"].splitlines()) <= MAX_LINES
    answers = PAGES["architecture"].partition("## Where is X decided?")[2].partition("\n## ")[0]
    assert len(rows(answers)) >= MIN_ANSWERS
