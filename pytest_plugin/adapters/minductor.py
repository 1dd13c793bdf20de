"""minductor as a compiler under test: the only file of the plugin that knows minductor's insides.

Takes a function and options; gives a compiled one, and for each graph its texts, facts, stages and events. Refuses
nothing that minductor takes. Compiles with `events` and `verify`, so that launches are seen and the IR is checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unittest import mock

from pytest_plugin.facts import Facts, Graph, Kernel, Storage
from pytest_plugin.vocabulary import COUNTS

if TYPE_CHECKING:
    from minductor.driver import Compiled
    from minductor.trace import Record

# A generated function with the comment above it; both braces of its body stand alone at the margin.
KERNEL = re.compile(r'^(?://[^\n]*\n)*extern "C" int64_t (\w+)\([^{]*\{\n.*?^\}\n', re.MULTILINE | re.DOTALL)


def kernels_of(text: str) -> tuple[Kernel, ...]:
    """The kernels in a C++ unit, without the prelude and the entries around them.

    >>> unit = 'int md_f();\\n// aten.neg: neg\\nextern "C" int64_t fused_neg_0(float* o) {\\n  return 0;\\n}\\nEND()'
    >>> [(kernel.name, kernel.text.count("\\n")) for kernel in kernels_of(unit)]
    [('fused_neg_0', 4)]
    """
    return tuple(Kernel(found[1], "cpp", found[0]) for found in KERNEL.finditer(text))


@dataclass(slots=True)
class Stages:
    """A sink of the Trace that keeps the stages of the graph that is being compiled."""

    current: dict[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])

    def record(self, record: Record) -> None:
        if not record.sources:
            self.current[record.stage] = record.text

    def take(self) -> Mapping[str, Callable[[], str]]:
        taken, self.current = self.current, {}
        return taken


class Session:
    """One Compiler with a store of its own."""

    def __init__(self, folder: Path) -> None:
        from minductor.driver import Compiler
        from minductor.runtime.store import Store
        from minductor.trace import Trace

        self._stages = Stages()
        self._compiler = Compiler(store=Store(folder), trace=Trace((self._stages,)), observer=self._observe)
        self._graphs: list[Graph] = []

    def compile(self, fn: Callable[..., Any], options: Mapping[str, object], dynamic: bool | None) -> Any:
        import torch

        tools: Any = torch  # torch leaves its types open
        chosen = {"events": True, "verify": True, **options}
        return tools.compile(fn, backend=self._compiler, options=chosen, fullgraph=True, dynamic=dynamic)

    def _observe(self, compiled: Compiled) -> None:
        report = compiled.report
        counts = {name: getattr(report, name) for name in COUNTS if hasattr(report, name)}
        facts = Facts(
            **counts,
            kernel_names=report.kernel_names,
            extern_reasons=report.extern_reasons,
            refusals=report.refusals,
            askers=(report.why_not,),
        )
        units = [text for name, text in sorted(compiled.sources.items()) if name.endswith(".cpp")]
        kernels = tuple(kernel for text in units for kernel in kernels_of(text))
        wrapper = compiled.sources.get("wrapper.py", "")
        self._graphs.append(
            Graph(
                compiled.role,
                kernels,
                wrapper,
                facts,
                self._stages.take(),
                compiled.events,
                compiled.was_hit,
                compiled.seconds,
                report.calls,
                tuple(Storage(*row[:5], names=tuple(row[5:])) for row in report.storages),
            )
        )

    def capture(self) -> Sequence[Graph]:
        return self._graphs


@dataclass(frozen=True, slots=True)
class FreshStore:
    """The private store, and every store that was asked for anything since."""

    path: Path
    users: Path
    touched: list[Path] = field(default_factory=list[Path])


class Minductor:
    """The adapter."""

    name = "minductor"
    devices = ("cpu",)
    memory_options: Mapping[str, object] = MappingProxyType({"verify_memory": "log"})

    def version(self) -> str:
        import minductor

        return minductor.__version__

    def session(self, folder: Path) -> Session:
        return Session(folder)

    @contextmanager
    def fresh_store(self, folder: Path) -> Generator[FreshStore]:
        import minductor
        from minductor.runtime.store import Store, default_root

        users = Path(os.environ.get("MINDUCTOR_CACHE_DIR") or default_root(os.environ))
        fresh = FreshStore(folder, users)
        # Every read, write and lock of a store goes through `_place`, also in stores that were opened earlier.
        stores: Any = Store
        place = stores._place

        def watched(store: Store, key: str, variant: str) -> Path:
            if store.root not in fresh.touched:
                fresh.touched.append(store.root)
            return place(store, key, variant)

        own = mock.patch.dict(os.environ, {"MINDUCTOR_CACHE_DIR": str(folder)})
        with mock.patch.object(Store, "_place", watched), own:
            minductor.minductor.reset()  # the default Compiler read the environment when it was made
            yield fresh
        minductor.minductor.reset()
