"""Small models and chains of kernels on an NVIDIA GPU, with CUDA graphs and without, beside TorchInductor.

`python -m benchmarks.cuda_graphs [--results FILE] [CASE ...]` measures a case in every form and appends one line of
JSON per case to the file, which a later run continues; `--table FILE` prints the tables of cuda_graphs.md from it.
Times are medians of interleaved rounds, in microseconds:

- *call*: wall time of a call, where the next one is made without waiting for the GPU;
- *host*: wall time until a call returns, on an idle GPU; `ours` subtracts what a graph that does nothing costs, which
  is Dynamo's and AOTAutograd's part;
- *replay*: time on the GPU per call, and the sum of the times of its kernels by torch.profiler.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._autograd import DeviceType
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.cudagraph_trees import MarkStepBox
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import minductor
from minductor.bench import inference_models, models

ROUNDS, CALLS = 9, 40
Call = Callable[[], Any]


class Decoder(nn.Module):
    """One token after another through a GPT with a static cache of keys and values, batch 1."""

    def __init__(self, width: int = 512, heads: int = 8, layers: int = 4, words: int = 1024, most: int = 256) -> None:
        super().__init__()
        self.heads, self.most = heads, most
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(most, width)
        self.layers: Any = nn.ModuleList(
            nn.ModuleDict(
                {
                    "before": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "after": nn.LayerNorm(width),
                    "wide": nn.Linear(width, 4 * width),
                    "narrow": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.cache: Tensor
        self.register_buffer("cache", torch.zeros(layers, 2, 1, heads, most, width // heads))

    def forward(self, token: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(token) + self.places(place)
        seen = torch.arange(self.most, device=x.device) <= place
        for layer, cache in zip(self.layers, self.cache, strict=True):
            q, k, v = layer["qkv"](layer["before"](x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            keys, values = cache[0].index_copy_(2, place, k), cache[1].index_copy_(2, place, v)
            scores = (q @ keys.mT) * q.shape[-1] ** -0.5
            weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
            x = x + layer["out"]((weights @ values).transpose(1, 2).flatten(2))
            x = x + layer["narrow"](F.gelu(layer["wide"](layer["after"](x))))
        return self.head(self.norm(x)).argmax(-1), place + 1


def decoding(compile_with: Callable[[Any], Any]) -> Call:
    net = Decoder().to("cuda", torch.bfloat16).eval()
    call = compile_with(net)
    token, place = torch.zeros(1, 1, dtype=torch.int64, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")

    def run() -> Any:
        with torch.no_grad():
            made, _ = call(token, place)
            token.copy_(made)
            place.add_(1).remainder_(net.most)

    return run


def inference(name: str, batch: int | None, compile_with: Callable[[Any], Any]) -> Call:
    net, inputs, _ = inference_models.make(name)
    net, given = net.to("cuda"), [x.to("cuda")[:batch] for x in inputs]
    call = compile_with(net)

    def run() -> Any:
        with torch.no_grad():
            return call(*given)

    return run


def training(name: str, size: str, compile_with: Callable[[Any], Any]) -> Call:
    net, inputs, _ = models.make(name, size=size)
    net, given = net.to("cuda"), [x.to("cuda") for x in inputs]
    call = compile_with(net)
    shape = net(*given).shape
    target = torch.zeros(shape[:-1], dtype=torch.int64, device="cuda").flatten()

    def run() -> Any:
        loss = F.cross_entropy(call(*given).flatten(0, -2), target)
        loss.backward()
        net.zero_grad(set_to_none=True)

    return run


def chain(length: int, compile_with: Callable[[Any], Any]) -> Call:
    """That many kernels: row statistics and column statistics by turns, which no kernel has both of."""

    def fn(x: Tensor) -> Tensor:
        for number in range(length):
            x = torch.softmax(x, number % 2)
        return x

    call, given = compile_with(fn), torch.randn(256, 256, device="cuda")
    return lambda: call(given)


CASES: Mapping[str, Callable[[Callable[[Any], Any]], Call]] = {
    "1 kernel": partial(chain, 1),
    "10 kernels": partial(chain, 10),
    "100 kernels": partial(chain, 100),
    "mobilenet, batch 1": partial(inference, "mobilenet", 1),
    "lstm": partial(inference, "lstm", None),
    "gpt decoding, batch 1": decoding,
    "gpt": partial(inference, "gpt", None),
    "resnet": partial(inference, "resnet", None),
    "gpt training": partial(training, "gpt", "bench"),
    "small gpt training": partial(training, "gpt", "tiny"),
}


def nothing(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A compiled graph that gives the results of its first call again: what is left of a call is torch's."""
    from functorch.compile import make_boxed_func

    kept: list[Any] = []

    def run(*given: Any) -> Any:
        if not kept:
            kept.append(graph(*given))
        return kept[0]

    return make_boxed_func(run)


def entry_to(fn: Any) -> Any:
    """A function with code of its own: Dynamo keeps what it compiles by code, and asks each in turn whether it fits."""
    names = {"fn": fn}
    exec("def entry(*given):\n    return fn(*given)", names)
    return names["entry"]


