"""The stage: a loop nest for every kernel, made by the recipe that is estimated to be the fastest.

Takes a Program whose axes are merged. Gives it with a Schedule on each Kernel, and notes that tell the prices of the
recipes. A kernel whose variant is chosen later, by measuring or by the sizes of a call, gets several (`ways.py`).
Refuses nothing: a variant that an option forces and that a kernel does not have is a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from minductor.core.expressions.hints import Hints
from minductor.cost.but_for_names import but_for_names
from minductor.cost.kernel_seconds import fastest
from minductor.heuristics.features import features_of
from minductor.heuristics.learned import learned
from minductor.ir.program.dots import find_dots
from minductor.ir.program.nodes import Buffer, Kernel, Node, NodeNote, Program, Variant
from minductor.ir.program.variant_note import VariantNote
from minductor.ir.program.variants import variant_choice
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.rewriting.size_points import is_measured, size_points
from minductor.passes.schedule import cpu_place, cpu_recipes
from minductor.passes.schedule.ways import (
    EXTERN,
    NATIVE,
    Notes,
    Way,
    by_measure,
    by_size,
    named_like,
    of_equal_length,
)
from minductor.target import Env, Target


def schedule(program: Program, env: Env) -> Program:
    """The program with a schedule on each kernel; a kernel that has a schedule already keeps it."""
    scheduler = Scheduler(program.real_table(), env, program.hints)
    nodes: list[Node] = []
    buffers: list[Buffer] = []
    for node in program.nodes:
        way = scheduler.way(node) if isinstance(node, Kernel) and node.schedule is None else Way((node,))
        nodes += way.nodes
        buffers += way.buffers
    notes = (*program.notes, *scheduler.notes, *_without_effect(program, env))
    if tuple(nodes) == program.nodes:
        return program if len(notes) == len(program.notes) else replace(program, notes=notes)
    return replace(program, nodes=tuple(nodes), buffers=(*program.buffers, *buffers), notes=notes)


def schedule_kernel(kernel: Kernel, buffers: dict[str, Buffer], env: Env, notes: Notes, hints: Hints) -> Kernel:
    """A kernel of merged axes with its schedule. `notes` takes what each recipe would cost."""
    scheduler = Scheduler(buffers, env, hints, notes)
    return scheduler.fastest(kernel, scheduler.recipes(kernel, hints), hints)


class Scheduler:
    """Schedules the kernels of one program. `notes`: what each recipe would cost."""

    def __init__(self, buffers: Mapping[str, Buffer], env: Env, hints: Hints, notes: Notes | None = None) -> None:
        self.buffers, self.env, self.hints = dict(buffers), env, hints
        self.notes: Notes = [] if notes is None else notes
        # by what decides it of a kernel, the recipe of its schedule, and the notes about that
        self.known: dict[object, tuple[str, tuple[NodeNote | VariantNote, ...]]] = {}

    def way(self, kernel: Kernel) -> Way:
        """What stands in the place of a kernel: the kernel with its schedule and variants, or a forced variant."""
        forced = self.env.options.variant_of(kernel.name)
        bare = replace(kernel, variants=(), choices=()) if kernel.variants else kernel
        if forced:
            return self.forced(forced, kernel, bare)
        if (points := size_points(kernel, self.env, self.hints)) is not None:
            ways = {point: self.ways(kernel, bare, hints, with_library=False) for point, hints in points.hints.items()}
            return by_size(bare, ways, points, self.notes)
        if self.env.options.autotune and self.env.target.has_variants:
            ways = self.ways(kernel, bare, self.hints, with_library=True)
            usual = self.usual(kernel, ways)
            way = by_measure(bare, ways, usual, self.notes, is_measured=is_measured(kernel, self.env))
            return self.with_needed_launches(way) if self.env.target.is_gpu else way
        return Way((self.usual_schedule(bare),))

    def usual_schedule(self, kernel: Kernel) -> Kernel:
        """The fastest schedule of a kernel; that of a kernel which differs in names only has the same recipe."""
        facts = but_for_names(kernel, self.buffers)
        if facts is None:
            return self.fastest(kernel, self.recipes(kernel, self.hints), self.hints)
        key = facts[0], tuple(self.buffers[storage].stride for storage in facts[1])
        if key in self.known:
            recipe, notes = self.known[key]
            self.notes += [_about(kernel.name, note) for note in notes]
            return self.recipes(kernel, self.hints, only=recipe)[recipe]
        start = len(self.notes)
        made = self.fastest(kernel, self.recipes(kernel, self.hints), self.hints)
        assert made.schedule is not None
        self.known[key] = made.schedule.recipe, tuple(self.notes[start:])
        return made

    @staticmethod
    def usual(kernel: Kernel, ways: Mapping[str, Way]) -> str:
        """The name of the way that is taken without tuning: the library's, what `split` decided, or the fastest."""
        taken = str(variant_choice(kernel).default) if kernel.variants else ""
        if EXTERN in ways or taken in ways:
            return EXTERN if EXTERN in ways else taken
        own = {name: way.price for name, way in ways.items() if name not in {each.name for each in kernel.variants}}
        return fastest(own) if len(own) > 1 else next(iter(own))

    def with_needed_launches(self, way: Way) -> Way:
        """The way without launches that need not be measured."""
        from minductor.cost.seconds import seconds
        from minductor.passes.schedule.needed_launches import with_needed_launches

        kernels = [node for node in way.nodes if isinstance(node, Kernel)]
        scratch = (*way.buffers, *(b for kernel in kernels for variant in kernel.variants for b in variant.buffers))
        table = self.buffers | {buffer.name: buffer for buffer in scratch}
        target, hints = self.env.target, self.hints
        return way._replace(
            nodes=with_needed_launches(way.nodes, lambda kernel: seconds(kernel, table, target, hints).seconds)
        )

    def forced(self, name: str, kernel: Kernel, bare: Kernel) -> Way:
        """The variant of this name; the fastest way with a note if the kernel has no such variant."""
        if name == EXTERN and (library := self.library(bare, self.hints)) is not None:
            self.notes.append(VariantNote("schedule", kernel.name, name, "option", (name,)))
            return Way(library.nodes, library.buffers)
        recipes = self.recipes(bare, self.hints, only=name)
        if name in recipes:
            self.notes.append(VariantNote("schedule", kernel.name, name, "option", (name,)))
            return Way((recipes[name],))
        others = [variant.name for variant in kernel.variants]
        is_met = (name == NATIVE and find_dots(bare) is not None) or name in ("whole", "cut")  # `split` has done those
        if not is_met:
            legal = ", ".join([*recipes, *others])
            text = f"the variant {name} is not legal here; legal are: {legal}"
            self.notes.append(NodeNote("schedule", kernel.name, text))
        return Way((self.fastest(bare, recipes, self.hints),))

    def ways(self, kernel: Kernel, bare: Kernel, hints: Hints, *, with_library: bool) -> dict[str, Way]:
        """By name each way to compute what a kernel computes, the plainest first, with prices where they are known."""
        recipes = self.recipes(bare, hints)
        prices: Mapping[str, Sequence[float]] = {}
        if len(recipes) > 1 or kernel.variants:
            prices = self.prices(recipes, hints)
        found = {name: Way((made,), (), tuple(prices.get(name, ()))) for name, made in recipes.items()}
        for variant in kernel.variants:
            found[variant.name] = self.pieces(variant, hints)
        library = self.library(bare, hints) if with_library else None
        if library is not None:
            found = {EXTERN: Way(library.nodes, library.buffers), **named_like(found, NATIVE)}
        return found

    def pieces(self, variant: Variant, hints: Hints) -> Way:
        """A variant of several kernels, each by its fastest recipe, with the price of all."""
        inner = Scheduler(self.buffers | {b.name: b for b in variant.buffers}, self.env, hints, [])
        nodes: list[Kernel] = []
        prices: dict[str, tuple[float, ...]] = {}
        for node in variant.nodes:
            assert isinstance(node, Kernel)
            kernel = merge_kernel_axes(node)
            recipes = inner.recipes(kernel, hints)
            each = inner.prices(recipes, hints)
            taken = fastest(each)
            nodes.append(recipes[taken])
            prices[kernel.name] = tuple(each[taken])
        together = map(sum, zip(*of_equal_length(prices).values(), strict=True))
        return Way(tuple(nodes), variant.buffers, tuple(together))

    def library(self, kernel: Kernel, hints: Hints) -> Variant | None:
        """The variant that calls the library for the matrix products of a kernel, on a GPU; None without products."""
        if not self.env.target.is_gpu or self.env.options.matmul != "auto":
            return None
        from minductor.passes.schedule.by_library import by_library

        dots = find_dots(kernel)
        variant = None if dots is None else by_library(kernel, dots, self.buffers)
        if variant is None:
            return None
        inner = Scheduler(self.buffers | {b.name: b for b in variant.buffers}, self.env, hints, self.notes)
        nodes = (
            inner.fastest(merged, inner.recipes(merged, hints), hints)
            if isinstance(node, Kernel) and (merged := merge_kernel_axes(node))
            else node
            for node in variant.nodes
        )
        return replace(variant, nodes=tuple(nodes))

    def recipes(self, kernel: Kernel, hints: Hints, only: str = "") -> dict[str, Kernel]:
        """By the name of its recipe each legal schedule of a kernel; only that of a recipe `only`, if it is legal."""
        if not self.env.target.is_gpu:
            drafts = cpu_recipes.drafts(kernel, self.buffers, self.env.target, hints, only)
            return {name: cpu_place.place(draft) for name, draft in drafts.items()}
        from minductor.passes.schedule import gpu_place, gpu_recipes  # a first call for a CPU does not wait for them

        drafts = gpu_recipes.drafts(kernel, self.buffers, self.env, hints, only)
        return {name: gpu_place.place(draft) for name, draft in drafts.items()}

    def fastest(self, kernel: Kernel, made: Mapping[str, Kernel], hints: Hints) -> Kernel:
        """The schedule of a kernel that was learned to be the fastest, or else is estimated to be.

        `made`: by the names of their recipes.
        """
        if len(made) == 1:
            return next(iter(made.values()))
        features = partial(features_of, next(iter(made.values())), self.buffers, hints)
        answer = learned("rows", made, features, self.env)
        if answer is not None and answer.option:
            self.notes.append(VariantNote("schedule", kernel.name, answer.option, "learned", tuple(made), answer.note))
            return made[answer.option]
        if answer is not None:
            self.notes.append(NodeNote("schedule", kernel.name, answer.note))
        prices = self.prices(made, hints)
        taken = fastest(prices)
        target = self.env.target
        is_guess = target.is_gpu and target.machine is None
        as_on = "; as on an H200, since the target states no numbers of its machine" if is_guess else ""
        figures = price_list(prices, taken) + as_on
        known = tuple((name, tuple(each)) for name, each in prices.items())
        self.notes.append(VariantNote("schedule", kernel.name, taken, "cost", tuple(prices), figures, known))
        return made[taken]

    def prices(self, made: Mapping[str, Kernel], hints: Hints) -> Mapping[str, Sequence[float]]:
        """By recipe the seconds of a kernel; on a CPU the seconds with each number of threads."""
        target: Target = self.env.target
        if target.is_gpu:
            from minductor.cost.seconds import seconds

            return {name: (seconds(kernel, self.buffers, target, hints).seconds,) for name, kernel in made.items()}
        from minductor.cost.cpu_seconds import cpu_seconds  # a program without a choice does not wait for it

        # a program for CPUs has no hints of its own: those are sizes that an option names
        costs = cpu_seconds(made, self.buffers, target.cpu, hints=hints)
        return {name: tuple(cost.seconds for cost in each) for name, each in costs.items()}


