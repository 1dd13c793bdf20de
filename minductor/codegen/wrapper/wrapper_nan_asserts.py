"""What a wrapper tests around a launch under option nan_asserts: whether the kernel makes NaN or infinity.

Takes launches and the definitions of their kernels. Gives, for each launch, the results to test and what the kernel
reads; also the storages that a wrapper fills with zeros. Refuses nothing.

A result is an error if it holds NaN and the kernel reads none: no tensor before the launch, no number, no constant of
its body. The same holds for infinity. Results of operators are not tested: eager runs the same operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minductor.core.dtypes import DType, by_name
from minductor.core.expressions.expr import Expr
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import KernelLine, LaunchLine, Line


@dataclass(frozen=True, slots=True)
class Tested:
    """What is tested around one launch: `written` are the results, by the names of their tensors.

    `read` are the tensors that the kernel reads before it overwrites any, `numbers` the other values that it reads and
    that may be NaN or infinite. `nodes` are the ATen nodes of the launch, as in `LaunchLine.checked`.
    """

    kernel: str
    written: tuple[str, ...]
    read: tuple[str, ...]
    numbers: tuple[float | Expr, ...]
    nodes: tuple[str, ...]


class NanAsserts:
    """Says what to test of each launch. `definitions`: those of the kernels of a plan and its regions."""

    def __init__(self, definitions: Iterable[KernelLine]) -> None:
        self._definitions = {line.id: line for line in definitions}

    def tested(self, line: LaunchLine, region: str) -> Tested | None:
        """What is tested around a launch in `region` ("" for the outermost plan); None if no result is a float."""
        about = self._definitions[line.kernel]
        floats = [n for n, (_, dtype) in enumerate(about.signature) if is_tested(by_name(dtype))]
        written = tuple(line.tensors[n] for n in floats if n in about.written)
        if not written:
            return None
        read = tuple(line.tensors[n] for n in floats if n not in about.written or n in about.overwritten)
        given = [size for size, kind in zip(line.sizes, about.numbers, strict=True) if kind == "real"]
        nodes = tuple(f"{region}.{origin.node}" if region else origin.node for origin in line.origins)
        return Tested(about.symbol, written, read, (*given, *map(float, about.nonfinite)), nodes)


def is_tested(dtype: DType) -> bool:
    """Whether tensors of this dtype may hold NaN or infinity."""
    return dtype.kind in ("float", "complex")


def stale(plan_lines: Iterable[Line], written: Mapping[str, tuple[int, ...]]) -> frozenset[str]:
    """The float storages that begin with what somebody else left there: a wrapper fills them with zeros.

    Else a NaN of an earlier call may lie where a kernel stores one, which then would not look new. `written`: as in
    KernelLine, by the kernel's id. A storage that takes over the result of the launch just before it is that result.
    """
    found: set[str] = set()
    fresh: set[str] = set()  # what the launch before this line wrote
    for line in plan_lines:
        match line:
            case lines.DispatchLine(own=own):
                fresh = {own.tensors[place] for place in written[own.kernel]}
                continue
            case lines.LaunchLine():
                fresh = {line.tensors[place] for place in written[line.kernel]}
                continue
            case lines.ReuseLine(name, old, dtype) if old not in fresh and is_tested(dtype):
                found.add(name)
            case lines.AllocateLine(name, dtype) if is_tested(dtype):
                found.add(name)
            case _:
                pass
        if not isinstance(line, lines.ReuseLine):
            fresh = set()
    return frozenset(found)
