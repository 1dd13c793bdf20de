"""The machine code of a graph's kernels, where there is some.

Takes the files of a compiled graph. Gives for each kernel the lines of its disassembly, or of its PTX, at most LIMIT.
Gives nothing where the machine has no objdump.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LIMIT = 400  # lines of one kernel
TOTAL = 12_000  # lines of a graph
SECONDS = 60
FUNCTION = re.compile(r"[0-9a-f]+ <([\w.]+?)>:")


def machine_code(contents: Mapping[str, bytes], symbols: Sequence[str]) -> list[dict[str, Any]]:
    """The machine code of the kernels by symbol: its lines, and how many more there are."""
    from minductor.runtime.launch.launch import LIBRARY

    if LIBRARY not in contents or not (objdump := shutil.which("objdump")):
        return []
    found = _functions(_disassembled(objdump, contents[LIBRARY]))
    rows: list[dict[str, Any]] = []
    left = TOTAL
    for symbol in dict.fromkeys(symbols):
        lines = [
            line
            for name, body in found.items()
            if name == symbol or name.startswith((f"{symbol}.", f"{symbol}_part"))
            for line in (f"{name}:", *body)
        ]
        if lines and left > 0:
            kept = lines[: min(LIMIT, left)]
            left -= len(kept)
            rows.append({"symbol": symbol, "lines": kept, "more": len(lines) - len(kept)})
    return rows


def _disassembled(objdump: str, library: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        Path(file.name).write_bytes(library)
        command = [objdump, "-d", "--no-show-raw-insn", "-M", "intel", "-j", ".text", file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return done.stdout


def _functions(text: str) -> dict[str, list[str]]:
    """The instructions of each function; addresses count from the function's start."""
    found: dict[str, list[str]] = {}
    body: list[str] = []
    start = 0
    for line in text.splitlines():
        if head := FUNCTION.match(line):
            body = found.setdefault(head[1], [])
            start = int(line.split()[0], 16)
        elif line.startswith(" ") and ":" in line:
            address, _, rest = line.partition(":")
            body.append(f"{int(address, 16) - start:5x}  {rest.strip()}")
    return found
