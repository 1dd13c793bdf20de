"""Known failures: rows of a TOML file, and `@pytest.mark.compilers(inductor=xfail("the reason"))`.

Takes the file that the ini key `expected_failures` names. Gives rows, and marks tests with them: a test that passes
nevertheless fails, and so does one whose failure does not contain the text of its row. Refuses a row without a reason,
a row with an unknown key, and one that names a test, a device or a compiler that does not exist (ValueError).

    [[failure]]
    test = "tests/test_norm.py::test_layer_norm"    # with [parameters] or for all of them; never with the device
    reason = "block accesses of rows that are no power of two"
    device = "compile:sm_90"                        # every device, unless given
    compiler = "mine"                               # every compiler, unless given
    says = "block_accesses"                         # a text that the failure must contain, if given
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_plugin.stash import EXPECTED_TEXT
from pytest_plugin.xfail import Xfail

ROW_KEYS = ("test", "reason", "device", "compiler", "says")


@dataclass(frozen=True, slots=True)
class FailureRow:
    """One row of the file. An empty device or compiler stands for all of them."""

    test: str
    reason: str
    device: str = ""
    compiler: str = ""
    says: str = ""

    def __str__(self) -> str:
        return f"{self.test} on {self.device}" if self.device else self.test


def read_failures(
    text: str, compiler: str, devices: Collection[str], compilers: Collection[str]
) -> tuple[FailureRow, ...]:
    """Returns the rows that concern a compiler.

    Args:
        text: The content of the file.
        compiler: The compiler under test.
        devices: The ids that it takes.
        compilers: The names of all compilers.

    Returns:
        The rows.

    Raises:
        ValueError: The file is not TOML, or a row is wrong.

    >>> read_failures("[[failure]]\\ntest = 'test_a.py::test_x'", "mine", (), ())
    Traceback (most recent call last):
    ValueError: row 1 has no reason
    """
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(str(error)) from None
    tables: list[dict[str, Any]] = found.pop("failure", [])
    if found:
        raise ValueError("the file has tables [[failure]] and nothing else")
    every = [_read_row(number, table, compilers) for number, table in enumerate(tables, 1)]
    own = tuple(row for row in every if row.compiler in ("", compiler))
    for row in own:
        if row.device and row.device not in devices:
            raise ValueError(f"{row.test} names the device {row.device!r}; {compiler} takes {', '.join(devices)}")
    return own


def _read_row(number: int, table: Mapping[str, Any], compilers: Collection[str]) -> FailureRow:
    for word, value in table.items():
        if word not in ROW_KEYS or not isinstance(value, str):
            raise ValueError(f"row {number}: {word} = {value!r}; a row has texts: {', '.join(ROW_KEYS)}")
    for word in ("test", "reason"):
        if not table.get(word):
            raise ValueError(f"row {number} has no {word}")
    row = FailureRow(**table)
    if row.compiler and row.compiler not in compilers:
        raise ValueError(f"row {number} names the compiler {row.compiler!r}; there are {', '.join(compilers)}")
    return row


@dataclass(slots=True)
class KnownFailures:
    """The rows that concern the compiler under test, and the tests that they match.

    Attributes:
        rows: The rows.
        root: The root of the tests.
        is_partial: Whether not all tests of a module are collected.
        modules: The modules of the collected tests.
        found: The rows whose test exists.
        used: The rows whose test runs on their device.
    """

    rows: Sequence[FailureRow]
    root: Path
    is_partial: bool = False
    modules: set[str] = field(default_factory=set[str])
    found: set[FailureRow] = field(default_factory=set[FailureRow])
    used: set[FailureRow] = field(default_factory=set[FailureRow])

    def mark(self, item: pytest.Item, titles: Collection[str], device: str) -> None:
        """Marks a test as expected to fail if a row matches one of its names and its device."""
        self.modules.add(item.nodeid.partition("::")[0])
        for row in self.rows:
            if row.test in titles:
                self.found.add(row)
                if row.device in ("", device):
                    expect_failure(item, Xfail(row.reason, row.says))
                    self.used.add(row)

    def unknown(self) -> str:
        """Returns what is wrong with a row whose test does not exist, as far as was collected, or an empty text."""
        for row in self.rows:
            module = row.test.partition("::")[0]
            is_seen = module in self.modules and not self.is_partial
            if row not in self.found and (is_seen or not (self.root / module).exists()):
                return f"a failure is expected of {row.test}, and there is no such test"
        return ""

    def unused(self, devices: Collection[str]) -> list[str]:
        """Returns the rows whose test exists and does not run on their device, though other tests do."""
        return [str(row) for row in self.rows if row in self.found - self.used and row.device in devices]


def expect_failure(item: pytest.Item, failure: Xfail) -> None:
    """Marks a test as expected to fail; a test that passes is an error."""
    item.add_marker(pytest.mark.xfail(reason=failure.reason, strict=True))
    item.stash[EXPECTED_TEXT] = failure.says


def contradiction(item: pytest.Item, failure: str) -> str:
    """Returns what is wrong with a known failure whose message lacks the expected text, or an empty text."""
    wanted = item.stash.get(EXPECTED_TEXT, "")
    return "" if wanted in failure else f"the failure was expected to contain {wanted!r}; it is\n{failure}"
