"""Shows how one function is compiled: each stage's value as text, its seconds, its counts and its notes.

Takes a function and example inputs, in Python (`minductor.explain(fn, *args)`) or on the command line as
FILE.py::FUNCTION. Gives an `Explanation`, which prints. Refuses to use the cache: what is shown was compiled now.
With `check`, it evaluates the program after each stage, and names the first stage whose numbers differ from eager's by
more than rounding.

On the command line the file also defines `example_inputs()`. It returns the arguments as a tuple, or a dict from a
function's name to such a tuple. FUNCTION is a function or an nn.Module of the file. The function is run once.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from minductor.api.isolation import fresh, isolated
from minductor.core.errors import (
    BadArgument,
    BadCall,
    MinductorError,
    UnknownKernel,
    UnknownStage,
    UnknownTarget,
    suggestion,
)
from minductor.driver import Call, Compiled, Compiler, Role, Stage
from minductor.driver_tasks.argument_checks import check_call, check_program
from minductor.options import mapping_of
from minductor.page.page_records import GraphRecords
from minductor.target import Env
from minductor.tracing.trace import Record, Runs, Trace, new_notes, partition_lines

if TYPE_CHECKING:
    from minductor.ir.report.provenance import PlanCall, Provenance
    from minductor.ir.report.report import Report

# The largest difference that is taken for rounding, relative to the largest value of the ATen graph run in eager. A sum
# in another order differs by a few ULP of its terms; a wrong index or operator differs by a thousand times this.
ROUNDING: Mapping[str, float] = {"float64": 1e-11, "float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of one graph, as it is shown."""

    name: str
    summary: str
    text: str
    notes: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict[str, str])

    def lines(self) -> Iterator[str]:
        """The stage as lines of text."""
        yield f"-- {self.name} -- {self.summary}"
        yield from (f"note: {note}" for note in self.notes)
        yield self.text.rstrip()
        for name, source in self.sources.items():
            yield f"-- {name} --"
            yield source.rstrip()


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far one stage's numbers are from eager's: the largest difference divided by the largest value."""

    stage: str
    error: float
    allowed: float

    @property
    def has_moved(self) -> bool:
        """Whether the numbers differ from eager's by more than rounding."""
        return not self.error <= self.allowed  # NaN has

    def __str__(self) -> str:
        return f"{self.stage}: {'MOVED' if self.has_moved else 'same'}, off by {self.error:.1e} of {self.allowed:.1e}"


