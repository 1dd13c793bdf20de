"""minductor as a compiler under test: the only file of the plugin that knows minductor's insides.

Takes a function and options. Gives a compiled function, and for each graph its texts, counts, stages and events.
Refuses nothing that minductor takes. Compiles with the options `events`, which reports launches, and `verify`, which
checks the IR. For a compile-only device, worker processes compile each kernel to assembly.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unittest import mock

from pytest_plugin.adapters.captured_graph import Assembly, Facts, Graph, Kernel, Storage
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.vocabulary import COUNTS

if TYPE_CHECKING:
    from concurrent.futures import Future

    from minductor.api.explain import Explanation
    from minductor.backends import Backend
    from minductor.driver import Compiled
    from minductor.ir.artefact.launch_metadata import LaunchMetadata
    from minductor.runtime.build.pool import Pool
    from minductor.runtime.build.triton_jobs import KernelFacts
    from minductor.target import Target
    from minductor.tracing.trace import Record
    from pytest_plugin.adapters.protocol import Mutant

Clock = Callable[[Callable[[], object]], float]

# A generated function with the comment above it. The closing brace of its body is the first one at the margin.
KERNEL = re.compile(r'^(?://[^\n]*\n)*(?:extern "C" )?int64_t (\w+)\([^{]*\{\n.*?^\}\n', re.MULTILINE | re.DOTALL)


def kernels_of(text: str) -> tuple[Kernel, ...]:
    """Returns the kernels in a unit of C or C++, without the prelude and the entries around them.

    >>> unit = 'int md_f();\\n// aten.neg: neg\\nextern "C" int64_t fused_neg_0(float* o) {\\n  return 0;\\n}\\nEND()'
    >>> [(kernel.name, kernel.text.count("\\n")) for kernel in kernels_of(unit)]
    [('fused_neg_0', 4)]
    """
    return tuple(Kernel(found[1], "cpp", found[0]) for found in KERNEL.finditer(text))


# The same for Triton.
FUNCTION = re.compile(r"^(?:#[^\n]*\n)*@triton\.jit\ndef (\w+)\([^\n]*\n(?:(?:    [^\n]*)?\n)*", re.MULTILINE)


def triton_kernels_of(text: str, symbols: Collection[str]) -> tuple[Kernel, ...]:
    """The kernels of these names in a module of Triton, each behind the functions that combine its values.

    >>> join = "@triton.jit\\ndef k_0_sum(a, b):\\n    return a + b"
    >>> kernel = "# aten.sum\\n@triton.jit\\ndef k_0(x):\\n    pass"
    >>> unit = "\\n\\n\\n".join(["import triton", join, kernel])
    >>> [(made.name, made.text.count("@triton.jit"), made.text[-9:]) for made in triton_kernels_of(unit, ["k_0"])]
    [('k_0', 2, '    pass\\n')]
    """
    kernels: list[Kernel] = []
    before: list[str] = []
    for found in FUNCTION.finditer(text + "\n"):
        if found[1].startswith("md_"):
            continue
        before.append(found[0].rstrip() + "\n")
        if found[1] in symbols:
            kernels.append(Kernel(found[1], "py", "\n\n".join(before)))
            before = []
    return tuple(kernels)


@dataclass(slots=True)
class Stages:
    """Keeps the stages of the graph that is being compiled, as a sink of the Trace."""

    current: dict[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])

    def record(self, record: Record) -> None:
        """Keeps the text of one stage. Records that have sources are no stages of a graph."""
        if not record.sources:
            self.current[record.stage] = record.text

    def take(self) -> Mapping[str, Callable[[], str]]:
        """Returns the stages kept so far, and starts anew."""
        taken, self.current = self.current, {}
        return taken


@dataclass(frozen=True, slots=True)
class Workers:
    """Processes that all sessions share: one that interprets GPU kernels, and several that compile them."""

    interpreter: Pool
    builders: Pool


class Session:
    """One Compiler with a store of its own."""

    def __init__(self, folder: Path, device: Device, workers: Workers, tuning_clock: Clock | None) -> None:
        from minductor.driver import Compiler
        from minductor.runtime.store.store import Store
        from minductor.tracing.trace import Trace

        self._stages = Stages()
        self._target = _target(device)
        self._is_elsewhere = device.kind == "compile"
        self._workers = workers
        self._compiler = Compiler(
            store=Store(folder),
            trace=Trace((self._stages,)),
            observer=self._observe,
            tuning_clock=tuning_clock,
            is_dry=self._is_elsewhere,
        )
        self._compiler.artefacts.interpreter = workers.interpreter
        self._graphs: list[Callable[[], Graph]] = []
        self._captured: list[Graph] = []
        self.nonce = ""

    @property
    def measured(self) -> int:
        """How many times the compiler has asked a clock so far, to choose between ways to compute the same."""
        return self._compiler.artefacts.measured

    def compile(self, fn: Callable[..., Any], options: Mapping[str, object], dynamic: bool | None) -> Any:
        """Returns the function, compiled by minductor when it is first called, with events and verification on."""
        import torch

        tools: Any = torch  # torch leaves its types open
        target = {"target": self._target.name} if self._target is not None else {}
        chosen = {"events": True, "verify": True, **target, **options}
        return tools.compile(fn, backend=self._compiler, options=chosen, fullgraph=True, dynamic=dynamic)

    def _observe(self, compiled: Compiled) -> None:
        """Captures a graph. On a compile-only device it starts to compile the kernels, for which `capture` waits."""
        self._graphs.append(partial(self._graph, compiled, self._stages.take(), self._jobs(compiled)))

    def _jobs(self, compiled: Compiled) -> Mapping[str, Future[KernelFacts]]:
        if not self._is_elsewhere or self._target is None:
            return {}
        from minductor.runtime.build.triton_jobs import compile_kernel

        text, target = compiled.sources.get("kernels.py", ""), self._target
        submit, launches = self._workers.builders.submit, _launches(compiled)
        return {name: submit(compile_kernel, text, one, target.kind, target.arch) for name, one in launches.items()}

    def _graph(
        self, compiled: Compiled, stages: Mapping[str, Callable[[], str]], jobs: Mapping[str, Future[KernelFacts]]
    ) -> Graph:
        report = compiled.report
        counts = {name: getattr(report, name) for name in COUNTS if hasattr(report, name)}
        made = {name: _assembly(job.result()) for name, job in jobs.items()}
        if self._is_elsewhere:
            counts["registers"] = _all(max, [kernel.registers for kernel in made.values()])
            counts["spills"] = _all(sum, [kernel.spills for kernel in made.values()])
        facts = Facts(
            **counts,
            kernel_names=report.kernel_names,
            extern_reasons=report.extern_reasons,
            refusals=report.refusals,
            rewrites=report.rewrites,
            askers=(report.why_not,),
        )
        texts = dict(sorted(compiled.sources.items()))
        wrapper = "".join(texts.pop(f"wrapper.{ending}", "") for ending in ("cpp", "py", "json"))
        units = [text for name, text in texts.items() if name.endswith((".c", ".cpp"))]
        kernels = [kernel for text in units for kernel in kernels_of(text)]
        kernels += triton_kernels_of(compiled.sources.get("kernels.py", ""), _launches(compiled))
        return Graph(
            compiled.role,
            tuple(replace(kernel, assembly=made.get(kernel.name)) for kernel in kernels),
            wrapper,
            facts,
            stages,
            compiled.events,
            compiled.was_hit,
            compiled.seconds,
            report.calls,
            tuple(Storage(*row[:5], names=tuple(row[5:])) for row in report.storages),
            self.nonce,
            _forcible(report.variants),
        )

    def capture(self) -> Sequence[Graph]:
        """Returns the graphs compiled so far; waits for kernels that are compiled in other processes."""
        self._captured += [graph() for graph in self._graphs[len(self._captured) :]]
        return self._captured


def _registered() -> Sequence[Backend]:
    """Returns the backends that users registered, without those of minductor."""
    from minductor.backends import BUILT_IN, find_backend, kinds

    return [find_backend(kind) for kind in kinds() if kind not in BUILT_IN]


def _target(device: Device) -> Target | None:
    """Returns the target to compile for, or None if the devices of the graph's tensors decide."""
    from minductor.backends import BUILT_IN, find_backend, find_target

    if device.kind in ("interpret", "compile"):
        return find_target(device.target)
    return None if device.kind in BUILT_IN else find_backend(device.kind).targets[0]


