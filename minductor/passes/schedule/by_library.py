"""The variant of a matrix product kernel that calls torch's matrix library for the products.

Takes a Kernel without a schedule, its products and the program's buffers. Gives a Variant of up to three kinds of
nodes: kernels that write operands that are not matrices in memory yet, a call for each product, and a kernel for the
rest, the epilogue. Refuses (None) products with several batch axes or inner axes, operands that are no matrices of
equal dtype, and kernels that can raise an error, which two nodes would raise twice.

If the rest is only a bias or nothing, the call writes the result itself. Each node of the variant names the ATen nodes
that it computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from minductor.analysis.domain import extents_of
from minductor.analysis.domain import product as product_of
from minductor.core.dtypes import TF32, DType, compute_dtype
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, free_symbols, integer, linear
from minductor.ir.program.build import Builder
from minductor.ir.program.dots import Dots, Product
from minductor.ir.program.needed import needed
from minductor.ir.program.nodes import (
    Axis,
    Body,
    Buffer,
    Constant,
    Extern,
    Index,
    Kernel,
    Load,
    Op,
    Origin,
    Reduce,
    Ref,
    Round,
    Store,
    Variant,
    View,
    all_ops,
)
from minductor.ir.program.signature import may_fail
from minductor.passes.rewriting.prune import prune_body

ADDED: Mapping[str, str] = {"aten.mm.out": "aten.addmm.out", "aten.bmm.out": "aten.baddbmm.out"}
REASON = "the variant of a matrix product that calls the library"
SHARED = (Load, Store, Constant, Index, Round)  # ops that compute nothing, which several ATen nodes may share


def by_library(kernel: Kernel, dots: Dots, buffers: Mapping[str, Buffer]) -> Variant | None:
    """The variant "extern" of a kernel of matrix products, or None."""
    if any(may_fail(op) for op in all_ops(kernel.body)):
        return None
    work = _Split(kernel, dots, buffers)
    calls = [work.call(product) for product in dots.products]
    if any(call is None for call in calls):
        return None
    made = [call for call in calls if call is not None]
    rest = work.rest()
    direct = work.direct(made[0], rest) if len(made) == 1 else None
    if direct is not None:
        work.ops[direct.name] += tuple(all_ops(rest.body))
        work.buffers = [b for b in work.buffers if b.name != work.results[dots.products[0].reduce].ref.storage]
    nodes = (*work.operands, *((*made, rest) if direct is None else (direct,)))
    pieces = [tuple(all_ops(node.body)) if isinstance(node, Kernel) else work.ops[node.name] for node in nodes]
    shares = _shares(kernel.origins, pieces)
    named = tuple(_with_origins(node, share) for node, share in zip(nodes, shares, strict=True))
    return Variant("extern", tuple(work.buffers), named)


@dataclass(slots=True)
class _Matrix:
    """An operand of the library's call: a view, its dtype, and the ops that the library does itself (load, cast)."""

    view: View
    dtype: DType
    read: tuple[Op, ...]  # empty if a kernel computes the operand first


