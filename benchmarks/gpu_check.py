"""Whether kernels of ours are right on a real GPU, and how fast: one line a case, nothing stops at a failure.

`python -m benchmarks.gpu_check [WORD...]` runs the micro cases, small models, and what only a GPU has (streams,
pointers that are not aligned, numbers on the CPU, threads, assertions) through `torch.compile`, against float64 on the
same device: right is within twice eager's error. Then memory-bound cases of 256 MiB and more: bandwidth (inputs and
results, once each) beside that of a copy in the same rounds, and times beside eager's and TorchInductor's, as medians
of interleaved rounds. Cases run in a process of their own, which is replaced where one breaks the device or hangs.

With `--results FILE` each case adds a row to the file, with the commit and the day, and cases that have a row at this
commit are not run again: it may be stopped at any row. `--table` prints what the file says, and what of it is stale.
`--operators` and `--tests` add torch's operators and the end-to-end tests, in `--jobs` processes.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import gpu_operators, gpu_results
from minductor.bench import cases, measure, micro

ROW, COLUMN, WIDE = (16384, 4096), (4096,), (4096, 16384)
BF16 = torch.bfloat16
# memory-bound: function, shapes and dtype
LARGE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], torch.dtype]] = {
    "layer_norm_gelu": (micro.layer_norm_gelu, (ROW,), torch.float32),
    "pointwise_chain": (micro.pointwise_chain, (ROW, ROW), torch.float32),
    "pointwise_chain_bf16": (micro.pointwise_chain, (ROW, ROW), BF16),
    "bias_gelu_residual": (micro.bias_gelu_residual, (ROW, COLUMN, ROW), torch.float32),
    "softmax_rows": (micro.softmax_rows, (ROW,), torch.float32),
    "softmax_rows_bf16": (micro.softmax_rows, (ROW,), BF16),
    "softmax_short_rows": (micro.softmax_rows, ((2**21, 32),), torch.float32),
    "softmax_long_rows": (micro.softmax_rows, ((512, 2**17),), torch.float32),
    "softmax_columns": (micro.softmax_columns, (ROW,), torch.float32),
    "layer_norm_residual": (micro.layer_norm_residual, (ROW, ROW, COLUMN, COLUMN), torch.float32),
    "rms_norm_bf16": (micro.rms_norm, (ROW, COLUMN), BF16),
    "sum_inner": (micro.sum_inner, (ROW,), torch.float32),
    "sum_outer": (micro.sum_outer, (ROW,), torch.float32),
    "mean_all": (micro.mean_squared_error, (ROW, ROW), torch.float32),
    "argmax": (micro.argmax_rows, (ROW, COLUMN), torch.float32),
    "transposed_add": (micro.transposed_add, (ROW, WIDE), torch.float32),
    "where_masked_fill": (micro.where_masked, (ROW, ROW), torch.float32),
}
MODELS_TIMED = ("model/gpt/inference", "model/gpt/training")
BROKEN = (
    "illegal memory access",
    "device-side assert",
    "misaligned address",
    "unspecified launch failure",
    "CUDA error",
)
HANGS_SECONDS = 300.0  # a file of tests is silent for so long
LINE = re.compile(r"(right|WRONG|ERROR) (\S+) \(([\d.]+) s\): (.*)")


class Wrong(Exception):
    """A result that is not eager's."""


# --- right --------------------------------------------------------------------------------------------------------


