"""Writes a compiled graph into a folder from which it can be run: `trace="dir:PATH"` does so for each graph.

Takes a stored entry, its graph and a folder. Gives files there: the wrapper as a Python file, the kernels, the ATen
graph, where the calls come from (provenance.json), and a description of the arguments. `python wrapper.py` calls
`names` for the kernels and constants that the wrapper's text uses, and then `run`, which calls the graph with random
tensors of the traced sizes, the same at each run. A wrapper in C++ or of torch.fx is run by `python run.py`. Units in
C++ begin with the command that builds them, before the first line's own words, since provenance.json counts lines;
`python kernels.py` compiles Triton kernels. Refuses to run a graph that needs a GPU or an operator that is not there,
or an object of the process that compiled it (SystemExit, in one line).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from minductor.driver_tasks.artefacts import Artefacts
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.runtime.store.store import Entry
    from minductor.target import Env, Target

EXAMPLE, CONSTANTS, RUN, ATEN = "example.json", "constants.pt", "run.py", "aten_graph.py"
TORCHS = ("aten.", "prims.", "mkldnn.", "higher_order.")  # operators that every process has
CALLS = 10  # `run` prints the time of the fastest one
HEAD = """\
# Runs by itself, with the files beside it: python wrapper.py
from minductor.tracing.runnable_folder import names

globals().update(names(__file__))

"""
TAIL = """

if __name__ == "__main__":
    from minductor.tracing.runnable_folder import run

    run(call, __file__)
"""
OTHER = """\
# Runs the wrapper beside it: python run.py
from minductor.tracing.runnable_folder import {make}, run

if __name__ == "__main__":
    run({make}(__file__), __file__)
"""
KERNELS_TAIL = """

if __name__ == "__main__":  # python kernels.py
    from minductor.tracing.runnable_folder import compile_kernels

    compile_kernels(__file__)
