"""A test run more often than once: under faults that it must see, and under circumstances that must not matter.

Takes a test item. Gives its reports, of which that of the call says what the trials found. Refuses nothing: what a
trial cannot do is a failure of the test.

A trial writes no golden and logs no report. Each check that refuses is noted by kind and the others go on, so that a
trial knows all kinds of checks that see a fault.
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
from pytest_plugin.faults.mutants import Stale, mutated
from pytest_plugin.oracle.closer import Difference
from pytest_plugin.oracle.run import Run
from pytest_plugin.stash import TRIAL
from pytest_plugin.vocabulary import FINGERPRINT, KILLS_KEY, REPORT_KEY, amount

LIMIT_SECONDS = 600
MUTANT = "MINDUCTOR_TEST_MUTANT"  # the fault that a run in a process of its own has


@dataclass(slots=True)
class Trial:
    """What is noted while a test runs as a trial."""

    is_own: bool = False  # the test itself: it is seen as trials are, but its checks are its own
    kinds: list[str] = field(default_factory=list[str])  # of the checks that refused
    texts: list[str] = field(default_factory=list[str])  # what each `compiled` run generated, as a digest
    bits: list[str] = field(default_factory=list[str])  # what it gave, as a digest

    def refused(self, kind: str) -> None:
        if kind not in self.kinds:
            self.kinds.append(kind)

    def forgives(self, difference: Difference) -> None:
        self.refused(kind_of(difference))

    def saw(self, runs: Sequence[Run]) -> None:
        self.texts = [texts_of(run) for run in runs]
        self.bits = [bits_of(run) for run in runs]

    @property
    def fingerprint(self) -> dict[str, list[str]]:
        return {"text": self.texts, "bits": self.bits}


@dataclass(frozen=True, slots=True)
class Kill:
    """What became of a mutant under one test."""

    mutant: str
    was_reached: bool
    was_applied: bool  # the plan, a text, a result or what the store did is another than without it
    kinds: tuple[str, ...]

    @property
    def is_killed(self) -> bool:
        return self.was_reached and self.was_applied and bool(self.kinds)

    def plain(self) -> list[Any]:
        return [self.mutant, self.was_reached, self.was_applied, list(self.kinds)]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Kill:
        return cls(plain[0], plain[1], plain[2], tuple(plain[3]))


@dataclass(frozen=True, slots=True)
class Met:
    """A test under a mutant: the kinds of checks that refused, and the texts and bits of each run."""

    mutant: str
    was_reached: bool
    kinds: tuple[str, ...]
    fingerprints: tuple[Mapping[str, list[str]], ...]

    def kill(self, right: Mapping[str, list[str]]) -> Kill:
        """Beside the fingerprint of the test itself."""
        was_applied = any(found[what] != right[what] for found in self.fingerprints for what in right)
        return Kill(self.mutant, self.was_reached, was_applied, self.kinds)


def kind_of(error: BaseException) -> str:
    """Which kind of check an exception comes from."""
    names = {"Difference": "numeric", "Mismatch": "golden", "NoNumbers": "numeric"}
    return next((names[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in names), "error")


def texts_of(run: Run) -> str:
    """All that the compiler generated, and whether it had to."""
    graphs = run.graphs
    parts: list[object] = [run.plan, *run.kernels, *run.wrappers, sorted(run.report.known().items())]
    parts += [(graph.role, graph.was_hit) for graph in graphs]
    return _digest(parts)


def bits_of(run: Run) -> str:
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
def _trial(item: pytest.Item) -> Generator[Trial]:
    trial = Trial()
    item.stash[TRIAL] = trial
    try:
        yield trial
    finally:
        del item.stash[TRIAL]


@contextmanager
def _faulty(adapter: Adapter, mutant: Mutant) -> Generator[Callable[[], bool]]:
    """The compiler under a fault. What it compiles goes to a store of its own: nobody else may ever load it."""
    scratch = tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True)
    with scratch as folder, adapter.fresh_store(Path(folder)), mutated(mutant) as was_reached:
        yield was_reached


def _met(item: pytest.Item, adapter: Adapter, mutant: Mutant, *, is_named: bool) -> Met:
    """What a mutant met. Of one that the test names, the runs that must not differ do not differ under it either."""
    with _faulty(adapter, mutant) as was_reached:
        with _trial(item) as trial:
            _run(item, trial)
        others = [other for _, other in _repeated(item, adapter, mutant.name) if "text" in other] if is_named else []
        if any(other[what] != found for other in others for what, found in trial.fingerprint.items()):
            trial.refused("deterministic")
        return Met(mutant.name, was_reached(), tuple(trial.kinds), (trial.fingerprint, *others))


def _run(item: pytest.Item, trial: Trial) -> None:
    # what the parent has set up stays for the next trial; were the item itself the next, its fixtures would stay too
    parent: Any = item.parent
    for report in runtestprotocol(item, log=False, nextitem=parent):
        if report.failed:
            trial.refused("error")


def protocol(item: pytest.Item, nextitem: pytest.Item | None, adapter: Adapter) -> None:
    """Runs the trials, then the test itself, and logs the test's reports."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    mutants, problem = _mutants_of(item, adapter)
    wanted = {name for marker in item.iter_markers("must_fail_under") for name in marker.args}
    met: list[Met] = []
    for mutant in mutants:
        try:
            met.append(_met(item, adapter, mutant, is_named=mutant.name in wanted))
        except Stale as stale:
            problem = problem or str(stale)
    repeated = list(_repeated(item, adapter))
    with _observed(item) as own:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    found = [one.kill(own.fingerprint) for one in met]
    survivors = [kill for kill in found if kill.mutant in wanted and not kill.is_killed]
    lines = [problem] if problem else []
    lines += [f"must_fail_under  {kill.mutant} is not seen: {_why(kill)}" for kill in survivors]
    lines += [line for told, trial in repeated for line in _differs(told, trial, own.fingerprint)]
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


