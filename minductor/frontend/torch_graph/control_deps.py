"""Explicit order: a computation that begins after other tensors have been computed, although it does not read them.

Takes a function and tensors in a traced program, or a node and other nodes in a graph pass. Gives the values that the
function or node gives without the order. In the ATen graph, the order is a call of the higher-order operator
`minductor_control_deps`:

    minductor_control_deps((deps...), graph, *args)

which gives what `graph(*args)` gives. A dependency only orders: its memory is free after its last reader. Refuses
functions that write their arguments, since writes keep the order of the program anyway.

Outside of a trace programs run in order, so there the operator only calls the graph. Under vmap and other function
transforms the values are right and the order is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from operator import attrgetter, getitem
from typing import Any, NoReturn

import torch
from torch import fx
from torch._C._functorch import TransformType
from torch._higher_order_ops.base_hop import BaseHOP
from torch._higher_order_ops.utils import reenter_make_fx
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, get_proxy_mode, track_tensor_tree
from torch.fx.node import has_side_effect
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from minductor.core.errors import BadArgument, UnsupportedInput

NAME = "minductor_control_deps"
# what a graph takes as arguments; other values are constants in it
GRAPH_ARGUMENTS = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


def control_deps(deps: torch.Tensor | Sequence[torch.Tensor], fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs `fn(*args, **kwargs)` after all of `deps` have been computed, also in compiled code.

    Args:
        deps: a tensor, or a tuple or list of tensors, of any shapes and dtypes. `fn` need not read them.
        fn: the function to run. It returns new tensors and writes none of its arguments: it returns a clone in place of
            an argument or a view of one. Dynamo breaks the graph at any other function.
        *args: arguments of `fn`.
        **kwargs: arguments of `fn` by name.

    Returns:
        What `fn` returns. Views of it may be made earlier, since a view computes nothing.

    Raises:
        BadArgument: `deps` holds something else than tensors, or `fn` cannot be called.
    """
    row: Any = (deps,) if isinstance(deps, torch.Tensor) else deps
    if not isinstance(row, tuple | list) or not all(isinstance(dep, torch.Tensor) for dep in row):
        _refuse("deps of control_deps", deps, "a tensor, or a tuple or list of tensors")
    if not callable(fn):
        _refuse("fn of control_deps", fn, "a function of the arguments behind it")
    row = tuple(row)
    if torch.compiler.is_dynamo_compiling():
        return traced_operator()(lambda: fn(*args, **kwargs), deps=row)
    return operator()(row, partial(fn, **kwargs), *args)


@torch.compiler.disable()
def _refuse(name: str, given: object, wanted: str) -> NoReturn:
    """Raises BadArgument. Dynamo does not trace this: in torch 2.11 it fails at an exception class of ours."""
    raise BadArgument(name, given, wanted)


@lru_cache(1)
@torch.compiler.disable()
def operator() -> HigherOrderOperator:
    """The higher-order operator, registered at the first call: a second one of its name would replace the first.

    Dynamo does not trace this: behind a break of the graph, torch 2.11 fails at an operator that is not yet made.
    """
    known = torch._ops._higher_order_ops.get(NAME)
    if known is not None:
        if type(known).__module__ != __name__:
            raise UnsupportedInput(NAME, "a higher-order operator of that name that is not minductor's")
        return known
    made = _Operator()
    has_side_effect(made)  # it is computed even if nothing reads its result
    return made


@torch.compiler.assume_constant_result
def traced_operator() -> HigherOrderOperator:
    """The operator that Dynamo traces: Dynamo knows graphs as first arguments only."""
    known: Any = torch._ops._higher_order_ops.get(f"{NAME}_traced")
    return _Traced() if known is None else known


# --- the operator -------------------------------------------------------------------------------------------------


class _Operator(HigherOrderOperator):
    def __init__(self) -> None:
        super().__init__(NAME)
        self.py_impl(torch.DispatchKey.Autograd)(partial(_order_operations, self))
        self.py_impl(torch.DispatchKey.CompositeExplicitAutograd)(_run)
        self.py_functionalize_impl(partial(_functionalize, self))
        self.py_impl(ProxyTorchDispatchMode)(partial(_record, self))
        self.py_impl(FakeTensorMode)(_run_fake)
        for transform in (TransformType.Vmap, TransformType.Grad, TransformType.Jvp):
            self.py_impl(transform)(_run_transformed)

    def __call__(self, deps: Sequence[torch.Tensor], graph: Callable[..., Any], /, *args: Any) -> Any:
        # the dispatcher looks for tensors in tuples, not in lists within them
        return super().__call__(tuple(deps), graph, *args)


