"""What a wrapper tests around a launch under option nan_asserts: whether the kernel makes NaN or infinity.

Takes launches and the definitions of their kernels. Gives, for each launch, the results to test and what the kernel
reads; also the storages that a wrapper fills with zeros. Refuses nothing.

A result is an error if it holds NaN and the kernel reads none: no tensor before the launch, no number, no constant of
its body. The same holds for infinity. Results of operators are not tested: eager runs the same operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from minductor.core.dtypes import DType, by_name
from minductor.core.expressions.expr import Expr
from minductor.ir.plan import plan as lines
from minductor.ir.plan.plan import KernelLine, LaunchLine, Line, Plan
from minductor.ir.program.nodes import Constant, Kernel, Masked, all_ops
from minductor.ir.program.signature import signature


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
    """Says what to test of each launch of a plan and its regions. `plan` is the outermost one, with the kernels."""

    def __init__(self, plan: Plan) -> None:
        self._definitions = {line.id: line for line in plan.lines if isinstance(line, KernelLine)}
        self._kernels = dict(plan.kernels)

    def tested(self, line: LaunchLine, region: str) -> Tested | None:
        """What is tested around a launch in `region` ("" for the outermost plan); None if no result is a float."""
        about, kernel = self._definitions[line.kernel], self._kernels[line.kernel]
        needs = signature(kernel)
        rows = list(zip(line.tensors, about.signature, needs.storages, strict=True))
        floats = [(name, storage) for name, (_, dtype), storage in rows if is_tested(by_name(dtype))]
        written = tuple(name for name, storage in floats if storage in needs.written)
        if not written:
            return None
        is_only_written = needs.written - needs.overwritten
        read = tuple(name for name, storage in floats if storage not in is_only_written)
        given = [size for size, kind in zip(line.sizes, about.numbers, strict=True) if kind == "real"]
        nodes = tuple(f"{region}.{origin.node}" if region else origin.node for origin in line.origins)
        return Tested(about.symbol, written, read, (*given, *_constants(kernel)), nodes)


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


def _constants(kernel: Kernel) -> Iterator[float]:
    """NaN and the infinities among the constants of a kernel's body, each once."""
    values = [
        op.attrs.value if isinstance(op.attrs, Constant) else op.attrs.other
        for op in all_ops(kernel.body)
        if isinstance(op.attrs, Constant | Masked)
    ]
    found = {repr(value): value for value in values if isinstance(value, float) and not math.isfinite(value)}
    yield from (found[text] for text in sorted(found))
