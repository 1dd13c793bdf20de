"""How fast matrix products are with rewrites and without, beside eager and TorchInductor: one JSON value a line.

`python benchmarks/products.py --out products.jsonl [WORD...]` measures the cases whose names have all words, on a GPU
or on a CPU (`--device cpu`; `--quick`: small sizes and few rounds). A case that the file has is not measured again, so
an interrupted run goes on. `--table` prints the file as a table and measures nothing.

- `odd`: products of sizes that do not fit the matrix unit: plain, with a bias, batches, in an MLP, before a loss, in
  inference and with gradients; without padding, as minductor decides, padded in any case, and by TorchInductor.
- `joined`: queries, keys and values from frozen weights, by one product and by three.
- `activation`: a linear layer with ReLU or GELU, by the library's epilogue and by a kernel behind the product.

The seconds of a form are the median of interleaved rounds; on a GPU those of calls in a CUDA graph, where one can be
made, stand beside them. `error` is the largest error against float64 over eager's.

`python benchmarks/products.py --collect padding.jsonl --seconds 1500` writes measurements for the learned choice
`padding` instead, as `minductor heuristics collect padding --device cuda` does. `minductor heuristics learn` reads
them.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OFF = "-pad_products,-pad_trained_products"
ROUNDS, SLICE = 9, 0.01  # rounds; seconds of a slice of calls
QUICK_ROUNDS, QUICK_SLICE = 2, 0.0005
CALLS = 4  # in a CUDA graph
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
# rows, columns, inner axis
SIZES = (
    (4096, 1023, 1023),
    (4096, 1025, 1024),
    (4096, 1024, 1025),
    (4096, 1000, 1001),
    (1023, 1023, 1023),
    (2048, 333, 333),
    (512, 333, 4096),
    (4096, 30522, 768),
    (4096, 50257, 768),
    (8192, 50257, 1024),
    (16, 4095, 4095),
    (8192, 4095, 4095),
)
QUICK_SIZES = ((33, 35, 37), (32, 40, 35))
BATCHES = ((16, 513, 513, 65), (32, 1023, 64, 1023), (8, 255, 1001, 333), (128, 197, 197, 63))
QUICK_BATCHES = ((2, 17, 19, 33),)


class Form(NamedTuple):
    """A way to run a module: eager, TorchInductor, or minductor with options."""

    name: str
    backend: str
    options: Mapping[str, Any] = {}


class Case(NamedTuple):
    """A module with its arguments, made on a device, and the forms in which it runs."""

    name: str
    make: Callable[[str], tuple[nn.Module, tuple[Tensor, ...]]]
    forms: Sequence[Form]
    has_gradients: bool
    is_tf32: bool


class Plain(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b


class Mlp(nn.Module):
    """Two linear layers with a GELU between them; the hidden size is the odd one."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(size, hidden), nn.Linear(hidden, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Head(nn.Module):
    """A vocabulary's logits and their loss."""

    def __init__(self, size: int, words: int) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(size), nn.Linear(size, words, bias=False)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.out(self.norm(x)).float(), target)


