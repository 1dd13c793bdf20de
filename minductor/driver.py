"""READ ME FIRST: the road from torch.compile to the launched kernel, in the order in which it is walked.

Takes what Dynamo hands to a backend (a graph module, example inputs, mode and options); gives a compiled callable.
Refuses unknown options and modes. A graph that minductor cannot take runs in eager, with one warning.
The road: `Compiler.__call__` hands the graph to AOTAutograd, which traces, decomposes and partitions it and calls
`compile_graph` for each part. That captures the ATen graph, asks the store by key, and on a miss walks PIPELINE.
Nothing but this file knows that the stages exist in an order.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from minductor.api.argument_checks import check_compiler, check_graph, check_not_ahead
from minductor.backends import (
    SOURCES,
    Backend,
    Part,
    check_backend_options,
    find_backend,
    find_target,
    fingerprint,
    resolve,
)
from minductor.core.errors import (
    BackendError,
    FallbackRefused,
    LoadFailed,
    MinductorError,
    NotNative,
    RanInEager,
    StageFailed,
    UnsupportedInput,
    WrapperReplaced,
)
from minductor.core.warn import warn
from minductor.options import Options
from minductor.placement import awaits_hooks, placed, without_memory
from minductor.stores import Stores
from minductor.target import Env
from minductor.tracing.trace import Trace, counts, debug_folder, new_notes, partition_lines, shown

if TYPE_CHECKING:
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.ir.artefact.source import Source
    from minductor.ir.plan.plan import Plan
    from minductor.ir.report.report import Report
    from minductor.runtime.build.pool import Pool
    from minductor.runtime.build.toolchain import Toolchain
    from minductor.runtime.launch.gpu import Gpu
    from minductor.runtime.launch.launch import Bind
    from minductor.runtime.store.store import Entry, Store
    from minductor.runtime.tune.tune import Tuner

WINNER = "winner.txt"
# The files of a graph without kernels.
OF_EVERY_GRAPH = frozenset(("wrapper.py", "wrapper.json", "report.json", "guards.json"))
Role = Literal["inference", "forward", "backward"]
Call = Callable[[list[Any]], Sequence[Any]]
R = TypeVar("R")


class Stage(NamedTuple):
    """One step of the road: `function(value, env) -> value`, imported when it runs."""

    name: str
    function: Part
    takes: str
    gives: str
    after: str = ""  # of a backend's pass: the stage whose rules hold for what it gives


PIPELINE = (
    Stage("lower", "minductor.frontend.lower.lower:lower", "graph", "program"),
    Stage("inline", "minductor.passes.inline.inline:inline", "program", "program"),
    Stage("fuse", "minductor.passes.fuse.fuse:fuse", "program", "program"),
    Stage("loop_order", "minductor.passes.loop_order.loop_order:loop_order", "program", "program"),
    Stage("order", "minductor.passes.order.order:order", "program", "program"),
    Stage("tile", "minductor.passes.tile.tile:tile", "program", "program"),
    Stage("bundle", "minductor.passes.bundle.bundle:bundle", "program", "program"),
    Stage("access", "minductor.passes.access.access:access", "program", "program"),
    Stage("partition", "minductor.passes.partition.partition:partition", "program", "program"),
    Stage("memory", "minductor.passes.memory.memory:memory", "program", "plan"),
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of one graph: told to the Compiler's observer."""

    role: Role
    key: str
    report: Report
    sources: Mapping[str, str]  # file name -> text: the wrapper and the kernel units
    was_hit: bool
    seconds: float
    events: list[tuple[str, str]]


Observer = Callable[[Compiled], None]
# changes an ATen graph (a torch.fx.GraphModule) before it is read: each forward, backward and inference graph
GraphPass = Callable[[Any], None]


def ignore(compiled: Compiled) -> None:
    """The observer of a Compiler that nobody watches."""


