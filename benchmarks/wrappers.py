"""One plan, several wrappers: the benchmark models, operators of torch's database and random programs through each.

Takes the names of wrappers (all if none), and `--random N`, how many random programs. Gives the tables of wrappers.md:
graphs, lines of plan, bytes of each text; whether results, changed arguments and gradients are those of the first
wrapper, bit for bit; and what a call of a small graph costs by each, beside the floor under it (wrapper_floor.py). Run
it by `python benchmarks/wrappers.py`; `--peer` sets TorchInductor's calls beside.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves
from wrapper_floor import floor_text

from minductor.bench import cases, models
from minductor.driver import Compiler
from minductor.runtime.store.store import Store
from pytest_plugin.strategies import campaign_program

WRAPPERS = ("python", "fx", "cpp")
OPERATORS = """
addmm argsort baddbmm bmm bucketize cat cdist cholesky clamp cumsum diff einsum fft.rfft gather index_add index_put
isin kthvalue linalg.qr logcumsumexp masked_scatter nn.functional.conv2d nn.functional.grid_sample
nn.functional.max_pool2d nonzero renorm roll scatter_reduce sort split topk unique var_mean
"""
ROUNDS, CALLS, FLOOR = 99, 50, 500

Run = Callable[[Callable[..., Any]], Sequence[Any]]  # of a compiled or eager function: all that it gives


@dataclass(frozen=True, slots=True)
class Case:
    """A function, and how it is run: with the same arguments each time."""

    group: str
    name: str
    function: Callable[..., Any]
    run: Run


@dataclass(slots=True)
class Seen:
    """What one wrapper made of one case."""

    lines: int = 0
    bytes: int = 0
    graphs: int = 0
    values: Sequence[Any] = ()
    calls: list[tuple[Any, list[Any]]] = field(default_factory=list[tuple[Any, list[Any]]])


class Watched(Compiler):
    """A Compiler that tells of its graphs: the plan, the wrapper's text, and the call with the arguments of its first
    run.
    """

    def __init__(self, seen: Seen, store: Store) -> None:
        super().__init__(store=store)
        self.seen = seen

    def compile_program(self, graph: Any, env: Any, backend: Any) -> Any:
        source, plan, facts = super().compile_program(graph, env, backend)
        self.seen.graphs += 1
        self.seen.lines += len(plan.lines) + sum(len(region.lines) for region in plan.regions)
        self.seen.bytes += len(source.wrapper)
        return source, plan, facts

    def compile_graph(self, *args: Any, **kwargs: Any) -> Any:
        call: Any = super().compile_graph(*args, **kwargs)

        def keeping(given: list[Any]) -> Any:
            self.seen.calls.append((call, list(given)))
            return call(given)

        keeping._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]  AOTAutograd's calling convention
        return keeping


def compiled(case: Case, wrapper: str, store: Store) -> Seen:
    """The case, once compiled and run."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    seen = Seen()
    backend = partial(Watched(seen, store), options={"wrapper": wrapper})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            seen.values = case.run(torch.compile(case.function, backend=backend))
        except Exception as error:
            seen.values = (f"{type(error).__name__}: {error}",)  # which is a difference
    return seen


# --- the cases


def all_cases(randoms: int) -> Iterator[Case]:
    for name in (*cases.model_names(), *cases.micro_names()):
        built = cases.build(name, size="tiny" if name.startswith("model") else "bench")
        yield Case(name.partition("/")[0], name, built.function, partial(cases.results_and_state, built))
    picked = frozenset(OPERATORS.split())
    for op in op_db:
        if op.name in picked and not op.variant_test_name:
            torch.manual_seed(0)
            sample = next(iter(op.sample_inputs("cpu", torch.float32)))
            function = partial(_applied, op, sample.kwargs)
            yield Case("operator", op.name, function, partial(_run, (sample.input, *sample.args)))
    for number in range(randoms):
        found = campaign_program(number)
        yield Case("random", f"random/{number}", found.fn(), lambda fn, found=found: _run_program(fn, found))


def _applied(op: Any, kwargs: dict[str, Any], *args: Any) -> Any:
    return op(*args, **kwargs)


def _run(args: tuple[Any, ...], function: Callable[..., Any]) -> Sequence[Any]:
    with torch.no_grad():
        return tree_leaves(function(*args))


def _run_program(function: Callable[..., Any], found: Any) -> Sequence[Any]:
    given = found.arguments()
    results = function(*given)
    roots, leaves = ([t for t in row if t.requires_grad] for row in (results, given))
    grads = torch.autograd.grad(roots, leaves, [torch.ones_like(r) for r in roots], allow_unused=True) if roots else ()
    return (*results, *given, *grads)