@dataclass(slots=True)
class Road:
    """One graph and its stages; filled while the graph is compiled and run."""

    role: Role
    gm: Any
    steps: list[Step] = field(default_factory=list[Step])
    values: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    compiled: Compiled | None = None
    call: Call | None = None
    args: list[Any] | None = None
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    records: GraphRecords = field(default_factory=lambda: GraphRecords(""))

    def lines(self, only: Sequence[str]) -> Iterator[str]:
        """The graph as lines of text; `only` names the stages to show, empty means all."""
        yield f"==== {self.role} graph ===="
        if not self.steps:
            yield "no stage ran: the warning or the error says why\n"
        before = ""
        for step in self.steps:
            if step.name in only:
                yield from (*step.lines(), "")
            elif not only:
                is_same = step.text != "" and step.text == before
                yield from (*(replace(step, text="it changes nothing") if is_same else step).lines(), "")
            before = step.text or before
        if self.compiled is not None and not only:
            yield f"-- report --\n{_report(self.compiled, self.gm)}\n"
        if self.verdicts:
            yield "-- check --"
            yield from map(str, self.verdicts)
            yield ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a function was compiled: its graphs in the order in which they were compiled; `print` shows it.

    `failure` is the error that ended the compile, if there was one.
    """

    roads: tuple[Road, ...]
    failure: BaseException | None = None

    def text(self, only: Sequence[str] = ()) -> str:
        """The explanation as text.

        Args:
            only: the names of the stages to show; empty means all of them.

        Returns:
            What `print` shows.

        Raises:
            UnknownStage: no graph went through a stage of this name.
        """
        for name in only if self.failure is None else ():
            if name not in self._stages():
                raise UnknownStage(name, self._stages())
        if not self.roads:
            return "no graph was compiled: the function holds no tensor operation that Dynamo traces"
        shown = "\n".join(line for road in self.roads for line in road.lines(only))
        return f"{shown}\n-- failed --\n{_failure(self.failure)}" if self.failure is not None else shown

    def __str__(self) -> str:
        return self.text()

    def stage(self, name: str, *, role: Role | None = None) -> str:
        """The value of one stage as text.

        Args:
            name: the name of the stage.
            role: which graph; None means the first that has the stage.

        Returns:
            The text.

        Raises:
            UnknownStage: no such graph went through a stage of this name.
        """
        for road in self.roads:
            for step in road.steps:
                if step.name == name and role in (None, road.role):
                    return step.text
        raise UnknownStage(f"{name} of {role}" if role else name, self._stages())

    def _stages(self) -> Sequence[str]:
        return list(dict.fromkeys(step.name for road in self.roads for step in road.steps))

    def why_not(self, first: str, second: str) -> tuple[str, ...]:
        """The reasons why two kernels were not fused.

        Args:
            first: the name of a kernel at any stage, or of a generated function.
            second: the name of another one.

        Returns:
            One sentence for each reason, of all graphs that have both kernels.

        Raises:
            UnknownKernel: no graph has both.
        """
        found: list[str] = []
        failure = UnknownKernel(first, ())
        for road in self.roads:
            try:
                found += road.compiled.report.why_not(first, second) if road.compiled else ()
            except UnknownKernel as error:
                failure = error
        if not found:
            raise failure
        return tuple(found)

    def html(self, path: str | Path) -> None:
        """Writes a page to walk through the compile: one HTML file that needs nothing beside it and no network.

        Args:
            path: the file to write; one that exists is replaced.

        Raises:
            BadArgument: the file cannot be written.
        """
        from minductor.page.page_data import document, graph_data
        from minductor.page.page_files import Files
        from minductor.page.page_write import write_page
        from minductor.runtime.user_paths import user_path

        files, runs = Files(), Runs()
        for road in self.roads:
            road.records.checked = {verdict.stage: (str(verdict), verdict.has_moved) for verdict in road.verdicts}
        if self.failure is not None and self.roads:
            self.roads[-1].records.failure = _failure(self.failure)
        graphs = [graph_data(road.records, runs.place(road.role, "whole")[0], files) for road in self.roads]
        file = user_path("the path of a page", path)
        try:
            write_page(file, document(graphs, files))
        except OSError as error:
            takes = "a file in a folder that exists"
            raise BadArgument("the path of a page", str(path), takes, why=error.strerror or "") from error

    def first_moved(self) -> str:
        """The first stage whose numbers differ from eager's by more than rounding.

        Returns:
            The graph's role and the stage's name; "" if there is no such stage, or nothing was checked.
        """
        moved = [f"{road.role} {v.stage}" for road in self.roads for v in road.verdicts if v.has_moved]
        return moved[0] if moved else ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A graph's call that keeps a copy of its first arguments."""

    road: Road
    call: Call
    _boxed_call: ClassVar[bool] = True  # AOTAutograd's calling convention

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Calls the graph with one list of arguments."""
        if self.road.args is None:
            self.road.args = _copies(args)
        return self.call(args)


class Explainer(Compiler):
    """A Compiler that remembers the value of each stage, and what each graph was called with."""

    def __init__(self, store: Any) -> None:
        super().__init__(store=store, trace=Trace((self,)), observer=self.observe)
        self.roads: list[Road] = []

    def compile_graph(self, gm: Any, example_inputs: Sequence[Any], *, role: Role, env: Env) -> Call:
        """Compiles a graph as the Compiler does, and records it."""
        road = Road(role, gm, records=GraphRecords(role, gm=gm, env=env))
        self.roads.append(road)
        self.is_dry = env.target.kind in ("cuda", "hip")  # this machine need not have the GPU, so no kernel is run
        road.call = call = super().compile_graph(gm, example_inputs, role=role, env=env)
        return Recorded(road, call)

    def run_stage(self, stage: Stage, value: Any, role: Role, env: Env) -> Any:
        """Runs a stage as the Compiler does, and records its value and notes."""
        road = self.roads[-1]
        if stage.takes == "graph":
            road.steps.append(Step("graph", f"{len(value.nodes)} nodes", value.text()))
            road.values.append(("graph", value))
            road.records.graph = value
        result = super().run_stage(stage, value, role, env)
        road.values.append((stage.name, result))
        step = road.steps[-1]
        text = step.text if not getattr(result, "notes", ()) else _without_notes(result)
        road.steps[-1] = replace(step, text=text, notes=tuple(new_notes(value, result)))
        return result

    def record(self, record: Record) -> None:
        """Records the seconds, counts, text and sources of a stage: a Trace calls it."""
        if record.stage == "store":
            step = Step("store", "the same graph was compiled above", record.text())
        else:
            text = "" if record.sources else record.text()
            step = Step(record.stage, record.summary(), text, (), record.sources)
        self.roads[-1].steps.append(step)
        self.roads[-1].records.add(record)

    def finish(self, graph_name: str, contents: Mapping[str, bytes], graph: Any, gm: Any, env: Env) -> None:
        """Records what a graph was compiled to: a Trace calls it."""
        self.roads[-1].records.finish(contents, graph, gm, env)

    def observe(self, compiled: Compiled) -> None:
        """Records the result of a graph."""
        self.roads[-1].compiled = compiled


def explain(
    fn: Callable[..., Any], *args: Any, check: bool = False, options: Mapping[str, object] | None = None
) -> Explanation:
    """Compiles `fn` and shows every stage. Runs the compiled `fn(*args)` once, and its backward if outputs need one.

    Args:
        fn: a function or a torch.nn.Module.
        *args: its arguments, of any shapes and dtypes; `.grad` of the arguments is left alone.
        check: evaluate the program after each stage, and compare the numbers with eager's.
        options: values by option name, as torch.compile(options=...) takes them.

    Returns:
        An Explanation, to be printed or asked. If an error came after the first graph, it shows the stages up to it.

    Raises:
        BadArgument, BadCall: `fn` cannot be called, or does not take the arguments.
        UnknownOption, BadOptionValue: an option does not exist, or does not take its value.
        Exception: any error before the first graph is captured, as Dynamo or `fn` raised it.
    """
    import torch

    from minductor.runtime.store.store import Store

    check_program("explain", fn)
    check_call(fn, args, {})
    with tempfile.TemporaryDirectory(prefix="minductor-explain-") as folder:
        explainer = Explainer(Store(Path(folder)))
        failure: Exception | None = None
        given: Any = {"provenance": 2, **mapping_of(options)}
        try:
            with isolated():  # what was compiled before would not be compiled again
                _backward(torch.compile(fresh(fn), backend=explainer, options=given)(*args))
        except Exception as error:
            inner = getattr(error, "inner_exception", None)  # Dynamo wraps what a backend raises
            failure = inner if isinstance(inner, Exception) else error
            if not explainer.roads:
                raise failure from None
        if check:
            for road in explainer.roads:
                road.verdicts = list(_verdicts(road))
    return Explanation(tuple(explainer.roads), failure)


def _backward(outputs: Any) -> None:
    """Computes the gradients of all outputs with respect to all leaf tensors; writes no `.grad`."""
    import torch
    from torch.utils._pytree import tree_leaves

    results = [t for t in tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn]
    seen, leaves, waiting = set[Any](), list[Any](), [t.grad_fn for t in results]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            leaves.append(leaf)
        waiting += [following for following, _ in node.next_functions]
    if leaves:
        # Gradients of ones would hide faults: the gradient of a layer norm's sum is zero.
        slopes = [torch.linspace(-1, 1, t.numel(), device=t.device).reshape(t.shape).to(t.dtype) for t in results]
        torch.autograd.grad(results, leaves, slopes, allow_unused=True)


def _copies(args: Sequence[Any]) -> list[Any]:
    """Copies of a call's arguments. They have the same strides, and share storage if the arguments do.

    A packed weight of oneDNN is not copied: it has no storage, and no call writes to it.
    """
    import torch

    plain = [a if not isinstance(a, torch.Tensor) or a.is_mkldnn else a.detach() for a in args]
    packed = {id(a): a for a in plain if isinstance(a, torch.Tensor) and a.is_mkldnn}
    return copy.deepcopy(plain, packed)


def _verdicts(road: Road) -> Iterator[Verdict]:
    """Runs the ATen graph in eager, then each stage's program, then the kernels, from the same inputs and seed."""
    import torch

    from minductor.ir.program.nodes import Program
    from minductor.runtime.reference.reference import run_program

    if road.args is None or not road.values:
        return
    graph = road.values[0][1]
    constants = graph.bound()
    runs: list[tuple[str, Callable[[list[Any]], Any]]] = [("eager", lambda args: road.gm(*args))]
    for name, value in road.values:
        if isinstance(value, Program):
            runs.append((name, lambda args, value=value: run_program(value, args, constants)))
    if road.call is not None:
        call = road.call
        runs.append(("kernels", lambda args: call(list(args))))
    expected: list[Any] = []
    for name, run in runs:
        args = _copies(road.args)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            # Inputs too, which a graph may write; but a donated one is scratch once it has been read.
            results = [*run(args), *(a for a, i in zip(args, graph.inputs, strict=True) if not i.is_donated)]
        if name == "eager":
            expected = _copies(results)
        else:
            yield _verdict(name, expected, results)


