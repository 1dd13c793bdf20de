"""Applies the table of graph rewrites at each level of a compile, and freezes inference graphs.

Takes torch's graphs on their way through the driver, and the rows of the user's and of backends. Changes the graphs.
Gives notes of what was applied and what nearly was, which travel in the metadata of the ATen graph module; and the call
of a frozen graph. `ExportRewrites` does the same for programs of torch.export. Refuses what `frontend/rewrites/`
refuses, and frozen graphs whose gradients are on (FrozenTraining).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from minductor.core.errors import FrozenTraining

if TYPE_CHECKING:
    from minductor.driver_tasks.eager_fallback import Call
    from minductor.frontend.rewrites.rewrite_row import Level, Rewrite, RewriteNote
    from minductor.ir.report.report import Report
    from minductor.target import Env

REWRITES = "minductor_rewrites"  # the key in an ATen graph module's metadata


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What rewrites did to one ATen graph: notes, seconds, and the bytes of its folded weights."""

    notes: tuple[RewriteNote, ...] = ()
    seconds: float = 0.0
    frozen_bytes: int = 0
    is_complete: bool = False  # whether rewrites of the level "aten" were applied too

    def counts(self) -> dict[str, int]:
        """How many rewrites were applied, how many were not, and the folded bytes if there are any."""
        applied = sum(note.is_applied for note in self.notes)
        folded = {"frozen_bytes": self.frozen_bytes} if self.frozen_bytes else {}
        return {"applied": applied, "not": len(self.notes) - applied, **folded}


@dataclass(slots=True)
class GraphRewrites:
    """The rewrites of one compile of one of Dynamo's graphs.

    Args:
        own: rows of the user's and of a backend.
        env: the options, and the target that the user named.
    """

    own: Sequence[Rewrite]
    env: Env
    names: Sequence[str] = ()  # the names of the inputs of Dynamo's graph, for people
    of_dynamo: Rewritten = field(default_factory=Rewritten)
    of_joint: Rewritten = field(default_factory=Rewritten)

    def rewrite_dynamo(self, gm: Any) -> None:
        """Rewrites Dynamo's graph and the graphs inside it, before autograd sees them."""
        from minductor.frontend.capture.user_places import input_paths

        graph = dynamo_graph(gm)
        self.names = input_paths(graph) if self.env.options.freeze and graph is gm else ()
        self.of_dynamo = apply_level(graph, "torch", self.env, self.own)

    def rewrite_joint(self, gm: Any) -> None:
        """Rewrites a joint graph of training, before it is split."""
        self.of_joint = self._apply(gm, "joint")

    def compile(self, gm: Any, role: str, compile_graph: Callable[[Any], Call]) -> Call:
        """The call of a forward or inference graph of AOTAutograd's.

        Args:
            gm: the ATen graph; what was done to it is noted in its metadata.
            role: "forward" or "inference".
            compile_graph: compiles the graph, or what is left of it once it is frozen.

        Raises:
            FrozenTraining: the options freeze the graph, and gradients are on.
        """
        gm.meta[REWRITES] = _joined(self.of_dynamo, self.of_joint)
        if not self.env.options.freeze:
            return compile_graph(gm)
        if role == "forward":
            raise FrozenTraining()
        return self._compile_frozen(gm, compile_graph)

    def _compile_frozen(self, gm: Any, compile_graph: Callable[[Any], Call]) -> Call:
        """The call of an inference graph whose weights are constants."""
        from minductor.frontend.freezing.frozen_nodes import frozen_nodes
        from minductor.frontend.freezing.split_frozen_graph import split_frozen_graph
        from minductor.runtime.launch.frozen_call import FrozenCall

        frozen = frozen_nodes(gm)
        done = _joined(self.of_dynamo, self._apply(gm, "aten", frozen), self._apply(gm, "frozen", frozen))
        fold = split_frozen_graph(gm, frozen, self.names)
        gm.meta[REWRITES] = replace(done, frozen_bytes=fold.nbytes, is_complete=True)
        call = compile_graph(gm)
        return FrozenCall(call, fold.gm, fold.weights) if fold.weights or fold.count else call

    def _apply(self, gm: Any, level: Level, frozen: set[Any] | None = None) -> Rewritten:
        return apply_level(gm, level, self.env, self.own, frozen)


