"""The choice of the devices that tests run on, from the environment, the options, the compiler and the machine.

Takes the user's settings as unparsed texts, the ids that the compiler takes with torch's device type of each, and a
function that tells why a device is absent. Gives the ids to run, and the reason for each one that does not run.
Refuses, by Misuse, an unknown name, a required device that is absent, and a choice that leaves no device.

>>> choose_devices(DeviceSettings(run_gpu="0"), {"cpu": "cpu", "toy": "npu"}, lambda id: "")
DeviceChoice(devices=('cpu', 'toy'), missing=(('cuda', 'RUN_GPU=0'),))
>>> choose_devices(DeviceSettings(run_cpu="0"), {"cpu": "cpu"}, lambda id: "")
Traceback (most recent call last):
pytest_plugin.devices.device_choice.Misuse: no device is left to test on: cpu (RUN_CPU=0), cuda (the compiler takes cpu)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pytest_plugin.xfail import devices_and_reason

DEVICE_KINDS = ("cpu", "interpret", "cuda", "compile")
DEFAULT_DEVICES = ("cpu", "cuda")
# torch's own device types, which the variables PYTORCH_TESTING_DEVICE_* may name.
TORCH_TYPES = ("cpu", "cuda", "mps", "xpu", "mtia", "hpu", "meta", "xla", "lazy", "privateuse1")
TorchTypeOf = Mapping[str, str]  # torch's device type of the tensors, by the id of the device
Absence = Callable[[str], str]
Filter = tuple[str, ...] | None


class Misuse(ValueError):
    """Settings that cannot be followed; the run ends with pytest's usage error."""


class Device(str):
    """A device: a str that torch calls take, such as "cpu" or "cuda".

    Attributes:
        id: The name in the ids of tests: "cpu", "cuda", "interpret", "compile:sm_90", or one of the compiler's own.
        kind: The id without a target: "compile".
        target: The folder of its golden files: "sm_90" for a compile-only device or for the GPU of that architecture.
    """

    __slots__ = ("id", "kind", "target")
    id: str
    kind: str
    target: str

    def __new__(cls, id: str, memory: str = "", architecture: str = "") -> Self:
        """Makes a device.

        Args:
            id: Its id.
            memory: torch's device type of the tensors, for a device of the compiler's own.
            architecture: The architecture of this machine's GPU, such as "sm_90".
        """
        kind, _, target = id.partition(":")
        device = super().__new__(cls, memory or torch_type(id))
        device.id = id
        device.kind = kind
        device.target = target or architecture or kind
        return device


