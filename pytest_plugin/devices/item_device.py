"""The device of a collected test, and the test's name without it.

Takes a test item. Gives its Device and the parts of its name. Refuses nothing: a test without a device gives None.
"""

from __future__ import annotations

import pytest

from pytest_plugin.devices.device_choice import Device


def device_of(item: pytest.Item) -> Device | None:
    """Returns the device that a test was parametrised with, or that its class was made for, or None."""
    if (callspec := getattr(item, "callspec", None)) is not None:
        found = callspec.params.get("minductor_device")
        return found if isinstance(found, Device) else None  # pytest puts a value of its own where no device is left
    of_class = getattr(getattr(item, "cls", None), "device", None)
    return of_class if isinstance(of_class, Device) else None


def name_without_device(item: pytest.Item) -> tuple[str, str]:
    """Returns the test's id without parameters, and its parameters besides the device."""
    device = device_of(item)
    if device is not None and not hasattr(item, "callspec"):
        return item.nodeid.replace(f"[{device.id}]::", "::", 1), ""
    node, _, parameters = item.nodeid.partition("[")
    parameters = parameters.removesuffix("]")
    if device is not None:  # the plugin parametrises first, so the device is the first parameter
        parameters = parameters.removeprefix(device.id).removeprefix("-")
    return node, parameters


def title_and_target(item: pytest.Item) -> tuple[str, str]:
    """Returns the test's id without its device, which its golden files name, and the target of these files."""
    node, parameters = name_without_device(item)
    device = device_of(item)
    return node + (f"[{parameters}]" if parameters else ""), device.target if device is not None else "any"
