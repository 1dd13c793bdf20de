"""Loads a wrapper in C++ as a function of Python.

Takes the wrapper's text for compilation; later the loaded library, the lifted constants, the objects of this process,
what connects it with a GPU (`cuda_cpp_wrapper.py`), and what records its partitions. Gives `call(args)`, a built-in
function unless partitions are recorded. Refuses (LoadFailed) a torch whose Python tensors do not contain the pointer to
the C++ tensor.

The unit reads the pointer directly from Python's object, so that no argument costs a call of torch. The pointer's
offset is found at every start, by comparison with `tensor._cdata`.
"""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from minductor.core.errors import LoadFailed, NonFiniteResult, user_lines
from minductor.runtime.graphs.graph_chain import WrapperGraphs, uncaptured
from minductor.runtime.graphs.graph_recording import Function
from minductor.runtime.graphs.graph_results import new_result
from minductor.runtime.launch.load import GUARDS, Library, c_api, threads
from minductor.runtime.launch.profiler_ranges import with_ranges

INCLUDE = Path(__file__).parent / "include"
LINKED = ("libtorch_cpu.so",)  # where the unit finds torch's functions
Call = Callable[[list[Any]], Sequence[Any]]
# connects a library with its GPU; gives functions for what Python does there, and what the library points at
Connect = Callable[[Library], tuple[Mapping[str, Callable[..., Any]], object]]

# THPVariable_Wrap(const at::TensorBase&), where torch does not publish its address
_WRAP = "_Z16THPVariable_WrapRKN2at10TensorBaseE"


class _Graph(ctypes.Structure):
    """`md_Graph` of minductor_call.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("run", ctypes.c_void_p),
        ("takes", ctypes.c_char_p),
        ("gives", ctypes.c_char_p),
        ("constants", ctypes.c_char_p),
        ("n_constants", ctypes.c_int64),
    )


class _Bound(ctypes.Structure):
    """`md_Bound` of minductor_python.h."""

    _fields_ = (
        ("graph", ctypes.POINTER(_Graph)),
        ("constants", ctypes.POINTER(ctypes.c_void_p)),
        *((name, ctypes.py_object) for name in ("errors", "places", "calls", "events", "eager")),
        ("wrap", ctypes.c_void_p),
        ("is_child", ctypes.POINTER(ctypes.c_int)),
        ("none", ctypes.py_object),
        ("tensor", ctypes.py_object),
        ("offset", ctypes.c_long),
    )


def interface() -> str:
    """A digest of what compiled units and their loaders must agree on; it changes with these files and the headers."""
    here = Path(__file__)
    loaders = (here, here.with_name("cuda_cpp_wrapper.py"), here.with_name("cuda.py"))
    files = (*loaders, *sorted(INCLUDE.glob("*.h")))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def unit_text(wrapper: str) -> str:
    """The wrapper's unit with its entry for Python."""
    return f'{wrapper}\n#include "minductor_python.h"\n'