@contextmanager
def _observed(item: pytest.Item) -> Generator[Trial]:
    item.stash[TRIAL] = own = Trial(is_own=True)
    try:
        yield own
    finally:
        del item.stash[TRIAL]


def forgiving(item: pytest.Item) -> Trial | None:
    """The trial that the test runs in, if refusals are to be noted and not raised."""
    trial = item.stash.get(TRIAL, None)
    return None if trial is None or trial.is_own else trial


def _why(kill: Kill) -> str:
    if not kill.was_reached:
        return "its function does not run"
    return "it changes no text, plan, hit or result" if not kill.was_applied else "every check passes"


def _mutants_of(item: pytest.Item, adapter: Adapter) -> tuple[list[Mutant], str]:
    """Those that its markers name, and those that the option asks for."""
    table = {mutant.name: mutant for mutant in getattr(adapter, "mutants", ())}
    if not table:  # the test is one of another compiler's
        return [], ""
    names = [name for marker in item.iter_markers("must_fail_under") for name in marker.args]
    option = item.config.getoption("minductor_mutants")
    if option is not None and "compiled" in getattr(item, "fixturenames", ()):
        names += list(table) if option == "all" else option.split(",")
    unknown = [name for name in names if name not in table]
    problem = f"must_fail_under  {adapter.name} has no mutant {unknown[0]}" if unknown else ""
    return [table[name] for name in dict.fromkeys(names) if name in table], problem


# --- circumstances that must not matter