def _verdict(stage: str, expected: Sequence[Any], results: Sequence[Any]) -> Verdict:
    """The verdict on the result of a stage whose error is the largest multiple of what its dtype allows."""
    import torch

    worst = Verdict(stage, 0.0, max(ROUNDING.values()))
    for want, got in zip(expected, results, strict=True):
        if not isinstance(want, torch.Tensor) or not want.numel() or want.is_mkldnn:
            continue
        allowed = ROUNDING.get(str(want.dtype.to_real()).removeprefix("torch."), 0.0)
        error = _distance(want, got) if want.shape == got.shape and want.dtype == got.dtype else float("inf")
        if not error <= allowed:
            return Verdict(stage, error, allowed)
        if allowed and error / allowed >= worst.error / worst.allowed:
            worst = Verdict(stage, error, allowed)
    return worst


def _distance(want: Any, got: Any) -> float:
    """The largest difference of two tensors, divided by the largest finite value of `want`."""
    import torch

    wide = torch.complex128 if want.is_complex() else torch.float64
    a, b = want.detach().to(wide), got.detach().to(wide)
    equal = (a == b) | (a.isnan() & b.isnan())  # infinities of one sign are equal, and their difference is NaN
    if equal.all():
        return 0.0
    finite = a[a.isfinite()].abs()
    scale = max(float(finite.max()) if finite.numel() else 0.0, torch.finfo(torch.float32).tiny)
    return float(torch.where(equal, 0.0, (a - b).abs()).max()) / scale


