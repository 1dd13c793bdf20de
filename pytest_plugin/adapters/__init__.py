"""Adapters: what the plugin asks of a compiler, and how an adapter is found by the compiler's name.

An adapter's author imports everything that he needs from here.
"""

from pytest_plugin.adapters.captured_graph import Assembly, Facts, Graph, Kernel, Storage
from pytest_plugin.adapters.installed import compilers, find_adapter
from pytest_plugin.adapters.protocol import Adapter, FreshStore, Mutant, Session

__all__ = [
    "Adapter",
    "Assembly",
    "Facts",
    "FreshStore",
    "Graph",
    "Kernel",
    "Mutant",
    "Session",
    "Storage",
    "compilers",
    "find_adapter",
]