@dataclass(slots=True)
class ExportRewrites:
    """The rewrites of one exported program.

    Args:
        own: rows of the user's and of a backend.
        env: the options, and the target that the user named.
        folds: whether what depends on weights alone is computed now. Rows that pack weights are left out.
    """

    own: Sequence[Rewrite]
    env: Env
    folds: bool
    of_program: Rewritten = field(default_factory=Rewritten)

    def rewrite_program(self, gm: Any) -> None:
        """Rewrites the graph of torch.export, which has composite operators."""
        self.of_program = apply_level(gm, "torch", self.env, self.own, is_exported=True)

    def rewrite_aten(self, gm: Any) -> Rewritten:
        """Rewrites the decomposed graph, which holds its weights. Gives what was done to both graphs."""
        if not self.folds:
            return _joined(self.of_program, apply_level(gm, "aten", self.env, self.own))
        from minductor.frontend.freezing.frozen_nodes import frozen_nodes
        from minductor.frontend.freezing.split_frozen_graph import fold_held_weights

        frozen = frozen_nodes(gm)
        levels: Sequence[Level] = ("aten", "frozen")
        done = [apply_level(gm, level, self.env, self.own, frozen, is_exported=True) for level in levels]
        nbytes = fold_held_weights(gm, frozen)
        return replace(_joined(self.of_program, *done), frozen_bytes=nbytes)


def apply_level(
    gm: Any,
    level: Level,
    env: Env,
    own: Sequence[Rewrite],
    frozen: set[Any] | None = None,
    *,
    is_exported: bool = False,
) -> Rewritten:
    """Applies the rows of one level to a graph module, in place; those of level "torch" to the graphs inside it too.

    Args:
        gm: the graph module.
        level: the level.
        env: the options, and the target that the user named.
        own: rows of the user's and of a backend, tried behind ours.
        frozen: the nodes that have the same value at each call.
        is_exported: whether the graph becomes a file: rows that pack weights, and graphs inside it, are left out.
    """
    from minductor.frontend.rewrites.rewrite_table import selected

    start = time.perf_counter()
    rows = [row for row in selected(env.options.rewrites, own)[level] if not (is_exported and row.packs)]
    if not rows:
        return Rewritten()
    from minductor.driver_tasks.placement import placed_for_rewrites
    from minductor.frontend.rewrites.apply_rewrites import apply_rewrites
    from minductor.frontend.rewrites.graph_modes import parts_of

    env = placed_for_rewrites(gm, env, is_exported=is_exported)
    parts = list(parts_of(gm)) if level == "torch" and not is_exported else [(gm, None)]
    apply = partial(apply_rewrites, rows=rows, env=env, frozen=frozen, own=own)
    notes = [note for part, modes in parts for note in apply(part, around=modes)]
    return Rewritten(tuple(dict.fromkeys(notes)), time.perf_counter() - start)


def rewrite_aten(gm: Any, env: Env, own: Sequence[Rewrite]) -> Rewritten:
    """What rewrites did to an ATen graph. Those of level "aten" are applied now, unless the graph was frozen."""
    done: Rewritten = gm.meta.get(REWRITES) or Rewritten()
    return done if done.is_complete else _joined(done, apply_level(gm, "aten", env, own))


def trace_rewrites(trace: Any, role: str, done: Rewritten) -> None:
    """Tells a Trace of the stage "rewrites", if a rewrite was applied or nearly was, or if anything was folded."""
    if done.notes or done.frozen_bytes:
        notes = list(map(str, done.notes))
        trace.stage(role, "rewrites", done.seconds, done.counts(), notes, None, lambda: "\n".join(notes))


def with_rewrites(report: Report, done: Rewritten) -> Report:
    """The report with what this process knows of rewrites: an entry of the store serves several programs."""
    rows = tuple((note.rewrite, note.node, note.place, note.why) for note in done.notes)
    return replace(report, rewrites=rows, frozen_bytes=done.frozen_bytes)


def dynamo_graph(gm: Any) -> Any:
    """The graph module in what Dynamo hands over: compiled autograd's graphs come in a module that flattens inputs."""
    from torch._dynamo.utils import GmWrapper

    return gm.gm if isinstance(gm, GmWrapper) else gm


def devices_of_inputs(gm: Any) -> Iterator[str]:
    """The types of the devices of a graph's inputs, such as "cpu", each as it is found."""
    for node in dynamo_graph(gm).graph.find_nodes(op="placeholder"):
        value = node.meta.get("example_value", node.meta.get("val"))
        if (device := getattr(value, "device", None)) is not None:
            yield device.type


def _joined(*parts: Rewritten) -> Rewritten:
    notes = tuple(note for part in parts for note in part.notes)
    return Rewritten(notes, sum(part.seconds for part in parts), max(part.frozen_bytes for part in parts))
