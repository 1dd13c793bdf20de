"""Compiles a program ahead of time into a torch.fx graph of kernels.

Takes a function, a module or a torch.export.ExportedProgram, and example arguments. Gives a GraphModule that is called
as the program is, for inference; or what the backend's hook makes of the GraphModule. Refuses what torch.export
refuses: a program that is not one graph (NotExportable).

The weights are buffers of the GraphModule, under its own names; they share memory with the program's, so that a write
to one is a write to the other. The first nodes of the graph check each input: WrongInput if its dtype, sizes or strides
are not those that the kernels were compiled for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minductor.driver_tasks.argument_checks import check_exported
from minductor.driver_tasks.graph_rewrites import ExportRewrites, trace_rewrites
from minductor.options import mapping_of

if TYPE_CHECKING:
    import torch
    from torch import fx

    from minductor.codegen.wrapper.wrapper_fx_numbers import Nodes
    from minductor.core.expressions.expr import Symbol
    from minductor.frontend.capture.captured_graph import GraphInput
    from minductor.frontend.exported.exported_program import Exported, Leaf
    from minductor.ir.artefact.fx_graph import FxNode


def to_fx(
    program: torch.export.ExportedProgram | Callable[..., Any],
    *args: Any,
    dynamic_shapes: Any = None,
    options: Mapping[str, object] | None = None,
    **kwargs: Any,
) -> Any:
    """Compiles a program for inference into a torch.fx.GraphModule. The program is traced, not run.

    Args:
        program: a function or a torch.nn.Module, which `torch.export` traces, or a torch.export.ExportedProgram.
        *args: example arguments, of the shapes and dtypes to compile for; none for an ExportedProgram.
        dynamic_shapes: the sizes that may vary, as torch.export.export takes them.
        options: values by option name, as torch.compile(options=...) takes them.
        **kwargs: example arguments by name.

    Returns:
        A torch.fx.GraphModule that takes the program's arguments and returns its results; allocations, operators and
        kernel launches are its nodes. If the target is a GPU that is not in this machine, it can be read and not run.
        A backend with a hook `fx` returns what the hook makes of it.

    Raises:
        BadArgument, BadCall: an argument is of another kind than it is used for, or the program does not take it.
        UnknownTarget, UnknownOption, BadOptionValue: what was asked for does not exist.
        NotExportable: the program is not one graph, or needs what no graph can hold.

    Examples:
        >>> import torch, minductor
        >>> module = minductor.to_fx(lambda x: x.exp() + 1, torch.zeros(3))  # doctest: +SKIP
        >>> [node.name for node in module.graph.nodes]  # doctest: +SKIP
        ['x', 'check', 'buf1', 'fused_exp_add_0', 'output']
    """
    import torch

    from minductor.backends import find_backend, find_target, resolve
    from minductor.driver import Compiler
    from minductor.frontend.exported.exported_program import export_program, read_program, refusing_eager

    check_exported("to_fx", program, args, kwargs, dynamic_shapes)
    chosen = {**mapping_of(options), "wrapper": "fx"}
    target = find_target(chosen.get("target") or "cpu")
    env = Compiler().env(None, chosen)
    rewrites = ExportRewrites((), env, folds=env.options.freeze)
    found = read_program(export_program(program, args, kwargs, dynamic_shapes), rewrites.rewrite_program)
    rewritten = rewrites.rewrite_aten(found.gm)
    # a program of CPU tensors gives the same graph on a machine with a GPU as on one without
    is_elsewhere = not (torch.cuda.is_available() and any(map(_is_on_gpu, found.gm.graph.nodes)))
    compiler = Compiler(is_dry=target.kind in ("cuda", "hip") and is_elsewhere)
    trace_rewrites(compiler.trace(env), "inference", rewritten)
    with refusing_eager():
        module, graph, env, guards = compiler.graph_module(found.gm, env)
    _called_as(module, found)
    inputs = graph.inputs[: len(graph.inputs) - len(found.state)]
    _insert(module, _checks(found.inputs, inputs, graph.symbols, guards))
    module.recompile()
    hook = find_backend(env.target.kind).fx
    return resolve(hook)(module) if hook else module


def _is_on_gpu(node: fx.Node) -> bool:
    """Whether the node's traced value is a tensor of a CUDA device."""
    return getattr(node.meta.get("val"), "is_cuda", False)


def _called_as(module: fx.GraphModule, found: Exported) -> None:
    """Changes the module to take and return what the program does; the buffers that it changes become its buffers."""
    from torch.fx.graph import _custom_builtins, _PyTreeCodeGen, _PyTreeInfo

    graph = module.graph
    inputs = list(graph.find_nodes(op="placeholder"))
    count = len(inputs) - len(found.state)
    for node, tensor in zip(inputs[count:], found.state.values(), strict=True):
        module.register_buffer(node.name, tensor)
        with graph.inserting_before(node):
            held = graph.get_attr(node.name)
        held.meta.update(node.meta)
        node.replace_all_uses_with(held)
        graph.erase_node(node)
    before = next(iter(graph.nodes))
    for leaf in found.inputs:  # each leaf of a call is a placeholder, also those whose value was traced in
        if leaf.input is not None:
            before = inputs[leaf.input].next
        else:
            with graph.inserting_before(before):
                graph.placeholder(leaf.name)
    comments: Any = graph._codegen._body_transformer
    # an argument called `torch` would hide the module torch in the generated code
    names = [f"{name}_" if name in _custom_builtins else name for name in found.parameters]
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, found.in_spec, found.out_spec)))
    graph.on_generate_code(lambda _: comments)


