"""How a Triton kernel is launched: its tile, its block sizes, its number of programs and its parameters.

Takes a Kernel whose schedule has grid loops. Gives the tile for the kernel's printer, and LaunchMetadata for those who
compile and launch the kernel. Refuses a kernel without a schedule (ValueError).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from minductor.analysis.greatest_index import greatest_index
from minductor.codegen.triton.triton_values import triton_type
from minductor.core.dtypes import DType
from minductor.core.expressions.bounds import known_factor
from minductor.core.expressions.expr import (
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Symbol,
    as_int,
    const_and_terms,
    expand,
    floordiv,
    free_symbols,
    integer,
)
from minductor.ir.artefact.launch_metadata import COUNTER, INDEX_BITS, MULTIPLE, LaunchMetadata, Postfix
from minductor.ir.program.choices import Choice, defaults, open_choices
from minductor.ir.program.loops import Loop, loops, positions
from minductor.ir.program.nodes import Atomic, Kernel, Load, Store, all_ops
from minductor.ir.program.signature import pointer_names, signature
from minductor.target import Env

GRID, REDUCED = ("XBLOCK", "YBLOCK", "ZBLOCK"), ("R0_BLOCK", "R1_BLOCK", "R2_BLOCK", "R3_BLOCK")
INDEX = "INDEX"  # the type of indices in the text of kernels whose launches decide it
LEAST_MULTIPLE = 4  # a smaller factor of a size hardly lets a thread load more at once
LAST = "LAST_"  # begins the names of the block sizes of the parts that finish a kernel


@dataclass(frozen=True, slots=True)
class Dim:
    """One axis of a tile: the parameter for its block size ("" for a grid axis of single elements), and the size."""

    axis: str
    parameter: str
    block: int
    is_reduced: bool


def tile_of(kernel: Kernel, prefix: str = "") -> tuple[Dim, ...]:
    """The axes of the schedule, each once, from the outermost to the innermost; `prefix` begins their parameters."""
    if kernel.schedule is None:
        raise ValueError(f"kernel {kernel.name} has no schedule")
    found: dict[str, Loop] = {}
    for loop in loops(kernel.schedule.steps):
        found.setdefault(loop.axis, loop)
    grid = [loop for loop in found.values() if loop.kind == "grid"]
    inner = [loop for loop in found.values() if loop.kind != "grid"]
    dims: list[Dim] = []
    for group, names in ((grid, GRID), (inner, REDUCED)):
        wide = [loop.axis for loop in reversed(group) if loop.block > 1]
        for loop in group:
            name = prefix + names[wide.index(loop.axis)] if loop.axis in wide else ""
            dims.append(Dim(loop.axis, name, loop.block, loop.kind != "grid"))
    return tuple(dims)


def part_kernels(kernel: Kernel) -> tuple[Kernel, ...]:
    """The parts of a kernel that `bundle` made of several: one kernel each.

    All have the same block sizes, but for those that finish the kernel: these share other ones.
    """
    schedule = kernel.schedule
    if schedule is None or not schedule.parts:
        return (kernel,)
    made: list[Kernel] = []
    for start, stop in pairwise((0, *schedule.parts, len(schedule.steps))):
        steps = schedule.steps[start:stop]
        own = set(positions(steps))
        access = tuple(access for access in kernel.access if access.path[0] in own)
        made.append(replace(kernel, schedule=replace(schedule, steps=steps, parts=()), access=access))
    return tuple(made)


def blocks(kernel: Kernel) -> dict[str, int]:
    """The size of each block parameter."""
    first, *_ = part_kernels(kernel)
    finishing = (dim for part in finishing_parts(kernel)[:1] for dim in tile_of(part, LAST))
    return {dim.parameter: dim.block for dim in (*tile_of(first), *finishing) if dim.parameter}


def finishing_parts(kernel: Kernel) -> tuple[Kernel, ...]:
    """The parts with which the program that ends last finishes the kernel; the other ones share its programs."""
    count = 0 if kernel.schedule is None else kernel.schedule.finishing
    return part_kernels(kernel)[-count:] if count else ()


def shared_parts(kernel: Kernel) -> tuple[Kernel, ...]:
    """The parts of a kernel that are not among `finishing_parts`."""
    parts = part_kernels(kernel)
    return parts[: len(parts) - len(finishing_parts(kernel))]


def index_type(kernel: Kernel) -> str:
    """The type of a kernel's indices in its text: INDEX if the sizes of a call decide."""
    greatest = greatest_index(kernel)
    return "tl.int64" if greatest is None else "tl.int32" if greatest == 0 else INDEX