def _forcible(rows: Sequence[tuple[Any, ...]]) -> tuple[str, ...]:
    """The options of a Report's choices that the option `variant` forces, each once: not what only sizes pick."""
    from minductor.options import VARIANTS

    return tuple(dict.fromkeys(name for *_, options, _ in rows for name in options if name in VARIANTS))


def _launches(compiled: Compiled) -> Mapping[str, LaunchMetadata]:
    """How each Triton kernel of a graph is launched, by symbol."""
    from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches

    return default_launches(compiled.sources.get(LAUNCHES, ""))


def _assembly(made: KernelFacts) -> Assembly:
    return Assembly(made.assembly, made.binary, made.warps, made.registers, made.spills, made.shared)


def _all(how: Callable[[Iterable[int]], int], numbers: Sequence[int | None]) -> int | None:
    """Returns the sum or maximum of the numbers, 0 if there are none, and None if one of them is not known."""
    known = [number for number in numbers if number is not None]
    return how((0, *known)) if len(known) == len(numbers) else None


def _with_keywords(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    return (lambda *args: fn(*args, **kwargs)) if kwargs else fn


def _show(found: Explanation, script: Path) -> Path:
    """Writes the page that shows a compile beside a test's script, and returns its path."""
    path = script.with_suffix(".explained.html")
    found.html(path)
    return path


@dataclass(frozen=True, slots=True)
class FreshStore:
    """The private store, and the folders of all stores that were used since."""

    path: Path
    users: Path
    touched: list[Path] = field(default_factory=list[Path])


class SizeContext:
    """Makes sizes, axes and expressions of both, which passes and matchers take.

    >>> context = SizeContext()
    >>> s0, x = context.size("s0", low=2), context.axis("x", 24)
    >>> str(context.expr("(s0*x + x)//s0"))
    'x + x//s0'
    """

    def __init__(self) -> None:
        self.symbols: dict[str, Any] = {}
        self.extents: dict[Any, Any] = {}

    def size(self, name: str, low: int = 1, high: int | None = None) -> Any:
        """Returns the symbol of a size that each call decides.

        Args:
            name: The symbol's name; the same name gives the same symbol.
            low: The least value.
            high: The largest value; None for no limit.
        """
        from minductor.core.expressions.expr import symbol

        return self.symbols.setdefault(name, symbol(name, "size", low, high))

    def axis(self, name: str, extent: Any) -> Any:
        """Returns an axis of a kernel.

        Args:
            name: The name of its symbol.
            extent: The number of its iterations: a number or an expression.
        """
        from minductor.core.expressions.expr import as_expr, as_int, symbol
        from minductor.ir.program.nodes import Axis

        last = as_int(extent)
        made = self.symbols.setdefault(name, symbol(name, "axis", 0, None if last is None else last - 1))
        self.extents[made] = as_expr(extent)
        return Axis(made, self.extents[made])

    def expr(self, text: str) -> Any:
        """Returns the expression that a text such as "(s0*x + x)//s0" means; its names are symbols made before."""
        from minductor.core.expressions.expr_parser import parse_expr

        return parse_expr(text, self.symbols)


class Minductor:
    """The adapter of minductor."""

    name = "minductor"
    memory_options: Mapping[str, object] = MappingProxyType({"verify_memory": "log"})
    has_variants = True
    tuning_clock: Clock | None = None  # None: the compiler's own clock

    @property
    def devices(self) -> Sequence[str]:
        """The built-in devices, a compile-only device for each named GPU, and the kinds of registered backends."""
        from minductor.target import TARGETS

        compiled_for = [f"compile:{name}" for name, target in TARGETS.items() if target.arch]
        return ("cpu", "cuda", "interpret", *compiled_for, *(backend.kind for backend in _registered()))

    @property
    def torch_devices(self) -> Mapping[str, str]:
        """torch's device type for each registered backend."""
        return {backend.kind: backend.targets[0].device for backend in _registered()}

    @property
    def capabilities(self) -> Mapping[str, Sequence[str]]:
        """The capabilities of each registered backend."""
        return {backend.kind: backend.capabilities for backend in _registered()}

    def absence(self, id: str) -> str:
        """Returns why a registered backend finds no machine of its kind, or an empty text."""
        from minductor.backends import find_backend, resolve
        from minductor.core.errors import BackendError

        try:
            resolve(find_backend(id).probe or str)()
        except BackendError as error:
            return str(error)
        return ""

    @property
    def mutants(self) -> Sequence[Mutant]:
        """The faults of minductor that tests must notice."""
        from pytest_plugin.adapters.minductor_mutants import MUTANTS

        return MUTANTS

    @cached_property
    def workers(self) -> Workers:
        """The processes that interpret and compile GPU kernels; all sessions share them."""
        from minductor.runtime.build.pool import Pool, pool_size
        from minductor.runtime.launch.interpret import SETTINGS

        cores = pool_size(os.cpu_count() or 1, os.environ)
        return Workers(Pool(1, settings=SETTINGS), Pool(cores))

    def size_context(self) -> SizeContext:
        """Makes a new context of symbolic sizes."""
        return SizeContext()

    def version(self) -> str:
        """Returns minductor's version."""
        import minductor

        return minductor.__version__

    def session(self, folder: Path, device: Device) -> Session:
        """Makes a session with a Compiler of its own."""
        return Session(folder, device, self.workers, self.tuning_clock)

    def device_options(self, device: Device) -> Mapping[str, object]:
        """Returns the options with which torch.compile compiles for a device."""
        target = _target(device)
        return {"target": target.name} if target is not None else {}

    def explain_wrong(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Mapping[str, object],
        dynamic: bool | None,
        script: Path,
    ) -> tuple[str, Path]:
        """Returns the first stage whose numbers differ from eager's, or an empty text, and a file about the compile.

        Args:
            fn: The user's function or module. It is run once, compiled.
            args: Its arguments, which it may change.
            kwargs: Its keyword arguments.
            options: The options of the compile.
            dynamic: Whether sizes are symbolic, as torch.compile takes it.
            script: A file; what shows the compile is written beside it.
        """
        import torch

        import minductor

        tools: Any = torch
        sizes = {"assume_static_by_default": False} if dynamic else {}
        with tools._dynamo.config.patch(**sizes):
            found = minductor.explain(_with_keywords(fn, kwargs), *args, check=True, options=options)
        return found.first_moved(), _show(found, script)

    @contextmanager
    def distorted_clock(self) -> Generator[None]:
        """Makes all measurements of candidates random numbers in the context."""
        drawn = random.Random(0)

        def wrong(call: Callable[[], object]) -> float:
            call()
            return drawn.random()

        with mock.patch.object(self, "tuning_clock", wrong):
            yield

    @contextmanager
    def fresh_store(self, folder: Path) -> Generator[FreshStore]:
        """Makes the folder minductor's store in the context, and records which stores are used."""
        import minductor
        from minductor.runtime.store.cache_folder import find
        from minductor.runtime.store.store import Store

        users = Store.place(None, os.environ)
        fresh = FreshStore(folder, find(users) or users)
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
