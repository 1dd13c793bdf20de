"""The machine code of a graph's kernels, each instruction with the line of the kernel that it computes.

Takes the files of a compiled graph. Gives JSON: for each kernel the lines of its machine code, at most LIMIT, and the
numbers of the kernel's lines. The units of a CPU are compiled once more, with tables of lines, and disassembled by
objdump; for a GPU, Triton compiles the first kernels, and the lines are those of PTX or of AMD's assembly. Gives
nothing where these tools are missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from minductor.target import Env

LIMIT = 500  # lines of one kernel
TOTAL = 8000  # lines of a graph
MOST_GPU = 6  # kernels that Triton compiles, which takes seconds
SECONDS = 60
FUNCTION = re.compile(r"[0-9a-f]+ <([\w.]+?)>:")
PLACE = re.compile(r"(inlined by )?(\S+):(\d+)(?: \(.*\))?$")
KERNEL = re.compile(r'(?:extern "C"|static) int64_t \w+\(')
PTX_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")


class Instruction(NamedTuple):
    """A line of machine code, and the number of the kernel's line, from 0; -1 if it has none."""

    text: str
    line: int


def machine_code(contents: Mapping[str, bytes], symbols: Sequence[str], env: Env) -> list[dict[str, Any]]:
    """The machine code of kernels: `lines`, `at` (a number of lines and the kernel's line, in turns), and `more`."""
    named = list(dict.fromkeys(symbols))
    code = _gpu_code(contents, named, env) if env.target.is_gpu else _cpu_code(contents, named)
    rows: list[dict[str, Any]] = []
    left = TOTAL
    for symbol, file, lines in code:
        kept = lines[: max(0, min(LIMIT, left))]
        left -= len(kept)
        if kept:
            row = {"symbol": symbol, "file": file, "lines": [line.text for line in kept], "at": _runs(kept)}
            rows.append(row | {"more": len(lines) - len(kept)})
    return rows


def _runs(lines: Sequence[Instruction]) -> list[int]:
    found: list[int] = []
    for line in lines:
        if found and found[-1] == line.line:
            found[-2] += 1
        else:
            found += [1, line.line]
    return found


# --- CPUs


def _cpu_code(contents: Mapping[str, bytes], symbols: Sequence[str]) -> Iterator[tuple[str, str, list[Instruction]]]:
    from minductor.runtime.build.probe import probe
    from minductor.runtime.build.toolchain import Toolchain
    from minductor.runtime.launch.launch import LIBRARY

    objdump = shutil.which("objdump")
    if objdump is None or LIBRARY not in contents:
        return
    toolchain = Toolchain(probe(), os.environ)
    for file, text in contents.items():
        if not file.endswith(".cpp") or file.startswith("wrapper"):
            continue
        with tempfile.TemporaryDirectory(prefix="minductor-page-") as folder:
            source = Path(folder) / file
            source.write_bytes(text)
            made = f"{source}.o"
            flags = (*toolchain.compiler.command, *toolchain.flags())
            if not _ran([*flags, "-g1", "-c", str(source), "-o", made]):
                continue
            known = _output([objdump, "--help"])
            style = [*(["-M", "intel"] if b"intel" in known else []), *(["--inlines"] if b"--inlines" in known else [])]
            listing = _output([objdump, "-d", "-l", "--no-show-raw-insn", *style, made]).decode(errors="replace")
        found = _functions(listing, file, text.decode())
        for symbol in symbols:
            parts = [name for name in found if name == symbol or name.startswith((f"{symbol}.", f"{symbol}_part"))]
            lines = [line for name in parts for line in (Instruction(f"{name}:", -1), *found[name])]
            if lines:
                yield symbol, file, lines


def generated_text(text: str, symbols: Sequence[str]) -> str:
    """The text that codegen wrote, of a stored unit that may have Python's entries around it."""
    from minductor.runtime.launch.launch import entry

    skipped = prelude_lines(text)
    if not skipped:
        return text
    ends = [place for symbol in symbols if (place := text.find(entry(symbol))) >= 0]
    return "\n".join(text[: min(ends, default=len(text))].removesuffix("\n").split("\n")[skipped:])


def prelude_lines(text: str) -> int:
    """How many lines of a stored unit stand before the text that codegen wrote."""
    from minductor.runtime.launch.launch import ENTRY_PRELUDE

    return ENTRY_PRELUDE.count("\n") + 1 if text.startswith(ENTRY_PRELUDE) else 0


def _functions(listing: str, file: str, text: str) -> dict[str, list[Instruction]]:
    """The instructions of each function, with addresses from the function's start.

    An instruction of a function that a kernel calls has the line of the call, since that function is inlined.
    """
    skipped = prelude_lines(text)
    kernels = next((number for number, line in enumerate(text.splitlines()) if KERNEL.match(line)), 0) - skipped
    found: dict[str, list[Instruction]] = {}
    body: list[Instruction] = []
    start, places, is_new = 0, list[int](), True
    for line in listing.splitlines():
        if head := FUNCTION.match(line):
            body = found.setdefault(head[1], [])
            start, places = int(line.split()[0], 16), []
        elif line.startswith(" ") and ":" in line:
            address, _, rest = line.partition(":")
            at = next((place for place in places if place >= kernels), -1)
            body.append(Instruction(f"{int(address, 16) - start:5x}  {rest.strip()}", at))
            is_new = True
        elif (place := PLACE.match(line)) and place[2].endswith(f"/{file}"):
            at = int(place[3]) - 1 - skipped
            if not place[1]:
                places = [at]
            else:  # behind an instruction the callers are told again, of the same line
                places = [*(places[:1] if is_new else places), at]
            is_new = False
    return found


def _ran(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _output(command: Sequence[str]) -> bytes:
    try:
        return subprocess.run(command, capture_output=True, timeout=SECONDS, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return b""


# --- GPUs


def _gpu_code(
    contents: Mapping[str, bytes], symbols: Sequence[str], env: Env
) -> Iterator[tuple[str, str, list[Instruction]]]:
    from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches
    from minductor.runtime.build.pool import Pool, pool_size
    from minductor.runtime.build.probe import probe
    from minductor.runtime.build.triton_jobs import compile_kernel
    from minductor.runtime.launch.launch import KERNELS

    if KERNELS not in contents or not env.target.arch or not probe().triton:
        return
    text = contents[KERNELS].decode()
    launches = default_launches(contents[LAUNCHES].decode())
    wanted = [symbol for symbol in symbols if symbol in launches][:MOST_GPU]
    with Pool(pool_size(os.cpu_count() or 1, os.environ)) as pool:
        jobs = [pool.submit(compile_kernel, text, launches[name], env.target.kind, env.target.arch) for name in wanted]
        for symbol, job in zip(wanted, jobs, strict=True):
            yield symbol, KERNELS, list(_assembly(job.result().assembly))


def _assembly(text: str) -> Iterator[Instruction]:
    """The instructions of PTX or of AMD's assembly, without debug sections; `.loc` says the line of those behind it."""
    at = -1
    for line in text.splitlines():
        if place := PTX_PLACE.match(line):
            at = int(place[1]) - 1
        elif line.startswith("\t.section"):
            return
        elif line.strip() and not line.lstrip().startswith(("//", "$L__tmp", ".Ltmp")):
            yield Instruction(line.expandtabs(4), at)
