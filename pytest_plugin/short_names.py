"""The fixtures `device` and `golden`, for suites in which no other plugin has fixtures of these names.

Takes the fixtures with the long names. Gives them under the short ones. Refuses nothing. Where another plugin has a
fixture of a short name, that fixture stays; a folder that wants this plugin's imports it in its conftest.py:

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
    """The device that the test runs on, a str that torch calls take; the test runs once for each device.

    Args:
        minductor_device: The same fixture under its long name.

    Returns:
        A `Device`: a str such as "cuda", with `id`, `kind` and `target`.
    """
    return minductor_device


@pytest.fixture
def golden(minductor_golden: Goldens) -> Goldens:
    """Compare generated text with the test's golden file: golden.check(run), golden.text(name, text).

    Args:
        minductor_golden: The same fixture under its long name.

    Returns:
        The `Goldens` of this test.
    """
    return minductor_golden
