"""Replaces kernels by one of their variants, so that other code need not know of variants.

Takes a Program, and for the name of a kernel the option to take. Gives the program in which the nodes of that variant
stand in the kernel's place. Refuses a name that is no option, with KeyError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from minductor.ir.program.choices import VARIANT, Affects, Choice
from minductor.ir.program.nodes import Atomic, Buffer, Kernel, Node, Program, Reduce, Scan, all_ops


def affects(kernel: Kernel) -> Affects:
    """What another way to compute a kernel may change: "bits" if it adds or joins numbers, else "perf"."""
    joins = any(isinstance(op.attrs, Reduce | Scan | Atomic) for op in all_ops(kernel.body))
    return "bits" if joins else "perf"


def variant_choice(kernel: Kernel) -> Choice:
    """The choice between a kernel and its variants; ValueError if the kernel has no variants."""
    for choice in kernel.choices:
        if choice.id == VARIANT:
            return choice
    raise ValueError(f"kernel {kernel.name} has no variants")


def base_option(kernel: Kernel) -> str:
    """The option that selects the kernel itself and not one of its variants."""
    names = {variant.name for variant in kernel.variants}
    (own,) = (option for option in variant_choice(kernel).options if option not in names)
    return str(own)


def is_base_default(kernel: Kernel) -> bool:
    """Whether the kernel itself is the default among its variants; so is a kernel without variants."""
    return not kernel.variants or variant_choice(kernel).default == base_option(kernel)


def without_variants(kernel: Kernel) -> Kernel:
    """The kernel without its variants and without the choice between them."""
    if not kernel.variants:
        return kernel
    open_choices = tuple(choice for choice in kernel.choices if choice != variant_choice(kernel))
    return replace(kernel, choices=open_choices, variants=())


def kernels_with_variants(nodes: Iterable[Node]) -> Iterator[Kernel]:
    """The kernels that have variants."""
    return (node for node in nodes if isinstance(node, Kernel) and node.variants)


def select_variants(program: Program, picks: Mapping[str, str], *, keeps_others: bool = False) -> Program:
    """The program without variants. `picks`: the option for a kernel's name.

    A kernel without one takes its default, or stays as it is if `keeps_others`.
    """
    if not any(True for _ in kernels_with_variants(program.nodes)):
        return program
    nodes: list[Node] = []
    buffers: list[Buffer] = list(program.buffers)
    for node in program.nodes:
        if not isinstance(node, Kernel) or not node.variants or (keeps_others and node.name not in picks):
            nodes.append(node)
            continue
        option = picks.get(node.name, str(variant_choice(node).default))
        if option == base_option(node):
            nodes.append(without_variants(node))
            continue
        variant = {variant.name: variant for variant in node.variants}[option]
        nodes += variant.nodes
        buffers += variant.buffers
    return replace(program, nodes=tuple(nodes), buffers=tuple(buffers))
