"""The code blocks of a page of Markdown, and running them as a reader would, one after the other.

Takes a page's text. Gives its blocks, and a `Walk` that runs them in a folder of its own. Refuses (AssertionError) a
block whose output is not the one that the page shows, and a block of which nobody says how it is checked.

A block is run according to its language:

- `python`: executed; the blocks of a page share their names. `console`: each line that begins with "$ " is run, and the
  lines behind it are its output. `toml`, `json`: parsed.

A comment in the line above a block says more: `<!-- snippet: NOTE -->`. The notes:

- `output`: the block is what the block before printed. `...` stands for any text of a line or, alone, for any lines.
- `raises CLASS`: the block ends with this error, whose text is what the block printed.
- `file PATH`: the block is the content of a file, which later commands use. `changes PATH`: it follows in that file.
- `run by PATH`: the test file PATH runs the block. `from PATH`: the lines of the block are lines of the file PATH.
- `shown: REASON`: the block is not run, for this reason; it must parse.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest import mock

from tests.house.rules import ROOT

BLOCK = re.compile(r"^(?:<!-- snippet: (.*?) -->\n)?^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"(\w+)=(.*)")


@dataclass(frozen=True)
class Snippet:
    """One block: its language, its text, the note above it, and its line in the page."""

    language: str
    text: str
    note: str = ""
    line: int = 0


def snippets(page: str) -> list[Snippet]:
    """The blocks of a page in order.

    >>> snippets("A.\\n\\n<!-- snippet: file a.py -->\\n```python\\nx = 1\\n```\\n")
    [Snippet(language='python', text='x = 1\\n', note='file a.py', line=4)]
    """
    return [
        Snippet(found[2], found[3], found[1] or "", page.count("\n", 0, found.start(2)) + 1)
        for found in BLOCK.finditer(page)
    ]


def is_shown(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; "..." stands for any text of a line or, alone, for any lines.

    >>> is_shown("a\\n...\\nd ... e", "a\\nb\\nc\\nd 1 e\\n"), is_shown("a\\n...", "b"), is_shown("...\\na", "a\\nb")
    (True, False, False)
    """
    lines = [r"(?:.*\n)*?" if line.strip() == "..." else _pattern(line) for line in shown.strip().splitlines()]
    text = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return re.fullmatch("".join(lines), text) is not None


def _pattern(line: str) -> str:
    return ".*?".join(map(re.escape, line.rstrip().split("..."))) + r"\n"


@dataclass
class Walk:
    """Runs the blocks of a page in a folder.

    `pytest` runs pytest with some words and returns what it prints. `forget` makes torch and minductor forget what they
    compiled in this process.
    """

    folder: Path
    pytest: Callable[..., str]
    forget: Callable[[], None]
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})
    printed: str | None = None

    def run(self, snippet: Snippet) -> None:
        """Runs one block, or compares it with what the block before printed."""
        word, _, rest = snippet.note.partition(" ")
        before, self.printed = self.printed, None
        match word:
            case "output":
                assert before is not None, "no block before it printed anything"
                assert is_shown(snippet.text, before), f"the page shows\n{snippet.text}\nand this was printed\n{before}"
            case "raises":
                self.printed = self.error(snippet, rest)
            case "file" | "changes":
                self.write(snippet, rest, is_new=word == "file")
            case "run" if rest.startswith("by "):
                assert (ROOT / rest.removeprefix("by ")).is_file(), rest
            case "from":
                lines = (ROOT / rest).read_text(encoding="utf-8").splitlines()
                assert all(line in lines for line in snippet.text.splitlines() if line), f"{rest} has other lines"
            case "shown:":
                assert len(rest.split()) > 2, "say why it is not run"
                parse(snippet)
            case "":
                self.printed = self.execute(snippet)
            case _:
                raise AssertionError(f"no note is called {word!r}")

    def execute(self, snippet: Snippet) -> str:
        """Runs a block that has no note."""
        match snippet.language:
            case "python":
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile(snippet.text, f"<line {snippet.line}>", "exec"), self.names)
                return printed.getvalue()
            case "console":
                return self.commands(snippet.text)
            case "toml" | "json":
                parse(snippet)
                return ""
            case language:
                raise AssertionError(f"a note has to say how a block in {language or 'no language'} is checked")

    def error(self, snippet: Snippet, name: str) -> str:
        """Runs a block that ends with an error of a class. Returns the text of the error below Dynamo's."""
        try:
            self.execute(snippet)
        except Exception as error:
            inner = getattr(error, "inner_exception", error)
            assert type(inner).__name__ == name, repr(inner)
            return str(inner)
        raise AssertionError(f"{name} was not raised")

    def write(self, snippet: Snippet, path: str, *, is_new: bool) -> None:
        """Writes a block as a file, or behind what the file holds."""
        parse(snippet)
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(snippet.text if is_new else file.read_text(encoding="utf-8") + snippet.text, encoding="utf-8")

    def commands(self, text: str) -> str:
        """Runs the commands of a console, and compares the output of each with the lines behind it."""
        printed = ""
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            printed = self.command(command)
            assert not shown or is_shown(shown, printed), f"{command}\nshows\n{shown}\nand this was printed\n{printed}"
        return printed

    def command(self, command: str) -> str:
        """Runs a command and returns what it prints. minductor, python FILE and pytest run in this process."""
        words = shlex.split(command, comments=True)
        set_before = takewhile(lambda found: found, map(VARIABLE.fullmatch, words))
        variables = {found[1]: found[2] for found in set_before if found}
        program, *rest = words[len(variables) :]
        self.forget()  # what this process compiled: a command has a process of its own
        with mock.patch.dict(os.environ, variables):
            if program == "pytest":
                return self.pytest(*rest)
            if program == "minductor":
                return _in_process(lambda: _minductor(rest), rest)
            if program == "python" and rest[0].endswith(".py"):
                return _in_process(lambda: runpy.run_path(rest[0], run_name="__main__"), rest)
            environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            done = subprocess.run(command, shell=True, env=environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            return done.stdout


def _minductor(words: list[str]) -> None:
    from minductor.__main__ import main

    assert main(words) == 0, words


def _in_process(run: Callable[[], object], words: list[str]) -> str:
    both = io.StringIO()
    with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(both), contextlib.redirect_stderr(both):
        run()
    return both.getvalue()


def parse(snippet: Snippet) -> None:
    """Raises if a block is not in its language, as far as a parser is at hand."""
    match snippet.language:
        case "python":
            ast.parse(snippet.text)
        case "toml":
            tomllib.loads(snippet.text)
        case "json":
            json.loads(snippet.text)
        case "console":
            commands = re.findall(r"^\$ (.*)$", snippet.text, re.MULTILINE)
            assert commands and all(map(shlex.split, commands)), "a console has lines that begin with $"
        case _:
            pass
