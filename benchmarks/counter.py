"""One kernel with a counter beside two kernels: `python benchmarks/counter.py ROWS [--cases PATTERN] [--rounds N]`.

Takes a file of results, one JSON object a line, to which each case is written once it is measured; cases that it holds
are not measured again. Prints the table of counter.md: a reduction to a scalar by one kernel whose last program joins
the parts, and by two kernels, as measured and as priced, and which of them the compiler takes. Refuses to run without a
GPU.

Device times are those between two events around calls that wait in the stream behind a long kernel, so that no launch
waits for the host. Host times are those of calls that wait for nothing. Both ways are measured in turns; medians count.
What a call of both gives is compared bit by bit.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.cost.kernel_seconds import TIE, Slower, fastest
from minductor.cost.launch_seconds import LaunchPrices
from minductor.driver import Compiled, Compiler
from minductor.passes.bundle import finish
from minductor.passes.split import split

# calls between two events, and cycles of the kernel before them: it ends when the host has launched them all
CALLS, SLEEP = 20, 8_000_000
ALWAYS, NEVER = 0.0, 1e9  # as `finish.TIE`
POWERS = {"sum": (16, 18, 20, 22, 24, 25, 26, 27), "mean of bf16": (16, 20, 24, 27), "amax": (16, 20, 24, 27)}
POWERS |= {"argmax": (16, 20, 24), "cross_entropy": (16, 20, 24, 27), "mse": (20, 24, 26)}
WHOLE = "sum, two: whole"  # the case in which the second way is one kernel that is not cut
POWERS |= {WHOLE: (14, 15, 16, 17)}
Function = Callable[..., Tensor]


class Way(NamedTuple):
    """A compiled function, and whether it is one kernel."""

    call: Callable[[], Tensor]
    is_one: bool


def case(name: str, power: int) -> tuple[Function, tuple[Tensor, ...]]:
    """A function and its arguments, the first of which has 2**power elements."""
    length = 1 << power
    match name:
        case "sum" | "sum, two: whole":
            return torch.sum, (torch.randn(length, device="cuda"),)
        case "mean of bf16":
            return torch.mean, (torch.randn(length, device="cuda").bfloat16(),)
        case "amax":
            return torch.amax, (torch.randn(length, device="cuda"),)
        case "argmax":
            return torch.argmax, (torch.randn(length, device="cuda"),)
        case "cross_entropy":
            rows = length // 1024
            return F.cross_entropy, (
                torch.randn(rows, 1024, device="cuda"),
                torch.randint(1024, (rows,), device="cuda"),
            )
        case _:
            return F.mse_loss, (torch.randn(length, device="cuda"), torch.randn(length, device="cuda"))


def in_parts(prices: Mapping[str, Sequence[float]]) -> str:
    """The fastest way that cuts a kernel."""
    return fastest({name: price for name, price in prices.items() if name != split.WHOLE} or prices)


def whole(prices: Mapping[str, Sequence[float]]) -> str:
    """The way that does not cut a kernel, unless there is none."""
    return split.WHOLE if split.WHOLE in prices else fastest(prices)


def compiled(fn: Function, given: tuple[Tensor, ...], tie: float, prices: list[Slower], cut: Any = fastest) -> Way:
    """The function, with one kernel wherever that is possible (ALWAYS) or nowhere (NEVER); notes the prices.

    `cut` chooses among the ways to cut a reduction.
    """
    seen: list[Compiled] = []
    priced = LaunchPrices.finished

    def noted(self: LaunchPrices, *launches: Any) -> Slower:
        prices.append(priced(self, *launches))
        return prices[-1]

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(finish, "TIE", tie),
        mock.patch.object(split, "fastest", cut),
        mock.patch.object(LaunchPrices, "finished", noted),
    ):
        torch._dynamo.reset()
        compiler, options = Compiler(observer=seen.append), {"cache_dir": folder}
        run = torch.compile(fn, backend=lambda gm, i: compiler(gm, i, options=options), dynamic=False)
        run(*given)
    is_one = any("tl.atomic_add(counter" in text for each in seen for text in each.sources.values())
    return Way(lambda: run(*given), is_one)


def device_seconds(call: Callable[[], Tensor]) -> float:
    """The seconds of a call on the device, while the stream has work."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP)
    start.record()
    for _ in range(CALLS):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / CALLS


def host_seconds(call: Callable[[], Tensor]) -> float:
    """The seconds that a call takes the host."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken / CALLS


def measured(name: str, power: int, rounds: int) -> dict[str, Any]:
    """The row of a case; times in microseconds."""
    fn, given = case(name, power)
    prices: list[Slower] = []
    if name == WHOLE:
        ways = [compiled(fn, given, ALWAYS, prices, in_parts), compiled(fn, given, ALWAYS, [], whole)]
    else:
        ways = [compiled(fn, given, tie, prices) for tie in (ALWAYS, NEVER)]
    row: dict[str, Any] = {"case": name, "power": power, "ways": [way.is_one for way in ways]}
    results = [way.call() for way in ways]
    row["same bits"] = torch.equal(*results)
    row["error"] = float((results[0].double() - fn(*given).double()).abs().max())
    times: list[list[float]] = [[], [], [], []]
    for _ in range(rounds):
        for number, way in enumerate(ways):
            times[number].append(device_seconds(way.call))
            times[2 + number].append(host_seconds(way.call))
    one, two, host_one, host_two = (statistics.median(each) * 1e6 for each in times)
    row |= {"one": one, "two": two, "host one": host_one, "host two": host_two, "ratio": two / one}
    if prices:
        row |= {"priced one": prices[0].this * 1e6, "priced two": prices[0].other * 1e6}
        row["taken"] = "one" if prices[0].other > TIE * prices[0].this else "two"
    return row


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of the table."""
    yield "| case | elements | one | two | two / one | priced one | priced two | taken | host one | two | same bits |"
    yield "|---|---|---:|---:|---:|---:|---:|---|---:|---:|---|"
    for row in rows:
        numbers = [f"{row.get(key, 0):.3g}" for key in ("one", "two", "ratio", "priced one", "priced two")]
        hosts = [f"{row[key]:.3g}" for key in ("host one", "host two")]
        taken = row.get("taken", "no pair")
        cells = [row["case"], f"2**{row['power']}", *numbers, taken, *hosts, "yes" if row["same bits"] else "NO"]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--cases", default="", help="a pattern of cases, as 'sum 2'")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    torch.manual_seed(0)
    text = given.rows.read_text() if given.rows.exists() else ""
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    known = {(row["case"], row["power"]) for row in rows}
    for name, powers in POWERS.items():
        for power in powers:
            if (name, power) in known or not re.search(given.cases, f"{name} {power}"):
                continue
            rows.append(measured(name, power, given.rounds))
            with given.rows.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print("\n".join(table(rows)), flush=True)


if __name__ == "__main__":
    main()
