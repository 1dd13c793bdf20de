"""Records what TorchInductor makes of a graph: its kernels, and the bytes that each of them moves.

Takes nothing: `recording()` is a context that records whatever TorchInductor compiles. Gives one `Counts` per graph, by
the rule of `counted_cost.py`. Refuses to compile C++: within the context, kernels compute nothing. They only fill
outputs of integers with zeros, since operators may index with these. The wrapper still allocates, frees and calls
operators, so that memory can be measured; the computed values are meaningless.

For a GPU target, TorchInductor's Triton generator is given CPU tensors as if they were on a GPU: its scheduler is told
that every node is on one, and how many multiprocessors it has.

A kernel is a node of the final schedule for which code is generated. A buffer that only this node reads is never stored
and does not count.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from minductor.bench.bench_results import Counts, Launch
from minductor.core.expressions.hints import MOST_ASSUMED
from minductor.ir.report.counted_cost import ElementSet, distinct_elements, element_set
from minductor.target import Target

HOME = "torch" + "._inductor"
NOP = "NopKernelSchedulerNode"


@contextmanager
def recording(target: Target | None = None) -> Iterator[list[Counts]]:
    """Records the graphs that are compiled within it, one `Counts` each, in the order in which their schedules finish.

    With a GPU target, kernels do nothing when they are called.
    """
    scheduler = importlib.import_module(f"{HOME}.scheduler").Scheduler
    compiling = importlib.import_module(f"{HOME}.async_compile").AsyncCompile
    config = importlib.import_module(f"{HOME}.config")
    found: list[Counts] = []
    generate: Callable[[Any], None] = scheduler.codegen

    def codegen(self: Any) -> None:
        generate(self)
        found.append(counted(self))

    def no_kernel(self: Any, argtypes: list[str], source_code: str) -> Callable[..., None]:
        written = [number for number, kind in enumerate(argtypes) if "*" in kind and not kind.startswith("const")]
        return lambda *arguments: zero_integers([arguments[number] for number in written])

    with ExitStack() as stack:
        stack.enter_context(config.patch(force_disable_caches=True, compile_threads=1))
        stack.enter_context(patch.object(scheduler, "codegen", codegen))
        stack.enter_context(patch.object(compiling, "cpp_pybinding", no_kernel))
        if target is not None and target.is_gpu:
            _as_gpu(stack, scheduler.__module__, compiling, config, target)
        yield found


def _as_gpu(stack: ExitStack, scheduling: str, compiling: Any, config: Any, target: Target) -> None:
    """Treats CPU tensors as a GPU's, up to the text of kernels, which is not loaded."""
    hints = importlib.import_module(f"{HOME}.runtime.hints")
    functorch: Any = importlib.import_module("torch._functorch.config")
    node = importlib.import_module(scheduling).BaseSchedulerNode
    properties = hints.DeviceProperties(
        type="cuda",
        index=0,
        multi_processor_count=target.multiprocessors,
        cc=90,
        major=9,
        regs_per_multiprocessor=target.registers,
        max_threads_per_multi_processor=2 * target.max_threads,
        warp_size=target.warp_size,
    )
    stack.enter_context(config.patch(cpu_backend="triton"))
    stack.enter_context(functorch.patch(force_non_lazy_backward_lowering=True))  # no forward will have run
    stack.enter_context(patch.object(hints.DeviceProperties, "create", lambda device: properties))
    stack.enter_context(patch.object(node, "is_gpu", lambda self: True))
    stack.enter_context(patch("torch.utils._triton.triton_hash_with_backend", lambda: "NONE"))
    stack.enter_context(patch.object(compiling, "triton", lambda *_, **__: _Idle()))


class _Idle:
    """A kernel that does nothing."""

    def run(self, *args: object, **kwargs: object) -> None:
        del args, kwargs


def zero_integers(tensors: list[Any]) -> None:
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and not tensor.is_floating_point():
            tensor.zero_()


def counted(scheduler: Any) -> Counts:
    """The facts of one finished schedule."""
    graph = importlib.import_module(f"{HOME}.virtualized").V.graph
    kernels: list[Launch] = []
    externs: list[Launch] = []
    for node in scheduler.nodes:
        if node.is_extern():
            if type(node.node).__name__ != "MultiOutput":  # an item of what another call returned
                externs.append(extern_launch(node, graph))
        elif operators := [n for n in node.get_nodes() if n.node is not None and type(n).__name__ != NOP]:
            kernels.append(kernel_launch(node, operators, scheduler, graph))
    return Counts(tuple(kernels), tuple(externs))


