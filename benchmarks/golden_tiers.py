"""How many goldens each level turns red: the history of this project's golden files, commit by commit.

`python benchmarks/golden_tiers.py [--commits 50]` looks at the last commits that changed a golden file, and compares
each changed file with the one before it: its text at `exact`, `canonical` and `skeleton`, the facts of its header, and
by how many distinct edits. A file is compared as it was stored, with the plugin's code of today.
"""

from __future__ import annotations

import argparse
import subprocess

from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.edit_clusters import cluster_edits
from pytest_plugin.goldens.golden import comparable_form
from pytest_plugin.goldens.golden_file import Golden, parse

LEVELS = ("exact", "canonical", "skeleton", "facts")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def pairs(commit: str) -> list[tuple[str, Golden, Golden]]:
    """The golden files that a commit changed, before and after."""
    found: list[tuple[str, Golden, Golden]] = []
    for path in git("diff", "--name-only", "--diff-filter=M", f"{commit}^", commit, "--", "golden").split():
        language = path.rpartition(".")[2]
        try:
            sides = [parse(git("show", f"{side}:{path}"), language) for side in (f"{commit}^", commit)]
        except ValueError:
            continue
        found.append((path, sides[0], sides[1]))
    return found


def red_at(old: Golden, new: Golden, language: str) -> list[str]:
    """The levels at which the two are not equal."""
    view = new.header.view
    red = [
        level
        for level in LEVELS[:3]
        if comparable_form(old.text, language, view, level) != comparable_form(new.text, language, view, level)
    ]
    return red + ["facts"] * (old.header.facts != new.header.facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=50)
    count = parser.parse_args().commits
    commits = git("log", "--format=%h", f"-{count}", "--diff-filter=M", "--", "golden").split()
    entries = dict.fromkeys(LEVELS, 0)
    red = dict.fromkeys(LEVELS, 0)
    seen = edits = 0
    for commit in commits:
        changed = pairs(commit)
        levels = [red_at(old, new, path.rpartition(".")[2]) for path, old, new in changed]
        seen += len(changed)
        for level in LEVELS:
            entries[level] += sum(level in found for found in levels)
            red[level] += any(level in found for found in levels)
        told = [
            Disagreement(path, "", new.header.view, "", path.rpartition(".")[2], path, path, old.text, new.text,
                         old.header.facts, new.header.facts, "", "")
            for path, old, new in changed
        ]  # fmt: skip
        edits += len(cluster_edits(told))
    print(f"{len(commits)} commits, {seen} changed files, {edits} distinct edits\n")
    print("| level | files red | commits red |\n|---|---:|---:|")
    for level in LEVELS:
        print(f"| {level} | {entries[level]} | {red[level]} |")


if __name__ == "__main__":
    main()
