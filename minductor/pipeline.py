"""The stages of the compiler, in order: the only place that knows the order.

Takes nothing. Gives PIPELINE, a tuple of `Stage`: name, function, and what the function takes and gives; GRAPH_PASSES,
the rows that `lower` begins with; and LOWERING_STEPS, the rows that it consists of. The driver imports a function when
it runs. `minductor/driver.py` walks the stages, backends add passes behind them.

>>> [stage.name for stage in PIPELINE][:3]
['lower', 'remove_dead_code', 'inline']
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

# A function, or "module:function" for one that is imported when it is used.
Part = str | Callable[..., Any]


class Stage(NamedTuple):
    """One step of the compiler: `function(value, env)` gives the value of the next stage.

    `takes` and `gives` are "graph", "program" or "plan"; a step also has "lowering", a program that is half made. A
    backend's pass is a stage too: `after` names the stage of PIPELINE behind which it runs, and whose verifier rules
    its result has to keep. `graph_passes` are rows that run before `function`, each on what the one before it gives; a
    trace shows those that change the graph. `steps` are what `function` does, one after the other: the driver runs them
    in its stead, and a trace shows those that add nodes.
    """

    name: str
    function: Part
    takes: str
    gives: str
    after: str = ""
    graph_passes: tuple[Stage, ...] = ()
    steps: tuple[Stage, ...] = ()


GRAPH_PASSES = (
    Stage("move_scalars", "minductor.frontend.graph_passes.move_scalars:move_scalars", "graph", "graph"),
    Stage(
        "inline_control_deps",
        "minductor.frontend.graph_passes.inline_control_deps:inline_control_deps",
        "graph",
        "graph",
    ),
    Stage("fold_copies", "minductor.frontend.graph_passes.fold_copies:fold_copies", "graph", "graph"),
    Stage("share_windows", "minductor.frontend.graph_passes.share_windows:share_windows", "graph", "graph"),
    Stage("select_real_imag", "minductor.frontend.graph_passes.select_real_imag:select_real_imag", "graph", "graph"),
    Stage(
        "share_row_interpolation",
        "minductor.frontend.graph_passes.share_row_interpolation:share_row_interpolation",
        "graph",
        "graph",
    ),
    Stage("eliminate_dead_code", "minductor.frontend.graph_passes.dead_code:eliminate_dead_code", "graph", "graph"),
)
LOWERING_STEPS = (
    Stage("lower_nodes", "minductor.frontend.lower.lower:lower_nodes", "graph", "lowering"),
    Stage("deliver_outputs", "minductor.frontend.lower.deliver_outputs:deliver_outputs", "lowering", "lowering"),
    Stage("define_symbols", "minductor.frontend.lower.symbol_definitions:define_symbols", "lowering", "program"),
)
BUNDLE_STEPS = (
    Stage("bundle_equal", "minductor.passes.bundle.bundle:bundle_equal", "program", "program"),
    Stage("finish", "minductor.passes.bundle.finish:finish", "program", "program"),
    Stage("share_out", "minductor.passes.bundle.share_out:share_out", "program", "program"),
)
PIPELINE = (
    Stage(
        "lower",
        "minductor.frontend.lower.lower:lower",
        "graph",
        "program",
        graph_passes=GRAPH_PASSES,
        steps=LOWERING_STEPS,
    ),
    Stage(
        "remove_dead_code", "minductor.passes.remove_dead_code.remove_dead_code:remove_dead_code", "program", "program"
    ),
    Stage("inline", "minductor.passes.inline.inline:inline", "program", "program"),
    Stage("split_concat", "minductor.passes.split_concat.split_concat:split_concat", "program", "program"),
    Stage("elide_copies", "minductor.passes.elide_copies.elide_copies:elide_copies", "program", "program"),
    Stage("fuse", "minductor.passes.fuse.fuse:fuse", "program", "program"),
    Stage("loop_order", "minductor.passes.loop_order.loop_order:loop_order", "program", "program"),
    Stage("split", "minductor.passes.split.split:split", "program", "program"),
    Stage("order", "minductor.passes.order.order:order", "program", "program"),
    Stage("merge_axes", "minductor.passes.merge_axes.merge_axes:merge_axes", "program", "program"),
    Stage("schedule", "minductor.passes.schedule.schedule:schedule", "program", "program"),
    Stage("approximate", "minductor.passes.approximate.approximate:approximate", "program", "program"),
    Stage("bundle", "minductor.passes.bundle.bundle:bundle", "program", "program", steps=BUNDLE_STEPS),
    Stage("access", "minductor.passes.access.access:access", "program", "program"),
    Stage("partition", "minductor.passes.partition.partition:partition", "program", "program"),
    Stage("memory", "minductor.passes.memory.memory:memory", "program", "plan"),
)


def resolve(part: Part) -> Callable[..., Any]:
    """The function that `part` names, imported now.

    >>> resolve("math:floor")(2.5)
    2
    """
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(importlib.import_module(module), name)
