"""Reads the terms of a sum that was written as many additions, as autograd does for a value that is read many times.

Takes a Site whose anchor adds two tensors. Gives the terms of the whole sum; None for an anchor that is a term of
another sum, or that scales what it adds. Gives also the matrix of which a node is a transposed view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from minductor.frontend.rewrites.operator_calls import operator_name
from minductor.frontend.rewrites.rewrite_row import Site
from minductor.frontend.rewrites.value_layouts import difference

ADD = "aten.add"
TURNED = ("aten.t", "aten.numpy_T", "aten.transpose", "aten.permute")  # what `turned` knows


@dataclass(frozen=True, slots=True)
class Sum:
    """The terms of a sum in the order of its additions, and the additions before the last one."""

    terms: Sequence[fx.Node]
    additions: Sequence[fx.Node]


def sum_at(site: Site, looked_for: Collection[str]) -> Sum | None:
    """The sum whose last addition is the anchor; None if there is none, or if it adds none of the operators."""
    anchor = site.anchor
    if not any((name := operator_name(each)) == ADD or name in looked_for for each in anchor.all_input_nodes):
        return None  # most additions: two values that are nothing of a kind
    if _operands(site, anchor) is None or any(_is_addition(site, user, anchor) for user in anchor.users):
        return None
    terms: list[fx.Node] = []
    additions: list[fx.Node] = []
    waiting = [anchor]
    while waiting:
        node = waiting.pop()
        if node is anchor or _is_addition(site, node, anchor):
            additions.append(node)
            waiting += reversed(_operands(site, node) or ())
        else:
            terms.append(node)
    return Sum(terms, additions[1:])


def _is_addition(site: Site, node: fx.Node, last: fx.Node) -> bool:
    """Whether a node adds two tensors to one of the sum's size and dtype, which one other call reads."""
    is_read_once = node is last or len(node.users) == 1
    return is_read_once and _operands(site, node) is not None and is_alike(site, node, last)


def is_alike(site: Site, node: fx.Node, other: fx.Node) -> bool:
    """Whether two nodes have values of one size and dtype, for all values of their symbols."""
    return not difference(site.value(node), site.value(other), keeps_strides=False)


def _operands(site: Site, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """The two tensors that a node adds; None if it does something else, or scales one of them."""
    call = site.call(node)
    if call is None or call.op != ADD or call.get("alpha", 1) != 1:
        return None
    left, right = call.get("self"), call.get("other")
    if site.tensor(left) is None or site.tensor(right) is None:
        return None
    return left, right


def turned(site: Site, node: Any) -> fx.Node | None:
    """The matrix of which a node is the transposed view; None if it is no such view."""
    call = site.call(node)
    value = site.tensor(node)
    if call is None or value is None or value.dim() != 2:
        return None
    match call.op, *(call.get(name) for name in ("dim0", "dim1", "dims")):
        case (("aten.t" | "aten.numpy_T"), *_):
            return call.first
        case "aten.transpose", int() as first, int() as second, _:
            return call.first if (first - second) % 2 else None
        case "aten.permute", _, _, dims:
            return call.first if [dim % 2 for dim in dims] == [1, 0] else None
        case _:
            return None


def turns(site: Site, node: fx.Node) -> Iterator[fx.Node]:
    """A node, and the matrices below it of which transposed views alone are read."""
    yield node
    while (source := turned(site, node)) is not None and len(source.users) == 1:
        node = source
        yield node