def compiled(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    import minductor

    torch._dynamo.reset()
    return torch.compile(function, backend=minductor.minductor, **kwargs)


def judge(got: Any, eager: Any, truth: Any) -> str:
    found = measure.worst(got, eager, truth)
    text = f"result {found['result']:.0f}: error {found['error']:.3g}, eager's {found['eager']:.3g}"
    if not found["error"] <= found["bound"]:
        raise Wrong(text)
    return text


def bench_case(name: str, device: str) -> str:
    with torch.device(device):
        program = cases.build(name, size="tiny" if name.startswith("model/") else "bench")
        exact = cases.build(name, size="tiny" if name.startswith("model/") else "bench", precision="float64")
    truth = cases.results_and_state(exact, exact.function)
    eager = cases.results_and_state(program, program.function)
    return judge(cases.results_and_state(program, compiled(program.function)), eager, truth)


def same(function: Callable[..., Any], *args: Any, run: Callable[..., Any] | None = None) -> str:
    """Against float64, by one call."""
    wide = [a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
    got = (run or compiled(function))(*args)
    row = [r if isinstance(r, tuple | list) else (r,) for r in (got, function(*args), function(*wide))]
    devices = [(t.device, t.dtype, t.stride()) for t in row[0]], [(t.device, t.dtype, t.stride()) for t in row[1]]
    if devices[0] != devices[1]:
        raise Wrong(f"{devices[0]} and not {devices[1]}")
    return judge(*row)


def unaligned(device: str) -> str:
    run = compiled(lambda x, y: torch.softmax(x * 2 + y, -1))
    base, texts = torch.randn(130, 257, device=device).flatten(), []
    for first in (0, 1, 2, 4):
        x = base[first : first + 128 * 256].view(128, 256)
        texts.append(same(lambda x, y: torch.softmax(x * 2 + y, -1), x, torch.ones(256, device=device), run=run))
    return texts[-1]


def dynamic(device: str) -> str:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.nn.functional.layer_norm(x + y, (x.shape[-1],)), (x * y).sum(0)

    run, text = compiled(fn, dynamic=True), ""
    for rows, columns in ((5, 7), (64, 1000), (1, 33), (3000, 5), (129, 4097), (2, 20000)):
        x, y = torch.randn(rows, columns, device=device), torch.randn(columns, device=device)
        text = same(fn, x, y, run=run)
    return text


def scalars(device: str) -> str:
    def fn(x: Tensor, factor: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        return x * factor + count, factor * 2, (x + 1).sum(0)

    return same(fn, torch.randn(33, 65, device=device), torch.tensor(1.5), torch.tensor(3))


def two_devices(device: str) -> str:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = torch.sin(x) + 1
        return z.cpu() * y, z * y.to(x.device).cos(), torch.relu(y) - 1

    return same(fn, torch.randn(64, 65, device=device), torch.randn(64, 65))


def streams(device: str) -> str:
    run, stream = compiled(lambda x: torch.softmax(x, -1) + 1), torch.cuda.Stream()
    x = torch.randn(4096, 1024, device=device)
    run(x)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        y = x * 3
        got = run(y)
    stream.synchronize()
    return judge((got,), (torch.softmax(y, -1) + 1,), (torch.softmax(y.double(), -1) + 1,))


def threads(device: str) -> str:
    """A thread that never called CUDA launches first thing."""
    x, found = torch.randn(100, 100, device=device), []
    run = compiled(lambda x: torch.tanh(x) * 2)
    run(x)

    def work() -> None:
        try:
            found.append(run(x))
        except Exception as error:
            found.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return judge(found, (torch.tanh(x) * 2,), (torch.tanh(x.double()) * 2,))


def nothing(device: str) -> str:
    return same(lambda x: (x + 1, x.sum(0), x.sum()), torch.randn(0, 5, device=device))


def mutation(device: str) -> str:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        y[1:3] = x[:2] * 2
        return x.sum() + y.sum()

    def results(run: Callable[..., Any], dtype: torch.dtype) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        x, y = (torch.randn(40, 50, device=device).to(dtype) for _ in range(2))
        return run(x, y), x, y

    return judge(results(compiled(fn), torch.float32), results(fn, torch.float32), results(fn, torch.float64))


def scatter(device: str) -> str:
    index = torch.randint(10, (500,), device=device)

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(10, 64, device=x.device, dtype=x.dtype).index_add(0, index, x), x[index].cumsum(0)

    return same(fn, torch.randn(500, 64, device=device))


def halves(device: str) -> str:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.softmax(x, -1), (x @ y).relu() + 1, x.to(torch.float16).exp(), (x.double().sum(1)).float()

    return same(fn, torch.randn(64, 128, device=device, dtype=BF16), torch.randn(128, 64, device=device, dtype=BF16))


def attention(device: str) -> str:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1

    found = []
    for dtype in (torch.float32, BF16):
        q, k, v = (torch.randn(2, 4, 64, 32, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
        rows = []
        for run, given in ((compiled(fn), (q, k, v)), (fn, (q, k, v)), (fn, (q.double(), k.double(), v.double()))):
            leaves = [t.detach().requires_grad_() for t in given]
            out = run(*leaves)
            rows.append((out.detach(), *torch.autograd.grad(out.sum(), leaves)))
        found.append(judge(*rows))
    return "; ".join(found)


def dropout(device: str) -> str:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x), torch.randn(5, device=x.device)

    x, run = torch.randn(1000, device=device), compiled(fn)
    torch.manual_seed(3)
    eager = fn(x)
    torch.manual_seed(3)
    got = run(x)
    return "bit for bit" if all(map(torch.equal, got, eager)) else _wrong("other random numbers than eager's")


def _wrong(text: str) -> str:
    raise Wrong(text)


def large_index(device: str) -> str:
    """More than 2**31 elements: indices need 64 bits."""
    x = torch.ones(2**31 + 4096, device=device, dtype=torch.int8)
    y = compiled(lambda x: x * 3)(x)
    return "2**31 + 4096 elements" if bool((y[-4096:] == 3).all() and (y[:4096] == 3).all()) else _wrong("wrong tail")


def warm(device: str) -> str:
    """A second process finds the binaries in the store, and imports no compiler."""
    text = (
        "import sys, time, torch, minductor\n"
        "import minductor.runtime.launch.gpu as gpu\n"
        "gpu.Gpu.build = None\n"
        f"x = torch.arange(1000., device={device!r})\n"
        "f = torch.compile(lambda x: torch.sin(x) * 2 + 1, backend=minductor.minductor)\n"
        "start = time.perf_counter(); y = f(x); torch.cuda.synchronize(); seconds = time.perf_counter() - start\n"
        "assert torch.allclose(y, torch.sin(x) * 2 + 1)\n"
        "print(f'{seconds:.2f} s, compiler', 'loaded' if 'triton.compiler' in sys.modules else 'not loaded')\n"
    )
    cold = text.replace("gpu.Gpu.build = None\n", "")
    outs = [
        subprocess.run([sys.executable, "-c", t], capture_output=True, text=True, check=False) for t in (cold, text)
    ]
    if outs[1].returncode:
        raise Wrong(outs[1].stderr.strip().splitlines()[-1] if outs[1].stderr else "it failed")
    return f"cold {outs[0].stdout.strip()}; warm {outs[1].stdout.strip()}"


def overhead(device: str) -> str:
    """Microseconds of the host for a call of a small graph with one kernel."""
    x = torch.randn(64, device=device)

    def fn(x: Tensor) -> Tensor:
        return torch.sin(x) * 2 + 1

    found = {"minductor": compiled(fn)}
    torch._dynamo.reset()
    found["inductor"] = torch.compile(fn, backend="inductor")
    found["eager"] = fn
    texts = []
    for name, run in found.items():
        rounds = []
        for _ in range(7):
            run(x)
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(500):
                run(x)
            rounds.append((time.perf_counter() - start) / 500 * 1e6)
            torch.cuda.synchronize()
        texts.append(f"{name} {statistics.median(rounds):.1f} us")
    return ", ".join(texts)


def out_of_range(device: str) -> str:
    """The last of all: it breaks the device's context, as in eager."""
    run = compiled(lambda x, i: x[i] + 1)
    x = torch.randn(10, device=device)
    run(x, torch.tensor([1, 9], device=device))
    try:
        run(x, torch.tensor([1, 10], device=device))
        torch.cuda.synchronize()
    except RuntimeError as error:
        return f"raised: {str(error).splitlines()[0]}"
    raise Wrong("no error")


SPECIAL: dict[str, Callable[[str], str]] = {
    f.__name__: f
    for f in (
        unaligned,
        dynamic,
        scalars,
        two_devices,
        streams,
        threads,
        nothing,
        mutation,
        scatter,
        halves,
        attention,
        dropout,
        large_index,
        warm,
        overhead,
    )
}


# --- fast ---------------------------------------------------------------------------------------------------------


def interleaved(runs: dict[str, Callable[[], Any]], rounds: int = 9) -> dict[str, float]:
    """Median seconds of a call."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    repeats: dict[str, int] = {}
    for name, run in runs.items():
        run()
        repeats[name] = max(1, min(50, round(0.004 / max(measure.seconds_of(run, 2, "cuda"), 1e-6))))
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(measure.seconds_of(run, repeats[name], "cuda"))
    return {name: statistics.median(row) for name, row in found.items()}


def compiled_by_all(function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """By name; the peer is a line in the text if it fails."""
    return {"minductor": compiled(function), "inductor": torch.compile(function, backend="inductor"), "eager": function}


def bandwidth(name: str, device: str) -> str:
    function, shapes, dtype = LARGE[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]
    runs: dict[str, Callable[[], Any]] = {}
    for backend, run in compiled_by_all(function).items():
        try:
            run(*inputs)
            runs[backend] = partial(run, *inputs)
        except Exception as error:
            if backend == "minductor":
                raise
            runs.pop(backend, None)
            print(f"     {backend}: {measure.short_text(error)}", flush=True)
    results = runs["minductor"]()
    results = results if isinstance(results, tuple) else (results,)
    size = sum(t.numel() * t.element_size() for t in (*inputs, *results))
    source = torch.empty(size // 8, device=device)
    runs["copy"] = source.clone
    del results
    with torch.no_grad():
        times = interleaved(runs)
    rates = [
        f"{backend} {size / seconds / 1e9:.0f} GB/s ({seconds * 1e6:.0f} us)" for backend, seconds in times.items()
    ]
    share = times["copy"] / times["minductor"]
    peer = f", {times['inductor'] / times['minductor']:.2f} x inductor" if "inductor" in times else ""
    return f"{', '.join(rates)}: {share:.0%} of a copy{peer}, {times['eager'] / times['minductor']:.2f} x eager"


def model_time(name: str, device: str) -> str:
    with torch.device(device):
        program = cases.build(name)
    runs = {backend: partial(cases.step, program, f) for backend, f in compiled_by_all(program.function).items()}
    times = interleaved(runs)
    return ", ".join(f"{backend} {seconds * 1e6:.0f} us" for backend, seconds in times.items())


# --- one process after the other ----------------------------------------------------------------------------------


def jobs() -> dict[str, Callable[[str], str]]:
    """Everything, in order."""
    found: dict[str, Callable[[str], str]] = {}
    found.update((name, partial(bench_case, name)) for name in (*cases.micro_names(), *cases.model_names()))
    found.update((f"special/{name}", run) for name, run in SPECIAL.items())
    found.update((f"bandwidth/{name}", partial(bandwidth, name)) for name in LARGE)
    found.update((f"time/{name}", partial(model_time, name)) for name in MODELS_TIMED)
    found.update(gpu_operators.operators())
    found.update(gpu_operators.tests())
    found["special/out_of_range"] = out_of_range
    return found


def one(name: str, run: Callable[[str], str], device: str) -> tuple[str, bool]:
    """A case's line, and whether the device still works."""
    start = time.perf_counter()
    try:
        text, verdict = run(device), "right"
        if device != "cpu" and run is not out_of_range:  # which leaves a device that answers no more
            torch.cuda.synchronize()
    except (Wrong, AssertionError) as error:
        text, verdict = str(error), "WRONG"
    except Exception as error:
        last = traceback.format_exc().strip().splitlines()[-4:]
        text, verdict = f"{measure.short_text(error)}\n    " + "\n    ".join(last), "ERROR"
    line = f"{verdict} {name} ({time.perf_counter() - start:.1f} s): {text}"
    return line, not any(sign in text for sign in BROKEN)


def child(names: list[str], device: str) -> None:
    found = jobs()
    for name in names:
        line, works = one(name, found[name], device)
        print(line, flush=True)
        print(f"\0{name}", flush=True)
        if not works:
            os._exit(3)


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """What a child prints, until it ends or is silent for too long."""
    assert process.stdout is not None
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    stream = process.stdout

    def read() -> None:
        for line in stream:
            waiting.put(line)
        waiting.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = waiting.get(timeout=HANGS_SECONDS)
        except queue.Empty:
            process.kill()
            return
        if line is None:
            return
        yield line


def commit_here() -> str:
    """The commit of the working tree; "" outside of a repository."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def asked(given: argparse.Namespace) -> list[str]:
    """The names of the cases that the arguments ask for."""
    kinds = {"operator": given.operators, "tests": given.tests}
    names = [name for name in jobs() if kinds.get(name.partition("/")[0], True)]
    return [name for name in names if not given.words or any(word in name for word in given.words)]


def run_share(names: Sequence[str], given: argparse.Namespace, keep: Callable[[str], None], stop: float) -> list[str]:
    """Runs cases in one process after the other until the clock says `stop`; gives those that were not run."""
    todo = list(names)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"MINDUCTOR_CACHE_DIR": f"{folder}/ours", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/peer"}
        while todo and time.monotonic() < stop:
            command = [sys.executable, "-m", "benchmarks.gpu_check", "--child", "--device", given.device, *todo]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings})
            before = len(todo)
            for line in lines(process):
                if line.startswith("\0"):
                    todo.remove(line[1:].strip())
                    if time.monotonic() > stop:
                        break
                    continue
                keep(line.rstrip("\n"))
            process.kill()
            process.wait()
            if len(todo) == before:
                keep(f"ERROR {todo.pop(0)} (0.0 s): the process died or hung")
    return todo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--seconds", type=float, default=230, help="start no case after so many")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--results", type=Path, help="a file of rows, which a later run continues")
    parser.add_argument("--commit", default="", help="of the rows; by default that of the working tree")
    parser.add_argument("--table", action="store_true", help="print what the results say, and run nothing")
    parser.add_argument("--operators", action="store_true")
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; times are right with one only")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.words, given.device)
        return
    known = gpu_results.load(given.results) if given.results else {}
    if given.table:
        print(gpu_results.table(known.values(), asked(given)))
        return
    start, commit = time.monotonic(), given.commit or commit_here()
    names = gpu_results.todo(asked(given), known, commit)
    kind = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, {kind}, {len(names)} cases", flush=True)
    counts, lock = Counter[str](), threading.Lock()

    def keep(line: str) -> None:
        with lock:
            print(line, flush=True)
            if (found := LINE.match(line)) is None:  # the last lines of a traceback
                return
            verdict, case, seconds, figures = found.groups()
            counts[verdict] += 1
            if given.results:
                about = (float(seconds), commit, f"{date.today():%Y-%m-%d}", kind, torch.__version__)
                gpu_results.append(given.results, gpu_results.Row(case, verdict, figures, *about))

    with ThreadPoolExecutor(given.jobs) as pool:
        shares = [names[number :: given.jobs] for number in range(given.jobs)]
        left = pool.map(lambda share: run_share(share, given, keep, start + given.seconds), shares)
        missing = sum(map(len, left))
    told = ", ".join(f"{counts[name]} {name}" for name in ("right", "WRONG", "ERROR"))
    print(f"{told}, {missing} not run; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
