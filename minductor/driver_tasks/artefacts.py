"""An artefact: the files that one graph is compiled to, as the store keeps them.

Takes the texts of a graph (Source), or a stored entry. Gives files for the store, or the call that an entry makes.
Refuses files that do not load (LoadFailed: the driver then builds them anew).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from minductor.backends import SOURCES, find_backend
from minductor.driver_tasks.eager_fallback import Call
from minductor.driver_tasks.stores import HINTS
from minductor.driver_tasks.tuning_winners import Winners
from minductor.pipeline import resolve

if TYPE_CHECKING:
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.ir.artefact.source import Source
    from minductor.ir.artefact.winner import Winner
    from minductor.ir.plan.plan import Plan
    from minductor.ir.report.report import Report
    from minductor.runtime.build.pool import Pool
    from minductor.runtime.build.toolchain import Toolchain
    from minductor.runtime.graphs.graph_chain import GraphChain, WrapperGraphs
    from minductor.runtime.graphs.graph_driver import GraphDriver
    from minductor.runtime.launch.cuda_cpp_wrapper import GpuParts
    from minductor.runtime.launch.gpu import Gpu
    from minductor.runtime.launch.launch import Bind
    from minductor.runtime.store.store import Entry, Store
    from minductor.runtime.tune.tune import Tuned, Tuner
    from minductor.target import Env

# The files of every graph. A graph that has no other file has no kernel.
REPORT, PROVENANCE = "report.json", "provenance.json"
OF_EVERY_GRAPH = frozenset(("wrapper.py", "wrapper.json", REPORT, PROVENANCE, "guards.json", HINTS))
VECTOR_BYTES = 16  # GPU kernels load vectors of this size; their address has to be a multiple of it


class Artefacts:
    """Builds the files of a graph, and loads stored files as a call.

    Holds the C++ toolchain, what compiles and launches GPU kernels, and the process of Triton's interpreter. Each of
    them is made when it is first used.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        store_of: Callable[[Env], Store],
        tuning_clock: Callable[[Callable[[], object]], float] | None = None,
        graph_driver: GraphDriver | None = None,
    ) -> None:
        """`tuning_clock` gives the seconds that a call takes; None means the clock of the device. `graph_driver`
        records CUDA graphs; None means torch.cuda on GPUs of NVIDIA, and nobody elsewhere.
        """
        self.environ = environ
        self.store_of = store_of
        self.tuning_clock = tuning_clock
        self._graph_driver = graph_driver
        # by what torch knows of a graph of Dynamo's while it compiles it, forward and backward
        self._chains: WeakKeyDictionary[Any, GraphChain] = WeakKeyDictionary()
        # gives the address of one of torch's functions for CUDA; None: those of the torch of this process
        self.torch_function: Callable[[str], int] | None = None
        self.measured = 0  # how many times a clock was asked, to choose between ways to compute the same

    @cached_property
    def toolchain(self) -> Toolchain:
        """The C++ compiler of this machine."""
        from minductor.runtime.build.probe import probe
        from minductor.runtime.build.toolchain import Toolchain

        return Toolchain(probe(), self.environ)

    @cached_property
    def gpu(self) -> Gpu:
        """What compiles and launches kernels on GPUs."""
        from minductor.runtime.launch.gpu import Gpu

        return Gpu(lambda: self.toolchain, self.environ)

    @cached_property
    def interpreter(self) -> Pool:
        """One process that interprets GPU kernels on CPU tensors."""
        from minductor.runtime.build.pool import Pool
        from minductor.runtime.launch.interpret import SETTINGS

        return Pool(1, environ=self.environ, settings=SETTINGS)

    @cached_property
    def compiler_digest(self) -> str:
        """A digest of minductor's own files, for keys of the store: another version generates other texts."""
        from minductor.runtime.store.store import digest

        # os.walk and open: with Path it takes twice as long, at the first call of every process.
        root = str(Path(__file__).parents[1])
        files: list[str] = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in ("bench", "commands", "__pycache__")]
            files += [os.path.join(folder, name) for name in names if name.endswith((".py", ".h"))]
        parts: list[str | bytes] = []
        for file in sorted(files):
            with open(file, "rb", buffering=0) as source:
                parts += [file.removeprefix(root), source.readall()]
        return digest(*parts)

    # --- from texts to files

    def build(
        self, source: Source, plan: Plan, graph: Graph, env: Env, gm: Any, folder: Path, *, is_launched: bool
    ) -> dict[str, bytes]:
        """The files of a graph by name: its texts, and what they compile to in `folder`, an empty one.

        `is_launched`: GPU kernels are compiled too, since this machine is going to launch them.
        """
        from minductor.ir.artefact.launch_metadata import LAUNCHES
        from minductor.runtime.launch.launch import KERNELS, build, with_wrapper

        backend = find_backend(env.target.kind)
        if backend.build:
            texts = {source.wrapper_file: source.wrapper, **{unit.file: unit.text for unit in source.units}}
            files = {name: text.encode() for name, text in texts.items()}
            units = with_wrapper(source)
            files.update(resolve(backend.build)(units, folder, env) if units else {})
        else:
            user_lines = partial(_user_lines, plan, gm)
            files = dict(build(source, self.toolchain, folder, env.options, user_lines=user_lines))
        if is_launched and KERNELS in files:
            texts = (files[KERNELS].decode(), files[LAUNCHES].decode())
            files.update(self.build_kernels(*texts, plan, graph, env.target.arch))
        return files

    def build_kernels(self, text: str, launches: str, plan: Plan, graph: Graph, arch: str) -> dict[str, bytes]:
        """The binaries of a graph's kernels by their default launches; `launches` is the text of LAUNCHES."""
        from minductor.ir.artefact.launch_metadata import default_launches

        return self.gpu.build(text, default_launches(launches).values(), arch, _unaligned_kernels(plan, graph))

    def build_command(self, entry: Entry, env: Env) -> str:
        """The shell's command that builds the library of a stored graph from its units in C++, in their folder."""
        import torch

        from minductor.runtime.launch.launch import LIBRARY, linked

        units = [name for name in entry.contents if name.endswith(".cpp")]
        needs = linked(entry.contents)
        libraries = [str(Path(torch.__file__).parent / "lib" / name) for name in needs.pop("link_with", ())]
        how = {"sanitize": env.options.sanitize, "link_with": libraries, **needs}
        return self.toolchain.shell_command(units, LIBRARY, **how)

    # --- from files to a call

    def load(
        self,
        entry: Entry,
        env: Env,
        name: str,
        objects: Mapping[str, Any],
        traced: Any,
        events: list[tuple[str, str]],
        tell: Callable[[Tuned], object] = lambda tuned: None,
        tell_graphs: Callable[[str], object] = lambda text: None,
    ) -> Call:
        """The call of a stored graph. `name` begins with its role.

        `objects`: the objects of this process that the graph names. `traced`: its ATen graph. The call appends its
        launches, allocations and frees to `events` if the options ask for them. `tell` is called for each kernel that
        the call measures, `tell_graphs` with a line for each CUDA graph that it records.
        """
        from minductor.frontend.capture.capture import sources
        from minductor.runtime.launch.launch import LIBRARY, WRAPPER, WRAPPER_CPP, WRAPPER_FX, launch

        written = sources(traced)
        where = written.place_of
        if WRAPPER_CPP in entry.contents:
            from minductor.runtime.launch import launch_cpp_wrapper
            from minductor.runtime.launch.load import load_library

            connect = self.gpu_parts(entry, env, tell).connect if env.target.is_gpu else None
            graphs = self._graphs(env, name.partition(" ")[0], where, tell_graphs)
            library = load_library(entry.file(LIBRARY))
            return launch_cpp_wrapper.launch(library, name, objects, events, where, connect, graphs)
        tuner = self.tuner(env, tell)
        kernels = self.kernels(entry, env, tuner)
        if WRAPPER_FX in entry.contents:
            from minductor.runtime.launch import fx

            hook = find_backend(env.target.kind).fx
            launcher = fx.launcher(entry.contents, kernels, env.target)
            recorded = events if env.options.events else None
            return fx.launch(
                *(entry.text(WRAPPER_FX), launcher, objects, traced, resolve(hook) if hook else None, recorded, where),
                module_of=written.modules(),
            )
        graphs = self._graphs(env, name.partition(" ")[0], where, tell_graphs)
        return launch(
            entry.text(WRAPPER), kernels, name, objects, events, tuner.choose, where, written.modules(), graphs
        )

    def gpu_parts(self, entry: Entry, env: Env, tell: Callable[[Tuned], object] = lambda tuned: None) -> GpuParts:
        """What a wrapper in C++ needs of a GPU."""
        from minductor.runtime.launch.cuda_cpp_wrapper import GpuParts, torch_function
        from minductor.runtime.launch.launch import KERNELS

        has_kernels, place = KERNELS in entry.contents, (env.target.arch, self.store_of(env))
        kernels = self.gpu.kernels(entry, *place, self.tuner(env, tell)) if has_kernels else None
        return GpuParts(self.gpu.driver, kernels, self.torch_function or torch_function)

    def _graphs(
        self, env: Env, role: str, where: Callable[[str], str], tell: Callable[[str], object]
    ) -> WrapperGraphs | None:
        """What records the partitions of a wrapper; None if nothing does. Forward and backward share a chain."""
        from torch._guards import TracingContext

        from minductor.core.warn import warn
        from minductor.frontend.quirks.torch_versions import static_indices
        from minductor.runtime.graphs.graph_chain import GraphChain, saved_from
        from minductor.runtime.graphs.graph_driver import TorchDriver

        if not env.options.cudagraphs or (self._graph_driver is None and env.target.kind != "cuda"):
            return None
        if self.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
            tell("CUDA_LAUNCH_BLOCKING=1: each launch waits, so no CUDA graph is recorded")
            return None
        context = TracingContext.try_get()
        chain = self._chains.get(context) if context is not None else None
        if chain is None:
            driver = self._graph_driver or TorchDriver(partial(self.gpu.lie_there, self.store_of(env)))
            chain = GraphChain(driver, warn, tell, static_indices())
            if context is not None:
                self._chains[context] = chain
        return chain.of_wrapper(where, saved_from(role), are_gradients=role == "backward")

    def kernels(self, entry: Entry, env: Env, tuner: Tuner | None = None) -> Bind | None:
        """A function from a kernel's symbol to the kernel; None if the graph has no kernels."""
        from minductor.runtime.launch.launch import KERNELS, LIBRARY

        backend = find_backend(env.target.kind)
        if backend.load and backend.launch:
            has_kernels = not entry.contents.keys() <= OF_EVERY_GRAPH
            return partial(resolve(backend.launch), resolve(backend.load)(entry, env)) if has_kernels else None
        if LIBRARY in entry.contents and not env.target.is_gpu:
            from minductor.runtime.launch.load import load_library

            return load_library(entry.file(LIBRARY)).bind
        if KERNELS not in entry.contents:
            return None
        if env.target.kind != "interpret":
            return self.gpu.kernels(entry, env.target.arch, self.store_of(env), tuner or self.tuner(env)).bind
        from minductor.ir.artefact.launch_metadata import LAUNCHES
        from minductor.runtime.launch.interpret import Interpreter

        texts = (entry.text(KERNELS), entry.text(LAUNCHES))
        return Interpreter(*texts, self.interpreter, env.target.max_programs).bind

    def run_once(self, files: Mapping[str, bytes], env: Env, args: list[Any], tuner: Tuner) -> None:
        """Runs the Python wrapper among the files once; `tuner` makes its choices."""
        from minductor.runtime.launch.launch import WRAPPER, launch

        store = self.store_of(env)
        entry = store.put(_digest_of(files), files)
        call = launch(entry.text(WRAPPER), self.kernels(entry, env, tuner), "choice", {}, [], tuner.choose)
        call(args)

    def tuner(self, env: Env, tell: Callable[[Tuned], object] = lambda tuned: None) -> Tuner:
        """What measures choices of a kernel. The store keeps the winners, so that a warm start measures nothing."""
        from minductor.runtime.tune.tune import Tuner
        from minductor.runtime.tune.tune_clock import device_clock, device_name, wall_clock

        is_cuda = env.target.kind == "cuda"
        ask = self.tuning_clock or (device_clock if is_cuda else wall_clock)

        def clock(run: Callable[[], object]) -> float:
            self.measured += 1
            return ask(run)

        if not env.options.autotune:
            return Tuner(clock)
        device, driver = (device_name(), self.gpu.driver.version()) if is_cuda else ("", "")
        place = (env.target.name, device, driver, env.options.fingerprint(), self.compiler_digest)
        kept = Winners(self.store_of(env), place)

        def keep(work: str, winner: Winner) -> None:
            kept.keep(work, replace(winner, device=device, driver=driver))

        return Tuner(clock, kept.recall, keep, is_deterministic=env.options.deterministic, tell=tell)


