"""Gives the work of a small kernel to the program of the kernel before it that ends last.

Takes a Program whose kernels have schedules. Gives one in which a kernel of one program, and the kernel whose results
it reads, are one kernel: each program counts that it has ended, and the last one does the work of the small kernel.
That saves a launch. The usual case is a reduction in parts (`split`): the last program joins the parts, always in the
same order.

A kernel of several programs joins sums of columns. If each of its blocks needs only what the programs for the same
columns have stored, these are counted by themselves, and the last of them does the work of this block.

Refuses (leaves as they are) kernels on CPUs and for wrappers that pass no counter, and matrix products; and, with a
`FusionRefusal`, pairs of kernels for which one launch saves too little.

The order in which a program adds numbers depends on how many threads it has. So a small kernel of one program has as
many as the kernel before it, be they one kernel or two: which of the two is taken changes no bit. One of several
programs keeps its own if it stays apart, where it is faster so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from minductor.analysis.acyclic import AcyclicOrder
from minductor.analysis.dependencies import dependencies
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_int
from minductor.cost.kernel_seconds import TIE
from minductor.cost.launch_seconds import LaunchPrices
from minductor.ir.artefact.launch_metadata import COUNTERS
from minductor.ir.program.blocks_apart import Part, blocks_apart
from minductor.ir.program.choices import Choice, defaults
from minductor.ir.program.loops import edited, loops, with_blocks
from minductor.ir.program.nodes import (
    Extern,
    FusionRefusal,
    Kernel,
    MergedKernel,
    Node,
    NodeNote,
    Program,
    Reduce,
    Variant,
    all_ops,
    reads,
    writes,
)
from minductor.ir.program.variants import is_base_default, without_variants
from minductor.passes.bundle.one_kernel import one_kernel
from minductor.target import Env

MAX_OPS = 1024  # of both kernels: Triton's compile time grows faster than the text
MAX_PARAMETERS = 250  # tensors and numbers of both kernels: launchers hold a few more (`load.py: MAX_ARGUMENTS`)


def finish(program: Program, env: Env) -> Program:
    """The program in which programs that end last do the work of small kernels; the program itself if none does."""
    options = env.options
    if not (env.target.has_counters and options.fuse and options.wrapper != "fx" and options.block_access == "offsets"):
        return program
    program = _finished_variants(program, env)
    small = {number: axis for number, node in enumerate(program.nodes) if (axis := _shared_axis(node)) is not None}
    if not small:
        return program
    finisher = _Finisher(program, env)
    for number, axis in small.items():
        finisher.place(number, axis)
    if not finisher.notes:
        return program
    ranked = sorted(finisher.nodes, key=lambda number: finisher.order.rank[number])
    nodes = tuple(finisher.nodes[number] for number in ranked)
    return replace(program, nodes=nodes, notes=(*program.notes, *finisher.notes))


def _finished_variants(program: Program, env: Env) -> Program:
    """The program with the same done among the kernels of each variant; the program itself if nothing changes."""
    nodes = tuple(_with_finished(node, program, env) if isinstance(node, Kernel) else node for node in program.nodes)
    return program if nodes == program.nodes else replace(program, nodes=nodes)


def _with_finished(kernel: Kernel, program: Program, env: Env) -> Kernel:
    """The kernel with variants whose last programs do the work of small kernels."""
    if all(len(variant.nodes) == 1 for variant in kernel.variants):
        return kernel
    variants: list[Variant] = []
    for variant in kernel.variants:
        buffers = (*program.buffers, *variant.buffers)
        inner = replace(program, nodes=variant.nodes, buffers=buffers, regions=(), notes=())
        nodes = tuple(node for node in finish(inner, env).nodes if isinstance(node, Kernel | Extern))
        variants.append(replace(variant, nodes=nodes))
    return replace(kernel, variants=tuple(variants))


def _is_plain(node: Node) -> bool:
    """Whether a node is a kernel that may be a part of another one."""
    return isinstance(node, Kernel) and node.schedule is not None and not node.schedule.dots and is_base_default(node)


def _shared_axis(node: Node) -> str | None:
    """The one axis whose blocks several programs of a small kernel share; "" if each part is one program; else None."""
    if not isinstance(node, Kernel) or node.schedule is None or not _is_plain(node) or node.schedule.finishing:
        return None
    shared = [
        axis for axis, block, size in _grid(node) if as_int(size) != 1 and not (block > 1 and at_least(block - size, 0))
    ]
    if not shared:
        return ""
    is_join = not node.schedule.parts and any(isinstance(op.attrs, Reduce) for op in node.body.ops)
    return shared[0] if len(shared) == 1 and is_join else None


def _grid(kernel: Kernel) -> list[tuple[str, int, Expr]]:
    """Each axis of which the programs of a kernel take blocks, with the elements in a block, and in all."""
    assert kernel.schedule is not None
    extents = {axis.name: axis.extent for axis in kernel.axes}
    return [(loop.axis, loop.block, extents[loop.axis]) for loop in loops(kernel.schedule.steps) if loop.kind == "grid"]


class _Finisher:
    """Finds a kernel for each small one. `nodes`: by number, less those that are part of another one."""

    def __init__(self, program: Program, env: Env) -> None:
        self.nodes: dict[int, Node] = dict(enumerate(program.nodes))
        edges = [(edge.source, edge.target) for edge in dependencies(program)]
        self.order = AcyclicOrder(len(program.nodes), dict.fromkeys(edges))
        self.makers = {ref: number for number, node in self.nodes.items() for ref in writes(node)}
        self.prices = LaunchPrices(program.real_table(), env.target, program.hints)
        self.notes: list[FusionRefusal | MergedKernel | NodeNote] = []

    def place(self, number: int, axis: str) -> None:
        """Makes a small kernel part of the one before it that makes what it reads, if that is worth it.

        `axis`: whose blocks the programs of the small kernel share; "" if it is one program.
        """
        small = self.nodes[number]
        assert isinstance(small, Kernel)
        before = self.before(number, small)
        if before is None:
            return
        kernel = self.nodes[before]
        assert isinstance(kernel, Kernel)
        blocks = _equal_blocks(kernel, small, axis) if axis else _Blocks("", 0, 1)
        if blocks is None:
            return
        fitted = _with_warps_of(kernel, _for_last(small, {axis: blocks.size}))
        alone = small if axis else fitted
        one, other, apart = (self.prices.launch(each) for each in (kernel, fitted, alone))
        prices = self.prices.finished(one, other, apart, blocks.blocks)
        figures = prices.figures("together", "apart")
        if prices.other <= TIE * prices.this:
            self.nodes[number] = alone
            self.notes.append(FusionRefusal("bundle", kernel.name, small.name, "one launch saves too little", figures))
            return
        assert fitted.schedule is not None
        del self.nodes[number]
        both = [without_variants(kernel), without_variants(fitted)]
        self.nodes[before] = one_kernel(both, finishing=1 + len(fitted.schedule.parts), blocks=blocks.axis)
        self.order.merge(before, number)
        self.makers.update(dict.fromkeys(writes(small), before))
        reason = "the last program of the other kernel does its work"
        self.notes.append(MergedKernel("bundle", small.name, kernel.name, reason, figures))
        text = f"the last of its programs{' for each block' * bool(axis)} does the work of {small.name}"
        self.notes.append(NodeNote("bundle", kernel.name, text, figures))

    def before(self, number: int, small: Kernel) -> int | None:
        """The number of the kernel whose last program may do the work of a small one; None if there is none."""
        found = max(self.sources(small), key=lambda n: self.order.rank[n], default=None)
        if found is None or self.order.node_between(found, number) is not None:
            return None
        kernel = self.nodes[found]
        if not isinstance(kernel, Kernel) or not _is_plain(kernel) or kernel.schedule is None:
            return None
        if kernel.schedule.finishing or not all(at_least(size - 1, 0) for *_, size in _grid(kernel)):
            return None  # the last program does something else, or there may be no program at all
        count = sum(1 for each in (kernel, small) for _ in all_ops(each.body))
        parameters = {ref.storage for each in (kernel, small) for ref in (*reads(each), *writes(each))}
        return None if count > MAX_OPS or len(parameters) > MAX_PARAMETERS else found

    def sources(self, small: Kernel) -> Iterator[int]:
        """The numbers of the nodes that make what a small kernel reads."""
        return (self.makers[ref] for ref in reads(small) if ref in self.makers)


class _Blocks(NamedTuple):
    """The axis of a kernel whose blocks another kernel shares, the elements in a block, and how many there are."""

    axis: str
    size: int
    blocks: int


def _equal_blocks(kernel: Kernel, small: Kernel, shared: str) -> _Blocks | None:
    """The blocks of a kernel whose results the blocks of a small kernel's axis need, each those of one; else None.

    Programs of other blocks still run when a block is finished, so the small kernel must not write what they use.
    """
    if kernel.schedule is None or kernel.schedule.parts or _has_wide_loop(small):
        return None
    written = {ref.storage for ref in writes(small)}
    if not written.isdisjoint(ref.storage for ref in (*reads(kernel), *writes(kernel))):
        return None
    theirs, own = {axis.name: axis for axis in kernel.axes}, next(axis for axis in small.axes if axis.name == shared)
    grid = _grid(kernel)
    for axis, block, size in grid:
        elements = as_int(size)
        if elements is None or as_int(own.extent) != elements or -(-elements // block) > COUNTERS:
            continue
        if all(other == axis or as_int(extent) == 1 or at_least(n - extent, 0) for other, n, extent in grid):
            continue  # each block is one program, which nobody has to wait for
        if blocks_apart(Part(kernel.body, theirs[axis], kernel.axes), Part(small.body, own, small.axes)):
            return _Blocks(axis, block, -(-elements // block))
    return None


def _has_wide_loop(small: Kernel) -> bool:
    """Whether a kernel's loop carries a reduction of several values, as of a variance.

    All programs would have the registers that it takes, and fewer would run at once: with 80 in place of 40, batch
    norms of 64 to 256 channels took 13.4 to 62.9 us on an H200 in place of 12.7 to 61.7, which have one launch more.
    """
    assert small.schedule is not None
    steps = loops(small.schedule.steps)
    return any(len(small.body.ops[p].args) > 1 for loop in steps if loop.kind == "serial" for p in loop.carries)


def _for_last(kernel: Kernel, blocks: Mapping[str, int]) -> Kernel:
    """The kernel as a last program runs it: with other sizes of the blocks of some axes, and no block loaded ahead.

    All programs of the launch would have the shared memory that blocks are loaded to.
    """
    assert kernel.schedule is not None
    steps = edited(with_blocks(kernel.schedule.steps, blocks), lambda loop: (replace(loop, stages=0),))
    return replace(kernel, schedule=replace(kernel.schedule, steps=steps))


def _with_warps_of(kernel: Kernel, small: Kernel) -> Kernel:
    """The kernel `small` with as many threads to a program as `kernel` has."""
    warps = defaults(kernel.choices).get("warps")

    def changed(choice: Choice) -> Choice:
        if choice.id != "warps" or warps is None:
            return choice
        options = choice.options if warps in choice.options else (*choice.options, warps)
        return replace(choice, options=options, default=warps)

    return replace(small, choices=tuple(changed(choice) for choice in small.choices))
