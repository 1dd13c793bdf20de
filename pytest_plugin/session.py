"""What one pytest process knows: the compiler, the devices, the mode of the goldens. It lives in `config.stash`.

Takes pytest's config; gives a State. Refuses options that cannot be followed (pytest.UsageError).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pytest_plugin.adapters import Adapter, compilers, find_adapter
from pytest_plugin.devices.capabilities import Machine
from pytest_plugin.devices.devices import (
    KINDS,
    Choice,
    Device,
    Misuse,
    Wishes,
    arch_number,
    choose,
    of_marker,
    torch_type,
)
from pytest_plugin.devices.expected import Expected, rows
from pytest_plugin.goldens.golden import Goldens, Rules
from pytest_plugin.goldens.revision import STAGES
from pytest_plugin.oracle.closer import DEFAULT, Policy, policy_of
from pytest_plugin.oracle.evidence import Evidence, Totals
from pytest_plugin.oracle.repro import write
from pytest_plugin.stash import EVIDENCE, TRIAL, WORKER_KEY, golden_dir, state_of
from pytest_plugin.vocabulary import ADAPTERS, CAPABILITIES, LEVELS, MODES, STORES, UNUSED

# the capability that a kind of device takes
NEEDED: Mapping[str, str] = MappingProxyType({"cuda": "gpu", "interpret": "triton", "compile": "triton"})


@dataclass(slots=True)
class State:
    """The settings of a run, and what is found out on the way."""

    adapter: Adapter
    wishes: Wishes
    golden_dir: Path
    rules: Rules
    policy: Policy = DEFAULT  # how far numbers may be off
    shared_store: Path | None = None  # where all tests keep artefacts, if they share them
    misuse: str = ""  # why the run ends with a usage error
    worker_misuse: str = ""  # the same, as an xdist worker told it
    worker_rows: list[str] = field(default_factory=list[str])  # rows of known failures that no worker has used
    choice: Choice | None = None
    expected: Expected | None = None  # failures that are known
    has_torch_classes: bool = False  # some tests are of PyTorch's `instantiate_device_type_tests`
    machine: Machine = field(default_factory=Machine)
    totals: Totals = field(default_factory=Totals)
    kills: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])  # by test, what mutants met
    endings: list[str] = field(default_factory=list[str])  # lines of the summary that come last

    @property
    def known(self) -> Mapping[str, str]:
        """torch's name of the memory of each device that the compiler takes."""
        own: Mapping[str, str] = getattr(self.adapter, "torch_devices", {})
        return {id: own.get(id) or torch_type(id) for id in self.adapter.devices}

    def device(self, id: str) -> Device:
        is_gpu = id == "cuda" and not self.machine.absence("gpu")
        return Device(id, self.known.get(id, ""), str(self.machine.gpu().get("target", "")) if is_gpu else "")

    def absence(self, id: str) -> str:
        """Why this machine cannot run a device, or nothing: of one that the compiler brings, the adapter is asked."""
        kind = id.partition(":")[0]
        if kind in KINDS:
            return self.machine.absence(NEEDED[kind]) if kind in NEEDED else ""
        ask: Callable[[str], str] | None = getattr(self.adapter, "absence", None)
        return ask(id) if ask is not None else ""

    @property
    def capabilities(self) -> Mapping[str, Sequence[str]]:
        """Those of the devices that the compiler brings."""
        return getattr(self.adapter, "capabilities", {})

    def lack(self, capability: str, device: Device | None) -> str:
        """Why a test cannot have it, or nothing: of a device that the compiler brings, that says what it has."""
        if device is None or device.kind in KINDS:
            if capability in CAPABILITIES:
                return self.machine.absence(capability)
            return "no device of the test's has it"
        has = self.capabilities.get(device.id, ())
        return "" if capability in has else f"{device.id} has {', '.join(has) or 'none'}"

    def devices(self) -> tuple[str, ...]:
        """The ids to run on, decided on the first use; a misuse is noted and gives one id that nothing runs on."""
        if self.choice is None:
            try:
                self.choice = choose(self.wishes, self.known, self.absence)
            except Misuse as misuse:
                self.misuse = str(misuse)
                return ("none",)
        return self.choice.devices

    def required(self) -> Iterator[str]:
        """A line of the summary for what the run had to have, and had."""
        asked = {"RUN_CPU": (self.wishes.run_cpu, "cpu"), "RUN_GPU": (self.wishes.run_gpu, "cuda")}
        ran = self.choice.devices if self.choice is not None else ()
        told = [f"{id} ({name}=1)" for name, (text, id) in asked.items() if text == "1" and id in ran]
        if told and not self.misuse:
            yield f"required {', '.join(told)}"

    def devices_of(self, named: Sequence[str], min_arch: str) -> Choice:
        """The devices of a test whose marker names them."""
        least = arch_number(min_arch) or 0
        own = [id for id in named if (arch_number(id.removeprefix("compile:")) or least) >= least]
        choice = of_marker(self.wishes, own, self.known, self.absence)
        if least and "cuda" in choice.devices and (found := self.machine.gpu().get("arch", 0)) < least:
            rest = tuple(id for id in choice.devices if id != "cuda")
            return Choice(rest, (*choice.missing, ("cuda", f"the GPU is sm_{found}, and not {min_arch}")))
        return choice

    def pins(self, count: int) -> list[str]:
        """The GPU that each of so many workers sees, if there is more than one."""
        if "cuda" not in self.known or self.absence("cuda"):
            return []
        seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.machine.gpu()["count"])))
        gpus = seen.split(",")
        if len(gpus) < 2:
            return []
        self.machine.known["two_gpus"] = "each worker sees one GPU"
        return [gpus[number % len(gpus)] for number in range(count)]

    def unused_rows(self) -> list[str]:
        """Known failures of tests that are there and do not run on the row's device."""
        return (
            self.expected.unused(self.devices())
            if self.expected is not None and self.expected.modules
            else self.worker_rows
        )

    def to_worker(self) -> dict[str, Any]:
        """The decision, in plain values."""
        return {
            "devices": list(self.devices()),
            "misuse": self.misuse,
            "known": self.machine.known,
            "gpu": dict(self.machine.gpu()) if not self.machine.known.get("gpu", "not asked") else {},
            "golden_dir": str(self.golden_dir),
        }