def kernel_launch(node: Any, operators: list[Any], scheduler: Any, graph: Any) -> Launch:
    """The bytes that a kernel reads and did not write itself, and the bytes that it writes and that are stored."""
    real: Any = scheduler.mutation_real_name
    gone: set[str] = graph.removed_buffers | graph.inplaced_to_remove
    made = {name for operator in operators for name in operator.get_buffer_names()}

    def distinct_bytes(kind: str, left_out: set[str]) -> int:
        """The distinct bytes of the dependencies of a kind, "reads" or "writes", except those of buffers left out."""
        regions: dict[str, set[ElementSet]] = {}
        for dep in [dep for operator in operators for dep in getattr(operator.read_writes, kind)]:
            if type(dep).__name__ == "MemoryDep" and dep.name not in left_out:
                regions.setdefault(real.get(dep.name, dep.name), set()).add(region_of(dep, graph))
        return sum(
            distinct_elements(found, elements(name, graph)) * graph.get_dtype(name).itemsize
            for name, found in regions.items()
        )

    return Launch(node.get_name(), distinct_bytes("reads", made), distinct_bytes("writes", gone))


def elements(name: str, graph: Any) -> int:
    """The number of elements of a buffer."""
    return 1 if graph.try_get_buffer(name) is None else math.prod(map(number, graph.get_buffer(name).get_layout().size))


def number(size: Any) -> int:
    """A size as an int; an unknown one is estimated, as in `ir/report/counted_cost.py`."""
    return int(size if isinstance(size, int) else size.xreplace(dict.fromkeys(size.free_symbols, MOST_ASSUMED)))


def region_of(dep: Any, graph: Any) -> ElementSet:
    """The memory region of a dependency, in the form of `ir/report/counted_cost.py`."""
    lengths = {symbol: number(size) for symbol, size in zip(dep.var_names, dep.size, strict=True)}
    index = dep.index.expand()
    if any(symbol not in lengths and not symbol.name.startswith(("s", "u")) for symbol in index.free_symbols):
        return ElementSet(str(index), (), None)  # data decide
    strides = {symbol: index.coeff(symbol, 1) for symbol in lengths}
    rest = (index - sum(stride * symbol for symbol, stride in strides.items())).expand()
    if not rest.free_symbols & lengths.keys() and all(stride.is_Integer for stride in strides.values()):
        return element_set(rest, [(int(stride), lengths[symbol]) for symbol, stride in strides.items()])
    points = math.prod(lengths[symbol] for symbol in index.free_symbols & lengths.keys())
    return ElementSet(str(index), (), min(points, span(index, lengths)))


def span(index: Any, lengths: dict[Any, int]) -> int:
    """The distance between the least and the greatest value of an index."""
    ranges = importlib.import_module("torch.utils._sympy.value_ranges")
    found = ranges.bound_sympy(index, {symbol: ranges.ValueRanges(0, length - 1) for symbol, length in lengths.items()})
    return int(found.upper - found.lower) + 1 if found.upper.is_Integer and found.lower.is_Integer else 2**62


def extern_launch(node: Any, graph: Any) -> Launch:
    """A call of an operator, which reads all of its arguments and writes all of its results."""
    reads = {dep.name for dep in node.read_writes.reads if type(dep).__name__ != "WeakDep"}
    names = {output.get_name() for output in (*node.get_outputs(), *getattr(node.node, "outputs", ()))}
    kernel = getattr(node.node, "op_overload", None) or getattr(node.node, "python_kernel_name", None)
    return Launch(str(kernel), tensor_bytes(reads, graph), tensor_bytes(names, graph))


def tensor_bytes(names: set[str], graph: Any) -> int:
    found = 0
    for name in names:
        buffer = graph.try_get_buffer(name)
        layout = None if buffer is None else getattr(buffer, "layout", None) or buffer.get_output_spec()
        dtype = getattr(layout, "dtype", None)
        if isinstance(dtype, torch.dtype):
            found += elements(name, graph) * dtype.itemsize
    return found
