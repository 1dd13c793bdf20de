"""Which values of a kernel live in registers while a reduction runs.

Takes a body. Gives its ops. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from minductor.ir.program.nodes import Body, Op, Reduce


def alive_across_reductions(body: Body, axes: Collection[str]) -> Iterator[list[Op]]:
    """For each reduction the earlier values along `axes` that are used after it, and so live in registers meanwhile.

    A value that one operation makes of another such value does not count: compilers compute it again.
    """
    last = {arg: position for position, op in enumerate(body.ops) for arg in op.args}
    along = {n for n, op in enumerate(body.ops) if op.dtype is not None and not set(axes).isdisjoint(op.axes)}
    for position, op in enumerate(body.ops):
        if isinstance(op.attrs, Reduce):
            alive = {n for n in along if n < position < last.get(n, 0)}
            again = {
                n for n in alive if alive.intersection(args := body.ops[n].args) >= along.intersection(args) != set()
            }
            yield [body.ops[n] for n in sorted(alive - again)]
