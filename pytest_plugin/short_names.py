"""`device` and `golden`, for suites in which no other plugin has fixtures of these names.

Where another plugin has one, its own stays; a folder that wants ours imports it in its conftest.py:

    from pytest_plugin.short_names import device, golden
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_plugin.devices.device_choice import Device
    from pytest_plugin.goldens.golden import Goldens


@pytest.fixture
def device(minductor_device: Device) -> Device:
    """The device that the test runs on, a str that torch calls take; the test is parametrised with each one."""
    return minductor_device


@pytest.fixture
def golden(minductor_golden: Goldens) -> Goldens:
    """Compare generated text with the test's golden file: golden.check(run), golden.text(name, text)."""
    return minductor_golden
