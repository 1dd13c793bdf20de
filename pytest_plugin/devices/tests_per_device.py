"""Which of the tests run, and on which devices.

Takes what pytest collects and the state of the run. Gives parameters, a class for each device, and marks: tests that
are for other compilers are skipped with a reason, and known failures are expected. Refuses misuse of markers, as text.
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
    """The devices of a test, by its marker if it has one. A wrong marker is told later, with the other misuse."""
    if marker is None or devices_misuse(marker.args, marker.kwargs, devices.known):
        return DeviceChoice(devices.ids())
    try:
        return devices.devices_of(marker.args, str(marker.kwargs.get("min_arch", "")))
    except Misuse as misuse:  # of the user's settings
        devices.misuse = str(misuse)
        return DeviceChoice(("none",))


def device_parameters(marker: pytest.Mark | None, devices: RunDevices) -> Iterator[Any]:
    """A parameter for each device; one that is absent is skipped, and the summary counts it."""
    choice = choice_for_marker(marker, devices)
    for id in choice.devices:
        yield pytest.param(devices.device(id), id=id)
    for id, why in choice.missing:
        yield pytest.param(devices.device(id), id=id, marks=pytest.mark.skip(reason=_skip_reason(id, why)))


def _skip_reason(what: str, why: str) -> str:
    return f"needs {what}: {why}"


def device_classes(made: pytest.Class, tests: type, devices: RunDevices) -> list[pytest.Class]:
    """A class of unittest once for each device that it or one of its methods is for, with `device` and `device_type`.

    A method whose own marker names devices stands in the classes of these only.
    """
    own = choice_for_marker(_devices_marker(tests), devices)
    # by device, the methods with the reason why each is skipped, "" for none
    found: dict[str, dict[str, str]] = {id: {} for id in (*own.devices, *(id for id, _ in own.missing))}
    for name in _test_names(tests):
        marker = _devices_marker(getattr(tests, name))
        choice = own if marker is None else choice_for_marker(marker, devices)
        for id, why in [*((id, "") for id in choice.devices), *choice.missing]:
            found.setdefault(id, {})[name] = _skip_reason(id, why) if why else ""
    return [_class_on_device(made, tests, devices.device(id), methods) for id, methods in found.items() if methods]


def _test_names(tests: type) -> Sequence[str]:
    """The methods that unittest runs."""
    return unittest.TestLoader().getTestCaseNames(tests) or ["runTest"] * hasattr(tests, "runTest")


def _devices_marker(marked: object) -> pytest.Mark | None:
    """The marker of a class or a function that names its devices; of classes the most derived one's."""
    return next((mark for mark in reversed(_marks(marked)) if mark.name == "devices"), None)


def _marks(marked: object) -> list[pytest.Mark]:
    """The markers of a function, or those of a class behind those of the classes that it is derived from."""
    holders: tuple[Any, ...] = marked.__mro__[::-1] if isinstance(marked, type) else (marked,)
    found: list[pytest.Mark] = []
    for holder in holders:
        marks: Any = getattr(holder, "__dict__", {}).get("pytestmark", [])
        found += [mark if isinstance(mark, pytest.Mark) else mark.mark for mark in _as_list(marks)]
    return found


def _as_list(marks: Any) -> list[Any]:
    """`pytestmark` may be one marker or a list."""
    return cast(list[Any], marks) if isinstance(marks, list) else [marks]


def _class_on_device(made: pytest.Class, tests: type, device: Device, methods: Mapping[str, str]) -> pytest.Class:
    """The class on one device, with these of its methods; a reason is why one of them is skipped."""
    members: dict[str, Any] = {"device": device, "device_type": str(device), "__module__": tests.__module__}
    # unittest takes no test for one that is not callable
    members |= {name: None for name in _test_names(tests) if name not in methods}
    if all(methods.values()):  # nor is the class set up
        members |= {"__unittest_skip__": True, "__unittest_skip_why__": next(iter(methods.values()))}
    members |= {name: unittest.skip(why)(getattr(tests, name)) for name, why in methods.items() if why}
    kind: Any = type(made)
    one = kind.from_parent(made.parent, name=f"{made.name}[{device.id}]")
    one.obj = type(one.name, (tests,), members)
    one.own_markers.extend(_marks(tests))  # which pytest takes from a class that it has found by itself
    one.keywords.update((mark.name, mark) for mark in one.own_markers)
    return one


def asks_for_devices(tests: type) -> bool:
    """Whether a class of unittest is for each device, by the marker or an annotation `device`."""
    is_annotated = any("device" in vars(base).get("__annotations__", {}) for base in tests.__mro__)
    return is_annotated or _devices_marker(tests) is not None


def torch_device_of(tests: type) -> str:
    """The device of a class that PyTorch's `instantiate_device_type_tests` made; empty for another class."""
    module: Any = sys.modules.get(TORCH_CLASSES)
    is_made = module is not None and issubclass(tests, module.DeviceTypeTestBase)
    return str(getattr(tests, "device_type", "")) if is_made else ""


def is_memory_chosen(memory: str, devices: RunDevices) -> bool:
    """Whether a device is chosen that computes on this memory."""
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
    """Whether the user's settings leave none of the devices that the test's marker names."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and not isinstance(callspec.params.get("minductor_device", ""), str)
