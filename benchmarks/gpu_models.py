"""`python benchmarks/gpu_models.py`: models on a GPU, inference and training, beside eager and TorchInductor.

Takes `--only`, a pattern of names, `--jobs`, `--mode` (that of both compilers), `--dtypes` (of a model, at most so
many), `--steps`, `--seconds` (of compiling; slower models are left out), and `--out`, a file of JSON rows. Each
model has a process: all of them compile first, at most `--jobs` at a time, then they measure one after the other.
Prints for each model the median milliseconds of a step in eager, how many times as fast both compilers are, the sum of
their kernels' times (one step under torch's profiler), and the CPU seconds of their first calls, compiled in the
process itself. A step of inference is a call; of training forward, loss, backward, without an optimizer.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import math
import os
import queue
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, multiprocessing, nn
from torch.nn import functional as F

from minductor.bench import inference_models, models
from minductor.bench.inference_models import Rows
from minductor.bench.models import Transformer, Vision, Workload

SAMPLE = 0.1  # seconds of a sample
FORMS = ("eager", "inductor", "minductor")
STEPS = ("inference", "training")


class Experts(nn.Module):
    """A mixture of experts: each token goes to the two best of `count`, by an index and a weighted sum."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.route = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) / math.sqrt(width))
        self.gate = nn.Parameter(torch.randn(count, width, 2 * width) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) / math.sqrt(2 * width))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = torch.softmax(self.route(tokens).float(), -1).topk(2, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        share = torch.zeros(len(tokens), self.up.shape[0], dtype=x.dtype, device=x.device).scatter(1, chosen, weights)
        hidden = F.silu(torch.einsum("nd,edh->enh", tokens, self.gate)) * torch.einsum("nd,edh->enh", tokens, self.up)
        mixed = torch.einsum("enh,ehd,ne->nd", hidden, self.down, share)
        return mixed.view_as(x)


class ExpertBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = models.RMSNorm(width), models.RMSNorm(width)
        self.attention = models.Attention(width, heads, causal=True)
        self.experts = Experts(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.experts(self.norm2(x))


class Mixture(nn.Module):
    """A decoder whose blocks have experts."""

    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.blocks = nn.Sequential(*(ExpertBlock(sizes.width, sizes.heads) for _ in range(sizes.layers)))
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(ids)))


class Model(NamedTuple):
    """How a model is made, and the dtypes that it is measured in ("autocast" is bfloat16 by torch.autocast)."""

    make: Callable[[], Workload]
    dtypes: tuple[str, ...]


