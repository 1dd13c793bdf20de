"""From a stored artefact to a function that runs the graph; also the functions that wrappers import.

Takes the texts of a graph, and later the wrapper's text with the kernels and lifted constants. Gives the files of an
artefact, and later the wrapper's `call(args)`, with the kernels as globals. Refuses nothing itself.
"""

from __future__ import annotations

import builtins
import functools
import linecache
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from minductor.core.errors import user_lines
from minductor.ir.artefact.source import Source, Unit
from minductor.runtime.build.toolchain import Toolchain
from minductor.runtime.build.toolchain import Unit as CompileUnit
from minductor.runtime.graphs.graph_chain import WrapperGraphs, all_given, uncaptured
from minductor.runtime.graphs.graph_results import new_result
from minductor.runtime.launch.load import ENTRY_PRELUDE, GUARDS, entry, threads
from minductor.runtime.launch.profiler_ranges import ModuleOf, answered, asking, no_module
from minductor.runtime.tune.tune import Choose, by_default

if TYPE_CHECKING:  # a package that is loaded needs no options
    from minductor.options import Options

Call = Callable[[list[Any]], Sequence[Any]]

LIBRARY, KERNELS = "kernels.so", "kernels.py"
AT_LAUNCH = ", at the launch of "  # in errors of NVIDIA's driver
WRAPPER, WRAPPER_CPP, WRAPPER_FX = "wrapper.py", "wrapper.cpp", "wrapper.json"
Bind = Callable[[str], Callable[..., int]]  # a kernel by its symbol


def with_wrapper(source: Source) -> tuple[Unit, ...]:
    """The units of a library, including the wrapper if it is C++."""
    if source.wrapper_file != WRAPPER_CPP:
        return source.units
    from minductor.runtime.launch import launch_cpp_wrapper

    return (*source.units, Unit(Path(WRAPPER_CPP).stem, launch_cpp_wrapper.unit_text(source.wrapper), ()))


def build(
    source: Source, toolchain: Toolchain, folder: Path, options: Options, *, user_lines: Callable[[str], str]
) -> Mapping[str, bytes]:
    """Compiles the kernels. Returns the artefact's files. `user_lines` gives the user's lines of a kernel."""
    files = {source.wrapper_file: source.wrapper.encode()}
    files.update({u.file: u.text.encode() for u in source.units if u.suffix != "cpp"})
    cpp = [unit for unit in source.units if unit.symbols and unit.suffix == "cpp"]
    needs = linked((source.wrapper_file,))
    if source.wrapper_file == WRAPPER_CPP:
        from minductor.runtime.launch import launch_cpp_wrapper

        units = [CompileUnit(u.name, u.text) for u in cpp]
        units.append(CompileUnit(Path(WRAPPER_CPP).stem, launch_cpp_wrapper.unit_text(source.wrapper)))
    else:
        units = [CompileUnit(u.name, _with_entries(u.text, u.symbols)) for u in cpp]
    for unit in units:
        files[f"{unit.name}.cpp"] = unit.text.encode()
    if units:
        out = folder / LIBRARY
        symbols = [symbol for unit in source.units for symbol in unit.symbols]
        texts = {unit.name: unit.text.splitlines() for unit in units}

        def blame(unit: str, line: int) -> str:
            above = (s for text in reversed(texts[unit][:line]) for s in symbols if f" {s}(" in text)
            symbol = next(above, "")
            return user_lines(symbol) if symbol else ""

        limit = options.compiler_timeout
        toolchain.compile(units, out, sanitize=options.sanitize, blame=blame, timeout_s=limit, **needs)
        files[LIBRARY] = out.read_bytes()
    return files


def linked(files: Collection[str]) -> dict[str, Any]:
    """The folders of headers, and the libraries, that the units among an artefact's files need."""
    if WRAPPER_CPP not in files:
        return {}
    from minductor.runtime.launch import launch_cpp_wrapper

    return {"include": [str(launch_cpp_wrapper.INCLUDE)], "link_with": launch_cpp_wrapper.LINKED}


def _with_entries(text: str, symbols: Sequence[str]) -> str:
    return f"{ENTRY_PRELUDE}\n{text}\n{''.join(map(entry, symbols))}"


