"""Issues warnings that point at the user's line.

Takes a warning. Gives it to Python's `warnings`, with the file and line of the innermost frame that is not in
minductor, torch or the standard library. Refuses nothing: if there is no such frame, as in a thread of autograd, no
line is named.

>>> import warnings
>>> with warnings.catch_warnings(record=True) as caught:
...     warnings.simplefilter("always")
...     warn("a note")
>>> print(caught[0].message)
[MD900] a note
"""

from __future__ import annotations

import inspect
import sys
import warnings
from types import FrameType

from minductor.core.errors import MinductorWarning

NOT_THE_USERS = frozenset(("minductor", "pytest_plugin", "torch", "triton", "filelock")) | sys.stdlib_module_names
NOWHERE = "<minductor>"


def warn(said: MinductorWarning | str) -> None:
    """Issues a warning; a text becomes a MinductorWarning."""
    message = MinductorWarning(said) if isinstance(said, str) else said
    frame = _users_frame(inspect.currentframe())
    if frame is None:
        warnings.warn_explicit(message, type(message), NOWHERE, 0)
        return
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        message, type(message), frame.f_code.co_filename, frame.f_lineno, names.get("__name__"), registry
    )


def _users_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == "__main__" or (name and name.partition(".")[0] not in NOT_THE_USERS):
            return frame
        frame = frame.f_back
    return None
