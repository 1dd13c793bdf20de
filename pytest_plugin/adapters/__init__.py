"""Adapters: what the plugin asks of a compiler, and the adapters of minductor, TorchInductor and eager.

The author of an adapter imports everything that he needs from this package; docs/testing.md shows a whole adapter. The
files in reading order:

    protocol.py            the protocols Adapter, Session and FreshStore, and Mutant, a fault that tests must notice
    captured_graph.py      what an adapter reports of each compiled graph: Graph, Kernel, Facts, Storage, Assembly
    installed.py           finds an adapter by its compiler's name, here or among the entry points of packages
    eager.py               no compiler at all: the smallest adapter, and the one that tests the plugin itself
    inductor.py            TorchInductor: reads counts and launches from the text that it generated
    minductor.py           minductor: reads them from its report and its plan
    minductor_mutants.py   the faults of minductor that tests must notice

An Adapter makes one Session for each call of the fixture `compiled`. The session compiles, and then gives one Graph for
each graph that was compiled. Each Graph carries the session's `nonce`, so no result of an earlier run can be taken for
one of this run. A count that the compiler does not know is None, never zero.
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
