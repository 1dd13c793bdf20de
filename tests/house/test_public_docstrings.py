"""Public functions say what they take, give and raise, and whether they run the user's function.

Ruff's pydocstyle rules hold the layout of these docstrings (pyproject.toml names the files); this file holds what is in
them: a section Args for parameters, Returns for a result, Raises for errors.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

import minductor
from minductor import backends

# Public functions that are given a function of the user's or its graph: what their docstring says about running it.
RUNS = {
    "minductor.compile_only": "Runs `fn` once, in eager",
    "minductor.explain": "Runs the compiled `fn(*args)` once",
    "minductor.to_fx": "The program is traced, not run",
    "minductor.export": "The program is traced, not run",
    "minductor.load": "The program is not called",
    "minductor.control_deps": "Runs `fn(*args, **kwargs)`",
    "minductor.add_control_deps": "Runs nothing",
    "minductor.minductor.__call__": "The user's function is not run",
    "minductor.Compiler.__call__": "The user's function is not run",
    "minductor.Compiler.compile_graph": "No function of the user is run",
    "minductor.Compiler.graph_module": "No function of the user is run",
    "minductor.backends.Backend": "No Part runs the user's function",
}


def public() -> Iterator[tuple[str, Any]]:
    """What minductor and minductor.backends export, and the public methods of exported classes, by name."""
    for module in (minductor, backends):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or name == "minductor":
                kind = value if inspect.isclass(value) else type(value)
                if kind.__module__.startswith("minductor") and not issubclass(kind, minductor.MinductorError):
                    yield f"{module.__name__}.{name}", kind
                    yield from ((f"{module.__name__}.{name}.{m}", f) for m, f in methods(kind))
            elif inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(function) and (not name.startswith("_") or name == "__call__"):
            yield name, function


PUBLIC = dict(public())
# A protocol and records whose fields are described where they are declared; what tests and tools call.
SHORT = ("Artefact", "Env", "OptionRule", "Target")


def lacking(function: Any, documented: str) -> list[str]:
    """The sections that a docstring lacks, judged by the function's signature and its text."""
    code = textwrap.dedent(inspect.getsource(function)) if inspect.isfunction(function) else ""
    signature = inspect.signature(function)
    takes = [name for name in signature.parameters if name not in ("self", "cls")]
    gives = signature.return_annotation not in (None, "None", inspect.Signature.empty)
    raises = bool(code) and any(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(code)))
    wanted = {"Args": bool(takes), "Returns": gives and inspect.isfunction(function), "Raises": raises}
    return [
        section for section, is_wanted in wanted.items() if is_wanted and f"\n{section}:\n" not in f"\n{documented}"
    ]


@pytest.mark.parametrize("name", [name for name in PUBLIC if not any(f".{short}" in name for short in SHORT)])
def test_public_docstring_is_whole(name: str) -> None:
    value = PUBLIC[name]
    documented = inspect.getdoc(value) or ""
    assert documented, f"{name} has no docstring"
    if inspect.isfunction(value) or name.endswith(".Backend"):
        assert lacking(value, documented) == []


@pytest.mark.parametrize("name", RUNS)
def test_docstring_says_whether_the_function_is_run(name: str) -> None:
    assert RUNS[name] in " ".join((inspect.getdoc(PUBLIC[name]) or "").split())


def test_a_missing_section_is_found() -> None:
    def function(x: int) -> int:
        if x:
            raise ValueError
        return x

    assert lacking(function, "Gives x.") == ["Args", "Returns", "Raises"]
    assert (
        lacking(function, "Gives x.\n\nArgs:\n    x: it.\n\nReturns:\n    x.\n\nRaises:\n    ValueError: it is 0.")
        == []
    )
