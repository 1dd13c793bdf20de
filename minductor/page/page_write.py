"""Writes a page: one HTML file with the data, the script and the style in it, which loads nothing.

Takes a document (`page_data.py`) and a path. Gives the file. The file is written beside its place and then renamed, so
that a reader never meets half a page; of several processes that write one page, the last one wins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# In the order of the text: later ones use earlier ones.
SCRIPTS = (
    "data.js",
    "light.js",
    "rows.js",
    "source_pane.js",
    "graph_pane.js",
    "ir_pane.js",
    "kernel_pane.js",
    "memory_pane.js",
    "answers_pane.js",
    "search.js",
    "layout.js",
    "main.js",
)


def page(document: Mapping[str, Any]) -> str:
    """The text of a page.

    >>> '<script>' in page({"graphs": ["</script><script>"]}).partition('id="data"')[2].partition("</script>")[0]
    False
    """
    text = (HERE / "page.html").read_text(encoding="utf-8")
    script = "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    # JSON allows any character of a string to be escaped, so that no text of the data can end the element.
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    for name, part in (
        ("/*style*/", (HERE / "page.css").read_text(encoding="utf-8")),
        ("/*script*/", script),
        ("/*data*/", data),
    ):
        before, mark, after = text.partition(name)
        assert mark, f"page.html has no place for {name}"
        text = f"{before}{part}{after}"
    return text


def write_page(path: Path, document: Mapping[str, Any]) -> None:
    """Writes a page. Raises OSError if the path cannot be written."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(page(document), encoding="utf-8")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