def difference(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    """The first difference of two results, or nothing."""
    failures = (value for value in found if isinstance(value, str))
    try:
        torch.testing.assert_close(list(found), list(wanted), rtol=0, atol=0, equal_nan=True, check_stride=True)
    except (AssertionError, TypeError) as error:
        return next(failures, str(error)).splitlines()[0]
    return ""


def compare(wrappers: Sequence[str], chosen: Iterator[Case]) -> None:
    """Prints the table of texts, and whatever is not equal."""
    rows: dict[str, dict[str, int]] = {}
    for case in chosen:
        with tempfile.TemporaryDirectory() as folder:
            found = {name: compiled(case, name, Store.open(Path(folder), {})) for name in wrappers}
        first = found[wrappers[0]]
        row = rows.setdefault(case.group, dict.fromkeys(("cases", "graphs", "lines", *wrappers, "unequal"), 0))
        row["cases"] += 1
        row["graphs"] += first.graphs
        row["lines"] += first.lines
        for name, one in found.items():
            row[name] += one.bytes
            if why := difference(one.values, first.values):
                row["unequal"] += 1
                print(f"{case.name}: {name} differs from {wrappers[0]}: {why}")
    print(f"| | cases | graphs | lines of plan | {' | '.join(f'{name}, bytes' for name in wrappers)} | not equal |")
    print(f"|---{'|---:' * (4 + len(wrappers))}|")
    for group, row in rows.items():
        print(f"| {group} | {' | '.join(map(str, row.values()))} |")


# --- the cost of a call


def chain(x: torch.Tensor, length: int) -> torch.Tensor:
    for _ in range(length):
        x = x.sin()
    return x


def small_cases() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, bool]]]:
    x = torch.randn(8)
    yield "one kernel", partial(chain, length=1), (x,), {}
    yield "ten kernels", partial(chain, length=10), (x,), {"fuse": False}
    layers = [torch.nn.Linear(8, 8) for _ in range(3)]
    yield "three layers, each a product and a kernel", torch.nn.Sequential(*layers, torch.nn.ReLU()), (x[None],), {}
    gpt = models.make("gpt", size="tiny")
    yield "GPT of 2 layers, width 32", gpt.module.eval(), gpt.inputs, {}


def peer(function: Callable[..., Any], args: Sequence[Any], *, is_cpp: bool) -> tuple[Any, list[Any]]:
    """The call of TorchInductor's graph, with the arguments of its first run."""
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    seen: list[tuple[Any, list[Any]]] = []

    def inner(*given: Any, **named: Any) -> Any:
        call: Any = compile_fx_inner(*given, **named)

        def keeping(values: list[Any]) -> Any:
            seen.append((call, list(values)))
            return call(values)

        keeping._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]  AOTAutograd's calling convention
        return keeping

    torch._dynamo.reset()
    patches = {"cpp_wrapper": is_cpp, "freezing": False}
    with torch.no_grad():
        torch.compile(function, backend=partial(compile_fx, inner_compile=inner, config_patches=patches))(*args)
    return seen[0]


class Floor(Watched):
    """A Compiler whose calls are the floor under those of the C++ wrapper, FLOOR times."""

    def compile_program(self, graph: Any, env: Any, backend: Any) -> Any:
        source, plan, facts = super().compile_program(graph, env, backend)
        return replace(source, wrapper=floor_text(source.wrapper, FLOOR)), plan, facts


def first_call(watcher: type[Watched], function: Callable[..., Any], args: Sequence[Any], **options: Any) -> Any:
    """The call of the function's graph, with the arguments of its first run."""
    torch._dynamo.reset()
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        backend = partial(watcher(seen, Store.open(Path(folder), {})), options=options)
        torch.compile(function, backend=backend)(*args)
    return seen.calls[0]


def cost(wrappers: Sequence[str], *, is_beside_peer: bool) -> None:
    """Prints microseconds of CPU time a call of a compiled graph, without Dynamo; the medians of interleaved rounds."""
    peers = ("inductor", "inductor, cpp_wrapper") if is_beside_peer else ()
    columns = (*wrappers, *peers, "floor")
    added = [name for name in ("python", "cpp") if name in wrappers]
    shown = (*columns, *(f"{name} adds" for name in added))
    print(f"| a call, us | {' | '.join(shown)} |\n|---{'|---:' * len(shown)}|")
    for label, function, args, options in small_cases():
        calls = {name: first_call(Watched, function, args, wrapper=name, **options) for name in wrappers}
        calls |= {name: peer(function, args, is_cpp="cpp" in name) for name in peers}
        calls["floor"] = first_call(Floor, function, args, wrapper="cpp", **options)
        spent = measured(calls)
        texts = [f"{spent[name]:.2f}" for name in columns]
        texts += [f"{spent[name] - spent['floor']:.2f}" for name in added]
        print(f"| {label} | {' | '.join(texts)} |", flush=True)


def measured(calls: Mapping[str, tuple[Any, list[Any]]]) -> dict[str, float]:
    """Microseconds of one call of each, less those of its list of arguments, which is the caller's."""
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, (call, given) in calls.items():
                count, each = (1, FLOOR) if name == "floor" else (CALLS, CALLS)
                start = time.process_time()
                for _ in range(count):
                    call(list(given))
                middle = time.process_time()
                for _ in range(count):
                    list(given)
                rounds[name].append((2 * middle - start - time.process_time()) / each * 1e6)
    return {name: statistics.median(found) for name, found in rounds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wrappers", nargs="*", default=WRAPPERS)
    parser.add_argument("--random", type=int, default=40)
    parser.add_argument("--peer", action="store_true", help="only what a call costs, TorchInductor's beside")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not args.peer:
        compare(args.wrappers, all_cases(args.random))
    cost(args.wrappers, is_beside_peer=args.peer)


if __name__ == "__main__":
    main()
