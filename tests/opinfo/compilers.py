"""The compilers that the samples run through: minductor, TorchInductor as its peer, and none at all.

Takes a function and whether its sizes are symbols. Gives the compiled function; what was seen of its graphs stands in
`Seen`. Refuses nothing. All three are driven by AOTAutograd in the same way, without Dynamo in front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition

from minductor.driver import Compiled, Compiler
from minductor.frontend.decompose import decompositions
from minductor.options import Options
from minductor.target import Env, by_name

Compile = Callable[..., Callable[..., Any]]  # (fn, dynamic=...)


@dataclass
class Seen:
    """Of all graphs compiled since it was made."""

    graphs: int = 0
    symbolic: int = 0  # of them, those with a symbol among their inputs' sizes
    kernels: int = 0
    externs: set[str] = field(default_factory=set)


def is_symbolic(inputs: Sequence[Any]) -> bool:
    sizes = (size for given in inputs for size in (given.shape if isinstance(given, torch.Tensor) else (given,)))
    return any(isinstance(size, torch.SymInt) for size in sizes)


def traced(
    fn: Callable[..., Any], graph_compiler: Callable[..., Any], table: Any, *, dynamic: bool
) -> Callable[..., Any]:
    """`graph_compiler(gm, inputs, role=...)` compiles each graph of AOTAutograd."""
    return aot_function(
        fn,
        fw_compiler=partial(graph_compiler, role="forward"),
        bw_compiler=partial(graph_compiler, role="backward"),
        inference_compiler=partial(graph_compiler, role="inference"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=table,
        keep_inference_input_mutations=True,
        dynamic=dynamic,
    )


def none(seen: Seen) -> Compile:
    """Graphs as they were traced."""

    def graph_compiler(gm: Any, inputs: Any, *, role: str) -> Any:
        del inputs, role
        return gm

    del seen
    return partial(traced, graph_compiler=graph_compiler, table={})


def minductor(seen: Seen, *, sanitize: bool = False) -> Compile:
    def observe(made: Compiled) -> None:
        seen.kernels += made.report.kernels
        seen.externs |= {name for name, _ in made.report.extern_reasons}

    compiler = Compiler(observer=observe)
    env = Env(Options.parse(None, {"verify": True, "sanitize": sanitize}, compiler.environ), by_name("cpu"))

    def graph_compiler(gm: Any, inputs: Sequence[Any], *, role: Any) -> Any:
        seen.graphs += 1
        seen.symbolic += is_symbolic(inputs)
        return compiler.compile_graph(gm, inputs, role=role, env=env)

    return partial(traced, graph_compiler=graph_compiler, table=decompositions())


def sanitized(seen: Seen) -> Compile:
    """Kernels that end the process at a read or write outside a tensor and at undefined behaviour."""
    return minductor(seen, sanitize=True)


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
