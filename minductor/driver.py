"""READ ME FIRST: the road from torch.compile to the launched kernel, in the order in which it is walked.

Takes what Dynamo gives a backend (a graph module, example inputs, mode and options). Gives a compiled callable. Refuses
unknown options and modes. A graph that minductor cannot compile runs in eager, with one warning.

1. `Compiler.__call__` gives the graph to AOTAutograd, which traces it into ATen graphs: forward, backward or inference.
2. `compile_graph` compiles one ATen graph: it captures the graph, decides the target, and asks the store by a key.
3. If the store has no such entry, `_build` compiles: `compile_program` walks the stages of PIPELINE (pipeline.py) and
   writes the texts of kernels and wrapper; `driver_tasks/artefacts.py` compiles the texts; the store keeps the files.
4. `driver_tasks/artefacts.py` loads the stored files as the call that torch runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from minductor.backends import Backend, check_backend_options, find_backend, find_target, fingerprint, rewrites_of
from minductor.core.errors import (
    FallbackRefused,
    LoadFailed,
    MinductorError,
    StageFailed,
    UnsupportedInput,
)
from minductor.core.warn import warn
from minductor.driver_tasks.argument_checks import check_compiler, check_graph, check_not_ahead, check_rewrites
from minductor.driver_tasks.artefacts import Artefacts, report_files, stored_report, texts, variant_name
from minductor.driver_tasks.collector import paused_collector
from minductor.driver_tasks.eager_fallback import Call, boxed, calls_hooks, unreadable_kind, warn_of_eager
from minductor.driver_tasks.graph_rewrites import (
    GraphRewrites,
    Rewritten,
    devices_of_inputs,
    rewrite_aten,
    trace_rewrites,
    with_rewrites,
)
from minductor.driver_tasks.placement import place
from minductor.driver_tasks.stores import Stores, hints_file, serving
from minductor.driver_tasks.wrapper_texts import python_calls, wrapper_text
from minductor.options import Options
from minductor.pipeline import PIPELINE, Stage, resolve
from minductor.target import Env
from minductor.tracing.trace import Trace, counts, debug_folder, new_notes, partition_lines, shown

if TYPE_CHECKING:
    from pathlib import Path

    from minductor.frontend.capture.captured_graph import Graph
    from minductor.frontend.rewrites.rewrite_row import Rewrite
    from minductor.ir.artefact.source import Source
    from minductor.ir.plan.plan import Plan
    from minductor.ir.report.report import Report
    from minductor.runtime.graphs.graph_driver import GraphDriver
    from minductor.runtime.store.store import Entry, Store

Role = Literal["inference", "forward", "backward"]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of compiling one graph, as the observer of a Compiler is given it."""

    role: Role
    key: str  # of the store's entry
    report: Report
    sources: Mapping[str, str]  # file name -> text: the wrapper and the kernel units
    was_hit: bool  # whether the store had it
    seconds: float  # from the ATen graph to the call
    events: list[tuple[str, str]]  # launches, allocations and frees of each call, under options={"events": True}


Observer = Callable[[Compiled], None]
# Changes an ATen graph (a torch.fx.GraphModule) in place before it is read: forward, backward and inference graphs.
GraphPass = Callable[[Any], None]


def ignore(compiled: Compiled) -> None:
    """The observer of a Compiler that nobody observes."""


