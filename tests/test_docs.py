"""The pages of the documentation: each code block is run, and the site that is built from them is complete."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import minductor
from minductor.frontend.rewrites.rewrite_table import REWRITES
from tests.house.rules import ROOT
from tests.snippets import Walk, snippets

DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.parent != DOCS / "found")
WITH_BLOCKS = [path for path in PAGES if snippets(path.read_text(encoding="utf-8"))]


@pytest.fixture
def walk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> Iterator[Walk]:
    """A walk in an empty folder, with an empty cache, and nothing compiled before."""
    run_pytest, folder = no_pytest, tmp_path
    if "$ pytest" in request.getfixturevalue("page").read_text(encoding="utf-8"):
        import_all(tmp_path)
        pytester: pytest.Pytester = request.getfixturevalue("pytester")
        folder = pytester.path

        def run_pytest(*words: str) -> str:
            return pytester.runpytest_inprocess(*words).stdout.str()

    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(folder / "cache"))
    monkeypatch.delenv("CI", raising=False)  # where no golden file is written
    monkeypatch.setenv("RUN_GPU", "0")
    monkeypatch.syspath_prepend(ROOT / "tests" / "example_backend")
    reset()
    torch.manual_seed(0)
    yield Walk(folder, run_pytest, reset)
    reset()


def import_all(folder: Path) -> None:
    """Imports what a run of pytest within this process would import, and forget: torch must not be loaded twice."""
    for module in ("adapters.minductor", "faults.trials", "oracle.compiled", "session", "plugin"):
        importlib.import_module(f"pytest_plugin.{module}")
    options: Any = {"cache_dir": str(folder / "other")}
    x = torch.ones(2, 3, requires_grad=True)
    torch.compile(lambda x: x.softmax(-1), backend="minductor", options=options)(x).sum().backward()


def no_pytest(*words: str) -> str:
    raise AssertionError("pytest runs in the pages that have a line '$ pytest'")


def reset() -> None:
    minductor.minductor.reset()
    torch.compiler.reset()


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_blocks_do_what_the_page_says(page: Path, walk: Walk) -> None:
    for snippet in snippets(page.read_text(encoding="utf-8")):
        try:
            walk.run(snippet)
        except Exception as error:
            what = f"{page.relative_to(ROOT)}:{snippet.line}: {type(error).__name__}: {error}"
            pytest.fail(what, pytrace=not isinstance(error, AssertionError))


FIGURES = re.compile(r"<!-- figures: (\S+) -->\n((?:.+\n)+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_figures_are_recorded_ones(page: Path) -> None:
    for source, block in FIGURES.findall(page.read_text(encoding="utf-8")):
        assert unrecorded(block, (ROOT / source).read_text(encoding="utf-8")) == []


def unrecorded(block: str, source: str) -> list[str]:
    """The numbers with a point in a table or paragraph that the page of recorded results does not have."""
    return [
        figure for figure in re.findall(r"\b\d+\.\d+\b", block) if not re.search(rf"\b{re.escape(figure)}\b", source)
    ]


def test_checks_of_pages_can_fail(tmp_path: Path) -> None:
    assert unrecorded("| a | 1.5 | 2.25 |", "1.5 and 12.25") == ["2.25"]
    walk = Walk(tmp_path, no_pytest, reset)
    for page in (
        "```python\nprint(1)\n```\n<!-- snippet: output -->\n```text\n2\n```\n",
        "```python\nassert False\n```\n",
        "```text\nnobody says what this is\n```\n",
        "<!-- snippet: output -->\n```text\nof nothing\n```\n",
        "<!-- snippet: raises ValueError -->\n```python\nint('1')\n```\n",
        "<!-- snippet: raises ValueError -->\n```python\nint([])\n```\n",
        "<!-- snippet: shown: a typing error -->\n```python\nx ==\n```\n",
        "<!-- snippet: shown: no -->\n```python\nx = 1\n```\n",
        "<!-- snippet: run by tests/nothing.py -->\n```python\nx = 1\n```\n",
        "<!-- snippet: from mkdocs.yml -->\n```text\nno such line\n```\n",
        "<!-- snippet: unknown -->\n```python\nx = 1\n```\n",
        "```console\n$ echo 1\n2\n```\n",
        "```console\n$ false\n```\n",
        "```toml\nx\n```\n",
    ):
        with pytest.raises((AssertionError, SyntaxError, ValueError)):
            for snippet in snippets(page):
                walk.run(snippet)


def test_the_table_of_rewrites_is_the_code() -> None:
    rows = [f"| `{row.name}` | {row.level} | {'on' if row.is_on else 'off'} | {row.docs} |" for row in REWRITES]
    text = (DOCS / "rewrites.md").read_text(encoding="utf-8")
    written = text.partition("| rewrite | level | by default | what it does |\n")[2]
    assert written.partition("\n\n")[0].splitlines()[1:] == rows, "\n".join(rows)