class _Traced(BaseHOP):
    def __init__(self) -> None:
        super().__init__(f"{NAME}_traced")

    def __call__(self, graph: Callable[..., Any], /, *args: Any, deps: Sequence[torch.Tensor]) -> Any:
        return operator()(deps, graph, *args)


def _run(deps: Sequence[torch.Tensor], graph: Callable[..., Any], *args: Any) -> Any:
    del deps  # they have been computed: a program that is not traced runs in order
    return graph(*args)


def _run_fake(mode: FakeTensorMode, deps: Sequence[torch.Tensor], graph: Callable[..., Any], *args: Any) -> Any:
    with mode:
        return _run(deps, graph, *args)


def _run_transformed(interpreter: Any, deps: Sequence[torch.Tensor], graph: Callable[..., Any], *args: Any) -> Any:
    del interpreter
    return _run(deps, graph, *args)


def _order_operations(
    op: HigherOrderOperator, deps: Sequence[torch.Tensor], graph: Callable[..., Any], *args: Any
) -> Any:
    """Above autograd, orders each operation of the graph by itself, so that gradients are those of eager."""
    if get_proxy_mode() is None:
        return graph(*args)
    with _OrderEachOperation(op, tuple(deps)):
        return graph(*args)


class _OrderEachOperation(TorchDispatchMode):
    """A mode that wraps each operation that makes new tensors in a call of the operator."""

    def __init__(self, op: HigherOrderOperator, deps: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.op, self.deps = op, deps
        # memory made within, by address; it is held so that no other memory gets its address
        self.own: dict[int, torch.UntypedStorage] = {}

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is self.op:
            return func((*self.deps, *args[0]), *args[1:])
        if isinstance(func, torch._ops.OpOverload) and func._schema.is_mutable:
            self._check_own(func, args, given)  # the write follows the ordered operation that made the memory
            return func(*args, **given)
        if not _is_computing(func):
            return func(*args, **given)
        graph, leaves = _as_function_of_tensors(func, (tuple(args), given))
        result = self.op(self.deps, graph, *leaves)
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.own[storage._cdata] = storage
        return result

    def _check_own(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Refuses a write to memory that was made outside of the ordered function."""
        for number, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            for tensor in tree_leaves(value):
                if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.own:
                    raise UnsupportedInput(str(func), f"in {NAME}: it writes what was made outside")


def _is_computing(func: Any) -> bool:
    """Whether an operator makes new tensors. Views, and numbers read from a tensor, are not ordered."""
    if not isinstance(func, torch._ops.OpOverload):
        return True
    return not func.is_view and any("Tensor" in str(returned.type) for returned in func._schema.returns)


def _as_function_of_tensors(func: Callable[..., Any], given: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The call as a function of its tensors and symbolic numbers alone, and these arguments."""
    leaves, spec = tree_flatten(given)
    live = [n for n, leaf in enumerate(leaves) if isinstance(leaf, GRAPH_ARGUMENTS)]

    def call(*values: Any) -> Any:
        filled = list(leaves)
        for place, value in zip(live, values, strict=True):
            filled[place] = value
        args, kwargs = tree_unflatten(filled, spec)
        return func(*args, **kwargs)

    return call, [leaves[n] for n in live]


def _functionalize(
    op: HigherOrderOperator, ctx: Any, deps: Sequence[torch.Tensor], graph: Callable[..., Any], *args: Any
) -> Any:
    inner = (ctx.unwrap_tensors(tuple(deps)), ctx.unwrap_tensors(tuple(args)))
    with ctx.redispatch_to_next():
        result = op(inner[0], ctx.functionalize(graph), *inner[1])
    return ctx.wrap_tensors(result)


def _record(
    op: HigherOrderOperator,
    mode: ProxyTorchDispatchMode,
    deps: Sequence[torch.Tensor],
    graph: Callable[..., Any],
    *args: Any,
) -> Any:
    """Writes a call of the operator into the traced graph, named after the last operation in its inner graph."""
    tracer: Any = mode.tracer
    closed, leaves = _as_function_of_tensors(graph, (args, {}))
    inner = reenter_make_fx(closed)(*leaves)
    place = tracer.get_fresh_qualname(NAME)
    tracer.root.register_module(place, inner)
    given = tree_map(tracer.unwrap_proxy, (tuple(deps), inner, *leaves))
    calls = [node for node in inner.graph.nodes if node.op == "call_function" and node.target is not getitem]
    proxy = tracer.create_proxy("call_function", op, given, {}, name=calls[-1].name if calls else None)
    return track_tensor_tree(closed(*leaves), proxy, constant=None, tracer=tracer)


# --- graph passes -------------------------------------------------------------------------------------------------


def add_control_deps(node: fx.Node, deps: Sequence[fx.Node]) -> fx.Node:
    """Makes a call of an ATen graph run after `deps`: for a pass that `Compiler(graph_pass=...)` runs. Runs nothing.

    Args:
        node: a call_function node of a torch.fx.GraphModule; a new node replaces it.
        deps: nodes of the same graph that do not depend on `node`.

    Returns:
        The new node, with the name, the metadata and the users of `node`. It stands after all of `deps`, and so do its
        users.

    Raises:
        BadArgument: `node` is no such call, or one of `deps` is no node of the graph or depends on `node`.
    """
    if not isinstance(node, fx.Node):
        raise BadArgument("node of add_control_deps", node, "a torch.fx.Node of the graph")
    if not isinstance(deps, tuple | list) or not all(isinstance(dep, fx.Node) for dep in deps):
        raise BadArgument("deps of add_control_deps", deps, "a tuple or list of nodes of the same graph")
    graph, root = node.graph, node.graph.owning_module
    if node.op != "call_function" or root is None:
        why = f"{node.name} is no call"
        raise BadArgument("node of add_control_deps", node, "a call in the graph of a torch.fx.GraphModule", why=why)
    if any(dep is node or node in _ancestors(dep) for dep in deps):
        why = f"one of them needs {node.name}"
        raise BadArgument("deps of add_control_deps", deps, "nodes that do not depend on the node", why=why)
    inner, leaves = _graph_of_call(node)
    place = _unused_name(root, NAME)
    setattr(root, place, fx.GraphModule(root, inner))
    name, node.name = node.name, f"{node.name}_alone"
    with graph.inserting_before(node):
        target = graph.get_attr(place)
        made = graph.create_node("call_function", operator(), (tuple(deps), target, *leaves), {})
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    made.name = name
    _sort_behind_arguments(graph)
    return made


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        for given in waiting.pop().all_input_nodes:
            if given not in found:
                found.add(given)
                waiting.append(given)
    return found


def _graph_of_call(node: fx.Node) -> tuple[fx.Graph, list[fx.Node]]:
    """A graph of the call alone, and the nodes that are its arguments; graph modules among these stay inside."""
    root: Any = node.graph.owning_module
    inner = fx.Graph(root)
    leaves = [given for given in node.all_input_nodes if given.op != "get_attr" or _is_tensor(root, given)]
    places: dict[fx.Node, fx.Node] = {}
    for given in leaves:
        places[given] = inner.placeholder(given.name)
        places[given].meta = dict(given.meta)
    for given in node.all_input_nodes:
        if given not in places:
            places[given] = inner.node_copy(given)
    inner.output(inner.node_copy(node, places.__getitem__))
    return inner, leaves


def _is_tensor(root: Any, node: fx.Node) -> bool:
    return isinstance(attrgetter(str(node.target))(root), torch.Tensor)


def _unused_name(root: torch.nn.Module, prefix: str) -> str:
    number = 0
    while hasattr(root, f"{prefix}_{number}"):
        number += 1
    return f"{prefix}_{number}"


def _sort_behind_arguments(graph: fx.Graph) -> None:
    """Sorts the nodes behind their arguments; nodes that need not move keep their order."""
    nodes = list(graph.nodes)
    rank = {node: n for n, node in enumerate(nodes)}
    if all(rank[given] < n for n, node in enumerate(nodes) for given in node.all_input_nodes):
        return
    waits = {node: len(node.all_input_nodes) for node in nodes}
    ready = [rank[node] for node in nodes if not waits[node]]
    heapify(ready)
    last: fx.Node | None = None
    for node in _in_order(ready, nodes, waits, rank):
        if last is not None:
            last.append(node)
        last = node


def _in_order(
    ready: list[int], nodes: Sequence[fx.Node], waits: dict[fx.Node, int], rank: dict[fx.Node, int]
) -> Iterator[fx.Node]:
    """The nodes in an order in which each follows its arguments, by their former order where that leaves a choice."""
    while ready:
        node = nodes[heappop(ready)]
        yield node
        for user in node.users:
            waits[user] -= 1
            if not waits[user]:
                heappush(ready, rank[user])
