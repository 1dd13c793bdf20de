"""One test, or one unittest class, for each device; and the marks of tests that do not run or are known to fail.

Takes what pytest collects, and the devices of the run. Gives parameters, a class for each device, and marks: tests for
other compilers are skipped with a reason, and known failures are expected. Refuses nothing: wrong markers are reported
by markers.py.
"""

from __future__ import annotations

import sys
import unittest
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest

from pytest_plugin.devices.device_choice import Device, DeviceChoice, Misuse, devices_misuse
from pytest_plugin.devices.item_device import device_of, title_and_target
from pytest_plugin.devices.known_failures import KnownFailures, expect_failure
from pytest_plugin.devices.run_devices import RunDevices
from pytest_plugin.xfail import Xfail

TORCH_CLASSES = "torch.testing._internal.common_device_type"


def choice_for_marker(marker: pytest.Mark | None, devices: RunDevices) -> DeviceChoice:
    """Returns the devices of a test, which its marker may name. Only markers.py reports a wrong marker."""
    if marker is None or devices_misuse(marker.args, marker.kwargs, devices.known):
        return DeviceChoice(devices.ids())
    try:
        return devices.devices_of(marker.args, str(marker.kwargs.get("min_arch", "")))
    except Misuse as misuse:  # the user's settings are wrong
        devices.misuse = str(misuse)
        return DeviceChoice(("none",))


def device_parameters(marker: pytest.Mark | None, devices: RunDevices) -> Iterator[Any]:
    """Yields a parameter for each device. An absent device is skipped, and the summary counts it."""
    choice = choice_for_marker(marker, devices)
    for id in choice.devices:
        yield pytest.param(devices.device(id), id=id)
    for id, why in choice.missing:
        yield pytest.param(devices.device(id), id=id, marks=pytest.mark.skip(reason=_skip_reason(id, why)))


def _skip_reason(what: str, why: str) -> str:
    return f"needs {what}: {why}"


def device_classes(made: pytest.Class, tests: type, devices: RunDevices) -> list[pytest.Class]:
    """Makes a unittest class for each device that it or one of its methods is for, with `device` and `device_type`.

    A method whose own marker names devices is only in the classes of these devices.
    """
    own = choice_for_marker(_devices_marker(tests), devices)
    # By device, its methods, each with the reason why it is skipped or an empty text.
    found: dict[str, dict[str, str]] = {id: {} for id in (*own.devices, *(id for id, _ in own.missing))}
    for name in _test_names(tests):
        marker = _devices_marker(getattr(tests, name))
        choice = own if marker is None else choice_for_marker(marker, devices)
        for id, why in [*((id, "") for id in choice.devices), *choice.missing]:
            found.setdefault(id, {})[name] = _skip_reason(id, why) if why else ""
    return [_class_on_device(made, tests, devices.device(id), methods) for id, methods in found.items() if methods]


def _test_names(tests: type) -> Sequence[str]:
    """Returns the names of the methods that unittest runs."""
    return unittest.TestLoader().getTestCaseNames(tests) or ["runTest"] * hasattr(tests, "runTest")


def _devices_marker(marked: object) -> pytest.Mark | None:
    """Returns the marker `devices` of a class or a function; the most derived class counts."""
    return next((mark for mark in reversed(_marks(marked)) if mark.name == "devices"), None)


def _marks(marked: object) -> list[pytest.Mark]:
    """Returns the markers of a function, or of a class and its base classes, the base classes first."""
    holders: tuple[Any, ...] = marked.__mro__[::-1] if isinstance(marked, type) else (marked,)
    found: list[pytest.Mark] = []
    for holder in holders:
        marks: Any = getattr(holder, "__dict__", {}).get("pytestmark", [])
        found += [mark if isinstance(mark, pytest.Mark) else mark.mark for mark in _as_list(marks)]
    return found


def _as_list(marks: Any) -> list[Any]:
    """Returns `pytestmark` as a list; it may be one marker."""
    return cast(list[Any], marks) if isinstance(marks, list) else [marks]


def _class_on_device(made: pytest.Class, tests: type, device: Device, methods: Mapping[str, str]) -> pytest.Class:
    """Makes the class on one device, with some of its methods.

    Args:
        made: The class as pytest collected it.
        tests: The user's class.
        device: The device.
        methods: The names of the methods, each with the reason why it is skipped, or an empty text.
    """
    members: dict[str, Any] = {"device": device, "device_type": str(device), "__module__": tests.__module__}
    # unittest ignores a test method that is None.
    members |= {name: None for name in _test_names(tests) if name not in methods}
    if all(methods.values()):  # the class is skipped as a whole, so that it is not set up
        members |= {"__unittest_skip__": True, "__unittest_skip_why__": next(iter(methods.values()))}
    members |= {name: unittest.skip(why)(getattr(tests, name)) for name, why in methods.items() if why}
    kind: Any = type(made)
    one = kind.from_parent(made.parent, name=f"{made.name}[{device.id}]")
    one.obj = type(one.name, (tests,), members)
    one.own_markers.extend(_marks(tests))  # pytest does this only for classes that it found itself
    one.keywords.update((mark.name, mark) for mark in one.own_markers)
    return one


def asks_for_devices(tests: type) -> bool:
    """Tells whether a unittest class asks for devices, by the marker or by an annotation `device`."""
    is_annotated = any("device" in vars(base).get("__annotations__", {}) for base in tests.__mro__)
    return is_annotated or _devices_marker(tests) is not None


def torch_device_of(tests: type) -> str:
    """Returns the device type of a class that `instantiate_device_type_tests` made; empty for another class."""
    module: Any = sys.modules.get(TORCH_CLASSES)
    is_made = module is not None and issubclass(tests, module.DeviceTypeTestBase)
    return str(getattr(tests, "device_type", "")) if is_made else ""


def is_memory_chosen(memory: str, devices: RunDevices) -> bool:
    """Tells whether a chosen device has its tensors on this torch device type."""
    ids = devices.ids()
    return ids == ("none",) or any(devices.device(id) == memory for id in ids)


def mark_item(item: pytest.Item, compiler: str, expected: KnownFailures | None) -> None:
    """Marks a test that is for other compilers as skipped, and one with a known failure as expected to fail."""
    marker = item.get_closest_marker("compilers")
    if marker is not None and isinstance(failure := marker.kwargs.get(compiler), Xfail):
        expect_failure(item, failure)
    elif marker is not None and compiler not in (*marker.args, *marker.kwargs):
        others = ", ".join((*marker.args, *marker.kwargs))
        item.add_marker(pytest.mark.skip(reason=_skip_reason(f"compiler {others}", f"this is {compiler}")))
    if expected is not None:
        device, title = device_of(item), title_and_target(item)[0]
        names = (title, title.partition("[")[0], item.nodeid)
        expected.mark(item, names, device.id if device is not None else "")


def has_no_device(item: pytest.Item) -> bool:
    """Tells whether the user's settings leave out all devices that the test's marker names."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and not isinstance(callspec.params.get("minductor_device", ""), str)