def _failure(error: BaseException) -> str:
    """An error as text: a MinductorError by its message, any other error with its traceback."""
    if isinstance(error, MinductorError):
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()


def _without_notes(program: Any) -> str:
    from minductor.ir.program.printer import print_program

    return print_program(replace(program, notes=()))


def _report(compiled: Compiled, gm: Any) -> str:
    facts = compiled.report
    modules = _Modules(facts.provenance())
    lines = [
        f"{facts.kernels} kernels, {facts.externs} extern calls, {facts.bytes} bytes moved, "
        f"{facts.operations} operations, {compiled.seconds * 1e3:.0f} ms to compile",
        *_rewrites(facts),
        *(f"kernel {name}{modules.of_next(name)}" for name in facts.kernel_names),
        *(f"extern {op}: {reason}{modules.of_next(op)}" for op, reason in facts.extern_reasons),
        *partition_lines(facts, gm),
    ]
    return "\n".join(lines)


def _rewrites(facts: Report) -> Iterator[str]:
    """A line about rewrites of the graph and the bytes that it keeps of its weights, if there are any."""
    applied = Counter(name for name, _, _, why in facts.rewrites if not why)
    refused = Counter(name for name, _, _, why in facts.rewrites if why)
    parts = [("rewrites", applied), ("not", refused)]
    texts = [f"{word}: {', '.join(f'{name} {n}' for name, n in found.items())}" for word, found in parts if found]
    if facts.frozen_bytes:
        texts.append(f"frozen: {facts.frozen_bytes} bytes")
    if texts:
        yield "; ".join(texts)


class _Modules:
    """The module paths of the calls of a graph, asked for in the order of the plan."""

    def __init__(self, known: Provenance) -> None:
        self.known = known
        self.calls: dict[str, list[PlanCall]] = {}
        for call in known.calls:
            self.calls.setdefault(call.key.rpartition(":")[0], []).append(call)

    def of_next(self, name: str) -> str:
        """The modules of the next call of a kernel or operator, in parentheses behind a blank; "" if it has none."""
        calls = self.calls.get(name)
        nodes = calls.pop(0).nodes if calls else ()
        found = dict.fromkeys(path for path in map(self.known.module_of, nodes) if path)
        return f" ({', '.join(found)})" if found else ""


# --- the command line


class CannotExplain(Exception):
    """A FILE.py::FUNCTION that names nothing which could be called, or has no inputs."""


