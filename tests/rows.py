"""Runs rows of the pipeline on a value, each with its graph passes, as the driver does.

Takes a captured graph or a Program, and the rows' names. Gives what the last row gives. Refuses (ValueError) names that
PIPELINE does not have. Regions of a program stay as they are.
"""

from __future__ import annotations

from typing import Any

from minductor.frontend.capture.captured_graph import Graph
from minductor.ir.program.nodes import Program
from minductor.pipeline import PIPELINE, resolve
from minductor.target import Env


def run_rows(value: Any, env: Env, first: str, last: str) -> Any:
    """What the rows of PIPELINE from `first` to `last` make of a value."""
    names = [stage.name for stage in PIPELINE]
    for stage in PIPELINE[names.index(first) : names.index(last) + 1]:
        for each in (*stage.graph_passes, stage):
            value = resolve(each.function)(value, env)
    return value


def lower(graph: Graph, env: Env) -> Program:
    """The program of a captured graph, behind the graph passes."""
    return run_rows(graph, env, "lower", "lower")


def inline(program: Program, env: Env) -> Program:
    """The program of `lower` behind all rows before `fuse`."""
    return run_rows(program, env, "remove_dead_code", "elide_copies")


def schedule(program: Program, env: Env) -> Program:
    """The program of an earlier row with merged axes and schedules."""
    return run_rows(program, env, "merge_axes", "schedule")
