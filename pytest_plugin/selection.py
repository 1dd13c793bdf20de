"""Which of the tests run, and on which devices.

Takes what pytest collects and the state of the run. Gives parameters, a class for each device, and marks: tests that
are for other compilers are skipped with a reason, and known failures are expected. Refuses misuse of markers, as text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pytest_plugin.devices import Choice, marker_misuse
from pytest_plugin.expected import expect
from pytest_plugin.session import State, device_of, owner_of
from pytest_plugin.xfail import Xfail

TORCH_CLASSES = "torch.testing._internal.common_device_type"


def choice_of(marker: pytest.Mark | None, state: State) -> Choice:
    """The devices of a test, by its marker if it has one. A wrong marker is told later, with the other misuse."""
    if marker is None or marker_misuse(marker.args, marker.kwargs, state.known):
        return Choice(state.devices())
    return state.devices_of(marker.args, str(marker.kwargs.get("min_arch", "")))


def parameters(marker: pytest.Mark | None, state: State) -> Iterator[Any]:
    """A parameter for each device; one that is absent is skipped, and the summary counts it."""
    choice = choice_of(marker, state)
    for id in choice.devices:
        yield pytest.param(state.device(id), id=id)
    for id, why in choice.missing:
        yield pytest.param(state.device(id), id=id, marks=pytest.mark.skip(reason=_lack(id, why)))


def _lack(what: str, why: str) -> str:
    return f"needs {what}: {why}"


def classes(made: pytest.Class, tests: type, state: State) -> list[pytest.Class]:
    """A class of unittest once for each device, with `device` and `device_type`."""
    marker = next((mark for mark in getattr(tests, "pytestmark", ()) if mark.name == "devices"), None)
    choice = choice_of(marker, state)
    return [_on(made, tests, id, why, state) for id, why in [*((id, "") for id in choice.devices), *choice.missing]]


def _on(made: pytest.Class, tests: type, id: str, why: str, state: State) -> pytest.Class:
    device = state.device(id)
    members: dict[str, Any] = {"device": device, "device_type": str(device), "__module__": tests.__module__}
    if why:
        members |= {"__unittest_skip__": True, "__unittest_skip_why__": _lack(id, why)}
    kind: Any = type(made)
    one = kind.from_parent(made.parent, name=f"{made.name}[{id}]")
    one.obj = type(one.name, (tests,), members)
    return one


def asks_for_devices(tests: type) -> bool:
    """Whether a class of unittest is for each device, by the marker or an annotation `device`."""
    marks = getattr(tests, "pytestmark", ())
    return any(mark.name == "devices" for mark in marks) or any(
        "device" in vars(base).get("__annotations__", {}) for base in tests.__mro__
    )


def torch_device_of(tests: type) -> str:
    """The device of a class that PyTorch's `instantiate_device_type_tests` made; empty for another class."""
    module: Any = sys.modules.get(TORCH_CLASSES)
    is_made = module is not None and issubclass(tests, module.DeviceTypeTestBase)
    return str(getattr(tests, "device_type", "")) if is_made else ""


def runs_on(memory: str, state: State) -> bool:
    """Whether a device is chosen that computes on this memory."""
    ids = state.devices()
    return ids == ("none",) or any(state.device(id) == memory for id in ids)


def mark(item: pytest.Item, state: State) -> None:
    """What is known of the test on the compiler under test."""
    name = state.adapter.name
    marker = item.get_closest_marker("compilers")
    if marker is not None and isinstance(failure := marker.kwargs.get(name), Xfail):
        expect(item, failure)
    elif marker is not None and name not in (*marker.args, *marker.kwargs):
        others = ", ".join((*marker.args, *marker.kwargs))
        item.add_marker(pytest.mark.skip(reason=_lack(f"compiler {others}", f"this is {name}")))
    if state.expected is not None:
        device, title = device_of(item), owner_of(item)[0]
        names = (title, title.partition("[")[0], item.nodeid)
        state.expected.mark(item, names, device.id if device is not None else "")


def has_no_device(item: pytest.Item) -> bool:
    """Whether the user's settings leave none of the devices that the test's marker names."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and not isinstance(callspec.params.get("minductor_device", ""), str)


def misuse(items: Sequence[pytest.Item], state: State) -> str:
    """Why the run cannot be as it was asked for, or nothing."""
    from pytest_plugin import markers

    if wrong := next((found for item in items if (found := markers.misuse(item, state))), ""):
        return wrong
    return state.expected.unknown() if state.expected is not None else ""
