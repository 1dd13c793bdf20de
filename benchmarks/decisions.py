"""Whether the compiler decides for the faster way: `python benchmarks/decisions.py ROWS [--threads 1,2]`.

Takes a file of results, one JSON value a line: an array for each pair of ways, written once it is measured, and the
name of each program that has all its pairs. What the file holds is not measured again. Also takes the numbers of
threads, the device, a pattern of programs, and in how many processes to compile; one of these measures at a time.
Prints the table of decisions.md: what the compiler's prices say of both ways, what they take, and for which one it
decides.

A pair is one question that a stage asks about a program: whether two kernels are fused (`fuse` and `loop_order`),
whether a producer is recomputed where it is used (`inline`), and on a GPU whether a long reduction is cut (`split`).
Each program is compiled as the compiler decides, and again for each question with that answer turned. Later questions
are answered by the compiler in both. Questions whose answer changes no kernel are left out.

Both ways are called in turns of short slices in one process, and the least time of each counts, since other processes
only add to it. On a CPU the arguments are copied to other places a few times, since the same kernel takes other times
elsewhere. Two ways differ if their times at each of these places differ by more than a tenth, to the same side. On a
GPU a slice is a replay of a CUDA graph of some calls. Data that fit the cache come from it, as the prices assume.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import filelock
import survey
import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.cost.kernel_seconds import TIE, Prices, fastest
from minductor.ir.program.nodes import Kernel
from minductor.passes.inline import inline
from minductor.passes.rewriting import join_kernels
from minductor.passes.split import split
from minductor.runtime.store.store import digest

# of the matrices: a cache near the cores holds the first ones, the second are no power of two, the last ones are large
SIDES = {"cpu": (256, 960, 2048), "cuda": (1024, 4032, 8192)}
PLACES, SLICE = 4, 0.002  # places of the arguments, and the seconds of a slice
LEAST_ROUNDS, MOST_ROUNDS, SECONDS = 4, 20, 0.2  # at each place; so many seconds end them
CALLS = 4  # in a CUDA graph
CLEAR = 1.1  # ways whose times differ by a smaller factor are not judged
Function = Callable[..., Any]
Make = Callable[[int], tuple[Tensor, ...]]
WAYS = {"fuse": ("together", "apart"), "inline": ("recomputed", "stored"), "split": ("cut", "whole")}


class Question(NamedTuple):
    """What a stage asks, by the names of the kernels that it asks about."""

    stage: str
    kernels: str


class Answer(NamedTuple):
    """Whether the first of the two WAYS is taken, and the prices of both in seconds, on a CPU with 1 and 16 threads."""

    is_first: bool
    seconds: Sequence[Sequence[float]]


class Row(NamedTuple):
    """One pair with one number of threads: microseconds of the way taken and of the other one.

    `prices`: what the compiler thinks, on a CPU with 1 and with 16 threads. `ratios`: the time of the other way over
    that of the way taken, by place.
    """

    program: str
    stage: str
    kernels: str
    threads: int
    taken: str
    other: str
    prices: Sequence[Sequence[float]]
    times: Sequence[float]
    ratios: list[float]

    @property
    def gain(self) -> float:
        """The time of the other way over that of the way taken: above 1 if the decision is right."""
        return statistics.median(self.ratios)

    @property
    def is_clear(self) -> bool:
        """Whether the two ways differ by more than a tenth beyond the spread of the ratios."""
        return min(self.ratios) > CLEAR or max(self.ratios) < 1 / CLEAR


# --- programs


def halved(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.to(torch.bfloat16)
    return y, y.t().contiguous()


def softmax_and_sum(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    p = x.softmax(-1)
    return p, (p * y).sum(-1)


def rows_and_map(x: Tensor) -> tuple[Tensor, Tensor]:
    y = F.gelu(x)
    return y.sum(-1), y * 2


def centred(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.mean(-1, keepdim=True)
    return mean, x - mean, (x - mean).square().mean(-1)


def normed_twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = F.layer_norm(x + y, x.shape[-1:])
    return z, z.sum(0)


def columns_and_rows(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x * y
    return z.sum(0), z.sum(1)


def function_columns_and_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    z = F.gelu(x)
    return z.sum(0), z.sum(1)


def stencil(x: Tensor) -> Tensor:
    y = torch.exp(x)
    return y[:, :-2] + y[:, 1:-1] + y[:, 2:]


def two_rotations(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(x[:, 0], y[0])
    return x * angles.cos(), y * angles.sin()


def column_norm(x: Tensor) -> tuple[Tensor, Tensor]:
    y = (x - x.mean(0)) / x.std(0)
    return y, y.t().contiguous()


def biases_gradient(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = y * torch.where(x > 0, x.sigmoid(), 0.1)
    return z, z.sum(0)


def two_of_a_sum(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x.t() + y
    return z * 2, z.sum(0)


def label_smoothing(x: Tensor, places: Tensor) -> Tensor:
    return F.cross_entropy(x, places, label_smoothing=0.1)


def upsampled_norm(x: Tensor) -> Tensor:
    return F.group_norm(F.interpolate(x[:, :8], scale_factor=2), 4)


def bilinear_norm(x: Tensor) -> Tensor:
    y = F.interpolate(x[:, :4], scale_factor=2, mode="bilinear")
    return F.layer_norm(y, y.shape[-1:])


def gradient_of_batch_norm(x: Tensor, y: Tensor, *rest: Tensor) -> Tensor:
    return survey.grads(lambda x: survey.trained(x, *rest) * y)(x)


def distances(x: Tensor, y: Tensor) -> Tensor:
    return (x[:64, None, :64].exp() - y[None, :64, :64].exp()).abs().sum(-1)


def squares(count: int) -> Make:
    return lambda side: tuple(torch.randn(side, side) for _ in range(count))


PROGRAMS: Mapping[str, tuple[Function, Make]] = {
    "rounded, and transposed": (halved, survey.rows),
    "sums of x and x.t()": (lambda x, y: (x + y, x.t() + y), survey.pair),
    "x + y and x.t() + z": (lambda x, y, z: (x + y, x.t() + z), squares(3)),
    "x + y + v and x.t() + z + w": (lambda x, y, z, v, w: (x + y + v, x.t() + z + w), squares(5)),
    "transposed, and a map": (lambda x: (x.t().contiguous(), x * 2), survey.rows),
    "transposed, and sums of rows": (lambda x: (x.sum(1), x.t().contiguous()), survey.rows),
    "a map and column sums of x.t() + y": (two_of_a_sum, survey.pair),
    "softmax, and sums of its products": (softmax_and_sum, survey.pair),
    "softmax, transposed": (lambda x: x.softmax(-1).t().contiguous(), survey.rows),
    "softmax of rows and of columns": (lambda x: x.softmax(0) + x.softmax(1), survey.rows),
    "gelu: sums of rows, and a map": (rows_and_map, survey.rows),
    "mean, centred, variance": (centred, survey.rows),
    "layer_norm, and column sums": (normed_twice, survey.pair),
    "column sums and row sums of x * y": (columns_and_rows, survey.pair),
    "column sums and row sums of gelu": (function_columns_and_rows, survey.rows),
    "gradient of a bias": (biases_gradient, survey.pair),
    "gelu of a row, added": (lambda x: x + F.gelu(x[0]), survey.rows),
    "exp of a row, multiplied": (lambda x, y: x * y[0].exp(), survey.pair),
    "tanh of a column, multiplied": (lambda x, y: x * y[:, :1].tanh(), survey.pair),
    "sums of rows, added to rows": (lambda x, y: x + y.sum(0), survey.pair),
    "outer sum of functions": (lambda x: x[0].exp()[:, None] + x[1].sin(), survey.rows),
    "outer sum of halves": (lambda x: (x[0] * 2)[:, None] + x[1] * 3, survey.rows),
    "cos and sin of an outer product": (two_rotations, survey.pair),
    "stencil of exp": (stencil, survey.rows),
    "distances of functions": (distances, survey.pair),
    "max_pool of gelu": (lambda x: F.max_pool2d(F.gelu(x), 3, 2, 1), survey.images),
    "max_pool, stride 1, of relu": (lambda x: F.max_pool2d(x.relu(), 3, 1, 1), survey.images),
    "avg_pool of silu": (lambda x: F.avg_pool2d(F.silu(x), 3, 1, 1), survey.images),
    "avg_pool of x * 2 + 1": (lambda x: F.avg_pool2d(x * 2 + 1, 2), survey.images),
    "nearest of silu": (lambda x: F.interpolate(F.silu(x[:, :4]), scale_factor=2), survey.images),
    "bilinear of silu": (
        lambda x: F.interpolate(F.silu(x[:, :4]), scale_factor=2, mode="bilinear"),
        survey.images,
    ),
    "rows by index of exp": (lambda x, i, y: x.exp()[i] + y, survey.with_rows),
    "rows by index modulo": (lambda x, i, y: x[i * 7 % x.shape[0]] + y, survey.with_rows),
    "gather of a double": (lambda x, i, y: (x * 2).gather(-1, i) + y, survey.with_places),
    "gather of tanh": (lambda x, i, y: x.tanh().gather(-1, i) + y, survey.with_places),
    "one_hot, and its sums": (lambda x, i: F.one_hot(i % 64, 64).sum(0), survey.classes),
    "concat of exp, and its row sums": (lambda x, y: torch.cat((x.exp(), y), -1).sum(-1), survey.halves),
    "cumsum of exp, normalised": (lambda x: x.exp().cumsum(-1) / x.exp().sum(-1, keepdim=True), survey.rows),
    "normalised columns, transposed": (column_norm, survey.rows),
    "batch_norm of gelu": (
        lambda x, *rest: survey.batch_norm(F.gelu(x), *rest, training=True),
        survey.normed(survey.images),
    ),
    "group_norm, silu": (lambda x: F.silu(F.group_norm(x, 4)), survey.images),
    "cross entropy, smoothed": (label_smoothing, survey.classes),
    "sum of few long rows": (lambda x: (x.view(4, -1).exp().sum(-1), x.view(4, -1) + 1), survey.rows),
    "cumsum of few long rows": (lambda x: x.view(4, -1).cumsum(-1), survey.rows),
    "upsampled, group_norm": (upsampled_norm, survey.images),
    "bilinear, layer_norm": (bilinear_norm, survey.images),
    "rolled, softmax": (lambda x: x.roll(5, -1).softmax(-1), survey.rows),
    "batch_norm gradient": (
        lambda x, *rest: gradient_of_batch_norm(x, x.cos(), *rest),
        survey.normed(survey.images),
    ),
    "long rows normalised": (lambda x: F.layer_norm(x.view(4, -1), (x.numel() // 4,)), survey.rows),
}
OF_SURVEY = (
    *("softmax rows", "softmax columns", "softmax middle", "log_softmax", "masked softmax", "softmax gradient"),
    *("layer_norm gradient", "var columns", "normalize", "standardize", "cosine similarity", "logcumsumexp"),
    *("one_hot", "nearest", "bicubic", "nearest gradient", "local response", "max_pool gradient", "unfold", "fold"),
    *("embedding gradient", "cross_entropy", "cross_entropy gradient", "nll of images", "kl_div", "triplet"),
    *("batch_norm training", "batch_norm training last", "group_norm last", "instance_norm last", "grid_sample"),
    *(
        "norm of weights",
        "softmax of channels",
        "argmax of channels",
        "rotary",
        "adaptive pool 3",
        "sum",
        "sum columns",
    ),
    *("prod", "cumprod", "scatter_reduce", "index_add", "reflect pad", "permute 43210", "cumsum rows", "cummax"),
)


def programs(device: str, pattern: str) -> Iterator[tuple[str, Function, Callable[[], tuple[Tensor, ...]]]]:
    """The name of each program, its function, and a function that makes its arguments."""
    for name, (fn, make) in {**PROGRAMS, **{name: survey.CASES[name] for name in OF_SURVEY}}.items():
        for side in SIDES[device]:
            if re.search(pattern, title := f"{name}, {side}"):
                yield title, fn, lambda make=make, side=side: tuple(each.to(device) for each in make(side))


# --- the decisions of one compile


@dataclass
class Decisions:
    """What the stages ask while a program is compiled. `turned`: a question, and the answer that it is given."""

    turned: tuple[Question, bool] | None = None
    answers: dict[Question, Answer] = field(default_factory=dict)
    priced: list[Sequence[Sequence[float]]] = field(default_factory=list)

    def turn(self, question: Question, *, is_first: bool) -> bool | None:
        """Notes an answer of the compiler. Returns the one that the question is given instead, or None."""
        self.answers[question] = Answer(is_first, self.priced.pop())
        return self.turned[1] if self.turned is not None and self.turned[0] == question else None

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Within it, each question that a stage asks is noted, and one is answered the other way."""
        with ExitStack() as patches:
            for where, name, turning in (
                (Prices, "slower", self.noting),
                (join_kernels, "_if_faster", self.joined),
                (inline._Inliner, "_verdict", self.recomputed),
                (split._Splitter, "choice", self.cut),
            ):
                patches.enter_context(mock.patch.object(where, name, turning(getattr(where, name))))
            yield

    def noting(self, slower: Function) -> Function:
        """`Prices.slower` that also notes the seconds of both ways."""

        def answer(prices: Prices, one: Any, other: Any, tie: float = TIE) -> Any:
            self.priced.append(prices.seconds((one, other)))
            return slower(prices, one, other, tie)

        return answer

    def joined(self, if_faster: Function) -> Function:
        """What `fuse` and `loop_order` ask."""

        def answer(kernels: tuple[Kernel, Kernel], made: Kernel, context: Any) -> Any:
            found = if_faster(kernels, made, context)
            question = Question("fuse", " and ".join(kernel.name for kernel in kernels))
            turned = self.turn(question, is_first=isinstance(found, Kernel))
            return found if turned is None else made if turned else join_kernels.CannotJoin("the benchmark turned it")

        return answer

    def recomputed(self, of_inline: Function) -> Function:
        """What `inline` asks."""

        def answer(inliner: Any, producer: Any, uses: Any) -> Any:
            self.priced.clear()
            found = of_inline(inliner, producer, uses)
            if not self.priced:  # as cheap to compute as to load: the prices are not asked
                return found
            turned = self.turn(Question("inline", producer.kernel.name), is_first=found.moves)
            return found if turned is None else inline._Verdict("the benchmark turned it", moves=turned)

        return answer

    def cut(self, choice: Function) -> Function:
        """What `split` asks."""

        def answer(splitter: Any, forms: Sequence[Kernel], *rest: Any) -> Any:
            def taken(prices: Mapping[str, Sequence[float]]) -> str:
                found, others = fastest(prices), {name: each for name, each in prices.items() if name != split.WHOLE}
                if not others or split.WHOLE not in prices:
                    return found
                self.priced.append([prices[fastest(others)], prices[split.WHOLE]])
                turned = self.turn(Question("split", forms[0].name), is_first=found != split.WHOLE)
                return found if turned is None else fastest(others) if turned else split.WHOLE

            with mock.patch.object(split, "fastest", taken):
                return choice(splitter, forms, *rest)

        return answer


