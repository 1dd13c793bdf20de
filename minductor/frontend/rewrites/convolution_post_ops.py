"""The rows `post_ops` and `clamping_post_ops`: an activation behind a packed convolution becomes a part of it.

Takes an activation that reads oneDNN's convolution alone. Gives the convolution with the activation, which costs it
nothing. Refuses activations that take oneDNN longer than a kernel of ours (gelu, silu, tanh), and sums with a residual,
which a kernel of ours computes together with what follows.

oneDNN's relu and hardtanh give 0 and the lower bound where the convolution gives NaN; eager gives NaN. So
`clamping_post_ops` is off unless the option `rewrites` names it: it is for nets that give no NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx

from minductor.frontend.rewrites.operator_calls import OperatorCall
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site

_CONVOLUTIONS = ("mkldnn._convolution_pointwise", "mkldnn._convolution_transpose_pointwise")

PostOp = tuple[str, list[Any]]  # oneDNN's name of an activation, and its numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivatedConvolution(Match):
    """An activation, and the packed convolution whose result it reads."""

    convolution: OperatorCall
    post_op: PostOp


def _leaky_relu(call: OperatorCall) -> PostOp:
    return "leaky_relu", [call.get("negative_slope", 0.01)]


def _hardtanh(call: OperatorCall) -> PostOp:
    return "hardtanh", [float(call.get("min_val", -1.0)), float(call.get("max_val", 1.0))]


_EXACT: Mapping[str, Callable[[OperatorCall], PostOp]] = {
    "aten.hardswish": lambda _: ("hardswish", []),
    "aten.leaky_relu": _leaky_relu,
}
_CLAMPING: Mapping[str, Callable[[OperatorCall], PostOp]] = {
    "aten.relu": lambda _: ("relu", []),
    "aten.hardtanh": _hardtanh,
}


def find(site: Site) -> ActivatedConvolution | None:
    """The activation at the anchor, if a packed convolution without an activation gives its operand."""
    call = site.call(site.anchor)
    if call is None:
        return None
    convolution = site.call(call.first)
    if convolution is None or convolution.op not in _CONVOLUTIONS or convolution.get("attr") != "none":
        return None
    post_op = {**_EXACT, **_CLAMPING}[call.op](call)
    return ActivatedConvolution(result=site.anchor, inside=(call.first,), convolution=convolution, post_op=post_op)


def has_numbers(match: ActivatedConvolution, site: Site) -> str:
    """oneDNN takes the numbers of an activation when the convolution is compiled."""
    del site
    symbols = [given for given in match.post_op[1] if not isinstance(given, int | float)]
    return f"{symbols[0]} is no number" if symbols else ""


def replace(match: ActivatedConvolution, site: Site) -> fx.Node:
    """The convolution with the activation."""
    attr, scalars = match.post_op
    given = {**match.convolution.arguments, "attr": attr, "scalars": scalars}
    target: Any = match.inside[0].target
    return site.write(target, *given.values())


def _row(name: str, docs: str, activations: Mapping[str, Any], *, is_on: bool) -> Rewrite:
    return Rewrite(
        name=name,
        docs=docs,
        level="frozen",
        anchors=tuple(activations),
        find=find,
        conditions=(has_numbers,),
        replace=replace,
        keeps_strides=False,
        packs=True,
        is_on=is_on,
    )


POST_OPS = _row(
    "post_ops", "hardswish and leaky_relu behind a packed convolution become a part of it.", _EXACT, is_on=True
)
CLAMPING_POST_OPS = _row(
    "clamping_post_ops",
    "relu and hardtanh behind a packed convolution become a part of it, which gives no NaN.",
    _CLAMPING,
    is_on=False,
)
