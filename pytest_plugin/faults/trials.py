"""Runs a test more than once: under faults that it must notice, and under changes that must not matter.

Takes a test item. Gives its reports; the report of its call has the outcome of the trials. Refuses nothing: what a
trial cannot do is a failure of the test.

A trial writes no golden and logs no report. A check that fails is noted by its kind, and the other checks go on, so
that a trial finds all kinds of checks that notice a fault.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from pytest_plugin.adapters import Adapter, Mutant
from pytest_plugin.devices.item_device import device_of
from pytest_plugin.faults.kill_matrix import MutantResult
from pytest_plugin.faults.mutants import Stale, mutated
from pytest_plugin.oracle.accuracy import WrongResult
from pytest_plugin.oracle.run import Run
from pytest_plugin.stash import TRIAL
from pytest_plugin.vocabulary import FINGERPRINT_VARIABLE, KILLS_KEY, REPORT_KEY

LIMIT_SECONDS = 600
MUTANT_VARIABLE = "MINDUCTOR_TEST_MUTANT"  # tells a new process the name of the fault that it must have


@dataclass(slots=True)
class Trial:
    """What is noted while a test runs as a trial.

    Attributes:
        is_test_itself: Whether this is the test's own run, whose failing checks fail the test.
        kinds: The kinds of checks that failed.
        texts: A digest of what each `compiled` run generated.
        bits: A digest of the results of each `compiled` run.
    """

    is_test_itself: bool = False
    kinds: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])
    bits: list[str] = field(default_factory=list[str])

    def note_refusal(self, kind: str) -> None:
        """Notes that a check of this kind failed."""
        if kind not in self.kinds:
            self.kinds.append(kind)

    def note_wrong_result(self, difference: WrongResult) -> None:
        """Notes a wrong result."""
        self.note_refusal(kind_of_check(difference))

    def note_runs(self, runs: Sequence[Run]) -> None:
        """Notes the digests of the runs of `compiled`."""
        self.texts = [digest_of_texts(run) for run in runs]
        self.bits = [digest_of_results(run) for run in runs]

    @property
    def fingerprint(self) -> dict[str, list[str]]:
        """The digests by what they are of: "text" and "bits"."""
        return {"text": self.texts, "bits": self.bits}


@dataclass(frozen=True, slots=True)
class MutantRun:
    """A test under a mutant: the kinds of checks that failed, and the digests of each run."""

    mutant: str
    was_reached: bool
    kinds: tuple[str, ...]
    fingerprints: tuple[Mapping[str, list[str]], ...]

    def result(self, right: Mapping[str, list[str]]) -> MutantResult:
        """Compares the digests with those of the test's own run, and returns what became of the mutant."""
        was_applied = any(found[what] != right[what] for found in self.fingerprints for what in right)
        return MutantResult(self.mutant, self.was_reached, was_applied, self.kinds)


def kind_of_check(error: BaseException) -> str:
    """Returns the kind of check that raised an exception."""
    names = {"WrongResult": "numeric", "Mismatch": "golden", "NoNumbers": "numeric"}
    return next((names[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in names), "error")


def digest_of_texts(run: Run) -> str:
    """Returns a digest of everything that the compiler generated, and of whether graphs came from a store."""
    graphs = run.graphs
    parts: list[object] = [run.plan, *run.kernels, *run.wrappers, sorted(run.report.known().items())]
    parts += [(graph.role, graph.was_hit) for graph in graphs]
    return _digest(parts)


def digest_of_results(run: Run) -> str:
    """Returns a digest of the output and the gradients, bit by bit; empty on a compile-only device."""
    import torch
    from torch.utils import _pytree as pytree

    if run.results is None:
        return ""
    leaves: list[Any] = pytree.tree_leaves((run.out, dict(run.grads)))
    parts: list[object] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            flat: Any = leaf.detach().cpu().contiguous().flatten().view(torch.uint8)
            parts.append((str(leaf.dtype), tuple(leaf.shape), bytes(flat.tolist())))
        else:
            parts.append(leaf)
    return _digest(parts)


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


# --- one test


@contextmanager
def _trial(item: pytest.Item, *, is_test_itself: bool = False) -> Generator[Trial]:
    """Notes in the Trial what the checks of a test find in the context."""
    item.stash[TRIAL] = trial = Trial(is_test_itself)
    try:
        yield trial
    finally:
        del item.stash[TRIAL]


@contextmanager
def _faulty_compiler(adapter: Adapter, mutant: Mutant) -> Generator[Callable[[], bool]]:
    """Gives the compiler a fault in the context, and a private store: no other test may load what it compiles."""
    scratch = tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True)
    with scratch as folder, adapter.fresh_store(Path(folder)), mutated(mutant) as was_reached:
        yield was_reached


