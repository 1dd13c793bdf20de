"""Runs the samples of one operator of torch's own test database through a compiler, several to a graph.

Takes an OpInfo, a dtype and a mode (forward, gradient or inplace, each also with symbolic sizes). Gives a `Record`:
samples right, wrong, failed, run in eager and skipped, with a line for each thing that is wrong. Refuses nothing: what
eager or the tracer cannot do is skipped, and counted.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from minductor.core.errors import RanInEager
from pytest_plugin.oracle.exact_sums import exact_sums
from pytest_plugin.oracle.reference_runs import computing_in_float64
from tests.opinfo import compilers
from tests.opinfo.expected import Row, find, load
from tests.opinfo.judge import difference, strides
from tests.opinfo.noise import explains, noisy

PACK = 12  # samples to a graph
DYNAMIC_PACK = 4  # equal sizes share a symbol, so what one sample needs of a size is known for the others too
MODES = ("forward", "gradient", "inplace", "forward-dynamic", "gradient-dynamic")
# their values are whatever the memory held
WITHOUT_VALUES = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))


@dataclass
class Record:
    """What became of one operator's samples."""

    op: str
    dtype: str
    mode: str
    compiler: str = "minductor"
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    expected: int = 0  # failures that expected.txt has a row for
    fallback: int = 0  # samples whose graph ran in eager as a whole; right or wrong like any other
    unstable: int = 0  # off, but within what one unit of noise in eager's own results does
    skipped: int = 0  # by eager or by the tracer
    reason: str = ""  # the first of them
    externs: list[str] = field(default_factory=list)
    kernels: int = 0
    compiled: int = 0  # of them by Triton, for a target that is elsewhere: equal ones once
    spilling: int = 0
    graphs: int = 0
    symbolic: int = 0  # of the graphs
    seconds: float = 0.0  # of CPU time, to trace, compile and run twice


@dataclass(frozen=True)
class Sample:
    """A call of an operator: its tensors, apart from everything else."""

    op: str
    fn: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    text: str


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


@functools.lru_cache(maxsize=128)
def operators(dtype: torch.dtype, mode: str) -> Mapping[str, Any]:
    """Those of the database that take this dtype, by name."""
    usable = (op for op in op_db if op.name not in WITHOUT_VALUES)
    found = {full_name(op): op for op in usable if dtype in op.supported_dtypes("cpu")}
    if mode.startswith("gradient"):
        return {name: op for name, op in found.items() if dtype in op.supported_backward_dtypes("cpu")}
    if mode == "inplace":
        return {name: op for name, op in found.items() if op.inplace_variant is not None}
    return found


def _device_type(leaf: object) -> str:
    """The type of device that an argument names or lies on; "cpu" for one that has to do with none.

    Samples name devices as torch.device or, by the keyword `device`, as text.
    """
    match leaf:
        case torch.Tensor() if leaf.device.type == "cuda":
            return "cuda"
        case torch.device():
            return leaf.type
        case str() if leaf.partition(":")[0] == "cuda":
            return "cuda"
        case _:
            return "cpu"


def samples(op: Any, dtype: torch.dtype, mode: str) -> Iterator[Sample]:
    torch.manual_seed(0)
    call = op.inplace_variant if mode == "inplace" else op
    for given in op.sample_inputs("cpu", dtype, requires_grad=mode.startswith("gradient")):
        if mode == "inplace" and given.broadcasts_input:
            continue
        leaves, spec = pytree.tree_flatten((given.input, given.args, given.kwargs))
        if any(_device_type(leaf) != "cpu" for leaf in leaves):
            continue  # where there is a GPU, some samples make a tensor on it
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        if any(leaves[n].layout != torch.strided for n in places):
            continue  # sparse ones run in eager as whole graphs, which tests of their own see to
        yield Sample(
            full_name(op),
            _call(call, given.output_process_fn_grad, leaves, spec, places, is_inplace=mode == "inplace"),
            tuple(leaves[n].detach().requires_grad_(leaves[n].requires_grad) for n in places),
            pytree.tree_unflatten([_brief(leaf) for leaf in leaves], spec).__repr__(),
        )


