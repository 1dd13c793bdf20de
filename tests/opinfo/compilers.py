"""The compilers that the samples run through: minductor for each target, TorchInductor as its peer, and none at all.

Takes a function and whether its sizes are symbols. Gives the compiled function; what was seen of its graphs stands in
`Seen`. Refuses nothing. All but `frozen` are driven by AOTAutograd in the same way, without Dynamo in front. For a
target that is elsewhere every kernel is compiled by Triton and its tools, and the graphs then run in eager.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from minductor.driver import Compiled, Compiler
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches
from minductor.options import Options
from minductor.runtime.build.pool import Pool
from minductor.runtime.build.triton_jobs import compile_kernel, compiled_text
from minductor.runtime.launch.interpret import SETTINGS
from minductor.target import TARGETS, Env, Target, by_name
from tests import frozen_function

Compile = Callable[..., Callable[..., Any]]  # (fn, dynamic=...)


@dataclass
class Seen:
    """Of all graphs compiled since it was made."""

    graphs: int = 0
    symbolic: int = 0  # of them, those with a symbol among their inputs' sizes
    kernels: int = 0
    compiled: int = 0  # of the kernels, those that Triton compiled: equal ones once
    spilling: int = 0  # of these, with registers in memory
    externs: set[str] = field(default_factory=set)


def is_symbolic(inputs: Sequence[Any]) -> bool:
    sizes = (size for given in inputs for size in (given.shape if isinstance(given, torch.Tensor) else (given,)))
    return any(isinstance(size, torch.SymInt) for size in sizes)


def traced(
    fn: Callable[..., Any], graph_compiler: Callable[..., Any], table: Any, *, dynamic: bool
) -> Callable[..., Any]:
    """`graph_compiler(gm, inputs, role=...)` compiles each graph of AOTAutograd.

    In a context of tracing, as Dynamo makes one: there AOTAutograd says which results are views, and what is donated.
    """
    compiled = aot_function(
        fn,
        fw_compiler=partial(graph_compiler, role="forward"),
        bw_compiler=partial(graph_compiler, role="backward"),
        inference_compiler=partial(graph_compiler, role="inference"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=table,
        keep_inference_input_mutations=True,
        dynamic=dynamic,
    )
    context = TracingContext(FakeTensorMode(shape_env=ShapeEnv() if dynamic else None))

    def call(*args: Any) -> Any:
        with tracing(context):
            return compiled(*args)

    return call


def none(seen: Seen) -> Compile:
    """Graphs as they were traced."""

    def graph_compiler(gm: Any, inputs: Any, *, role: str) -> Any:
        del inputs, role
        return gm

    del seen
    return partial(traced, graph_compiler=graph_compiler, table={})


def find(name: str) -> Callable[[Seen], Compile]:
    """A compiler by its name; a target's name is minductor for that target."""
    return partial(minductor, target=name) if name in TARGETS else globals()[name]


def minductor(seen: Seen, *, sanitize: bool = False, target: str = "cpu") -> Compile:
    def observe(made: Compiled) -> None:
        seen.kernels += made.report.kernels
        seen.externs |= {name for name, _ in made.report.extern_reasons}
        if is_dry:
            build(made.sources, env.target, seen)

    is_dry = bool(by_name(target).arch)
    compiler = Compiler(observer=observe, is_dry=is_dry)
    if target == "interpret":
        compiler.artefacts.interpreter = interpreter()
    options = {"verify": True, "sanitize": sanitize, "target": target}
    env = Env(Options.parse(None, options, compiler.environ), by_name(target))

    def graph_compiler(gm: Any, inputs: Sequence[Any], *, role: Any) -> Any:
        seen.graphs += 1
        seen.symbolic += is_symbolic(inputs)
        return compiler.compile_graph(gm, inputs, role=role, env=env)

    return partial(traced, graph_compiler=graph_compiler, table=decompositions())


@cache
def interpreter() -> Pool:
    """One process that interprets, for all operators of this one."""
    return Pool(1, settings=SETTINGS)


@cache
def builders() -> Pool:
    return Pool(max(1, len(os.sched_getaffinity(0)) // 2))


@cache
def known_kernels() -> set[str]:
    """What was compiled in this process."""
    return set()


def build(sources: Mapping[str, str], target: Target, seen: Seen) -> None:
    """Compiles the kernels of a module that are not known, by what tells them apart: all but their names."""
    jobs: list[Any] = []
    text = sources.get("kernels.py", "")
    for launch in default_launches(sources.get(LAUNCHES, "")).values():
        plain = compiled_text(text, launch) + target.name
        if plain not in known_kernels():
            known_kernels().add(plain)
            jobs.append(builders().submit(compile_kernel, text, launch, target.kind, target.arch))
    for job in jobs:
        facts = job.result()
        seen.compiled += 1
        seen.spilling += bool(facts.spills)


def sanitized(seen: Seen) -> Compile:
    """Kernels that end the process at a read or write outside a tensor and at undefined behaviour."""
    return minductor(seen, sanitize=True)


def frozen(seen: Seen) -> Compile:
    """Every second tensor is a weight, and weights are constants. Dynamo is in front: it says what a weight is."""

    def observe(made: Compiled) -> None:
        seen.graphs += 1
        seen.kernels += made.report.kernels
        seen.externs |= {name for name, _ in made.report.extern_reasons}

    def compiled(fn: Callable[..., Any], *, dynamic: bool) -> Callable[..., Any]:
        torch.compiler.reset()
        options = {"freeze": True, "verify": True}
        return frozen_function.frozen(
            fn, Compiler(observer=observe), slice(1, None, 2), options=options, dynamic=dynamic
        )

    return compiled


def inductor(seen: Seen) -> Compile:
    """The peer, with one compile process, so that its CPU seconds are seen."""
    import torch._inductor.config as config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    config.compile_threads = 1
    config.force_disable_caches = True

    def graph_compiler(gm: Any, inputs: Sequence[Any], *, role: str) -> Any:
        seen.graphs += 1
        seen.symbolic += is_symbolic(inputs)
        return compile_fx_inner(gm, inputs, is_backward=role == "backward", is_inference=role == "inference")

    return partial(traced, graph_compiler=graph_compiler, table=select_decomp_table())
