"""pytest's hooks: options, devices, the checks of declared facts, the header and the summary.

Takes what pytest gives to hooks. Gives nothing until a test uses a fixture or marker of the plugin, or one of its
options is given. Refuses misuse with pytest's usage error; a declared fact that is wrong is a failed test. Modules are
imported inside the hooks, so that a run that uses nothing of the plugin loads neither torch nor a compiler.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_plugin import fixtures, short_names
from pytest_plugin.stash import EVIDENCE, GOLDEN_USE, STATE, TRIAL, WORKER_KEY, golden_dir, is_worker
from pytest_plugin.vocabulary import (
    ADAPTERS,
    FINGERPRINT_VARIABLE,
    KILLS_KEY,
    LEVELS,
    MARKERS,
    MODES,
    REPORT_KEY,
    STORES,
    UNUSED_MODES,
    amount,
)
from pytest_plugin.xfail import devices_and_reason

if TYPE_CHECKING:
    from pytest_plugin.session import State

TRIAL_MARKERS = ("must_fail_under", "deterministic")
LACKS_PREFIX = "Skipped: needs "
TRACE_PREFIX = "DEBUG    torch.__trace:"
VARIABLES = ("RUN_CPU", "RUN_GPU", "PYTORCH_TESTING_DEVICE_ONLY_FOR", "PYTORCH_TESTING_DEVICE_EXCEPT_FOR")
OPTIONS = ("minductor_compiler", "minductor_device", "minductor_golden", "minductor_store")
LONG_OPTIONS = ("device", "store")  # those without a short form
SHORT_FIXTURES = ("device", "golden")


def state_of(config: pytest.Config) -> State:
    """Returns the State of this process. A run that uses nothing of the plugin never loads `session.py`."""
    from pytest_plugin.session import state_of as make_or_find

    return make_or_find(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Registers the options and ini keys. Options have a short form, --x for --minductor-x, but for LONG_OPTIONS."""
    group = parser.getgroup("minductor", "tests of compilers")

    def add(name: str, metavar: str, help: str, **settings: Any) -> None:
        short = [] if name in LONG_OPTIONS else [f"--{name}"]
        dest = f"minductor_{name.replace('-', '_')}"
        settings = {"default": "", **settings}
        group.addoption(f"--minductor-{name}", *short, dest=dest, metavar=metavar, help=help, **settings)

    names = ", ".join(ADAPTERS)
    add("compiler", "NAME", f"the compiler under test: {names}, or one with an installed adapter; default minductor")
    add("device", "IDS", "run on these devices only: cpu, cuda, interpret, compile:<target>, separated by commas")
    golden = f"what to do about golden files: {', '.join(MODES)}; "
    add("golden", "MODE", golden + "default new, which writes missing files, or check if CI is set")
    fuzz = "run random programs through the compiler for so many minutes, and no tests; the next call continues"
    add("fuzz", "MINUTES", fuzz, type=float, default=None)
    mutants = "run each test that compiles under these faults of the compiler, or all; show which tests notice which"
    add("mutants", "NAMES", mutants, nargs="?", const="all", default=None)
    store = (
        f"where `compiled` keeps artefacts: {' or '.join(STORES)}; fresh, the default, is a new folder for each call,"
    )
    add("store", "WHICH", f"{store} shared is a folder in pytest's cache for this run and later ones")
    add("golden-level", "LEVEL", f"compare at this level at least: {', '.join(LEVELS)}")
    unused = f"what golden files that no test uses do to a complete run: {', '.join(UNUSED_MODES)}; "
    add("golden-unused", "HOW", unused + "auto is fail if CI is set, and warn otherwise", default=UNUSED_MODES[0])
    report = "the folder for golden.patch and report.html if goldens differ; default is a folder in pytest's cache"
    add("golden-report", "DIR", report)
    add("golden-base", "REV", "compare with what this git revision generates, and with no stored file")
    parser.addini("expected_failures", "the path of a TOML file with known failures, below the root", default="")
    parser.addini("numeric_policy", "the numeric tolerances; default k=2 ulps=4 layout=true", type="args", default=[])
    devices = "the devices to run on unless --minductor-device is given"
    parser.addini("minductor_devices", devices, type="args", default=[])
    parser.addini("golden_dir", "the folder of the golden files, below the root", default="golden")
    parser.addini("golden_level", "compare golden files at this level at least", default="")
    parser.addini("golden_max_diff", "how many lines of a golden's difference a failure shows", default="40")


