"""Leaves out launches that need not be measured: those of another variant, and those that are estimated to be slow.

Takes a kernel with its variants, and what prices a kernel. Gives them with fewer options for the number of warps.
Refuses nothing: the default of a choice stays.

Each launch that is measured is compiled first, and compiling is what takes the time of tuning. Variants that differ by
the number of warps only, such as `persistent4` and `persistent8`, are compiled and measured anyway: a launch of one
with the default of another would be that variant again. A kernel of matrix products keeps all launches, since their
prices do not tell one tile from another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from minductor.ir.program.choices import Choice, Option
from minductor.ir.program.nodes import Extern, Kernel, Node
from minductor.passes.schedule.ways import NEAR

WARPS = "warps"
Price: TypeAlias = Callable[[Kernel], float]  # the estimated seconds of a kernel by the defaults of its choices


def with_needed_launches(nodes: Sequence[Node], price: Price) -> tuple[Node, ...]:
    """The kernels, and their variants, without the numbers of warps that need not be measured."""
    return tuple(_with_needed(node, price) if isinstance(node, Kernel) else node for node in nodes)


def _with_needed(kernel: Kernel, price: Price) -> Kernel:
    """One kernel with its variants."""
    others = list(_kernels(kernel))

    def needed(each: Kernel) -> Kernel:
        taken = {_default(other) for other in others if _has_loops_of(each, other)}
        return replace(each, choices=tuple(_needed(each, choice, taken, price) for choice in each.choices))

    def in_variant(node: Kernel | Extern) -> Kernel | Extern:
        return needed(node) if isinstance(node, Kernel) else node

    variants = tuple(replace(each, nodes=tuple(map(in_variant, each.nodes))) for each in kernel.variants)
    return replace(needed(kernel), variants=variants)


def _kernels(kernel: Kernel) -> Iterator[Kernel]:
    """The kernel, and each kernel that is a variant of it by itself."""
    yield kernel
    for variant in kernel.variants:
        match variant.nodes:
            case (Kernel() as alone,):
                yield alone
            case _:
                pass


def _has_loops_of(one: Kernel, other: Kernel) -> bool:
    """Whether two kernels differ in their choices only."""
    return replace(one, choices=(), variants=()) == replace(other, choices=(), variants=())


def _default(kernel: Kernel) -> Option | None:
    """The number of warps of a kernel, if it is one for a GPU."""
    return next((choice.default for choice in kernel.choices if choice.id == WARPS), None)


def _needed(kernel: Kernel, choice: Choice, taken: set[Option | None], price: Price) -> Choice:
    """A choice of a kernel; the number of warps without the options that are `taken` or estimated to be slow."""
    if choice.id != WARPS or len(choice.options) == 1:
        return choice

    def seconds(option: Option) -> float:
        changed = (replace(each, default=option) if each is choice else each for each in kernel.choices)
        return price(replace(kernel, choices=tuple(changed), variants=()))

    is_priced = kernel.schedule is not None and not kernel.schedule.dots
    most = NEAR * seconds(choice.default) if is_priced else 0.0
    others = (option for option in choice.options if option != choice.default and option not in taken)
    kept = {choice.default, *(option for option in others if not is_priced or seconds(option) <= most)}
    return replace(choice, options=tuple(option for option in choice.options if option in kept))
