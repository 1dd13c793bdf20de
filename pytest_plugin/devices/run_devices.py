"""The devices of one pytest process: what the user, the compiler and the machine allow, decided once.

Takes the user's settings and the compiler under test. Gives the ids of the devices to run on, Device values, and
reasons why a device or a capability is absent. Settings that cannot be followed are noted in `misuse`, and the caller
ends the run with pytest's usage error. Refuses nothing itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from pytest_plugin.devices.capabilities import Machine
from pytest_plugin.devices.device_choice import (
    DEVICE_KINDS,
    Device,
    DeviceChoice,
    DeviceSettings,
    Misuse,
    arch_number,
    choose_devices,
    devices_of_marker,
    torch_type,
)
from pytest_plugin.vocabulary import CAPABILITIES

# The capability that a machine must have for a kind of device.
NEEDED: Mapping[str, str] = MappingProxyType({"cuda": "gpu", "interpret": "triton", "compile": "triton"})


class Compiler(Protocol):
    """The part of an adapter that concerns devices; it may also have torch_devices, capabilities and absence."""

    @property
    def devices(self) -> Sequence[str]:
        """The ids of the devices that it compiles for."""
        ...


@dataclass(slots=True)
class RunDevices:
    """The devices of one pytest process.

    Attributes:
        compiler: The adapter of the compiler under test.
        settings: The user's settings.
        machine: What the machine can do.
        choice: The devices of tests that name none; None until a test asks for a device.
        misuse: Why the settings cannot be followed, or an empty text; the run then ends with a usage error.
    """

    compiler: Compiler
    settings: DeviceSettings
    machine: Machine = field(default_factory=Machine)
    choice: DeviceChoice | None = None
    misuse: str = ""

    @property
    def known(self) -> Mapping[str, str]:
        """torch's device type by id, of the devices that the compiler takes."""
        own: Mapping[str, str] = getattr(self.compiler, "torch_devices", {})
        return {id: own.get(id) or torch_type(id) for id in self.compiler.devices}

    def device(self, id: str) -> Device:
        """Returns the device of an id."""
        is_gpu = id == "cuda" and not self.machine.absence("gpu")
        return Device(id, self.known.get(id, ""), str(self.machine.gpu().get("target", "")) if is_gpu else "")

    def absence(self, id: str) -> str:
        """Returns why this machine cannot run a device, or an empty text. The adapter answers for its own devices."""
        kind = id.partition(":")[0]
        if kind in DEVICE_KINDS:
            return self.machine.absence(NEEDED[kind]) if kind in NEEDED else ""
        ask: Callable[[str], str] | None = getattr(self.compiler, "absence", None)
        return ask(id) if ask is not None else ""

    @property
    def capabilities(self) -> Mapping[str, Sequence[str]]:
        """The capabilities of the compiler's own devices, by id."""
        return getattr(self.compiler, "capabilities", {})

    def lack_reason(self, capability: str, device: Device | None) -> str:
        """Returns why a test cannot have a capability on a device, or an empty text."""
        if device is None or device.kind in DEVICE_KINDS:
            if capability in CAPABILITIES:
                return self.machine.absence(capability)
            return "no device of the test's has it"
        has = self.capabilities.get(device.id, ())
        return "" if capability in has else f"{device.id} has {', '.join(has) or 'none'}"

    def ids(self) -> tuple[str, ...]:
        """Returns the ids to run on, as the first call decides; after a misuse, one id that nothing runs on."""
        if self.choice is None:
            try:
                self.choice = choose_devices(self.settings, self.known, self.absence)
            except Misuse as misuse:
                self.misuse = str(misuse)
                return ("none",)
        return self.choice.devices

    def required(self) -> Iterator[str]:
        """Yields a line of the summary with the devices that RUN_CPU=1 and RUN_GPU=1 required."""
        asked = {"RUN_CPU": (self.settings.run_cpu, "cpu"), "RUN_GPU": (self.settings.run_gpu, "cuda")}
        ran = self.choice.devices if self.choice is not None else ()
        devices = [f"{id} ({name}=1)" for name, (text, id) in asked.items() if text == "1" and id in ran]
        if devices and not self.misuse:
            yield f"required {', '.join(devices)}"

    def devices_of(self, named: Sequence[str], min_arch: str) -> DeviceChoice:
        """Returns the devices of a test whose marker names them."""
        least = arch_number(min_arch) or 0
        own = [id for id in named if (arch_number(id.removeprefix("compile:")) or least) >= least]
        choice = devices_of_marker(self.settings, own, self.known, self.absence)
        if least and "cuda" in choice.devices and (found := self.machine.gpu().get("arch", 0)) < least:
            rest = tuple(id for id in choice.devices if id != "cuda")
            return DeviceChoice(rest, (*choice.missing, ("cuda", f"the GPU is sm_{found}, and not {min_arch}")))
        return choice

    def gpus_of_workers(self, count: int) -> list[str]:
        """Returns the GPU that each xdist worker sees; an empty list if there are not several."""
        if "cuda" not in self.known or self.absence("cuda"):
            return []
        seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.machine.gpu()["count"])))
        gpus = seen.split(",")
        if len(gpus) < 2:
            return []
        self.machine.known["two_gpus"] = "each worker sees one GPU"
        return [gpus[number % len(gpus)] for number in range(count)]

    def to_worker(self) -> dict[str, Any]:
        """Returns the decision as plain values, which xdist carries."""
        return {
            "devices": list(self.ids()),
            "misuse": self.misuse,
            "known": self.machine.known,
            "gpu": dict(self.machine.gpu()) if not self.machine.known.get("gpu", "not asked") else {},
        }

    def take(self, decided: Mapping[str, Any]) -> None:
        """Follows the decision of the controller, as `to_worker` returned it."""
        self.misuse = decided["misuse"]
        self.choice = DeviceChoice(tuple(decided["devices"]))
        self.machine.take(decided["known"], decided["gpu"])