class Turning(minductor.Compiler):
    """A compiler that answers one question the other way. Its entries in the store have keys of their own."""

    def __init__(self, decisions: Decisions, **given: Any) -> None:
        super().__init__(**given)
        self.decisions = decisions

    def key(self, graph: Any, env: Any, *, is_dry: bool = False) -> str:
        own = super().key(graph, env, is_dry=is_dry)
        return own if self.decisions.turned is None else digest(own, repr(self.decisions.turned))


def compiled(fn: Function, decisions: Decisions, options: Mapping[str, Any], **given: Any) -> Function:
    """A compiled function, whose first call compiles it."""
    torch._dynamo.reset()
    return torch.compile(
        lambda *args: fn(*args), backend=Turning(decisions, **given), dynamic=False, options=dict(options)
    )


def texts(fn: Function, args: Sequence[Tensor], decisions: Decisions) -> dict[str, str]:
    """The texts of the kernels, without building them; fills the answers of `decisions`."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, decisions.asked():  # a graph that a store has asks nothing
        options = {"cache_dir": folder}
        if args[0].is_cuda:  # a dry compile is for the CPU otherwise
            options["target"] = "sm_{}{}".format(*torch.cuda.get_device_capability(args[0].device))
        compiled(fn, decisions, options, is_dry=True, observer=lambda made: found.update(made.sources))(*args)
    return found


def questions(fn: Function, args: Sequence[Tensor]) -> Iterator[tuple[Question, Answer]]:
    """The questions of a program whose answers change its kernels, with the compiler's answers."""
    own = Decisions()
    kernels = texts(fn, args, own)
    for question, answer in own.answers.items():
        if texts(fn, args, Decisions((question, not answer.is_first))) != kernels:
            yield question, answer