class Attention(nn.Module):
    """Self-attention with a projection each for queries, keys and values."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        parts = (part(x).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(batch, length, size))


class Activated(nn.Module):
    """A linear layer and an activation."""

    def __init__(self, size: int, hidden: int, name: str) -> None:
        super().__init__()
        self.up, self.name = nn.Linear(size, hidden), name

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        return y.relu() if self.name == "relu" else F.gelu(y, approximate="tanh")


# --- cases


def cases(device: str, *, is_quick: bool) -> Iterator[Case]:
    """All cases, in the order in which they are measured."""
    dtypes = {"bf16": torch.bfloat16, "tf32": torch.float32} if is_quick else DTYPES
    for dtype in dtypes:
        yield from odd_cases(dtype, is_quick=is_quick)
    for dtype in ("bf16", "tf32"):
        yield from joined_cases(dtype, is_quick=is_quick)
        yield from activation_cases(dtype, device, is_quick=is_quick)


def odd_forms(*, is_frozen: bool = False) -> Sequence[Form]:
    options: dict[str, Any] = {"freeze": True} if is_frozen else {}
    return (
        Form("eager", "eager"),
        Form("plain", "minductor", {**options, "rewrites": OFF}),
        Form("decided", "minductor", options),
        Form("padded", "minductor", {**options, "rewrites": "+pad_all_products"}),
        Form("inductor", "inductor"),
    )


def odd_cases(dtype: str, *, is_quick: bool) -> Iterator[Case]:
    for m, n, k in QUICK_SIZES if is_quick else SIZES:
        size = f"{m}x{n}x{k} {dtype}"
        linear = partial(nn.Linear, k, n)
        for name, build, frozen, gradients in (
            ("mm", Plain, False, False),
            ("addmm", linear, False, False),
            ("addmm frozen", linear, True, False),
            ("addmm gradients", linear, False, True),
            ("mlp", partial(Mlp, k, n), False, False),
            ("mlp frozen", partial(Mlp, k, n), True, False),
            ("mlp gradients", partial(Mlp, k, n), False, True),
        ):
            shapes = ((m, k), (k, n)) if name == "mm" else ((m, k),)
            make = partial(made, build, shapes, dtype)
            yield Case(f"odd {name} {size}", make, odd_forms(is_frozen=frozen), gradients, dtype == "tf32")
        if n > 4 * k or is_quick:
            make = partial(with_targets, partial(Head, k, n), (m, k), n, dtype)
            yield Case(f"odd head gradients {size}", make, odd_forms(), True, dtype == "tf32")
    for batch, m, n, k in QUICK_BATCHES if is_quick else BATCHES:
        make = partial(made, Plain, ((batch, m, k), (batch, k, n)), dtype)
        yield Case(f"odd bmm {batch}x{m}x{n}x{k} {dtype}", make, odd_forms(), False, dtype == "tf32")


def joined_cases(dtype: str, *, is_quick: bool) -> Iterator[Case]:
    sizes = ((1, 8, 64, 2),) if is_quick else tuple(itertools.product((1, 8), (1, 128, 1024), (768, 2048), (12,)))
    for batch, length, size, heads in sizes:
        build = partial(Attention, size, heads if size % heads == 0 else 16)
        forms = (
            Form("eager", "eager"),
            Form("apart", "minductor", {"freeze": True, "rewrites": "-join_products"}),
            Form("joined", "minductor", {"freeze": True}),
            Form("unfrozen", "minductor"),
            Form("inductor", "inductor"),
        )
        make = partial(made, build, ((batch, length, size),), dtype)
        yield Case(f"joined {batch}x{length}x{size} {dtype}", make, forms, False, dtype == "tf32")


def activation_cases(dtype: str, device: str, *, is_quick: bool) -> Iterator[Case]:
    if device == "cpu":
        return  # only GPUs' libraries have such an epilogue
    sizes = ((32, 64, 128),) if is_quick else ((16, 1024, 4096), (2048, 768, 3072), (8192, 1024, 4096))
    for (rows, size, hidden), name in itertools.product(sizes, ("relu", "gelu")):
        forms = (
            Form("eager", "eager"),
            Form("kernel", "minductor"),
            Form("epilogue", "minductor", {"rewrites": "+addmm_activation"}),
            Form("inductor", "inductor"),
        )
        make = partial(made, partial(Activated, size, hidden, name), ((rows, size),), dtype)
        yield Case(f"activation {name} {rows}x{hidden}x{size} {dtype}", make, forms, False, dtype == "tf32")


def made(
    build: Callable[[], nn.Module], shapes: Sequence[Sequence[int]], dtype: str, device: str
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A module and its arguments on a device."""
    torch.manual_seed(0)
    module = build().to(device, DTYPES[dtype])
    return module, tuple(torch.randn(shape, device=device, dtype=DTYPES[dtype]) for shape in shapes)


