"""A kernel while its loops are chosen: the draft, the steps that edit it, and recipes, which are named tuples of steps.

Takes a kernel whose axes are merged, the buffers and the target. Gives a `Draft` without loops. A step is a function of
a draft: it gives the edited draft, or None where it is not legal. `place.py` and `gpu_place.py` make the loop nest of a
finished draft, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from minductor.analysis.touch import Touches
from minductor.core.expressions.expr import Expr
from minductor.core.expressions.hints import Hints
from minductor.ir.program.dots import Dots
from minductor.ir.program.loops import LoopKind
from minductor.ir.program.nodes import Buffer, Kernel
from minductor.target import Target


class Level(NamedTuple):
    """One loop. An axis with blocks or parts has a second level further in, which runs over one block.

    `extent`: of the axis; None if only the call knows it. `block`: elements of a block. `parts`: number of parts.
    `aligned`, `reference`, `stages`, `most`: as those of a Loop.
    """

    axis: str
    kind: LoopKind
    extent: int | None
    block: int = 0
    parts: int = 0
    is_partial: bool = False  # each run of the loop has sums of its own, which are then added to those around it
    has_lanes: bool = False  # a serial loop whose reductions have as many accumulators as along a vector loop
    is_shared: bool = False  # values that the loop would compute again are kept in rows even if they cost little
    aligned: int = 0
    reference: int = 0
    stages: int = 0
    most: Expr | None = None

    @property
    def is_blocked(self) -> bool:
        return self.block > 0 or self.parts > 0


class Staged(NamedTuple):
    """Loads and stores by way of staging buffers: contiguous along the axis `crossing`, strided along `vector`."""

    crossing: str
    vector: str
    loads: frozenset[int]
    stores: frozenset[int] = frozenset()


class Draft(NamedTuple):
    """A kernel and the loops that are chosen for it so far.

    `vector`: the axis along which most bytes are contiguous. `joined`: the axes that are reduced or scanned, and
    `kept`: the others, each with the largest stride first. `levels`: the loops, outermost first. `recipe`: the name of
    the recipe whose steps edited the draft.
    """

    kernel: Kernel
    touches: Touches
    target: Target
    vector: str | None
    joined: tuple[str, ...]
    kept: tuple[str, ...]
    levels: tuple[Level, ...] = ()
    recipe: str = ""
    # On a CPU: axes whose order matters; loads that are staged; whether rows and columns are reduced in one pass.
    ordered: frozenset[str] = frozenset()
    staged: Staged | None = None
    is_both_ways: bool = False
    gathers: frozenset[int] = frozenset()  # loads at loaded places that a scalar loop makes before the vector loop
    phased: str = ""  # the axis of the rows of which a block runs through each phase before the next one
    is_in_strips: bool = False  # whether functions that wait for each other run over strips of the vector loop
    # On a GPU: matrix products; the warps of a program, or 0 if the size of the tile decides; the most registers of a
    # thread, or 0 if the compiler decides; for each access the largest block of each axis with which it is a block of
    # memory; and the largest blocks that the steps may choose.
    dots: Dots | None = None
    warps: int = 0
    registers: int = 0
    boxes: tuple[Mapping[str, int], ...] = ()
    limits: Mapping[str, int] = {}  # never changed

    @property
    def is_outer(self) -> bool:
        """Whether memory is contiguous along an axis that is not reduced, as in a sum of columns."""
        return bool(self.joined) and self.vector in self.kept

    @property
    def blocks(self) -> dict[str, int]:
        """By axis the elements of its block."""
        return {level.axis: level.block for level in self.levels}

    def level(self, name: str, kind: LoopKind, *, block: int = 0, parts: int = 0) -> Level:
        """A loop over an axis. If its extent is known, `parts` become blocks of equal size."""
        extent = self.touches.extents[name]
        if parts and extent is not None:
            block, parts = max(1, -(-extent // parts)), 0
        return Level(name, kind, extent, block, parts)

    def size(self, *names: str) -> int:
        """The estimated number of points over these axes."""
        return self.touches.size(list(names))


Step: TypeAlias = Callable[[Draft], "Draft | None"]


class Recipe(NamedTuple):
    """A way to choose the loops of a kernel: steps that edit its draft, one after the other."""

    name: str
    steps: tuple[Step, ...]

    def apply(self, draft: Draft) -> Draft | None:
        """The draft after all steps; None if one of them is not legal."""
        made: Draft | None = draft._replace(recipe=self.name)
        for step in self.steps:
            made = None if made is None else step(made)
        return made


def legal_drafts(recipes: Sequence[Recipe], apply: Callable[[Recipe], Draft | None], only: str) -> dict[str, Draft]:
    """By name the drafts of the recipes that are legal, as `apply` makes them; only that of `only`, if it is legal."""
    for recipe in recipes:
        if recipe.name == only and (draft := apply(recipe)) is not None:
            return {only: draft}
    made = {recipe.name: apply(recipe) for recipe in recipes}
    return {name: draft for name, draft in made.items() if draft is not None}


def blank(kernel: Kernel, buffers: dict[str, Buffer], target: Target, hints: Hints) -> Draft:
    """The draft of a kernel before any step."""
    touches = Touches(kernel, buffers, hints)
    joined = touches.by_stride([n for n in touches.axes if n in touches.reduced or n in touches.scanned])
    kept = touches.by_stride([n for n in touches.axes if n not in joined])
    return Draft(kernel, touches, target, touches.vector_axis(), tuple(joined), tuple(kept))


def power_of_two(count: int) -> int:
    """The smallest power of two that is at least `count`.

    >>> [power_of_two(n) for n in (0, 1, 5, 64)]
    [1, 1, 8, 64]
    """
    return 1 << max(0, count - 1).bit_length()
