"""What a kernel takes of the registers and units of a GPU: values that live at once, and double precision.

Takes a body. Gives its ops. Refuses nothing.

A compiler for GPUs computes a row element by element and needs few registers, but for three kinds of ops. A reduction
has to see all elements before any is used behind it. A function whose code has branches is called for one element after
the other, and what is needed behind it waits in registers meanwhile. No load moves behind a store, so all elements are
loaded before the first is stored. Measured by compiling rows of 65,536 elements for sm_90: of the functions with
branches all but atan spilled about as many registers as are counted here, the others none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set

from minductor.core.dtypes import F64
from minductor.ir.program.nodes import EFFECTS, Body, Op, Reduce
from minductor.ir.program.ops import op_cost

# functions whose code on a GPU has no branch that matters
STRAIGHT = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "sigmoid", "rsqrt", "erfc", "digamma"),
        *("fast_exp", "fast_sigmoid", "fast_erf", "fast_tanh"),
    )
)
LEAST_BRANCHING = 4  # operations: functions that take fewer have no branches
WORD = 4  # bytes of a register
DOUBLE = 4  # times as long double precision takes: there are half as many units, and divisions take many steps


def alive_at_once(body: Body, axes: Collection[str]) -> Iterator[list[Op]]:
    """The values along `axes` that live in registers at once: at each reduction, function with branches, and store.

    At a reduction these are the earlier values that are used behind it; at a function its own results as well, and at a
    store what it stores. A value that one operation makes of another such value does not count: compilers compute it
    again.
    """
    ops, names = body.ops, set(axes)
    last = {arg: position for position, op in enumerate(ops) for arg in op.args}
    alive: dict[int, None] = {}
    for position, op in enumerate(ops):
        is_along = not names.isdisjoint(op.axes)
        is_store = is_along and isinstance(op.attrs, EFFECTS)
        for arg in () if is_store else op.args:
            if last[arg] == position:
                alive.pop(arg, None)
        is_function = is_along and _has_branches(op)
        if isinstance(op.attrs, Reduce) or is_function or is_store:
            waiting = [ops[n] for n in alive if not _is_made_again(ops, n, alive, names)]
            yield [*waiting, op] if is_function else waiting
        if is_along and last.get(position, 0) > position:
            alive[position] = None


def words(op: Op) -> int:
    """The registers of one value of an op."""
    return 1 if op.dtype is None else max(1, op.dtype.itemsize // WORD)


def double_rate(op: Op) -> int:
    """How many times as long an op takes on a GPU for its dtype."""
    return DOUBLE if op.dtype == F64 and (op.attrs is None or isinstance(op.attrs, Reduce)) else 1


def _has_branches(op: Op) -> bool:
    return op.attrs is None and op.name not in STRAIGHT and op_cost(op.name) >= LEAST_BRANCHING


def _is_made_again(ops: tuple[Op, ...], position: int, alive: Collection[int], names: Set[str]) -> bool:
    """Whether all operands of a value that vary along the axes are alive, and there is one."""
    varying = [arg for arg in ops[position].args if ops[arg].dtype is not None and not names.isdisjoint(ops[arg].axes)]
    return bool(varying) and all(arg in alive for arg in varying)
