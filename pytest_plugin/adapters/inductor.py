"""TorchInductor as a compiler under test.

Takes a function and options, which are TorchInductor's own settings. Gives a compiled function, and for each graph its
kernels, wrapper and counts, which are read from the text that TorchInductor generated. Refuses nothing that
TorchInductor takes. Compiles without caches, and without settings that depend on the machine: the number of threads and
the width of vectors.

>>> program = "k0 = async_compile.cpp_pybinding(['float*'], r'''\\n#include <x.h>\\nvoid kernel() {}\\n''')\\n\\n\\n"
>>> program += "class Runner:\\n    def call(self, args):\\n        k0(args[0])\\n        extern_kernels.mm(args[0])\\n"
>>> parsed = parse(program)
>>> parsed.kernels, parsed.launches
((Kernel(name='k0', language='cpp', text='void kernel() {}\\n', assembly=None),), ('k0',))
>>> parsed.externs, parsed.wrapper
(('extern_kernels.mm',), 'def call(self, args):\\n    k0(args[0])\\n    extern_kernels.mm(args[0])\\n')
"""

from __future__ import annotations

import ast
import os
import platform
import random
import textwrap
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from pytest_plugin.adapters.captured_graph import Facts, Graph, Kernel
from pytest_plugin.devices.device_choice import Device

# Settings that TorchInductor would otherwise take from the machine, and that the generated code depends on.
WIDTH: Mapping[str, object] = MappingProxyType({"cpp.simdlen": 256, "cpp.dynamic_threads": True})
# A machine whose widest vectors have 256 bits: g++ 12 compiles AVX2's intrinsics wrongly for a machine with AVX-512.
MARCH: Mapping[str, object] = MappingProxyType({"cpp.march": "haswell"})
ALONE: Mapping[str, object] = MappingProxyType({"force_disable_caches": True, "compile_threads": 1})
FOLDER = "TORCHINDUCTOR_CACHE_DIR"
EXTERNS = ("extern_kernels.", "aten.", "torch.ops.", "inductor_ops.")
# Those of them that only hand out memory.
NO_EXTERNS = ("inductor_ops._alloc_from_pool", "torch.ops.inductor._alloc_from_pool")


