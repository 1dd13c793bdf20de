"""The settings of one pytest process: the compiler, the devices, the golden mode. They are kept in `config.stash`.

Takes pytest's config. Gives a State, and for a test its evidence, its goldens and its script. Refuses options that
cannot be followed (pytest.UsageError).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_plugin.adapters import Adapter, compilers, find_adapter
from pytest_plugin.devices.device_choice import DeviceSettings
from pytest_plugin.devices.item_device import device_of, name_without_device, title_and_target
from pytest_plugin.devices.known_failures import KnownFailures, read_failures
from pytest_plugin.devices.run_devices import RunDevices
from pytest_plugin.goldens.base_revision import STAGES_VARIABLE
from pytest_plugin.goldens.golden import Goldens, Rules
from pytest_plugin.oracle.accuracy import DEFAULT_POLICY, Policy, read_policy
from pytest_plugin.oracle.repro_script import write_script
from pytest_plugin.stash import EVIDENCE, STATE, TRIAL, WORKER_KEY, golden_dir
from pytest_plugin.summary.evidence import Evidence
from pytest_plugin.summary.totals import Totals
from pytest_plugin.vocabulary import ADAPTERS, LEVELS, MODES, STORES, UNUSED_MODES


@dataclass(slots=True)
class State:
    """The settings of a run, and what is found out on the way.

    Attributes:
        adapter: The compiler under test.
        devices: The devices of the run.
        golden_dir: The folder of the golden files of all compilers.
        rules: How goldens are treated.
        policy: The numeric tolerances.
        shared_store: The folder in which all tests keep artefacts, if they share one.
        worker_misuse: Why the run ends with a usage error, as an xdist worker reported it.
        worker_rows: The rows of known failures that no worker has used.
        expected: The known failures.
        has_torch_classes: Whether some tests are of classes that PyTorch's `instantiate_device_type_tests` made.
        totals: The sums of what tests proved.
        kills: By test, what became of mutants, as plain values.
        explained: How many failures the compiler was asked about.
        endings: The lines at the end of the summary.
    """

    adapter: Adapter
    devices: RunDevices
    golden_dir: Path
    rules: Rules
    policy: Policy = DEFAULT_POLICY
    shared_store: Path | None = None
    worker_misuse: str = ""
    explained: int = 0
    worker_rows: list[str] = field(default_factory=list[str])
    expected: KnownFailures | None = None
    has_torch_classes: bool = False
    totals: Totals = field(default_factory=Totals)
    kills: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    endings: list[str] = field(default_factory=list[str])

    def unused_rows(self) -> list[str]:
        """Returns the known failures whose test exists and does not run on the row's device."""
        if self.expected is not None and self.expected.modules:
            return self.expected.unused(self.devices.ids())
        return self.worker_rows

    def to_worker(self) -> dict[str, Any]:
        """Returns what a worker must know, as plain values that xdist carries."""
        return {**self.devices.to_worker(), "golden_dir": str(self.golden_dir)}


def state_of(config: pytest.Config) -> State:
    """Returns the State of this process, which is made on the first call and kept in `config.stash`."""
    if STATE not in config.stash:
        config.stash[STATE] = make_state(config)
    return config.stash[STATE]


def make_state(config: pytest.Config) -> State:
    """Makes the State of this process; an xdist worker follows the controller's choice of devices."""
    try:
        adapter = find_adapter(str(config.getoption("minductor_compiler") or next(iter(ADAPTERS))))
    except ValueError as error:
        raise pytest.UsageError(f"--compiler: {error}") from None
    table = {mutant.name for mutant in getattr(adapter, "mutants", ())}
    for name in str(config.getoption("minductor_mutants") or "all").split(","):
        if name != "all" and name not in table:
            known = ", ".join(sorted(table)) or "none"
            raise pytest.UsageError(f"--mutants={name}: the mutants of {adapter.name} are {known}; all runs them all")
    option = str(config.getoption("minductor_device"))
    devices = RunDevices(adapter, DeviceSettings.of(os.environ, option, config.getini("minductor_devices")))
    rules, policy = _golden_rules(config, os.environ), _numeric_policy(config)
    state = State(adapter, devices, golden_dir(config), rules, policy, _shared_store(config, adapter.name))
    given = getattr(config, "workerinput", {}).get(WORKER_KEY)
    if given is not None:
        state.golden_dir = Path(given["golden_dir"])
        devices.take(given)
    elif option:
        # A wrong option is refused at once. Variables may be meant for others, so a wrong one is refused only if a test
        # asks for a device.
        devices.ids()
        if devices.misuse:
            raise pytest.UsageError(devices.misuse)
    if file := str(config.getini("expected_failures")):
        state.expected = _known_failures(config, file, state)
    return state


def _known_failures(config: pytest.Config, file: str, state: State) -> KnownFailures:
    try:
        text = (config.rootpath / file).read_text(encoding="utf-8")
        found = read_failures(text, state.adapter.name, state.devices.known, compilers())
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"expected_failures = {file}: {error}") from None
    is_partial = any("::" in argument for argument in config.args) or bool(getattr(config.option, "lf", False))
    return KnownFailures(found, config.rootpath, is_partial)


def _numeric_policy(config: pytest.Config) -> Policy:
    """Reads the ini key `numeric_policy`."""
    try:
        return read_policy(config.getini("numeric_policy"))
    except ValueError as error:
        raise pytest.UsageError(f"numeric_policy: {error}") from None