def torch_type(id: str) -> str:
    """Returns torch's device type of an id; tensors of interpreted and compile-only tests are on the CPU."""
    kind = id.partition(":")[0]
    return "cpu" if kind in ("interpret", "compile") else kind


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """What the user asked for, unparsed: None is a variable that is not set, "" an option that is not given."""

    run_cpu: str | None = None
    run_gpu: str | None = None
    only_for: str | None = None
    except_for: str | None = None
    option: str = ""
    ini: tuple[str, ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str], option: str, ini: Sequence[str]) -> Self:
        """Reads the settings from the environment, the option --minductor-device and the ini key minductor_devices."""
        return cls(
            environ.get("RUN_CPU"),
            environ.get("RUN_GPU"),
            environ.get("PYTORCH_TESTING_DEVICE_ONLY_FOR"),
            environ.get("PYTORCH_TESTING_DEVICE_EXCEPT_FOR"),
            option,
            tuple(ini),
        )


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The ids to run on, and (id, reason) for each other candidate."""

    devices: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()


def choose_devices(settings: DeviceSettings, known: TorchTypeOf, absence: Absence) -> DeviceChoice:
    """Returns the devices of tests that name none.

    Args:
        settings: The user's settings.
        known: torch's device type by id, of the devices that the compiler takes.
        absence: Returns why the machine cannot run a device, or an empty text.

    Returns:
        The choice.

    Raises:
        Misuse: A name is unknown, a required device is absent, or no device is left.
    """
    named = _split_names("--minductor-device", settings.option)
    for id in (*named, *settings.ini):
        _check_id(id, known)
    wanted, only, without = _read_variables(settings, known)
    devices: list[str] = []
    missing: list[tuple[str, str]] = []
    required = {"RUN_CPU": "cpu", "RUN_GPU": "cuda"}
    forced = [id for variable, id in required.items() if wanted[variable] is True]
    if named:  # the option wins over PyTorch's variables
        only = without = None
    for id in dict.fromkeys((*(named or settings.ini or (*DEFAULT_DEVICES, *_adapter_devices(known))), *forced)):
        variable = _variable(id, known)
        if wanted.get(variable) is False:
            missing.append((id, f"{variable}=0"))
            continue
        absent = _absence(id, known, absence)
        if absent and (id in named or id in forced):
            origin = f"{variable}=1 requires" if id in forced else "--minductor-device names"
            raise Misuse(f"{origin} {id}, which cannot run: {absent}")
        filtered = _excluding_variable(id, known, only, without)
        if filtered and id in forced:
            raise Misuse(f"{variable}=1 requires {id}, which {filtered} leaves out")
        dropped = absent or filtered or ("--minductor-device" if named and id not in named else "")
        if dropped:
            missing.append((id, dropped))
        else:
            devices.append(id)
    if not devices:
        reasons = ", ".join(f"{id} ({why})" for id, why in missing)
        raise Misuse(f"no device is left to test on: {reasons}")
    return DeviceChoice(tuple(devices), tuple(missing))


def devices_of_marker(
    settings: DeviceSettings, named: Sequence[str], known: TorchTypeOf, absence: Absence
) -> DeviceChoice:
    """Returns the devices of a test whose marker names them.

    What the user's settings leave out is neither run nor reported as missing.

    Args:
        settings: The user's settings.
        named: The ids that the marker names.
        known: See `choose_devices`.
        absence: See `choose_devices`.

    Returns:
        The choice; it may be empty.

    Raises:
        Misuse: The user's settings cannot be read.
    """
    wanted, only, without = _read_variables(settings, known)
    option = _split_names("--minductor-device", settings.option)
    if option:
        only = without = None
    devices: list[str] = []
    missing: list[tuple[str, str]] = []
    for id in dict.fromkeys(named):
        is_off = wanted.get(_variable(id, known)) is False
        if is_off or _excluding_variable(id, known, only, without) or (option and id not in option):
            continue
        if reason := _absence(id, known, absence):
            missing.append((id, reason))
        else:
            devices.append(id)
    return DeviceChoice(tuple(devices), tuple(missing))


def _read_variables(settings: DeviceSettings, known: TorchTypeOf) -> tuple[dict[str, bool | None], Filter, Filter]:
    """Reads RUN_CPU and RUN_GPU, and the device types that PyTorch's two variables name."""
    wanted = {"RUN_CPU": _tri_state("RUN_CPU", settings.run_cpu), "RUN_GPU": _tri_state("RUN_GPU", settings.run_gpu)}
    return (
        wanted,
        _read_filter("PYTORCH_TESTING_DEVICE_ONLY_FOR", settings.only_for, known),
        _read_filter("PYTORCH_TESTING_DEVICE_EXCEPT_FOR", settings.except_for, known),
    )


def _adapter_devices(known: TorchTypeOf) -> tuple[str, ...]:
    """Returns the ids that are the compiler's own."""
    return tuple(id for id in known if id.partition(":")[0] not in DEVICE_KINDS)


def _variable(id: str, known: TorchTypeOf) -> str:
    """Returns the variable that a device belongs to: RUN_CPU, RUN_GPU or none."""
    return {"cpu": "RUN_CPU", "cuda": "RUN_GPU"}.get(known.get(id) or torch_type(id), "")


