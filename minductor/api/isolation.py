"""Lets Dynamo compile a program as if nothing had been compiled before, and forget it afterwards.

Takes a program. Gives a program that does the same with a code object of its own, which Dynamo has not seen; and a
context in which Dynamo knows no sizes of earlier calls, does not count earlier compiles against its recompile limit,
and forgets afterwards what it compiled. Refuses nothing. The user's other compiled functions stay compiled.

Functions that the program calls keep their code. If Dynamo breaks the graph in such a function, it treats the function
as in any other call: it runs the function in eager if earlier calls have reached the recompile limit, and a compile
here counts against that limit if the function had been compiled before.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType, MethodType
from typing import Any
from unittest import mock

RECOMPILES = 1024  # the limit of recompiles of an isolated program, in place of Dynamo's limit of 8


def fresh(program: Callable[..., Any]) -> Callable[..., Any]:
    """A program that does the same and has a code object of its own: Dynamo keeps its state by code object.

    >>> def double(x, *, by=2): return x * by
    >>> again = fresh(double)
    >>> again(4), again(4, by=3), again.__code__ is double.__code__
    (8, 12, False)
    """
    from torch._dynamo.eval_frame import OptimizedModule, innermost_fn

    program = innermost_fn(program)
    if isinstance(program, OptimizedModule):
        program = program._orig_mod
    if isinstance(program, FunctionType):
        return _copied(program)
    if isinstance(program, MethodType) and isinstance(program.__func__, FunctionType):
        return MethodType(_copied(program.__func__), program.__self__)

    self = program  # Dynamo names modules by this variable: they are to be named as when the program is compiled itself

    def call(*args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    return _copied(call)


def _copied(function: FunctionType) -> FunctionType:
    code = function.__code__.replace()
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


@contextmanager
def isolated() -> Iterator[None]:
    """A context for the compile and the run of a `fresh` program."""
    import torch
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list, reset_code
    from torch._dynamo import convert_frame, pgo

    was_compiled: dict[int, tuple[CodeType, bool]] = {}  # by identity: equal code may be of two functions

    def compiles(code: CodeType, new_code: CodeType) -> None:
        was_compiled.setdefault(id(code), (code, bool(_debug_get_cache_entry_list(code))))

    with ExitStack() as stack:
        limits = {"recompile_limit": RECOMPILES, "accumulated_recompile_limit": RECOMPILES}
        stack.enter_context(torch._dynamo.config.patch(limits))
        stack.enter_context(mock.patch.object(pgo, "_CODE_STATE", collections.defaultdict(pgo.CodeState)))
        stack.callback(convert_frame.register_bytecode_hook(compiles).remove)
        try:
            yield
        finally:
            for code, is_kept in was_compiled.values():
                if not is_kept:
                    reset_code(code)
