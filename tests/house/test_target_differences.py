"""Each file of the stage `lower` that asks for the target or the device is in the table of `frontend/lower`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import minductor.frontend.lower as lower

FRONTEND = Path(lower.__file__).parents[1]
FOLDERS = ("graph_passes", "lower", "lowering_context", "rules")


def asks(node: ast.AST) -> bool:
    """Whether an expression reads a fact of the target, or compares a device.

    >>> [asks(ast.parse(text, mode="eval").body) for text in ("env.target.is_gpu", "device == 'cuda'", "node.target.x")]
    [True, True, False]
    """
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="env") | ast.Attribute(attr="env"), attr="target")):
            return True
        case ast.Attribute(attr="uses_hints"):
            return True
        case ast.Compare(left=left, comparators=others):
            return any(isinstance(each, ast.Constant) and each.value in ("cuda", "cpu") for each in (left, *others))
        case _:
            return False


def test_the_table_names_each_file_that_asks_for_the_target() -> None:
    files = [path for folder in FOLDERS for path in FRONTEND.joinpath(folder).rglob("*.py")]
    found = {path.name for path in files if any(map(asks, ast.walk(ast.parse(path.read_text("utf-8")))))}
    rows = re.findall(r"^\| `(\w+\.py)` \|", lower.__doc__ or "", re.MULTILINE)
    assert found == {*rows}
    assert len(rows) == len({*rows})


def test_other_files_of_the_front_end_ask_for_no_target() -> None:
    """Rewrites ask `Site.is_gpu`."""
    others = [path for path in FRONTEND.rglob("*.py") if path.parent.name not in (*FOLDERS, "rewrites")]
    asking = [ast.walk(ast.parse(path.read_text("utf-8"))) for path in others]
    assert not [node for nodes in asking for node in nodes if isinstance(node, ast.Attribute) and asks(node)]