class _Split:
    """Splits one kernel into operands, calls and the rest. `results`: by reduction, the buffer that its call writes."""

    def __init__(self, kernel: Kernel, dots: Dots, table: Mapping[str, Buffer]) -> None:
        self.kernel = kernel
        self.dots = dots
        self.table = table
        self.axes = {axis.name: axis for axis in kernel.axes}
        self.buffers: list[Buffer] = []
        self.operands: list[Kernel] = []
        self.results: dict[int, View] = {}
        self.ops: dict[str, tuple[Op, ...]] = {}  # by the name of a call, the ops that it computes
        self.device = next(table[op.attrs.ref.storage].device for op in kernel.body.ops if isinstance(op.attrs, Store))

    def batch(self, product: Product) -> tuple[str, ...]:
        """The axes of a product beside its row, column and inner axis."""
        ops = self.kernel.body.ops
        seen = {*ops[product.left].axes, *ops[product.right].axes} - {self.dots.row, self.dots.column, self.dots.inner}
        return tuple(name for name in self.axes if name in seen)

    def call(self, product: Product) -> Extern | None:
        """The call for one product, which writes a buffer of the variant; None if the library cannot compute it."""
        batch = self.batch(product)
        reduce = self.kernel.body.ops[product.reduce].attrs
        assert isinstance(reduce, Reduce)
        if len(batch) > 1 or reduce.axes != (self.dots.inner,):
            return None
        left = self.matrix(product.left, (*batch, self.dots.row, self.dots.inner))
        right = self.matrix(product.right, (*batch, self.dots.inner, self.dots.column))
        if left is None or right is None or left.dtype != right.dtype:
            return None
        out = self.buffer(left.dtype, (*batch, self.dots.row, self.dots.column))
        self.results[product.reduce] = out
        op = "aten.bmm.out" if batch else "aten.mm.out"
        name = f"{self.kernel.name}_call{product.reduce}"
        ops = self.kernel.body.ops
        self.ops[name] = (ops[product.reduce], ops[ops[product.reduce].args[0]], *left.read, *right.read)
        return Extern(name, op, (left.view, right.view), (), (out,), self.kernel.origins, REASON, "out")

    def buffer(self, dtype: DType, axes: Sequence[str]) -> View:
        """A new contiguous buffer of the variant, as a view of it."""
        size = tuple(self.axes[name].extent for name in axes)
        strides = tuple(product_of(size[n + 1 :]) for n in range(len(size)))
        name = f"{self.kernel.name}_tmp{len(self.buffers)}"
        self.buffers.append(Buffer(name, dtype, size, strides, "local", self.device))
        return View(Ref(name, 0), dtype, size, strides, integer(0))

    def matrix(self, position: int, axes: Sequence[str]) -> _Matrix | None:
        """An operand as a matrix: in memory already, or written by a kernel first."""
        ops = self.kernel.body.ops
        op = ops[position]
        assert op.dtype is not None
        dtype, source = op.dtype, op
        if isinstance(op.attrs, Round):
            dtype = op.dtype if op.attrs.dtype == TF32 else op.attrs.dtype
            source = ops[op.args[0]]
        if isinstance(source.attrs, Load) and self.table[source.attrs.ref.storage].dtype == dtype:
            view = self.window(source.attrs, dtype, axes)
            if view is not None:
                return _Matrix(view, dtype, (source, op))
        return self.computed(position, dtype, axes)

    def window(self, load: Load, dtype: DType, axes: Sequence[str]) -> View | None:
        """The elements of a load as a strided tensor; None if they are not one."""
        split = linear(load.index, [self.axes[name].symbol for name in axes])
        if split is None or any(s.kind in ("axis", "value") for s in free_symbols(split[1])):
            return None
        strides = tuple(split[0][self.axes[name].symbol] for name in axes)
        is_bent = any(s.kind == "axis" for stride in strides for s in free_symbols(stride))
        if is_bent or not all(at_least(stride, 0) for stride in strides):
            return None
        return View(load.ref, dtype, tuple(self.axes[name].extent for name in axes), strides, split[1])

    def computed(self, position: int, dtype: DType, axes: Sequence[str]) -> _Matrix | None:
        """An operand that a new kernel writes, over the axes that it varies over; along other axes it has stride 0."""
        inside = _slice(self.kernel.body, position)
        varying = {name for op in inside.ops for name in op.axes}
        own = [name for name in axes if name in varying]
        if not varying <= set(axes):
            return None
        out = self.buffer(dtype, own)
        chosen = tuple(self.axes[name] for name in own)
        builder = Builder([axis.symbol for axis in chosen], extents_of(chosen))
        places = builder.splice(inside, {})
        builder.node = self.kernel.body.ops[position].node
        builder.store(out.ref, _index(out, chosen), places[inside.results[0]])
        name = f"{self.kernel.name}_operand{position}"
        self.operands.append(Kernel(name, chosen, builder.build(), self.kernel.origins))
        stride = dict(zip(own, out.stride, strict=True))
        sizes = tuple(self.axes[name].extent for name in axes)
        view = View(out.ref, dtype, sizes, tuple(stride.get(n, integer(0)) for n in axes), out.offset)
        return _Matrix(view, dtype, ())

    def rest(self) -> Kernel:
        """The kernel for what follows the products; it loads their results."""
        ops = list(self.kernel.body.ops)
        for product in self.dots.products:
            out = self.results[product.reduce]
            axes = [self.axes[name] for name in (*self.batch(product), self.dots.row, self.dots.column)]
            load = Load(out.ref, _index(out, axes))
            old = ops[product.reduce]
            ops[product.reduce] = Op("load", (), load, compute_dtype(out.dtype), old.axes, old.node)
        body = prune_body(Body(tuple(ops)))
        used = {name for op in body.ops for name in op.loop_axes}
        axes = tuple(axis for axis in self.kernel.axes if axis.name in used)
        return replace(self.kernel, name=f"{self.kernel.name}_rest", axes=axes, body=body, after=())

    def direct(self, call: Extern, rest: Kernel) -> Extern | None:
        """The call that writes the kernel's result itself, if the rest only stores it or adds a matrix; else None."""
        store = rest.body.ops[-1].attrs
        loads = [op.attrs for op in rest.body.ops if isinstance(op.attrs, Load)]
        if not isinstance(store, Store) or len(loads) + 1 + (len(loads) == 2) != len(rest.body.ops):
            return None
        (view,) = self.results.values()
        made = next(load for load in loads if load.ref == view.ref)
        out = self.table[store.ref.storage]
        whole = replace(view, ref=store.ref)
        is_same = (out.size, out.stride, out.dtype) == (view.size, view.stride, view.dtype)
        if store.index != made.index or store.ref.version or not is_same:
            return None
        if len(loads) == 1:
            return replace(call, results=(whole,))
        base = next(load for load in loads if load.ref != view.ref)
        axes = [name for name in self.axes if name in (rest.body.ops[-1].axes)]
        window = self.window(base, out.dtype, axes) if self.table[base.ref.storage].dtype == out.dtype else None
        if rest.body.ops[-2].name != "add" or window is None or window.size != view.size:
            return None
        if call.op == "aten.mm.out" and window.stride[0] == integer(0):
            # as a vector, torch lets the library add it; a matrix it would copy into the result first
            window = replace(window, size=window.size[1:], stride=window.stride[1:])
        return replace(call, op=ADDED[call.op], args=(window, *call.args), results=(whole,))