"""


def write(folder: Path, found: Entry, graph: Graph, gm: Any, target: Target, command: Callable[[], str]) -> None:
    """Writes the files that run a graph into `folder`.

    The placeholders of `gm`, its ATen graph, have the sizes. `command` gives the shell's command that builds the
    library from the units in C++.
    """
    import torch

    from minductor.driver_tasks.artefacts import OF_EVERY_GRAPH, PROVENANCE
    from minductor.runtime.launch.launch import KERNELS, LIBRARY, WRAPPER, WRAPPER_CPP, WRAPPER_FX

    kernels = [name for name in found.contents if name not in OF_EVERY_GRAPH and not name.endswith(".cpp")]
    for name in kernels:
        tail = KERNELS_TAIL.encode() if name == KERNELS else b""
        (folder / name).write_bytes(found.contents[name] + tail)
    for name in [name for name in found.contents if name.endswith(".cpp")]:
        built = f"/* Built by: {command()} */ " if LIBRARY in found.contents else ""
        (folder / name).write_text(f"{built}{found.text(name)}", encoding="utf-8")
    if WRAPPER in found.contents:
        (folder / WRAPPER).write_text(f"{HEAD}{found.text(WRAPPER)}{TAIL}", encoding="utf-8")
    elif make := {WRAPPER_CPP: "native_call", WRAPPER_FX: "fx_call"}.get(_other_wrapper(found)):
        (folder / RUN).write_text(OTHER.format(make=make), encoding="utf-8")
    (folder / PROVENANCE).write_bytes(found.contents[PROVENANCE])
    (folder / ATEN).write_text(gm.print_readable(print_output=False) + "\n", encoding="utf-8")
    objects = graph.bound()
    constants = {name: value for name, value in objects.items() if isinstance(value, torch.Tensor)}
    if constants:
        torch.save(constants, folder / CONSTANTS)
    regions = {region.name for region in graph.regions}
    about = {
        "graph": graph.role,
        "target": target.name,
        "files": kernels,
        "inputs": [_argument(given.meta, value) for given, value in zip(graph.inputs, _placeholders(gm), strict=True)],
        "objects": sorted(objects.keys() - constants.keys() - regions),
        "operators": sorted({op for op in _operators(graph) if op.count(".") == 2 and not op.startswith(TORCHS)}),
    }
    (folder / EXAMPLE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _other_wrapper(found: Entry) -> str:
    return next((name for name in found.contents if name.startswith("wrapper.")), "")


def _operators(graph: Graph) -> Iterator[str]:
    """The operators that a graph and its regions call."""
    yield from (node.op for node in graph.nodes)
    for region in graph.regions:
        yield from _operators(region.graph)


def names(file: str) -> dict[str, Any]:
    """The global names that the wrapper in `file` uses and does not import: its kernels and constants."""
    from minductor.runtime.graphs.graph_chain import all_given, uncaptured
    from minductor.runtime.graphs.graph_results import new_result
    from minductor.runtime.launch.load import threads
    from minductor.runtime.tune.tune import by_default

    folder, about = Path(file).parent, _about_with_operators(file)
    found = {"kernels": _kernels(folder, about), "threads": threads(), "choose": by_default, "events": list[Any]()}
    graphs = {"graphs": uncaptured, "given": all_given, "empty_result": new_result}
    return {**found, **graphs, **_constants(folder)}


def native_call(file: str) -> Callable[[list[Any]], Sequence[Any]]:
    """The call of the C++ wrapper in the library beside `file`."""
    from minductor.runtime.launch import launch_cpp_wrapper
    from minductor.runtime.launch.launch import LIBRARY
    from minductor.runtime.launch.load import load_library

    folder, about = Path(file).parent, _about_with_operators(file)
    if missing := _missing(about):
        return partial(_refuse, missing)
    connect = None
    if _is_cuda(about):
        artefacts, entry, env = _loaded(folder, about)
        connect = artefacts.gpu_parts(entry, env).connect
    return launch_cpp_wrapper.launch(
        load_library(folder / LIBRARY), about["graph"], _constants(folder), [], connect=connect
    )


def fx_call(file: str) -> Callable[[list[Any]], Sequence[Any]]:
    """The call of the torch.fx graph in the text beside `file`."""
    from minductor.backends import find_target
    from minductor.runtime.launch import fx
    from minductor.runtime.launch.launch import WRAPPER_FX

    folder, about = Path(file).parent, _about_with_operators(file)
    contents = {name: (folder / name).read_bytes() for name in (WRAPPER_FX, *about["files"])}
    launcher = fx.launcher(contents, _kernels(folder, about), find_target(about["target"]))
    return fx.launch(contents[WRAPPER_FX].decode(), launcher, _constants(folder))


def compile_kernels(file: str) -> None:
    """Compiles the Triton kernels in `file` for the graph's target, beside it; prints what each kernel needs."""
    from minductor.backends import find_target
    from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches
    from minductor.runtime.build.triton_jobs import compile_kernel

    folder, about = Path(file).parent, _about(file)
    target = find_target(about["target"])
    if target.kind not in ("cuda", "hip"):
        raise SystemExit(f"{Path(file).name}: the target {target.name} interprets its kernels; nothing is compiled")
    text, launches = Path(file).read_text(encoding="utf-8"), (folder / LAUNCHES).read_text(encoding="utf-8")
    for launch in default_launches(launches).values():
        made = compile_kernel(text, launch, target.kind, target.arch)
        suffix = "ptx" if target.kind == "cuda" else "amdgcn"
        (folder / f"{launch.symbol}.{suffix}").write_text(made.assembly, encoding="utf-8")
        needs = {"registers": made.registers, "bytes spilled": made.spills, "bytes shared": made.shared}
        told = ", ".join(f"{number} {what}" for what, number in needs.items() if number is not None)
        print(f"{launch.symbol}.{suffix}: {told}")


def run(call: Callable[[list[Any]], Sequence[Any]], file: str) -> None:
    """Calls a graph with example arguments; prints its results and the time of a call."""
    import torch

    about = _about(file)
    if missing := _missing(about):
        raise SystemExit(f"{Path(file).name}: {missing}")
    wait: Callable[[], None] = torch.cuda.synchronize if _is_cuda(about) else lambda: None
    seconds: list[float] = []
    results: Sequence[Any] = ()
    for _ in range(CALLS):
        arguments = _arguments(about)  # a call may overwrite what it is given
        wait()
        start = time.perf_counter()
        results = call(arguments)
        wait()
        seconds.append(time.perf_counter() - start)
    print(f"{about['graph']} on {about['target']}: {len(about['inputs'])} arguments, {len(results)} results")
    for number, value in enumerate(results):
        print(f"  result {number}: {_shown(value)}")
    print(f"  the fastest of {CALLS} calls took {min(seconds) * 1e6:.1f} us")


def _about_with_operators(file: str) -> dict[str, Any]:
    """The description beside `file`; ends the program if an operator that the graph calls is not registered."""
    import torch

    about = _about(file)
    for op in about["operators"]:
        try:
            attrgetter(op)(torch.ops)
        except AttributeError:
            name = Path(file).name
            run = f"import MODULE, runpy; runpy.run_path('{name}', run_name='__main__')"
            why = f"it calls {op}, which no module has registered here"
            raise SystemExit(f'{name}: {why}; with the module that does: python -c "{run}"') from None
    return about