@pytest.hookimpl(trylast=True)  # so that all other plugins are registered
def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers, the fixtures, and the objects that watch the run."""
    for text in MARKERS.values():
        config.addinivalue_line("markers", text)
    manager = config.pluginmanager
    taken = {name for plugin in manager.get_plugins() for name in _fixture_names(plugin)}
    manager.register(fixtures, "pytest_plugin.fixtures")
    for name in SHORT_FIXTURES:
        if name not in taken:
            holder = ModuleType(f"pytest_plugin.{name}")
            setattr(holder, name, getattr(short_names, name))
            manager.register(holder, holder.__name__)
    if not is_worker(config):
        manager.register(ReportCollector(config), "pytest_plugin.collector")
    _watch_goldens(config)
    if any(config.getoption(option) for option in OPTIONS):
        state_of(config)  # raises a usage error if an option cannot be followed


def _watch_goldens(config: pytest.Config) -> None:
    """Registers the object that records which golden files are used, if there are any."""
    folder = golden_dir(config) / str(config.getoption("minductor_compiler") or next(iter(ADAPTERS)))
    if folder.is_dir():
        from pytest_plugin.goldens.unused_goldens import GoldenUse, goldens_below

        if goldens := goldens_below(folder):
            config.stash[GOLDEN_USE] = GoldenUse(config, goldens)
            config.pluginmanager.register(config.stash[GOLDEN_USE], "pytest_plugin.goldens.unused_goldens")


def _fixture_names(plugin: object) -> list[str]:
    """Returns the fixtures of another plugin that have the short names of this plugin's fixtures."""
    kind = type(short_names.device)
    return [name for name in SHORT_FIXTURES if isinstance(getattr(plugin, name, None), kind)]


@pytest.hookimpl(tryfirst=True)  # before xdist starts its workers, which are sent the folder of the goldens
def pytest_sessionstart(session: pytest.Session) -> None:
    """Generates the goldens of another revision, for --golden-base."""
    config = session.config
    revision = str(config.getoption("minductor_golden_base"))
    if not revision or is_worker(config):
        return
    from pytest_plugin.goldens.base_revision import CannotBuild, build_goldens

    folder = tempfile.TemporaryDirectory(prefix="golden-base-")
    config.add_cleanup(folder.cleanup)
    tests = [os.path.relpath(a, config.rootpath) if os.path.isabs(a.partition("::")[0]) else a for a in config.args]
    # The same tests, compiler and devices as in this run.
    options = ["-k", config.option.keyword, "-m", config.option.markexpr]
    options += [f"--compiler={state_of(config).adapter.name}"]
    options += [f"--minductor-device={config.getoption('minductor_device')}", "--minductor-store=fresh"]
    options += ["-n0"] if config.pluginmanager.hasplugin("xdist") else []
    try:
        state_of(config).golden_dir = build_goldens(config.rootpath, revision, tests, options, Path(folder.name))
    except CannotBuild as problem:
        raise pytest.UsageError(f"--golden-base={revision}: {problem}") from None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Returns a line about the compiler, the devices and the goldens, if the user set any of them."""
    options = (config.getoption(option) for option in OPTIONS[1:])
    if not (any(name in os.environ for name in VARIABLES) or any(options) or config.getini("minductor_devices")):
        return None
    state = state_of(config)
    ids = state.devices.ids()
    choice = state.devices.choice
    if choice is None:
        return None
    missing = "".join(f"; no {id}: {why}" for id, why in choice.missing)
    policy = "".join(f", {word}" for word in config.getini("numeric_policy"))
    store = ", shared store" * (state.shared_store is not None)
    settings = f"devices {', '.join(ids)}{missing}, goldens: {state.rules.mode}{policy}{store}"
    return f"minductor: compiler {state.adapter.name}, {settings}"


# --- collection


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Keeps pytest from collecting golden files, whose names look like those of tests."""
    if collection_path.suffix not in (".py", ".txt") or not collection_path.is_relative_to(golden_dir(config)):
        return None
    with collection_path.open("rb") as file:
        # The second text is git's mark of a conflict: a damaged golden file is not a test either.
        return True if file.readline().startswith((b"# golden  ", b"<<<<<<<")) else None


