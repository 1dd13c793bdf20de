"""Typical small functions beside eager and TorchInductor: `python benchmarks/survey.py FILE [--table] [name ...]`.

Takes a file of JSON lines and parts of names. Measures each function in three ways, static and dynamic sizes of 4 Mi
elements and dynamic sizes of 64 Ki, which L2 holds, and appends a line for each to the file; what the file has is not
measured again. `--table` prints the file as the table of `survey.md`: microseconds of eager, the least CPU time of
interleaved rounds, and the times of eager and of TorchInductor over ours. With several threads it is the wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F

SECONDS, MOST_ROUNDS = 0.3, 100
WAYS: Mapping[str, tuple[int, bool]] = MappingProxyType(  # the side of a matrix, and whether sizes are dynamic
    {"4 Mi": (2048, False), "4 Mi, dynamic": (2048, True), "64 Ki, dynamic": (256, True)}
)
Make = Callable[[int], tuple[Tensor, ...]]  # from the side of a matrix
Case = tuple[Callable[..., Any], Make]


def rows(n: int) -> tuple[Tensor, ...]:
    return (torch.randn(n, n),)


def pair(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n, n), torch.randn(n, n)


def halves(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n, n // 2), torch.randn(n, n // 2)


def doubles(n: int) -> tuple[Tensor, ...]:
    return (torch.randn(n, n, dtype=torch.float64),)


def integers(n: int, dtype: torch.dtype = torch.int64) -> tuple[Tensor, ...]:
    return torch.randint(-1000, 1000, (n, n), dtype=dtype), torch.randint(1, 50, (n, n), dtype=dtype)


def ints(n: int) -> tuple[Tensor, ...]:
    return integers(n, torch.int32)


def octets(n: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 256, (n, n), dtype=torch.uint8),)


def four(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n, n), torch.randn(n, n), torch.randn(n, n), torch.rand(n, n)


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    m = m.lerp(g, 0.1)
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def truths(n: int) -> tuple[Tensor, ...]:
    return (torch.randn(n, n) > -3,)


def images(n: int) -> tuple[Tensor, ...]:
    """n * n elements of images with 16 channels."""
    side = n // 8
    return (torch.randn(4, 16, side, side),)


def last(n: int) -> tuple[Tensor, ...]:
    return (images(n)[0].to(memory_format=torch.channels_last),)


def normed(make: Make) -> Make:
    """Images, and a mean, variance, weight and bias of their channels."""
    return lambda n: (*make(n), torch.randn(16), torch.rand(16) + 0.5, torch.randn(16), torch.randn(16))


def with_places(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n, n), torch.randint(n, (n, n)), torch.randn(n, n)


def with_rows(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n, n), torch.randint(n, (n,)), torch.randn(n, n)


def classes(n: int) -> tuple[Tensor, ...]:
    """Scores of some tokens over a large vocabulary, and the right ones."""
    return torch.randn(n // 8, n * 8), torch.randint(n * 8, (n // 8,))


def heads(n: int) -> tuple[Tensor, ...]:
    return torch.randn(1, n * n // 4096, 64, 64), torch.randn(64, 64) > 0


def rotary(n: int) -> tuple[Tensor, ...]:
    return torch.randn(1, 4, n * n // 256, 64), torch.randn(n * n // 256, 64), torch.randn(n * n // 256, 64)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def grads(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The gradient of the sum of fn's result, by its first argument."""
    return lambda x, *rest: torch.func.grad(lambda y: fn(y, *rest).sum())(x)


def rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def batch_norm(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, *, training: bool) -> Tensor:
    return F.batch_norm(x, mean, var, weight, bias, training=training)


def trained(x: Tensor, *rest: Tensor) -> Tensor:
    return batch_norm(x, *rest, training=True)


