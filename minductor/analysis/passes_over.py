"""In which pass over a row an operation runs: a result of a reduction exists only after the pass that computes it.

Takes the ops of a body, and positions of some of them, its members. Gives numbers, or positions. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from minductor.ir.program.nodes import Body, Op, Store, body_reads


def pass_numbers(ops: Sequence[Op], members: Sequence[int], ends: Callable[[int], bool]) -> dict[int, int]:
    """By position of each member, in order, the number of the first pass in which its operands exist.

    `ends`: whether the op at a position is a reduction whose result exists only after its pass.
    """
    found: dict[int, int] = {}
    for position in members:
        found[position] = max((found[a] + ends(a) for a in ops[position].args if a in found), default=0)
    return found


def moved_to_use(ops: Sequence[Op], passes: Mapping[int, int], may_move: Callable[[int], bool]) -> dict[int, int]:
    """By position the number of its pass, of which each op that may move has the first one in which it is used."""
    found = dict(passes)
    first: dict[int, int] = {}  # by position the first pass in which its value is used
    for position in sorted(found, reverse=True):
        if position in first and may_move(position):
            found[position] = max(found[position], first[position])
        for a in ops[position].args:
            first[a] = min(first.get(a, found[position]), found[position])
    return found


def longest_chain(ops: Sequence[Op], members: Sequence[int], counts: Callable[[int], bool]) -> int:
    """The most members that count and of which each needs the one before."""
    return max((before + counts(p) for p, before in pass_numbers(ops, members, counts).items()), default=0)


def overwriting_stores(ops: Sequence[Op], members: Sequence[int]) -> list[int]:
    """The stores to storages that other members load: they must not run in a pass before those loads."""
    stores = {p: store.ref.storage for p in members if isinstance(store := ops[p].attrs, Store)}
    loaded = {load.ref.storage for load in body_reads(Body(tuple(ops[p] for p in members)))} if stores else ()
    return [p for p, storage in stores.items() if storage in loaded]
