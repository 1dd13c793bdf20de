"""What markers may say, by their names.

Takes a marker, and what the compiler under test knows. Gives what is wrong with it as a sentence that lists the valid
words, or nothing. Refuses nothing itself: misuse is pytest's usage error, which the caller raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import pytest

from pytest_plugin.adapters import compilers
from pytest_plugin.devices.device_choice import devices_misuse, skip_on_misuse
from pytest_plugin.devices.run_devices import RunDevices
from pytest_plugin.oracle import counts, memory
from pytest_plugin.vocabulary import ADAPTERS, CAPABILITIES, LEVELS, VIEWS
from pytest_plugin.xfail import Xfail

DETERMINISTIC_KEYWORDS = ("runs", "hash_seeds", "threads", "clock")
GOLDEN_KEYWORDS = ("view", "level")
OF_DEVICES = ("devices", "skip_on")


def misuse(item: pytest.Item, devices: RunDevices) -> str:
    """What is wrong with the markers of a test, or nothing."""
    for marker in item.iter_markers():
        if marker.name in MARKER_RULES and (problem := MARKER_RULES[marker.name](marker, devices)):
            return f"{item.nodeid}: {problem}"
    # of a class or a module, the marker may be for others of its tests
    unheard = next((marker.name for marker in item.own_markers if marker.name in OF_DEVICES), "")
    if unheard and not has_devices(item):
        hint = "a function takes the fixture `device` or `compiled`, a class of unittest says `device: str`"
        return f"{item.nodeid}: {unheard} on a test that asks for no device: {hint}"
    return ""


def misuse_of_items(items: Sequence[pytest.Item], devices: RunDevices) -> str:
    """What is wrong with the markers of the first test that has a wrong one, or nothing."""
    return next((wrong for item in items if (wrong := misuse(item, devices))), "")


def has_devices(item: pytest.Item) -> bool:
    """Whether a test is run once for each device."""
    return "minductor_device" in getattr(item, "fixturenames", ()) or hasattr(getattr(item, "cls", None), "device")


def _unknown_keyword(marker: pytest.Mark, keywords: Iterable[str]) -> str:
    """Of a marker that takes nothing but these keywords."""
    unknown = [name for name in marker.kwargs if name not in keywords]
    if not (marker.args or unknown):
        return ""
    wrong = unknown[0] if unknown else "positional arguments"
    return f"{marker.name} has no {wrong}; it has {', '.join(keywords)}"


def _devices(marker: pytest.Mark, devices: RunDevices) -> str:
    return devices_misuse(marker.args, marker.kwargs, devices.known)


def _skip_on(marker: pytest.Mark, devices: RunDevices) -> str:
    return skip_on_misuse(marker.args, marker.kwargs, devices.known)


def _needs(marker: pytest.Mark, devices: RunDevices) -> str:
    brought = [name for names in devices.capabilities.values() for name in names]
    known = dict.fromkeys((*CAPABILITIES, *brought))
    unknown = [name for name in (*marker.args, *marker.kwargs) if name not in known]
    if not unknown and marker.args:
        return ""
    names = f"has no {unknown[0]}" if unknown else "names no capability"
    return f"needs {names}; there are {', '.join(known)}"


def _compilers(marker: pytest.Mark, devices: RunDevices) -> str:
    del devices
    named = (*marker.args, *marker.kwargs)
    unknown = [name for name in named if name not in ADAPTERS]
    unknown = [name for name in unknown if name not in compilers()]  # which looks at every installed package
    if unknown or not named:
        names = f"has no {unknown[0]}" if unknown else "names no compiler"
        return f"compilers {names}; there are {', '.join(compilers())}"
    wrong = [name for name, value in marker.kwargs.items() if not isinstance(value, Xfail)]
    return f"compilers({wrong[0]}={marker.kwargs[wrong[0]]!r}): declare xfail('the reason')" if wrong else ""


def _must_fail_under(marker: pytest.Mark, devices: RunDevices) -> str:
    del devices
    is_right = marker.args and not marker.kwargs and all(isinstance(name, str) for name in marker.args)
    return "" if is_right else "must_fail_under takes names of mutants"


def _deterministic(marker: pytest.Mark, devices: RunDevices) -> str:
    del devices
    return _unknown_keyword(marker, DETERMINISTIC_KEYWORDS)


def _counts(marker: pytest.Mark, devices: RunDevices) -> str:
    del devices
    return "counts takes keywords only" if marker.args else counts.counts_misuse(marker.kwargs)


def _memory(marker: pytest.Mark, devices: RunDevices) -> str:
    del devices
    return "memory takes keywords only" if marker.args else memory.memory_misuse(marker.kwargs)


def _golden(marker: pytest.Mark, devices: RunDevices) -> str:
    del devices
    if problem := _unknown_keyword(marker, GOLDEN_KEYWORDS):
        return problem
    views = marker.kwargs.get("view", ())
    for view in (views,) if isinstance(views, str) else views:
        if view not in VIEWS:
            return f"golden has no view {view!r}; the views are {', '.join(VIEWS)}"
    if marker.kwargs.get("level", LEVELS[0]) not in LEVELS:
        return f"golden has no level {marker.kwargs['level']!r}; the levels are {', '.join(LEVELS)}"
    return ""


MARKER_RULES: Mapping[str, Callable[[pytest.Mark, RunDevices], str]] = MappingProxyType(
    {
        "counts": _counts,
        "memory": _memory,
        "golden": _golden,
        "devices": _devices,
        "skip_on": _skip_on,
        "needs": _needs,
        "compilers": _compilers,
        "must_fail_under": _must_fail_under,
        "deterministic": _deterministic,
    }
)