# --- clocks


def slice_of_cpu(call: Function, args: Sequence[Tensor], count: int) -> float:
    """The seconds of a call, of `count` calls one after the other; on one thread without those of other processes."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    for _ in range(count):
        call(*args)
    return (clock() - begin) / count


def on_cpu(calls: Sequence[Function], args: Sequence[Tensor]) -> Iterator[list[Sequence[float]]]:
    """For each place of the arguments, the seconds of both calls in each round."""
    kept: list[Sequence[Tensor]] = []
    for _ in range(PLACES):
        kept.append(args := [each.clone() for each in args])  # those before stay, so that these lie elsewhere
        once = [min(slice_of_cpu(call, args, 1) for _ in range(3)) for call in calls]
        counts = [max(1, min(200, int(SLICE / seconds))) for seconds in once]
        yield rounds([partial(slice_of_cpu, call, args, count) for call, count in zip(calls, counts, strict=True)])


def on_gpu(calls: Sequence[Function], args: Sequence[Tensor]) -> Iterator[list[Sequence[float]]]:
    """The same on a GPU, where the place of the arguments matters little: several runs of the same graphs."""
    runs = [many(call, args) for call in calls]
    for _ in range(PLACES):
        yield rounds([partial(slice_of_gpu, run) for run in runs])


def many(call: Function, args: Sequence[Tensor]) -> Callable[[], Any]:
    """CALLS calls, as one graph; one by one if a call waits for the GPU, which no graph holds."""

    def one_by_one() -> None:
        for _ in range(CALLS):
            call(*args)

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            one_by_one()
    except RuntimeError:
        torch.cuda.synchronize()
        return one_by_one
    return graph.replay


def slice_of_gpu(run: Callable[[], Any]) -> float:
    """The seconds of a call, of CALLS that run at once."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / CALLS / 1e3


