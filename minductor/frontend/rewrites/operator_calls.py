"""Brings the calls of a torch.fx graph to one spelling: ATen's operators and the names of their parameters.

Takes a node of Dynamo's graph, of torch.export's or of an ATen graph. Gives an `OperatorCall`; None for a node that
calls no operator which this file knows. In Dynamo's graphs people's spellings remain: `a @ b`, `torch.matmul(a, b)` and
`a.matmul(b)` are one operator here.

>>> graph = fx.Graph()
>>> x = graph.placeholder("x")
>>> print(operator_call(graph.call_function(torch.softmax, (x,), {"dim": -1})))
aten.softmax(x, dim=-1)
>>> print(operator_call(graph.call_function(torch.ops.aten.softmax.int, (x, -1))))
aten.softmax(x, dim=-1)
>>> print(operator_call(graph.call_method("masked_fill_", (x, x, 0.0))))
aten.masked_fill_(x, mask=x, value=0.0)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A call by ATen's names. `op` has no overload; a name that ends in "_" writes its first argument.

    `arguments` has only what the call gives, by the name of the parameter; defaults are left out.
    """

    op: str
    arguments: Mapping[str, Any]

    @property
    def first(self) -> Any:
        """The first argument, the operand of most operators; None if there is none."""
        return next(iter(self.arguments.values()), None)

    def get(self, name: str, default: Any = None) -> Any:
        """An argument by the name of its parameter."""
        return self.arguments.get(name, default)

    def __str__(self) -> str:
        items = list(self.arguments.items())
        shown = [str(value) if n == 0 else f"{name}={value}" for n, (name, value) in enumerate(items)]
        return f"{self.op}({', '.join(shown)})"


def operator_call(node: fx.Node) -> OperatorCall | None:
    """The call of a node by ATen's names; None if the node calls no known operator."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        op, names = _of_overload(target)
    elif node.op == "call_function":
        op, names = _functions().get(target, ("", ()))
    elif node.op == "call_method":
        op, names = _methods().get(target, ("", ()))
    else:
        return None
    args = node.args
    if op in _MANY and len(args) > len(names):
        args = (*args[: len(names) - 1], tuple(args[len(names) - 1 :]))
    if not op or len(args) > len(names):
        return None
    named = {_NAMED_ALIKE.get(name, name): value for name, value in node.kwargs.items()}
    return OperatorCall(op, {**dict(zip(names, args, strict=False)), **named})


def operator_name(node: fx.Node) -> str:
    """The name of the operator that a node calls, such as "aten.softmax"; "" if it is not known."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return _of_overload(target)[0]
    if node.op == "call_function":
        return _functions().get(target, ("",))[0]
    return _methods().get(target, ("",))[0] if node.op == "call_method" else ""


def writes_memory(node: fx.Node) -> bool:
    """Whether a node may write to one of its arguments; a method of Python does if its name ends in "_".

    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> [writes_memory(graph.call_method(name, (x, x))) for name in ("add_", "add", "__add__", "__iadd__")]
    [True, False, False, True]
    """
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable
    if node.op == "call_method":
        return (
            (target.endswith("_") and not target.endswith("__")) or target.startswith("__i") or target == "__setitem__"
        )
    if node.op != "call_function":
        return node.op == "call_module"
    is_given = node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True
    name = getattr(target, "__name__", "")
    return is_given or target in _WRITING or (name.endswith("_") and not name.endswith("__"))


@lru_cache(maxsize=4096)
def _of_overload(target: torch._ops.OpOverload) -> tuple[str, tuple[str, ...]]:
    """The operator's name without overload, and the names of its parameters."""
    return str(target.overloadpacket), tuple(argument.name for argument in target._schema.arguments)


_WRITING: frozenset[Callable[..., Any]] = frozenset(
    (
        *(operator.setitem, operator.delitem, operator.iadd, operator.isub, operator.imul, operator.itruediv),
        *(operator.ifloordiv, operator.imod, operator.ipow, operator.iand, operator.ior, operator.ixor),
        *(operator.ilshift, operator.irshift),
    )
)

