"""What the judge of random programs calls faults: one operand of one line is off, in its value or in its gradient.

    python benchmarks/judge_faults.py --first 64000 --count 20

Eager itself is the compiler, with the fault. Prints for each fault how many of those that change a result at all are
called wrong, unstable and right; one that is not called wrong is as small as rounding there, or lies on an edge.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pytest_plugin.oracle import reference_runs
from pytest_plugin.random_programs.programs import Program
from pytest_plugin.random_programs.verdict import judge
from tests.e2e.hunt import Name

Change = Callable[[Tensor], Tensor]
PLACES = 3  # of each program
WORDS = ("wrong", "unstable", "right")


def one_lost(x: Tensor) -> Tensor:
    found = x.clone(memory_format=torch.contiguous_format)
    found.flatten()[: found.numel() // 2 + 1][-1:].zero_()
    return found


def turned(x: Tensor) -> Tensor:
    is_square = x.dim() == 2 and x.shape[0] == x.shape[1]
    return x.t() if is_square else x.flatten().flip(0).reshape(x.shape)


CHANGES: Mapping[str, Change] = {
    "1e-3 too large": lambda x: x * (1 + 1e-3),
    "1e-6 too large": lambda x: x * (1 + 1e-6),
    "another sign": lambda x: -x,
    "one element lost": one_lost,
    "all lost": torch.zeros_like,
    "transposed": turned,
    "rounded to float32": lambda x: x.float().to(x.dtype),
}


def of_value(change: Change) -> Change:
    return lambda x: change(x) if x.is_floating_point() else x


def of_gradient(change: Change) -> Change:
    class Faulty(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return change(grads[0])

    return lambda x: Faulty.apply(x) if x.requires_grad else x


def places(program: Program, seed: int) -> list[Program]:
    """The program with one operand of one line that is faulty, in random order."""
    found: list[Program] = []
    for n, node in enumerate(program.nodes):
        for name in dict.fromkeys(re.findall(r"\b[tx]\d+\b", node.text)) if not node.writes else ():
            faulty = replace(node, text=re.sub(rf"\b{name}\b", f"torch.faulty({name})", node.text))
            found.append(replace(program, nodes=(*program.nodes[:n], faulty, *program.nodes[n + 1 :])))
    return random.Random(seed).sample(found, len(found))


def with_fault(place: Program, fault: Change) -> Callable[..., Any]:
    class Torch:
        faulty = staticmethod(fault)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    function: Any = place.fn()
    function.__globals__["torch"] = Torch()
    return function


def words(program: Program, seed: int, kind: Callable[[Change], Change]) -> Iterator[tuple[str, str]]:
    """Each fault with what it is called, at the first places where one has an effect."""
    effective = 0
    for place in places(program, seed):
        called = dict[str, str]()
        for name, change in CHANGES.items():
            function = with_fault(place, kind(change))
            if has_effect(program, function):
                found = judge(program, lambda fn, own=function: own, reference=lambda fn: fn)
                called[name] = found.word
        yield from called.items()
        effective += bool(called)
        if effective == PLACES:
            return


def has_effect(program: Program, function: Callable[..., Any]) -> bool:
    """Whether any result is another."""
    try:
        torch.testing.assert_close(
            left(program, function), left(program, program.fn()), rtol=0, atol=0, equal_nan=True, check_stride=False
        )
    except AssertionError:
        return True
    except Exception:  # with the fault, eager does not run it
        return False
    return False


def left(program: Program, function: Callable[..., Any]) -> list[Tensor]:
    own = reference_runs.copy_call(reference_runs.OwnedCall(function, tuple(program.arguments()), {}), exact=False)
    found = reference_runs.run_call(own, function, grad=program.differentiable)
    return [*found.out, *(grad for grad in found.grads.values() if grad is not None)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=64000)
    parser.add_argument("--count", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for title, kind, change in (("values", "mixed", of_value), ("gradients", "gradients", of_gradient)):
        counts = {name: Counter[str]() for name in CHANGES}
        for number in range(args.first, args.first + args.count):
            for name, word in words(Name(kind, number).program(), number, change):
                counts[name][word] += 1
        print(f"{title:<20}" + "".join(f"{word:>10}" for word in WORDS))
        for name, count in counts.items():
            print(f"{name:<20}" + "".join(f"{count[word]:>10}" for word in WORDS), flush=True)


if __name__ == "__main__":
    main()