def rounds(slices: Sequence[Callable[[], float]]) -> list[Sequence[float]]:
    """The seconds of each slice in each round, the first of which does not count."""
    found: list[Sequence[float]] = []
    end = float("inf")
    while len(found) <= LEAST_ROUNDS or (len(found) <= MOST_ROUNDS and time.perf_counter() < end):
        if len(found) == 1:
            end = time.perf_counter() + SECONDS
        order = slices if len(found) % 2 else slices[::-1]
        times = [each() for each in order]
        found.append(times if len(found) % 2 else times[::-1])
    return found[1:]


def measured(calls: Sequence[Function], args: Sequence[Tensor]) -> tuple[tuple[float, float], list[float]]:
    """The median microseconds of the way taken and of the other one, and by place the time of other over taken.

    At each place the least time of all rounds counts: other processes only add to it.
    """
    places = (on_gpu if args[0].is_cuda else on_cpu)(calls, args)
    least = [tuple(map(min, zip(*times, strict=True))) for times in places]
    taken, other = (1e6 * statistics.median(times[n] for times in least) for n in (0, 1))
    return (taken, other), [times[1] / times[0] for times in least]


# --- rows


def built(fn: Function, args: Sequence[Tensor], turned: tuple[Question, bool] | None) -> Function:
    """The compiled function, after two calls."""
    decisions = Decisions(turned)
    call = compiled(fn, decisions, {})
    with decisions.asked():
        call(*args)
    call(*args)
    return call