def _run_under_mutant(item: pytest.Item, adapter: Adapter, mutant: Mutant, *, is_named: bool) -> MutantRun:
    """Runs a test under a mutant. If the test names the mutant, its repeated runs happen under the mutant too."""
    with _faulty_compiler(adapter, mutant) as was_reached:
        with _trial(item) as trial:
            _run_test(item, trial)
        others = (
            [other for _, other in _repeated_runs(item, adapter, mutant.name) if "text" in other] if is_named else []
        )
        if any(other[what] != found for other in others for what, found in trial.fingerprint.items()):
            trial.note_refusal("deterministic")
        return MutantRun(mutant.name, was_reached(), tuple(trial.kinds), (trial.fingerprint, *others))


def _run_test(item: pytest.Item, trial: Trial) -> None:
    # With the parent as the next item, the parent's fixtures stay for the next trial and the item's are torn down.
    parent: Any = item.parent
    for report in runtestprotocol(item, log=False, nextitem=parent):
        if report.failed:
            trial.note_refusal("error")


def run_trials(item: pytest.Item, nextitem: pytest.Item | None, adapter: Adapter) -> None:
    """Runs the trials and then the test itself, and logs the test's reports."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    mutants, problem = _mutants_of(item, adapter)
    wanted = {name for marker in item.iter_markers("must_fail_under") for name in marker.args}
    met: list[MutantRun] = []
    for mutant in mutants:
        try:
            met.append(_run_under_mutant(item, adapter, mutant, is_named=mutant.name in wanted))
        except Stale as stale:
            problem = problem or str(stale)
    repeated = list(_repeated_runs(item, adapter))
    with _trial(item, is_test_itself=True) as own:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    found = [one.result(own.fingerprint) for one in met]
    survivors = [kill for kill in found if kill.mutant in wanted and not kill.is_killed]
    lines = [problem] if problem else []
    lines += [f"must_fail_under  {kill.mutant} is not noticed: {_reason_of_survival(kill)}" for kill in survivors]
    lines += [line for circumstance, trial in repeated for line in _differences(circumstance, trial, own.fingerprint)]
    for report in reports:
        if report.when == "call":
            setattr(report, KILLS_KEY, [kill.plain() for kill in found])
            if summary := getattr(report, REPORT_KEY, None):
                seen = sum(kill.mutant in wanted for kill in found)
                summary |= {"faults": seen, "repeats": len(repeated), "unproved": int(bool(wanted) and not seen)}
            if report.passed and lines:
                report.outcome = "failed"
                report.longrepr = "\n".join([f"trials failed  {item.name}", *(f"  {line}" for line in lines)])
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def collecting_trial(item: pytest.Item) -> Trial | None:
    """Returns the trial that a test runs in, if failing checks are noted and not raised; else None."""
    trial = item.stash.get(TRIAL, None)
    return None if trial is None or trial.is_test_itself else trial


def _reason_of_survival(kill: MutantResult) -> str:
    if not kill.was_reached:
        return "its function does not run"
    return "it changes no text, plan, store hit or result" if not kill.was_applied else "every check passes"


def _mutants_of(item: pytest.Item, adapter: Adapter) -> tuple[list[Mutant], str]:
    """Returns the mutants that the test's markers and the option name, and what is wrong with a name."""
    table = {mutant.name: mutant for mutant in getattr(adapter, "mutants", ())}
    if not table:  # the faults that the test names are those of another compiler
        return [], ""
    names = [name for marker in item.iter_markers("must_fail_under") for name in marker.args]
    option = item.config.getoption("minductor_mutants")
    if option is not None and "compiled" in getattr(item, "fixturenames", ()):
        names += list(table) if option == "all" else option.split(",")
    unknown = [name for name in names if name not in table]
    problem = f"must_fail_under  {adapter.name} has no mutant {unknown[0]}" if unknown else ""
    return [table[name] for name in dict.fromkeys(names) if name in table], problem