def index_definition() -> str:
    """The line that defines INDEX, at the start of a kernel."""
    return f"{INDEX}: tl.constexpr = tl.int64 if {INDEX_BITS} == 64 else tl.int32"


def programs(kernel: Kernel, open_blocks: Container[str] = ()) -> Postfix:
    """The number of programs of a launch: the sum over the kernels that `bundle` put side by side.

    The block parameters in `open_blocks` stay names; the other ones are replaced by their sizes.
    """
    return _chain([_programs(side, open_blocks) for side in shared_parts(kernel)], "+")


def _programs(kernel: Kernel, open_blocks: Container[str]) -> Postfix:
    """The product of the numbers of blocks along the axes that are not reduced."""
    factors: list[Postfix] = []
    extents = {axis.name: axis.extent for axis in kernel.axes}
    for dim in tile_of(kernel):
        count = floordiv(extents[dim.axis] + (dim.block - 1), dim.block)
        if dim.is_reduced:
            continue
        if dim.parameter in open_blocks:
            factors.append((*postfix(extents[dim.axis]), dim.parameter, "+", 1, "-", dim.parameter, "//"))
        elif as_int(count) != 1:
            factors.append(postfix(count))
    return _chain(factors, "*") or (1,)


def postfix(expr: Expr) -> Postfix:
    """An index expression in reverse Polish notation.

    >>> from minductor.core.expressions.expr import symbol
    >>> s0 = symbol("s0", "size", 1)
    >>> postfix(floordiv(3 * s0 + 7, 8)), postfix(3 - s0)
    ((3, 's0', '*', 7, '+', 8, '//'), (-1, 's0', '*', 3, '+'))
    """
    match expr:
        case Const(value):
            return (value,)
        case Symbol(name):
            return (name,)
        case Sum(const, terms):
            scaled = [postfix(term) if factor == 1 else (factor, *postfix(term), "*") for term, factor in terms]
            return _chain([*scaled, (const,)] if const else scaled, "+")
        case Product(args):
            return _chain(map(postfix, args), "*")
        case Min(args):
            return _chain(map(postfix, args), "min")
        case Max(args):
            return _chain(map(postfix, args), "max")
        case FloorDiv(num, den):
            return (*postfix(num), *postfix(den), "//")
        case Mod(num, den):
            return (*postfix(num), *postfix(den), "%")
        case _:
            raise ValueError(f"no number of programs: {expr}")


def _chain(operands: Iterable[Postfix], operator: str) -> Postfix:
    """The operands joined by an operator, from the left; () without operands."""
    found: Postfix = ()
    for operand in operands:
        found = (*found, *operand, operator) if found else operand
    return found


def launch_metadata(
    kernel: Kernel,
    symbol: str,
    dtypes: Mapping[str, DType],
    choices: Sequence[Choice] = (),
    factors: Sequence[int] = (),
) -> LaunchMetadata:
    """How the function `symbol` of a kernel is launched, with the default options of the kernel's choices.

    `choices`: those of the kernel's choices whose options may be measured. `factors`: what divides its numbers in the
    example inputs.
    """
    found = defaults(kernel.choices)
    warps, stages, registers = (found.get(name) for name in ("warps", "stages", "registers"))
    assert isinstance(warps, int) and isinstance(stages, int | None) and isinstance(registers, int | None)
    kinds = dict(parameters(kernel, dtypes))
    options = _options(kernel, choices)
    has_blocks = not options.keys() <= {"warps", "stages"}
    sizes = zip(signature(kernel).sizes, factors, strict=False)
    deciding = deciding_sizes(kernel) if any(factor >= LEAST_MULTIPLE for factor in factors) else ()
    bits = {INDEX_BITS: 32} if INDEX_BITS in kinds else {}
    return LaunchMetadata(
        symbol,
        kinds,
        programs(kernel),
        bits | blocks(kernel),
        warps,
        stages,
        registers,
        choices=options,
        grid=programs(kernel, options) if has_blocks else (),
        greatest_index=postfix(greatest_index(kernel) or integer(0)) if bits else (),
        multiples={s.name: factor for s, factor in sizes if s in deciding and factor >= LEAST_MULTIPLE},
    )


