"""Chooses for each convolution of an ATen graph whether its images are contiguous or channels-last, all at once.

Takes the graph through a Site. Gives the convolutions, and the gradients of convolutions in a joint graph of training,
that are to be channels-last, and what the choice saves. Refuses nothing: values whose layout is not free (inputs,
results of views and of other operators) keep the layout that they have, and a reader in the other layout costs a copy.

Each image, a tensor of four or five dimensions, is on one of two sides: contiguous or channels-last. A convolution
prices its sides by `convolution_seconds.py`. An operator whose result follows its operand's layout (pointwise, pooling,
batch norm, concatenation, and their gradients) costs a copy if the two differ; a group norm of few channels costs more
if its images are channels-last. What the caller sees costs a copy if it is not in the layout that the caller sees.
`minimum_cut.py` finds the cheapest sides.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minductor.frontend.quirks.eager_strides import POINTWISE, layout_of
from minductor.frontend.rewrites.convolution_seconds import (
    SHARED_WEIGHT,
    can_pack,
    convolution,
    copy_seconds,
    gradient_seconds,
    group_norm_seconds,
    has_layouts,
    layout_seconds,
    nbytes,
    number,
    sizes,
)
from minductor.frontend.rewrites.minimum_cut import ALWAYS, TwoSides
from minductor.frontend.rewrites.operator_calls import operator_call, operator_name
from minductor.frontend.rewrites.rewrite_row import Site

CONVOLUTION = torch.ops.aten.convolution.default
# operator -> the names of its operands that are images
CONVOLUTIONS: Mapping[Any, tuple[str, ...]] = {
    CONVOLUTION: ("input",),
    torch.ops.aten.convolution_backward.default: ("input", "grad_output"),
}

# operators whose result has the layout of their operand, beside pointwise ones
_FOLLOWING_NAMES = (
    "_native_batch_norm_legit_no_training native_batch_norm _native_batch_norm_legit max_pool2d_with_indices"
    " max_pool3d_with_indices avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d"
    " cat constant_pad_nd _prelu_kernel upsample_nearest2d upsample_bilinear2d _to_copy slice split split_with_sizes"
    " expand"
    " _native_batch_norm_legit_functional native_batch_norm_backward native_group_norm native_group_norm_backward"
    " max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward avg_pool3d_backward"
    " _adaptive_avg_pool2d_backward upsample_nearest2d_backward upsample_bilinear2d_backward"
)
_FOLLOWING = frozenset(f"aten.{name}" for name in _FOLLOWING_NAMES.split())
# whether a group norm is a gradient
_GROUP_NORMS: Mapping[str, bool] = {"aten.native_group_norm": False, "aten.native_group_norm_backward": True}
# operators that read either layout at the same cost, and give little
_REDUCING_NAMES = "mean sum amax amin var var_mean argmax any all"
_REDUCING = frozenset(f"aten.{name}" for name in _REDUCING_NAMES.split())


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """The cheapest layouts of a graph's images.

    Args:
        channels_last: the convolutions whose images are channels-last.
        contiguous: the convolutions whose images are contiguous. The others keep the layout that they have.
        seconds: what this choice costs above the best form of each convolution, as an estimate.
        contiguous_seconds: what it costs to change nothing.
        last_seconds: what it costs if all convolutions are channels-last.
    """

    channels_last: frozenset[fx.Node]
    contiguous: frozenset[fx.Node]
    seconds: float
    contiguous_seconds: float
    last_seconds: float


def choose_layouts(site: Site) -> LayoutChoice:
    """The cheapest layouts for the graph of a site's anchor."""
    graph = _Priced(site)
    convolutions = graph.free
    found = graph.cheapest({})
    last = graph.cheapest(dict.fromkeys(convolutions, True))
    is_last = {node for node in convolutions if found.get(node, False)}
    return LayoutChoice(
        channels_last=frozenset(is_last),
        contiguous=frozenset(set(convolutions) - is_last),
        seconds=graph.seconds(found),
        contiguous_seconds=graph.seconds(graph.cheapest(dict.fromkeys(convolutions, False))),
        last_seconds=graph.seconds(last),
    )