class Compiler:
    """A torch.compile backend: `torch.compile(model, backend=Compiler(...))`.

    A Compiler holds what outlives a call (stores, toolchain, traces) and no state of a call, so that several threads
    may use it. It does not run the function that it compiles: Dynamo has traced that.
    """

    compiler_name = "minductor"

    def __init__(
        self,
        *,
        store: Store | None = None,
        trace: Trace | None = None,
        observer: Observer = ignore,
        graph_pass: GraphPass | None = None,
        rewrites: Sequence[Rewrite] = (),
        environ: Mapping[str, str] | None = None,
        tuning_clock: Callable[[Callable[[], object]], float] | None = None,
        graph_driver: GraphDriver | None = None,
        is_dry: bool = False,
    ) -> None:
        """Checks and keeps its arguments; starts nothing.

        Args:
            store: where compiled graphs are kept; None means the folder of the option `cache_dir`.
            trace: what is shown of each stage; None means the option `trace`.
            observer: called with a `Compiled` after each graph.
            graph_pass: called with each ATen graph before it is read; it changes the graph in place.
            rewrites: rows of your own for the table of graph rewrites (`minductor.Rewrite`), tried behind minductor's.
            environ: environment variables by name; None means os.environ.
            tuning_clock: gives the seconds that a call takes, for autotuning; None means the clock of the device.
            graph_driver: records CUDA graphs (runtime/graphs/); None means torch.cuda.
            is_dry: compile only; each graph runs in eager, as for a target that is elsewhere.

        Raises:
            BadArgument: an argument is of another kind than it is used for.
        """
        given = {"observer": observer, "graph_pass": graph_pass, "tuning_clock": tuning_clock}
        check_compiler({**given, "store": store, "trace": trace, "environ": environ})
        check_rewrites(rewrites)
        self.environ = dict(os.environ if environ is None else environ)
        self.observer = observer
        self.graph_pass = graph_pass
        self._rewrites = tuple(rewrites)
        self.is_dry = is_dry
        self._trace = trace
        self._stores = Stores(self.environ, store)
        self.artefacts = Artefacts(self.environ, self._store_of, tuning_clock, graph_driver)
        self._traces: dict[str, Trace] = {}
        self._lock = Lock()

    # --- from Dynamo's graph to ATen graphs

    def __call__(
        self,
        gm: Any,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Callable[..., Any]:
        """Compiles the graph of torch.compile: the contract of a Dynamo backend. The user's function is not run.

        Args:
            gm: the torch.fx.GraphModule that Dynamo traced.
            inputs: its example inputs: tensors, symbolic sizes, and what else Dynamo passes.
            mode: a key of minductor.options.MODES; None means "default".
            options: values by option name; README.md lists the options.

        Returns:
            A callable of the graph's inputs that returns the graph's outputs: the values, dtypes, shapes, strides,
            aliases and mutations are eager's. It runs in eager if minductor cannot compile the graph.

        Raises:
            UnknownMode, UnknownOption, BadOptionValue, BadArgument: what the user asked for does not exist.
            FallbackRefused: the graph would run in eager, and options={"fallback": "error"} forbids that.
            MinductorError: a stage, the C++ compiler or the store failed.
        """
        import torch
        from torch._dynamo.utils import GmWrapper, flatten_graph_inputs

        from minductor.frontend.torch_graph.result_trees import flatten_results, has_nested_results

        env = self.env(mode, options)
        check_graph(gm)
        env = env.without_graphs_of_mode(options or (), devices_of_inputs(gm))
        check_not_ahead()
        compile_flat = partial(self.__call__, mode=mode, options=options)
        if has_nested_results(gm):
            return flatten_results(gm, inputs, compile_flat)
        if any(isinstance(value, list | tuple | dict) for value in inputs):  # compiled autograd passes lists
            return flatten_graph_inputs(gm, inputs, compile_flat)
        eager = boxed(gm) if isinstance(gm, GmWrapper) else gm.forward  # a GmWrapper takes one list of arguments
        if kind := next(filter(None, (unreadable_kind(x, may_be_fake=self.is_dry) for x in inputs)), ""):
            warn_of_eager(env, UnsupportedInput("an input of this graph", kind))
            compiled = eager
        else:
            compiled = self._compile_with_autograd(gm, inputs, eager, env)
        untraced: Callable[..., Any] = torch._dynamo.disable
        return untraced(compiled)

    def _compile_with_autograd(
        self, gm: Any, inputs: Sequence[Any], eager: Callable[..., Any], env: Env
    ) -> Callable[..., Any]:
        """What AOTAutograd makes of Dynamo's graph `gm`: it calls `compile_graph` for each ATen graph. Or `eager`."""
        import torch
        from torch._functorch.aot_autograd import aot_module_simplified

        from minductor.frontend.quirks.replaced_functions import replace_functions
        from minductor.frontend.torch_graph import shared_inputs
        from minductor.frontend.torch_graph.decompositions import decompositions
        from minductor.frontend.torch_graph.split_joint_graph import split_joint_graph

        untraced: Callable[..., Any] = torch._dynamo.disable
        places = shared_inputs.window_offsets(gm, inputs)
        rewrites = GraphRewrites(self._own_rewrites(gm, env), env)
        rewrites.rewrite_dynamo(gm)  # before functions are replaced, which rewrites know by torch's names
        replace_functions(gm)
        try:
            compiled = aot_module_simplified(
                gm,
                inputs,
                fw_compiler=partial(self._compile_forward, role="forward", env=env, rewrites=rewrites),
                bw_compiler=untraced(partial(self._compile_backward, env=env)),
                inference_compiler=partial(self._compile_forward, role="inference", env=env, rewrites=rewrites),
                partition_fn=partial(split_joint_graph, rewrite=rewrites.rewrite_joint),
                decompositions=decompositions(),
                keep_inference_input_mutations=True,
            )
            apart = shared_inputs.with_overlap_check(compiled, eager, inputs)
            return shared_inputs.with_offset_check(apart, eager, places, inputs)
        except UnsupportedInput as reason:  # the ATen graph must not run in eager either: Dynamo's graph does
            warn_of_eager(env, reason)
        except RuntimeError as error:
            if not shared_inputs.is_overlap_error(error):
                raise
            kind = "memory that is written, where several of its elements are one"
            warn_of_eager(env, UnsupportedInput("an input of this graph", kind))
        return eager

    def env(self, mode: str | None, options: Mapping[str, object] | None) -> Env:
        """The options and the target of a call; torch's own switches (TF32, determinism) change the options.

        Args:
            mode: a key of minductor.options.MODES; None means "default".
            options: values by option name.

        Returns:
            The Env of the call. Its target is the CPU if the options name none; `compile_graph` then takes the target
            of the graph's device.

        Raises:
            UnknownMode, UnknownOption, BadOptionValue, UnknownTarget, BadArgument: what was asked for does not exist.
        """
        import torch

        chosen = Options.parse(mode, options, self.environ)
        check_backend_options(chosen)
        if chosen.trace.startswith("html:") and chosen.provenance == 1:
            chosen = replace(chosen, provenance=2)  # a page leads from each line of a kernel to its nodes
        if chosen.block_access == "pointer" and not _has_block_pointers():
            warn("this Triton has no block pointers: kernels spell them by offsets")
            chosen = replace(chosen, block_access="offsets")
        if torch.backends.cuda.matmul.allow_tf32 and "matmul_precision" not in (options or {}):
            chosen = replace(chosen, matmul_precision="tf32")
        if torch.are_deterministic_algorithms_enabled():
            chosen = replace(chosen, deterministic=True)
        return Env(chosen, find_target(chosen.target or "cpu"))

    def _own_rewrites(self, gm: Any, env: Env) -> Sequence[Rewrite]:
        """The rewrites of the user's, and of the backend that will compile a graph of Dynamo's or an ATen graph."""
        return (*self._rewrites, *rewrites_of(env, devices_of_inputs(gm)))

    # --- from an ATen graph to its call

    def _compile_forward(
        self, gm: Any, example_inputs: Sequence[Any], *, role: Role, env: Env, rewrites: GraphRewrites
    ) -> Call:
        """The call of a forward or inference graph; with the option `freeze` its weights are constants."""
        compile_graph = partial(self.compile_graph, example_inputs=example_inputs, role=role, env=env)
        return rewrites.compile(gm, role, compile_graph)

    def compile_graph(self, gm: Any, example_inputs: Sequence[Any], *, role: Role, env: Env) -> Call:
        """Compiles one ATen graph, or loads it from the store. No function of the user is run.

        Args:
            gm: the ATen graph, a torch.fx.GraphModule whose nodes carry fake tensors.
            example_inputs: not read; AOTAutograd passes them.
            role: which graph of AOTAutograd's it is.
            env: the options, and the target that the user named.

        Returns:
            The graph's call, which takes one list of arguments and empties it, and returns the outputs in order.

        Raises:
            UnsupportedInput: inputs share memory in a way that neither this graph nor eager's run of it can keep.
            FallbackRefused: the graph would run in eager, and the options forbid that.
            MinductorError: a stage, the C++ compiler or the store failed.
        """
        from minductor.frontend.capture.capture import capture, sources
        from minductor.frontend.torch_graph.shared_inputs import unguarded_input

        start = time.perf_counter()
        if name := unguarded_input(gm, is_backward=role == "backward"):
            raise UnsupportedInput(name, "memory that several inputs share, one of which is written")
        rewritten = rewrite_aten(gm, env, self._own_rewrites(gm, env))
        if self.graph_pass is not None:
            self.graph_pass(gm)
            gm.recompile()  # eager may have to run it
        trace_rewrites(self.trace(env), role, rewritten)
        try:
            graph, env, is_dry = self._place(capture(gm, role), env)
            key = self.key(graph, env, is_dry=is_dry)
            events: list[tuple[str, str]] = []

            def load(entry: Entry) -> Any:
                tell = partial(self.trace(env).measured, role), partial(self.trace(env).recorded, role)
                given = (env, f"{role} {key[:12]}", graph.bound(), gm, events, *tell)
                return boxed(gm) if is_dry else self.artefacts.load(entry, *given)

            entry, was_hit, call = self._load_or_build(key, graph, env, gm, load, is_dry=is_dry)
            if not is_dry:
                call._boxed_call = True  # AOTAutograd's calling convention
        except UnsupportedInput as reason:
            reason.where = sources(gm).of(reason.name)
            warn_of_eager(env, reason)
            return boxed(gm)
        except FallbackRefused as refused:
            refused.where = sources(gm).of(refused.node)
            raise
        self.trace(env).beside(role, lambda folder: self._write_runnable(folder, entry, graph, gm, env))
        self.trace(env).finish(role, entry.contents, graph, gm, env)
        self.trace(env).linked(entry, gm)
        seconds = time.perf_counter() - start
        self._observe(entry, gm, role, key, events, rewritten, was_hit=was_hit, seconds=seconds)
        return call

    def _compile_backward(self, gm: Any, example_inputs: Sequence[Any], *, env: Env) -> Call:
        """The call of a backward graph. Dynamo traces neither the compile nor the call.

        Both may begin inside a program that Dynamo is tracing, since a traced program may call `backward`.
        """
        import torch

        if calls_hooks(gm):
            return boxed(gm)
        call: Any = torch._dynamo.disable(self.compile_graph(gm, example_inputs, role="backward", env=env))
        call._boxed_call = True  # `disable` copies no attributes of a callable object
        return call

    def graph_module(self, gm: Any, env: Env) -> tuple[Any, Graph, Env, Sequence[str]]:
        """Compiles an ATen graph for inference into a torch.fx.GraphModule. No function of the user is run.

        Args:
            gm: the ATen graph.
            env: the options, with wrapper="fx", and the target that the user named.

        Returns:
            The graph module, which does not check its inputs, and whose kernels are not bound if the target is
            elsewhere; the captured graph; the Env with its target; the guards that hold for the compiled sizes.

        Raises:
            UnsupportedInput: minductor cannot compile the graph.
            MinductorError: a stage, the C++ compiler or the store failed.
        """
        from minductor.frontend.capture.capture import capture, sources
        from minductor.runtime.launch import fx
        from minductor.runtime.launch.launch import WRAPPER_FX

        graph, env, is_dry = self._place(capture(gm, "inference"), env)

        def load(entry: Entry) -> Any:
            kernels = None if is_dry else self.artefacts.kernels(entry, env)
            launcher = fx.launcher(entry.contents, kernels, env.target)
            return fx.graph_module(entry.text(WRAPPER_FX), launcher, graph.bound(), gm, where=sources(gm).place_of)

        key = self.key(graph, env, is_dry=is_dry)
        entry, _, module = self._load_or_build(key, graph, env, gm, load, is_dry=is_dry)
        return module, graph, env, json.loads(entry.text("guards.json"))

    def _place(self, graph: Graph, env: Env) -> tuple[Graph, Env, bool]:
        """The graph, the Env with its target, and whether it is only compiled; warns of options without effect."""
        graph, env, is_dry = place(graph, env, is_dry=self.is_dry)
        env, notes = env.supported()
        for note in notes:
            warn(note)
        return graph, env, is_dry

    def _observe(
        self,
        entry: Entry,
        gm: Any,
        role: Role,
        key: str,
        events: list[tuple[str, str]],
        rewritten: Rewritten,
        *,
        was_hit: bool,
        seconds: float,
    ) -> None:
        if self.observer is ignore:
            return
        facts = with_rewrites(stored_report(entry, gm), rewritten)
        self.observer(Compiled(role, key, facts, texts(entry), was_hit, seconds, events))

    # --- the store

    def key(self, graph: Graph, env: Env, *, is_dry: bool = False) -> str:
        """The key of a graph's entry in the store: a digest of all that the entry's files depend on.

        Args:
            graph: the captured graph.
            env: options and target. Options that change no text are no part of the key.
            is_dry: whether the graph is only compiled: its entry then holds no binaries of GPU kernels.

        Returns:
            A digest in hexadecimal digits.
        """
        import torch

        from minductor.runtime.build.probe import version
        from minductor.runtime.store.store import digest

        if backend_facts := fingerprint(find_backend(env.target.kind)):
            tools = backend_facts
        elif env.target.is_gpu:
            tools = f"triton {version('triton')}{' dry' * is_dry}"
        else:
            tools = self.artefacts.toolchain.identity(sanitize=env.options.sanitize)
        of_graph = (graph.text(), env.options.fingerprint(), f"{env.target.name} {env.device}")
        return digest(*of_graph, tools, torch.__version__, self.artefacts.compiler_digest)

    def _store_of(self, env: Env) -> Store:
        return self._stores.of(env.options.cache_dir)

    def _load_or_build(
        self, key: str, graph: Graph, env: Env, gm: Any, load: Callable[[Entry], R], *, is_dry: bool
    ) -> tuple[Entry, bool, R]:
        """The entry of `key`, whether the store had it, and what `load` makes of it.

        An entry that does not load is removed and built once more: the C++ compiler wrote no library, or the library
        was damaged or removed after the store had read it.
        """
        find_or_build = partial(self._find_or_build, key=key, graph=graph, env=env, gm=gm, is_dry=is_dry)
        entry, was_hit = self._stores.use(env.options.cache_dir, find_or_build)
        try:
            return entry, was_hit, load(entry)
        except LoadFailed as error:
            self._store_of(env).discard(entry, error.why)
        entry, _ = self._stores.use(env.options.cache_dir, find_or_build)
        try:
            return entry, False, load(entry)
        except LoadFailed:
            self._store_of(env).remove(entry)
            raise

    def _find_or_build(
        self, store: Store, *, key: str, graph: Graph, env: Env, gm: Any, is_dry: bool
    ) -> tuple[Entry, bool]:
        """The entry of `key`, and whether the store had it. One process builds it while others wait for the lock."""
        start = time.perf_counter()
        if (entry := self._find(store, key, graph, env)) is not None:
            note = f"compiled before; it lies in {entry.path}"
            seconds = time.perf_counter() - start
            self.trace(env).stage(graph.role, "store", seconds, {}, (note,), texts(entry), lambda: f"key {key}")
            return entry, True
        with store.lock(key, timeout_s=env.options.compiler_timeout):
            return self._find(store, key, graph, env) or self._build(store, key, graph, env, gm, is_dry=is_dry), False

    def _find(self, store: Store, key: str, graph: Graph, env: Env) -> Entry | None:
        """The entry of `key` that serves the graph's sizes best and whose guards hold for them, if there is one.

        A graph without symbols has no hints and no guards.
        """
        if not graph.symbols:
            return store.get(key)
        from minductor.frontend.capture.symbolic_sizes import guards_hold

        def choose(entries: Sequence[Entry]) -> Entry | None:
            near = serving(entries, graph.hints if env.uses_hints else ())
            return next((entry for entry in near if guards_hold(json.loads(entry.text("guards.json")), graph)), None)

        return store.pick(key, choose)

    def _build(self, store: Store, key: str, graph: Graph, env: Env, gm: Any, *, is_dry: bool) -> Entry:
        """Compiles a graph and puts its files into the store."""
        is_launched = env.target.kind == "cuda" and not is_dry
        if is_launched:
            self.artefacts.gpu.expect(1 + len(graph.nodes) // 16)  # starts so many workers while the stages run
        backend, is_here = find_backend(env.target.kind), not is_dry
        source, plan, report = self.compile_program(graph, env, backend, is_measured=is_here)
        self._trace_partitions(report, gm, env)

        def build(folder: Path) -> dict[str, bytes]:
            start = time.perf_counter()
            files = self.artefacts.build(source, plan, graph, env, gm, folder, is_launched=is_launched)
            seconds, units = time.perf_counter() - start, {"units": sum(bool(unit.symbols) for unit in source.units)}
            self.trace(env).stage(graph.role, "compile", seconds, units, (), None, str)
            return files

        files = store.in_scratch(build)
        guards = [str(guard.rel) for guard in plan.guards]
        files.update(report_files(report, source, files))
        files["guards.json"] = json.dumps(guards).encode()
        hints = hints_file(graph.hints if env.uses_hints else ())
        return store.put(key, files | hints, variant=variant_name(guards, hints))

    # --- the pipeline

    def compile_program(
        self, graph: Graph, env: Env, backend: Backend, *, is_measured: bool = False
    ) -> tuple[Source, Plan, Report]:
        """Walks the pipeline: from a captured graph to the texts of its kernels and wrapper. Only the trace is written.

        Args:
            graph: the captured graph.
            env: options and target.
            backend: the backend of the target's kind; its passes run behind the stages that they name.
            is_measured: choices are measured here if the wrapper is one that measures nothing.

        Returns:
            The texts, the memory plan that they follow, and the facts about both.

        Raises:
            StageFailed: a stage raised an error that is not minductor's own.
            MinductorError: a stage refused the graph, or broke a rule of the IR under options={"verify": True}.
        """
        from minductor.codegen.wrapper.handle_comments import verify_handles
        from minductor.frontend.capture.schemas import with_schemas
        from minductor.ir.artefact.source import Source
        from minductor.ir.plan.plan import replace_operators
        from minductor.ir.report.provenance import provenance
        from minductor.ir.report.report import report

        value: Any = graph
        program: Any = None  # the last program before the plan
        with paused_collector():
            for stage in _stages(backend):
                program = program if stage.takes == "plan" else value
                value = self.run_stage(stage, value, graph.role, env)
        if is_measured and env.options.autotune and env.options.wrapper != "python":
            program, value = self._with_measured_choices(program, value, graph, env, backend)
        plan: Plan = with_schemas(replace_operators(value, backend.externs))
        start = time.perf_counter()
        units = resolve(backend.kernels)(plan, env)
        source = Source(tuple(units), *wrapper_text(plan, env, backend))
        if env.options.verify and env.options.provenance:
            verify_handles(plan, source.wrapper, source.language)
        written = {source.wrapper_file: source.wrapper, **{unit.file: unit.text for unit in units}}
        facts = replace(report(program, plan), origins=provenance(program, plan, units, env.options.provenance))
        counted = {"kernels": facts.kernels, "externs": facts.externs}
        notes = tuple(python_calls(plan)) if source.language == "cpp" else ()
        self.trace(env).stage(graph.role, "codegen", time.perf_counter() - start, counted, notes, written, str)
        return source, plan, facts

    def _with_measured_choices(
        self, program: Any, plan: Plan, graph: Graph, env: Env, backend: Backend
    ) -> tuple[Any, Plan]:
        """The program and its plan whose choices are measured; the trace says how long that took."""
        from minductor.driver_tasks.measured_choices import with_measured_choices

        start = time.perf_counter()
        made: Any = with_measured_choices(program, plan, graph, env, backend, self.artefacts)
        if made is program:
            return program, plan
        seconds = time.perf_counter() - start
        self.trace(env).stage(graph.role, "choices", seconds, counts(made), (), None, partial(shown, made), made)
        value = made
        for stage in _stages(backend):
            if stage.gives == "plan":
                value = self.run_stage(stage, value, graph.role, env)
        return made, value

    def run_stage(self, stage: Stage, value: Any, role: Role, env: Env) -> Any:
        """Runs one stage, with its graph passes before it, and times, verifies and traces it.

        Args:
            stage: a row of PIPELINE, or a backend's pass.
            value: what the stage takes: a captured graph, a Program or a Plan.
            role: which graph of AOTAutograd's it is, for the trace.
            env: options and target.

        Returns:
            What the stage gives.

        Raises:
            StageFailed: the stage raised an error that is not minductor's own.
            MinductorError: the stage refused the graph, or broke a rule of the IR under options={"verify": True}.
        """
        for each in stage.graph_passes:
            value = self._run_graph_pass(each._replace(name=f"{stage.name}.{each.name}"), value, role, env)
        result, seconds = self._run_steps(stage, value, role, env) if stage.steps else _timed(stage, value, env)
        if env.options.verify:
            self._verify(stage, value, result)
        notes = list(new_notes(value, result))
        self.trace(env).stage(role, stage.name, seconds, counts(result), notes, None, partial(shown, result), result)
        return result

    def _run_graph_pass(self, graph_pass: Stage, graph: Graph, role: Role, env: Env) -> Graph:
        """What a graph pass gives; it is traced only if it changes the graph."""
        result, seconds = _timed(graph_pass, graph, env)
        if result is not graph:
            self.trace(env).stage(role, graph_pass.name, seconds, counts(result), (), None, result.text, result)
        return result

    def _run_steps(self, stage: Stage, value: Any, role: Role, env: Env) -> tuple[Any, float]:
        """What the steps of a stage give, and the seconds of all. Between them those are traced that add nodes."""
        start = time.perf_counter()
        result, before = value, dict[str, int]()
        for number, step in enumerate(stage.steps, 1):
            result, seconds = _timed(step._replace(name=stage.name), result, env)
            counted = counts(result)
            if 1 < number < len(stage.steps) and counted != before:
                text = partial(shown, result)
                self.trace(env).stage(role, f"{stage.name}.{step.name}", seconds, counted, (), None, text)
            before = counted
        return result, time.perf_counter() - start

    @staticmethod
    def _verify(stage: Stage, value: Any, result: Any) -> None:
        """Checks the rules for the result of a stage, unless the same value was checked for them before."""
        from minductor.ir.plan.verify_plan import verify_plan
        from minductor.ir.program.verify_program import has_rules, verify, verify_names_kept

        if stage.gives == "plan":
            verify_plan(result)
        elif result is not value or has_rules(stage.name):
            verify(result, stages_up_to(stage.after or stage.name))
            verify_names_kept(value, result, stage.name)

    # --- the trace

    def trace(self, env: Env) -> Trace:
        """The Trace that the options ask for.

        Args:
            env: its option `trace` says what is shown, and where.

        Returns:
            One Trace for each text of the option, since a page or a folder goes on from graph to graph.
        """
        if self._trace is not None:
            return self._trace
        with self._lock:
            if env.options.trace not in self._traces:
                self._traces[env.options.trace] = Trace.parse(env.options.trace, debug=debug_folder(self.environ))
            return self._traces[env.options.trace]

    def _trace_partitions(self, report: Report, gm: Any, env: Env) -> None:
        """Traces what CUDA graphs could capture, with the user's lines; nothing for a CPU."""
        if not env.target.is_gpu:
            return
        counted = {"partitions": len(report.partitions), "capturable": sum(row[2] for row in report.partitions)}
        notes = list(partition_lines(report, gm))
        self.trace(env).stage(report.role, "partitions", 0.0, counted, notes, None, lambda: "\n".join(notes))

    def _write_runnable(self, folder: Path, entry: Entry, graph: Graph, gm: Any, env: Env) -> None:
        """Puts files into `folder` that run the graph."""
        from minductor.tracing.runnable_folder import write

        write(folder, entry, graph, gm, env.target, partial(self.artefacts.build_command, entry, env))

    def reset(self) -> None:
        """Closes the opened stores; what they hold on disk stays."""
        self._stores.forget()


def stages_up_to(name: str) -> tuple[str, ...]:
    """The names of PIPELINE's stages up to that one."""
    names = [stage.name for stage in PIPELINE]
    return tuple(names[: names.index(name) + 1])


def _stages(backend: Backend) -> Iterator[Stage]:
    """The stages of PIPELINE, each followed by the backend's passes that run after it."""
    for stage in PIPELINE:
        yield stage
        for each in backend.passes:
            if each.after == stage.name:
                yield Stage(each.name, each.function, stage.gives, stage.gives, after=stage.name)


def _timed(stage: Stage, value: Any, env: Env) -> tuple[Any, float]:
    """What a stage gives, and the seconds that it took."""
    start = time.perf_counter()
    try:
        result = _run_through_regions(resolve(stage.function), stage, value, env)
    except MinductorError:
        raise
    except Exception as error:
        raise StageFailed(stage.name, error) from error
    return result, time.perf_counter() - start


def _run_through_regions(function: Callable[[Any, Env], Any], stage: Stage, value: Any, env: Env) -> Any:
    """What a stage gives. A pass from program to program runs on each region of the program first, innermost first."""
    regions = getattr(value, "regions", ())  # what a step gives has none
    if regions and (stage.takes, stage.gives) == ("program", "program"):
        made = tuple([_run_through_regions(function, stage, region, env) for region in regions])
        if any(new is not old for new, old in zip(made, regions, strict=True)):
            value = replace(value, regions=made)
    return function(value, env)


def _has_block_pointers() -> bool:
    from minductor.runtime.build import probe

    return probe.has_block_pointers(probe.probe().triton)
