"""One object per value, so that equal index expressions are cheap to compare and to use as keys.

Takes: a key and a node made for it.
Gives: the node that the weak table already holds for that key, else the new one. Safe under threads and forks.
Refuses: nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any, cast


class _Entry(weakref.ref[Any]):
    """A weak reference that knows under which key the table holds it."""

    __slots__ = ("key",)
    key: Hashable


# A lost race leaves two equal nodes, which `==` sees through: so the table needs no lock, and a fork inherits none.
_TABLE: dict[Hashable, _Entry] = {}


def _forget(entry: weakref.ref[Any], table: dict[Hashable, _Entry] = _TABLE) -> None:
    key = cast(_Entry, entry).key
    if table.get(key) is entry:
        table.pop(key, None)


def find(key: Hashable) -> Any:
    entry = _TABLE.get(key)
    return None if entry is None else entry()


def intern(key: Hashable, node: Any) -> Any:
    mine = _Entry(node, _forget)
    mine.key = key
    while (entry := _TABLE.setdefault(key, mine)) is not mine:
        other = entry()
        if other is not None:
            return other
        _forget(entry)
    return node


class Node:
    """What Expr and Rel share: interning, a cached hash, copies through the constructor."""

    __slots__ = ("__weakref__", "_free", "_hash")
    __match_args__: tuple[str, ...] = ()
    _free: tuple[Any, ...]
    _hash: int

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Node) or self._hash != other._hash or type(self) is not type(other):
            return False
        return self._fields() == other._fields()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._fields()

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self}>"