def launch(
    wrapper: str,
    kernels: Bind | None,
    name: str,
    constants: Mapping[str, torch.Tensor],
    events: list[Any],
    choose: Choose = by_default,
    where: Callable[[str], str] = lambda node: "",
    module_of: ModuleOf = no_module,
    graphs: WrapperGraphs | None = None,
) -> Call:
    """The wrapper's `call`, bound to its kernels. `name` is shown as the file in tracebacks.

    `where`: the user's line of an ATen node, for errors of kernels. `module_of`: its module path, for profilers.
    `graphs`: records and replays the partitions of the wrapper; None: their functions run.
    """
    filename = f"<minductor {name}>"
    namespace: dict[str, Any] = {**constants, "events": events, "threads": threads(), "__name__": filename}
    namespace["choose"] = choose
    namespace["graphs"] = graphs.graphs if graphs else uncaptured
    namespace["given"] = graphs.given if graphs else all_given
    namespace["empty_result"] = graphs.empty_result if graphs else new_result
    if kernels is not None:
        namespace["kernels"] = kernels
    text = asking(wrapper)
    # so that a debugger and a traceback show the lines
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), namespace)
    namespace["places"] = [tuple(map(where, nodes)) for nodes in namespace.get("places", ())]
    call = answered(text, namespace, f"minductor {name}", module_of)
    return _with_places(call, filename, text.splitlines(), where) if "raw_stream" in text else call


def _with_places(call: Call, filename: str, text: Sequence[str], where: Callable[[str], str]) -> Call:
    """The call of a wrapper with this text; an error at the launch of a kernel on a GPU names the user's lines."""

    def run(args: list[Any]) -> Sequence[Any]:
        try:
            return call(args)
        except RuntimeError as error:
            rows = [row for frame, row in walk_tb(error.__traceback__) if frame.f_code.co_filename == filename]
            nodes = text[rows[-1] - 2].partition(": ")[2] if rows else ""  # of the comment above the launch
            place = user_lines(map(where, nodes.split(", "))) if nodes and AT_LAUNCH in str(error) else ""
            if not place:
                raise
            raise RuntimeError(f"{error} (at {place})") from error

    return run


# --- what a wrapper imports ---------------------------------------------------------------------------------------


def fail(errors: Sequence[tuple[str, str]], status: int | tuple[int, int, int], places: Sequence[str] = ()) -> NoReturn:
    """Raises the error of a kernel's status.

    A status may come with the index that is out of range, or 0, and with the size of the dimension. `places`: the
    user's line of each of the errors.
    """
    number, value, size = status if isinstance(status, tuple) else (status, 0, "unknown")
    kind, message = errors[number - 1]
    text = message.format(value=f" {value}" if value else "", size=size)
    raise getattr(builtins, kind)(located(text, places[number - 1] if number <= len(places) else ""))


def require(message: str, places: Sequence[str] = ("",)) -> NoReturn:
    """Raises the error of an assertion about a call's numbers, with the user's line."""
    raise RuntimeError(located(message, places[0]))


def located(message: str, place: str) -> str:
    """An error's text with the user's line, if that is known."""
    return f"{message} (at {place})" if place else message


def _slow_reinterpret(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def _slow_empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


def _slow_empty_cuda(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def on_huge_pages(tensor: torch.Tensor) -> None:
    """Asks Linux to put a new CPU tensor on pages of 2 MiB before it is written; does nothing on other systems.

    The C library takes new memory from the system for each large tensor, and with pages of 4 KiB making these takes
    longer than writing the result: benchmarks/memory.md.
    """
    if (madvise := _madvise()) is not None:
        import mmap

        storage = tensor.untyped_storage()
        begin = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
        madvise(begin, max(0, end - begin), mmap.MADV_HUGEPAGE)  # a request, which may be refused


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """The system's function; None where it has no huge pages."""
    import ctypes
    import mmap

    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return madvise


def laid_out(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...] | None) -> torch.Tensor:
    """The tensor, or a copy with the strides for which the kernels were compiled."""
    if tensor.shape != size:
        raise RuntimeError(f"an operator returned a tensor of size {tuple(tensor.shape)}, not {size} as it was traced")
    if stride is None or tensor.stride() == stride:
        return tensor
    return copied(tensor, size, stride)


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the memory from the first to the last element of one tensor overlaps that of the other."""
    from minductor.runtime.tune.tune_memory import reach

    (start, end), (first, last) = reach(one), reach(other)
    return start < last and first < end


def copied(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """A new tensor of that layout with the same values. A dimension of stride 0 has one element to write."""
    made = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
    into = made
    for dim, step in enumerate(stride):
        if step == 0 and size[dim] > 1:
            into, tensor = into.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
    into.copy_(tensor)
    return made


# torch publishes short ways to both for generated code; another version may not have them
# size, stride, dtype -> a new CPU tensor
empty_strided = getattr(GUARDS, "_empty_strided_cpu", None) or _slow_empty
# the same on the GPU that is current
empty_strided_cuda = getattr(GUARDS, "_empty_strided_cuda", None) or _slow_empty_cuda
# number of a GPU -> the stream that is current there
raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
# tensor, size, stride, offset -> a strided window, `offset` elements from the tensor's own first one
reinterpret = getattr(GUARDS, "_reinterpret_tensor", None) or _slow_reinterpret
