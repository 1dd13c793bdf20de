"""Warnings point at the user's line, or at none; nothing of ours warns in another way."""

from __future__ import annotations

import inspect
import threading
import warnings

import torch

from minductor.core.errors import MinductorWarning, RanInEager
from minductor.core.warn import NOWHERE, warn
from minductor.driver import Compiler


def test_a_graph_in_eager_is_said_of_the_line_that_calls_it() -> None:
    compiled = torch.compile(lambda x: x + 1, backend=Compiler())
    zeros = torch.ops.aten._efficientzerotensor([3])  # has no memory
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = inspect.currentframe().f_lineno + 1  # pyright: ignore[reportOptionalMemberAccess]
        compiled(zeros)
    (found,) = [each for each in caught if each.category is RanInEager]
    assert (found.filename, found.lineno) == (__file__, line)


def test_so_is_what_a_target_lacks() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.compile(torch.sin, backend=Compiler(), options={"cudagraphs": True})(torch.ones(3))
    ours = [each for each in caught if issubclass(each.category, MinductorWarning)]
    assert "CUDA graphs have no effect on cpu" in str(ours[0].message)
    assert {each.filename for each in ours} == {__file__}


def test_without_a_line_of_the_user_it_names_none() -> None:
    """As in a thread of autograd: all frames are torch's, ours, or the standard library's."""
    names = {"__name__": "torch.autograd", "warn": warn}
    thread = threading.Thread(target=eval, args=("warn('careful')", names))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread.start()
        thread.join(timeout=60)
    (found,) = caught
    assert (found.filename, str(found.message)) == (NOWHERE, "[MD900] careful")


def test_a_line_is_said_once_by_default() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warn("once")
    assert len(caught) == 1
