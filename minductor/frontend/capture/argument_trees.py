"""Functions of nested tuples, which the arguments, metadata and values of a captured graph's nodes are.

Takes a tree, that is, a leaf or a tuple of trees. Gives its leaves, the nodes that it refers to, or a tree with other
leaves. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minductor.frontend.capture.captured_graph import Arg, NodeRef


def leaves(tree: object) -> Iterator[Any]:
    """The leaves of nested tuples, in order.

    >>> list(leaves((1, (2, ()), None)))
    [1, 2, None]
    """
    if isinstance(tree, tuple):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Nested tuples with `fn(leaf)` in place of each leaf.

    >>> map_leaves(str, (1, (2, ()), None))
    ('1', ('2', ()), 'None')
    """
    return tuple([map_leaves(fn, item) for item in tree]) if isinstance(tree, tuple) else fn(tree)


def node_names_in(tree: object) -> Iterator[str]:
    """The names of the nodes that a tree of arguments refers to."""
    return (leaf.name for leaf in leaves(tree) if isinstance(leaf, NodeRef))


def substitute(tree: Any, values: Mapping[str, Arg]) -> Any:
    """A tree of arguments with `values[name]` in place of each node whose name is in `values`."""
    return map_leaves(lambda arg: values.get(arg.name, arg) if isinstance(arg, NodeRef) else arg, tree)