class _Priced:
    """The images of a graph with the costs of their sides. A side is True for channels-last."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.prices: list[tuple[fx.Node, float, float]] = []  # of contiguous, of channels-last
        self.joined: list[tuple[fx.Node, fx.Node, float]] = []
        self.free: list[fx.Node] = []  # the convolutions of which both layouts are priced
        for node in site.anchor.graph.nodes:
            self._price(node)

    def cheapest(self, forced: dict[fx.Node, bool]) -> dict[fx.Node, bool]:
        """The side of each image; those in `forced` have the given one."""
        sides = TwoSides()
        for node, contiguous, last in self.prices:
            sides.price(node, first=contiguous, second=last)
        for a, b, cost in self.joined:
            sides.join(a, b, cost)
        for node, is_last in forced.items():
            sides.price(node, first=ALWAYS * is_last, second=ALWAYS * (not is_last))
        second = sides.second()
        return {node: node in second for node in sides.numbers if isinstance(node, fx.Node)}

    def seconds(self, chosen: dict[fx.Node, bool]) -> float:
        """What a choice of sides costs."""
        own = sum(last if chosen[node] else contiguous for node, contiguous, last in self.prices)
        return own + sum(cost for a, b, cost in self.joined if chosen[a] != chosen[b])

    def _price(self, node: fx.Node) -> None:
        """Adds the costs of a node's own layout, and of its operands' layouts."""
        name = operator_name(node)
        result = self._image(node)
        if node.target in CONVOLUTIONS and self._image(node.args[0]) is not None:
            self._price_convolution(node)
        elif node.target is operator.getitem:
            self._price_item(node)
        elif result is not None and self._follows(node, name):
            for given in self._images_of(node):
                self._join(node, given)
            if name in _GROUP_NORMS:
                self._price_group_norm(node, result)
        elif name in _REDUCING:
            return
        elif name == "aten.permute" and node.args[1] in ([0, 2, 3, 1], [0, 2, 3, 4, 1]):
            for given in self._images_of(node):  # whose reader wants the channels in a row
                self.prices.append((given, self._copy(given), 0.0))
        else:
            for given in self._images_of(node):
                self._price_reader(given)
            if result is not None:
                self._pin(node, result)

    def _follows(self, node: fx.Node, name: str) -> bool:
        """Whether the result has the layout of an operand that is an image."""
        target: Any = node.target
        if not any(True for _ in self._images_of(node)):
            return False
        if name == "aten.clone":
            return node.kwargs.get("memory_format") in (None, torch.preserve_format)
        is_pointwise = isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
        return is_pointwise or str(target) in POINTWISE or name in _FOLLOWING

    def _price_group_norm(self, node: fx.Node, result: torch.Tensor) -> None:
        """Adds what channels-last images cost a group norm, or its gradient."""
        call = operator_call(node)
        assert call is not None
        facts = {"is_gpu": self.site.is_gpu, "is_gradient": _GROUP_NORMS[operator_name(node)]}
        self.prices.append((node, 0.0, group_norm_seconds(result, number(call.get("group")), **facts)))

    def _price_item(self, node: fx.Node) -> None:
        """Joins one of several results to the call that gives it; the gradient of a weight is no image."""
        given: Any = node.args[0]
        if self._image(node) is None:
            return
        if given.target in CONVOLUTIONS and node.args[1] != 0:
            self.prices.append((node, 0.0, 0.0))
        else:
            self._join(node, given)

    def _price_convolution(self, node: fx.Node) -> None:
        call = operator_call(node)
        assert call is not None
        images = operands_of(node)
        weight, result = call.get("weight"), self._result(node)
        is_packed = can_pack(self.site, weight)
        has_free_layout = has_layouts(result.dtype, is_gpu=self.site.is_gpu, is_packed=is_packed)
        if not has_free_layout or _is_strictly_last(self.site.value(weight)):
            for given in images:
                self._price_reader(given)
            if (image := self._image(node)) is not None:
                self._pin(node, image)
            return
        self.free.append(node)
        priced = convolution(call, self.site, result)
        is_copied_once = is_frozen_weight(self.site, weight) or is_cast_weight(weight)
        if node.target is CONVOLUTION:
            facts = {"is_gpu": self.site.is_gpu, "is_packed": is_packed, "is_frozen": is_copied_once}
            before, after = layout_seconds(priced, dtype=result.dtype, **facts)
        else:
            images_wanted, weights_wanted, _ = call.get("output_mask")
            facts = {"images": images_wanted, "weights": weights_wanted, "is_cast": is_copied_once}
            before, after = gradient_seconds(priced, dtype=result.dtype, is_gpu=self.site.is_gpu, **facts)
        self.prices.append((node, before, after))
        for given in images:
            self._join(node, given)

    def _result(self, node: fx.Node) -> torch.Tensor:
        """The traced result of a convolution, or the one whose gradient a call takes."""
        return self.site.value(node if node.target is CONVOLUTION else node.args[0])

    def _join(self, node: fx.Node, given: fx.Node) -> None:
        if self._image(given) is not None:
            self.joined.append((node, given, self._copy(given)))

    def _price_reader(self, given: fx.Node) -> None:
        """Adds what it costs an image to have another layout than today, where a reader wants today's."""
        value = self._image(given)
        if value is None or _is_both(value):
            return
        is_last = is_channels_last(value)
        self.prices.append((given, self._copy(given) * is_last, self._copy(given) * (not is_last)))

    def _pin(self, node: fx.Node, value: torch.Tensor) -> None:
        """Keeps an image in the layout that it has; nothing if it counts as both."""
        if not _is_both(value):
            is_last = is_channels_last(value)
            self.prices.append((node, ALWAYS * is_last, ALWAYS * (not is_last)))
        else:
            self.prices.append((node, 0.0, 0.0))

    def _copy(self, node: fx.Node) -> float:
        value = self._image(node)
        return 0.0 if value is None else copy_seconds(nbytes(value), is_gpu=self.site.is_gpu)

    def _image(self, node: object) -> torch.Tensor | None:
        """The traced image of a node, the first one if it gives several values; None if there is none."""
        value: Any = self.site.value(node) if isinstance(node, fx.Node) else None
        if isinstance(value, tuple | list):
            value = next(iter(value), None)
        return value if isinstance(value, torch.Tensor) and value.dim() in (4, 5) else None

    def _images_of(self, node: fx.Node) -> Iterator[fx.Node]:
        return (given for given in node.all_input_nodes if self._image(given) is not None)