def _shares(origins: tuple[Origin, ...], pieces: Sequence[Sequence[Op]]) -> Iterator[tuple[Origin, ...]]:
    """For each piece of a kernel, given as the ops that it computes, the origins (ATen nodes) that it computes.

    An origin belongs to the pieces that compute one of its ops. Several origins may share a load, constant or rounding,
    which then names only the first of them. So these ops count only for an origin that has no other op, such as a copy.
    An origin without any op belongs to the piece of the next origin. In a kernel that was read from text the ops do not
    name origins; then each piece has all of them.
    """
    named = [{op.node for op in ops if not isinstance(op.attrs, SHARED)} for ops in pieces]
    named_nodes = set[str]().union(*named)
    for ops, nodes in zip(pieces, named, strict=True):
        every = {op.node for op in ops}
        nodes.update(every - named_nodes)
        if nodes <= {""}:  # the piece only copies what others load as well
            nodes.update(every)
    named_nodes = set[str]().union(*named)
    following = named[-1]
    for origin in reversed(origins):
        if origin.node in named_nodes:
            following = next(nodes for nodes in named if origin.node in nodes)
        else:
            following.add(origin.node)
    for nodes in named:
        yield tuple(origin for origin in origins if origin.node in nodes) or origins


def _with_origins(node: Kernel | Extern, origins: tuple[Origin, ...]) -> Kernel | Extern:
    """The node with its share of the origins. An op that names another origin names that of the op which uses it."""
    if not isinstance(node, Kernel):
        return replace(node, origins=origins)
    ops, own = list(node.body.ops), {origin.node for origin in origins}
    user = dict.fromkeys(range(len(ops)), origins[-1].node if origins else "")
    for position in range(len(ops) - 1, -1, -1):
        op = ops[position]
        if op.node and op.node not in own:
            op = ops[position] = replace(op, node=user[position])
        user.update(dict.fromkeys(op.args, op.node))
    return replace(node, body=replace(node.body, ops=tuple(ops)), origins=origins)


def _slice(body: Body, position: int) -> Body:
    """The ops that a value is computed from, as a body with this value as its result."""
    order = needed([position], lambda p: body.ops[p].args)
    place = {old: new for new, old in enumerate(order)}
    ops = tuple(replace(body.ops[n], args=tuple(place[a] for a in body.ops[n].args)) for n in order)
    return Body(ops, (place[position],))


def _index(view: View, axes: Sequence[Axis]) -> Expr:
    """The index into a view at a point of its axes."""
    index = view.offset
    for axis, stride in zip(axes, view.stride, strict=True):
        index = index + stride * axis.symbol
    return index
