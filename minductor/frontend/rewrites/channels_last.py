"""The rows by which convolutions take images in the layout that is estimated to be the fastest.

Takes an ATen graph with convolutions (`channels_last`), or a joint graph of training (`train_channels_last`). Gives the
graph with copies to channels-last images in front of the convolutions that want them, and copies back where a
convolution or the caller wants contiguous images. Refuses graphs in which the copies would take longer than they save.

The choice is made once for all convolutions of a graph (`convolution_layouts.py`). A copy becomes part of the kernel in
front of it, if there is one. Weights that are the same at each call are copied once. In training on a CPU one copy of a
weight serves the convolution and its gradient. Other weights are left to the library, which copies them in each call.

In the joint graph one choice holds for forward and backward: the gradient of a convolution reads images and gradients
in the layout of the images. What the forward saves then has the layout in which the backward reads it, and both graphs
are split from a graph whose traced values agree. A forward graph that was split is left as it is. What the caller sees,
the gradients of weights among it, keeps its strides. On a CPU a step of 13 nets takes 0.68 to 1.02 of the time
(`benchmarks/training.md`). On an H200 the kernels of a step take 0.60 to 0.98 (`benchmarks/gpu_models.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any

import torch
from torch import fx

from minductor.frontend.rewrites.convolution_layouts import (
    CONVOLUTION,
    CONVOLUTIONS,
    LayoutChoice,
    choose_layouts,
    is_cast_weight,
    is_channels_last,
    is_frozen_weight,
    is_in_training,
    is_laid_out,
    is_shared_weight,
    operands_of,
)
from minductor.frontend.rewrites.operator_calls import OperatorCall, operator_call
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site
from minductor.frontend.rewrites.traced_values import traced

aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutions(Match):
    """All convolutions of a graph, in order, with their gradients; `result` is the first whose layout is chosen."""

    nodes: tuple[fx.Node, ...]
    choice: LayoutChoice


def find(site: Site) -> Convolutions | None:
    """All convolutions, if the anchor is the first one that takes images."""
    nodes = [node for node in site.anchor.graph.nodes if node.target in CONVOLUTIONS and _has_images(node, site)]
    if not nodes or nodes[0] is not site.anchor:
        return None
    choice = choose_layouts(site)
    first = next((node for node in nodes if node in choice.channels_last | choice.contiguous), site.anchor)
    return Convolutions(result=first, nodes=tuple(nodes), choice=choice)


def has_no_backward(match: Convolutions, site: Site) -> str:
    """A backward graph was traced for the strides that the saved images have."""
    del site
    return f"a backward reads what {match.result.name} reads" if is_in_training(match.result) else ""


def saves_time(match: Convolutions, site: Site) -> str:
    """The best layouts must be cheaper than those of today."""
    choice = match.choice
    if _changes(match, site):
        return ""
    if not choice.channels_last and not choice.contiguous_seconds and not choice.last_seconds:
        return "the library computes these convolutions in one layout only"
    us = (choice.contiguous_seconds * 1e6, choice.last_seconds * 1e6)
    return f"the layouts of today cost an estimated {us[0]:.3g} us, channels-last images would cost {us[1]:.3g} us"


def replace(match: Convolutions, site: Site) -> Mapping[fx.Node, fx.Node]:
    """The convolutions with copies of their operands in front of them."""
    made: dict[fx.Node, fx.Node] = {}
    copies: dict[tuple[fx.Node, bool], fx.Node] = {}
    layouts = _Layouts(site, match)

    def copy(given: fx.Node, *, wants: bool) -> fx.Node:
        if (given, wants) not in copies:
            copies[given, wants] = _copied(site, made.get(given, given), wants=wants)  # the old convolution is erased
        return copies[given, wants]

    for node, wants in layouts.walk():
        arguments = dict(_call(node).arguments)
        site.before = node
        for name in CONVOLUTIONS[node.target]:
            x: fx.Node = arguments[name]
            is_right = is_laid_out(layouts.value(x), is_last=wants)
            arguments[name] = made.get(x, x) if is_right else copy(x, wants=wants)
        weight: fx.Node = arguments["weight"]
        if wants and _copies_weight(weight, site):
            arguments["weight"] = copy(weight, wants=True)
        if node is match.result or arguments != _call(node).arguments:
            made[node] = site.write(node.target, *arguments.values())
    site.before = match.result
    return made


class _Layouts:
    """The layouts that a graph's values will have, in the order of its nodes."""

    def __init__(self, site: Site, match: Convolutions) -> None:
        self.site = site
        choice = match.choice
        self.wanted = {n: n in choice.channels_last for n in choice.channels_last | choice.contiguous}
        self.changed: dict[fx.Node, Any] = {}

    def value(self, node: fx.Node) -> Any:
        """The value that a node will have."""
        return self.changed.get(node, node.meta.get(self.site.value_key))

    def walk(self) -> Any:
        """Each convolution, once the values in front of it are known, and whether it wants channels-last images."""
        for node in list(self.site.anchor.graph.nodes):
            if node in self.wanted:
                wants = self.wanted[node]
                yield node, wants
                self.changed[node] = self._computed(node, wants=wants)
            elif node.op != "output" and any(given in self.changed for given in node.all_input_nodes):
                self._follow(node)

    def _computed(self, node: fx.Node, *, wants: bool) -> Any:
        """The value that a convolution will give, or the gradients: the image has the layout."""
        value = self.site.value(node)
        if node.target is CONVOLUTION:
            return _laid_out(value, wants=wants)
        return tuple(None if each is None else _laid_out(each, wants=wants) for each in value)

    def _follow(self, node: fx.Node) -> None:
        try:
            self.changed[node] = traced(node, self.site.value_key, values=self.changed)
        except Exception:  # such as a view that the new strides do not allow: it reads a copy with the old ones
            return


