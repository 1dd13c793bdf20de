"""Several ways to compute what a kernel computes, as variants of one kernel.

Takes ways by name, with their prices. Gives the kernel of one way with the others as its variants, and the choice
between them: by measuring (`by_measure`), or by the sizes of a call (`by_size`). Refuses nothing: one way is no choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from minductor.cost.kernel_seconds import fastest, microseconds
from minductor.ir.program.choices import VARIANT, BySize, Choice, Point
from minductor.ir.program.nodes import Buffer, Extern, Kernel, Node, NodeNote, Variant
from minductor.ir.program.variant_note import VariantNote
from minductor.ir.program.variants import affects

if TYPE_CHECKING:
    from minductor.passes.rewriting.size_points import SizePoints

EXTERN, NATIVE = "extern", "native"  # a matrix product by the library, and by generated code
# Ways that are measured: the cheapest, since each is compiled and has launches of its own to measure. Prices put the
# fastest way within a third of the cheapest one in all but 4 of 492 measured decisions (benchmarks/decisions.md).
MOST, NEAR = 4, 1.3

Notes: TypeAlias = "list[NodeNote | VariantNote]"


class Way(NamedTuple):
    """Nodes that compute what a kernel computes, the buffers between them, and their seconds if these are known."""

    nodes: tuple[Node, ...]
    buffers: tuple[Buffer, ...] = ()
    price: tuple[float, ...] = ()


def named_like(ways: Mapping[str, Way], name: str) -> dict[str, Way]:
    """The ways with the name of the only one replaced; unchanged if there are several."""
    return {name: next(iter(ways.values()))} if len(ways) == 1 else dict(ways)


def by_measure(kernel: Kernel, ways: Mapping[str, Way], usual: str, notes: Notes, *, is_measured: bool) -> Way:
    """The kernel as the variant `usual`, with the ways that are estimated to be nearly the fastest as others.

    `usual`: what is taken without measuring. It is measured whatever its price says, so that no tuned kernel loses to
    one that is not. Where nothing may be measured, it is the result.
    """
    different = _different(ways)
    priced = of_equal_length({name: way.price for name, way in different.items() if way.price})
    losses = {name: _loss(priced, name) if name in priced else 1.0 for name in different}
    default = next(name for name, way in different.items() if way.nodes == ways[usual].nodes)
    others = sorted((name for name in different if losses[name] <= NEAR and name != default), key=losses.__getitem__)
    near = {default, *others[: MOST - 1]}
    kept = {name: way for name, way in different.items() if name in near}
    if len(kept) == 1 or not is_measured:
        return kept[default]
    known = tuple((name, priced[name]) for name in kept if name in priced)
    notes.append(VariantNote("schedule", kernel.name, default, "measure", tuple(kept), _figures(kept), known))
    return _with_variants(kept, Choice(VARIANT, affects(kernel), tuple(kept), default))


def by_size(kernel: Kernel, ways: Mapping[Point, Mapping[str, Way]], points: SizePoints, notes: Notes) -> Way:
    """The kernel whose variant is that of the point which is nearest to the sizes of a call. `ways`: for each point."""
    taken: dict[Point, str] = {}
    kept: dict[str, Way] = {}
    for point, each in ways.items():
        priced = of_equal_length({name: way.price for name, way in each.items() if way.price})
        recipe = fastest(priced) if priced else next(iter(each))
        same = next((name for name, other in kept.items() if other.nodes == each[recipe].nodes), "")
        if not same:
            same = recipe if recipe not in kept else f"{recipe}_at_{'_'.join(map(str, point))}"
            kept[same] = each[recipe]
        taken[point] = same
    if len(kept) == 1:
        return next(iter(kept.values()))
    if not any(map(_is_one_kernel, kept.values())):  # something has to be the kernel whose variants the others are
        first = next(iter(ways.values()))
        name = next(name for name, way in first.items() if _is_one_kernel(way))
        kept[name] = first[name]
    rule = BySize(tuple(symbol.name for symbol in points.symbols), tuple(taken.items()))
    notes.append(VariantNote("schedule", kernel.name, next(iter(kept)), "size", tuple(kept), str(rule)))
    return _with_variants(kept, Choice(VARIANT, affects(kernel), tuple(kept), next(iter(kept)), rule))


def _loss(prices: Mapping[str, tuple[float, ...]], name: str) -> float:
    """How many times as long as the fastest way one takes, with the number of threads that suits it best."""
    least = [min(each) for each in zip(*prices.values(), strict=True)]
    return min(price / best for price, best in zip(prices[name], least, strict=True))


def of_equal_length(prices: Mapping[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    """The prices with equally many seconds for each: those of few sizes count for all sizes.

    >>> of_equal_length({"whole": (1.0, 2.0, 3.0, 4.0), "join": (0.1, 0.2)})["join"]
    (0.1, 0.2, 0.1, 0.2)
    """
    longest = max(map(len, prices.values()), default=0)
    return {name: tuple(each[n % len(each)] for n in range(longest)) for name, each in prices.items()}


def _is_one_kernel(way: Way) -> bool:
    return len(way.nodes) == 1 and isinstance(way.nodes[0], Kernel)


def _different(ways: Mapping[str, Way]) -> dict[str, Way]:
    """The ways without those that are equal to one before them."""
    found: dict[str, Way] = {}
    for name, way in ways.items():
        if not any(way.nodes == other.nodes for other in found.values()):
            found[name] = way
    return found


def _with_variants(ways: Mapping[str, Way], choice: Choice) -> Way:
    """The kernel of one way with the other ones as its variants: the default's, if that is one kernel."""
    order = [str(choice.default), *ways]
    base = next(name for name in order if _is_one_kernel(ways[name]))
    (kernel,) = ways[base].nodes
    assert isinstance(kernel, Kernel)
    variants = tuple(
        Variant(name, way.buffers, tuple(node for node in way.nodes if isinstance(node, Kernel | Extern)))
        for name, way in ways.items()
        if name != base
    )
    return Way((replace(kernel, choices=(*kernel.choices, choice), variants=variants),))


def _figures(ways: Mapping[str, Way]) -> str:
    """The estimated seconds of each way as text."""
    return ", ".join(f"{microseconds(way.price[0])} us {name}" for name, way in ways.items() if way.price)