class Compiler:
    """A torch.compile backend. Holds what outlives a call (options, stores, toolchain, trace), no state of a call."""

    compiler_name = "minductor"

    def __init__(
        self,
        *,
        store: Store | None = None,
        trace: Trace | None = None,
        observer: Observer = ignore,
        graph_pass: GraphPass | None = None,
        environ: Mapping[str, str] | None = None,
        tuning_clock: Callable[[Callable[[], object]], float] | None = None,
        is_dry: bool = False,
    ) -> None:
        """`is_dry`: graphs are compiled and run in eager, as for a target that is elsewhere. `tuning_clock`: gives the
        seconds of a call; the device's own if none."""
        given = {"observer": observer, "graph_pass": graph_pass, "tuning_clock": tuning_clock}
        check_compiler({**given, "store": store, "trace": trace, "environ": environ})
        self.environ = dict(os.environ if environ is None else environ)
        self.observer = observer
        self.graph_pass = graph_pass
        self.tuning_clock = tuning_clock
        self.is_dry = is_dry
        self._trace = trace
        self._stores = Stores(self.environ, store)
        self._traces: dict[str, Trace] = {}
        self._lock = Lock()

    def __call__(
        self,
        gm: Any,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Callable[..., Any]:
        """The backend contract: Dynamo's graph and its example inputs become a callable."""
        import torch
        from torch._dynamo.utils import GmWrapper, flatten_graph_inputs
        from torch._functorch.aot_autograd import aot_module_simplified

        from minductor.frontend.quirks.as_eager import call_as_eager
        from minductor.frontend.torch_graph import shared_inputs
        from minductor.frontend.torch_graph.decompose import decompositions
        from minductor.frontend.torch_graph.min_cut import partition
        from minductor.frontend.torch_graph.result_trees import flatten_results, has_tree

        env = self.env(mode, options)
        check_graph(gm)
        check_not_ahead()
        again = partial(self.__call__, mode=mode, options=options)
        if has_tree(gm):
            return flatten_results(gm, inputs, again)
        if any(isinstance(given, list | tuple | dict) for given in inputs):  # compiled autograd hands lists over
            return flatten_graph_inputs(gm, inputs, again)
        untraced: Callable[..., Any] = torch._dynamo.disable
        eager = _boxed(gm) if isinstance(gm, GmWrapper) else gm.forward  # whose arguments come as one list
        if unshown := next(filter(None, (without_memory(x, may_be_fake=self.is_dry) for x in inputs)), ""):
            self._warn(env, UnsupportedInput("an input of this graph", unshown))
            return untraced(eager)
        call_as_eager(gm)
        places = shared_inputs.counted_places(gm, inputs)
        try:
            compiled = aot_module_simplified(
                gm,
                inputs,
                fw_compiler=partial(self.compile_graph, role="forward", env=env),
                bw_compiler=untraced(partial(self._compile_backward, env=env)),
                inference_compiler=partial(self.compile_graph, role="inference", env=env),
                partition_fn=partition,
                decompositions=decompositions(),
                keep_inference_input_mutations=True,
            )
            apart = shared_inputs.kept_apart(compiled, eager, inputs)
            compiled = shared_inputs.kept_in_place(apart, eager, places, inputs)
        except UnsupportedInput as reason:  # of the ATen graph itself, which eager must not run either
            self._warn(env, reason)
            compiled = eager
        except RuntimeError as error:
            if not shared_inputs.refuses_overlap(error):
                raise
            kind = "memory that is written, where several of its elements are one"
            self._warn(env, UnsupportedInput("an input of this graph", kind))
            compiled = eager
        return untraced(compiled)

    def env(self, mode: str | None, options: Mapping[str, object] | None) -> Env:
        """What the user asked for, with torch's own switches; without a named target each graph's devices decide."""
        import torch

        chosen = Options.parse(mode, options, self.environ)
        check_backend_options(chosen)
        if chosen.block_access == "pointer" and not _has_block_pointers():
            warn("this Triton has no block pointers: kernels spell them by offsets")
            chosen = replace(chosen, block_access="offsets")
        if torch.backends.cuda.matmul.allow_tf32 and "matmul_precision" not in (options or {}):
            chosen = replace(chosen, matmul_precision="tf32")
        if torch.are_deterministic_algorithms_enabled():
            chosen = replace(chosen, deterministic=True)
        return Env(chosen, find_target(chosen.target or "cpu"))

    def compile_graph(self, gm: Any, example_inputs: Sequence[Any], *, role: Role, env: Env) -> Call:
        """One ATen graph to its boxed call: capture, key, store; on a miss, the pipeline under the key's lock."""
        from minductor.frontend.capture.capture import capture, sources
        from minductor.frontend.torch_graph.shared_inputs import misplaced

        start = time.perf_counter()
        if name := misplaced(gm, is_backward=role == "backward"):
            raise UnsupportedInput(name, "memory that several inputs share, one of which is written")
        if self.graph_pass is not None:
            self.graph_pass(gm)
            gm.recompile()  # eager may have to run it
        try:
            graph, env, is_dry = self._placed(capture(gm, role), env)
            key = self.key(graph, env, is_dry=is_dry)
            events: list[tuple[str, str]] = []

            def load(found: Entry) -> Any:
                return (
                    _boxed(gm) if is_dry else self._launch(found, env, f"{role} {key[:12]}", graph.bound(), gm, events)
                )

            found, was_hit, call = self._loaded(key, graph, env, gm, load, is_dry=is_dry)
            if not is_dry:
                call._boxed_call = True  # AOTAutograd's calling convention
        except UnsupportedInput as reason:
            reason.where = sources(gm).of(reason.name)
            return self._eager(gm, role, env, reason)
        except FallbackRefused as refused:
            refused.where = sources(gm).of(refused.node)
            raise
        self.trace(env).beside(role, lambda folder: _written(folder, found, graph, gm, env))
        self._tell(found, role, key, events, was_hit=was_hit, seconds=time.perf_counter() - start)
        return call

    def _compile_backward(self, gm: Any, example_inputs: Sequence[Any], *, env: Env) -> Call:
        """A backward graph's call. A program that Dynamo traces may begin both, compile and call: it traces neither."""
        import torch

        if awaits_hooks(gm):
            return _boxed(gm)
        call: Any = torch._dynamo.disable(self.compile_graph(gm, example_inputs, role="backward", env=env))
        call._boxed_call = True  # a wrapper has of a callable object only what lies in its __dict__
        return call

    def graph_module(self, gm: Any, env: Env) -> tuple[Any, Graph, Env, Sequence[str]]:
        """One ATen graph as a torch.fx.GraphModule, which checks nothing; dry, its kernels are not bound. And what was
        captured, for which machine, and the guards that hold for what was compiled.
        """
        from minductor.frontend.capture.capture import capture, sources
        from minductor.runtime.launch import fx
        from minductor.runtime.launch.launch import WRAPPER_FX

        graph, env, is_dry = self._placed(capture(gm, "inference"), env)

        def load(found: Entry) -> Any:
            kernels = None if is_dry else self.kernels(found, env)
            launcher = fx.launcher(found.contents, kernels, env.target)
            return fx.graph_module(found.text(WRAPPER_FX), launcher, graph.bound(), gm, where=sources(gm).of)

        found, _, module = self._loaded(self.key(graph, env, is_dry=is_dry), graph, env, gm, load, is_dry=is_dry)
        return module, graph, env, json.loads(found.text("guards.json"))

    def _placed(self, graph: Graph, env: Env) -> tuple[Graph, Env, bool]:
        """The graph, what it is compiled for and with, and whether it is not launched; warns of what that one lacks."""
        graph, env, is_dry = placed(graph, env, is_dry=self.is_dry)
        env, notes = env.supported()
        for note in notes:
            warn(note)
        return graph, env, is_dry

    def _launch(
        self,
        found: Entry,
        env: Env,
        name: str,
        objects: Mapping[str, Any],
        traced: Any,
        events: list[tuple[str, str]],
    ) -> Call:
        """An artefact's call. `objects`: what of this process the graph names; `traced`: the ATen graph."""
        from minductor.frontend.capture.capture import sources
        from minductor.runtime.launch.launch import LIBRARY, WRAPPER, WRAPPER_CPP, WRAPPER_FX, launch

        where = sources(traced).of
        if WRAPPER_CPP in found.contents:
            from minductor.runtime.launch import launch_cpp_wrapper
            from minductor.runtime.launch.load import load_library

            return launch_cpp_wrapper.launch(load_library(found.file(LIBRARY)), name, objects, events, where)
        tuner = self._tuner(env)
        kernels = self._kernels(found, env, tuner)
        if WRAPPER_FX in found.contents:
            from minductor.runtime.launch import fx

            hook = find_backend(env.target.kind).fx
            launcher = fx.launcher(found.contents, kernels, env.target)
            told = events if env.options.events else None
            hooked = resolve(hook) if hook else None
            return fx.launch(found.text(WRAPPER_FX), launcher, objects, traced, hooked, told, where)
        return launch(found.text(WRAPPER), kernels, name, objects, events, tuner.choose, where)

    def kernels(self, found: Entry, env: Env) -> Bind | None:
        """The kernels of an artefact by their symbols; None if it has none."""
        return self._kernels(found, env, self._tuner(env))

    def _kernels(self, found: Entry, env: Env, tuner: Tuner) -> Bind | None:
        """The kernels of an artefact by their symbols; None if it has none."""
        from minductor.runtime.launch.launch import KERNELS, LIBRARY

        backend = find_backend(env.target.kind)
        if backend.load and backend.launch:
            has_kernels = not found.contents.keys() <= OF_EVERY_GRAPH
            return partial(resolve(backend.launch), resolve(backend.load)(found, env)) if has_kernels else None
        if LIBRARY in found.contents:
            from minductor.runtime.launch.load import load_library

            return load_library(found.file(LIBRARY)).bind
        if KERNELS not in found.contents:
            return None
        if env.target.kind != "interpret":
            return self.gpu.kernels(found, env.target.arch, self._store_of(env), tuner).bind
        from minductor.runtime.launch.interpret import Interpreter

        return Interpreter(found.text(KERNELS), self.interpreter, env.target.max_programs).bind

    def _tuner(self, env: Env) -> Tuner:
        """What measures choices, and keeps in the store what won: a warm start measures nothing."""
        from minductor.runtime.tune.tune import Tuner, device_clock, device_name, wall_clock

        is_cuda = env.target.kind == "cuda"
        clock = self.tuning_clock or (device_clock if is_cuda else wall_clock)
        if not env.options.autotune:
            return Tuner(clock)
        from minductor.runtime.store.store import digest

        store = self._store_of(env)
        place = (env.target.name, device_name() if is_cuda else "", env.options.fingerprint(), self._sources)

        def recall(work: str) -> str | None:
            found = store.get(digest("winner", work, *place))
            return None if found is None else found.text(WINNER)

        def keep(work: str, winner: str) -> None:
            store.put(digest("winner", work, *place), {WINNER: winner.encode()})

        return Tuner(clock, recall, keep, is_deterministic=env.options.deterministic)

    @cached_property
    def gpu(self) -> Gpu:
        """What compiles and launches kernels on GPUs; it starts nothing before it is asked."""
        from minductor.runtime.launch.gpu import Gpu

        return Gpu(lambda: self.toolchain, self.environ)

    @cached_property
    def interpreter(self) -> Pool:
        """One process that interprets GPU kernels, started at the first launch."""
        from minductor.runtime.build.pool import Pool
        from minductor.runtime.launch.interpret import SETTINGS

        return Pool(1, environ=self.environ, settings=SETTINGS)

    def _tell(
        self, entry: Entry, role: Role, key: str, events: list[tuple[str, str]], *, was_hit: bool, seconds: float
    ) -> None:
        if self.observer is ignore:
            return
        from minductor.ir.report.report import Report

        facts = Report.from_json(json.loads(entry.text("report.json")))
        self.observer(Compiled(role, key, facts, _texts(entry), was_hit, seconds, events))

    # --- the store

    def key(self, graph: Graph, env: Env, *, is_dry: bool = False) -> str:
        """What an artefact depends on: the graph, the options that change text, and everything that makes the text.

        A dry one for a GPU holds no binaries.
        """
        import torch

        from minductor.runtime.build.probe import version
        from minductor.runtime.store.store import digest

        if outside := fingerprint(find_backend(env.target.kind)):
            made_by = outside
        elif env.target.is_gpu:
            made_by = f"triton {version('triton')}{' dry' * is_dry}"
        else:
            made_by = self.toolchain.identity(sanitize=env.options.sanitize)
        return digest(
            graph.text(), env.options.fingerprint(), env.target.name, made_by, torch.__version__, self._sources
        )

    @cached_property
    def _sources(self) -> str:
        """A digest of minductor's own files: another version makes other texts."""
        from minductor.runtime.store.store import digest

        here = Path(__file__).parent
        files = sorted(p for p in here.rglob("*") if p.suffix in (".py", ".h") and "bench" not in p.parts)
        return digest(*(part for p in files for part in (str(p.relative_to(here)), p.read_bytes())))

    @cached_property
    def toolchain(self) -> Toolchain:
        from minductor.runtime.build.probe import probe
        from minductor.runtime.build.toolchain import Toolchain

        return Toolchain(probe(), self.environ)

    def _store_of(self, env: Env) -> Store:
        return self._stores.of(env.options.cache_dir)

    def _loaded(
        self, key: str, graph: Graph, env: Env, gm: Any, load: Callable[[Entry], R], *, is_dry: bool
    ) -> tuple[Entry, bool, R]:
        """The artefact, whether it was in the store, and what `load` makes of it.

        One that does not load is removed and built once more: the compiler wrote no library, or it was damaged or
        removed since the store read it.
        """
        artefact = partial(self._from, key=key, graph=graph, env=env, gm=gm, is_dry=is_dry)
        found, was_hit = self._stores.use(env.options.cache_dir, artefact)
        try:
            return found, was_hit, load(found)
        except LoadFailed as error:
            self._store_of(env).discard(found, error.why)
        found, _ = self._stores.use(env.options.cache_dir, artefact)
        try:
            return found, False, load(found)
        except LoadFailed:
            self._store_of(env).remove(found)
            raise

    def _from(self, store: Store, *, key: str, graph: Graph, env: Env, gm: Any, is_dry: bool) -> tuple[Entry, bool]:
        """The stored artefact, or a new one, and whether it was there already; one flight for each key."""
        start = time.perf_counter()
        if (found := self._find(store, key, graph)) is not None:
            note = f"compiled before; it lies in {found.path}"
            self.trace(env).stage(
                graph.role, "store", time.perf_counter() - start, {}, (note,), _texts(found), lambda: f"key {key}"
            )
            return found, True
        with store.lock(key, timeout_s=env.options.compiler_timeout):
            return self._find(store, key, graph) or self._build(store, key, graph, env, gm, is_dry=is_dry), False

    def _find(self, store: Store, key: str, graph: Graph) -> Entry | None:
        """The entry of this key whose guards hold for this graph's sizes; without symbols there are none."""
        if not graph.symbols:
            return store.get(key)
        from minductor.frontend.capture.symbolic_sizes import guards_hold

        for entry in store.variants(key):
            if guards_hold(json.loads(entry.text("guards.json")), graph):
                return entry
        return None

    def _build(self, store: Store, key: str, graph: Graph, env: Env, gm: Any, *, is_dry: bool) -> Entry:
        from minductor.runtime.launch.launch import build, with_wrapper

        is_launched = env.target.kind == "cuda" and not is_dry
        if is_launched:
            self.gpu.expect(1 + len(graph.nodes) // 16)
        backend = find_backend(env.target.kind)
        source, plan, facts = self.compile_program(graph, env, backend)
        self._log_partitions(facts, gm, env)

        def compiled(folder: Path) -> dict[str, bytes]:
            start = time.perf_counter()
            where = partial(_user_lines, plan, gm)
            if backend.build:
                texts = {source.wrapper_file: source.wrapper, **{unit.file: unit.text for unit in source.units}}
                files = {name: text.encode() for name, text in texts.items()}
                units = with_wrapper(source)
                files.update(resolve(backend.build)(units, folder, env) if units else {})
            else:
                files = dict(build(source, self.toolchain, folder, env.options, user_lines=where))
            if is_launched:
                loose = _unaligned(plan, graph)
                for unit in source.units:
                    symbols = {symbol: symbol not in loose for symbol in unit.symbols}
                    files.update(self.gpu.build(unit.text, symbols, env.target.arch))
            counts = {"units": len(source.units)}
            self.trace(env).stage(graph.role, "compile", time.perf_counter() - start, counts, (), None, str)
            return files

        files = store.in_scratch(compiled)
        guards = [str(guard.rel) for guard in plan.guards]
        files["report.json"] = json.dumps(facts.to_json()).encode()
        files["guards.json"] = json.dumps(guards).encode()
        # graphs that are equal but for their guards live beside each other under one key
        return store.put(key, files, variant=_variant(guards) if guards else "main")

    def _log_partitions(self, facts: Report, gm: Any, env: Env) -> None:
        """What can be captured, with the user's lines, which no stage knows; a CPU has nothing to say."""
        if not env.target.is_gpu:
            return
        counts = {"partitions": len(facts.partitions), "capturable": sum(row[2] for row in facts.partitions)}
        notes = list(partition_lines(facts, gm))
        self.trace(env).stage(facts.role, "partitions", 0.0, counts, notes, None, lambda: "\n".join(notes))

    # --- the pipeline

    def compile_program(self, graph: Graph, env: Env, backend: Backend) -> tuple[Source, Plan, Report]:
        """The texts, the plan and the facts of a captured graph. No effect but the trace."""
        from minductor.frontend.capture.schemas import with_schemas
        from minductor.ir.artefact.source import Source
        from minductor.ir.plan.plan import replace_operators
        from minductor.ir.report.report import report

        value: Any = graph
        program: Any = None
        for stage in _stages(backend):
            program = program if stage.takes == "plan" else value
            value = self.run_stage(stage, value, graph.role, env)
        value = with_schemas(replace_operators(value, backend.externs))
        start = time.perf_counter()
        units = resolve(backend.kernels)(value, env)
        source = Source(tuple(units), *_wrapper(value, env, backend))
        texts = {source.wrapper_file: source.wrapper, **{unit.file: unit.text for unit in units}}
        facts = report(program, value)
        counts = {"kernels": facts.kernels, "externs": facts.externs}
        notes = tuple(_called_by_python(value)) if source.language == "cpp" else ()
        self.trace(env).stage(graph.role, "codegen", time.perf_counter() - start, counts, notes, texts, str)
        return source, value, facts

    def run_stage(self, stage: Stage, value: Any, role: Role, env: Env) -> Any:
        """Runs one stage; times, verifies and traces around it, so that the stage need not."""
        start = time.perf_counter()
        try:
            result = _through(resolve(stage.function), stage, value, env)
        except MinductorError:
            raise
        except Exception as error:
            raise StageFailed(stage.name, error) from error
        seconds = time.perf_counter() - start
        if env.options.verify:
            self._verify(stage, result)
        notes = list(new_notes(value, result))
        self.trace(env).stage(role, stage.name, seconds, counts(result), notes, None, partial(shown, result))
        return result

    @staticmethod
    def _verify(stage: Stage, result: Any) -> None:
        from minductor.ir.plan.verify_plan import verify_plan
        from minductor.ir.program.verify_program import verify

        if stage.gives == "plan":
            verify_plan(result)
        else:
            verify(result, stage.after or stage.name)

    def trace(self, env: Env) -> Trace:
        """One Trace for each text that asks for it, since a page or a folder goes on from graph to graph."""
        if self._trace is not None:
            return self._trace
        with self._lock:
            if env.options.trace not in self._traces:
                self._traces[env.options.trace] = Trace.parse(env.options.trace, debug=debug_folder(self.environ))
            return self._traces[env.options.trace]

    # --- what minductor does not take

    def _eager(self, gm: Any, role: Role, env: Env, reason: UnsupportedInput) -> Call:
        self._warn(env, reason)
        return _boxed(gm)

    @staticmethod
    def _warn(env: Env, reason: UnsupportedInput) -> None:
        if env.options.fallback == "error":
            raise FallbackRefused("this graph", reason.what, where=reason.where) from reason
        warn(RanInEager(reason.what, where=reason.where))

    def reset(self) -> None:
        """Forget opened stores; what is on disk stays."""
        self._stores.forget()


def _stages(backend: Backend) -> Iterator[Stage]:
    """The pipeline, with a backend's passes behind their stages."""
    for stage in PIPELINE:
        yield stage
        for each in backend.passes:
            if each.after == stage.name:
                yield Stage(each.name, each.function, stage.gives, stage.gives, after=stage.name)


def _wrapper(plan: Plan, env: Env, backend: Backend) -> tuple[str, str]:
    """The wrapper's text and how its file ends; Python's where C++ has no form for something in the plan, or the
    backend has no C++: one compile may hold graphs of several devices."""
    language = env.options.wrapper
    has_python = "python" in backend.wrappers
    try:
        if language == "cpp" and has_python and language not in backend.wrappers:
            raise NotNative(f"a graph for {backend.kind}")
        if language not in backend.wrappers:
            hint = f"options={{'wrapper': ...}} may be {', '.join(backend.wrappers)}"
            raise BackendError(f"backend {backend.kind!r} has no wrapper in {language!r}", hint=hint)
        return resolve(backend.wrappers[language])(plan, env), {"python": "py", "fx": "json"}.get(language, language)
    except NotNative as reason:
        if not has_python:
            raise
        warn(WrapperReplaced(reason.what))
        return resolve(backend.wrappers["python"])(plan, env), "py"


def _called_by_python(plan: Plan) -> Iterator[str]:
    """What a C++ wrapper has Python call: only there is any of it between kernels."""
    from minductor.codegen.wrapper.wrapper_cpp import needs_python

    yield from (f"{op} is called by Python" for op in needs_python(plan))


def _unaligned(plan: Plan, graph: Graph) -> set[str]:
    """The kernels that are given an input which starts within 16 bytes, where vectors of a GPU cannot."""
    from minductor.frontend.capture.captured_graph import TensorMeta
    from minductor.ir.plan.plan import KernelLine, LaunchLine

    metas = {given.name: given.meta for given in graph.inputs}
    inside = {
        name
        for name, meta in metas.items()
        if isinstance(meta, TensorMeta) and isinstance(meta.offset, int) and meta.offset * meta.dtype.itemsize % 16
    }
    symbols = {line.id: line.symbol for line in plan.lines if isinstance(line, KernelLine)}
    launches = (line for line in plan.lines if isinstance(line, LaunchLine))
    return {symbols[line.kernel] for line in launches if not inside.isdisjoint(line.tensors)}


def _has_block_pointers() -> bool:
    from minductor.runtime.build import probe

    return probe.has_block_pointers(probe.probe().triton)


def _boxed(gm: Any) -> Call:
    """A graph in eager, in the calling convention of a compiled one."""
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(gm.forward)


def _through(function: Callable[[Any, Env], Any], stage: Stage, value: Any, env: Env) -> Any:
    """A stage's value; a pass that takes one program and gives one is given each region too, innermost first."""
    regions = value.regions
    if regions and (stage.takes, stage.gives) == ("program", "program"):
        made = tuple([_through(function, stage, region, env) for region in regions])
        if any(new is not old for new, old in zip(made, regions, strict=True)):
            value = replace(value, regions=made)
    return function(value, env)


def _written(folder: Path, found: Entry, graph: Graph, gm: Any, env: Env) -> None:
    """Puts into a folder what runs the graph."""
    from minductor.tracing.runnable_folder import write

    write(folder, found, graph, gm, env.target)


def _variant(guards: Sequence[str]) -> str:
    from minductor.runtime.store.store import digest

    return digest(*guards)[:16]


def _user_lines(plan: Plan, gm: Any, symbol: str) -> str:
    """Where the user wrote what became a kernel: asked for only when it does not compile."""
    from minductor.frontend.capture.capture import sources
    from minductor.ir.plan.plan import KernelLine

    written = sources(gm)
    defined = next((d for d in plan.lines if isinstance(d, KernelLine) and d.symbol == symbol), None)
    places = (written.of(origin.node) for origin in defined.origins) if defined else ()
    return ", ".join(dict.fromkeys(place for place in places if place))


def _texts(entry: Entry) -> dict[str, str]:
    """The wrapper and the kernels of an artefact, by file."""
    from minductor.runtime.launch.launch import WRAPPER_FX

    return {name: entry.text(name) for name in entry.contents if name.endswith(SOURCES) or name == WRAPPER_FX}