def measure(
    title: str,
    fn: Function,
    args: Sequence[Tensor],
    threads: Sequence[int],
    done: Set[str],
    turn: filelock.BaseFileLock,
) -> Iterator[Row]:
    """The rows of one program, without those that are done; while they are measured this process holds the `turn`."""
    for question, answer in questions(fn, args):
        if f"{title} {question}" in done:
            continue
        calls = [built(fn, args, turned) for turned in (None, (question, not answer.is_first))]
        order = slice(None, None, 1 if answer.is_first else -1)
        taken, other = WAYS[question.stage][order]
        prices = [[1e6 * each for each in way] for way in answer.seconds][order]
        for count in threads:
            torch.set_num_threads(count)
            with turn:
                times, ratios = measured(calls, args)
            yield Row(title, *question, count, taken, other, prices, times, ratios)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The lines of decisions.md, of the pairs that differ."""
    yield "| program | kernels | threads | taken | us by prices: taken, other | us measured | other / taken | |"
    yield "|---|---|---:|---|---:|---:|---:|---|"
    for row in sorted((row for row in rows if row.is_clear), key=lambda row: row.gain):
        verdict = "right" if row.gain > 1 else "wrong"
        prices = "; ".join(f"{taken:.3g}, {other:.3g}" for taken, other in zip(*row.prices, strict=True))
        times = ", ".join(f"{value:.3g}" for value in row.times)
        spread = f"{row.gain:.2f} ({min(row.ratios):.2f} to {max(row.ratios):.2f})"
        words = (row.program, row.kernels, row.threads, f"{row.taken}, not {row.other}", prices, times, spread, verdict)
        yield f"| {' | '.join(map(str, words))} |"


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """How many decisions are right, for each number of threads."""
    for threads in sorted({row.threads for row in rows}):
        mine = [row for row in rows if row.threads == threads]
        clear = [row for row in mine if row.is_clear]
        wrong = [row for row in clear if row.gain < 1]
        for_others = sum(row.prices[0][0] > row.prices[1][0] for row in wrong)  # the prices know that 1 thread loses
        worst = min(clear, key=lambda row: row.gain, default=mine[0])
        share = 1 - len(wrong) / max(1, len(clear))
        yield (
            f"{threads} threads: {len(mine)} pairs, {len(clear)} differ by more than a tenth. Of these the decision is "
            f"the faster way in {len(clear) - len(wrong)} ({share:.2f}); of the {len(wrong)} others {for_others} are "
            f"taken for 16 threads. Worst loss: {1 / worst.gain:.2f} ({worst.program})."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="the file of results, which is made or added to")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--device", default="cpu", choices=SIDES)
    parser.add_argument("--only", default="", help="a pattern of programs")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch._dynamo.config.recompile_limit = 100_000
    torch.set_grad_enabled(False)
    threads = [int(each) for each in asked.threads.split(",")] if asked.device == "cpu" else [1]
    if asked.part is None and asked.jobs > 1:
        started = [subprocess.Popen([*sys.orig_argv, "--part", str(part)]) for part in range(asked.jobs)]
        for process in started:
            process.wait()
    else:
        for program in list(programs(asked.device, asked.only))[asked.part or 0 :: asked.jobs]:
            measure_one(*program, asked.rows, threads)
    if asked.part is None:
        rows = read(asked.rows)[0]
        print(*table(rows), "", *summary(rows), sep="\n")


def measure_one(
    title: str, fn: Function, make: Callable[[], tuple[Tensor, ...]], path: Path, threads: Sequence[int]
) -> None:
    """Adds the rows of one program to a file, and its name once it has them all."""
    rows, complete = read(path)
    if title in complete:
        return
    torch.manual_seed(0)
    done = {f"{row.program} {Question(*row[1:3])}" for row in rows}
    try:
        for row in measure(title, fn, make(), threads, done, filelock.FileLock(path.with_suffix(".lock"))):
            add(path, row)
    except Exception as error:  # the others are measured
        print(f"{title}: {error}", file=sys.stderr)
    else:
        add(path, title)


def add(path: Path, line: Row | str) -> None:
    """Adds a line to a file of results, in one write, since other processes add to it too."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path) -> tuple[list[Row], set[str]]:
    """The rows of a file, and the names of the programs that have all their rows; nothing if there is no such file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Row(*line) for line in lines if isinstance(line, list)], {line for line in lines if isinstance(line, str)}


if __name__ == "__main__":
    main()
