"""The reductions and scans of a kernel that runs by its loop nest: accumulators, and what is added to them.

Takes the values of the current iterations. Gives a reduction's result once its loop is complete, and a scan's at each
element. Refuses (WrongNest) accumulators that are missing, shared by threads or incomplete, and a scan out of order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from minductor.ir.program import nodes as ir
from minductor.ir.program.loops import Loop
from minductor.runtime.reference.nest_values import Carry, NestValues, Value
from minductor.runtime.reference.reference import SPELLING, combine_values, torch_dtype


class NestSums(NestValues):
    """Computes ops at the current iterations."""

    def step(self, position: int) -> None:
        """Computes one op for the current iterations."""
        op = self.ops[position]
        self.position = position
        if outside := [name for name in op.axes if self.at[self.number[name]] is None]:
            raise self.fail(f"{self.named(position)} varies over {', '.join(outside)} and stands outside of that loop")
        if position in self.products:
            raise self.fail(f"{self.named(position)} is a product that exists nowhere")
        if isinstance(op.attrs, ir.Reduce | ir.Scan):
            self.joining(position, op, op.attrs)
            return
        args: list[Any] = []
        for a in op.args:
            found = self.value(a, position)
            if isinstance(op.attrs, ir.Project) and op.attrs.number >= len(found):
                raise self.fail(f"{self.named(position)} reads a row, which keeps the first of several results only")
            args.append(found if isinstance(op.attrs, ir.Project) else found[0])
            if isinstance(attrs := self.ops[a].attrs, ir.Check):
                self.symbols[attrs.symbol.name] = found[0]
        if op.is_effect:
            self.count(position, op)
        if position in self.unmasked:
            assert isinstance(op.attrs, ir.Masked)
            (result,) = self.body(op.attrs.body, args[1:])
        else:
            result = self.op(op, args, (), None)
        if not op.is_effect:
            self.define(position, (result,), self.spans(op.axes))

    def joining(self, position: int, op: ir.Op, attrs: ir.Reduce | ir.Scan) -> None:
        """Adds the current iterations of a reduction or scan to its accumulators."""
        axes = _joined(attrs)
        if outside := [name for name in axes if self.at[self.number[name]] is None]:
            raise self.fail(f"{self.named(position)} runs over {', '.join(outside)} and stands outside of that loop")
        args = [value[0] for value in self.terms(position, op)]
        shape = [n if name in (*op.axes, *axes) else 1 for name, n in zip(self.names, self.extents, strict=True)]
        values = [arg.expand(shape) for arg in args]
        carry = self.carries.get(position)
        if carry is None:
            held = {loop.axis for loop in self.opened if loop.kind == "tile"}
            if not held.issuperset(axes):
                raise self.fail(f"no loop carries {self.named(position)}")
            made = self.op(op, values, (), None)
            self.define(position, made, self.spans(op.axes))
            return
        self.refuse_shared(carry)
        if isinstance(attrs, ir.Scan):
            self.define(position, self.scan_on(carry, attrs, values), self.spans(op.axes))
        else:
            self.accumulate(carry, attrs, values, shape)

    def terms(self, position: int, op: ir.Op) -> list[tuple[Tensor, ...]]:
        """The arguments of a reduction. The terms of a matrix product are computed here from its factors."""
        if position not in self.schedule.dots:
            return [self.value(a, position) for a in op.args]
        (product,) = op.args
        factors = [self.value(a, position)[0] for a in self.ops[product].args]
        return [(SPELLING[self.ops[product].name](*factors),)]

    def accumulators(self, position: int, loop: Loop) -> Carry:
        """The accumulators of a reduction or scan: one for each of its elements that are not open here."""
        op = self.ops[position]
        if not isinstance(op.attrs, ir.Reduce | ir.Scan) or loop.axis not in _joined(op.attrs):
            raise self.fail(f"the loop over {loop.axis} carries {self.named(position)}, which does not run over it")
        scan = op.attrs if isinstance(op.attrs, ir.Scan) else None
        if scan is not None and position in self.carries:
            raise self.fail(f"the loop over {loop.axis} begins {self.named(position)} anew")
        spans, is_array = self.array_spans(position, [a for a in op.axes if scan is None or a != scan.axis])
        shape = [1 if span is None else len(span) for span in spans]
        dtypes = [dtype for a in op.args if (dtype := self.ops[a].dtype) is not None]
        first = 0 if scan is None or not scan.reverse else self.lengths[self.number[scan.axis]] - 1
        data = [
            torch.full(shape, identity, dtype=torch_dtype(dtype))
            for identity, dtype in zip(op.attrs.combine.identity, dtypes, strict=True)
        ]
        return Carry(position, data, torch.full(shape, first), spans, len(self.opened), is_array)

    def refuse_shared(self, carry: Carry) -> None:
        """Refuses accumulators to which the open loops may not add."""
        op = self.ops[carry.position]
        assert isinstance(op.attrs, ir.Reduce | ir.Scan)
        name = self.named(carry.position)
        for loop in self.opened[carry.depth :]:
            is_own = loop.axis in op.axes and not (isinstance(op.attrs, ir.Scan) and loop.axis == op.attrs.axis)
            if loop.kind in ("parallel", "grid") and not is_own:
                raise self.fail(
                    f"the iterations of the {loop.kind} loop over {loop.axis} share the accumulators of {name}"
                )
            if not self.is_at_once(loop) or is_own:
                continue
            if isinstance(op.attrs, ir.Scan) or loop.axis not in op.attrs.axes:
                raise self.fail(f"{name} stands in a {loop.kind} loop over {loop.axis}")
            if loop.kind == "vector" and not loop.lanes:
                raise self.fail(f"the vector loop over {loop.axis} has no lanes for {name}")
            if loop.kind == "vector" and carry.is_array:
                raise self.fail(f"{name} has lanes along {loop.axis} and an accumulator for each element of other axes")

    def accumulate(self, carry: Carry, attrs: ir.Reduce, values: Sequence[Tensor], shape: Sequence[int]) -> None:
        numbers = self.weight(attrs.axes)
        where = [slice(None)] * len(self.names)
        for name in attrs.axes:
            n = self.number[name]
            at = self.at[n]
            assert at is not None
            where[n] = slice(at.start, at.stop)
        added = numbers[tuple(where)].expand(shape)
        for loop in self.opened:
            if loop.axis in attrs.axes and self.is_free(loop):
                values = self.fold(values, [self.number[loop.axis]], attrs.combine)
                added = added.sum(self.number[loop.axis], keepdim=True)
        lanes = next((loop for loop in self.opened if loop.kind == "vector" and loop.axis in attrs.axes), None)
        target = self.inside(carry, self.at)
        if lanes is None:
            self.join(carry, values, added, target, self.lanes(attrs))
            return
        n = self.number[lanes.axis]
        split = [each.split(lanes.lanes, n) for each in (*values, added)]
        for *parts, numbers in zip(*split, strict=True):
            self.join(carry, parts, numbers, target)

    def lanes(self, attrs: ir.Reduce) -> dict[int, int]:
        """By axis of a serial loop with lanes, the lane that takes the current element."""
        found = {self.number[o.axis]: o.lanes for o in self.opened if o.kind == "serial" and o.axis in attrs.axes}
        return {n: at.start % lanes for n, lanes in found.items() if lanes and (at := self.at[n]) is not None}

    def inside(self, carry: Carry, spans: Sequence[range | None]) -> list[slice]:
        """Where these elements stand among the accumulators."""
        found: list[slice] = []
        for own, span in zip(carry.spans, spans, strict=True):
            if own is None or span is None:
                found.append(slice(None))
            else:
                found.append(slice(span.start - own.start, span.stop - own.start))
        return found

    def join(
        self,
        carry: Carry,
        values: Sequence[Tensor],
        numbers: Tensor,
        target: Sequence[slice],
        lanes: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Combines values with the accumulators `target`.

        Along a reduced axis there are as many as there are values, from the lane that `lanes` has for it, or the first.
        """
        op = self.ops[carry.position]
        assert isinstance(op.attrs, ir.Reduce)
        where = list(target)
        for name in op.attrs.axes:
            n = self.number[name]
            first, count = lanes.get(n, 0), numbers.shape[n]
            where[n] = slice(first, first + count)
            if (more := first + count - carry.numbers.shape[n]) > 0:
                carry.numbers = _grown(carry.numbers, n, more, 0)
                identities = op.attrs.combine.identity
                carry.data = [_grown(d, n, more, i) for d, i in zip(carry.data, identities, strict=True)]
        at = tuple(where)
        made = combine_values(op.attrs.combine, [each[at].clone() for each in carry.data], values)
        for each, new in zip(carry.data, made, strict=True):
            each[at] = new
        carry.numbers[at] += numbers

    def add(self, outer: Carry, inner: Carry) -> None:
        """Adds the accumulators of an inner loop to those of the loop around it."""
        self.refuse_shared(outer)
        self.join(outer, inner.data, inner.numbers, self.inside(outer, inner.spans))

    def fold_carry(self, carry: Carry) -> None:
        """Combines the accumulators along reduced axes, so that one is left for each element of the result."""
        attrs = self.ops[carry.position].attrs
        if not isinstance(attrs, ir.Reduce):
            raise self.fail(f"{self.named(carry.position)} cannot be cut into parts")
        dims = [self.number[name] for name in attrs.axes]
        carry.data = list(self.fold(carry.data, dims, attrs.combine))
        carry.numbers = carry.numbers.sum(dims, keepdim=True)

    def finish(self, carry: Carry) -> None:
        """Completes a reduction, whose result is known from here on. A scan's values are known in its loop only."""
        op, name = self.ops[carry.position], self.named(carry.position)
        if isinstance(op.attrs, ir.Scan):
            end = -1 if op.attrs.reverse else self.lengths[self.number[op.attrs.axis]]
            if bool((carry.numbers != end).any()):
                raise self.fail(f"{name} has not run over all elements of {op.attrs.axis}")
            return
        assert isinstance(op.attrs, ir.Reduce)
        self.fold_carry(carry)
        if bool((carry.numbers != self.weight(op.attrs.axes).sum()).any()):
            raise self.fail(f"{name} holds some elements of {', '.join(op.attrs.axes)} twice or not at all")
        if not carry.is_array:
            self.define(carry.position, tuple(carry.data), carry.spans)
        elif carry.position in self.rows:
            raise self.fail(f"{name} has accumulators for several elements, and has no value for its row")
        else:
            self.scopes[-1][carry.position] = Value(tuple(carry.data), carry.spans)

    def weight(self, axes: tuple[str, ...]) -> Tensor:
        """A random number for each element of some axes. Sums of them differ if they are sums of other elements."""
        if axes not in self.weights:
            generator = torch.Generator(device="cpu").manual_seed(len(self.weights))
            numbers = torch.randint(-(1 << 62), 1 << 62, self.shape(axes), generator=generator, device="cpu")
            self.weights[axes] = numbers
        return self.weights[axes]

    def scan_on(self, carry: Carry, scan: ir.Scan, values: list[Any]) -> tuple[Tensor, ...]:
        """The values of a scan at the current iterations, which must be those that come next."""
        n = self.number[scan.axis]
        at = self.at[n]
        assert at is not None
        where = tuple(self.inside(carry, self.at))
        first, following = (at.stop - 1, at.start - 1) if scan.reverse else (at.start, at.stop)
        if bool((carry.numbers[where] != first).any()):
            raise self.fail(f"{self.named(carry.position)} does not run over {scan.axis} in order")
        carry.numbers[where] = following
        made = values if len(at) == 1 else self.scan(values, scan.axis, scan.combine, reverse=scan.reverse)
        before = [each[where].clone().expand(new.shape) for each, new in zip(carry.data, made, strict=True)]
        joined = combine_values(scan.combine, before, made)
        for each, new in zip(carry.data, joined, strict=True):
            each[where] = new.expand(made[0].shape).narrow(n, 0 if scan.reverse else len(at) - 1, 1)
        return tuple(new.expand(made[0].shape) for new in joined)


def _joined(attrs: ir.Reduce | ir.Scan) -> tuple[str, ...]:
    """The axes that a reduction or scan runs over."""
    return attrs.axes if isinstance(attrs, ir.Reduce) else (attrs.axis,)


def _grown(data: Tensor, dim: int, more: int, identity: ir.LiteralValue) -> Tensor:
    shape = list(data.shape)
    shape[dim] = more
    return torch.cat([data, torch.full(shape, identity, dtype=data.dtype)], dim)
