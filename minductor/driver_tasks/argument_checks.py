"""Checks the arguments of public functions before anything else happens.

Takes the arguments of a public function. Gives nothing. Refuses each argument that the function could not use
(BadArgument, BadCall), in one line that says what the function takes instead.

>>> check_program("compile_only", 5)
Traceback (most recent call last):
...
minductor.core.errors.BadArgument: [MD007] the program of compile_only cannot be 5 (int)
  hint: it takes a function or a torch.nn.Module
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minductor.core.errors import BadArgument, BadCall, NoAheadOfTime

PROGRAM = "a function or a torch.nn.Module"


def check_program(door: str, program: Any, *, takes: str = PROGRAM) -> None:
    """Raises BadArgument if `program` cannot be called; `door` is the name of the public function."""
    name = f"the program of {door}"
    if isinstance(program, type):
        raise BadArgument(name, program, takes, why="it is a class: make an instance of it")
    if not callable(program):
        raise BadArgument(name, program, takes)


def check_call(program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises BadCall if the program's signature does not take the arguments; without a signature it takes any."""
    import torch

    called: Any = program
    if isinstance(program, torch.nn.Module):
        if program._forward_pre_hooks_with_kwargs:  # such a hook may replace all arguments
            return
        called = program.forward
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # an operator in C++
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise BadCall(f"{name_of(program)}{signature}", str(error)) from None


def name_of(program: Callable[..., Any]) -> str:
    """The name of a program in errors."""
    return getattr(program, "__qualname__", "") or type(program).__name__


def check_exported(door: str, program: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> None:
    """Raises if torch.export does not take these arguments. An ExportedProgram has its own arguments."""
    import torch

    if not isinstance(args, tuple | list):
        raise BadArgument(f"args of {door}", args, "a tuple of the arguments, as (x,)")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise BadArgument(f"kwargs of {door}", kwargs, "a mapping of arguments by name")
    if dynamic_shapes is not None and not isinstance(dynamic_shapes, Mapping | tuple | list):
        raise BadArgument(f"dynamic_shapes of {door}", dynamic_shapes, "what torch.export.export takes")
    if not isinstance(program, torch.export.ExportedProgram):
        check_program(door, program, takes=f"{PROGRAM.replace(' or', ',')} or a torch.export.ExportedProgram")
        check_call(program, args, kwargs or {})


def check_compiler(given: Mapping[str, Any]) -> None:
    """Raises BadArgument if the Compiler could not use one of its arguments, `given` by name."""
    for name, attribute, takes in (
        ("observer", "__call__", "a function of a minductor.driver.Compiled"),
        ("graph_pass", "__call__", "a function that changes a torch.fx.GraphModule"),
        ("tuning_clock", "__call__", "a function that gives the seconds of a call"),
        ("store", "put", "a minductor.runtime.store.store.Store; options={'cache_dir': PATH} names a folder"),
        ("trace", "stage", "a minductor.tracing.trace.Trace; options={'trace': ...} takes text"),
    ):
        if given[name] is not None and not hasattr(given[name], attribute):
            raise BadArgument(f"Compiler({name}=...)", given[name], takes)
    environ = given["environ"]
    if environ is not None and not isinstance(environ, Mapping):
        raise BadArgument("Compiler(environ=...)", environ, "a mapping of names to text, as os.environ is")
    for name, value in (environ or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadArgument(f"Compiler(environ=...)[{name!r}]", value, "text, as os.environ holds")


def check_rewrites(rows: Any) -> None:
    """Raises BadArgument if `rows` are no rows for the table of rewrites."""
    name, takes = "Compiler(rewrites=...)", "a tuple of minductor.Rewrite"
    if not isinstance(rows, tuple | list):
        raise BadArgument(name, rows, takes)
    if rows:
        from minductor.frontend.rewrites.rewrite_row import row_objection

        for number, row in enumerate(rows):
            if why := row_objection(row):
                raise BadArgument(f"{name}[{number}]", row, takes, why=why)


def check_graph(given: Any) -> None:
    """Raises BadArgument if `given` is not what Dynamo gives a backend."""
    import torch

    if not isinstance(given, torch.nn.Module):
        raise BadArgument("the graph of a backend", given, "a torch.fx.GraphModule, as torch.compile gives it")


def check_not_ahead() -> None:
    """Raises NoAheadOfTime inside torch's aot_compile, which takes nothing but TorchInductor's OutputCode."""
    from torch._functorch import config

    if getattr(config, "force_autograd_cache", False):
        raise NoAheadOfTime