def text(layers: int, width: int, *, context: int = 512, batch: int = 8, vocab: int = 32000) -> Transformer:
    return Transformer(layers=layers, width=width, heads=width // 64, context=context, batch=batch, vocab=vocab)


def pictures(net: Callable[[], nn.Module], image: int, batch: int) -> Workload:
    """A net of images whose loss is a mean of squares."""
    return Workload(net(), (torch.randn(batch, 3, image, image),), inference_models.squares)


def cases() -> dict[str, Model]:
    sys.path.insert(0, str(Path(__file__).parent))
    import conv_nets

    vit = Vision(width=512, image=224, batch=32, classes=1000, patch=16, layers=6, heads=8)
    net = {name: partial(pictures, build, side) for name, ((build, side), *_) in conv_nets.NETS.items()}
    return {
        "gpt": Model(lambda: models.make_decoder(models.GPT, text(6, 768)), ("bfloat16", "autocast")),
        "llama": Model(lambda: models.make_decoder(models.Llama, text(4, 1024, context=1024)), ("bfloat16",)),
        "bert": Model(lambda: models.make_bert(text(6, 768, batch=16)), ("float32", "autocast")),
        "bert, attention written out": Model(
            lambda: inference_models.make_written_bert(text(4, 768, batch=16)), ("bfloat16",)
        ),
        "t5": Model(lambda: inference_models.make_t5(text(6, 512, batch=16)), ("bfloat16", "float32")),
        "experts": Model(lambda: models.make_decoder(Mixture, text(2, 512)), ("bfloat16",)),
        "vit": Model(lambda: models.make_image_model(models.ViT, vit), ("bfloat16", "autocast")),
        "mixer": Model(
            lambda: inference_models.make_images(
                inference_models.Mixer, Vision(width=512, image=224, batch=32, classes=1000, patch=16, layers=8)
            ),
            ("float32",),
        ),
        "resnet50": Model(lambda: net["resnet"](32), ("float32", "autocast")),
        "mobilenet_v3": Model(lambda: net["mobilenet_v3"](64), ("autocast",)),
        "unet": Model(lambda: net["unet"](8), ("autocast",)),
        "convnext": Model(lambda: net["convnext"](32), ("bfloat16",)),
        "lstm": Model(
            lambda: inference_models.make_lstm(Rows(rows=128, width=512, hidden=512, steps=24)), ("float32",)
        ),
        "recommender": Model(
            lambda: inference_models.make_recommender(Rows(rows=16384, width=128, hidden=512, steps=16)), ("float32",)
        ),
    }


class Asked(NamedTuple):
    """What of each model is measured, and how often."""

    mode: str
    forms: Sequence[str]
    rounds: int
    dtypes: int
    steps: Sequence[str]


class Order(NamedTuple):
    """What processes wait for: a place to compile in, all others' compiling, and their turn to measure."""

    jobs: Any
    ready: Any  # takes the name of a model that is compiled
    go: Any
    turn: Any


class Step(NamedTuple):
    """A model on the GPU, and what one of its steps computes."""

    run: Callable[[Callable[..., Any]], Any]
    module: nn.Module


def step_of(workload: Workload, dtype: str, *, is_training: bool) -> Step:
    module = workload.module.to("cuda").train(is_training)
    inputs = [x.to("cuda") for x in workload.inputs]
    if dtype == "bfloat16":
        module, inputs = module.bfloat16(), [x.bfloat16() if x.is_floating_point() else x for x in inputs]
    cast = partial(torch.autocast, "cuda", dtype=torch.bfloat16) if dtype == "autocast" else contextlib.nullcontext

    def infer(call: Callable[..., Any]) -> Any:
        with torch.no_grad(), cast():
            return call(*inputs)

    loss_fn = workload.loss_fn
    cells = [cell for cell in loss_fn.__closure__ or () if isinstance(cell.cell_contents, Tensor)]
    for cell in cells:
        cell.cell_contents = cell.cell_contents.to("cuda")

    def train(call: Callable[..., Any]) -> Any:
        module.zero_grad(set_to_none=True)
        with cast():
            loss = loss_fn(call(*inputs))
        loss.backward()
        return loss

    return Step(train if is_training else infer, module)


def compiled(form: str, module: nn.Module, mode: str) -> Callable[..., Any]:
    if form == "eager":
        return module
    backend, _, rewrites = form.partition(":")
    if rewrites:
        return torch.compile(module, backend=backend, options={"rewrites": rewrites})
    return torch.compile(module, backend=backend, mode=None if mode == "default" else mode)


def cpu_seconds() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def kernels_of(run: Callable[[], Any]) -> dict[str, float]:
    """The microseconds of each kernel of one step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    found: collections.Counter[str] = collections.Counter()
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name[:110]] += event.device_time_total
    return dict(found.most_common())


def milliseconds(run: Callable[[], Any], calls: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def measure(name: str, asked: Asked, order: Order) -> list[dict[str, Any]]:
    """The rows of one model: compiled while others compile, measured alone."""
    found: list[tuple[dict[str, Any], Callable[[], Any]]] = []
    model, (mode, forms, rounds, _, steps) = cases()[name], asked
    with order.jobs:  # everything is compiled before anything is measured
        for dtype in model.dtypes[: asked.dtypes]:
            for is_training in [step == "training" for step in steps]:
                torch._dynamo.reset()
                torch.manual_seed(0)
                step = step_of(model.make(), dtype, is_training=is_training)
                for form in forms:
                    row = {"model": name, "dtype": dtype, "training": is_training, "form": form, "mode": mode}
                    run = partial(step.run, compiled(form, step.module, mode))
                    start, wall = cpu_seconds(), time.perf_counter()
                    try:
                        run()
                        torch.cuda.synchronize()
                        row |= {"first": cpu_seconds() - start, "first_wall": time.perf_counter() - wall}
                        found.append((row, run))
                    except Exception as error:
                        row["error"] = f"{type(error).__name__}: {error}"[:300]
                        found.append((row, run))
    order.ready.put(name)
    order.go.wait()
    with order.turn:
        for start in range(0, len(found), len(forms)):
            group = [(row, run) for row, run in found[start : start + len(forms)] if "error" not in row]
            samples: dict[str, list[float]] = {row["form"]: [] for row, _ in group}
            calls: dict[str, int] = {}
            for row, run in group:
                run()
                calls[row["form"]] = max(1, math.ceil(SAMPLE * 1e3 / max(milliseconds(run, 2), 1e-3)))
            for _ in range(rounds):
                for row, run in group:
                    samples[row["form"]].append(milliseconds(run, calls[row["form"]]))
            for row, run in group:
                row["ms"] = statistics.median(samples[row["form"]])
                row["kernels"] = kernels_of(run)
    return [row for row, _ in found]


def serve(name: str, asked: Asked, order: Order, rows: Any) -> None:
    try:
        rows.put(measure(name, asked, order))
    except BaseException as error:
        order.ready.put(name)
        rows.put([{"model": name, "error": repr(error)}])
        raise


def wait_for(names: Sequence[str], ready: Any, seconds: float) -> list[str]:
    """The models that are compiled, once all are or the seconds are over."""
    found: list[str] = []
    stop = time.monotonic() + seconds
    with contextlib.suppress(queue.Empty):
        while len(found) < len(names):
            found.append(ready.get(timeout=max(0.0, stop - time.monotonic())))
    return found


def line_of(rows: Mapping[str, Mapping[str, Any]], forms: Sequence[str]) -> str:
    def ratio(above: float, below: float) -> str:
        return f"{above / below:.2f}" if below else "-"

    eager, peer, ours = (rows.get(form, {}) for form in forms)
    kernels = [sum(row.get("kernels", {}).values()) / 1e3 for row in (eager, peer, ours)]
    time_of = [row.get("ms", math.nan) for row in (eager, peer, ours)]
    kind = "training" if eager["training"] else "inference"
    return (
        f"| {eager['model']}, {kind}, {eager['dtype']} | {time_of[0]:.2f} | {ratio(time_of[0], time_of[1])} |"
        f" {ratio(time_of[0], time_of[2])} | {ratio(time_of[1], time_of[2])} |"
        f" {kernels[0]:.2f} | {kernels[1]:.2f} | {kernels[2]:.2f} |"
        f" {peer.get('first', math.nan):.1f} | {ours.get('first', math.nan):.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--mode", default="default")
    parser.add_argument("--forms", nargs=3, default=FORMS, help="eager, and two others; behind a colon, rewrites")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtypes", type=int, default=2, help="of a model, at most so many of its dtypes")
    parser.add_argument("--steps", nargs="+", default=STEPS, choices=STEPS)
    parser.add_argument("--seconds", type=float, default=3600, help="of compiling; slower models are left out")
    parser.add_argument("--out", type=Path, default=Path("gpu_models.jsonl"))
    given = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # so that its seconds are those of the process
    names = [name for name in cases() if re.search(given.only, name)]
    context = multiprocessing.get_context("spawn")
    order, rows = (
        Order(context.Semaphore(given.jobs), context.Queue(), context.Event(), context.Lock()),
        context.Queue(),
    )
    asked = Asked(given.mode, given.forms, given.rounds, given.dtypes, given.steps)
    started = {name: context.Process(target=serve, args=(name, asked, order, rows)) for name in names}
    for process in started.values():
        process.start()
    in_time = wait_for(names, order.ready, given.seconds)
    for name in set(names) - set(in_time):
        print(f"{name} was still compiling after {given.seconds:.0f} s")
        started[name].kill()
    order.go.set()
    print("| model | eager, ms | TorchInductor | minductor | beside it | kernels of eager, ms | its | ours |", end="")
    print(" its first call, CPU s | ours |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for _ in in_time:
        found = rows.get()
        with given.out.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in found)
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in found:
            groups.setdefault((row.get("dtype"), row.get("training")), {})[row.get("form", "")] = row
            if "error" in row:
                print(f"{row['model']} {row.get('dtype')} {row.get('form')}: {row['error']}", flush=True)
        for group in groups.values():
            if "eager" in group:
                print(line_of(group, given.forms), flush=True)
    for process in started.values():
        process.join()


if __name__ == "__main__":
    main()