def is_frozen_weight(site: Site, weight: object) -> bool:
    """Whether a weight is brought to another layout once: it is a frozen node of a frozen graph."""
    return bool(site.frozen) and site.is_frozen(weight)


def operands_of(node: fx.Node) -> list[fx.Node]:
    """The images that a convolution reads, or the gradient of one: its own, and the gradient of its result."""
    call = operator_call(node)
    assert call is not None
    return [call.get(name) for name in CONVOLUTIONS[node.target]]


def is_cast_weight(weight: object) -> bool:
    """Whether a kernel of ours casts a weight in training, as autocast asks: it writes any layout at the same cost."""
    return isinstance(weight, fx.Node) and operator_name(weight) == "aten._to_copy" and is_in_training(weight)


def is_shared_weight(site: Site, weight: fx.Node) -> bool:
    """Whether a kernel of ours copies a weight for a convolution and its gradient: oneDNN would copy it in each call.

    A small copy takes longer to begin than it saves.
    """
    return not site.is_gpu and is_in_training(site.anchor) and nbytes(site.value(weight)) >= SHARED_WEIGHT


def is_in_training(node: fx.Node) -> bool:
    """Whether a node is part of a joint graph of training, or of the forward or backward that it was split into."""
    return "partitioner_tag" in node.meta


def is_channels_last(value: torch.Tensor) -> bool:
    """Whether an image is channels-last for all values of its symbols."""
    return layout_of(value).is_channels_last


def is_laid_out(value: torch.Tensor, *, is_last: bool) -> bool:
    """Whether an image has a layout for all values of its symbols; one of one channel or one pixel has both."""
    layout = layout_of(value)
    return layout.is_channels_last if is_last else layout.is_contiguous


def _is_strictly_last(weight: torch.Tensor) -> bool:
    """Whether a weight is channels-last and not contiguous, so that the library gives channels-last results."""
    return is_channels_last(weight) and not layout_of(weight).is_contiguous


def _is_both(value: torch.Tensor) -> bool:
    """Whether an image counts as contiguous and as channels-last: it has one channel or one pixel."""
    return sizes(value)[1] == 1 or all(n == 1 for n in sizes(value)[2:])
