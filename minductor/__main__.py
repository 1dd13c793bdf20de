"""The command line: `minductor COMMAND ...`, or `python -m minductor COMMAND ...`.

Takes the arguments of the process. Gives an exit code: 0 done, 1 the command found a fault, 2 a wrong command line.
Refuses commands that are not in the table. A command's module is imported when the command is used.

>>> main(["--version"])
minductor 0.1.0
0
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from minductor.core.errors import suggestion
from minductor.version import __version__


class Command(NamedTuple):
    """One command: `function(argv) -> exit code`, and what it is for."""

    function: str
    purpose: str


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "demo": Command("minductor.bench.demo:main", "train a small transformer in eager and through minductor"),
        "explain": Command("minductor.api.explain:main", "show every stage of one function's compile"),
        "bench": Command("minductor.bench.harness:main", "eager, TorchInductor and minductor side by side"),
        "cache": Command(
            "minductor.commands.cache_command:main", "the size of the cache, what is in it, and how to empty it"
        ),
        "heuristics": Command(
            "minductor.commands.heuristics_command:main", "measure the recipes of kernels, and learn which one to take"
        ),
        "unpack": Command(
            "minductor.commands.unpack:main", "the parts of an exported package as files, for a host in C"
        ),
        "doctor": Command(
            "minductor.commands.doctor:main", "what this machine has, what it misses, and what to do about it"
        ),
    }
)


def usage() -> str:
    """What --help prints."""
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: minductor COMMAND ...",
            "",
            "A compiler for PyTorch programs: torch.compile(model, backend='minductor').",
            "",
            *(f"  {name:<{width}}  {command.purpose}" for name, command in COMMANDS.items()),
            "",
            "`minductor COMMAND --help` tells the rest.",
            "Exit codes: 0 done; 1 the command found a fault; 2 a wrong command line.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] in (["-h"], ["--help"], ["help"]):
        print(usage())
        return 0
    if given[:1] == ["--version"]:
        print(f"minductor {__version__}")
        return 0
    command = COMMANDS.get(given[0]) if given else None
    if command is None:
        what = f"unknown command {given[0]!r}: {suggestion(given[0], COMMANDS)}".rstrip(": ") if given else ""
        print("\n\n".join(filter(None, [what, usage()])), file=sys.stderr)
        return 2
    module, _, name = command.function.partition(":")
    function: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return function(given[1:])


if __name__ == "__main__":
    sys.exit(main())