def _shared_store(config: pytest.Config, compiler: str) -> Path | None:
    """Returns the folder that tests share, or None if each has its own."""
    chosen = str(config.getoption("minductor_store") or STORES[0])
    if chosen not in STORES:
        raise pytest.UsageError(f"--minductor-store={chosen}: it must be {' or '.join(STORES)}")
    cache: Any = getattr(config, "cache", None)
    if chosen == "shared" and cache is None:
        raise pytest.UsageError("--minductor-store=shared needs pytest's cache, which is switched off")
    return Path(cache.mkdir("minductor")) / "store" / compiler if chosen == "shared" else None


def _golden_mode(config: pytest.Config, environ: Mapping[str, str]) -> str:
    is_ci = _is_ci(environ)
    mode = str(config.getoption("minductor_golden") or ("check" if is_ci else "new"))
    if mode not in MODES:
        raise pytest.UsageError(f"--golden={mode}: the modes are {', '.join(MODES)}")
    if is_ci and mode not in ("check", "off"):
        raise pytest.UsageError(f"--golden={mode}: under CI nothing is written")
    return mode


def _golden_rules(config: pytest.Config, environ: Mapping[str, str]) -> Rules:
    raised = str(config.getoption("minductor_golden_level") or config.getini("golden_level"))
    if raised and raised not in LEVELS:
        raise pytest.UsageError(f"--golden-level={raised}: the levels are {', '.join(LEVELS)}")
    lines = str(config.getini("golden_max_diff"))
    if not lines.isdigit():
        raise pytest.UsageError(f"golden_max_diff = {lines}: it must be a number of lines")
    limit = None if config.get_verbosity() > 0 else int(lines)
    unused = str(config.getoption("minductor_golden_unused"))
    if unused not in UNUSED_MODES:
        raise pytest.UsageError(f"--golden-unused={unused}: it must be one of {', '.join(UNUSED_MODES)}")
    fails = unused == "fail" or (unused == "auto" and _is_ci(environ))
    base = str(config.getoption("minductor_golden_base"))
    # Files that another revision generated are only compared.
    mode = "check" if base else _golden_mode(config, environ)
    stages = STAGES_VARIABLE in environ
    return Rules(mode, raised, limit, fails_unused=fails, may_lack=bool(base), keeps_stages=stages, base=base)


def _is_ci(environ: Mapping[str, str]) -> bool:
    return environ.get("CI", "").lower() not in ("", "0", "false")


def evidence_of(item: pytest.Item) -> Evidence:
    """Returns the evidence of a test, which is made on the first call."""
    return item.stash.setdefault(EVIDENCE, Evidence())


def repro_line(item: pytest.Item, why: str) -> str:
    """Writes a script that compiles the test's last program again, and returns a line about it."""
    cache: Any = getattr(item.config, "cache", None)
    calls = evidence_of(item).calls
    if cache is None or not calls or TRIAL in item.stash:
        return ""
    adapter, path = state_of(item.config).adapter, _script_path(item, cache)
    call = replace(calls[-1], options=_options(item))
    try:
        write_script(call, path, adapter.name, item.nodeid, why)
    except Exception as error:  # an error of the script must not hide the test's failure
        return f"repro   none: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return f"repro   python {_shown(item, path)}"


def moved_line(item: pytest.Item) -> str:
    """Returns a line about the stage at which the numbers of the test's last program moved, or an empty text.

    The compiler writes beside the test's script how it compiled the program. It is asked a few times in a process.
    """
    cache: Any = getattr(item.config, "cache", None)
    state, calls = state_of(item.config), evidence_of(item).calls
    explain = getattr(state.adapter, "explain_wrong", None)
    if cache is None or not calls or TRIAL in item.stash or explain is None:
        return ""
    from pytest_plugin.oracle import first_moved

    state.explained += 1
    if state.explained > first_moved.MOST_ASKED:
        return ""
    line = first_moved.moved_line(explain, calls[-1], _options(item), _script_path(item, cache))
    return line.replace(f"{item.config.invocation_params.dir}/", "")


def _options(item: pytest.Item) -> dict[str, object]:
    """The options with which the test's last program is compiled for its device outside of the test."""
    adapter: Any = state_of(item.config).adapter
    options = {**getattr(adapter, "settings", {}), **evidence_of(item).calls[-1].options}
    if (device := device_of(item)) is not None and hasattr(adapter, "device_options"):
        options = {**adapter.device_options(device), **options}
    return options


def _script_path(item: pytest.Item, cache: Any) -> Path:
    return Path(cache.mkdir("minductor")) / "repro" / (re.sub(r"[^\w.=+-]+", "-", item.nodeid).strip("-") + ".py")


def _shown(item: pytest.Item, path: Path) -> Path:
    here = item.config.invocation_params.dir
    return path.relative_to(here) if path.is_relative_to(here) else path


def goldens_of(item: pytest.Item) -> Goldens:
    """Returns the goldens of a test, which are made on the first call."""
    evidence = evidence_of(item)
    if evidence.goldens is None:
        state = state_of(item.config)
        node, parameters = name_without_device(item)
        is_test_itself = TRIAL not in item.stash or item.stash[TRIAL].is_test_itself
        file = Path(node.partition("::")[0]).with_suffix("")
        inner = file.relative_to("tests") if file.is_relative_to("tests") else file
        evidence.goldens = Goldens(
            folder=state.golden_dir / state.adapter.name,
            root=item.config.rootpath,
            node=node,
            inner=inner.as_posix(),
            test=".".join(node.split("::")[1:]),
            parameters=parameters,
            target=title_and_target(item)[1],
            nodeid=item.nodeid,
            shown=item.name,
            # A trial writes no golden.
            rules=state.rules if is_test_itself else replace(state.rules, mode="check", may_lack=True),
        )
    return evidence.goldens
