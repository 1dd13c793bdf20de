"""Interning: one object for each value, so that index expressions are compared and hashed by identity.

Takes: a class and its fields, each an int, a string, None, another node, or a tuple of those.
Gives: the only node of that class with those fields. The table holds it by a weak reference.
Refuses: nothing.

There is no lock, which a forked child could inherit in a locked state: `setdefault` and `_remove_dead_weakref` are
atomic, so threads get the same object. Copies and pickles are made by `node` as well.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any, TypeVar


class Entry(weakref.ref[Any]):
    """A weak reference to a node, with the node's key in the table."""

    __slots__ = ("key",)
    key: Hashable


TABLE: dict[Hashable, Entry] = {}


class Node:
    __slots__ = ("__weakref__", "_free")
    __match_args__: tuple[str, ...] = ()
    _free: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return node, (type(self), *(getattr(self, name) for name in self.__match_args__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self}>"


_N = TypeVar("_N", bound=Node)


def node(cls: type[_N], *fields: Any) -> _N:
    key = (cls, *fields)
    entry = TABLE.get(key)
    if entry is not None:
        found = entry()
        if found is not None:
            return found
    made = object.__new__(cls)
    for name, value in zip(cls.__match_args__, fields, strict=True):
        setattr(made, name, value)
    return intern(key, made)


def intern(key: Hashable, made: _N) -> _N:
    """The node in the table under that key: `made`, unless another thread has put one there before."""
    mine = Entry(made, _forget)
    mine.key = key
    while (entry := TABLE.setdefault(key, mine)) is not mine:
        other = entry()
        if other is not None:
            return other
        _forget(entry)
    return made


# The defaults are bound here because the callback may run at shutdown, when the module's names are gone.
def _forget(
    entry: Any,
    table: dict[Hashable, Entry] = TABLE,
    remove: Any = weakref._remove_dead_weakref,  # pyright: ignore # the only atomic "delete if dead" there is
) -> None:
    remove(table, entry.key)
