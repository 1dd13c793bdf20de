"""Merges the axes of each kernel of a program that has no schedule yet.

Takes a Program and gives it with merged axes, or the program itself if no axes merge. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.ir.program.nodes import Kernel, Program
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.target import Env


def merge_axes(program: Program, env: Env) -> Program:
    """The program with merged axes in each kernel without a schedule, on any target."""
    del env
    nodes = tuple(
        merge_kernel_axes(node) if isinstance(node, Kernel) and node.schedule is None else node
        for node in program.nodes
    )
    is_same = all(new is old for new, old in zip(nodes, program.nodes, strict=True))
    return program if is_same else replace(program, nodes=nodes)
