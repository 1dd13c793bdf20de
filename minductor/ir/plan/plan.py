"""The plan: what one call of a compiled graph does, as a tuple of lines (allocate, launch, free, return, ...).

Takes nothing. Gives the classes of lines and `Plan`. Refuses nothing. The emitters of wrappers read lines and nothing
else.

Lines name tensors. Several names may stand for one storage: a `ViewLine` makes an alias, and a `ReuseLine` gives a
storage to a new owner. Each launch, call and dispatch has a `handle`, a number that is unique in the plan with its
regions and variants. Every wrapper prints the handle, so that the same call can be found in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Kind, Rel, Symbol
from minductor.ir.plan.storage import Storage
from minductor.ir.program.choices import Choice, Option
from minductor.ir.program.nodes import Argument, Body, Guard, Input, Kernel, Origin


@dataclass(frozen=True, slots=True)
class ConstantLine:
    """Names a tensor of the module, which is bound when the artefact is loaded: constant number `number`."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class AllocateLine:
    """Allocates a storage; sizes and strides are in elements."""

    name: str
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    device: str


@dataclass(frozen=True, slots=True)
class ReuseLine:
    """Gives the storage of `old` to `name`, with the layout in this line; no later line uses `old`."""

    name: str
    old: str
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class FreeLine:
    """Drops the wrapper's references to these tensors."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewLine:
    """Makes `name` a strided view of tensor `of`; `offset` counts elements from the first one of the storage."""

    name: str
    of: str
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, slots=True)
class KernelLine:
    """Defines a generated function; kernels with equal digests share it. `symbol` is its name in the generated code.

    `signature`: the name and dtype of each tensor parameter. `written`: the numbers of the tensor parameters that the
    kernel writes. `numbers`: the kinds of the number parameters after them; "real" is a float, and the others are
    integers. `errors`: the exception's name and message for each status, where status k is `errors[k - 1]`; a kernel
    without errors returns no status. A message is a template for `str.format` (see signature.py). `overwritten`: those
    of `written` whose old contents the kernel reads or adds to. `nonfinite`: "nan", "inf" and "-inf", where they are
    constants of its body. `factors`: for each of `numbers`, the power of two up to MULTIPLE that divides it in the
    example inputs. It decides which of several right binaries is compiled first, and proves nothing.
    """

    id: str
    symbol: str
    signature: tuple[tuple[str, str], ...]
    digest: str
    origins: tuple[Origin, ...] = ()
    numbers: tuple[Kind, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    written: tuple[int, ...] = ()
    overwritten: tuple[int, ...] = ()
    nonfinite: tuple[str, ...] = ()
    factors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """Launches a kernel on a device with the tensors of its signature, then the numbers in `sizes`.

    `checked`: the ATen node of each of the kernel's errors; in a region, with the region's name and a dot before it.
    """

    kernel: str
    tensors: tuple[str, ...]
    sizes: tuple[Expr, ...]
    origins: tuple[Origin, ...]
    handle: int
    device: str = "cpu"
    checked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DispatchLine:
    """Runs one of several groups of lines that compute the same.

    The sizes of the call select the group if the choice is one by size; else the tuner does. `variants`: the groups, in
    the order of the choice's options; a group allocates and frees what only it needs. `tensors` and `sizes`: everything
    that a group uses and does not make. `overwritten`: the tensors that a group both reads and writes, so the tuner
    restores them between two measurements. `own`: the launch of the kernel whose variants the groups are. Dispatches
    with equal digests do equal work on their `tensors` and `sizes`.
    """

    choice: Choice
    variants: tuple[tuple[GroupLine, ...], ...]
    tensors: tuple[str, ...]
    sizes: tuple[Symbol, ...]
    overwritten: tuple[str, ...]
    own: LaunchLine
    digest: str
    origins: tuple[Origin, ...]
    handle: int


# What a group of a dispatch consists of.
GroupLine: TypeAlias = "AllocateLine | LaunchLine | ExternLine | ViewLine | FreeLine"


@dataclass(frozen=True, slots=True)
class ExternLine:
    """Calls an operator. Tensors in the arguments are `Token("tensor", name)`.

    `is_out`: the operator writes into the tensors in `results`. With `dtypes`, the wrapper checks that the operator
    returns new tensors of these dtypes, since the operator is not one of torch's. `schema` is the operator's schema as
    torch prints it, for emitters that do not call the operator by its name; the driver's layer fills it in. `device`:
    that of all its tensors; "" if they are on several, or if it has none.
    """

    op: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    results: tuple[str | None, ...]
    is_out: bool
    origins: tuple[Origin, ...]
    handle: int
    dtypes: tuple[DType | None, ...] = ()
    schema: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class LayoutLine:
    """Checks the layout of a tensor that an operator returned or a region was given.

    Another size is a RuntimeError. If the strides are others than `stride`, a copy with these strides replaces the
    tensor. With `stride` None all strides are accepted.
    """

    name: str
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...] | None


@dataclass(frozen=True, slots=True)
class SizeOf:
    """The number n for which the size of `tensor` along `dim` is `scale * n + shift`."""

    tensor: str
    dim: int
    scale: int = 1
    shift: int = 0


@dataclass(frozen=True, slots=True)
class SymbolLine:
    """Defines a symbol for the call: a parameter's name, a number from a tensor's size, or the result of a body."""

    symbol: Symbol
    source: str | SizeOf | Body


@dataclass(frozen=True, slots=True)
class AssertLine:
    """Raises RuntimeError(message) if the condition is false. `node`: the ATen node, as in `LaunchLine.checked`."""

    condition: Rel | Body
    message: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class ReturnLine:
    """Returns the results of the call, in order; tensors are named."""

    values: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """Begins partition `number` of the plan, which ends at the next PartitionLine."""

    number: int


@dataclass(frozen=True, slots=True)
class DeviceScopeLine:
    """Makes a device the current one until the next ScopeEndLine."""

    device: str


@dataclass(frozen=True, slots=True)
class ScopeEndLine:
    """Ends the scope that a DeviceScopeLine began."""


Line: TypeAlias = (
    ConstantLine
    | AllocateLine
    | ReuseLine
    | FreeLine
    | ViewLine
    | KernelLine
    | LaunchLine
    | DispatchLine
    | ExternLine
    | LayoutLine
    | SymbolLine
    | AssertLine
    | PartitionLine
    | DeviceScopeLine
    | ScopeEndLine
    | ReturnLine
)


def kernel_launches(lines: Iterable[Line]) -> Iterator[LaunchLine]:
    """The launch of each kernel of the program, in order; of a dispatch, the launch of the kernel itself."""
    for line in lines:
        if isinstance(line, LaunchLine):
            yield line
        elif isinstance(line, DispatchLine):
            yield line.own


def handles(plan: Plan) -> Iterator[int]:
    """The handles of a plan's calls in order, then those of its regions.

    The handle of a dispatch comes after those of the lines of its variants.
    """
    for line in plan.lines:
        if isinstance(line, DispatchLine):
            yield from (
                inner.handle for group in line.variants for inner in group if isinstance(inner, LaunchLine | ExternLine)
            )
        if isinstance(line, LaunchLine | ExternLine | DispatchLine):
            yield line.handle
    for region in plan.regions:
        yield from handles(region)


@dataclass(frozen=True, slots=True)
class Barrier:
    """The reason why a call cannot be captured in a device's graph; `origin`: the ATen node that it comes from."""

    node: str
    op: str
    origin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Partition:
    """Consecutive nodes on one device; without barriers the device can capture them as one graph (CUDA graph).

    `nodes` and `calls` are numbers: a call is a launch, or a call of an operator.
    """

    device: str
    nodes: int
    calls: int
    barriers: tuple[Barrier, ...] = ()

    @property
    def is_capturable(self) -> bool:
        return not self.barriers


