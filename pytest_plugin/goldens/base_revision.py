"""--golden-base=REV: goldens that an earlier revision generates, for a comparison without stored files.

Takes the tests' root, a revision, and the tests and options of the run. Gives a folder of goldens. Refuses a revision
that git does not know, and one whose tests cannot be run (CannotBuild).

The revision is checked out into a folder of its own, and its tests are run there, with its own compiler. A test that
the revision does not have has no golden, and passes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

STAGES_VARIABLE = "MINDUCTOR_TEST_STAGES"  # if it is set, the text after each stage is written beside each golden
LIMIT_SECONDS = 3600


class CannotBuild(RuntimeError):
    """A revision gives no goldens."""


def build_goldens(root: Path, revision: str, tests: Sequence[str], options: Sequence[str], folder: Path) -> Path:
    """Runs the tests of a revision, and returns the folder of the goldens that they wrote.

    Args:
        root: The root of the tests.
        revision: The revision, as git takes it.
        tests: The paths or ids of the tests; those whose files the revision does not have are left out.
        options: Options of pytest.
        folder: An empty folder for the checkout and the goldens.

    Returns:
        The golden folder of the revision.

    Raises:
        CannotBuild: git does not know the revision, or its tests cannot be run.
    """
    top = Path(_git(root, "rev-parse", "--show-toplevel").strip())
    commit = _git(root, "rev-parse", "--verify", f"{revision}^{{commit}}").strip()
    tree, goldens = folder / "tree", folder / "golden"
    _git(top, "worktree", "add", "--detach", "--quiet", str(tree), commit)
    try:
        inner = tree / root.resolve().relative_to(top.resolve())
        own = ["-q", "-p", "no:cacheprovider", "--golden=accept", "-o", f"golden_dir={goldens}"]
        existing = [test for test in tests if (inner / test.partition("::")[0]).exists()]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *own, *options, *existing],
            cwd=inner,
            env=_environment(os.environ, root, inner),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"the tests of {revision} take more than {LIMIT_SECONDS} seconds") from None
    finally:
        _git(top, "worktree", "remove", "--force", str(tree))
    if done.returncode not in (0, 1):  # 1: some tests failed, which is allowed
        raise CannotBuild(f"the tests of {revision} do not run:\n{(done.stdout + done.stderr)[-2000:]}")
    return goldens


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _environment(environ: Mapping[str, str], root: Path, inner: Path) -> dict[str, str]:
    """Returns an environment in which Python imports the other checkout, and CI is not set."""
    own = {str(root), str(root.resolve())}
    paths = [str(inner) if path in own else path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    kept = {name: value for name, value in environ.items() if name not in ("CI", "PYTHONPATH")}
    return {**kept, STAGES_VARIABLE: "1", "PYTHONPATH": os.pathsep.join(paths or [str(inner)])}


def first_change(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Returns the first stage whose text differs in canonical form, or an empty text.

    >>> first_change({"f.lower": "%1 = load", "f.fuse": "a"}, {"f.lower": "%2 = load", "f.fuse": "b"})
    'f.fuse'
    """
    from pytest_plugin.goldens.canonical import canonical

    for name, text in new.items():
        sides = [[line.text for line in canonical(side, "ir")] for side in (old.get(name, ""), text)]
        if sides[0] != sides[1]:
            return name
    return ""