@dataclass(frozen=True)
class Choice:
    """Which samples of an operator run: all of them unless it says less."""

    limit: int = 0  # at most so many, spread over the list
    fraction: float = 1.0  # each one with this probability
    seed: int = 0

    def of(self, given: Sequence[Sample], key: str) -> list[Sample]:
        rng = random.Random(f"{self.seed} {key}")
        chosen = [sample for sample in given if self.fraction >= 1 or rng.random() < self.fraction]
        if not self.limit or len(chosen) <= self.limit:
            return chosen
        # spread, and for each seed and operator others
        start, count = rng.randrange(len(chosen)), len(chosen)
        return [chosen[(start + count * n // self.limit) % count] for n in range(self.limit)]


ALL = Choice()


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
    """The leaves of each sample's result, and the gradients of its inputs.

    One backward serves all samples: a compiled function has one, and it runs once.
    """
    torch.manual_seed(1)
    # the database seeds inside the random operators, which a tracer does not see
    with mock.patch.object(common_methods_invocations, "wrapper_set_seed", _unseeded):
        outs = fn(*(tensor for group in groups for tensor in group))
    found = [pytree.tree_leaves(out) for out in outs]
    grads: list[Any] = []
    if is_gradient:
        given = [t for group in groups for t in group if t.requires_grad]
        roots = [t for leaves in found for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
        if given and roots:
            grads = list(torch.autograd.grad(roots, given, [_cotangent(t) for t in roots], allow_unused=True))
    rest = iter(grads)
    for leaves, group in zip(found, groups, strict=True):
        wanted = any(isinstance(t, torch.Tensor) and t.requires_grad for t in leaves)
        mine = [next(rest) for t in group if t.requires_grad] if grads else []
        leaves += mine if wanted else []
    return [[x.detach() if isinstance(x, torch.Tensor) else x for x in leaves] for leaves in found]


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def _cotangent(x: torch.Tensor) -> torch.Tensor:
    """The same for every precision: a few values that all floats hold."""
    values = torch.arange(x.numel(), dtype=torch.float64).remainder(7).sub(2.5).div(4)
    return values.reshape(x.shape).to(x.dtype)


def together(group: Sequence[Sample]) -> Callable[..., list[Any]]:
    def fn(*tensors: torch.Tensor) -> list[Any]:
        rest = iter(tensors)
        return [sample.fn(*itertools.islice(rest, len(sample.tensors))) for sample in group]

    return fn


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def drive(
    op: Any,
    dtype: torch.dtype,
    mode: str,
    choice: Choice = ALL,
    *,
    compiler: str = "minductor",
    rows: Sequence[Row] = (),
) -> Record:
    """One operator, one dtype, one mode, one compiler."""
    record = Record(full_name(op), str(dtype).removeprefix("torch."), mode, compiler)
    chosen = choice.of(list(samples(op, dtype, mode)), f"{record.op} {record.dtype} {record.mode}")
    return Driver(record, rows).run(chosen)


def mixed(ops: Sequence[Any], dtype: torch.dtype, mode: str, choice: Choice) -> Record:
    """A few samples of each of several operators, packed into the same graphs: quicker than one after the other."""
    name = str(dtype).removeprefix("torch.")
    chosen = [s for op in ops for s in choice.of(list(samples(op, dtype, mode)), f"{full_name(op)} {name} {mode}")]
    return Driver(Record("several", name, mode), load()).run(chosen)


class Driver:
    """Runs samples through one compiler, and writes down what became of them."""

    def __init__(self, record: Record, rows: Sequence[Row] = ()) -> None:
        self.record, self.rows = record, rows
        self.is_gradient, self.is_dynamic = record.mode.startswith("gradient"), record.mode.endswith("dynamic")
        self.seen = compilers.Seen()
        self.compile: compilers.Compile = compilers.find(record.compiler)(self.seen)

    def run(self, chosen: Sequence[Sample]) -> Record:
        record = self.record
        known = [(s, find(self.rows, s.op, record.dtype, record.mode, s.text)) for s in chosen]
        plain = [sample for sample, row in known if row is None]
        pack = DYNAMIC_PACK if self.is_dynamic else PACK
        for start in range(0, len(plain), pack):
            self._try(plain[start : start + pack])
        for sample, row in known:
            if row is not None:
                self._fails(sample, row)
        record.externs = sorted(self.seen.externs)
        record.kernels, record.graphs, record.symbolic = self.seen.kernels, self.seen.graphs, self.seen.symbolic
        record.compiled, record.spilling = self.seen.compiled, self.seen.spilling
        record.seconds = round(record.seconds, 3)
        return record

    def _fails(self, sample: Sample, row: Row) -> None:
        """A sample that is known to fail must."""
        before = len(self.record.failed)
        self._try([sample])
        if len(self.record.failed) > before:
            del self.record.failed[before:]
            self.record.expected += 1
        elif not self.record.wrong:
            self.record.failed.append(
                f"passes, although expected.txt has it: {row.reason} :: {sample.op} {sample.text}"[:1500]
            )

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
            self.record.failed.append(f"{problem} :: {group[0].op} {group[0].text}"[:1500])
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
                got, is_fallback = self._ours(fn, tensors)
            except Exception as reason:
                problem = f"{type(reason).__name__}: {reason}"
                if self._traced(fn, tensors) is None:
                    return f"tracer: {problem}", False
                return problem, True
            if is_fallback and len(group) > 1:
                return "a graph of it ran in eager: whose?", True
            self._judge(group, got, eager, fn)
        self.record.fallback += is_fallback
        return None, False

    def _ours(self, fn: Callable[..., Any], tensors: Sequence[Sequence[torch.Tensor]]) -> tuple[list[list[Any]], bool]:
        """The results, and whether a graph ran in eager as a whole."""
        start = cpu_seconds()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            ours = self.compile(fn, dynamic=self.is_dynamic)
            results(ours, tensors, is_gradient=self.is_gradient)
            got = results(ours, tensors, is_gradient=self.is_gradient)  # compiling may draw random numbers
        self.record.seconds += cpu_seconds() - start
        return got, any(issubclass(w.category, RanInEager) for w in warned)

    def _judge(
        self, group: Sequence[Sample], got: list[list[Any]], eager: list[list[Any]], fn: Callable[..., Any]
    ) -> None:
        tensors = [s.tensors for s in group]
        truth = self._truth(fn, tensors)
        lines = compared(got, eager, truth)
        if any(lines) and self.record.dtype == "float64":
            truth = self._truth(fn, tensors, sums=True) or truth
            lines = compared(got, eager, truth)
        if any(lines):
            # the same trouble without a compiler is the tracer's: seeds set by the test, fake strides
            plain = self._traced(fn, tensors)
            others = compared(plain, eager, truth) if plain else [""] * len(group)
            # then the compiled function has to be wrong in the same way
            alike = compared(got, plain, truth) if plain else lines
            excused = [bool(a and b and not c) for a, b, c in zip(lines, others, alike, strict=True)]
            self.record.skipped += sum(excused)
            if any(excused):
                self.record.reason = self.record.reason or f"tracer: {lines[excused.index(True)]}"[:200]
            unstable = [
                n for n, line in enumerate(lines) if line and not excused[n] and self._is_noise(group[n], got[n])
            ]
            self.record.unstable += len(unstable)
            kept = [n for n, is_excused in enumerate(excused) if not is_excused and n not in unstable]
            group, lines = [group[n] for n in kept], [lines[n] for n in kept]
        self.record.wrong += [f"{line} :: {s.op} {s.text}"[:1500] for s, line in zip(group, lines, strict=True) if line]
        self.record.right += lines.count("")

    def _is_noise(self, sample: Sample, got: list[Any]) -> bool:
        """Whether a unit in the last place of eager's own results moves them as far: nobody could be nearer."""
        fn, tensors = together([sample]), [sample.tensors]

        def run() -> list[Any]:
            return results(fn, tensors, is_gradient=self.is_gradient)[0]

        eager, truth = run(), self._truth(fn, tensors, sums=self.record.dtype == "float64")
        exact = truth[0] if truth and len(truth[0]) == len(eager) else [None] * len(eager)
        runs = noisy(run)
        for place, (ours, theirs) in enumerate(zip(got, eager, strict=True)):
            usable = _usable(exact[place], theirs)
            if difference(ours, theirs, usable) is None:
                continue
            if not isinstance(theirs, torch.Tensor) or strides(ours) != strides(theirs):
                return False
            if not explains(ours, theirs, usable, [r[place] for r in runs]):
                return False
        return True

    def _traced(self, fn: Callable[..., Any], tensors: Sequence[Sequence[torch.Tensor]]) -> list[list[Any]] | None:
        """What the traced graph gives without a compiler; None if it cannot be traced."""
        try:
            traced = compilers.none(compilers.Seen())(fn, dynamic=self.is_dynamic)
            results(traced, tensors, is_gradient=self.is_gradient)
            return results(traced, tensors, is_gradient=self.is_gradient)
        except Exception:
            return None

    def _truth(
        self, fn: Callable[..., Any], tensors: Sequence[Sequence[torch.Tensor]], *, sums: bool = False
    ) -> list[list[Any]] | None:
        try:
            with exact_sums() if sums else nullcontext(), computing_in_float64():
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
