"""The structure of arguments and results as JSON.

Takes a structure of torch's pytrees; or such JSON. Gives the JSON; or the structure. Refuses (ValueError) structures
other than tuples, lists, dicts and torch's named results, since a class may not exist in another process.

>>> given = ([1, {"a": 2}], None)
>>> tree_json(trees.tree_structure(given))
{'tuple': [{'list': ['*', {'dict': [['a', '*']]}]}, '*']}
>>> read_tree(tree_json(trees.tree_structure(given))) == trees.tree_structure(given)
True
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch.utils import _pytree as trees

LEAF = "*"
NAMED = "torch.return_types."


def tree_json(spec: Any) -> Any:
    """The structure as JSON: a leaf is a star, anything else an object whose only key is its kind."""
    if spec.is_leaf():
        return LEAF
    parts = [tree_json(part) for part in spec.children()]
    name = spec.type.__name__
    if spec.type in (tuple, list):
        return {name: parts}
    if spec.type in (dict, OrderedDict) and all(type(key) in (str, int, bool) for key in spec.context):
        return {name: [[key, part] for key, part in zip(spec.context, parts, strict=True)]}
    if spec.type is getattr(torch.return_types, name, None):
        return {NAMED + name: parts}
    raise ValueError(f"a {name} is no tuple, list or dict of plain keys")


def read_tree(given: Any) -> Any:
    """The structure of torch's pytrees for its form in JSON; ValueError if `given` is no such form."""
    return trees.tree_structure(_example(given))


def _example(given: Any) -> Any:
    """A value of the structure, whose leaves are 0."""
    match given:
        case "*":
            return 0
        case {"tuple": [*parts]}:
            return tuple(_example(part) for part in parts)
        case {"list": [*parts]}:
            return [_example(part) for part in parts]
        case {"dict": [*rows]}:
            return {key: _example(part) for key, part in rows}
        case {"OrderedDict": [*rows]}:
            return OrderedDict((key, _example(part)) for key, part in rows)
        case dict() if len(given) == 1:
            ((name, parts),) = given.items()
            kind = getattr(torch.return_types, name.removeprefix(NAMED), None)
            if name.startswith(NAMED) and isinstance(kind, type):
                return kind([_example(part) for part in parts])
    raise ValueError(f"no structure is described by {str(given)[:80]}")
