"""The text of a graph's wrapper, in the language that the options ask for or in Python.

Takes a memory plan, the Env and the backend. Gives the text and the suffix of its file. Refuses a language that the
backend has no wrapper in (BackendError).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from minductor.core.errors import BackendError, NotNative, WrapperReplaced
from minductor.core.warn import warn
from minductor.pipeline import resolve

if TYPE_CHECKING:
    from minductor.backends import Backend
    from minductor.ir.plan.plan import Plan
    from minductor.target import Env


def wrapper_text(plan: Plan, env: Env, backend: Backend) -> tuple[str, str]:
    """The text of the wrapper and its file's suffix.

    The wrapper is written in Python where C++ was asked for and does not suffice: the plan holds something that C++ has
    no form for, or the backend has no C++ wrapper, which is no error since one compile may hold graphs of several
    devices.
    """
    language = env.options.wrapper
    has_python = "python" in backend.wrappers
    try:
        if language == "cpp" and has_python and language not in backend.wrappers:
            raise NotNative(f"a graph for {backend.kind}")
        if language not in backend.wrappers:
            hint = f"options={{'wrapper': ...}} may be {', '.join(backend.wrappers)}"
            raise BackendError(f"backend {backend.kind!r} has no wrapper in {language!r}", hint=hint)
        return resolve(backend.wrappers[language])(plan, env), {"python": "py", "fx": "json"}.get(language, language)
    except NotNative as reason:
        if not has_python:
            raise
        warn(WrapperReplaced(reason.what))
        return resolve(backend.wrappers["python"])(plan, env), "py"


def python_calls(plan: Plan) -> Iterator[str]:
    """A note about each operator that a C++ wrapper has Python call; nothing else there runs in Python."""
    from minductor.codegen.wrapper.wrapper_cpp import needs_python

    yield from (f"{op} is called by Python" for op in needs_python(plan))