def texts(entry: Entry) -> dict[str, str]:
    """The wrapper, the kernels and their launches of a stored graph, by file name."""
    from minductor.ir.artefact.launch_metadata import LAUNCHES
    from minductor.runtime.launch.launch import WRAPPER_FX

    shown = (*SOURCES, WRAPPER_FX, LAUNCHES)
    return {name: entry.text(name) for name in entry.contents if name.endswith(shown)}


def report_files(report: Report, source: Source, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of an entry that hold a report: its own, and that of its provenance, whose lines are those of `files`.

    The build puts what Python calls above the text of a unit (`load.py: ENTRY_PRELUDE`).
    """
    mapped = [unit for unit in source.units if unit.line_maps]
    moved = {unit.file: files[unit.file].partition(unit.text.encode())[0].count(b"\n") for unit in mapped}
    values = {REPORT: report.to_json(), PROVENANCE: report.provenance().moved(moved).to_json()}
    return {name: json.dumps(value).encode() for name, value in values.items()}


def stored_report(entry: Entry, gm: Any) -> Report:
    """The report of a stored graph, with what this process knows of the nodes of `gm`, its ATen graph."""
    from minductor.frontend.capture.capture import sources
    from minductor.ir.report.provenance import Provenance
    from minductor.ir.report.report import Report

    origins = Provenance.from_json(json.loads(entry.text(PROVENANCE)))
    return replace(Report.from_json(json.loads(entry.text(REPORT))), origins=origins.joined(sources(gm)))


def _digest_of(files: Mapping[str, bytes]) -> str:
    """A key of the store for files that nothing but their contents identifies."""
    from minductor.runtime.store.store import digest

    return digest("choice", *(part for name in sorted(files) for part in (name, files[name])))


def variant_name(guards: Sequence[str], hints: Mapping[str, bytes]) -> str:
    """The name of a graph's entry under its key: graphs that differ in guards and hints only have the same key."""
    from minductor.runtime.store.store import digest

    return digest(*guards, *hints.values())[:16] if guards or hints else "main"


def _unaligned_kernels(plan: Plan, graph: Graph) -> set[str]:
    """The symbols of kernels that read an input whose address may be no multiple of VECTOR_BYTES."""
    from minductor.frontend.capture.captured_graph import TensorMeta
    from minductor.ir.plan.plan import KernelLine, LaunchLine, lines_with_groups

    metas = {given.name: given.meta for given in graph.inputs}
    unaligned = {
        name
        for name, meta in metas.items()
        if isinstance(meta, TensorMeta)
        and isinstance(meta.offset, int)
        and meta.offset * meta.dtype.itemsize % VECTOR_BYTES
    }
    symbols = {line.id: line.symbol for line in plan.lines if isinstance(line, KernelLine)}
    launches = (line for line in lines_with_groups(plan) if isinstance(line, LaunchLine))
    return {symbols[line.kernel] for line in launches if not unaligned.isdisjoint(line.tensors)}


def _user_lines(plan: Plan, gm: Any, symbol: str) -> str:
    """The lines of the user's program that became the kernel `symbol`, for the error when it does not compile."""
    from minductor.frontend.capture.capture import sources
    from minductor.ir.plan.plan import KernelLine

    written = sources(gm)
    kernel = next((line for line in plan.lines if isinstance(line, KernelLine) and line.symbol == symbol), None)
    places = (written.place_of(origin.node) for origin in kernel.origins) if kernel else ()
    return ", ".join(dict.fromkeys(place for place in places if place))