def deciding_sizes(kernel: Kernel) -> set[Symbol]:
    """The sizes whose factors decide how many elements a thread loads at once: those of distances, and of masks."""
    found: set[Symbol] = set()
    near: set[Symbol] = set()  # the axes along which elements lie close together
    for op in all_ops(kernel.body):
        if isinstance(op.attrs, Load | Store | Atomic):
            terms = (factor * term for term, factor in const_and_terms(expand(op.attrs.index))[1])
            for symbols in (free_symbols(term) for term in terms if known_factor(term) % MULTIPLE):
                sizes = [s for s in symbols if s.kind == "size"]
                found.update(sizes)
                near.update(() if sizes else symbols)
    blocked = {dim.axis for part in part_kernels(kernel) for dim in tile_of(part) if dim.parameter}
    for axis in kernel.axes:
        if axis.name in blocked and axis.symbol in near and known_factor(axis.extent) % MULTIPLE:
            found.update(s for s in free_symbols(axis.extent) if s.kind == "size")
    return found


def _options(kernel: Kernel, choices: Sequence[Choice]) -> dict[str, tuple[int, ...]]:
    """The options of each choice. The choice of the block size of an axis gets the name of the block parameter."""
    dims = (dim for part in shared_parts(kernel) for dim in tile_of(part)) if choices else ()
    names = {dim.axis: dim.parameter for dim in dims}
    found = {names.get(c.id, c.id): tuple(sorted(n for n in c.options if isinstance(n, int))) for c in choices}
    return {name: options for name, options in found.items() if name}


def launch_choices_of(kernel: Kernel, env: Env) -> tuple[Choice, ...]:
    """The choices of a kernel that may be measured and whose options share the kernel's text."""
    found = open_choices(kernel.choices, is_deterministic=env.options.deterministic)
    return tuple(choice for choice in found if choice.id in ("warps", "stages") or _is_open(kernel, choice))


def _is_open(kernel: Kernel, choice: Choice) -> bool:
    """Whether a choice is a block size that the kernel's text does not contain."""
    return choice.id in {axis.name for axis in kernel.axes} and all(access.is_plain for access in kernel.access)


def parameters(kernel: Kernel, dtypes: Mapping[str, DType]) -> tuple[tuple[str, str], ...]:
    """The name and Triton's type of each parameter of a kernel, in order; constants are "constexpr"."""
    given = signature(kernel)
    is_by_size = index_type(kernel) == INDEX
    found: list[tuple[str, str]] = []
    for name, storage in zip(pointer_names(given), given.storages, strict=True):
        found.append((name, f"*{_pointee(dtypes[storage])}"))
    for size in given.sizes:
        whole = "i32" if is_by_size and size.kind == "size" else "i64"
        found.append((size.name, "fp64" if size.kind == "real" else whole))
    if finishing_parts(kernel):
        found.append((COUNTER, "*i32"))
    constants = (*([INDEX_BITS] * is_by_size), *blocks(kernel))
    return (*found, *((name, "constexpr") for name in constants))


def _pointee(dtype: DType) -> str:
    name = triton_type(dtype).removeprefix("tl.")
    short = {"int1": "i1", "bfloat16": "bf16", "float8e4nv": "fp8e4nv", "float8e5": "fp8e5"}
    return short.get(name) or name.replace("uint", "u").replace("float", "fp").replace("int", "i")
