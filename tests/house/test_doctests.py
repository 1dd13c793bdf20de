"""The examples in docstrings are true."""

import doctest
import importlib

import pytest

from tests.house.rules import ROOT, module_name, source_files

WITH_EXAMPLES = [path for path in source_files() if ">>> " in (ROOT / path).read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES)
def test_examples(path: str) -> None:
    runner = doctest.DocTestRunner()
    for found in doctest.DocTestFinder().find(importlib.import_module(module_name(path))):
        if found.examples:  # each run asks for the date of every file whose lines Python has read: `testmod` is slow
            runner.run(found)
    assert runner.tries > 0 and runner.failures == 0


def test_wrong_example_is_found() -> None:
    examples = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(examples, out=lambda _: None).failed == 1