def _insert(module: fx.GraphModule, checks: Iterable[FxNode]) -> None:
    """Adds the checks behind the inputs, as nodes with side effects, so that no pass removes them as dead code."""
    from torch.fx.node import has_side_effect

    from minductor.runtime.launch import fx as calls

    for name in ("check", "check_apart", "check_range", "check_value"):
        has_side_effect(getattr(calls, name))
    graph = module.graph
    found = {str(node.target): node for node in graph.nodes if node.op == "placeholder"}
    with graph.inserting_before(next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))):
        for node in checks:
            found[node.name] = calls.add_node(graph, node, found)


def _checks(
    leaves: Sequence[Leaf], inputs: Sequence[GraphInput], symbols: Iterable[Symbol], guards: Iterable[str]
) -> Sequence[FxNode]:
    """The nodes that check a call: values that were traced in, the inputs' layouts, and the ranges of sizes."""
    from minductor.codegen.wrapper.wrapper_fx_numbers import Nodes
    from minductor.core.expressions.expr import as_expr
    from minductor.core.expressions.expr_parser import parse_rel
    from minductor.frontend.capture.captured_graph import TensorMeta
    from minductor.ir.artefact.fx_graph import Result
    from minductor.ir.program.nodes import Token

    nodes = Nodes()
    constants = [leaf for leaf in leaves if leaf.input is None]
    for name in (*(leaf.name for leaf in constants), *(given.name for given in inputs)):  # no check has their names
        nodes.values[name] = nodes.add(name, "placeholder", name)
    _define(nodes, inputs)
    for leaf in constants:
        about = (leaf.name, Result(leaf.name), leaf.value)
        nodes.add(f"check_{leaf.name}", "call_function", "minductor.runtime.launch.fx.check_value", about)
    begins = {leaf.input: [leaf.begin] for leaf in leaves if leaf.begin is not None}
    for number, given in enumerate(inputs):
        if isinstance(given.meta, TensorMeta):
            sizes, strides = (nodes.numbers(map(as_expr, row)) for row in (given.meta.size, given.meta.stride))
            where = (Token("device", given.meta.device), *begins.get(number, ()))
            about = (given.name, Result(given.name), sizes, strides, given.meta.dtype, *where)
            nodes.add("check", "call_function", "minductor.runtime.launch.fx.check", about)
        elif (wanted := nodes.number(as_expr(given.meta))) != Result(given.name):  # it follows from other inputs
            about = (given.name, Result(given.name), wanted)
            nodes.add("check", "call_function", "minductor.runtime.launch.fx.check_value", about)
    tensors = [given.name for given in inputs if isinstance(given.meta, TensorMeta)]
    for leaf in leaves:
        if leaf.is_changed and leaf.input is not None and len(tensors) > 1:
            name = inputs[leaf.input].name
            others = tuple([Result(other) for other in tensors if other != name])
            nodes.add("check", "call_function", "minductor.runtime.launch.fx.check_apart", (name, Result(name), others))
    known = {symbol.name: symbol for symbol in symbols}
    for symbol in known.values():
        if symbol.name in nodes.values:
            about = (symbol.name, nodes.values[symbol.name], symbol.lo, symbol.hi)
            nodes.add("check", "call_function", "minductor.runtime.launch.fx.check_range", about)
    for guard in guards:
        about = (nodes.relation(parse_rel(guard, known)), f"the sizes do not fit what was compiled: {guard}")
        nodes.add("check", "call_function", "torch.ops.aten._assert_scalar.default", about)
    return [node for node in nodes.made if node.op != "placeholder"]


def _define(nodes: Nodes, inputs: Sequence[GraphInput]) -> None:
    """Adds the value of each symbol to `nodes`: an input that is the symbol, or a size that determines it."""
    from minductor.core.expressions.expr import Symbol
    from minductor.frontend.capture.captured_graph import TensorMeta
    from minductor.ir.artefact.fx_graph import Result
    from minductor.ir.program.size_sources import size_sources

    metas = [(given.name, given.meta) for given in inputs]
    nodes.values.update({meta.name: Result(name) for name, meta in metas if isinstance(meta, Symbol)})
    sizes = size_sources((name, meta.size) for name, meta in metas if isinstance(meta, TensorMeta))
    for symbol, (name, *where) in sizes.items():
        if symbol.name not in nodes.values:
            nodes.values[symbol.name] = nodes.size(symbol.name, nodes.values[name], *where)
