"""The device of a collected test, and the test's name without it.

Takes a test item. Gives its Device and the parts of its name. Refuses nothing: a test without a device gives None.
"""

from __future__ import annotations

import pytest

from pytest_plugin.devices.device_choice import Device


def device_of(item: pytest.Item) -> Device | None:
    """The device that the test was parametrised with, or that its class was made for, if it asks for one."""
    if (callspec := getattr(item, "callspec", None)) is not None:
        return callspec.params.get("minductor_device")
    of_class = getattr(getattr(item, "cls", None), "device", None)
    return of_class if isinstance(of_class, Device) else None


def name_without_device(item: pytest.Item) -> tuple[str, str]:
    """The test's id without parameters, and its parameters other than the device."""
    device = device_of(item)
    if device is not None and not hasattr(item, "callspec"):
        return item.nodeid.replace(f"[{device.id}]::", "::", 1), ""
    node, _, parameters = item.nodeid.partition("[")
    parameters = parameters.removesuffix("]")
    if device is not None:  # the plugin parametrises first, so the device opens the list
        parameters = parameters.removeprefix(device.id).removeprefix("-")
    return node, parameters


def title_and_target(item: pytest.Item) -> tuple[str, str]:
    """The test's id without its device, which its golden files name, and the target that these files are for."""
    node, parameters = name_without_device(item)
    device = device_of(item)
    return node + (f"[{parameters}]" if parameters else ""), device.target if device is not None else "any"
