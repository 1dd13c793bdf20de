"""The kernels of a Plan as Triton: one function each, all in one module.

Takes a Plan (or one Kernel) whose kernels have schedules of grid loops. Gives the unit of text, complete with the
functions of our own that it uses. Refuses what Triton cannot write (Unwritable). The text depends on shapes and dtypes
only; block sizes are parameters of a launch. A second unit, `launches.json`, says how each kernel is launched; where
choices are to be measured, it also lists their options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from minductor.codegen.cpp.cpp_kernels import comment
from minductor.codegen.line_marks import read_marks
from minductor.codegen.triton.triton_edges import tile_printer
from minductor.codegen.triton.triton_launch import (
    INDEX,
    LAST,
    finishing_parts,
    index_definition,
    launch_choices_of,
    launch_metadata,
    parameters,
    shared_parts,
)
from minductor.codegen.triton.triton_math import prelude
from minductor.codegen.triton.triton_tile import TilePrinter
from minductor.core.dtypes import DType, by_name
from minductor.ir.artefact.launch_metadata import COUNTER, LAUNCHES, LaunchMetadata, print_launches
from minductor.ir.artefact.source import Unit
from minductor.ir.plan.plan import KernelLine, Plan
from minductor.ir.program.nodes import Kernel, Origin
from minductor.target import Env

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice
"""


def triton(plan: Plan, env: Env) -> tuple[Unit, ...]:
    """The unit with every kernel of the plan once, and the unit that says how they are launched."""
    bodies = dict(plan.kernels)
    functions: dict[str, str] = {}
    symbols: list[str] = []
    launches: list[LaunchMetadata] = []
    for line in plan.lines:
        if isinstance(line, KernelLine):
            dtypes = {name: by_name(dtype) for name, dtype in line.signature}
            symbols.append(line.symbol)
            given = (bodies[line.id], line.symbol, dtypes, line.origins if env.options.provenance else ())
            functions.update(kernel_functions(*given, is_marked=env.options.provenance > 1))
            choices = launch_choices_of(bodies[line.id], env) if env.options.autotune else ()
            # bits may depend on how many elements a thread loads at once
            factors = () if env.options.deterministic else line.factors
            launches.append(launch_metadata(bodies[line.id], line.symbol, dtypes, choices, factors))
    if not symbols:
        return ()
    text, line_maps = read_marks(unit_text(functions.values(), is_amd=env.target.kind == "hip"))
    module = Unit("kernels", text, tuple(symbols), "py", line_maps)
    return (module, Unit(Path(LAUNCHES).stem, print_launches(launches), (), "json"))


def unit_text(parts: Iterable[str], *, is_amd: bool = False) -> str:
    """A complete module: imports, the functions of triton_math.py that are called, and the given functions."""
    joined = "\n\n".join(parts)
    needed = prelude(joined, is_amd=is_amd)
    return "\n\n".join(part for part in (HEADER, needed, joined) if part)


def kernel_functions(
    kernel: Kernel,
    symbol: str,
    dtypes: Mapping[str, DType],
    origins: tuple[Origin, ...] | None = None,
    *,
    is_marked: bool = False,
) -> dict[str, str]:
    """The function of a kernel below a comment that names its ATen nodes, and the functions that combine its values.

    By name. Kernels with equal combining functions share them. If `is_marked`, the lines of the kernel's function end
    with the marks of the ops that they compute.
    """
    body, functions = _body(kernel, symbol, dtypes, is_marked=is_marked)
    given = [f"{name}: tl.constexpr" if kind == "constexpr" else name for name, kind in parameters(kernel, dtypes)]
    head = [f"# {line.removeprefix('// ')}" for line in comment(kernel.origins if origins is None else origins)]
    text = [*head, "@triton.jit", f"def {symbol}({', '.join(given)}):", *(f"    {line}" for line in body)]
    return {**functions, symbol: "\n".join(text) + "\n"}


def _body(
    kernel: Kernel, symbol: str, dtypes: Mapping[str, DType], *, is_marked: bool
) -> tuple[list[str], dict[str, str]]:
    """The lines of a kernel, and the functions that they call. The parts of a bundled kernel have programs of their
    own, but for those that finish it.
    """
    first, *more = tuple(tile_printer(side, symbol, dtypes) for side in shared_parts(kernel))
    finishing = [tile_printer(part, symbol, dtypes, LAST) for part in finishing_parts(kernel)]
    for printer in (first, *more, *finishing):
        printer.is_marked = is_marked
    if more:
        lines = ["number = tl.program_id(0)", f"end0 = {first.programs()}", "if number < end0:"]
        lines += [f"    {line}" for line in first.lines("number")]
    else:
        lines = first.lines()
    if first.index_type == INDEX:
        lines = [index_definition(), *lines]
    functions, count = dict(first.functions), first.count
    for n, side in enumerate(more, 1):
        side.count = count  # so that two parts share no names
        lines.append(f"end{n} = end{n - 1} + {side.programs()}")
        lines.append(f"if (number >= end{n - 1}) & (number < end{n}):")
        lines += [f"    {line}" for line in side.lines(f"(number - end{n - 1})")]
        functions, count = functions | side.functions, side.count
    block, blocks = _finished_block(first)
    lines += _if_last(block, blocks) if finishing else ()
    for part in finishing:
        part.count = count
        lines += [f"    {line}" for line in part.lines(block or "0")]
        functions, count = functions | part.functions, part.count
    return lines, functions


def _finished_block(first: TilePrinter) -> tuple[str, str]:
    """The number of a program's block of the axis whose blocks are finished one by one, and how many there are."""
    axis = first.kernel.schedule.finishing_blocks if first.kernel.schedule is not None else ""
    for dim in first.tile:
        if dim.axis == axis:
            return f"{axis}_block" if dim.parameter else axis, first.count_of(dim)
    return "", ""


def _if_last(block: str, blocks: str) -> list[str]:
    """What a program does when it has stored its results: it adds 1 to the counter, and goes on if it is the last one.

    `block`: the number of its block, of so many `blocks`, if those with the same block are counted by themselves.

    The barrier is there since one thread adds for all threads of a program. "acq_rel" orders the stores of all programs
    before the loads of the last one. It makes the thread that adds drop what the first-level cache holds, and the
    other threads wait for that one, so that none of them reads an older value.
    """
    counter = f"{COUNTER} + {block}" if block else COUNTER
    count = f"tl.num_programs(0) // {blocks}" if block else "tl.num_programs(0)"
    return [
        "tl.debug_barrier()",
        f"if tl.atomic_add({counter}, 1, sem='acq_rel', scope='gpu') == {count} - 1:",
        f"    tl.store({counter}, 0)",
    ]
