"""Fuses kernels that inlining left apart: producer and consumer, readers of the same data, neighbouring reductions.

Takes a program whose nodes stand in an order that respects their dependencies. Gives a program with fewer kernels, in
such an order. Refuses, with a `FusionRefusal` for each pair that it compared, what `GreedyFusion` refuses.
"""

from __future__ import annotations

from minductor.ir.program.nodes import Program
from minductor.passes.rewriting.greedy_fusion import GreedyFusion
from minductor.target import Env


def fuse(program: Program, env: Env) -> Program:
    """The program after one round of fusion; the program itself if `options.fuse` is off or nothing is fused."""
    return GreedyFusion(program, env, "fuse").fused() if env.options.fuse else program
