"""README.md says what is true: its tables are those of the code, its examples run, and what all pages name is there."""

import importlib
import re
from dataclasses import fields
from pathlib import Path

import pytest

from minductor.__main__ import COMMANDS
from minductor.core import errors
from minductor.options import ENVIRONMENT, MODES, OPTION_RULES, Options
from tests.house.rules import ROOT
from tests.snippets import snippets

FOLDERS = ("minductor", "pytest_plugin", "tests", "docs", "benchmarks", "examples")
PAGES = [ROOT / "README.md", *(page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md")))]
FILES = [path.as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
# of files that a reader may make
EXAMPLES = {"my_compiler/testing.py", *(f"tests/test_{name}.py" for name in ("first", "known", "faults", "norm"))}
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [block.text for block in snippets(README) if block.language == "python"]


def options_table() -> list[str]:
    """The rows that README.md has to have."""
    defaults = {entry.name: entry.default for entry in fields(Options)}
    takes = {
        name: rule.takes or ", ".join(f"`{v!r}`" for v in rule.allowed) or rule.type.__name__
        for name, rule in OPTION_RULES.items()
    }
    return [f"| `{name}` | `{defaults[name]!r}` | {takes[name]} | {rule.docs} |" for name, rule in OPTION_RULES.items()]


def test_options_table_is_the_code() -> None:
    written = README.partition("|---|---|---|---|\n")[2].partition("<!-- end of options")[0].splitlines()
    assert written == options_table(), "\n".join(options_table())


def test_modes_and_variables_are_named() -> None:
    for mode, values in MODES.items():
        (row,) = [line for line in README.splitlines() if line.startswith(f"| `{mode}` |")]
        assert all(f"`{name}`" in row for name in values)
    assert all(f"`{variable}` sets `{option}`" in README for variable, option in ENVIRONMENT.items())


def test_first_examples_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    import minductor

    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    minductor.minductor.reset()
    torch._dynamo.reset()
    try:
        names: dict[str, object] = {}
        for block in BLOCKS[:7]:
            exec(block, names)
    finally:
        minductor.minductor.reset()
        torch._dynamo.reset()
    assert "==== inference graph ====" in capsys.readouterr().out
    assert any(tmp_path.rglob("wrapper.py")), "the first example was compiled by minductor"


def shown_in_order(shown: str, output: str) -> str:
    """The first line of `shown` that `output` lacks behind the lines before it; "..." stands for any lines."""
    lines = iter(re.sub(r"[\d.]+ ms ?", "", output).splitlines())
    return next((line for line in shown.splitlines() if line != "..." and line not in lines), "")


def test_explained_example_is_what_is_printed() -> None:
    import minductor
    from docs import layer_norm

    (shown,) = [block.text for block in snippets(README) if block.language == "text"]
    printed = str(minductor.explain(layer_norm.layer_norm, *layer_norm.example_inputs()))
    assert shown_in_order(shown, printed) == ""
    assert shown_in_order(shown.replace("mul %0 %1", "mul %1 %0"), printed) != ""


def test_plugin_example_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)  # where nothing is written, as the example has to
    monkeypatch.setenv("RUN_GPU", "0")
    pytester.makepyfile(test_example=BLOCKS[7])
    for module in (
        "adapters.minductor",
        "oracle.compiled",
        "session",
        "plugin",
    ):  # else the run forgets them, and torch
        importlib.import_module(f"pytest_plugin.{module}")
    pytester.runpytest_inprocess("--golden=accept", "-q").assert_outcomes(passed=2)
    assert len([path for path in (pytester.path / "golden").rglob("*") if path.is_file()]) == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https:") or (page.parent / target).exists(), target
    for path in re.findall(r"(?<![\w/-])(?:docs|tests|benchmarks|minductor)/[\w./]+\w", text):
        assert path in EXAMPLES or list(ROOT.glob(f"{path}*")), path
    for path in re.findall(r"`([\w/]+\.(?:py|h|cpp|html))`", text):
        assert path in EXAMPLES or any(file.endswith(f"/{path}") for file in FILES), path


def test_codes_exist() -> None:
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    assert codes.issuperset(re.findall(r"\bMD\d{3}\b", "".join(page.read_text(encoding="utf-8") for page in PAGES)))


COMMAND = re.compile(r"(?:^ {4}(?! )|^\$ (?:\w+=\S+ )*|`)(minductor|make) ([a-z]\w*)", re.MULTILINE)


def unknown_commands(text: str) -> list[str]:
    """The commands on lines of their own and in code spans that neither minductor nor the Makefile has."""
    targets = re.findall(r"^([a-z]\w*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    known = {"minductor": tuple(COMMANDS), "make": tuple(targets)}
    return [f"{program} {word}" for program, word in COMMAND.findall(text) if word not in known[program]]


def test_commands_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert unknown_commands(text) == []
    assert len(COMMAND.findall(text)) > 20
    assert unknown_commands("    make tee\n`minductor doctr`\n$ A=b minductor cash\n") == [
        "make tee",
        "minductor doctr",
        "minductor cash",
    ]
