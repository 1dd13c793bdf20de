"""What each graph of the benchmark holds at most: as its Report says, and as torch's CPU allocation events show.

Takes names of cases, or parts of them; without any, all of them; `--size tiny` for small models. Prints the tables of
memory.md. Compiles and runs each case twice, in this process; no clock is read.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

from minductor.bench import cases
from minductor.bench.allocations import GraphMemory, allocations
from minductor.runtime.store.store import Store


def row(case: str, graph: GraphMemory) -> str:
    verdict = "equal" if graph.planned == graph.measured else "DIFFERENT"
    return f"| {case} | {graph.role} | {graph.planned} | {graph.measured} | {verdict} |"


def aside(found: Iterable[tuple[str, GraphMemory]]) -> list[str]:
    """Operators that take memory for the time of one call: how many calls, and the most that one of them took."""
    table: dict[str, tuple[int, int, str]] = {}
    for case, graph in found:
        for op, most, calls in graph.aside:
            known = table.get(op, (0, 0, ""))
            table[op] = (known[0] + calls, max(known[1], most), case if most > known[1] else known[2])
    return [f"| {op} | {calls} | {most} | {case} |" for op, (calls, most, case) in sorted(table.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("only", nargs="*", help="parts of the names of cases")
    parser.add_argument("--size", choices=("bench", "tiny"), default="bench", help="of the models")
    given = parser.parse_args()
    found: list[tuple[str, GraphMemory]] = []
    print("| case | graph | planned bytes | measured bytes | |\n|---|---|---:|---:|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="minductor_memory_") as folder:
        for case in cases.matching(cases.micro_names() + cases.model_names(), tuple(given.only)):
            for graph in allocations(cases.build(case, size=given.size), store=Store(Path(folder))):
                found.append((case, graph))
                print(row(case, graph), flush=True)
    wrong = sum(graph.planned != graph.measured for _, graph in found)
    print(f"\n{len(found)} graphs, {wrong} of them different.\n")
    print("| operator | calls | most bytes in a call | in |\n|---|---:|---:|---|")
    print("\n".join(aside(found)))


if __name__ == "__main__":
    main()
