"""Makes several kernels of one whose reductions would leave most of a GPU idle.

Takes a Program. Gives it with the pieces of each kernel that is cut, with the buffers between these pieces, and with a
note for each cut; the same object if nothing is cut. Refuses nothing: a kernel that cannot be cut stays whole.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.analysis.both_ways import reduced_groups
from minductor.ir.program.nodes import Buffer, Kernel, Node, NodeNote, Program
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.rewriting.online import online
from minductor.passes.rewriting.prune import prune_body
from minductor.passes.split.pieces import cut_kernel
from minductor.passes.split.wanted_cut import wanted_cut
from minductor.passes.split.welford import welford
from minductor.target import Env


def split(program: Program, env: Env) -> Program:
    """The program with the long reductions of a GPU's kernels in parts."""
    if not env.target.is_gpu:
        return program
    table = program.real_table()
    nodes: list[Node] = []
    buffers: list[Buffer] = []
    notes: list[NodeNote] = []
    for node in program.nodes:
        kernel = _simplified(node) if isinstance(node, Kernel) else None
        cut = None if kernel is None else wanted_cut(kernel, table, env.target, program.hints)
        pieces = None if kernel is None or cut is None else cut_kernel(_in_one_pass(kernel), cut, table)
        if pieces is None or cut is None:
            nodes.append(node)
            continue
        nodes += pieces.kernels
        buffers += pieces.buffers
        notes.append(NodeNote("split", pieces.kernels[0].name, cut.reason))
    if not buffers:
        return program
    made = replace(program, nodes=tuple(nodes), buffers=(*program.buffers, *buffers))
    return replace(made, notes=(*program.notes, *notes))


def _simplified(kernel: Kernel) -> Kernel | None:
    """The kernel without dead operations and with merged axes; None if it reduces nothing."""
    pruned = replace(kernel, body=prune_body(kernel.body))
    return merge_kernel_axes(pruned) if reduced_groups(pruned.body) else None


def _in_one_pass(kernel: Kernel) -> Kernel:
    """The kernel with one pass over a row where that computes the results of two."""
    return welford(online(kernel, [axis.name for axis in kernel.axes]))