def load_function(where: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function that FILE.py::FUNCTION names, and its example inputs."""
    file, separator, name = where.partition("::")
    if not separator or not name:
        raise CannotExplain(f"{where!r} does not read FILE.py::FUNCTION")
    module = _load_file(Path(file))
    fn = getattr(module, name, None)
    if isinstance(fn, type):
        raise CannotExplain(f"{file}::{name} is a class: name an instance that the file makes")
    if not callable(fn):
        known = [key for key, value in vars(module).items() if callable(value) and not isinstance(value, type)]
        what = f"is a {type(fn).__name__}, no function" if hasattr(module, name) else "does not exist"
        raise CannotExplain(
            f"{file}::{name} {what}: {suggestion(name, known)}The functions are: {', '.join(known) or 'none'}."
        )
    examples = getattr(module, "example_inputs", None)
    if not callable(examples):
        raise CannotExplain(f"{file} has no example_inputs(): add one that returns the arguments of {name} as a tuple")
    try:
        inputs: Any = examples()
    except Exception as error:
        raise CannotExplain(f"example_inputs() of {file} fails: {_in_one_line(error, file)}") from error
    if isinstance(inputs, Mapping):
        if name not in inputs:
            raise CannotExplain(f"example_inputs() of {file} has no row for {name!r}, only {', '.join(inputs)}")
        inputs = inputs[name]
    if not isinstance(inputs, tuple):
        raise CannotExplain(f"example_inputs() of {file} gives a {type(inputs).__name__} for {name}, not a tuple")
    return fn, inputs


def _load_file(path: Path) -> ModuleType:
    if path.suffix != ".py" or not path.is_file():
        raise CannotExplain(f"{path} {'is not a Python file' if path.exists() else 'does not exist'}")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise CannotExplain(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # Dynamo looks up a function's module by name
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if sys.modules.get(path.stem) is module:
            del sys.modules[path.stem]
        raise CannotExplain(f"{path} cannot be imported: {_in_one_line(error, str(path))}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _in_one_line(error: BaseException, file: str) -> str:
    """The class and the first line of an error, with the innermost line of the user's file that led to it."""
    inner = getattr(error, "inner_exception", None)  # Dynamo wraps what a backend raises
    error = inner if isinstance(inner, BaseException) else error
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _is_same(frame.filename, file)]
    if isinstance(error, SyntaxError) and error.filename and _is_same(error.filename, file):
        message, line = error.msg, error.lineno
    else:
        message, line = next(iter(str(error).strip().splitlines()), ""), lines[-1] if lines else None
    return f"{type(error).__name__}{': ' * bool(message)}{message}{f' ({file}:{line})' if line else ''}"


def _is_same(name: str, file: str) -> bool:
    return Path(name).resolve() == Path(file).resolve()


def main(argv: list[str]) -> int:
    """The command. Exit code 1: the compile failed, or a stage moved; 2: no such function or stage, or no inputs."""
    parser = argparse.ArgumentParser(
        prog="minductor explain",
        description="Show every stage of one function's compile, from the ATen graph to the kernels and the wrapper.",
        epilog="FILE.py also defines example_inputs(), which returns the arguments as a tuple, or a dict from a "
        "function's name to such a tuple. FUNCTION may be an nn.Module that the file has made. It is run once, and "
        "backward where an output needs gradients. Exit code: 0 done; 1 the compile failed, or with --check a stage "
        "moved the numbers; 2 no such function or stage, or no inputs.",
    )
    parser.add_argument("where", metavar="FILE.py::FUNCTION")
    parser.add_argument(
        "--check", action="store_true", help="evaluate each stage and name the first whose numbers moved"
    )
    parser.add_argument("--target", default="cpu", help="the named target to compile for (default %(default)s)")
    parser.add_argument(
        "--stage", action="append", default=[], metavar="NAME", help="show only this stage (may be repeated)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page to walk through the compile, and print its path")
    given = parser.parse_args(argv)
    try:
        fn, inputs = load_function(given.where)
    except CannotExplain as error:
        print(f"minductor explain: {error}", file=sys.stderr)
        return 2
    try:
        explanation = explain(fn, *inputs, check=given.check, options={"target": given.target})
    except (BadArgument, BadCall, UnknownTarget) as error:
        print(f"minductor explain: {error}", file=sys.stderr)
        return 2
    except MinductorError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # before the first graph: the user's own, or one of torch
        file = given.where.partition("::")[0]
        print(f"minductor explain: {given.where} fails: {_in_one_line(error, file)}", file=sys.stderr)
        return 1
    try:
        if given.html:
            explanation.html(given.html)
        print(given.html if given.html and not given.stage else explanation.text(given.stage))
    except BadArgument as error:
        print(f"minductor explain: {error}", file=sys.stderr)
        return 2
    except UnknownStage as error:
        print(f"minductor explain: {error.what}: {error.hint}", file=sys.stderr)
        return 2
    moved = explanation.first_moved()
    if given.check and explanation.failure is None:
        print(f"the numbers moved first in {moved}" if moved else "every stage gives eager's numbers")
    return 1 if moved or explanation.failure is not None else 0