def _about(kernel: str, note: NodeNote | VariantNote) -> NodeNote | VariantNote:
    """The note as one about the kernel of this name."""
    return replace(note, subject=kernel) if isinstance(note, NodeNote) else replace(note, kernel=kernel)


def _without_effect(program: Program, env: Env) -> list[NodeNote]:
    """A note for each name in `variant` and `size_hints` that nothing has; another for hints without symbols."""
    notes: list[NodeNote] = []
    hints, sizes = env.options.size_hints, [symbol.name for symbol in program.symbols]
    if hints and not sizes:
        text = "size_hints have no effect, since no size of this graph is symbolic"
        notes.append(NodeNote("schedule", program.name, text))
    elif hints and not isinstance(hints[0], int):
        text = f"the option size_hints names this size, and the sizes are: {', '.join(sizes)}"
        notes += [NodeNote("schedule", name, text) for name, _ in hints if name not in sizes]
    if not isinstance(env.options.variant, str):
        known = [node.name for node in program.nodes if isinstance(node, Kernel)]
        text = f"the option variant names this kernel, and the kernels are: {', '.join(known)}"
        notes += [NodeNote("schedule", name, text) for name, _ in env.options.variant if name not in known]
    return notes


def price_list(prices: Mapping[str, Sequence[float]], taken: str) -> str:
    """The prices as text, the recipe that is taken first; a second price is that with sixteen threads.

    >>> price_list({"looped": (3.52e-4,), "persistent8": (2.0e-4,)}, "persistent8")
    'persistent8 200 us; looped 352 us'
    >>> price_list({"rows": (2.01e-5, 1.93e-5), "rows_in_parts": (2.1e-5, 6.5e-6)}, "rows_in_parts")
    'rows_in_parts 21 us, 6.5 us in parallel; rows 20.1 us, 19.3 us in parallel'
    """
    names = [taken, *(name for name in prices if name != taken)]
    words = ("", " in parallel")
    return "; ".join(
        f"{name} " + ", ".join(f"{price * 1e6:.3g} us{word}" for price, word in zip(prices[name], words, strict=False))
        for name in names
    )
