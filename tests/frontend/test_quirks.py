"""The table of torch's quirks: each row is shown by torch itself, so that it goes once torch does otherwise."""

from __future__ import annotations

import inspect
from functools import reduce
from importlib import import_module

import pytest
import torch

from minductor.frontend.quirks.known_quirks import ALL, QUIRKS, Quirk
from tests.frontend import torch_quirks

INSTALLED = ".".join(torch.__version__.split(".")[:2])
VERSION = INSTALLED if INSTALLED in ALL.split() else ALL.split()[-1]  # a newer torch is to do what the newest here does


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("quirk", QUIRKS, ids=[quirk.name for quirk in QUIRKS])
def test_torch_still_does_it(quirk: Quirk) -> None:
    if VERSION not in quirk.versions.split():
        pytest.skip(f"seen in torch {quirk.versions} only")
    assert getattr(torch_quirks, quirk.name)(), f"torch {INSTALLED} no longer does this: delete the row {quirk.name}"


def test_every_row_is_shown_once() -> None:
    functions = inspect.getmembers(torch_quirks, inspect.isfunction)
    shown = [name for name, value in functions if value.__module__ == torch_quirks.__name__ and name[0] != "_"]
    assert sorted(shown) == sorted(quirk.name for quirk in QUIRKS)


def test_quirks_are_shown_by_torch_alone() -> None:
    assert "import minductor" not in (source := inspect.getsource(torch_quirks)) and "from minductor" not in source


@pytest.mark.parametrize("quirk", QUIRKS, ids=[quirk.name for quirk in QUIRKS])
def test_each_row_names_versions_and_the_code_that_handles_it(quirk: Quirk) -> None:
    assert set(quirk.versions.split()) <= set(ALL.split())
    module, _, name = quirk.handled_by.partition(":")
    assert reduce(getattr, name.split("."), import_module(f"minductor.{module}"))
