"""Compiles a function for a GPU that need not be in this machine.

Takes a function or module, example arguments (on the CPU, or without memory) and the name of a GPU target. Gives the
graphs with their reports and texts, and each kernel's assembly, registers and spills. Refuses a gradient where nothing
needs one (BadArgument), names that are no target, and what torch cannot trace on a device that it does not reach.

The function runs once, in eager, on its arguments: their values decide which path it takes, as in any call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from minductor.api.isolation import fresh, isolated
from minductor.core.errors import BadArgument, ImaginedDevice, NothingCompiled
from minductor.driver_tasks.argument_checks import check_call, check_program, name_of
from minductor.options import mapping_of
from minductor.target import by_name

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch

    from minductor.driver import Compiled
    from minductor.ir.report.report import Report
    from minductor.runtime.build.pool import Pool
    from minductor.runtime.build.triton_jobs import KernelFacts


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """One compiled graph. `role` is "inference", "forward" or "backward"; `sources` holds its texts by file name.

    `kernels` stand in the order of the text.
    """

    role: str
    report: Report
    sources: Mapping[str, str]
    kernels: tuple[KernelFacts, ...]


@dataclass(frozen=True, slots=True)
class Compilation:
    """What `compile_only` returns: the graphs in the order in which they were compiled."""

    target: str
    graphs: tuple[CompiledGraph, ...]

    @property
    def kernels(self) -> tuple[KernelFacts, ...]:
        """The kernels of all graphs: symbol, assembly, registers a thread, spills and shared memory in bytes."""
        return tuple(kernel for graph in self.graphs for kernel in graph.kernels)

    @property
    def source(self) -> str:
        """The text of the kernels of all graphs, in Triton's Python."""
        return "\n".join(graph.sources.get("kernels.py", "") for graph in self.graphs)


def compile_only(
    fn: Callable[..., Any],
    *args: Any,
    target: str = "sm_90",
    grad: bool = False,
    options: Mapping[str, object] | None = None,
    **kwargs: Any,
) -> Compilation:
    """Compiles `fn(*args, **kwargs)` for a GPU target, without a GPU. Runs `fn` once, in eager, on its arguments.

    Args:
        fn: a function or a torch.nn.Module.
        *args: its arguments, of any shapes and dtypes: tensors on the CPU or on the device "meta".
        target: the name of a GPU target: "sm_80", "sm_90", "sm_100", "gfx942" or "interpret".
        grad: compile the backward too, for gradients of ones; `.grad` of the arguments is left alone.
        options: values by option name, as torch.compile(options=...) takes them.
        **kwargs: arguments of `fn` by name.

    Returns:
        The compiled graphs: their texts and reports, and each kernel's assembly and facts.

    Raises:
        BadArgument, BadCall: an argument is of another kind than it is used for, or `fn` does not take the arguments.
        UnknownTarget, UnknownOption, BadOptionValue: what was asked for does not exist.
        ImaginedDevice: torch cannot trace an operation of `fn` on a device that it does not reach.
        NothingCompiled: `fn` holds no tensor operation that Dynamo traces.

    Examples:
        >>> import torch, minductor
        >>> made = minductor.compile_only(torch.nn.functional.gelu, torch.ones(8, 16), target="sm_90")  # doctest: +SKIP
        >>> made.kernels[0].spills  # doctest: +SKIP
        0
    """
    import torch

    from minductor.driver import Compiler
    from minductor.runtime.build.pool import Pool, pool_size

    check_program("compile_only", fn)
    check_call(fn, args, kwargs)
    found = by_name(target)
    if not found.is_gpu:
        why = f"{target} is no GPU: torch.compile runs what it compiles for it"
        raise BadArgument("the target of compile_only", target, "the name of a GPU, as 'sm_90'", why=why)
    chosen = {**mapping_of(options), "target": target}
    if (options or chosen).get("target", target) != target:
        takes = f"the target as an argument: compile_only(fn, *args, target={(options or {})['target']!r})"
        raise BadArgument("options of compile_only", options, takes)
    seen: list[Compiled] = []
    backend = partial(Compiler(observer=seen.append, is_dry=True), options=chosen)
    _run(fn, torch.compile(fresh(fn), backend=backend), args, kwargs, grad=grad)
    if not seen:
        raise NothingCompiled(name_of(fn))
    with Pool(pool_size(os.cpu_count() or 1, os.environ)) as pool:
        jobs: dict[str, Future[KernelFacts]] = {}
        facts = [_facts(graph, found.kind, found.arch, pool, jobs) for graph in seen]
        pairs = zip(seen, facts, strict=True)
        return Compilation(target, tuple(CompiledGraph(g.role, g.report, g.sources, wait()) for g, wait in pairs))


def _run(
    fn: object, compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, grad: bool
) -> None:
    """Calls `compiled`, which compiles `fn`; with `grad` its backward too."""
    import torch

    if grad and not torch.cuda.is_available() and any(t.is_cuda for t in _tensors(fn, (args, kwargs))):
        raise ImaginedDevice("a gradient")
    with isolated(), contextlib.nullcontext() if grad else torch.no_grad():
        try:
            result = compiled(*args, **kwargs)
        except RuntimeError as error:
            if "not linked with support for cuda" not in str(error):
                raise
            raise ImaginedDevice("an operation") from error
        if grad:
            _backward(fn, result, (args, kwargs))


def _tensors(fn: object, given: object) -> Iterator[torch.Tensor]:
    """The tensors of a call: those in its arguments, and the parameters if `fn` is a module."""
    import torch
    from torch.utils._pytree import tree_leaves

    yield from (t for t in tree_leaves(given) if isinstance(t, torch.Tensor))
    if isinstance(fn, torch.nn.Module):
        yield from fn.parameters()


def _facts(
    graph: Compiled, kind: str, arch: str, pool: Pool, jobs: dict[str, Future[KernelFacts]]
) -> Callable[[], tuple[KernelFacts, ...]]:
    """Starts to compile each kernel that `jobs` lacks; returns a function that waits and returns the kernels' facts."""
    from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches
    from minductor.runtime.build.triton_jobs import compile_kernel, compiled_text

    text = graph.sources.get("kernels.py", "")
    if not arch:  # the interpreter compiles nothing
        return tuple
    launches = default_launches(graph.sources.get(LAUNCHES, ""))
    texts = {symbol: compiled_text(text, launch) for symbol, launch in launches.items()}
    for symbol, compiled in texts.items():
        if compiled not in jobs:
            jobs[compiled] = pool.submit(compile_kernel, text, launches[symbol], kind, arch)
    return lambda: tuple(replace(jobs[compiled].result(), symbol=symbol) for symbol, compiled in texts.items())


def _backward(fn: object, result: object, given: object) -> None:
    """Runs the backward without leaving a gradient on any tensor."""
    import torch
    from torch.utils._pytree import tree_leaves

    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    wanted = [t for t in _tensors(fn, given) if t.requires_grad]
    if not outputs or not wanted:
        why = "no result depends on a tensor that requires a gradient"
        raise BadArgument("grad of compile_only", True, "True where an argument or parameter requires one", why=why)
    torch.autograd.grad(outputs, wanted, [torch.ones_like(t) for t in outputs], allow_unused=True)