# ATen's operator -> names of its parameters, then functions and methods of Python that spell it
_SPELLED: Mapping[str, tuple[str, tuple[Callable[..., Any], ...], str]] = {
    "aten.softmax": ("self dim dtype", (torch.softmax,), "softmax"),
    "aten.matmul": ("self other", (torch.matmul, torch.bmm, torch.mm, operator.matmul), "matmul bmm mm __matmul__"),
    "aten.baddbmm": ("self batch1 batch2 beta alpha", (torch.baddbmm,), "baddbmm"),
    "aten.einsum": ("equation tensors", (torch.functional.einsum,), ""),
    "aten.add": ("self other alpha", (torch.add, operator.add), "add __add__ __radd__"),
    "aten.add_": ("self other alpha", (operator.iadd,), "add_ __iadd__"),
    "aten.sub": ("self other alpha", (torch.sub, torch.subtract, operator.sub), "sub subtract __sub__"),
    "aten.sub_": ("self other alpha", (operator.isub,), "sub_ subtract_ __isub__"),
    "aten.rsub": ("self other alpha", (torch.rsub,), "__rsub__"),
    "aten.mul": ("self other", (torch.mul, torch.multiply, operator.mul), "mul multiply __mul__ __rmul__"),
    "aten.mul_": ("self other", (operator.imul,), "mul_ multiply_ __imul__"),
    "aten.div": (
        "self other rounding_mode",
        (torch.div, torch.divide, torch.true_divide, operator.truediv),
        "div divide true_divide __truediv__",
    ),
    "aten.div_": ("self other rounding_mode", (operator.itruediv,), "div_ divide_ true_divide_ __itruediv__"),
    "aten.neg": ("self", (torch.neg, torch.negative, operator.neg), "neg negative __neg__"),
    "aten.masked_fill": ("self mask value", (torch.masked_fill,), "masked_fill"),
    "aten.masked_fill_": ("self mask value", (), "masked_fill_"),
    "aten.where": ("condition self other", (torch.where,), ""),
    "aten.dropout": ("self p train inplace", (torch.dropout,), ""),
    "aten.to": ("self dtype", (), "to type float half bfloat16 double"),
    "aten.type_as": ("self other", (), "type_as"),
    "aten.contiguous": ("self memory_format", (), "contiguous"),
    "aten.clone": ("self memory_format", (torch.clone,), "clone"),
    "aten.view": ("self size", (), "view view_as"),
    "aten.reshape": ("self shape", (torch.reshape,), "reshape reshape_as"),
    "aten.flatten": ("self start_dim end_dim", (torch.flatten,), "flatten"),
    "aten.unflatten": ("self dim sizes", (torch.unflatten,), "unflatten"),
    "aten.unsqueeze": ("self dim", (torch.unsqueeze,), "unsqueeze"),
    "aten.squeeze": ("self dim", (torch.squeeze,), "squeeze"),
    "aten.expand": ("self size", (), "expand expand_as"),
    "aten.transpose": (
        "self dim0 dim1",
        (torch.transpose, torch.swapaxes, torch.swapdims),
        "transpose swapaxes swapdims",
    ),
    "aten.permute": ("self dims", (torch.permute,), "permute"),
    "aten.full": ("size fill_value", (torch.full,), ""),
    "aten.scalar_tensor": ("s", (torch.scalar_tensor,), ""),
    "aten.tensor": ("data", (torch.tensor,), ""),
    "aten.zeros": ("size", (torch.zeros,), ""),
    "aten.zeros_like": ("self", (torch.zeros_like,), ""),
}
# functions of torch.nn.functional, whose parameters are in another order or have other names
_FUNCTIONAL: Mapping[Callable[..., Any], tuple[str, str]] = {
    F.softmax: ("aten.softmax", "self dim _stacklevel dtype"),
    F.dropout: ("aten.dropout", "self p train inplace"),
    F.interpolate: (
        "aten.__interpolate",
        "self size scale_factor mode align_corners recompute_scale_factor antialias",
    ),
}
# methods whose parameters are in another order
_METHODS: Mapping[str, tuple[str, str]] = {"where": ("aten.where", "self condition other")}
# operators whose last parameter Python also takes as several arguments, as in `x.view(2, 3)`
_MANY = frozenset(("aten.view", "aten.reshape", "aten.expand", "aten.permute", "aten.einsum", "aten.zeros"))
# names of Python's parameters that differ from ATen's
_NAMED_ALIKE: Mapping[str, str] = {"input": "self", "training": "train", "axis": "dim"}


def _functions() -> Mapping[Any, tuple[str, tuple[str, ...]]]:
    return _tables()[0]


def _methods() -> Mapping[Any, tuple[str, tuple[str, ...]]]:
    return _tables()[1]


@cache
def _tables() -> tuple[Mapping[Any, tuple[str, tuple[str, ...]]], Mapping[Any, tuple[str, tuple[str, ...]]]]:
    """Function, and name of a method -> operator and names of parameters."""
    functions: dict[Any, tuple[str, tuple[str, ...]]] = {}
    methods: dict[Any, tuple[str, tuple[str, ...]]] = {}
    for op, names, function, method in _rows():
        if function is not None:
            functions[function] = op, names
        if method:
            methods[method] = op, names
    return functions, methods


def _rows() -> Iterator[tuple[str, tuple[str, ...], Any, str]]:
    for op, (names, functions, methods) in _SPELLED.items():
        for function in functions:
            yield op, tuple(names.split()), function, ""
        for method in methods.split():
            yield op, tuple(names.split()), None, method
    for function, (op, names) in _FUNCTIONAL.items():
        yield op, tuple(names.split()), function, ""
    for method, (op, names) in _METHODS.items():
        yield op, tuple(names.split()), None, method
