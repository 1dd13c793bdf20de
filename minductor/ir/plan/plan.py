"""The wrapper IR: one call of a compiled graph as a tuple of frozen lines.

Takes nothing, gives the line classes and `Plan`; wrapper emitters read lines and nothing else. Memory planning is a
function from lines to lines. Buffers are names of storages: a Reuse is a transfer of ownership, a View an alias. The
`handle` of a launch, a call or a Dispatch is a number that no other one of the plan has, those of its regions and
variants included: every wrapper prints it, so that the same call is found in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Kind, Rel, Symbol
from minductor.ir.plan.storage import Storage
from minductor.ir.program.choices import Choice
from minductor.ir.program.nodes import Argument, Body, Guard, Input, Kernel, Origin


@dataclass(frozen=True, slots=True)
class ConstantLine:
    """A lifted tensor, bound at load."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class AllocateLine:
    """A new storage with the layout of its buffer; sizes and strides in elements."""

    name: str
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    device: str


@dataclass(frozen=True, slots=True)
class ReuseLine:
    """`name` takes over the storage of `old`, which is dead from here on; the layout is `name`'s own."""

    name: str
    old: str
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class FreeLine:
    """Drops the wrapper's reference to these storages."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewLine:
    """`name` is a strided window on the tensor `of`; `offset` counts from the storage's first element."""

    name: str
    of: str
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A kernel's text, by id: equal digests share one. `signature`: name and dtype of each tensor parameter.

    `written`: the places of those that it writes. `numbers`: the kinds of the symbols that it takes next; "real" is a
    float, all others are integers. `errors`: what its status k means, the exception's name and message at k - 1 (a text
    for `str.format`, ir/program/signature.py); without any there is no status.
    """

    id: str
    symbol: str
    signature: tuple[tuple[str, str], ...]
    digest: str
    origins: tuple[Origin, ...] = ()
    numbers: tuple[Kind, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    written: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """Runs a kernel on a device: tensors in the order of its signature, then sizes.

    `checked`: the ATen node of each of the kernel's errors, behind its region's name and a dot if it is in one.
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
    """Runs one of several groups of lines that do the same: launches, calls, and windows on tensors.

    `variants` in the order of the choice's options. `tensors` and `sizes` are all that any of them needs from outside,
    `overwritten` those of the tensors that are read and written; `own` is the launch of the kernel that this stands
    for. Equal digests do equal work on tensors of equal sizes.
    """

    choice: Choice
    variants: tuple[tuple[LaunchLine | ExternLine | ViewLine | FreeLine, ...], ...]
    tensors: tuple[str, ...]
    sizes: tuple[Symbol, ...]
    overwritten: tuple[str, ...]
    own: LaunchLine
    digest: str
    origins: tuple[Origin, ...]
    handle: int


@dataclass(frozen=True, slots=True)
class ExternLine:
    """Calls an operator; tensors in the argument tree are `Name`s. `is_out`: results are written into these.

    With `dtypes` the call is checked, since it is not torch's own: its results are to be new tensors of these. `schema`
    is the operator's as torch prints it, for emitters that call it by other ways than its name; the roof writes it in.
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


@dataclass(frozen=True, slots=True)
class LayoutLine:
    """`name`, which an extern returned or a region was given, has this size, else RuntimeError; where its strides
    differ, it is a copy.

    Without strides it is kept as it came.
    """

    name: str
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...] | None


@dataclass(frozen=True, slots=True)
class SizeOf:
    """The number of which a tensor's size along one dimension is `scale * number + shift`."""

    tensor: str
    dim: int
    scale: int = 1
    shift: int = 0


@dataclass(frozen=True, slots=True)
class SymbolLine:
    """A number known once per call: a parameter by its name, a tensor's size, or a scalar body's result."""

    symbol: Symbol
    source: str | SizeOf | Body


@dataclass(frozen=True, slots=True)
class AssertLine:
    """Checked where it stands: what fails it raises RuntimeError(message). `node`: as one of `Launch.checked`."""

    condition: Rel | Body
    message: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class ReturnLine:
    """The call's results, in order; tensors by name."""

    values: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """The lines from here on, up to the next one, belong to the plan's partition of that number."""

    number: int


@dataclass(frozen=True, slots=True)
class DeviceScopeLine:
    """The lines up to the next ScopeEnd run with that device as the current one."""

    device: str


@dataclass(frozen=True, slots=True)
class ScopeEndLine:
    """Ends the scope of a device."""


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
    """The launch of each kernel node, in order."""
    for line in lines:
        if isinstance(line, LaunchLine):
            yield line
        elif isinstance(line, DispatchLine):
            yield line.own


def handles(plan: Plan) -> Iterator[int]:
    """The handles of a plan's calls: those of its own lines in order, then those of its regions.

    A Dispatch has its handle after the lines of its variants.
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
    """Why a call cannot be captured: its node, its operator, the ATen node that it comes from, the reason."""

    node: str
    op: str
    origin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Partition:
    """So many nodes in a row, with so many calls among them; without barriers they can be captured as one."""

    device: str
    nodes: int
    calls: int
    barriers: tuple[Barrier, ...] = ()

    @property
    def is_capturable(self) -> bool:
        return not self.barriers


@dataclass(frozen=True, slots=True)
class Plan:
    """Inputs in calling order, lines in execution order; `kernels` maps an id to its Kernel for the kernel printers.

    `kernels` stays within the compiler: wrapper emitters read the lines, and the JSON (plan_json.py) leaves it out.
    The outermost plan defines the kernels and constants of its regions too. `storages`: the lives that its lines give
    to memory. `verify_plan` holds the lines against them, and, if asked for, each call does.
    """

    name: str
    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    kernels: tuple[tuple[str, Kernel], ...]
    guards: tuple[Guard, ...] = ()
    regions: tuple[Plan, ...] = ()
    storages: tuple[Storage, ...] = ()
    partitions: tuple[Partition, ...] = ()


def replace_operators(plan: Plan, others: Mapping[str, str]) -> Plan:
    """The plan with other operators in the place of some: a device's library in the place of torch's own."""
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
