"""`python -m tests.e2e.hunt FIRST LAST [--grad] [--dynamic]`: random programs until a wrong one, shrunk and printed.

Takes a range of seeds. Gives the seeds that are wrong, each with the smallest program that still is. Refuses nothing.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

from tests.e2e.programs import Drawn, check, draw, shrunk


def problem(drawn: Drawn, *, dynamic: bool) -> str | None:
    """What is wrong, unless the tracer has the same trouble without minductor."""
    found = attempt(drawn, dynamic=dynamic)
    return found if found and not attempt(drawn, dynamic=dynamic, backend="aot_eager") else None


def attempt(drawn: Drawn, *, dynamic: bool, backend: str | None = None) -> str | None:
    try:
        return check(drawn, dynamic=dynamic, backend=backend)
    except Exception as reason:
        return f"{type(reason).__name__}: {str(reason)[:1500]}"


def kind(text: str | None) -> str:
    """Two problems of the same kind are taken for the same bug while shrinking."""
    return "" if text is None else text.split(":")[0] if "Error" in text.split(":")[0] else "value"


def is_like(first: str, drawn: Drawn, *, dynamic: bool) -> bool:
    return kind(problem(drawn, dynamic=dynamic)) == first


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.e2e.hunt", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--large", action="store_true", help="sizes that need blocks and threads")
    parser.add_argument("--length", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(2 if args.large else 1)
    wrong = 0
    for seed in range(args.first, args.last):
        drawn = draw(seed, args.length, is_differentiable=args.grad, is_scalable=args.dynamic, is_large=args.large)
        found = problem(drawn, dynamic=args.dynamic)
        if found is None:
            continue
        wrong += 1
        same = partial(is_like, kind(found), dynamic=args.dynamic)
        small = shrunk(drawn, same)
        print(f"--- seed {seed}: {problem(small, dynamic=args.dynamic)}\n# {small.shapes}\n{small.text}", flush=True)
    print(f"{wrong} of {args.last - args.first} are wrong", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
