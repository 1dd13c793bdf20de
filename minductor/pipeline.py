"""The stages of the compiler, in order: the only place that knows the order.

Takes nothing. Gives PIPELINE, a tuple of `Stage`: name, function, and what the function takes and gives. The driver
imports a stage's function when it runs. `minductor/driver.py` walks the stages, backends add passes behind them.

>>> [stage.name for stage in PIPELINE][:3]
['lower', 'inline', 'fuse']
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

# A function, or "module:function" for one that is imported when it is used.
Part = str | Callable[..., Any]


class Stage(NamedTuple):
    """One step of the compiler: `function(value, env)` gives the value of the next stage.

    `takes` and `gives` are "graph", "program" or "plan". A backend's pass is a stage too: `after` names the stage of
    PIPELINE behind which it runs, and whose verifier rules its result has to keep.
    """

    name: str
    function: Part
    takes: str
    gives: str
    after: str = ""


PIPELINE = (
    Stage("lower", "minductor.frontend.lower.lower:lower", "graph", "program"),
    Stage("inline", "minductor.passes.inline.inline:inline", "program", "program"),
    Stage("fuse", "minductor.passes.fuse.fuse:fuse", "program", "program"),
    Stage("loop_order", "minductor.passes.loop_order.loop_order:loop_order", "program", "program"),
    Stage("order", "minductor.passes.order.order:order", "program", "program"),
    Stage("schedule", "minductor.passes.schedule.schedule:schedule", "program", "program"),
    Stage("bundle", "minductor.passes.bundle.bundle:bundle", "program", "program"),
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