@dataclass(frozen=True, slots=True)
class Plan:
    """One call of a graph: inputs in calling order, and lines in the order of execution.

    `kernels`: the Kernel of each id, for the printers of kernels; the JSON of a plan leaves them out. The outermost
    plan defines the kernels and constants of its regions too. `storages`: the live range of each storage; `verify_plan`
    compares them with the lines, and so does each call under option `verify_memory`.
    """

    name: str
    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    kernels: tuple[tuple[str, Kernel], ...]
    guards: tuple[Guard, ...] = ()
    regions: tuple[Plan, ...] = ()
    storages: tuple[Storage, ...] = ()
    partitions: tuple[Partition, ...] = ()


def lines_with_groups(plan: Plan) -> Iterator[Line]:
    """The lines of a plan in order, each dispatch behind the lines of its groups."""
    for line in plan.lines:
        if isinstance(line, DispatchLine):
            yield from (inner for group in line.variants for inner in group)
        yield line


def selected(line: DispatchLine, option: Option) -> tuple[GroupLine, ...]:
    """The lines that a dispatch runs if it takes this option of its choice."""
    return line.variants[line.choice.options.index(option)]


def size_places(line: DispatchLine) -> list[int]:
    """The numbers, among the sizes of a dispatch, of those that its choice by size asks for."""
    names = [size.name for size in line.sizes]
    return [names.index(name) for name in line.choice.by_size.symbols] if line.choice.by_size else []


def replace_operators(plan: Plan, others: Mapping[str, str]) -> Plan:
    """The plan with each operator that is a key of `others` replaced, for devices that have libraries of their own."""
    if not others:
        return plan
    lines = tuple([_with_operators(line, others) for line in plan.lines])
    return replace(plan, lines=lines, regions=tuple(replace_operators(region, others) for region in plan.regions))


def _with_operators(line: Line, others: Mapping[str, str]) -> Line:
    match line:
        case ExternLine(op=op) if op in others:
            return replace(line, op=others[op])
        case DispatchLine(variants=variants):
            changed = [tuple(_with_operators(inner, others) for inner in group) for group in variants]
            return replace(line, variants=cast("Any", tuple(changed)))
        case _:
            return line
