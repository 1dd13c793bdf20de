"""The documentation site: it builds without a warning, needs no network, and names all that is public."""

import doctest
import html
import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import pytest

import minductor
from minductor.core import errors
from minductor.options import OPTION_RULES
from pytest_plugin.vocabulary import MARKERS
from tests import snippets
from tests.house.rules import ROOT

IS_BUILT = importlib.util.find_spec("mkdocs") is not None or "CI" in os.environ
pytestmark = pytest.mark.skipif(not IS_BUILT, reason="the extra `docs` is not installed")
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))


def build(into: Path, **settings: Any) -> Path:
    """Builds the site into a folder. Raises mkdocs.exceptions.Abort if there is a warning."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(into), strict=True, **settings)
    config.plugins.on_startup(command="build", dirty=False)
    build_site(config)
    return into


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return build(tmp_path_factory.mktemp("site"))


def text_of(page: Path) -> str:
    """The text of a built page, without its tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_every_page_is_built_and_in_the_navigation(site: Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        built = page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")
        assert (site / built).is_file()
        assert f": {page}\n" in navigation or page.parts[0] == "found", f"{page} is not in the nav of mkdocs.yml"


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"?(https?:[^\" >]+)", text)
        fetched += re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^\"')]+)", text)
        assert fetched == [], page


def test_the_reference_names_all_that_is_public(site: Path) -> None:
    functions = text_of(site / "reference/python.html")
    assert [name for name in minductor.PUBLIC if f"minductor.{name}" not in functions] == []
    assert "Raises:" in functions and "Returns:" in functions
    options = text_of(site / "reference/options.html")
    assert [name for name, rule in OPTION_RULES.items() if name not in options or rule.docs not in options] == []
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")]
    listed = text_of(site / "reference/errors.html")
    assert [kind.code for kind in kinds if kind.code not in listed or kind.__name__ not in listed] == []
    plugin = text_of(site / "reference/plugin.html")
    assert [name for name in (*MARKERS, "check_accuracy", "fresh_store") if name not in plugin] == []
    backend = text_of(site / "reference/backend.html")
    assert "api_version" in backend and "register_backend" in backend


def test_links_that_leave_the_folder_lead_to_pages_that_show_files(site: Path) -> None:
    assert 'href="files/tests/example_backend/index.html"' in (site / "backends.html").read_text(encoding="utf-8")
    assert "md_run" in text_of(site / "files/examples/serve_from_c/serve.c.html")
    assert (site / "files/benchmarks/running.png").read_bytes() == (ROOT / "benchmarks/running.png").read_bytes()


@pytest.mark.parametrize(
    "page",
    ["[a](nowhere.md)", "[a](../examples/nowhere.py)", "[a](#nowhere)", "::: minductor.nowhere"],
    ids=["page", "file", "anchor", "name"],
)
def test_what_leads_nowhere_is_refused(page: str, tmp_path: Path) -> None:
    from mkdocs.exceptions import Abort

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Page\n\n{page}\n", encoding="utf-8")
    with pytest.raises((Abort, SystemExit)):
        build(tmp_path / "site", docs_dir=str(tmp_path / "docs"), nav=["index.md"], extra_css=[])


def test_generated_parts_exist() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/site_hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    pages = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES)
    assert set(hooks.GENERATED_LINE.findall(pages)) == set(hooks.GENERATED)
    with pytest.raises(KeyError):
        hooks.with_generated("<!-- generated: nothing -->")
    for module in (hooks, snippets):
        assert doctest.testmod(module).failed == 0
