"""The stage: a loop nest for every kernel, made by the recipe that is estimated to be the fastest.

Takes a Program whose axes are merged. Gives it with a Schedule on each Kernel, and notes that tell the prices of the
recipes. Refuses nothing: a recipe that an option forces and that is not legal for a kernel is a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from minductor.core.expressions.hints import Hints
from minductor.cost.kernel_seconds import fastest
from minductor.heuristics.learned import learned
from minductor.ir.program.choices import Choice
from minductor.ir.program.dots import find_dots
from minductor.ir.program.nodes import Buffer, Kernel, NodeNote, Program
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.schedule import cpu_place, cpu_recipes
from minductor.passes.schedule.draft import Draft
from minductor.target import Env, Target


def schedule(program: Program, env: Env) -> Program:
    """The program with a schedule on each kernel; a kernel that has a schedule already keeps it."""
    table, notes = program.real_table(), list[NodeNote]()
    nodes = tuple(
        schedule_kernel(node, table, env, notes, program.hints)
        if isinstance(node, Kernel) and node.schedule is None
        else node
        for node in program.nodes
    )
    return program if nodes == program.nodes else replace(program, nodes=nodes, notes=(*program.notes, *notes))


def schedule_kernel(
    kernel: Kernel, buffers: dict[str, Buffer], env: Env, notes: list[NodeNote], hints: Hints
) -> Kernel:
    """A kernel of merged axes with its schedule. `notes` takes what each recipe would cost."""
    if not env.target.is_gpu:
        drafts = _wanted(kernel, cpu_recipes.drafts(kernel, buffers, env.target, hints), env, notes)
        made = {name: cpu_place.place(draft) for name, draft in drafts.items()}
        return _fastest(made, buffers, env, notes, hints)
    from minductor.passes.schedule import gpu_place, gpu_recipes  # a first call for a CPU does not wait for them

    drafts = _wanted(kernel, gpu_recipes.drafts(kernel, buffers, env, hints), env, notes)
    made = _fastest({name: gpu_place.place(draft) for name, draft in drafts.items()}, buffers, env, notes, hints)
    return _with_library(made, kernel, buffers, env, notes, hints) if env.options.autotune else made


def _wanted(kernel: Kernel, drafts: dict[str, Draft], env: Env, notes: list[NodeNote]) -> dict[str, Draft]:
    """The draft that an option forces; all of them without such an option, or if that recipe is not legal."""
    forced = env.options.variant
    if forced in drafts:
        return {forced: drafts[forced]}
    if forced:
        legal = ", ".join(drafts)
        notes.append(NodeNote("schedule", kernel.name, f"the recipe {forced} is not legal here; legal are: {legal}"))
    return drafts


def _fastest(
    made: dict[str, Kernel], buffers: dict[str, Buffer], env: Env, notes: list[NodeNote], hints: Hints
) -> Kernel:
    """The kernel that was learned to be the fastest, or else is estimated to be, by the names of their recipes."""
    if len(made) == 1:
        return made.popitem()[1]
    answer = learned("rows", made, buffers, env, hints)
    if answer is not None:
        notes.append(NodeNote("schedule", next(iter(made.values())).name, answer.note))
        if answer.option:
            return made[answer.option]
    prices = _prices(made, buffers, env.target, hints)
    taken = fastest(prices)
    is_guess = env.target.is_gpu and env.target.machine is None
    as_on = "; as on an H100, since the target states no numbers of its machine" if is_guess else ""
    notes.append(NodeNote("schedule", made[taken].name, price_list(prices, taken) + as_on))
    return made[taken]


def _prices(
    made: Mapping[str, Kernel], buffers: dict[str, Buffer], target: Target, hints: Hints
) -> Mapping[str, Sequence[float]]:
    """By recipe the seconds of a kernel; on a CPU the seconds with each number of THREADS."""
    if target.is_gpu:
        from minductor.cost.seconds import seconds

        return {name: (seconds(kernel, buffers, target, hints).seconds,) for name, kernel in made.items()}
    from minductor.cost.cpu_seconds import cpu_seconds  # a program without a choice does not wait for it

    costs = cpu_seconds(made, buffers, target.cpu)
    return {name: tuple(cost.seconds for cost in each) for name, each in costs.items()}


def _with_library(
    made: Kernel, kernel: Kernel, buffers: dict[str, Buffer], env: Env, notes: list[NodeNote], hints: Hints
) -> Kernel:
    """The kernel `made`; if it computes matrix products, with the library's way as a variant to choose from."""
    from minductor.passes.schedule.by_library import by_library

    dots = find_dots(kernel) if env.options.matmul == "auto" else None
    variant = None if dots is None else by_library(kernel, dots, buffers)
    if variant is None:
        return made
    table = buffers | {buffer.name: buffer for buffer in variant.buffers}
    nodes = tuple(
        schedule_kernel(merge_kernel_axes(node), table, env, notes, hints) if isinstance(node, Kernel) else node
        for node in variant.nodes
    )
    choice = Choice("matmul", "bits", ("extern", "native"), "extern")
    return replace(made, choices=(*made.choices, choice), variants=(replace(variant, nodes=nodes),))


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
