"""The examples in docstrings are true."""

import doctest
import importlib

import pytest

from tests.house.rules import ROOT, module_name, source_files

WITH_EXAMPLES = [path for path in source_files() if ">>> " in (ROOT / path).read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES)
def test_examples(path: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module_name(path)))
    assert tried > 0 and failed == 0


def test_wrong_example_is_found() -> None:
    examples = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(verbose=False).run(examples, out=lambda _: None).failed == 1
