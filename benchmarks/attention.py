"""`python benchmarks/attention.py`: attention that programs write out, beside the same program with a fused call.

Takes `--device`, `--rows` (a file: rows that stand there are not measured again), `--only` (a pattern of names),
`--rounds`, and `--quick` for small sizes. Each row is a program in float32, bfloat16 or float16, in inference or with
its gradients. Five forms run in interleaved rounds: written out in eager, by minductor with the rewrite `attention` and
without, by TorchInductor; and the program that calls `scaled_dot_product_attention`, by minductor. Prints the median
microseconds of a call, and as ratios what the rewrite gains, how far it is from the fused call, and TorchInductor's
time over minductor's. A form that fails has its error in the row.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CALLS = 5
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = F.scaled_dot_product_attention


class Sizes(NamedTuple):
    """Batch, heads, heads of keys, queries, keys, size of a head."""

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    size: int


class Case(NamedTuple):
    """A program that writes attention out, the same with a fused call, its sizes, and the shape of its mask."""

    written: Callable[..., Tensor]
    fused: Callable[..., Tensor]
    sizes: Sizes
    mask: Callable[[Sizes], Tensor | None] = lambda sizes: None
    is_trained: bool = True


def bert(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + mask
    return torch.matmul(F.softmax(scores, dim=-1), v).transpose(1, 2).contiguous()


def bert_fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return ATTENTION(q, k, v, mask).transpose(1, 2).contiguous()


def nano_gpt(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
    return (F.softmax(scores.masked_fill(~keep, -math.inf), dim=-1) @ v).transpose(1, 2).contiguous()


def nano_gpt_fused(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return ATTENTION(q, k, v, keep).transpose(1, 2).contiguous()


def repeated(x: Tensor, times: int) -> Tensor:
    batch, heads, length, size = x.shape
    return x[:, :, None].expand(batch, heads, times, length, size).reshape(batch, heads * times, length, size)


def llama(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    times = q.shape[1] // k.shape[1]
    k, v = repeated(k, times), repeated(v, times)
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5 + mask
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


def llama_fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    times = q.shape[1] // k.shape[1]
    return ATTENTION(q, repeated(k, times), repeated(v, times), mask).transpose(1, 2).contiguous()


def t5(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(3, 2))
    scores += bias
    return torch.matmul(F.softmax(scores.float(), dim=-1).type_as(scores), v)


def t5_fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return ATTENTION(q, k, v, bias, scale=1.0)


def vit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (((q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5).softmax(dim=-1) @ v).transpose(1, 2).contiguous()


def vit_fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ATTENTION(q, k, v).transpose(1, 2).contiguous()


def three_axes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) * q.shape[-1] ** -0.5, -1), v)


def three_axes_fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ATTENTION(q, k, v).flatten(0, 1)


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=-1), v)


def padding(sizes: Sizes) -> Tensor:
    """0 where a key counts, and -1e9 for the last fifth of the keys."""
    hidden = torch.arange(sizes.keys) >= sizes.keys - sizes.keys // 5
    return torch.zeros(sizes.batch, 1, 1, sizes.keys).masked_fill(hidden, -1e9)


def causal(sizes: Sizes) -> Tensor:
    """True where a key counts."""
    return torch.ones(1, 1, sizes.queries, sizes.keys, dtype=torch.bool).tril()


def causal_added(sizes: Sizes) -> Tensor:
    """0 where a key counts, else a large negative number."""
    return torch.zeros(sizes.batch, 1, sizes.queries, sizes.keys).masked_fill(~causal(sizes), -1e4)


def bias(sizes: Sizes) -> Tensor:
    """A number for each head, query and key."""
    return torch.randn(1, sizes.heads, sizes.queries, sizes.keys)


def cases(*, is_quick: bool) -> Mapping[str, Case]:
    """The programs by name; the quick ones are small."""

    def sizes(batch: int, heads: int, groups: int, queries: int, keys: int, size: int) -> Sizes:
        if is_quick:
            return Sizes(1, 4, max(1, 4 * groups // heads), min(queries, 192), min(keys, 192), 16)
        return Sizes(batch, heads, groups, queries, keys, size)

    return {
        "bert 512": Case(bert, bert_fused, sizes(32, 12, 12, 512, 512, 64), padding),
        "nano_gpt 1024": Case(nano_gpt, nano_gpt_fused, sizes(12, 12, 12, 1024, 1024, 64), causal),
        "llama 2048": Case(llama, llama_fused, sizes(2, 32, 8, 2048, 2048, 128), causal_added),
        "t5 512": Case(t5, t5_fused, sizes(16, 12, 12, 512, 512, 64), bias),
        "vit 197": Case(vit, vit_fused, sizes(64, 12, 12, 197, 197, 64)),
        "vit 1024": Case(vit, vit_fused, sizes(16, 16, 16, 1024, 1024, 80)),
        "three axes 512": Case(three_axes, three_axes_fused, sizes(16, 16, 16, 512, 512, 64)),
        "einsum 4096": Case(einsum, lambda q, k, v: ATTENTION(q, k, v), sizes(2, 16, 16, 4096, 4096, 64)),
        "cross 256 x 4096": Case(vit, vit_fused, sizes(8, 16, 16, 256, 4096, 64)),
        "decode 4096": Case(llama, llama_fused, sizes(16, 32, 8, 1, 4096, 128), causal_added, is_trained=False),
    }


def arguments(case: Case, dtype: torch.dtype, device: str, *, grad: bool) -> tuple[Tensor, ...]:
    """Queries, keys, values and the mask, with the heads behind the length in memory, as projections give them."""
    n = case.sizes
    shapes = ((n.queries, n.heads), (n.keys, n.groups), (n.keys, n.groups))
    made = [
        torch.randn(n.batch, length, heads, n.size, device=device, dtype=dtype).transpose(1, 2).requires_grad_(grad)
        for length, heads in shapes
    ]
    mask = case.mask(n)
    if mask is None:
        return tuple(made)
    return (*made, mask.to(device, dtype if mask.dtype.is_floating_point else mask.dtype))


def runner(fn: Callable[..., Tensor], args: tuple[Tensor, ...], *, grad: bool) -> Callable[[], object]:
    """One call of a function, with its gradients if they are wanted."""
    if not grad:

        def call() -> object:
            with torch.no_grad():
                return fn(*args)

        return call

    def step() -> object:
        for given in args:
            given.grad = None
        out = fn(*args)
        out.backward(out.detach())
        return out

    return step


def seconds(call: Callable[[], object], device: str) -> float:
    """The seconds of one call, from several in a row."""
    if device != "cuda":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / CALLS / 1e3


def measured(case: Case, dtype: torch.dtype, device: str, *, grad: bool, rounds: int) -> dict[str, Any]:
    """The microseconds of each form, or the first line of its error."""
    forms: dict[str, Callable[..., Tensor]] = {
        "eager": case.written,
        "rewritten": torch.compile(case.written, backend="minductor", dynamic=False),
        "written": torch.compile(case.written, backend="minductor", dynamic=False, options={"rewrites": "-attention"}),
        "inductor": torch.compile(case.written, backend="inductor", dynamic=False),
        "fused": torch.compile(case.fused, backend="minductor", dynamic=False),
    }
    row: dict[str, Any] = {}
    calls: dict[str, Callable[[], object]] = {}
    torch.manual_seed(0)
    torch.compiler.reset()
    args = arguments(case, dtype, device, grad=grad)
    for name, fn in forms.items():
        try:
            calls[name] = runner(fn, args, grad=grad)
            for _ in range(3):
                calls[name]()
        except Exception as error:
            del calls[name]
            row[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(seconds(call, device))
    return row | {name: round(statistics.median(each) * 1e6, 2) for name, each in taken.items()}


def ratio(row: Mapping[str, Any], over: str, under: str) -> str:
    a, b = row.get(over), row.get(under)
    return f"{a / b:6.2f}" if isinstance(a, float) and isinstance(b, float) else "     -"


def rows(given: argparse.Namespace) -> Iterator[tuple[str, Case, torch.dtype, bool]]:
    dtypes = ["float32"] if given.quick else list(DTYPES)
    for name, case in cases(is_quick=given.quick).items():
        for dtype in dtypes:
            for grad in (False, True)[: 1 + case.is_trained]:
                key = f"{name} {dtype} {'training' if grad else 'inference'}"
                if re.search(given.only, key):
                    yield key, case, DTYPES[dtype], grad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    done: dict[str, Any] = {}
    if given.rows is not None and given.rows.exists():
        done = {row["name"]: row for row in map(json.loads, given.rows.read_text().splitlines())}
    columns = ("eager", "written", "rewritten", "fused", "inductor")
    print(f"{'us':44}", *(f"{name:>10}" for name in columns), "  gain", " fused", "inductor")
    for key, case, dtype, grad in rows(given):
        if key not in done:
            row = measured(case, dtype, given.device, grad=grad, rounds=given.rounds)
            done[key] = {"name": key, "device": given.device, "torch": torch.__version__, **row}
            if given.rows is not None:
                with given.rows.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
        row = done[key]
        shown = [f"{row.get(name, '-')!s:>10.10}" for name in columns]
        ratios = (
            ratio(row, "written", "rewritten"),
            ratio(row, "rewritten", "fused"),
            ratio(row, "inductor", "rewritten"),
        )
        print(f"{key:44}", *shown, *ratios, flush=True)


if __name__ == "__main__":
    main()
