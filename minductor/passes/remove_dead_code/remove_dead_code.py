"""Removes dead ops from the kernels of a program, then dead nodes and buffers.

Takes a Program and gives it without them, or the program itself if nothing is dead. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.ir.program.nodes import Kernel, Node, Program
from minductor.passes.rewriting.prune import live_nodes, prune_body, with_nodes
from minductor.target import Env


def remove_dead_code(program: Program, env: Env) -> Program:
    """The program without dead ops, nodes and buffers, on any target."""
    del env
    nodes = tuple([_without_dead_ops(node) for node in program.nodes])
    if any(a is not b for a, b in zip(nodes, program.nodes, strict=True)):
        program = with_nodes(program, nodes)
    live = live_nodes(program)  # after dead ops are gone, since a buffer that only those load is dead as well
    return with_nodes(program, live) if len(live) < len(program.nodes) else program


def _without_dead_ops(node: Node) -> Node:
    """The node without dead ops, if it is a kernel."""
    if not isinstance(node, Kernel) or (body := prune_body(node.body)) is node.body:
        return node
    return replace(node, body=body)