@pytest.hookimpl(tryfirst=True)  # so that the device is the first parameter in ids
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrises a test that asks for a device with each device."""
    if "minductor_device" in metafunc.fixturenames:
        from pytest_plugin.devices.tests_per_device import device_parameters

        marker = metafunc.definition.get_closest_marker("devices")
        metafunc.parametrize(
            "minductor_device", list(device_parameters(marker, state_of(metafunc.config).devices)), indirect=True
        )


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> Generator[None, Any, Any]:
    """Makes a unittest class that asks for devices one class for each; PyTorch's classes stay on the chosen devices."""
    made = yield
    if not (isinstance(made, pytest.Class) and isinstance(obj, type)) or "unittest" not in sys.modules:
        return made
    if not issubclass(obj, sys.modules["unittest"].TestCase):
        return made
    from pytest_plugin.devices.tests_per_device import (
        asks_for_devices,
        device_classes,
        is_memory_chosen,
        torch_device_of,
    )

    state = state_of(collector.config)
    if memory := torch_device_of(obj):
        state.has_torch_classes = True
        return made if memory not in ("cpu", "cuda") or is_memory_chosen(memory, state.devices) else []
    return device_classes(made, obj, state.devices) if asks_for_devices(obj) else made


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks tests for other compilers and known failures, before anything is deselected."""
    if item.get_closest_marker("compilers") is not None or item.config.getini("expected_failures"):
        from pytest_plugin.devices.tests_per_device import mark_item

        state = state_of(item.config)
        mark_item(item, state.adapter.name, state.expected)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Ends the run with a usage error for a wrong marker or setting; deselects tests whose devices are left out."""
    if not any(map(_uses_plugin, items)) and STATE not in config.stash:
        return
    from pytest_plugin import markers
    from pytest_plugin.devices.tests_per_device import has_no_device

    state = state_of(config)
    asks = any(map(_asks_for_device, items)) or state.has_torch_classes
    wrong = (state.devices.misuse if asks else "") or markers.misuse_of_items(items, state.devices)
    wrong = wrong or (state.expected.unknown() if state.expected is not None else "")
    left_out = [item for item in items if has_no_device(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        if not items:
            missed = amount(len(left_out), "test")
            wrong = wrong or f"no test is left to run: {missed} for devices that the settings leave out"
    if wrong and not is_worker(config):
        raise pytest.UsageError(wrong)
    if wrong:
        items.clear()
        output: dict[str, Any] = getattr(config, "workeroutput", {})
        output[WORKER_KEY] = {"misuse": wrong}


def _asks_for_device(item: pytest.Item) -> bool:
    return "minductor_device" in getattr(item, "fixturenames", ()) or "[none]::" in item.nodeid


def _uses_plugin(item: pytest.Item) -> bool:
    return _asks_for_device(item) or any(marker.name in MARKERS for marker in item.iter_markers())


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    """Collects no tests if a campaign of random programs was asked for."""
    return True if session.config.getoption("minductor_fuzz") is not None else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs a campaign of random programs in place of tests, for --fuzz."""
    config = session.config
    minutes = config.getoption("minductor_fuzz")
    if minutes is None or is_worker(config):
        return None
    from pytest_plugin.random_programs.campaign import BAD, Campaign, verdict_lines
    from pytest_plugin.strategies import campaign_program

    cache: Any = getattr(config, "cache", None)
    if cache is None:
        raise pytest.UsageError("--fuzz needs pytest's cache, which is switched off")
    state = state_of(config)
    campaign = Campaign(state.adapter, Path(cache.mkdir("minductor")) / "fuzz", campaign_program)
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    campaign.run(float(minutes), reporter.write_line)
    records = campaign.records()
    state.endings += verdict_lines(records)
    session.testsfailed += sum(record["word"] in BAD for record in records)
    session.testscollected += sum(record["word"] != "begun" for record in records)
    return True


# --- one test


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test on the devices of its marker `skip_on`, and where a capability of its marker `needs` is absent."""
    for marker in item.iter_markers("skip_on"):
        from pytest_plugin.devices.item_device import device_of

        device = device_of(item)
        ids, reason = devices_and_reason(marker.args, marker.kwargs)
        if device is not None and device.id in ids:
            pytest.skip(f"not on {device.id}: {reason}")
    for marker in item.iter_markers("needs"):
        from pytest_plugin.devices.item_device import device_of

        for name in marker.args:
            if why := state_of(item.config).devices.lack_reason(name, device_of(item)):
                pytest.skip(f"needs {name}: {why}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Checks, after the body has passed, what the test's markers declare, and that something ran at all."""
    trial = None
    if TRIAL in item.stash:
        from pytest_plugin.faults.trials import collecting_trial, kind_of_check

        trial = collecting_trial(item)
        try:
            result = yield
        except (Exception, pytest.fail.Exception) as error:
            if trial is None:
                raise
            trial.note_refusal(kind_of_check(error))
            result = None
    else:
        result = yield
    refusals = list(_refusals(item))  # all of them: one change often makes both counts and goldens wrong
    if trial is not None:
        for kind, _ in refusals:
            trial.note_refusal(kind)
    elif refusals:
        pytest.fail("\n".join(wrong for _, wrong in refusals), pytrace=False)
    if TRIAL in item.stash:
        item.stash[TRIAL].note_runs(item.stash[EVIDENCE].runs if EVIDENCE in item.stash else ())
    return result


def _refusals(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """Yields (kind of check, text) for each declared fact that is wrong."""
    markers = {kind: [marker.kwargs for marker in item.iter_markers(kind)] for kind in ("counts", "memory")}
    declared, held = (
        {name: value for marker in reversed(found) for name, value in marker.items()} for found in markers.values()
    )
    if not any(markers.values()) and EVIDENCE not in item.stash and item.get_closest_marker("golden") is None:
        return
    from pytest_plugin.devices.item_device import device_of
    from pytest_plugin.session import evidence_of, goldens_of

    evidence = evidence_of(item)
    if wrong := evidence.count_errors(item.name, device_of(item), declared, is_counted=bool(markers["counts"])):
        yield "counts", wrong
    if markers["memory"] and (wrong := evidence.memory_errors(item.name, held)):
        yield "memory", wrong
    if marker := item.get_closest_marker("golden"):
        if len(evidence.runs) != 1:
            yield "golden", f"golden needs one run of `compiled`, {item.name} has {len(evidence.runs)}"
        elif mismatch := goldens_of(item).mismatch(evidence.runs[0], **marker.kwargs):
            yield "golden", mismatch
    if evidence.goldens is not None and evidence.goldens.written:
        yield "golden", "\n\n".join(evidence.goldens.written)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test that has to run more than once."""
    is_asked = item.config.getoption("minductor_mutants") is not None and "compiled" in getattr(
        item, "fixturenames", ()
    )
    if FINGERPRINT_VARIABLE in os.environ:
        from pytest_plugin.faults.trials import run_and_write_fingerprint

        run_and_write_fingerprint(item, nextitem, state_of(item.config).adapter)
        return True
    if is_asked or any(item.get_closest_marker(name) for name in TRIAL_MARKERS):
        from pytest_plugin.faults.trials import run_trials

        run_trials(item, nextitem, state_of(item.config).adapter)
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Adds to the report what the test proved, and to a failure the script that compiles its last program again."""
    report = yield
    report.sections = [kept for name, text in report.sections if (kept := (name, without_trace(text)))[1]]
    if call.when == "call" and call.excinfo is not None and hasattr(report, "wasxfail"):
        from pytest_plugin.devices.known_failures import contradiction

        if wrong := contradiction(item, str(call.excinfo.value)):
            del report.wasxfail
            report.outcome, report.longrepr = "failed", wrong
    if call.when == "call" and EVIDENCE in item.stash:
        from pytest_plugin.devices.item_device import device_of
        from pytest_plugin.oracle.accuracy import WrongResult
        from pytest_plugin.session import moved_line, repro_line

        if report.failed and (line := repro_line(item, report.longreprtext)):
            report.sections.append(("minductor", line))
        is_wrong = call.excinfo is not None and isinstance(call.excinfo.value, WrongResult)
        if report.failed and is_wrong and (line := moved_line(item)):
            report.sections.append(("minductor", line))
        setattr(report, REPORT_KEY, item.stash[EVIDENCE].summary(device_of(item)))
    return report


def without_trace(captured: str) -> str:
    """Removes the empty lines that torch.compile logs at DEBUG for a viewer of its own.

    >>> without_trace("DEBUG    torch.__trace:utils.py:2350 \\nWARNING  mine:a.py:1 what is said\\n")
    'WARNING  mine:a.py:1 what is said\\n'
    """
    return "".join(line for line in captured.splitlines(keepends=True) if not line.startswith(TRACE_PREFIX))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Drops the compiled graphs, so that they live no longer than the test and a repeated test starts without any."""
    if EVIDENCE in item.stash:
        del item.stash[EVIDENCE]


# --- in the process with the terminal


class ReportCollector:
    """Adds up what the reports of tests carry, also those of xdist's workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.ran = False  # whether a test ran that was not skipped for something that it lacks

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds one report."""
        if summary := getattr(report, REPORT_KEY, None):
            state_of(self.config).totals.add(summary)
        if kills := getattr(report, KILLS_KEY, None):
            state_of(self.config).kills[report.nodeid] = kills
        if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2].startswith(LACKS_PREFIX):
            state_of(self.config).totals.lacks[report.longrepr[2].removeprefix(LACKS_PREFIX)] += 1
        elif report.when == "call":
            self.ran = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Makes it a usage error if every test was skipped for something that it lacks: nothing was tested."""
        if STATE in self.config.stash and session.exitstatus == pytest.ExitCode.OK and not self.ran:
            state = state_of(self.config)
            if state.totals.lacks:
                state.endings.append("nothing ran: every test was skipped for something that it lacks")
                session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Writes the section "minductor" of the summary."""
    if STATE not in config.stash:
        return
    state = state_of(config)
    if state.worker_misuse:
        terminalreporter.write_line(f"ERROR: {state.worker_misuse}", red=True)
    if lines := [*state.devices.required(), *state.totals.lines(), *_kill_lines(state), *state.endings]:
        terminalreporter.section("minductor")
        for line in lines:
            terminalreporter.write_line(line)


def _kill_lines(state: State) -> Iterator[str]:
    if state.kills:
        from pytest_plugin.faults.kill_matrix import MutantResult, kill_matrix

        rows = {test: [MutantResult.of(plain) for plain in kills] for test, kills in sorted(state.kills.items())}
        yield from kill_matrix(rows, verbose=state.rules.limit is None)


# --- xdist


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Gives each worker one GPU of several, from its start, since what it imports could use all of them."""
    for spec, gpu in zip(specs, state_of(config).devices.gpus_of_workers(len(specs)), strict=False):
        spec.env.setdefault("CUDA_VISIBLE_DEVICES", gpu)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Sends the controller's choice of devices to a worker."""
    node.workerinput[WORKER_KEY] = state_of(node.config).to_worker()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Takes what a worker found out."""
    del error
    output = getattr(node, "workeroutput", {}).get(WORKER_KEY, {})
    if misuse := output.get("misuse"):
        state_of(node.config).worker_misuse = misuse
    if rows := output.get("unused_rows"):
        state_of(node.config).worker_rows = rows
    if "collected" in output and GOLDEN_USE in node.config.stash:
        node.config.stash[GOLDEN_USE].take(output["collected"])  # all workers collect the same tests


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Sends what a worker found out, or finishes the goldens in the process with the terminal."""
    config = session.config
    watch = config.stash.get(GOLDEN_USE, None)
    if is_worker(config):
        output: dict[str, Any] = getattr(config, "workeroutput", {}).setdefault(WORKER_KEY, {})
        if watch is not None:
            output["collected"] = watch.collected.plain()
        if STATE in config.stash:
            output["unused_rows"] = state_of(config).unused_rows()
        return
    if STATE not in config.stash and watch is None:
        return
    state = state_of(config)
    state.endings += [
        f"unused   {row}: a failure is expected, but the test does not run there" for row in state.unused_rows()
    ]
    if watch is not None or state.totals.disagreements:
        from pytest_plugin.goldens.end_of_run import EndOfRun

        totals, folder = state.totals, state.golden_dir
        end = EndOfRun(session, state.rules, folder, state.adapter.name, totals.disagreements, totals.checked_files)
        state.endings += end.lines(watch)
    # An xdist controller collects nothing itself: its workers report usage errors.
    if state.worker_misuse:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
