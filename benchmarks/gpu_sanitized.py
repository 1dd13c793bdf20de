"""`python benchmarks/gpu_sanitized.py`: kernels on a GPU under compute-sanitizer (memcheck, racecheck, initcheck).

Takes `--only`, a pattern of names, `--jobs`, `--tools`, and `--seconds`, after which no program starts. Programs: one
for each kind of kernel (scatters, scans, pooling, random numbers and so on), the micro cases and small models of
`minductor bench`, rows of all lengths in two dtypes, and the smaller of `gpu_columns.py`. Each is compiled and run once
without the sanitizer, and once under each tool without torch's pool of memory, so that each tensor is an allocation of
its own. Prints a line for each program with findings, and for each tool how many programs and kernels it saw, and
which program took longest.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.bench import cases
from minductor.driver import Compiled, Compiler
from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches

TOOLS = ("memcheck", "racecheck", "initcheck")
ROW_ELEMENTS = 1 << 19
FINDINGS = re.compile(r"========= .*(Invalid|Race|hazard|Uninitialized|error|exception| at .* in )", re.IGNORECASE)
DONE = re.compile(r"\+\+\+ (.+) in ([\d.]+) s: (.*)")
# cuLaunchKernel says so in a thread that has no context yet, where our launch sets one and launches again
EXPECTED = "CUDA_ERROR_INVALID_CONTEXT"
MOST_OF_COLUMNS = 1 << 24  # elements
WITH_LIBRARIES = re.compile("product|attention|model/")
# racecheck is slow, and torch's kernels and those of its libraries are not ours to check
NOT_OURS = ("regex=^_Z", "kns=nvjet", "kns=gemm", "kns=cutlass", "kns=cudnn")
OF_RACECHECK = ("--racecheck-num-workers", "1", *(x for name in NOT_OURS for x in ("--kernel-name-exclude", name)))


Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Run = Callable[[Compile], Any]  # makes a program's arguments, compiles it and runs it once


def randn(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*size, device="cuda", dtype=dtype)


def drawn(most: int, *size: int) -> Tensor:
    return torch.randint(most, size, device="cuda")


def of_bench(name: str, compiled: Compile) -> Any:
    with torch.device("cuda"):
        program = cases.build(name)
    return cases.step(program, compiled(program.function))


def of_row(fn: Callable[..., Any], n: int, dtype: torch.dtype, weights: int, compiled: Compile) -> Any:
    x = randn(ROW_ELEMENTS // n + 1, n, dtype=dtype)
    return compiled(fn)(x, *(randn(n, dtype=dtype) for _ in range(weights)))


def forward(fn: Callable[..., Any], *makers: Callable[[], Tensor]) -> Run:
    return lambda compiled: compiled(fn)(*(make() for make in makers))


def gradient(fn: Callable[..., Tensor], *makers: Callable[[], Tensor]) -> Run:
    """The gradient of the first argument."""

    def run(compiled: Compile) -> Any:
        x, *others = (make() for make in makers)
        result = compiled(fn)(x.requires_grad_(), *others)
        return torch.autograd.grad(result, x, torch.randn_like(result))

    return run


def kinds() -> dict[str, Run]:
    """Kernels of other kinds than those of `minductor bench`."""
    image, small = partial(randn, 4, 8, 31, 33), partial(randn, 513, 257)
    half = partial(randn, 513, 257, dtype=torch.bfloat16)
    found = {
        "scatter_add": forward(
            lambda x, i: torch.zeros_like(x).scatter_add(0, i, x), small, lambda: drawn(513, 513, 257)
        ),
        "scatter_add bfloat16": forward(
            lambda x, i: torch.zeros_like(x).scatter_add(0, i, x), half, lambda: drawn(513, 513, 257)
        ),
        "index_put accumulate": forward(
            lambda x, i: x.index_put((i,), x[:100], accumulate=True), small, lambda: drawn(513, 100)
        ),
        "embedding gradient": gradient(lambda w, i: F.embedding(i, w), small, lambda: drawn(513, 4000)),
        "cumsum": forward(lambda x: x.cumsum(0), lambda: randn(100_003)),
        "cumsum of rows": forward(lambda x: x.cumsum(-1), small),
        "cumprod bfloat16": forward(lambda x: x.cumprod(-1), half),
        "cummax": forward(lambda x: x.cummax(-1), small),
        "logcumsumexp": forward(lambda x: x.logcumsumexp(0), small),
        "argmax of columns": forward(lambda x: x.argmax(0), small),
        "topk by max": forward(lambda x: x.max(-1), half),
        "whole sum": forward(lambda x: x.sum(), lambda: randn(3_000_001)),
        "whole variance": forward(lambda x: x.var(), lambda: randn(3_000_001)),
        "sum of few long rows": forward(lambda x: x.sum(-1), lambda: randn(3, 1_000_003)),
        "layer_norm of a long row": forward(lambda x: F.layer_norm(x, x.shape[-1:]), lambda: randn(1, 1_000_003)),
        "sum in two directions": forward(lambda x: (x.sum(0), x.sum(1)), small),
        "any and all": forward(lambda x: ((x > 2).any(0), (x > -5).all(1)), small),
        "dropout": forward(lambda x: F.dropout(x, 0.3), small),
        "normal and uniform": forward(lambda x: torch.randn_like(x) + torch.rand_like(x), small),
        "max_pool": forward(lambda x: F.max_pool2d(x, 3, 2, 1), image),
        "max_pool gradient": gradient(lambda x: F.max_pool2d(x, 3, 2, 1), image),
        "avg_pool gradient": gradient(lambda x: F.avg_pool2d(x, 3, 2, 1), image),
        "adaptive pooling": forward(lambda x: F.adaptive_avg_pool2d(x, 7), image),
        "bilinear": forward(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), image),
        "bilinear gradient": gradient(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), image),
        "grid_sample": forward(
            lambda x, g: F.grid_sample(x, g, align_corners=False), image, lambda: randn(4, 20, 20, 2).tanh()
        ),
        "reflection pad": forward(lambda x: F.pad(x, (3, 4, 5, 2), mode="reflect"), image),
        "roll and flip": forward(lambda x: x.roll(3, 1).flip(0) + x, small),
        "transposed bfloat16": forward(lambda x, y: x.t() + y, half, lambda: randn(257, 513, dtype=torch.bfloat16)),
        "concatenation": forward(lambda x, y: torch.cat([x * 2, y.t()], 1), small, lambda: randn(100, 513)),
        "one_hot": forward(lambda i: F.one_hot(i, 77).float().mean(0), lambda: drawn(77, 5000)),
        "bucketize": forward(lambda x, b: torch.bucketize(x, b), small, lambda: randn(100).sort()[0]),
        "cross entropy gradient": gradient(lambda x, t: F.cross_entropy(x, t), small, lambda: drawn(257, 513)),
        "batch norm training": forward(lambda x: F.batch_norm(x, None, None, training=True), image),
        "batch norm gradient": gradient(lambda x: F.relu(F.batch_norm(x, None, None, training=True)), image),
        "group norm gradient": gradient(lambda x: F.group_norm(x, 4), image),
        "local response": forward(lambda x: F.local_response_norm(x, 5), image),
        "complex": forward(lambda x: (torch.complex(x, x) * 2).abs(), small),
        "float64": forward(lambda x: torch.softmax(x.double(), -1), small),
        "integers": forward(lambda i: (i // 7 + i % 5).sum(-1), lambda: drawn(1000, 513, 257)),
        "in place": forward(lambda x: x.add_(1).mul_(2)[1:].sin_(), small),
        "product and epilogue": forward(
            lambda x, y: F.gelu(x @ y) + 1,
            lambda: randn(128, 64, dtype=torch.bfloat16),
            lambda: randn(64, 96, dtype=torch.bfloat16),
        ),
        "attention written out": forward(
            lambda q, k: torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ k,
            lambda: randn(2, 4, 100, 64),
            lambda: randn(2, 4, 100, 64),
        ),
    }
    return {f"kind/{name}": run for name, run in found.items()}


def programs() -> dict[str, Run]:
    sys.path.insert(0, str(Path(__file__).parent))
    import gpu_columns
    import gpu_rows

    found = kinds() | {name: partial(of_bench, name) for name in cases.micro_names()}
    lengths = (9, 33, 63, *gpu_rows.LENGTHS)
    fns = ((gpu_rows.softmax, 0), (gpu_rows.layer_norm, 2), (gpu_rows.rms_norm, 1))
    for n, (fn, weights), dtype in product(lengths, fns, (torch.float32, torch.bfloat16)):
        found[f"row/{fn.__name__} {n} {str(dtype).removeprefix('torch.')}"] = partial(of_row, fn, n, dtype, weights)
    for name, case in gpu_columns.cases().items():
        if math.prod(map(int, re.findall(r"(\d+) x (\d+)", name)[0])) > MOST_OF_COLUMNS:
            continue
        found[f"column/{name}"] = partial(lambda case, compiled: compiled(case.fn)(*case.make()), case)
    found |= {name: partial(of_bench, name) for name in cases.model_names()}
    # those with kernels of libraries come last: racecheck fails in some, and then in all that its process runs behind
    return dict(sorted(found.items(), key=lambda each: bool(WITH_LIBRARIES.search(each[0]))))


def kernels_of(run: Run) -> list[str]:
    """Compiles a program and runs it once; gives the names of its kernels."""
    torch._dynamo.reset()
    seen: list[Compiled] = []
    run(partial(torch.compile, backend=Compiler(observer=seen.append), dynamic=False))
    torch.cuda.synchronize()
    return [name for graph in seen for name in default_launches(graph.sources.get(LAUNCHES, ""))]


class Done(NamedTuple):
    """What a tool said of a program: how many kernels it has, its seconds, and the lines of findings or failures."""

    kernels: int
    seconds: float
    lines: list[str]


def child(given: argparse.Namespace) -> None:
    """Runs a share of the programs, and says after each one's name how many kernels it has."""
    torch._dynamo.config.recompile_limit = 1000
    found = programs()
    for name in given.child:
        if (start := time.time()) > given.until:
            break
        try:
            said = str(len(kernels_of(found[name])))
        except Exception as error:
            said = f"failed: {error!r}"[:300].replace("\n", " ")
        print(f"+++ {name} in {time.time() - start:.1f} s: {said}", flush=True)