def _about(file: str) -> dict[str, Any]:
    return json.loads((Path(file).parent / EXAMPLE).read_text(encoding="utf-8"))


def _is_cuda(about: Mapping[str, Any]) -> bool:
    return about["target"].startswith("sm_")


def _missing(about: Mapping[str, Any]) -> str:
    """A sentence that says what this process lacks to run the graph, or ""."""
    import torch

    if about["objects"]:
        return f"it calls {', '.join(about['objects'])} of the process that compiled it"
    if _is_cuda(about) and not torch.cuda.is_available():
        return f"its kernels are for {about['target']}, and torch finds no GPU of NVIDIA here"
    if about["target"].startswith("gfx"):
        return f"its kernels are for {about['target']}, which minductor launches nothing on"
    return ""


def _kernels(folder: Path, about: Mapping[str, Any]) -> Callable[[str], Callable[..., Any]]:
    """A function from a kernel's symbol to the kernel. GPU kernels that were not compiled yet are compiled now."""
    if missing := _missing(about):
        return lambda symbol: partial(_refuse, missing)
    artefacts, entry, env = _loaded(folder, about)
    bind = artefacts.kernels(entry, env)
    return bind or (lambda symbol: partial(_refuse, f"there is no kernel {symbol}"))


def _loaded(folder: Path, about: Mapping[str, Any]) -> tuple[Artefacts, Entry, Env]:
    """What loads the kernels in a folder, their files, and the target. GPU kernels are compiled if need be."""
    from minductor.backends import find_target
    from minductor.driver_tasks.artefacts import Artefacts
    from minductor.driver_tasks.stores import Stores
    from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches
    from minductor.options import Options
    from minductor.runtime.launch.gpu import BINARIES
    from minductor.runtime.launch.launch import KERNELS
    from minductor.runtime.store.store import Entry
    from minductor.target import Env

    stores, env = Stores(os.environ, None), Env(Options(), find_target(about["target"]))
    artefacts = Artefacts(os.environ, lambda env: stores.of(env.options.cache_dir))
    contents = {name: (folder / name).read_bytes() for name in about["files"]}
    if _is_cuda(about) and KERNELS in contents and BINARIES not in contents:
        launches = default_launches(contents[LAUNCHES].decode()).values()
        contents.update(artefacts.gpu.build(contents[KERNELS].decode(), launches, env.target.arch))
    return artefacts, Entry("", "main", folder, contents), env


def _refuse(why: str, *args: Any) -> Any:
    raise RuntimeError(why)


def _constants(folder: Path) -> dict[str, Any]:
    import torch

    file = folder / CONSTANTS
    return torch.load(file, weights_only=True) if file.exists() else {}


# --- example arguments


def _placeholders(gm: Any) -> list[Any]:
    return [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]


def _argument(meta: Any, value: Any) -> dict[str, Any]:
    """An argument as JSON: a tensor's layout, or a number; `value`: the fake tensor or symbolic number."""
    import torch

    from minductor.frontend.capture.captured_graph import TensorMeta

    if not isinstance(meta, TensorMeta) or not isinstance(value, torch.Tensor):
        return {"value": _number(value)}
    layout = {"size": [*map(_number, value.shape)], "stride": [*map(_number, value.stride())]}
    return {"dtype": meta.dtype.torch_name, **layout, "offset": _number(value.storage_offset()), "device": meta.device}


def _number(value: Any) -> Any:
    """The value of a number or symbolic number while tracing; 1 for a number that depends on data."""
    node = getattr(value, "node", None)
    if node is None:
        return value if isinstance(value, bool | int | float) else None
    return node.hint if node.has_hint() else 1


def _arguments(about: Mapping[str, Any]) -> list[Any]:
    """New arguments, the same at each call. Integers are 0 or 1, which are indices into most tensors."""
    import torch

    random = torch.Generator().manual_seed(0)
    return [given["value"] if "value" in given else _tensor(given, random) for given in about["inputs"]]


def _tensor(given: Mapping[str, Any], random: torch.Generator) -> torch.Tensor:
    import torch

    dtype = getattr(torch, given["dtype"])
    size, stride, offset = given["size"], given["stride"], given["offset"]
    span = offset + (0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)))
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.complex64 if dtype.is_complex else torch.float32
        memory = torch.randn(span, generator=random, dtype=drawn).to(dtype)
    else:
        memory = torch.randint(0, 2, (span,), generator=random).to(dtype)
    return memory.to(given["device"]).as_strided(size, stride, offset)


def _shown(value: Any) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype} {tuple(value.shape)} stride {value.stride()} on {value.device}"
