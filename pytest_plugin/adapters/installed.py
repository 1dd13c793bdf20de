"""Finds the adapter of a compiler by the compiler's name.

Takes a name. Gives the adapter: one of this plugin, or one that an installed package has as an entry point. Refuses
an unknown name, with the known ones, and an adapter that lacks a part of the protocol (ValueError).
"""

from __future__ import annotations

import importlib
import importlib.metadata

from pytest_plugin.adapters.protocol import Adapter
from pytest_plugin.vocabulary import ADAPTERS, ENTRY_POINTS

REQUIRED_PARTS = ("name", "devices", "memory_options", "version", "session", "fresh_store")


def find_adapter(name: str) -> Adapter:
    """Returns the adapter of a compiler: one of the plugin's, or one that an installed package has as an entry point.

    Args:
        name: The compiler's name, as `--compiler` takes it.

    Returns:
        A new adapter.

    Raises:
        ValueError: There is no such compiler, or its adapter lacks a part of the protocol.
    """
    if name in ADAPTERS:
        module, _, attribute = ADAPTERS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)()
    others = _entry_points()
    if name not in others:
        raise ValueError(f"no compiler is called {name!r}; the compilers are {', '.join(compilers())}")
    adapter = others[name].load()()
    missing = [part for part in REQUIRED_PARTS if not hasattr(adapter, part)]
    if missing:
        raise ValueError(f"the adapter {name!r} of {others[name].value} has no {', '.join(missing)}")
    return adapter


def compilers() -> tuple[str, ...]:
    """Returns the names of all adapters that are installed."""
    return (*ADAPTERS, *_entry_points())


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    """Returns the adapters of other installed packages by the compiler's name."""
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
