"""The traced value of a node's call, also for operators of oneDNN, which torch does not trace.

Takes a node of a torch.fx graph whose arguments have traced values. Gives a fake tensor, or what else the call gives.
Refuses what the operator refuses. A packed weight has a layout of oneDNN's own and no strides; the traced value is a
plain tensor of the same sizes, and only operators of oneDNN may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

PACKS = ("mkldnn::_reorder_linear_weight", "mkldnn::_reorder_convolution_weight")


def traced(node: fx.Node, value_key: str, autocast: Sequence[tuple[Any, ...]] = ()) -> Any:
    """The value of a node's call on the traced values of its arguments.

    Args:
        node: a node that calls a function or a method.
        value_key: the metadata that holds traced values.
        autocast: the arguments of the autocast regions in which the call runs.

    Raises:
        Exception: what the operator raises for such arguments.
    """
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta[value_key])
    mode: Any = _fake_mode((args, kwargs))
    target: Any = node.target
    with ExitStack() as stack:
        if mode is not None:
            stack.enter_context(mode)
        stack.enter_context(torch.no_grad())
        for given in autocast:
            stack.enter_context(torch.autocast(*given))
        if node.op == "call_method":
            return getattr(args[0], str(target))(*args[1:], **kwargs)
        name = target.name() if isinstance(target, torch._ops.OpOverload) else ""
        return _VALUES.get(name, target)(*args, **kwargs)


def _fake_mode(values: Any) -> Any:
    """The mode of the fake tensors among values. Dynamo gives backends another mode than that of its graph's values."""
    from torch._guards import detect_fake_mode
    from torch._subclasses import FakeTensor

    modes = (leaf.fake_mode for leaf in tree_leaves(values) if isinstance(leaf, FakeTensor))
    return next(modes, None) or detect_fake_mode()


def packed_weight(weight: torch.Tensor, *_: Any) -> torch.Tensor:
    """The traced value of a packed weight."""
    return torch.empty_like(weight, memory_format=torch.contiguous_format)


def _convolution(x: torch.Tensor, w: torch.Tensor, bias: Any, *rest: Any) -> torch.Tensor:
    """The value of `_convolution_pointwise` with a packed weight, which oneDNN gives channels-last."""
    padding, stride, dilation, groups, *_ = rest
    sizes = torch.ops.aten.convolution(x, w, bias, stride, padding, dilation, False, [0] * len(stride), groups)
    form = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
    return torch.empty_like(sizes, memory_format=form)


def _convolution_binary(x: torch.Tensor, other: torch.Tensor, w: torch.Tensor, *rest: Any) -> torch.Tensor:
    return _convolution(x, w, *rest)


def _linear_binary(x: torch.Tensor, other: torch.Tensor, w: torch.Tensor, *rest: Any) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], w.shape[0]))


_VALUES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(PACKS, packed_weight),
    "mkldnn::_convolution_pointwise": _convolution,
    "mkldnn::_convolution_pointwise.binary": _convolution_binary,
    "mkldnn::_linear_pointwise.binary": _linear_binary,
}
