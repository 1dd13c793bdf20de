"""What MkDocs does to the pages of docs/ while it builds the site: generated parts, and links that leave docs/.

Takes the events of MkDocs. Gives pages. A line `<!-- generated: NAME -->` is replaced by what `GENERATED` makes of that
name from the code. A link to a file outside docs/ leads, on the site, to a page that shows the file; on a host of the
repository the link works as it stands. Refuses (KeyError) a name that does not exist; a link that leads nowhere is
MkDocs' own warning. It needs neither torch nor pytest.
"""

from __future__ import annotations

import ast
import inspect
import os
import posixpath
import re
import runpy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

from minductor import PUBLIC
from minductor.core import errors
from minductor.options import ENVIRONMENT, MODES, OPTION_RULES, Options

ROOT = Path(__file__).resolve().parents[1]
SHOWN = "files"  # the folder of the site for what lies outside docs/
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
GENERATED_LINE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
FENCED = re.compile(r"(^(?:```+)[^\n]*\n.*?^```+[ ]*$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".cpp": "cpp", ".toml": "toml", ".json": "json", "": "make"}
PICTURES = (".png", ".svg")
BACKEND = ("Backend", "Pass", "Artefact", "register_backend", "unregister_backend", "cpp_flags")
FIXTURES = ("pytest_plugin/fixtures.py", "pytest_plugin/short_names.py")


# --- generated parts -----------------------------------------------------------------------------------------------


def _table(*rows: tuple[str, ...]) -> str:
    """A table of Markdown; the first row is its head."""
    head, *body = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def _options() -> str:
    defaults = {entry.name: entry.default for entry in fields(Options)}
    rows = [("option", "default", "what it does, and what it takes")]
    for name, rule in OPTION_RULES.items():
        takes = rule.takes or ", ".join(f"`{value!r}`" for value in rule.allowed) or rule.type.__name__
        rows.append((f"`{name}`", f"`{defaults[name]!r}`", f"{rule.docs}<br>takes {takes}"))
    return _table(*rows)


def _modes() -> str:
    rows = [(mode, [f"`{name}={value!r}`" for name, value in values.items()]) for mode, values in MODES.items()]
    return _table(("mode", "is short for"), *((f"`{mode}`", ", ".join(options) or "nothing") for mode, options in rows))


def _variables() -> str:
    rows = ((f"`{variable}`", f"`{option}`") for variable, option in ENVIRONMENT.items())
    return _table(("variable", "sets the option"), *rows)


def _errors(*, are_warnings: bool) -> str:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MinductorError)
    ]
    rows = [
        (f"`{kind.code}`", f"`{kind.__name__}`", " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()))
        for kind in sorted(kinds, key=lambda kind: kind.code)
        if issubclass(kind, errors.MinductorWarning) == are_warnings
    ]
    return _table(("code", "class", "what happened"), *rows)


def _markers() -> str:
    markers: Mapping[str, str] = runpy.run_path(str(ROOT / "pytest_plugin/vocabulary.py"))["MARKERS"]
    rows = [text.partition("): ") for text in markers.values()]
    return _table(("marker", "what it does"), *((f"`@pytest.mark.{call})`", meaning) for call, _, meaning in rows))


def _fixtures() -> str:
    """The docstrings of the fixtures, by name; what they take is pytest's own affair."""
    found: list[tuple[str, str]] = []
    for path in FIXTURES:
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                found.append((node.name, path.removesuffix(".py").replace("/", ".")))
    options = {
        "show_signature": False,
        "show_docstring_parameters": False,
        "show_root_full_path": False,
        "separate_signature": False,
    }
    return "\n".join(_documented(f"{module}.{name}", heading_level=3, **options) for name, module in sorted(found))


def _documented(name: str, **options: object) -> str:
    """The docstring of an object, as mkdocstrings shows it."""
    rows = [f"        {option}: {str(value).lower()}" for option, value in options.items()]
    return "\n".join([f"::: {name}", *(["    options:", *rows] if rows else []), ""])


GENERATED: Mapping[str, Callable[[], str]] = {
    "options": _options,
    "modes": _modes,
    "variables": _variables,
    "errors": lambda: _errors(are_warnings=False),
    "warnings": lambda: _errors(are_warnings=True),
    "markers": _markers,
    "fixtures": _fixtures,
    "functions": lambda: "\n".join(_documented(f"minductor.{name}") for name in sorted(PUBLIC, key=str.lower)),
    "compiled": lambda: _documented("pytest_plugin.oracle.compiled.Compile.__call__", heading_level=3),
    "run": lambda: _documented("pytest_plugin.oracle.run.Run", heading_level=3),
    "backend": lambda: "\n".join(_documented(f"minductor.backends.{name}") for name in BACKEND),
}


def with_generated(markdown: str) -> str:
    """The text of a page with its generated parts. Raises KeyError for a name that does not exist."""
    return GENERATED_LINE.sub(lambda found: GENERATED[found[1]](), markdown)


# --- links ---------------------------------------------------------------------------------------------------------


def outside(markdown: str, source: PurePosixPath) -> Iterator[tuple[str, str]]:
    """The links of a page to files that are not in docs/, as they are written and as paths below the root.

    Args:
        markdown: the text of the page.
        source: the path of the page below the root.
    """
    for link, _ in LINK.findall(FENCED.sub("", markdown)):
        path = posixpath.normpath((source.parent / link).as_posix())
        is_outside = ":" not in link and not path.startswith(("docs/", "../"))
        if is_outside and (ROOT / path).exists():
            yield link, path


def place(path: str) -> str:
    """The page of the site that shows a file outside docs/.

    >>> place("tests/e2e/host.c"), place("benchmarks/export.md"), place("benchmarks/running.png"), place("examples")
    ('files/tests/e2e/host.c.md', 'files/benchmarks/export.md', 'files/benchmarks/running.png', 'files/examples.md')
    """
    is_kept = path.endswith((*PICTURES, ".md"))
    return f"{SHOWN}/{path}" if is_kept else f"{SHOWN}/{path}.md"


def content(path: str) -> str:
    """The Markdown of the page that shows a file or a folder outside docs/."""
    file = ROOT / path
    if file.is_dir():
        inside = sorted(other.name for other in file.iterdir() if not other.name.startswith(("_", ".")))
        return "\n".join([f"# {path}", "", *(f"- [{name}]({file.name}/{name})" for name in inside), ""])
    text = file.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`{3,}", text)), default=2))
    return f"# {path}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}{fence}\n"


def relinked(markdown: str, source: PurePosixPath, page: str) -> str:
    """A page's text whose links to files outside docs/ lead to the pages that show these files."""
    here = posixpath.dirname(page) or "."
    moved = {link: os.path.relpath(place(path), here) for link, path in outside(markdown, source)}
    is_moved = page.startswith(f"{SHOWN}/")

    def link(found: re.Match[str]) -> str:
        target = moved.get(found[1])
        if target is None and is_moved and ":" not in found[1]:  # from a file outside to one in docs/
            path = posixpath.normpath((source.parent / found[1]).as_posix()).removeprefix("docs/")
            target = os.path.relpath(path, here)
        return f"]({target or found[1]}{found[2] or ''})"

    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in FENCED.split(markdown))


def original(page: str) -> PurePosixPath:
    """The path below the root of what a page shows."""
    return PurePosixPath(page.removeprefix(f"{SHOWN}/") if page.startswith(f"{SHOWN}/") else f"docs/{page}")


# --- the events ----------------------------------------------------------------------------------------------------


def on_files(files: Files, config: Any) -> Files:
    """Adds a page for each file outside docs/ that a page links, and for what these link."""
    waiting = [
        path
        for file in files.documentation_pages()
        for _, path in outside(file.content_string, PurePosixPath(f"docs/{file.src_uri}"))
    ]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.endswith(PICTURES):
            files.append(File.generated(config, place(path), abs_src_path=str(ROOT / path)))
            continue
        text = content(path)
        files.append(File.generated(config, place(path), content=text))
        waiting += [other for _, other in outside(text, PurePosixPath(path))]
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page, with its generated parts, and with links that stay on the site."""
    return with_generated(relinked(markdown, original(page.file.src_uri), page.file.src_uri))