def make_state(config: pytest.Config) -> State:
    """The state of this process; an xdist worker takes the controller's decision about devices."""
    try:
        adapter = find_adapter(str(config.getoption("minductor_compiler") or next(iter(ADAPTERS))))
    except ValueError as error:
        raise pytest.UsageError(f"--compiler: {error}") from None
    table = {mutant.name for mutant in getattr(adapter, "mutants", ())}
    for name in str(config.getoption("minductor_mutants") or "all").split(","):
        if name != "all" and name not in table:
            known = ", ".join(sorted(table)) or "none"
            raise pytest.UsageError(f"--mutants={name}: {adapter.name} has {known}; write --mutants=all for all")
    wishes = Wishes.of(os.environ, str(config.getoption("minductor_device")), config.getini("minductor_devices"))
    rules, policy, store = _rules(config, os.environ), _policy(config), _store(config, adapter.name)
    state = State(adapter, wishes, golden_dir(config), rules, policy, store)
    given = getattr(config, "workerinput", {}).get(WORKER_KEY)
    if given is not None:
        state.misuse = given["misuse"]
        state.golden_dir = Path(given["golden_dir"])
        state.choice = Choice(tuple(given["devices"]))
        state.machine.take(given["known"], given["gpu"])
    elif wishes.option:
        # An option is this plugin's own and is refused at once; a variable only if a test asks for a device.
        state.devices()
        if state.misuse:
            raise pytest.UsageError(state.misuse)
    if file := str(config.getini("expected_failures")):
        state.expected = _expected(config, file, state)
    return state


def _expected(config: pytest.Config, file: str, state: State) -> Expected:
    try:
        text = (config.rootpath / file).read_text(encoding="utf-8")
        found = rows(text, state.adapter.name, state.known, compilers())
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"expected_failures = {file}: {error}") from None
    is_partial = any("::" in argument for argument in config.args) or bool(getattr(config.option, "lf", False))
    return Expected(found, config.rootpath, is_partial)


def _policy(config: pytest.Config) -> Policy:
    """The ini key `numeric_policy`."""
    try:
        return policy_of(config.getini("numeric_policy"))
    except ValueError as error:
        raise pytest.UsageError(f"numeric_policy: {error}") from None


def _store(config: pytest.Config, compiler: str) -> Path | None:
    """The folder that tests share, if they do."""
    chosen = str(config.getoption("minductor_store") or STORES[0])
    if chosen not in STORES:
        raise pytest.UsageError(f"--minductor-store={chosen}: a store is {' or '.join(STORES)}")
    cache: Any = getattr(config, "cache", None)
    if chosen == "shared" and cache is None:
        raise pytest.UsageError("--minductor-store=shared: the store is in pytest's cache, which is switched off")
    return Path(cache.mkdir("minductor")) / "store" / compiler if chosen == "shared" else None


def _mode(config: pytest.Config, environ: Mapping[str, str]) -> str:
    is_ci = _is_ci(environ)
    mode = str(config.getoption("minductor_golden") or ("check" if is_ci else "new"))
    if mode not in MODES:
        raise pytest.UsageError(f"--golden={mode}: the modes are {', '.join(MODES)}")
    if is_ci and mode not in ("check", "off"):
        raise pytest.UsageError(f"--golden={mode}: under CI nothing is written")
    return mode


