"""Random programs without rewrites, and frozen: all arguments but the first are buffers of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from minductor.driver import Compiler
from pytest_plugin.random_programs.verdict import judge
from tests.e2e.hunt import Name
from tests.frozen_function import frozen

FIRST = 2_000_000  # other programs than those of the hunt and of test_random_programs.py


def without_gradients(seen: list[Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled as a frozen module at each call."""
    compiler = Compiler(observer=seen.append)

    def call(*args: Any) -> Any:
        torch.compiler.reset()
        with torch.no_grad():
            return frozen(fn, compiler, slice(1, None), options={"freeze": True})(*args)

    return call


def plain(seen: list[Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled without rewrites."""
    return torch.compile(fn, backend=Compiler(observer=seen.append), options={"rewrites": "-all"}, fullgraph=True)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.compiler.reset()


@pytest.mark.parametrize(("first", "count"), [(FIRST, 2), pytest.param(FIRST + 2, 42, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", [without_gradients, plain])
def test_equal_eager(how: Callable[..., Any], first: int, count: int) -> None:
    bad: list[str] = []
    words: list[str] = []
    seen: list[Any] = []
    for number in range(first, first + count):
        program = Name("floats", number).program()
        found = judge(program, lambda fn: how(seen, fn))
        words.append(found.word)
        if found.is_bad:
            bad.append(f"{found.word}: {found.why}{program}")
    assert not bad, "\n".join(bad)
    assert words.count("right") >= count - 1, words
    assert any(each.report.frozen_bytes for each in seen) == (how is without_gradients)