def settings() -> Mapping[str, object]:
    """Returns the options that every program is compiled with. Older versions of torch cannot set `march`."""
    from torch._inductor import config

    takes_march = hasattr(config.cpp, "march") and platform.machine() == "x86_64"
    return {**WIDTH, **(MARCH if takes_march else {})}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A generated program: its kernels, their launches, and the other functions that it calls."""

    kernels: tuple[Kernel, ...]
    launches: tuple[str, ...]
    externs: tuple[str, ...]
    wrapper: str


def parse(program: str) -> Parsed:
    """Reads the program's syntax tree, since counting words in the text would count comments too."""
    tree = ast.parse(program)
    kernels = {kernel.name: kernel for node in tree.body for kernel in _kernels(node)}
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in ("call", "partition_0")
    ]
    calls += [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("partition_")][1:]
    names = [ast.unparse(called.func) for call in calls for called in _calls(call)]
    launches = tuple(name.removesuffix(".run") for name in names if name.removesuffix(".run") in kernels)
    externs = tuple(name for name in names if name.startswith(EXTERNS) and name not in NO_EXTERNS)
    texts = [textwrap.dedent(ast.get_source_segment(program, call, padded=True) or "") for call in calls]
    return Parsed(tuple(kernels.values()), launches, externs, "\n\n".join(text.rstrip() + "\n" for text in texts))


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yields the calls in the order of the text."""
    found = [called for called in ast.walk(node) if isinstance(called, ast.Call)]
    yield from sorted(found, key=lambda called: (called.lineno, called.col_offset))


def _kernels(node: ast.stmt) -> Iterator[Kernel]:
    """Yields the kernel that a statement defines: `name = async_compile.<language>(..., source, ...)`."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=kind), args=arguments),
        ):
            pass
        case _:
            return
    texts = [a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    source = max(texts, key=len, default="")
    if kind == "triton":
        yield Kernel(name, "py", _triton_function(source))
    else:
        lines = source.strip("\n").split("\n")
        # The path of the header depends on the machine.
        yield Kernel(name, "cpp", "\n".join(line for line in lines if not line.startswith("#include")).rstrip() + "\n")


def _triton_function(source: str) -> str:
    """Returns the functions of a Triton kernel without the decorators around it, which describe the machine."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return "\n\n".join(f"@triton.jit\n{ast.get_source_segment(source, node)}" for node in functions) + "\n"


def blocks_of(kernels: Sequence[Kernel]) -> Mapping[str, Any]:
    """Returns the counts of block pointers and descriptors in Triton kernels; C++ kernels have none."""
    texts = [kernel.text for kernel in kernels if kernel.language == "py"]
    names = [
        called.func.attr
        for text in texts
        for called in ast.walk(ast.parse(text))
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute)
    ]
    pointers, descriptors = names.count("make_block_ptr"), names.count("make_tensor_descriptor")
    found = {"block_pointers": pointers, "descriptors": descriptors, "block_accesses": pointers + descriptors}
    return found if texts else dict.fromkeys(found, None)


class Session:
    """The graphs that one torch.compile handed to TorchInductor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nonce = ""
        self.graphs: list[Graph] = []
        self.options: dict[str, object] = {}

    def compile(self, fn: Callable[..., Any], options: Mapping[str, object], dynamic: bool | None) -> Any:
        """Returns the function, to be compiled by TorchInductor when it is first called."""
        import torch

        tools: Any = torch  # torch leaves its types open
        self.options = {**ALONE, **settings(), **options}
        return tools.compile(fn, backend=self._backend, fullgraph=True, dynamic=dynamic)

    def _backend(self, gm: Any, inputs: Sequence[Any]) -> Any:
        from torch._inductor import compile_fx

        tools: Any = compile_fx
        with mock.patch.dict(os.environ, {FOLDER: str(self.folder)}):
            return tools.compile_fx(gm, inputs, inner_compile=self._inner, config_patches=self.options)

    def _inner(self, gm: Any, inputs: Sequence[Any], **settings: Any) -> Any:
        """Compiles one graph. A backward graph is compiled when it is first run."""
        from torch._inductor import compile_fx

        tools: Any = compile_fx
        text, start = str(gm.print_readable(print_output=False)), time.monotonic()
        with mock.patch.dict(os.environ, {FOLDER: str(self.folder)}):
            made = tools.compile_fx_inner(gm, inputs, **settings)
        parsed = parse(made.source_code)
        inner = "inference" if settings.get("is_inference") else "forward"
        role = "backward" if settings.get("is_backward") else inner
        facts = Facts(
            kernels=len(parsed.launches),
            externs=len(parsed.externs),
            kernel_names=parsed.launches,
            extern_reasons=tuple((name, "an operator of torch") for name in parsed.externs),
        )
        facts = replace(facts, **blocks_of(parsed.kernels))
        events: list[tuple[str, str]] = []
        made.current_callable = _told(made.current_callable, parsed, events)
        stages = {"aten": lambda: text}
        seconds = time.monotonic() - start
        graph = Graph(role, parsed.kernels, parsed.wrapper, facts, stages, events, False, seconds, nonce=self.nonce)
        self.graphs.append(graph)
        return made

    def capture(self) -> Sequence[Graph]:
        """Returns the graphs compiled so far."""
        return self.graphs


def _told(call: Callable[..., Any], parsed: Parsed, events: list[tuple[str, str]]) -> Callable[..., Any]:
    """Returns a function that calls the compiled graph and adds what the program launches and calls to `events`."""

    def noted(inputs: Any) -> Any:
        result = call(inputs)
        events.extend([("launch", name) for name in parsed.launches] + [("extern", name) for name in parsed.externs])
        return result

    return noted


@dataclass(frozen=True, slots=True)
class FreshStore:
    """A private folder of TorchInductor's caches. Changed entries of the user's folder show that it was used."""

    path: Path
    users: Path
    before: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def touched(self) -> Sequence[Path]:
        """The user's folder, if one of its entries has changed."""
        return (self.users,) if entries(self.users) != self.before else ()


def entries(folder: Path) -> Mapping[str, int]:
    """Returns the entries of a folder, and when each was last changed."""
    return {path.name: path.stat().st_mtime_ns for path in sorted(folder.iterdir())} if folder.is_dir() else {}


class Inductor:
    """The adapter of TorchInductor."""

    name = "inductor"
    devices = ("cpu", "cuda")
    memory_options: Mapping[str, object] = MappingProxyType({})

    @property
    def settings(self) -> Mapping[str, object]:
        """The options that a script needs to compile as the adapter does."""
        return settings()

    def version(self) -> str:
        """Returns torch's version."""
        import torch

        return str(torch.__version__)

    def session(self, folder: Path, device: Device) -> Session:
        """Makes a session; TorchInductor takes the device from the tensors."""
        # Tests share the folder: the precompiled headers in it take longer to make than a kernel. The caches of
        # programs are off, so nothing is read back from it.
        is_private = os.environ.get(FOLDER) == str(folder)
        return Session(folder if is_private else folder.parent / "torchinductor")

    @contextmanager
    def fresh_store(self, folder: Path) -> Generator[FreshStore]:
        """Makes the folder TorchInductor's cache in the context."""
        from torch._inductor.runtime import cache_dir_utils

        tools: Any = cache_dir_utils
        users = Path(os.environ.get(FOLDER) or tools.default_cache_dir())
        with mock.patch.dict(os.environ, {FOLDER: str(folder)}):
            yield FreshStore(folder, users, entries(users))

    @contextmanager
    def distorted_clock(self) -> Generator[None]:
        """Makes all measurements of candidates random numbers in the context."""
        from torch._inductor.runtime import benchmarking

        drawn = random.Random(0)

        def wrong(*args: Any, **kwargs: Any) -> float:
            return drawn.random()

        tools: Any = benchmarking
        with ExitStack() as stack:
            for kind in (tools.Benchmarker, tools.TritonBenchmarker, tools.InductorBenchmarker):
                for name in ("benchmark", "benchmark_cpu", "benchmark_gpu"):
                    stack.enter_context(mock.patch.object(kind, name, wrong))
            yield