def _changes(match: Convolutions, site: Site) -> bool:
    """Whether the choice asks for another layout than today's anywhere."""
    choice = match.choice
    wanted = {**dict.fromkeys(choice.contiguous, False), **dict.fromkeys(choice.channels_last, True)}
    return any(
        not is_laid_out(site.value(each), is_last=is_last)
        for node, is_last in wanted.items()
        for each in ([node] if node.target is CONVOLUTION else operands_of(node))
    )


def _call(node: fx.Node) -> OperatorCall:
    call = operator_call(node)
    assert call is not None
    return call


def _copies_weight(weight: fx.Node, site: Site) -> bool:
    """Whether the weight's layout is changed here: once, for several calls, or by the kernel that casts it."""
    is_ours = is_frozen_weight(site, weight) or is_cast_weight(weight) or is_shared_weight(site, weight)
    return is_ours and not is_channels_last(site.value(weight))


def _copied(site: Site, node: fx.Node, *, wants: bool) -> fx.Node:
    return site.write(aten.clone.default, node, memory_format=_format(site.value(node), wants=wants))


def _format(value: torch.Tensor, *, wants: bool) -> torch.memory_format:
    if not wants or value.dim() < 4:
        return torch.contiguous_format
    return torch.channels_last if value.dim() == 4 else torch.channels_last_3d


def _laid_out(value: torch.Tensor, *, wants: bool) -> torch.Tensor:
    """A traced value with the strides of the layout."""
    return torch.empty_like(value, memory_format=_format(value, wants=wants))


def _has_images(node: fx.Node, site: Site) -> bool:
    value = site.tensor(operands_of(node)[0])
    return value is not None and value.dim() in (4, 5)


CHANNELS_LAST = Rewrite(
    name="channels_last",
    docs="Convolutions take images in the layout that is estimated to be the fastest.",
    level="aten",
    anchors=("aten.convolution",),
    find=find,
    conditions=(has_no_backward, saves_time),
    replace=replace,
    keeps_strides=False,
)
TRAIN_CHANNELS_LAST = replaced(
    CHANNELS_LAST,
    name="train_channels_last",
    docs="In training, one layout of images is chosen for convolutions and their gradients.",
    level="joint",
    conditions=(saves_time,),
)