def applied(x: Tensor, *rest: Tensor) -> Tensor:
    return batch_norm(x, *rest, training=False)


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "add, mul": (lambda x, y: x * 2 + y, pair),
        "gelu": (F.gelu, rows),
        "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), rows),
        "silu": (F.silu, rows),
        "mish": (F.mish, rows),
        "softplus": (F.softplus, rows),
        "gelu gradient": (grads(F.gelu), rows),
        "softmax rows": (lambda x: x.softmax(-1), rows),
        "softmax columns": (lambda x: x.softmax(0), rows),
        "log_softmax": (lambda x: x.log_softmax(-1), rows),
        "masked softmax": (lambda x, m: x.masked_fill(m, -1e9).softmax(-1), heads),
        "softmax gradient": (grads(lambda x, y: x.softmax(-1) * y), pair),
        "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), rows),
        "layer_norm gradient": (grads(lambda x, y: F.layer_norm(x, x.shape[-1:]) * y), pair),
        "rms_norm": (rms_norm, rows),
        "sum": (torch.sum, rows),
        "sum rows": (lambda x: x.sum(-1), rows),
        "sum columns": (lambda x: x.sum(0), rows),
        "sum middle": (lambda x: x.view(16, -1, 16).sum(1), rows),
        "sum float64": (lambda x: x.sum(-1), doubles),
        "sum int64": (lambda x, y: (x + y).sum(-1), integers),
        "max": (torch.amax, rows),
        "max with places": (lambda x: x.max(-1), rows),
        "argmax columns": (lambda x: x.argmax(0), rows),
        "var rows": (lambda x: x.var(-1), rows),
        "var columns": (lambda x: x.var(0), rows),
        "norm": (lambda x: x.norm(dim=-1), rows),
        "logsumexp": (lambda x: x.logsumexp(-1), rows),
        "all rows": (lambda x: x.all(-1), truths),
        "any columns": (lambda x: x.any(0), truths),
        "count": (lambda x: (x > 0).sum(), rows),
        "prod": (lambda x: x.prod(-1), rows),
        "cumsum rows": (lambda x: x.cumsum(-1), rows),
        "cumsum columns": (lambda x: x.cumsum(0), rows),
        "cummax": (lambda x: x.cummax(-1), rows),
        "cumsum int64": (lambda x, y: x.cumsum(-1), integers),
        "topk": (lambda x: x.topk(5), rows),
        "sort": (lambda x: x.sort(-1), rows),
        "gather": (lambda x, i, y: x.gather(-1, i), with_places),
        "scatter": (lambda x, i, y: x.scatter(-1, i, y), with_places),
        "scatter_add": (lambda x, i, y: x.scatter_add(-1, i, y), with_places),
        "rows by index": (lambda x, i, y: x[i], with_rows),
        "columns by index": (lambda x, i, y: x[:, i], with_rows),
        "index_add": (lambda x, i, y: x.index_add(0, i, y), with_rows),
        "index_put": (lambda x, i, y: x.index_put((i,), y), with_rows),
        "embedding": (lambda x, i, y: F.embedding(i, x), with_rows),
        "embedding gradient": (grads(lambda x, i, y: F.embedding(i, x) * y), with_rows),
        "concat rows": (lambda x, y: torch.cat((x, y), -1), halves),
        "concat": (lambda x, y: torch.cat((x, y)), halves),
        "stack": (lambda x, y: torch.stack((x, y), -1), halves),
        "split": (lambda x: tuple(part + 1 for part in x.chunk(4, -1)), rows),
        "transpose": (lambda x: x.t().contiguous(), rows),
        "transpose add": (lambda x, y: x.t() + y, pair),
        "permute 021": (lambda x: x.view(16, -1, 32).permute(0, 2, 1).contiguous(), rows),
        "permute 0213": (lambda x: x.view(4, 8, -1, 16).permute(0, 2, 1, 3).contiguous(), rows),
        "permute 43210": (lambda x: x.view(4, 4, 4, 4, -1).permute(4, 3, 2, 1, 0).contiguous(), rows),
        "to channels_last": (lambda x: x.contiguous(memory_format=torch.channels_last), images),
        "from channels_last": (lambda x: x.contiguous(), last),
        "flip": (lambda x: x.flip(-1), rows),
        "flip rows": (lambda x: x.flip(0), rows),
        "roll": (lambda x: x.roll(5, -1), rows),
        "repeat": (lambda x: x[: x.shape[0] // 4].repeat(2, 2), rows),
        "repeat_interleave": (lambda x: x[: x.shape[0] // 4].repeat_interleave(4, -1), rows),
        "expand": (lambda x, y: x[:, :1] + y[:1], pair),
        "tril": (torch.tril, rows),
        "pad": (lambda x: F.pad(x, (1, 1, 1, 1)), images),
        "reflect pad": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), images),
        "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), images),
        "max_pool last": (lambda x: F.max_pool2d(x, 3, 2, 1), last),
        "max_pool gradient": (grads(lambda x: F.max_pool2d(x, 2)), images),
        "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), images),
        "adaptive pool": (lambda x: F.adaptive_avg_pool2d(x, 1), images),
        "adaptive pool 3": (lambda x: F.adaptive_avg_pool2d(x, 3), images),
        "nearest": (lambda x: F.interpolate(x[:, :4], scale_factor=2), images),
        "bilinear": (lambda x: F.interpolate(x[:, :4], scale_factor=2, mode="bilinear"), images),
        "unfold": (lambda x: F.unfold(x[:, :2], 3, padding=1), images),
        "fold": (lambda x: F.fold(F.unfold(x[:, :2], 3, padding=1) * 2, x.shape[2:], 3, padding=1), images),
        "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), images),
        "greater": (torch.gt, pair),
        "where": (lambda x, y: torch.where(x > 0, x, y), pair),
        "masked_fill": (lambda x, y: x.masked_fill(y > 0, 0.0), pair),
        "clamp": (lambda x: x.clamp(-1, 1), rows),
        "isnan": (lambda x: x.isnan() | x.isinf(), rows),
        "int64 to float": (lambda x, y: x.float(), integers),
        "float to int64": (lambda x: (x * 100).long(), rows),
        "float to uint8": (lambda x: (x.abs() * 50).to(torch.uint8), rows),
        "int64 to int32": (lambda x, y: x.int(), integers),
        "int64 floor division": (lambda x, y: x // y, integers),
        "int64 remainder": (lambda x, y: x % y, integers),
        "int32 remainder": (lambda x, y: x % y, ints),
        "int64 remainder by 7": (lambda x, y: x % 7, integers),
        "int32 division by 7": (lambda x, y: x // 7, ints),
        "bit operations": (lambda x, y: (x & y) ^ (x << 3), integers),
        "float remainder": (lambda x, y: x % y, pair),
        "pow": (lambda x, y: x.abs() ** y, pair),
        "float64 exp": (torch.exp, doubles),
        "float64 erfinv": (lambda x: torch.erfinv(x.sin()), doubles),
        "mse gradient": (grads(F.mse_loss), pair),
        "smooth_l1": (F.smooth_l1_loss, pair),
        "bce with logits": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), pair),
        "kl_div": (lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1)), pair),
        "cross_entropy": (F.cross_entropy, classes),
        "cross_entropy gradient": (grads(F.cross_entropy), classes),
        "batch_norm": (applied, normed(images)),
        "batch_norm last": (applied, normed(last)),
        "batch_norm training": (trained, normed(images)),
        "batch_norm training last": (trained, normed(last)),
        "group_norm": (lambda x: F.group_norm(x, 4), images),
        "group_norm last": (lambda x: F.group_norm(x, 4), last),
        "instance_norm": (F.instance_norm, images),
        "instance_norm last": (F.instance_norm, last),
        "rotary": (rotated, rotary),
        "cosine similarity": (F.cosine_similarity, pair),
        "outer": (lambda x: x[0][:, None] * x[1], rows),
        "one_hot": (lambda x, i: F.one_hot(i % 64, 64), classes),
        "searchsorted": (lambda x: torch.bucketize(x, torch.linspace(-2, 2, 33)), rows),
        "meshgrid": (lambda x: (torch.arange(x.shape[0])[:, None] - torch.arange(x.shape[1])).abs(), rows),
        "grid_sample": (lambda x: F.grid_sample(x, x[:, :2].movedim(1, -1).tanh(), align_corners=False), images),
        "uint8 to float": (lambda x: (x.float() / 255 - 0.45) / 0.225, octets),
        "uint8 add": (lambda x: x + 3, octets),
        "int32 sum": (lambda x, y: x.sum(-1), ints),
        "int64 min": (lambda x, y: x.amin(-1), integers),
        "int64 argmax": (lambda x, y: x.argmax(-1), integers),
        "int64 multiply": (lambda x, y: x * y + 1, integers),
        "int64 power": (lambda x, y: x**3, integers),
        "int64 equal": (lambda x, y: x == y, integers),
        "float64 softmax": (lambda x: x.softmax(-1), doubles),
        "float64 tanh": (torch.tanh, doubles),
        "float64 gelu": (F.gelu, doubles),
        "float64 layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), doubles),
        "softmax middle": (lambda x: x.view(16, -1, 64).softmax(1), rows),
        "softmax of 16": (lambda x: x.view(-1, 16).softmax(-1), rows),
        "layer_norm of 32": (lambda x: F.layer_norm(x.view(-1, 32), (32,)), rows),
        "sum of 8": (lambda x: x.view(-1, 8).sum(-1), rows),
        "max of 5": (lambda x: x[:, :-1].reshape(x.shape[0], -1)[:, :5].amax(-1), rows),
        "norm 1": (lambda x: x.norm(p=1, dim=-1), rows),
        "normalize": (F.normalize, rows),
        "standardize": (lambda x: (x - x.mean(0)) / x.std(0), rows),
        "diff": (torch.diff, rows),
        "logcumsumexp": (lambda x: x.logcumsumexp(-1), rows),
        "cumprod": (lambda x: x.cumprod(0), rows),
        "scatter_reduce": (lambda x, i, y: x.scatter_reduce(0, i, y, "amax"), with_places),
        "index_select columns": (lambda x, i, y: x.index_select(1, i), with_rows),
        "take_along rows": (lambda x, i, y: x.gather(0, i), with_places),
        "embedding bag": (lambda x, i, y: F.embedding_bag(i.view(-1, 8), x), with_rows),
        "glu": (lambda x: F.glu(x), rows),
        "swiglu": (lambda x, y: F.silu(x) * y, pair),
        "prelu": (lambda x: F.prelu(x, x[0, :1]), rows),
        "elu": (F.elu, rows),
        "hardswish": (F.hardswish, rows),
        "sigmoid": (torch.sigmoid, rows),
        "tanh": (torch.tanh, rows),
        "erf": (torch.erf, rows),
        "sin": (torch.sin, rows),
        "log1p": (lambda x: x.abs().log1p(), rows),
        "floor divide": (lambda x, y: x // y, pair),
        "round": (lambda x: (x * 10).round() / 10, rows),
        "atan2": (torch.atan2, pair),
        "adam step": (adam, four),
        "rot90": (lambda x: x.rot90(), rows),
        "tile transposed": (lambda x: x.view(x.shape[0] // 4, 4, -1).transpose(0, 1).reshape(4, -1), rows),
        "avg_pool1d": (lambda x: F.avg_pool1d(x, 4), rows),
        "max_pool1d": (lambda x: F.max_pool1d(x, 3, 1, 1), rows),
        "norm of weights": (lambda x: x / x.square().sum((1, 2, 3), keepdim=True).sqrt(), images),
        "mean of channels": (lambda x: x.mean((2, 3)), images),
        "mean of channels last": (lambda x: x.mean((2, 3)), last),
        "softmax of channels": (lambda x: x.softmax(1), images),
        "argmax of channels": (lambda x: x.argmax(1), images),
        "bicubic": (lambda x: F.interpolate(x[:, :4], scale_factor=2, mode="bicubic"), images),
        "area": (lambda x: F.interpolate(x, scale_factor=0.5, mode="area"), images),
        "nearest gradient": (grads(lambda x: F.interpolate(x[:, :4], scale_factor=2)), images),
        "local response": (lambda x: F.local_response_norm(x, 5), images),
        "triplet": (lambda x, y: F.triplet_margin_loss(x, y, y + x), pair),
        "huber gradient": (grads(F.huber_loss), pair),
        "nll of images": (lambda x: F.nll_loss(x.log_softmax(1), x.argmax(1)), images),
        "float complex": (lambda x, y: torch.view_as_real(torch.complex(x, y) * torch.complex(y, x)), pair),
        "call of 64": (lambda x: x[0, :64] + 1, rows),
    }
)


def seconds(call: Callable[[], object], calls: int) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    for _ in range(calls):
        call()
    return (clock() - begin) / calls


def measured(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The least time of each call: what others take of the machine only adds to it."""
    for each in calls.values():
        seconds(each, 2)
    repeats = max(4, int(2e-4 / seconds(calls["eager"], 5)))
    least = dict.fromkeys(calls, float("inf"))
    begin = time.perf_counter()
    for _ in range(MOST_ROUNDS):
        least = {name: min(least[name], seconds(each, repeats)) for name, each in calls.items()}
        if time.perf_counter() - begin > SECONDS:
            break
    return least


def measured_ways(case: Case, backends: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """The times of each backend that compiles the function, for each of WAYS."""
    fn, make = case
    found: dict[str, dict[str, float]] = {}
    for is_dynamic in (False, True):
        torch._dynamo.reset()
        compiled: dict[str, Callable[..., Any]] = {"eager": fn}
        for name in backends:
            compiled[name] = torch.compile(fn, backend=name, dynamic=is_dynamic)
            try:
                compiled[name](*make(2048))
            except BackendCompilerFailed as error:  # TorchInductor refuses some dynamic sizes
                print(f"{name}: {str(error).splitlines()[0]}")
                del compiled[name]
        for way, (n, is_of_dynamic) in WAYS.items():
            if is_of_dynamic == is_dynamic:
                torch.manual_seed(0)
                args = make(n)
                found[way] = measured({name: partial(each, *args) for name, each in compiled.items()})
    return found


def print_table(rows: Mapping[str, Mapping[str, float]], ours: str, peer: str) -> None:
    for name in CASES:
        cells: list[str] = []
        for way in WAYS:
            row = rows.get(f"{name}: {way}", {})
            eager, theirs, own = (row.get(backend, float("nan")) for backend in ("eager", peer, ours))
            cells.append(f"{eager * 1e6:.0f} {eager / own:.2f} {theirs / own:.2f}" if row else "")
        if any(cells):
            print(f"| {name} | {' | '.join(cells)} |")
    for way in WAYS:
        found = [row for name, row in rows.items() if name.endswith(f": {way}") and peer in row and ours in row]
        means = [geometric_mean([row[each] / row[ours] for row in found]) for each in ("eager", peer)] if found else []
        print(f"{way}: {len(found)} functions, geometric means {' and '.join(f'{mean:.2f}' for mean in means)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--backends", default="inductor,minductor")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    lines = options.file.read_text().splitlines() if options.file.exists() else ()
    rows: dict[str, Mapping[str, float]] = {row.pop("row"): row for row in map(json.loads, lines)}
    backends = tuple(options.backends.split(","))
    if options.table:
        return print_table(rows, backends[-1], backends[0])
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch.set_num_threads(options.threads)
    for name, case in CASES.items():
        if (options.names and not any(part in name for part in options.names)) or f"{name}: {list(WAYS)[-1]}" in rows:
            continue
        with torch.no_grad():
            found = measured_ways(case, backends)
        with options.file.open("a") as file:
            file.writelines(json.dumps({"row": f"{name}: {way}", **times}) + "\n" for way, times in found.items())
        print(f"{name}: {found}", flush=True)


if __name__ == "__main__":
    main()
