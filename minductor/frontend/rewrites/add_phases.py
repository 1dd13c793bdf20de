"""The row `add_phases`: on a CPU, images that are resized linearly by whole factors are sums of shifted images.

Takes a call of `torch.nn.functional.interpolate` with mode "linear", "bilinear" or "trilinear" in Dynamo's graph. Gives
one dimension after the other: element `factor * i + phase` of the result lies at `i + t`, with
`t = (phase + 0.5) / factor - 0.5`, and is `1 - |t|` of element i and `|t|` of its neighbour. At an edge the neighbour
is the element itself. The gradient is such a sum too. Refuses aligned corners, other factors, and bytes, which eager
rounds in steps.

Torch traces a table of places and of shares, and reads at four places for each element; its gradient adds to such
places one by one. On a Zen 3 core 16 x 256 x 256 elements by 2 take 7.5 ms in eager, 4.2 by the table and 1.7 so, and
with the gradient 25.5, 25.2 and 5.3.

Eager gives an element beyond an edge no share of the next one, but multiplies that by 0: an infinity next to the edge
makes it NaN. Here it stays what it is.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx
from torch._prims_common import suggest_memory_format
from torch.nn import functional as F

from minductor.frontend.rewrites.resized_images import Resizing, has_whole_factors, resizing
from minductor.frontend.rewrites.rewrite_row import Rewrite, Site

MOST_PHASES = 8  # each is a store of its own


def find(site: Site) -> Resizing | None:
    """The call at the anchor, if it resizes linearly on a CPU."""
    return resizing(site, "linear", "bilinear", "trilinear")


def has_centres(match: Resizing, site: Site) -> str:
    """Elements stand for the areas around their centres."""
    del site
    if match.call.get("align_corners"):
        return "the corners are aligned"
    return "it is antialiased" if match.call.get("antialias") else ""


def has_few_phases(match: Resizing, site: Site) -> str:
    """The elements that one becomes are written one by one."""
    del site
    most = max(match.factors)
    return "" if most <= MOST_PHASES else f"a factor of {most} has too many phases"


def has_padded_dims(match: Resizing, site: Site) -> str:
    """Floating-point numbers whose neighbours a padding finds: torch pads three dimensions at most."""
    x = site.value(match.images)
    if not x.dtype.is_floating_point:
        return f"eager rounds {x.dtype} in steps"
    is_last = suggest_memory_format(x) != torch.contiguous_format
    return "a volume has its channels last" if is_last and x.dim() == 5 else ""


def add_phases(images: Tensor, factors: tuple[int, ...]) -> Tensor:
    """Images resized linearly by whole factors along the dimensions after the channels, in eager's memory format.

    >>> add_phases(torch.tensor([[[1.0, 3.0]]]), (2,))
    tensor([[[1.0000, 1.5000, 2.5000, 3.0000]]])
    """
    x = images.float() if images.dtype.itemsize < 4 else images
    is_last = suggest_memory_format(images) != torch.contiguous_format
    if is_last:
        x = x.movedim(1, -1)[None]  # padding takes two dimensions in front of those that it pads
    for dim, factor in enumerate(factors, 2):
        x = _resized(x, dim, factor) if factor > 1 else x
    return (x[0].movedim(-1, 1) if is_last else x).to(images.dtype)


def _resized(x: Tensor, dim: int, factor: int) -> Tensor:
    """`x` resized along one dimension."""
    pad = [0] * (2 * (x.dim() - 2))
    place = 2 * (x.dim() - 1 - dim)
    pad[place : place + 2] = (1, 1)
    around, size = F.pad(x, pad, "replicate"), x.shape[dim]
    neighbours = around.narrow(dim, 0, size), around.narrow(dim, 2, size)
    distances = [(phase + 0.5) / factor - 0.5 for phase in range(factor)]
    phases = [x * (1 - abs(t)) + neighbours[t >= 0] * abs(t) for t in distances]
    # `unflatten` gives one element the stride of its dimension, so channels-last phases have a channels-last result.
    return torch.cat([each.unflatten(dim, (size, 1)) for each in phases], dim + 1).flatten(dim, dim + 1)


def replace(match: Resizing, site: Site) -> fx.Node:
    """The sums."""
    return site.write(add_phases, match.images, match.factors)


ADD_PHASES = Rewrite(
    name="add_phases",
    docs="On a CPU, images that are resized linearly by whole factors are sums of shifted images.",
    level="torch",
    anchors=("aten.__interpolate",),
    find=find,
    conditions=(has_whole_factors, has_centres, has_few_phases, has_padded_dims),
    replace=replace,
    keeps_strides=False,
)
