"""Writes a compiled graph into a folder from which it can be run: `trace="dir:PATH"` does so for each graph.

Takes a stored entry, its graph and a folder. Gives files there: the wrapper as a Python file, the kernels, and a
description of the arguments. `python wrapper.py` calls `names` for the kernels and constants that the wrapper's text
uses, and then `run`, which calls the graph with random tensors of the traced sizes, the same at each run. Refuses to
run a graph that needs a GPU that is not there, or an object of the process that compiled it (SystemExit, in one line).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from minductor.frontend.capture.captured_graph import Graph
    from minductor.runtime.store.store import Entry
    from minductor.target import Target

EXAMPLE, CONSTANTS, RUN = "example.json", "constants.pt", "run.py"
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
from minductor.tracing.runnable_folder import native_call, run

if __name__ == "__main__":
    run(native_call(__file__), __file__)
"""


def write(folder: Path, found: Entry, graph: Graph, gm: Any, target: Target) -> None:
    """Writes the files that run a graph into `folder`. The placeholders of `gm`, its ATen graph, have the sizes."""
    import torch

    from minductor.driver_tasks.artefacts import OF_EVERY_GRAPH, PROVENANCE
    from minductor.runtime.launch.launch import WRAPPER, WRAPPER_CPP

    kernels = [name for name in found.contents if name not in OF_EVERY_GRAPH and not name.endswith(".cpp")]
    texts = [name for name in found.contents if name.endswith(".cpp") and name != WRAPPER_CPP]
    for name in (PROVENANCE, *kernels, *texts):  # the texts as they were compiled: provenance.json counts their lines
        (folder / name).write_bytes(found.contents[name])
    if WRAPPER in found.contents:
        (folder / WRAPPER).write_text(f"{HEAD}{found.text(WRAPPER)}{TAIL}", encoding="utf-8")
    elif WRAPPER_CPP in found.contents:
        (folder / RUN).write_text(OTHER, encoding="utf-8")
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
    }
    (folder / EXAMPLE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def names(file: str) -> dict[str, Any]:
    """The global names that the wrapper in `file` uses and does not import: its kernels and constants."""
    from minductor.runtime.launch.load import threads
    from minductor.runtime.tune.tune import by_default

    folder, about = Path(file).parent, _about(file)
    found = {"kernels": _kernels(folder, about), "threads": threads(), "choose": by_default, "events": list[Any]()}
    return {**found, **_constants(folder)}


def native_call(file: str) -> Callable[[list[Any]], Sequence[Any]]:
    """The call of the C++ wrapper in the library beside `file`."""
    from minductor.runtime.launch import launch_cpp_wrapper
    from minductor.runtime.launch.launch import LIBRARY
    from minductor.runtime.launch.load import load_library

    folder = Path(file).parent
    return launch_cpp_wrapper.launch(load_library(folder / LIBRARY), _about(file)["graph"], _constants(folder), [])


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
    from minductor.backends import find_target
    from minductor.driver_tasks.artefacts import Artefacts
    from minductor.driver_tasks.stores import Stores
    from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches
    from minductor.options import Options
    from minductor.runtime.launch.gpu import BINARIES
    from minductor.runtime.launch.launch import KERNELS
    from minductor.runtime.store.store import Entry
    from minductor.target import Env

    if missing := _missing(about):
        return lambda symbol: partial(_refuse, missing)
    stores, env = Stores(os.environ, None), Env(Options(), find_target(about["target"]))
    artefacts = Artefacts(os.environ, lambda env: stores.of(env.options.cache_dir))
    contents = {name: (folder / name).read_bytes() for name in about["files"]}
    if _is_cuda(about) and KERNELS in contents and BINARIES not in contents:
        launches = default_launches(contents[LAUNCHES].decode()).values()
        contents.update(artefacts.gpu.build(contents[KERNELS].decode(), launches, env.target.arch))
    bind = artefacts.kernels(Entry("", "main", folder, contents), env)
    return bind or (lambda symbol: partial(_refuse, f"there is no kernel {symbol}"))


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
