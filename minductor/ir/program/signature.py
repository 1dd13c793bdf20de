"""The parameters and the errors of a generated kernel, and the digest that identifies it.

Takes a Kernel. Gives its parameters in order, the errors it may report, and the canonical text of which the digest is a
hash. Refuses nothing. The emitters of wrappers and the printers of kernels both use this file, so they always agree.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from minductor.core.expressions.expr import Symbol
from minductor.ir.program.nodes import (
    CALL_SYMBOL_KINDS,
    Assert,
    Atomic,
    Body,
    Buffer,
    Check,
    Constant,
    Kernel,
    Load,
    Masked,
    Op,
    Ref,
    Store,
    all_ops,
    overwritten,
    symbols_in,
)
from minductor.ir.program.printer import print_kernel


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a kernel in order: a pointer for each storage, the numbers, then the number of threads.

    A kernel with `errors` returns a status, and status k means `errors[k - 1]`. `overwritten` are the storages in
    `written` whose old contents the kernel reads or adds to.
    """

    storages: tuple[str, ...]
    written: frozenset[str]
    overwritten: frozenset[str]
    sizes: tuple[Symbol, ...]
    errors: tuple[tuple[str, str], ...]

    def places(self, storages: Collection[str]) -> tuple[int, ...]:
        """The numbers of the tensor parameters for these storages."""
        return tuple(place for place, name in enumerate(self.storages) if name in storages)


def signature(kernel: Kernel) -> Signature:
    """The signature of a kernel; storages stand in the order in which the body first mentions them."""
    storages: dict[str, None] = {}
    written: set[str] = set()
    for op in all_ops(kernel.body):
        match op.attrs:
            case Load(ref, _):
                storages[ref.storage] = None
            case Store(ref, _) | Atomic(ref, _, _):
                storages[ref.storage] = None
                written.add(ref.storage)
            case _:
                pass
    sizes = [s for s in symbols_in((kernel.axes, kernel.body)) if s.kind in CALL_SYMBOL_KINDS]
    order = tuple(sorted(sizes, key=lambda s: s.name))
    return Signature(tuple(storages), frozenset(written), overwritten((kernel,)), order, kernel_errors(kernel))


def pointer_names(given: Signature) -> tuple[str, ...]:
    """The names of the tensor parameters in generated code: a role and the number of the parameter.

    >>> pointer_names(Signature(("a", "b", "c"), frozenset("bc"), frozenset("c"), (), ()))
    ('in0', 'out1', 'io2')
    """

    def role(storage: str) -> str:
        return "io" if storage in given.overwritten else "out" if storage in given.written else "in"

    return tuple(f"{role(storage)}{place}" for place, storage in enumerate(given.storages))


def pointer_role(pointer: str) -> str:
    """The role in a name of `pointer_names`: "in" is read, "out" is written, "io" is read (or added to) and written."""
    return pointer.rstrip("0123456789")


def may_fail(op: Op) -> bool:
    """Whether an op may set the error flag of the kernel."""
    return isinstance(op.attrs, Assert) or (isinstance(op.attrs, Check) and op.attrs.error is not None)


def kernel_errors(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """The errors that a kernel may report, as an exception's name and message; status k means the k-th one, from 1.

    A message is a template for `str.format` with the wrong index as `value` and the size of the dimension as `size`.
    """
    found: list[tuple[str, str]] = []
    for op in all_ops(kernel.body):
        match op.attrs:
            case Check(error=error) if error is not None:
                found.append((error, op.attrs.message))
            case Assert(message):
                found.append(("RuntimeError", message.replace("{", "{{").replace("}", "}}")))
            case _:
                pass
    return tuple(found)


def nonfinite_constants(kernel: Kernel) -> tuple[str, ...]:
    """NaN and the infinities among the constants of a kernel's body, in order, as Python prints them."""
    values = [
        op.attrs.value if isinstance(op.attrs, Constant) else op.attrs.other
        for op in all_ops(kernel.body)
        if isinstance(op.attrs, Constant | Masked)
    ]
    return tuple(sorted({repr(value) for value in values if isinstance(value, float) and not math.isfinite(value)}))


def error_nodes(kernel: Kernel) -> tuple[str, ...]:
    """The ATen node of each of the kernel's errors, in the order of `kernel_errors`."""
    return tuple([error_node(op) for op in all_ops(kernel.body) if may_fail(op)])


def error_node(op: Op) -> str:
    """The ATen node of a check or assert; "" for another op."""
    return op.attrs.node if isinstance(op.attrs, Check | Assert) else ""


def rename_storages(kernel: Kernel, names: Mapping[Ref, Ref]) -> Kernel:
    """The kernel with each ref that is a key of `names` replaced."""
    return replace(kernel, body=_rename(kernel.body, names))


def _rename(body: Body, names: Mapping[Ref, Ref]) -> Body:
    ops: list[Op] = []
    for op in body.ops:
        match op.attrs:
            case Load(ref) | Store(ref) | Atomic(ref):
                op = replace(op, attrs=replace(op.attrs, ref=names.get(ref, ref)))
            case Masked(inner, other):
                op = replace(op, attrs=Masked(_rename(inner, names), other))
            case _:
                pass
        ops.append(op)
    return Body(tuple(ops), body.results)


def canonical(kernel: Kernel, storages: Sequence[str], buffers: Mapping[str, Buffer]) -> tuple[Kernel, str]:
    """The kernel with its storages renamed to p0, p1, ..., and the text of that kernel, which identifies it.

    `storages` are those of its signature. Two kernels with equal texts compute the same from their parameters, so one
    generated function serves both.
    """
    order = {name: f"p{n}" for n, name in enumerate(storages)}
    versions: dict[str, dict[int, int]] = {name: {} for name in order}
    names: dict[Ref, Ref] = {}
    for op in all_ops(kernel.body):
        if isinstance(op.attrs, Load | Store | Atomic):
            ref = op.attrs.ref
            number = versions[ref.storage].setdefault(ref.version, len(versions[ref.storage]))
            names[ref] = Ref(order[ref.storage], number)
    schedule = kernel.schedule and replace(kernel.schedule, recipe="")  # equal loops are equal, whoever chose them
    plain = replace(rename_storages(kernel, names), name="kernel", origins=(), after=(), schedule=schedule)
    dtypes = ", ".join(f"{new}: {buffers[old].dtype.name}" for old, new in order.items())
    return plain, f"{dtypes}\n{print_kernel(plain)}"


def digest(text: str) -> str:
    """The identity of a kernel: a hash of its canonical text, 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
