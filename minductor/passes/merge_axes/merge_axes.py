"""Merges the axes of each kernel of a program that has no schedule yet, and on a CPU splits axes that indices divide.

Takes a Program and gives it with other axes, or the program itself if they stay. Refuses nothing. On a GPU a tile is
computed at once, whatever its indices are; few axes make its tiles.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.ir.program.nodes import Kernel, Program
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.rewriting.split_axes import split_kernel_axes
from minductor.target import Env


def merge_axes(program: Program, env: Env) -> Program:
    """The program with merged axes in each kernel without a schedule, and on a CPU with split ones."""

    def changed(kernel: Kernel) -> Kernel:
        return merge_kernel_axes(kernel if env.target.is_gpu else split_kernel_axes(kernel))

    nodes = tuple(
        changed(node) if isinstance(node, Kernel) and node.schedule is None else node for node in program.nodes
    )
    is_same = all(new is old for new, old in zip(nodes, program.nodes, strict=True))
    return program if is_same else replace(program, nodes=nodes)
