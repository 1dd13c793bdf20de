"""The scripts of docs/found show no difference when minductor compiles them, and the index names them all."""

import functools
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.house.rules import ROOT

FOUND = ROOT / "docs" / "found"
SCRIPTS = sorted(FOUND.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_minductor_is_as_eager(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ours = functools.partial(torch.compile, backend="minductor")

    def without_options(fn: Any, *, fullgraph: bool, options: object = None) -> Any:
        del options
        return compile_ours(fn, fullgraph=fullgraph)

    monkeypatch.setattr(torch, "compile", without_options)
    torch.compiler.reset()
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code in (0, False), ended.value.code


def test_the_index_names_each_script() -> None:
    index = (FOUND / "README.md").read_text(encoding="utf-8")
    assert SCRIPTS and all(f"[{path.stem}]({path.stem}.md)" in index for path in SCRIPTS)
    assert {path.stem for path in SCRIPTS} == {path.stem for path in FOUND.glob("*.md")} - {"README"}
