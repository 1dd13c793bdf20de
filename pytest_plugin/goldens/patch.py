"""`golden.patch`: the differences of all goldens as one patch that `git apply` takes.

Takes Disagreements; gives text. Refuses nothing.

>>> print(hunks("a\\n", "b", "x/y.txt"), end="")
diff --git a/x/y.txt b/x/y.txt
--- a/x/y.txt
+++ b/x/y.txt
@@ -1,1 +1,1 @@
-a
+b
\\ No newline at end of file
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.line_diff import unified_diff

CONTEXT = 3


def patch(disagreements: Iterable[Disagreement], root: Path) -> str:
    """Returns a patch from the stored to the generated files, with paths below the root of the git repository."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    inner = root.relative_to(top)
    texts = [
        hunks(d.old_content, d.new_content, (inner / d.own).as_posix())
        for d in disagreements
        if not Path(d.own).is_absolute()
    ]
    return "".join(texts)


def hunks(old: str, new: str, path: str) -> str:
    """Returns the patch of one file; an empty old content stands for a file that does not exist."""
    head = [f"diff --git a/{path} b/{path}"]
    if not old:
        head.append("new file mode 100644")
    head += [f"--- {f'a/{path}' if old else '/dev/null'}", f"+++ b/{path}"]
    body = list(_mark_missing_line_end(unified_diff(_lines(old), _lines(new), CONTEXT)))
    return "".join(f"{line}\n" for line in [*head, *body]) if body else ""


def _lines(text: str) -> list[str]:
    """Returns the lines with their line ends, so that a missing line end at the end is a difference."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])


def _mark_missing_line_end(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith("\n"):
            yield line[:-1]
        elif line.startswith("@@"):
            yield line
        else:
            yield line
            yield "\\ No newline at end of file"