def with_marks(fn: Any) -> Any:
    call = torch.compile(fn, backend=minductor.minductor, options={"cudagraphs": True})

    def marked(*given: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return call(*given)

    return marked


FORMS: Mapping[str, Callable[[Any], Any]] = {
    "eager": lambda fn: fn,
    "torch's part": partial(torch.compile, backend=aot_autograd(fw_compiler=nothing)),
    "python": partial(torch.compile, backend=minductor.minductor),
    "cpp": partial(torch.compile, backend=minductor.minductor, options={"wrapper": "cpp"}),
    "graphs": partial(torch.compile, backend=minductor.minductor, options={"cudagraphs": True}),
    "graphs, marked": with_marks,
    "graphs, C++": partial(torch.compile, backend=minductor.minductor, options={"cudagraphs": True, "wrapper": "cpp"}),
    "inductor": partial(torch.compile, backend="inductor"),
    "inductor, graphs": partial(torch.compile, mode="reduce-overhead"),
}


def microseconds(run: Call, calls: int, *, waits: bool) -> float:
    """Wall time per call; `waits`: until calls return, without the GPU's work."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    if not waits:
        torch.cuda.synchronize()
    took = (time.perf_counter() - begin) / calls * 1e6
    torch.cuda.synchronize()
    return took


def on_gpu(run: Call) -> dict[str, Any]:
    """GPU time per call between events, the sum of its kernels' times, their number, and the longest ones' times."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000)
    start.record()
    for _ in range(CALLS):
        run()
    end.record()
    end.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(CALLS):
            run()
        torch.cuda.synchronize()
    kernels = [each for each in found.events() or () if each.device_type == DeviceType.CUDA]
    names = Counter[str]()
    for each in kernels:
        names[each.name[:80]] += each.time_range.elapsed_us() / CALLS
    return {
        "replay": start.elapsed_time(end) * 1e3 / CALLS,
        "kernels": names.total(),
        "count": round(len(kernels) / CALLS),
        "names": {name: round(took, 2) for name, took in names.most_common(8)},
    }


def prepared(form: str, make: Callable[[Callable[[Any], Any]], Call]) -> tuple[Call, dict[str, Any]]:
    """The call, warm; the seconds of its first calls and the memory that is allocated and reserved for it."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held, lies, begin = torch.cuda.memory_reserved(), torch.cuda.memory_allocated(), time.perf_counter()
    torch.manual_seed(0)
    run = make(lambda fn: FORMS[form](entry_to(fn)))
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    return run, {
        "first": time.perf_counter() - begin,
        "allocated": torch.cuda.max_memory_allocated() - lies,
        "reserved": torch.cuda.memory_reserved() - held,
    }


def measured(case: str) -> dict[str, Any]:
    """One row: by form, the times of the module's docstring, or the error's text."""
    torch._dynamo.reset()
    row: dict[str, Any] = {}
    calls: dict[str, Call] = {}
    for form in FORMS:
        if form == "torch's part" and "training" in case:
            continue
        try:
            calls[form], row[form] = prepared(form, CASES[case])
        except Exception as error:
            row[form] = {"error": "".join(traceback.format_exception(error))[-3000:]}
    times: dict[str, dict[str, list[float]]] = {form: {"call": [], "host": []} for form in calls}
    for _ in range(ROUNDS):
        for form, run in calls.items():
            MarkStepBox.mark_step_counter = 0  # a program that has marked a step has marked it for all forms
            times[form]["call"].append(microseconds(run, CALLS, waits=False))
            times[form]["host"].append(statistics.median(microseconds(run, 1, waits=True) for _ in range(9)))
    for form, run in calls.items():
        MarkStepBox.mark_step_counter = 0
        row[form] |= {name: statistics.median(found) for name, found in times[form].items()}
        if form != "torch's part":
            row[form] |= on_gpu(run)
    return row


def tables(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Markdown: calls by form, and ratios of calls."""
    for column in ("call", "host", "replay", "kernels", "count", "allocated", "reserved", "first"):
        yield f"\n{column}\n\n| case | {' | '.join(FORMS)} |\n|---|{'---:|' * len(FORMS)}"
        scale = 2**20 if column in {"allocated", "reserved"} else 1
        for row in rows:
            cells = (row["forms"].get(form, {}).get(column) for form in FORMS)
            texts = ("" if cell is None else f"{cell / scale:.1f}" for cell in cells)
            yield f"| {row['case']} | {' | '.join(texts)} |"
    for row in rows:
        for form, found in row["forms"].items():
            if "error" in found:
                yield f"{row['case']}, {form}: {found['error']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("cuda_graphs.jsonl"))
    parser.add_argument("--table", type=Path)
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    if given.table:
        print("\n".join(tables([json.loads(line) for line in given.table.read_text().splitlines()])))
        return
    done = set[str]()
    if given.results.exists():
        done = {json.loads(line)["case"] for line in given.results.read_text().splitlines()}
    for case in CASES:
        if case in done or (given.cases and not any(part in case for part in given.cases)):
            continue
        row = {"case": case, "device": torch.cuda.get_device_name(), "forms": measured(case)}
        with given.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(case, {form: found.get("call") for form, found in row["forms"].items()}, flush=True)


if __name__ == "__main__":
    main()