def with_targets(
    build: Callable[[], nn.Module], shape: Sequence[int], words: int, dtype: str, device: str
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    module, args = made(build, (shape,), dtype, device)
    return module, (*args, torch.randint(0, words, (shape[0],), device=device))


# --- measuring


def compiled(module: nn.Module, form: Form) -> Callable[..., Any]:
    import minductor

    if form.backend == "eager":
        return module
    if form.backend == "inductor":
        return torch.compile(module, dynamic=False)
    return torch.compile(module, backend=minductor.minductor, dynamic=False, options=dict(form.options))


def step(call: Callable[..., Any], module: nn.Module, args: Sequence[Tensor], *, has_gradients: bool) -> Any:
    """One call; with gradients those of all parameters and of the first argument."""
    if not has_gradients:
        with torch.no_grad():
            return call(*args)
    given = [args[0].detach().requires_grad_(), *args[1:]]
    result = call(*given)
    loss = result if result.dim() == 0 else result.float().square().mean()
    found = torch.autograd.grad(loss, [given[0], *module.parameters()])
    return loss.detach(), *found


def worst(got: Any, eager: Any, truth: Any) -> float:
    """The largest error over that of eager, of all results."""
    results = zip(*(tensors(value) for value in (got, eager, truth)), strict=True)
    ratios = [0.0]
    for mine, theirs, exact in results:
        errors = [float((each.double() - exact).abs().max()) for each in (mine, theirs)]
        least = float(exact.abs().max()) * torch.finfo(theirs.dtype).eps
        ratios.append(errors[0] / max(errors[1], least, 1e-300))
    return max(ratios)


def tensors(value: Any) -> Sequence[Tensor]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def seconds_of(call: Callable[[], Any], count: int, device: str) -> float:
    """The seconds of a call, of so many one after the other."""
    if device == "cpu":
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(count):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / count / 1e3


def medians(calls: Mapping[str, Callable[[], Any]], device: str, *, is_quick: bool) -> dict[str, float]:
    """By name the median seconds of a call in interleaved rounds."""
    rounds, length = (QUICK_ROUNDS, QUICK_SLICE) if is_quick else (ROUNDS, SLICE)
    counts: dict[str, int] = {}
    for name, call in calls.items():
        once = min(seconds_of(call, 1, device) for _ in range(3))
        counts[name] = max(1, min(500, int(length / max(once, 1e-7))))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        turned = itertools.islice(itertools.cycle(calls.items()), number, number + len(calls))
        for name, call in turned:
            found[name].append(seconds_of(call, counts[name], device))
    return {name: statistics.median(each) for name, each in found.items()}


def graph_of(call: Callable[[], Any]) -> Callable[[], Any] | None:
    """A function that replays CALLS calls as a CUDA graph; None if they cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                call()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph.replay


def measured(case: Case, device: str, *, is_quick: bool) -> dict[str, Any]:
    """The line of a case: by form seconds and errors."""
    torch._dynamo.reset()
    torch.backends.cuda.matmul.allow_tf32 = case.is_tf32
    module, args = case.make(device)
    wide = [each.double() if each.is_floating_point() else each for each in args]
    run = partial(step, module=module, has_gradients=case.has_gradients)
    calls: dict[str, Callable[[], Any]] = {}
    errors: dict[str, Any] = {}
    truth = step(exact := copy.deepcopy(module).double(), exact, wide, has_gradients=case.has_gradients)
    eager = run(module, args=args)
    for form in case.forms:
        try:
            call = partial(run, compiled(module, form), args=args)
            errors[form.name] = round(worst(call(), eager, truth), 3)
            calls[form.name] = call
        except Exception as error:  # the other forms are measured
            errors[form.name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    del truth, eager, exact, wide
    line: dict[str, Any] = {"case": case.name, "error": errors}
    line["us"] = {name: round(each * 1e6, 2) for name, each in medians(calls, device, is_quick=is_quick).items()}
    if device != "cpu" and not case.has_gradients:
        graphs = {name: graph for name, call in calls.items() if (graph := graph_of(call)) is not None}
        found = medians(graphs, device, is_quick=is_quick)
        line["graph_us"] = {name: round(each * 1e6 / CALLS, 2) for name, each in found.items()}
    return line


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; one that was cut short is left out."""
    found: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def table(lines: Sequence[Mapping[str, Any]]) -> None:
    """Prints microseconds by form, those in CUDA graphs if there are any, and the largest error."""
    for line in lines:
        if "us" not in line:
            print(f"{line['case']:46} {line.get('failed', '')}")
            continue
        times = line.get("graph_us") or line["us"]
        shown = "  ".join(f"{name} {us:9.1f}" for name, us in times.items())
        largest = max((each for each in line["error"].values() if isinstance(each, float)), default=0.0)
        broken = [name for name, each in line["error"].items() if isinstance(each, str)]
        print(f"{line['case']:46} {shown}  error {largest:.2f} {' '.join(broken)}")


def main() -> int:
    parser = argparse.ArgumentParser(description="How fast matrix products are with rewrites and without.")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path, default=Path("products.jsonl"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no case is begun later")
    parser.add_argument("--collect", type=Path, help="write measurements for the learned choice `padding`")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.collect is not None:
        command = ["-m", "minductor", "heuristics", "collect", "padding", "--device", given.device]
        more = ["--out", str(given.collect), "--seconds", str(given.seconds), "--jobs", "4"]
        return subprocess.call([sys.executable, *command, *more])
    if given.table:
        table(lines_of(given.out))
        return 0
    end = time.monotonic() + given.seconds
    done = {line["case"] for line in lines_of(given.out)}
    with torch._dynamo.config.patch(recompile_limit=1 << 20):
        for case in cases(given.device, is_quick=given.quick):
            if case.name in done or not all(word in case.name for word in given.words):
                continue
            if time.monotonic() > end:
                break
            try:
                line = measured(case, given.device, is_quick=given.quick)
            except Exception as error:  # the other cases are measured
                line = {"case": case.name, "failed": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            table([line])
    return 0


if __name__ == "__main__":
    sys.exit(main())