def devices_misuse(args: Sequence[object], keywords: Mapping[str, object], known: TorchTypeOf) -> str:
    """Returns what is wrong with a marker `devices(*ids, min_arch="sm_90")`, or an empty text.

    >>> devices_misuse(("interpret", "compile:sm_90"), {"min_arch": "sm_80"}, {})
    ''
    >>> devices_misuse(("gpu",), {}, {})
    "'gpu' is no device; the devices are cpu, interpret, cuda and compile:<target>"
    """
    for name in keywords:
        if name != "min_arch":
            return f"devices has no {name}; it has min_arch"
    if keywords and arch_number(str(keywords["min_arch"])) is None:
        return f"devices(min_arch={keywords['min_arch']!r}): an architecture is sm_80, sm_90 and so on"
    if not args:
        return "devices names no device"
    try:
        for id in args:
            _check_id(str(id), known)
    except Misuse as misuse:
        return str(misuse)
    return ""


def skip_on_misuse(args: Sequence[object], keywords: Mapping[str, object], known: TorchTypeOf) -> str:
    """Returns what is wrong with a marker `skip_on(*ids, reason="why")` or `skip_on(*ids, "why")`, or an empty text.

    >>> skip_on_misuse(("cuda",), {"reason": "needs float64 in hardware"}, {})
    ''
    >>> skip_on_misuse(("cuda", "cpu"), {}, {})
    "skip_on takes the reason: skip_on('cuda', 'cpu', reason='why')"
    """
    for name in keywords:
        if name != "reason":
            return f"skip_on has no {name}; it has reason"
    if not args:
        return "skip_on names no device"
    ids, reason = devices_and_reason(args, keywords)
    try:
        for id in ids:
            _check_id(str(id), known)
    except Misuse as misuse:
        return f"skip_on: {misuse}"
    is_reason = isinstance(reason, str) and reason.strip()
    if is_reason and ("reason" in keywords or not _is_id(str(reason), known)):
        return ""
    return f"skip_on takes the reason: skip_on({', '.join(map(repr, args))}, reason='why')"


def arch_number(target: str) -> int | None:
    """Returns the number in the name of an NVIDIA target, or None for another name.

    >>> arch_number("sm_90"), arch_number("gfx942"), arch_number("interpret")
    (90, None, None)
    """
    found = re.fullmatch(r"sm_(\d+)", target)
    return int(found[1]) if found else None


def _absence(id: str, known: TorchTypeOf, absence: Absence) -> str:
    return absence(id) if id in known else f"the compiler takes {', '.join(known)}"


def _excluding_variable(id: str, known: TorchTypeOf, only: Filter, without: Filter) -> str:
    memory = known.get(id) or torch_type(id)
    if only is not None and memory not in only:
        return "PYTORCH_TESTING_DEVICE_ONLY_FOR"
    if without is not None and memory in without:
        return "PYTORCH_TESTING_DEVICE_EXCEPT_FOR"
    return ""


def _split_names(origin: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if text and not all(names):
        raise Misuse(f"{origin}={text!r} has an empty name")
    return names if text else ()


def _read_filter(variable: str, text: str | None, known: TorchTypeOf) -> Filter:
    """Returns the names in a variable of PyTorch, or None if it is not set or empty."""
    if not (text or "").strip():
        return None
    names = _split_names(variable, text or "")
    types = tuple(dict.fromkeys((*TORCH_TYPES, *known.values())))
    for name in names:
        if name not in types:
            raise Misuse(f"{variable} names {name!r}; torch's device types are {', '.join(types)}")
    return names


def _is_id(id: str, known: TorchTypeOf) -> bool:
    kind, colon, target = id.partition(":")
    is_ours = kind in DEVICE_KINDS and (kind == "compile") == bool(target) and not (colon and kind != "compile")
    return is_ours or id in known


def _check_id(id: str, known: TorchTypeOf) -> None:
    if not _is_id(id, known):
        brought = "".join(f"{other}, " for other in _adapter_devices(known))
        raise Misuse(f"{id!r} is no device; the devices are {brought}cpu, interpret, cuda and compile:<target>")


def _tri_state(variable: str, text: str | None) -> bool | None:
    match text:
        case None | "":
            return None
        case "0":
            return False
        case "1":
            return True
        case _:
            raise Misuse(f"{variable}={text!r}: unset is 'if it is there', 0 is never, 1 is required")
