"""Runs one function of a compiler with a piece of its text replaced, in this process, for the time of a context.

Takes a Mutant. Gives a context in which the function has the fault, and a function that tells whether the faulty code
ran. Refuses (Stale) a mutant whose old text does not occur exactly once in its function, and a function with a closure:
such a row of the table is out of date.

>>> import html
>>> mutant = Mutant("raw", "html", "escape", '"&", "&amp;"', '"&", "&"')
>>> with mutated(mutant) as was_reached:
...     html.escape("<&>"), was_reached()
('&lt;&&gt;', True)
>>> html.escape("<&>")
'&lt;&amp;&gt;'
>>> recompiled(html.escape, Mutant("raw", "html", "escape", "escape all", ""))
Traceback (most recent call last):
pytest_plugin.faults.mutants.Stale: raw: 'escape all' occurs 0 times in html.escape
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from pytest_plugin.adapters import Mutant

REACHED_MARK = "_mutant_was_reached"


class Stale(ValueError):
    """A mutant does not fit the code that it is about."""


@contextmanager
def mutated(mutant: Mutant) -> Generator[Callable[[], bool]]:
    """Gives the function its faulty code in the context.

    Args:
        mutant: The fault.

    Yields:
        A function that tells whether the faulty code has run.

    Raises:
        Stale: The mutant does not fit the code.
    """
    function = find_function(mutant)
    code = recompiled(function, mutant)
    calls: list[bool] = []
    space, right = function.__globals__, function.__code__
    space[REACHED_MARK] = calls.append
    function.__code__ = code
    try:
        yield lambda: bool(calls)
    finally:
        function.__code__ = right
        del space[REACHED_MARK]


def find_function(mutant: Mutant) -> FunctionType:
    """Returns the mutant's function, below properties and other wrappers. Raises Stale if there is none."""
    found: Any = importlib.import_module(mutant.module)
    for name in mutant.function.split("."):
        found = inspect.getattr_static(found, name)
    for inner in ("fget", "func", "__func__", "__wrapped__"):
        found = getattr(found, inner, found)
    if not isinstance(found, FunctionType):
        raise Stale(f"{mutant.name}: {mutant.module}.{mutant.function} is no function in Python")
    return found


def recompiled(function: FunctionType, mutant: Mutant) -> CodeType:
    """Returns the code of the function with the fault; it first records that it runs. Raises Stale."""
    try:
        lines, start = inspect.getsourcelines(function)
    except OSError as error:
        raise Stale(f"{mutant.name}: {mutant.module}.{mutant.function}: {error}") from None
    source = textwrap.dedent("".join(lines))
    count = source.count(mutant.old)
    if count != 1:
        where = f"{mutant.module}.{mutant.function}"
        raise Stale(f"{mutant.name}: {mutant.old!r} occurs {count} times in {where}")
    tree = ast.parse(source.replace(mutant.old, mutant.new))
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or function.__code__.co_freevars:
        raise Stale(f"{mutant.name}: {function.__qualname__} has a closure")
    definition.decorator_list = []
    note = ast.parse(f"{REACHED_MARK}(True)").body[0]
    body = definition.body
    place = 1 if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else 0
    body.insert(place, ast.copy_location(note, body[min(place, len(body) - 1)]))
    ast.fix_missing_locations(tree)
    ast.increment_lineno(tree, start - 1)
    flags = __future__.annotations.compiler_flag
    module = compile(tree, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    return next(code for code in module.co_consts if isinstance(code, CodeType))
