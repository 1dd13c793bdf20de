"""Calls of `torch.nn.functional.interpolate` that resize images by whole factors.

Takes a Site. Gives a `Resizing`, and conditions that its rows share. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.rewrite_row import Match, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing(Match):
    """A call that resizes images. `factors`: by dimension after the channels; 0 where it is no whole number."""

    call: OperatorCall
    images: fx.Node
    mode: str
    factors: tuple[int, ...]


def resizing(site: Site, *modes: str) -> Resizing | None:
    """The call at the anchor, if it has one of the modes and is compiled for a CPU."""
    call = site.call(site.anchor)
    images = None if call is None else call.first
    x, shown = site.tensor(images), site.tensor(site.anchor)
    if call is None or not isinstance(images, fx.Node) or x is None or shown is None or site.is_gpu:
        return None
    mode = call.get("mode", "nearest")
    if mode not in modes or not 3 <= x.dim() <= 5:
        return None
    scales = call.get("scale_factor")
    given = tuple(scales) if isinstance(scales, tuple | list) else (scales,) * (x.dim() - 2)
    sizes = zip(x.shape[2:], shown.shape[2:], given, strict=True)
    factors = tuple(_factor(*row) for row in sizes)
    return Resizing(result=site.anchor, call=call, images=images, mode=mode, factors=factors)


def _factor(size: Any, number: Any, scale: Any) -> int:
    """How many elements of the result one of the images becomes, along a dimension; 0 if that is no whole number."""
    if type(size) is int and type(number) is int:
        factor, rest = divmod(number, max(1, size))
        return 0 if rest else factor
    factor = int(scale) if isinstance(scale, int | float) and scale == scale // 1 else 1
    return factor if factor > 0 and statically_known_true(number == size * factor) else 0


def has_whole_factors(match: Resizing, site: Site) -> str:
    """Each element becomes as many elements of the result."""
    del site
    if 0 in match.factors:
        return "an image is not resized by whole factors"
    return "" if max(match.factors) > 1 else "no image is resized"