# --- circumstances that must not matter


def _repeated_runs(item: pytest.Item, adapter: Adapter, mutant: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields a description and the outcome of each run that the marker `deterministic` asks for.

    Args:
        item: The test.
        adapter: The compiler.
        mutant: The name of the fault that this process has, and that other processes must have too.
    """
    for marker in item.iter_markers("deterministic"):
        for number in range(2, marker.kwargs.get("runs", 2) + 1):
            yield f"run {number}", _run_again(item, nullcontext())
        for count in marker.kwargs.get("threads", ()):
            yield f"on {count} threads", _run_again(item, _thread_count(count))
        if marker.kwargs.get("clock"):
            distorted = getattr(adapter, "distorted_clock", None)
            no_clock = {"kinds": ["the adapter has no clock"]}
            yield "with wrong measurements", _run_again(item, distorted()) if distorted is not None else no_clock
        for seed in range(1, marker.kwargs.get("hash_seeds", 0) + 1):
            yield f"with hash seed {seed}", _run_in_new_process(item, adapter.name, seed, mutant)


def _run_again(item: pytest.Item, circumstance: AbstractContextManager[Any]) -> Mapping[str, Any]:
    with circumstance, _trial(item) as trial:
        _run_test(item, trial)
        return {**trial.fingerprint, "kinds": trial.kinds}


@contextmanager
def _thread_count(count: int) -> Generator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_in_new_process(item: pytest.Item, compiler: str, seed: int, mutant: str) -> Mapping[str, Any]:
    """Runs the test in a new process with another hash seed, and returns its digests and failed checks."""
    device = device_of(item)
    options = ["-q", "-p", "no:cacheprovider", "-m", "", "--golden=off", "--minductor-store=fresh"]
    options.append(f"--compiler={compiler}")
    options += ["-n0"] if item.config.pluginmanager.hasplugin("xdist") else []
    options += [f"--minductor-device={device.id}"] if device is not None else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fingerprint.json"
        environ = {**os.environ, "PYTHONHASHSEED": str(seed), FINGERPRINT_VARIABLE: str(file), MUTANT_VARIABLE: mutant}
        command = [sys.executable, "-m", "pytest", *options, item.nodeid]
        try:
            done = subprocess.run(
                command,
                cwd=item.config.rootpath,
                env=environ,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"kinds": [f"no result in {LIMIT_SECONDS} seconds"]}
        if not file.exists():
            return {"kinds": [f"no result: {done.stdout[-500:]}{done.stderr[-500:]}"]}
        return json.loads(file.read_text(encoding="utf-8"))


def _differences(circumstance: str, other: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    if other.get("kinds"):
        yield f"deterministic  {circumstance} fails: {', '.join(other['kinds'])}"
        return
    if not own["text"]:
        yield "deterministic  nothing was compiled"
    for what in ("text", "bits"):
        if other[what] != own[what]:
            yield f"deterministic  {circumstance} gives other {'generated text' if what == 'text' else 'results'}"


def run_and_write_fingerprint(item: pytest.Item, nextitem: pytest.Item | None, adapter: Adapter) -> None:
    """Runs the test, and writes its digests and failed checks for the process that asked for them."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    mutants = (m for m in getattr(adapter, "mutants", ()) if m.name == os.environ[MUTANT_VARIABLE])
    with ExitStack() as stack:
        for mutant in mutants:
            stack.enter_context(_faulty_compiler(adapter, mutant))
        own = stack.enter_context(_trial(item, is_test_itself=True))
        for report in runtestprotocol(item, nextitem=nextitem):
            if report.failed:
                own.note_refusal(f"its {report.when}")
    Path(os.environ[FINGERPRINT_VARIABLE]).write_text(
        json.dumps({**own.fingerprint, "kinds": own.kinds}), encoding="utf-8"
    )
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