def checked(tool: str, names: Sequence[str], given: argparse.Namespace) -> dict[str, Done]:
    """What a tool says of a share of the programs; "" is no tool."""
    under = ("compute-sanitizer", "--tool", tool, "--print-limit", "5") if tool else ()
    command = [
        *under,
        *(OF_RACECHECK if tool == "racecheck" else ()),
        sys.executable,
        __file__,
        "--until",
        str(given.until),
        "--child",
        *names,
    ]
    settings = os.environ | ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if tool else {})
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings, start_new_session=True
    )
    try:
        text, _ = process.communicate(timeout=given.until - time.time() + 20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
    found: dict[str, Done] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if end := DONE.match(line):
            is_failed = not end[3].isdigit()
            failure = [end[3]] if is_failed else []
            found[end[1]] = Done(0 if is_failed else int(end[3]), float(end[2]), [*lines, *failure])
            lines = []
        elif FINDINGS.match(line) and EXPECTED not in line:
            lines.append(line)
    if not found or process.returncode:
        last = " | ".join(text.splitlines()[-3:])
        print(f"{tool or 'compiling'}: exit status {process.returncode} after {len(found)} of {len(names)}: {last}")
    return found


def check_all(tool: str, names: Sequence[str], given: argparse.Namespace) -> None:
    start, found = time.monotonic(), dict[str, Done]()
    with ThreadPoolExecutor(given.jobs) as pool:
        for share in pool.map(lambda n: checked(tool, names[n :: given.jobs], given), range(given.jobs)):
            found |= share
    for name, done in found.items():
        for line in done.lines:
            print(f"{tool or 'compiling'}: {name}: {line}")
    kernels, wrong = sum(done.kernels for done in found.values()), sum(bool(done.lines) for done in found.values())
    longest = max(found, key=lambda name: found[name].seconds, default="none")
    print(
        f"{tool or 'compiled'}: {len(found)} of {len(names)} programs, {kernels} kernels, {wrong} programs with "
        f"findings; {time.monotonic() - start:.0f} s, longest {longest}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--tools", nargs="*", default=TOOLS)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given)
        return
    names, start = [name for name in programs() if re.search(given.only, name)], time.time()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {len(names)} programs", flush=True)
    for number, tool in enumerate(tools := ("", *given.tools), 1):
        given.until = start + given.seconds * number / len(tools)
        check_all(tool, names, given)


if __name__ == "__main__":
    main()
