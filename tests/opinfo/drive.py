"""Runs the samples of one operator of torch's own test database through minductor, several to a graph.

Takes an OpInfo, a dtype and a mode (forward or gradient). Gives a `Record`: samples right, wrong, failed and skipped,
with a line for each thing that is wrong. Refuses nothing: what eager or the tracer cannot do is skipped, and counted.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from minductor.driver import Compiled, Compiler
from minductor.frontend.decompose import decompositions
from minductor.options import Options
from minductor.target import Env, by_name
from pytest_plugin.oracle import exactly
from tests.opinfo.judge import difference

PACK = 12  # samples to a graph
# their values are whatever the memory held
WITHOUT_VALUES = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))


@dataclass
class Record:
    """What became of one operator's samples."""

    op: str
    dtype: str
    mode: str
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: int = 0  # by eager or by the tracer
    reason: str = ""  # the first of them
    externs: list[str] = field(default_factory=list)
    kernels: int = 0


@dataclass(frozen=True)
class Sample:
    """A call of an operator: its tensors, apart from everything else."""

    fn: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    text: str


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def operators(dtype: torch.dtype, mode: str) -> dict[str, Any]:
    """Those of the database that take this dtype, by name."""
    usable = (op for op in op_db if op.name not in WITHOUT_VALUES)
    found = {full_name(op): op for op in usable if dtype in op.supported_dtypes("cpu")}
    if mode == "gradient":
        return {name: op for name, op in found.items() if dtype in op.supported_backward_dtypes("cpu")}
    if mode == "inplace":
        return {name: op for name, op in found.items() if op.inplace_variant is not None}
    return found


def samples(op: Any, dtype: torch.dtype, mode: str, limit: int) -> Iterator[Sample]:
    torch.manual_seed(0)
    call = op.inplace_variant if mode == "inplace" else op
    for given in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=mode == "gradient"), limit):
        if mode == "inplace" and given.broadcasts_input:
            continue
        leaves, spec = pytree.tree_flatten((given.input, given.args, given.kwargs))
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        yield Sample(
            _call(call, given.output_process_fn_grad, leaves, spec, places, is_inplace=mode == "inplace"),
            tuple(leaves[n].detach().requires_grad_(leaves[n].requires_grad) for n in places),
            pytree.tree_unflatten([_brief(leaf) for leaf in leaves], spec).__repr__(),
        )


def _call(
    op: Any, process: Any, leaves: list[Any], spec: Any, places: list[int], *, is_inplace: bool
) -> Callable[..., Any]:
    def fn(*tensors: torch.Tensor) -> Any:
        values = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(values, spec)
        if is_inplace:
            first = first.clone()
            return op(first, *args, **kwargs), first
        return process(op(first, *args, **kwargs))

    return fn


def _brief(leaf: Any) -> Any:
    return f"{leaf.dtype}{list(leaf.shape)}{list(leaf.stride())}" if isinstance(leaf, torch.Tensor) else leaf


def wide(tensor: torch.Tensor) -> torch.Tensor:
    dtype = torch.complex128 if tensor.is_complex() else torch.float64
    if not (tensor.is_complex() or tensor.is_floating_point()):
        return tensor
    return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)


def results(fn: Callable[..., Any], groups: Sequence[Sequence[torch.Tensor]], *, is_gradient: bool) -> list[list[Any]]:
    """The leaves of each sample's result, and the gradients of its inputs."""
    torch.manual_seed(1)
    outs = fn(*(tensor for group in groups for tensor in group))
    found: list[list[Any]] = []
    for out, group in zip(outs, groups, strict=True):
        leaves = pytree.tree_leaves(out)
        given = [t for t in group if t.requires_grad]
        roots = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
        grads: Sequence[Any] = ()
        if is_gradient and given and roots:
            grads = torch.autograd.grad(roots, given, [_cotangent(t) for t in roots], allow_unused=True)
        found.append([leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in (*leaves, *grads)])
    return found


def _cotangent(x: torch.Tensor) -> torch.Tensor:
    """The same for every precision: a few values that all floats hold."""
    values = torch.arange(x.numel(), dtype=torch.float64).remainder(7).sub(2.5).div(4)
    return values.reshape(x.shape).to(x.dtype)


def together(group: Sequence[Sample]) -> Callable[..., list[Any]]:
    def fn(*tensors: torch.Tensor) -> list[Any]:
        rest = iter(tensors)
        return [sample.fn(*itertools.islice(rest, len(sample.tensors))) for sample in group]

    return fn