def _repeated(item: pytest.Item, adapter: Adapter, mutant: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What each run that the marker asks for gave; `mutant`: the fault that this process has, and others must have."""
    for marker in item.iter_markers("deterministic"):
        for number in range(2, marker.kwargs.get("runs", 2) + 1):
            yield f"run {number}", _again(item, nullcontext())
        for count in marker.kwargs.get("threads", ()):
            yield f"on {count} threads", _again(item, _threads(count))
        if marker.kwargs.get("clock"):
            distorted = getattr(adapter, "distorted_clock", None)
            told = "with wrong measurements"
            yield told, _again(item, distorted()) if distorted is not None else {"kinds": ["the adapter has no clock"]}
        for seed in range(1, marker.kwargs.get("hash_seeds", 0) + 1):
            yield f"with hash seed {seed}", _elsewhere(item, adapter.name, seed, mutant)


def _again(item: pytest.Item, circumstance: AbstractContextManager[Any]) -> Mapping[str, Any]:
    with circumstance, _trial(item) as trial:
        _run(item, trial)
        return {**trial.fingerprint, "kinds": trial.kinds}


@contextmanager
def _threads(count: int) -> Generator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _elsewhere(item: pytest.Item, compiler: str, seed: int, mutant: str) -> Mapping[str, Any]:
    """The fingerprint of the test in a process of its own, with another order of sets."""
    device = device_of(item)
    options = ["-q", "-p", "no:cacheprovider", "-m", "", "--golden=off", "--minductor-store=fresh"]
    options.append(f"--compiler={compiler}")
    options += ["-n0"] if item.config.pluginmanager.hasplugin("xdist") else []
    options += [f"--minductor-device={device.id}"] if device is not None else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fingerprint.json"
        environ = {**os.environ, "PYTHONHASHSEED": str(seed), FINGERPRINT: str(file), MUTANT: mutant}
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


def _differs(told: str, other: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    if other.get("kinds"):
        yield f"deterministic  {told} fails: {', '.join(other['kinds'])}"
        return
    if not own["text"]:
        yield "deterministic  nothing was compiled"
    for what in ("text", "bits"):
        if other[what] != own[what]:
            yield f"deterministic  {told} gives other {'generated text' if what == 'text' else 'results'}"


def observed(item: pytest.Item, nextitem: pytest.Item | None, adapter: Adapter) -> None:
    """Runs the test as ever, and leaves its fingerprint for the process that asked for it."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    mutants = (m for m in getattr(adapter, "mutants", ()) if m.name == os.environ[MUTANT])
    with ExitStack() as stack:
        for mutant in mutants:
            stack.enter_context(_faulty(adapter, mutant))
        own = stack.enter_context(_observed(item))
        for report in runtestprotocol(item, nextitem=nextitem):
            if report.failed:
                own.refused(f"its {report.when}")
    Path(os.environ[FINGERPRINT]).write_text(json.dumps({**own.fingerprint, "kinds": own.kinds}), encoding="utf-8")
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


# --- the matrix


def matrix(rows: Mapping[str, Sequence[Kill]], *, verbose: bool) -> Iterator[str]:
    """What each mutant met, over all tests; with `verbose` test by test."""
    mutants = list(dict.fromkeys(kill.mutant for kills in rows.values() for kill in kills))
    by_mutant = {name: [k for kills in rows.values() for k in kills if k.mutant == name] for name in mutants}
    killed = [name for name in mutants if any(kill.is_killed for kill in by_mutant[name])]
    kinds = {name: {kind for kill in by_mutant[name] if kill.is_killed for kind in kill.kinds} for name in mutants}
    double = sum(len(kinds[name]) > 1 for name in mutants)
    yield f"mutants  {len(killed)} of {len(mutants)} killed, {double} by two kinds of checks or more"
    width = max(map(len, mutants), default=0)
    for name in mutants:
        kills = by_mutant[name]
        counts = [(kind, sum(k.is_killed and kind in k.kinds for k in kills)) for kind in sorted(kinds[name])]
        told = ", ".join(f"{kind} {count}" for kind, count in counts)
        if not told:
            reached, applied = sum(k.was_reached for k in kills), sum(k.was_applied and k.was_reached for k in kills)
            told = f"SURVIVED: reached by {amount(reached, 'test')}, applied in {applied}"
        yield f"  {name:<{width}}  {told}"
    if verbose:
        for test, kills in rows.items():
            letters = {kill.mutant: _letters(kill) for kill in kills}
            yield f"  {test}: " + " ".join(
                f"{name}={letters[name]}" for name in mutants if letters.get(name, "-") != "-"
            )


def _letters(kill: Kill) -> str:
    """N numeric, G golden, C counts, M memory, E an error; . for a survivor, - for one that was not reached."""
    if not (kill.was_reached and kill.was_applied):
        return "-"
    return "".join(kind[0].upper() for kind in kill.kinds) or "."
