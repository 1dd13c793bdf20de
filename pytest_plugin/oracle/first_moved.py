"""Asks the compiler under test at which of its stages the numbers of a failing test moved.

Takes the call whose results were wrong. Gives a line for the test's report, and beside the test's script a file that
shows the compile. Never hides the failure: what goes wrong here is part of the line. Refuses to take longer than
MOST_SECONDS, and to ask again after MOST_ASKED failures of one process.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_plugin.oracle import reference_runs
from pytest_plugin.oracle.repro_script import CompiledCall

MOST_SECONDS = 60.0
MOST_ASKED = 5


class TooLong(BaseException):
    """The compiler has not answered in time. No Exception, so that nothing between here and the timer swallows it."""


def moved_line(
    explain: Callable[..., tuple[str, Path]],
    call: CompiledCall,
    options: Mapping[str, object],
    script: Path,
    *,
    seconds: float = MOST_SECONDS,
) -> str:
    """Returns the line about the first stage whose numbers moved; an empty text if there is no time to ask.

    The user's function is run once, compiled, on a copy of the arguments.

    Args:
        explain: The adapter's `explain_wrong`.
        call: The call that failed.
        options: Options of the compiler, those for the device included.
        script: The path of the test's script; what shows the compile is written beside it.
        seconds: How long it may take.
    """
    if threading.current_thread() is not threading.main_thread():
        return ""  # only the main thread gets the timer's signal
    try:
        with _limited(seconds):
            script.parent.mkdir(parents=True, exist_ok=True)
            own = reference_runs.copy_call(reference_runs.OwnedCall(call.fn, call.args, call.kwargs), exact=False)
            if call.grad:
                _require_grad((own.args, own.kwargs))
            stage, page = explain(own.fn, own.args, own.kwargs, options, call.dynamic, script)
    except TooLong:
        return f"moved   not known: the stages were not evaluated in {seconds:g} s"
    except Exception as error:
        return f"moved   not known: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return f"moved   {stage or 'no stage by more than rounding'}, {page}"


def _require_grad(values: Any) -> None:
    import torch
    from torch.utils._pytree import tree_leaves

    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.is_leaf and value.dtype.is_floating_point:
            value.requires_grad_()


@contextmanager
def _limited(seconds: float) -> Generator[None]:
    """Raises TooLong in the context once the time is over; a timer that was set before goes on afterwards."""

    def stop(number: int, frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, again)
        signal.signal(signal.SIGALRM, before)