def compiled(fn: Callable[..., Any], compile_graph: Callable[..., Any], table: Any = None) -> Callable[..., Any]:
    return aot_function(
        fn,
        fw_compiler=partial(compile_graph, role="forward"),
        bw_compiler=partial(compile_graph, role="backward"),
        inference_compiler=partial(compile_graph, role="inference"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions() if table is None else table,
        keep_inference_input_mutations=True,
    )


def nothing(gm: Any, inputs: Any, *, role: str) -> Any:
    return gm


class Driver:
    """One operator, one dtype, one mode."""

    def __init__(self, op: Any, dtype: torch.dtype, mode: str) -> None:
        self.record = Record(full_name(op), str(dtype).removeprefix("torch."), mode)
        self.is_gradient = mode == "gradient"
        self.compiler = Compiler(observer=self._observe)
        options = Options.parse(None, {"verify": True}, self.compiler.environ)
        self.compile_graph = partial(self.compiler.compile_graph, env=Env(options, by_name("cpu")))
        self.todo = list(samples(op, dtype, mode, 10_000))

    def _observe(self, made: Compiled) -> None:
        self.record.kernels += made.report.kernels
        self.record.externs = sorted({*self.record.externs, *(name for name, _ in made.report.extern_reasons)})

    def run(self, limit: int) -> Record:
        """All samples if `limit` is 0, else as many, spread over the list."""
        step = max(1, -(-len(self.todo) // limit)) if limit else 1
        chosen = self.todo[::step]
        for start in range(0, len(chosen), PACK):
            self._try(chosen[start : start + PACK])
        return self.record

    def _try(self, group: Sequence[Sample]) -> None:
        """Together; one by one if that fails, to see which it is."""
        problem, is_ours = self._failure(group)
        if problem is None:
            return
        if len(group) > 1:
            half = len(group) // 2
            self._try(group[:half])
            self._try(group[half:])
        elif is_ours:
            self.record.failed.append(f"{problem} :: {group[0].text}"[:1500])
        else:
            self.record.skipped += 1
            self.record.reason = self.record.reason or problem[:200]

    def _failure(self, group: Sequence[Sample]) -> tuple[str | None, bool]:
        """What went wrong, and whether it is ours: eager and the tracer can do it."""
        tensors = [s.tensors for s in group]
        fn = together(group)
        with warnings.catch_warnings(), torch.set_grad_enabled(self.is_gradient):
            warnings.simplefilter("ignore")
            try:
                eager = results(fn, tensors, is_gradient=self.is_gradient)
            except Exception as reason:
                return f"eager: {reason}", False
            try:
                ours = compiled(fn, self.compile_graph)
                results(ours, tensors, is_gradient=self.is_gradient)
                got = results(ours, tensors, is_gradient=self.is_gradient)  # compiling may draw random numbers
            except Exception as reason:
                problem = f"{type(reason).__name__}: {reason}"
                if self._traced(fn, tensors) is None:
                    return f"tracer: {problem}", False
                return problem, True
            truth = self._truth(fn, tensors)
            lines = compared(got, eager, truth)
            if any(lines):
                # the same trouble without minductor is the tracer's: seeds set by the test, fake strides
                traced = self._traced(fn, tensors)
                others = compared(traced, eager, truth) if traced else [""] * len(group)
                kept = [n for n, (a, b) in enumerate(zip(lines, others, strict=True)) if not (a and b)]
                self.record.skipped += len(group) - len(kept)
                group, lines = [group[n] for n in kept], [lines[n] for n in kept]
        self.record.wrong += [f"{line} :: {s.text}"[:1500] for s, line in zip(group, lines, strict=True) if line]
        self.record.right += lines.count("")
        return None, False

    def _traced(self, fn: Callable[..., Any], tensors: Sequence[Sequence[torch.Tensor]]) -> list[list[Any]] | None:
        """What the traced graph gives without a compiler; None if it cannot be traced."""
        try:
            return results(compiled(fn, nothing, {}), tensors, is_gradient=self.is_gradient)
        except Exception:
            return None

    def _truth(self, fn: Callable[..., Any], tensors: Sequence[Sequence[torch.Tensor]]) -> list[list[Any]] | None:
        try:
            with exactly():
                return results(fn, [[wide(t) for t in group] for group in tensors], is_gradient=self.is_gradient)
        except Exception:
            return None


def compared(got: list[list[Any]], eager: list[list[Any]], truth: list[list[Any]] | None) -> list[str]:
    """For each sample what is wrong, or nothing."""
    found: list[str] = []
    for number, (ours, theirs) in enumerate(zip(got, eager, strict=True)):
        exact = truth[number] if truth and len(truth[number]) == len(theirs) else [None] * len(theirs)
        lines = [
            f"#{place} {line}"
            for place, (a, b, c) in enumerate(zip(ours, theirs, exact, strict=True))
            if (line := difference(a, b, _usable(c, b)))
        ]
        found.append("; ".join(lines)[:500])
    return found


def _usable(truth: Any, eager: Any) -> Any:
    """A truth of the same kind; None where the wider run took another road."""
    if not isinstance(truth, torch.Tensor) or not isinstance(eager, torch.Tensor) or truth.shape != eager.shape:
        return None
    return truth.resolve_conj().resolve_neg()