def launch(
    library: Library,
    name: str,
    objects: Mapping[str, Any],
    events: list[Any],
    where: Callable[[str], str] = lambda node: "",
    connect: Connect | None = None,
    graphs: WrapperGraphs | None = None,
) -> Call:
    """The library's graph as a function. `objects`: the objects of this process that the graph names, and its
    constants.

    `where`: the user's line of an ATen node, for errors of kernels. `connect`: connects the library with its GPU.
    `graphs`: records and replays the partitions of the wrapper; None: their functions run.
    """
    graph = _Graph.from_address(library.required("md_compiled"))
    offset = tensor_offset(library.path)
    constants = [objects[name] for name in graph.constants.decode().split()]
    handles = (ctypes.c_void_p * (len(constants) + 1))(*(id(tensor) + offset for tensor in constants))
    calls: dict[str, Any] = {}
    launches, pointed_at = connect(library) if connect else ({}, None)
    is_child = ctypes.pointer(threads().is_child)
    nodes = _text(library, "md_nodes").split()
    places = {key: place for key in nodes if (place := user_lines(map(where, key.split("+"))))}
    errors = {**vars(builtins), NonFiniteResult.__name__: NonFiniteResult}
    found = (errors, places, calls, events, _raise_as_eager, _wrap(library.path))

    def function_of(part: _Graph) -> Call:
        bound = _Bound(ctypes.pointer(part), handles, *found, is_child, None, torch.Tensor, offset)
        return _built_in(library, bound, (constants, pointed_at))

    parts = {part.name.decode(): _with_arguments(function_of(part), part) for part in _partitions(library)}
    recording: dict[str, Any] = {"graphs": uncaptured, "empty_result": new_result}
    if graphs is not None:
        recording = {"graphs": graphs.graphs, "empty_result": graphs.empty_result}
    calls.update(_python_calls(library, f"<minductor {name}>", {**objects, **recording, **parts}))
    calls.update(launches)
    plain = function_of(graph)
    given: Call = (lambda args: graphs.given(plain(args))) if graphs is not None and parts else plain
    return with_ranges(given, f"minductor {name}", lambda: given)


def _built_in(library: Library, bound: _Bound, held: object) -> Call:
    """A function of a list of arguments. What it only points at lives as long as the function: its module holds it."""
    capsule = c_api("PyCapsule_New", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    function = c_api("PyCFunction_NewEx", ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    place = capsule(ctypes.addressof(bound), None, None)
    return function(library.address("md_method"), place, (bound, held))


def _partitions(library: Library) -> Iterator[_Graph]:
    """The functions of the library's partitions."""
    try:
        address = library.address("md_partitions")
    except LoadFailed:
        return
    while (part := _Graph.from_address(address)).name:
        yield part
        address += ctypes.sizeof(_Graph)


def _with_arguments(function: Call, part: _Graph) -> Function:
    """A function of a list as one of arguments, with the partition's name."""

    def run(*args: Any) -> Any:
        return function(list(args))

    run.__name__ = part.name.decode()
    return run


def _python_calls(library: Library, filename: str, objects: Mapping[str, Any]) -> dict[str, Any]:
    """The functions for calls that only Python can make."""
    source = _text(library, "md_python_text")
    if not source:
        return {}
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {**objects, "__name__": filename}
    exec(compile(source, filename, "exec"), namespace)
    return namespace


def _text(library: Library, symbol: str) -> str:
    """A text in the library, or "" if it has none of that name."""
    try:
        return (ctypes.c_char_p(library.address(symbol)).value or b"").decode()
    except LoadFailed:
        return ""


def _raise_as_eager(text: str, *given: Any) -> None:
    """Repeats in eager an operator that failed in C++, for the exception that it raises. `text` is a lambda without
    side effects.
    """
    eval(text, {"torch": torch})(*given)


def tensor_offset(path: Path) -> int:
    """The offset of the pointer to the C++ tensor in a Python tensor."""
    tensor = torch.empty(0)
    for offset in range(ctypes.sizeof(ctypes.c_void_p), object.__basicsize__ + 32, ctypes.sizeof(ctypes.c_void_p)):
        if ctypes.c_void_p.from_address(id(tensor) + offset).value == tensor._cdata:
            return offset
    raise LoadFailed(str(path), f"torch {torch.__version__} does not keep a pointer to the tensor in its Python object")


def _wrap(path: Path) -> int:
    """The address of torch's `PyObject* (const Tensor&)`."""
    if (published := getattr(GUARDS, "_torchinductor_thp_variable_wrap", None)) is not None:
        return published
    folder = Path(torch.__file__).parent / "lib"
    exported = getattr(ctypes.CDLL(str(folder / "libtorch_python.so")), _WRAP, None)
    if exported is None:
        raise LoadFailed(str(path), f"torch {torch.__version__} has no function that makes a tensor's Python object")
    return ctypes.cast(exported, ctypes.c_void_p).value or 0
