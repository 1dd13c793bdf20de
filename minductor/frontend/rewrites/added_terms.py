"""Reads the terms of a sum that was written as many additions, as autograd does for a value that is read many times.

Takes a Site whose anchor adds two tensors. Gives the terms of the whole sum; None for an anchor that is a term of
another sum, that scales what it adds, or that adds a value to itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import fx

from minductor.frontend.rewrites.operator_calls import operator_name
from minductor.frontend.rewrites.rewrite_row import Site
from minductor.frontend.rewrites.value_layouts import difference

ADD = "aten.add"


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
    if _operands(site, anchor) is None:
        return None
    if len(anchor.users) == 1 and _is_addition(site, next(iter(anchor.users)), anchor):
        return None
    terms: list[fx.Node] = []
    additions: list[fx.Node] = []
    waiting = [anchor]
    while waiting:
        node = waiting.pop()
        if node is anchor or (len(node.users) == 1 and _is_addition(site, node, anchor)):
            additions.append(node)
            waiting += reversed(_operands(site, node) or ())
        else:
            terms.append(node)
    return Sum(terms, additions[1:])


def _is_addition(site: Site, node: fx.Node, other: fx.Node) -> bool:
    """Whether a node adds two tensors, and has the size and dtype of another sum."""
    return _operands(site, node) is not None and is_alike(site, node, other)


def is_alike(site: Site, node: fx.Node, other: fx.Node) -> bool:
    """Whether two nodes have values of one size and dtype, for all values of their symbols."""
    return not difference(site.value(node), site.value(other), keeps_strides=False)


def _operands(site: Site, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """The two tensors that a node adds; None if it does something else, scales one of them, or doubles one: doubled
    again and again, it would be a term more often than could be listed.
    """
    call = site.call(node)
    if call is None or call.op != ADD or call.get("alpha", 1) != 1:
        return None
    left, right = call.get("self"), call.get("other")
    if left is right or site.tensor(left) is None or site.tensor(right) is None:
        return None
    return left, right
