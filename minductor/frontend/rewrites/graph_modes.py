"""The modes of autograd and autocast in which each call of Dynamo's graph runs.

Takes a torch.fx graph. Gives for each node its `Modes`; an empty mapping if the graph changes no mode, which is so for
all ATen graphs. Refuses nothing. In Dynamo's graphs `with torch.no_grad():` and `with torch.autocast(...):` are calls
that change the mode of all calls behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode


@dataclass(frozen=True, slots=True)
class Modes:
    """The modes around a call.

    Args:
        autocast: the arguments of the autocast regions, the outermost first.
        gradients: whether gradients are on; None if the graph has not changed that so far.
        inference: the arguments of the regions of inference mode, the outermost first.
    """

    autocast: tuple[tuple[Any, ...], ...] = ()
    gradients: bool | None = None
    inference: tuple[Any, ...] = ()


def modes_of(graph: fx.Graph, around: Modes) -> Mapping[fx.Node, Modes]:
    """Node -> its modes, in a graph that runs in the modes `around`; empty if those hold for all nodes."""
    changing = (_enter_autocast, torch._C._set_grad_enabled, _enter_inference_mode)
    if not any(graph.find_nodes(op="call_function", target=target) for target in changing):
        return {}
    return dict(_walk(graph, around))


def _walk(graph: fx.Graph, modes: Modes) -> Iterator[tuple[fx.Node, Modes]]:
    for node in graph.nodes:
        if node.target is _enter_autocast:
            modes = replace(modes, autocast=(*modes.autocast, tuple(node.args)))
        elif node.target is _exit_autocast:
            modes = replace(modes, autocast=modes.autocast[:-1])
        elif node.target is torch._C._set_grad_enabled:
            modes = replace(modes, gradients=bool(node.args[0]))
        elif node.target is _enter_inference_mode:
            modes = replace(modes, inference=(*modes.inference, *node.args))
        elif node.target is _exit_inference_mode:
            modes = replace(modes, inference=modes.inference[:-1])
        yield node, modes


def parts_of(gm: fx.GraphModule, around: Modes | None = None) -> Iterator[tuple[fx.GraphModule, Modes]]:
    """A graph module and the graphs that its operators call, each once, with the modes in which they are called."""
    seen: set[fx.GraphModule] = set()
    waiting = [(gm, around or Modes())]
    while waiting:
        part, outer = waiting.pop()
        if part in seen:
            continue
        seen.add(part)
        yield part, outer
        modes = modes_of(part.graph, outer)
        for node in part.graph.find_nodes(op="get_attr"):
            inner = getattr(part, str(node.target), None)
            if isinstance(inner, fx.GraphModule):
                callers = [modes.get(user, outer) for user in node.users]
                waiting.append((inner, callers[0] if callers else outer))
