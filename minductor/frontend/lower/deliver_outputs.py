"""The step of `lower` that makes the outputs of the program.

Takes a `Lowering` whose nodes are lowered. Gives it with its outputs: values in memory of torch's kind, and views of
inputs in the memory of these inputs. Adds kernels where a complex value is not in such memory yet. Refuses nothing.
An input that the graph changes needs no delivery: the graph writes it by a node of its own, `aten.copy_`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minductor.core.expressions.expr import as_expr
from minductor.frontend.capture.captured_graph import Arg, Node, NodeRef, TensorMeta
from minductor.frontend.capture.size_formulas import sizes
from minductor.frontend.lowering_context.complex_pairs import materialize
from minductor.frontend.lowering_context.lowering import Lowering, as_argument
from minductor.ir.program import nodes as ir
from minductor.ir.program.nodes import Ref, View
from minductor.target import Env


def deliver_outputs(ctx: Lowering, env: Env) -> Lowering:
    """The lowering with its outputs, on any target."""
    del env
    graph = ctx.graph
    nodes = {node.name: node for node in graph.nodes}
    rebuilt = graph.rebuilt
    ctx.outputs = tuple([_output(ctx, arg, rebuilt.get(number), nodes) for number, arg in enumerate(graph.outputs)])
    ctx.distinct_outputs = _distinct_outputs(ctx)
    return ctx


def _output(ctx: Lowering, arg: Arg, base: int | None, nodes: Mapping[str, Node]) -> ir.Argument:
    """An output. If it is a view of input number `base`, it is made of that input's memory.

    AOTAutograd replays such a view on the caller's tensor, by the offset in the storage that it finds here. What
    the traced program computes for it need not be that view.
    """
    if isinstance(arg, NodeRef) and arg.name in nodes:
        ctx.begin(nodes[arg.name])  # what is added for an output is of its node
    value = as_argument(materialize(ctx, ctx.value(arg)))
    if base is None or not isinstance(value, View) or not isinstance(arg, NodeRef):
        return value
    given = ctx.graph.inputs[base]
    meta, input_meta = ctx.traced_meta(arg), given.meta
    if not isinstance(meta, TensorMeta) or not isinstance(input_meta, TensorMeta) or meta.dtype != input_meta.dtype:
        return value
    ref = Ref(given.name, ctx.state.versions[given.name])
    # A write of the whole tensor is traced as new memory, whose start need not be the tensor's own.
    root = ctx.buffer_of(value)
    is_whole = (root.size, root.stride) == (sizes(input_meta.size), sizes(input_meta.stride))
    offset = value.offset if is_whole else as_expr(meta.offset) - as_expr(input_meta.offset)
    first = offset.range[0]
    if first is None or first < 0:  # the traced program computes it elsewhere: the view will be made by replay
        return value
    return View(ref, meta.dtype, sizes(meta.size), sizes(meta.stride), offset)


def _distinct_outputs(ctx: Lowering) -> tuple[tuple[int, ...], ...]:
    """The numbers of outputs that must be new tensor objects, grouped: the outputs of a group are one object.

    Such an output is the same view of the same memory as an input or an earlier output, but another node of the
    graph. All other outputs that are the same view are one object, as in eager.
    """
    given = {i.name: ctx.values[i.name] for i in ctx.graph.inputs}
    first = {replace(v, ref=Ref(name, 0)): name for name, v in given.items() if isinstance(v, View)}
    groups: dict[tuple[View, str], list[int]] = {}
    for number, (arg, view) in enumerate(zip(ctx.graph.outputs, ctx.outputs, strict=True)):
        # The caller replays an output in `rebuilt` as a view of an input, and uses the layout only.
        if isinstance(arg, NodeRef) and isinstance(view, View) and number not in ctx.graph.rebuilt:
            key = replace(view, ref=Ref(view.ref.storage, 0))
            if first.setdefault(key, arg.name) != arg.name:
                groups.setdefault((key, arg.name), []).append(number)
    return tuple(tuple(group) for group in groups.values())