def _rules(config: pytest.Config, environ: Mapping[str, str]) -> Rules:
    raised = str(config.getoption("minductor_golden_level") or config.getini("golden_level"))
    if raised and raised not in LEVELS:
        raise pytest.UsageError(f"--golden-level={raised}: the levels are {', '.join(LEVELS)}")
    lines = str(config.getini("golden_max_diff"))
    if not lines.isdigit():
        raise pytest.UsageError(f"golden_max_diff = {lines}: a number of lines")
    limit = None if config.get_verbosity() > 0 else int(lines)
    unused = str(config.getoption("minductor_golden_unused"))
    if unused not in UNUSED:
        raise pytest.UsageError(f"--golden-unused={unused}: it is {', '.join(UNUSED)}")
    fails = unused == "fail" or (unused == "auto" and _is_ci(environ))
    base = str(config.getoption("minductor_golden_base"))
    # what another revision generated is compared with, and is nobody's to write
    mode = "check" if base else _mode(config, environ)
    stages = STAGES in environ
    return Rules(mode, raised, limit, fails_unused=fails, may_lack=bool(base), keeps_stages=stages, base=base)


def _is_ci(environ: Mapping[str, str]) -> bool:
    return environ.get("CI", "").lower() not in ("", "0", "false")


def evidence_of(item: pytest.Item) -> Evidence:
    return item.stash.setdefault(EVIDENCE, Evidence())


def device_of(item: pytest.Item) -> Device | None:
    """The device that the test was parametrised with, or that its class was made for, if it asks for one."""
    if (callspec := getattr(item, "callspec", None)) is not None:
        return callspec.params.get("minductor_device")
    of_class = getattr(getattr(item, "cls", None), "device", None)
    return of_class if isinstance(of_class, Device) else None


def _without_device(item: pytest.Item) -> tuple[str, str]:
    """The test's id without parameters, and its parameters other than the device."""
    device = device_of(item)
    if device is not None and not hasattr(item, "callspec"):
        return item.nodeid.replace(f"[{device.id}]::", "::", 1), ""
    node, _, parameters = item.nodeid.partition("[")
    parameters = parameters.removesuffix("]")
    if device is not None:  # the plugin parametrises first, so the device opens the list
        parameters = parameters.removeprefix(device.id).removeprefix("-")
    return node, parameters


def owner_of(item: pytest.Item) -> tuple[str, str]:
    """The title that the test's goldens bear, and the target that they are for."""
    node, parameters = _without_device(item)
    device = device_of(item)
    return node + (f"[{parameters}]" if parameters else ""), device.target if device is not None else "any"


def repro_of(item: pytest.Item, why: str) -> str:
    """A line about the script that compiles the test's last program again; empty if it compiled none."""
    cache: Any = getattr(item.config, "cache", None)
    calls, device = evidence_of(item).calls, device_of(item)
    if cache is None or not calls or TRIAL in item.stash:
        return ""
    adapter: Any = state_of(item.config).adapter
    options = {**getattr(adapter, "settings", {}), **calls[-1].options}
    if device is not None and hasattr(adapter, "device_options"):
        options = {**adapter.device_options(device), **options}
    call = replace(calls[-1], options=options)
    path = Path(cache.mkdir("minductor")) / "repro" / (re.sub(r"[^\w.=+-]+", "-", item.nodeid).strip("-") + ".py")
    try:
        write(call, path, adapter.name, item.nodeid, why)
    except Exception as error:  # whatever keeps it from being written must not hide the failure
        return f"repro   none: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    here = item.config.invocation_params.dir
    return f"repro   python {path.relative_to(here) if path.is_relative_to(here) else path}"


def goldens_of(item: pytest.Item) -> Goldens:
    """The test's goldens, made on the first use."""
    evidence = evidence_of(item)
    if evidence.goldens is None:
        state = state_of(item.config)
        node, parameters = _without_device(item)
        is_own = TRIAL not in item.stash or item.stash[TRIAL].is_own
        file = Path(node.partition("::")[0]).with_suffix("")
        inner = file.relative_to("tests") if file.is_relative_to("tests") else file
        evidence.goldens = Goldens(
            folder=state.golden_dir / state.adapter.name,
            root=item.config.rootpath,
            node=node,
            inner=inner.as_posix(),
            test=".".join(node.split("::")[1:]),
            parameters=parameters,
            target=owner_of(item)[1],
            nodeid=item.nodeid,
            shown=item.name,
            # a trial writes nothing
            rules=state.rules if is_own else replace(state.rules, mode="check", may_lack=True),
        )
    return evidence.goldens
