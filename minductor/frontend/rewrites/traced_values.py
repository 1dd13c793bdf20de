"""The traced value of a node's call, also for operators of oneDNN, which torch does not trace.

Takes a node of a torch.fx graph whose arguments have traced values. Gives a fake tensor, or what else the call gives.
Refuses what the operator refuses. A packed weight has a layout of oneDNN's own and no strides; the traced value is a
plain tensor of the same sizes, and only operators of oneDNN may read it. Convolutions on the device "meta", which
stands for a GPU, give cuDNN's layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

PACKS = tuple(f"mkldnn::_reorder_{name}_weight" for name in ("linear", "convolution", "convolution_transpose"))


def traced(
    node: fx.Node,
    value_key: str,
    autocast: Sequence[tuple[Any, ...]] = (),
    values: Mapping[fx.Node, Any] = MappingProxyType({}),
) -> Any:
    """The value of a node's call on the traced values of its arguments.

    Args:
        node: a node that calls a function or a method.
        value_key: the metadata that holds traced values.
        autocast: the arguments of the autocast regions in which the call runs.
        values: traced values that stand in for those in the metadata, by node.

    Raises:
        Exception: what the operator raises for such arguments.
    """
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda n: values[n] if n in values else n.meta[value_key])
    mode = _fake_mode(node, value_key)
    target: Any = node.target
    with ExitStack() as stack:
        if mode is not None:
            stack.enter_context(mode)
            stack.enter_context(enable_python_dispatcher())  # else C++ asks for sizes as numbers, which makes guards
        stack.enter_context(torch.no_grad())
        if value_key == "val":  # an ATen graph has no autocast left, whatever region the user has entered
            stack.enter_context(torch._C._DisableAutocast())
        for given in autocast:
            stack.enter_context(torch.autocast(*given))
        if node.op == "call_method":
            return getattr(args[0], str(target))(*args[1:], **kwargs)
        name = target.name() if isinstance(target, torch._ops.OpOverload) else ""
        return _VALUES.get(name, target)(*args, **kwargs)


def _fake_mode(node: fx.Node, value_key: str) -> Any:
    """The fake mode of the values that a node reads, or else of the first value of its graph; None for real values.

    torch's `detect_fake_mode` gives that of the compile, which is another one than that of Dynamo's values.
    """
    for each in (*node.all_input_nodes, *node.graph.nodes):
        for leaf in tree_leaves(each.meta.get(value_key)):
            if isinstance(leaf, FakeTensor):
                return leaf.fake_mode
    return None


def packed_weight(weight: torch.Tensor, *_: Any) -> torch.Tensor:
    """The traced value of a packed weight."""
    return torch.empty_like(weight, memory_format=torch.contiguous_format)


def _convolution(x: torch.Tensor, w: torch.Tensor, bias: Any, *rest: Any) -> torch.Tensor:
    """The value of `_convolution_pointwise` with a packed weight, which oneDNN gives channels-last."""
    padding, stride, dilation, groups, *_ = rest
    sizes = torch.ops.aten.convolution(x, w, bias, stride, padding, dilation, False, [0] * len(stride), groups)
    form = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
    return torch.empty_like(sizes, memory_format=form)


def _transposed_convolution(x: torch.Tensor, w: torch.Tensor, bias: Any, *rest: Any) -> torch.Tensor:
    """The value of `_convolution_transpose_pointwise` with a packed weight."""
    padding, output_padding, stride, dilation, groups, *_ = rest
    sizes = torch.ops.aten.convolution(x, w, bias, stride, padding, dilation, True, output_padding, groups)
    form = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
    return torch.empty_like(sizes, memory_format=form)


def _as_by_cudnn(op: Any, x: torch.Tensor, w: torch.Tensor, *args: Any) -> Any:
    """What a convolution or its gradient gives: cuDNN's results are channels-last if images or weights are."""
    value = op(*args)
    formats = {suggest_memory_format(x), suggest_memory_format(w)} - {torch.contiguous_format}
    if x.device.type != "meta" or x.dtype is torch.float64 or not formats:
        return value
    (form,) = formats
    return tree_map(
        lambda each: each.contiguous(memory_format=form) if isinstance(each, torch.Tensor) and each.dim() > 3 else each,
        value,
    )


def _convolved(x: torch.Tensor, w: torch.Tensor, *rest: Any) -> Any:
    return _as_by_cudnn(torch.ops.aten.convolution.default, x, w, x, w, *rest)


def _gradients(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any) -> Any:
    return _as_by_cudnn(torch.ops.aten.convolution_backward.default, x, w, grad, x, w, *rest)


_VALUES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(PACKS, packed_weight),
    "aten::convolution": _convolved,
    "aten::convolution_backward": _gradients,
    "mkldnn::_convolution_pointwise": _convolution,
    "mkldnn::_convolution_transpose_pointwise": _transposed_convolution,
}
