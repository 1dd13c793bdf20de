"""Which launches of the variants of a kernel are left to be measured."""

from __future__ import annotations

from dataclasses import replace

from minductor.ir.program.choices import VARIANT, Choice
from minductor.ir.program.nodes import Kernel, Program, Variant
from minductor.options import Options
from minductor.passes.schedule.needed_launches import with_needed_launches
from minductor.passes.schedule.ways import NEAR
from minductor.target import Env, by_name
from tests.passes.sketch import Sketch
from tests.rows import inline, run_rows

TUNED = Env(Options.parse(None, {"autotune": True}, {}), by_name("sm_90"))


def softmax(rows: int, length: int, env: Env = TUNED) -> Kernel:
    """The kernel of a softmax over rows, with its variants."""
    s = Sketch()
    x = s.input(rows, length)
    e = s.op("exp", s.op("sub", x, s.reduce("max", x, 1)))
    program: Program = run_rows(inline(s.done(s.op("div", e, s.reduce("sum", e, 1))), env), env, "fuse", "schedule")
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    return kernel


def warps(kernel: Kernel) -> dict[str, tuple[object, object]]:
    """By variant the number of warps and its options."""
    found: dict[str, tuple[object, object]] = {}
    inner = [node for variant in kernel.variants for node in variant.nodes if isinstance(node, Kernel)]
    for each in (kernel, *inner):
        assert each.schedule is not None
        (choice,) = (choice for choice in each.choices if choice.id == "warps")
        found[each.schedule.recipe] = choice.default, choice.options
    return found


def test_no_launch_of_a_variant_is_another_variant() -> None:
    """Rows of 4096 elements may be held by 4, 8 or 16 warps; each of these numbers is a variant."""
    assert warps(softmax(16384, 4096)) == {
        "persistent4": (4, (2, 4)),
        "persistent8": (8, (8,)),
        "persistent16": (16, (16,)),
        "persistent": (16, (16,)),
    }


def with_warps(kernel: Kernel, default: int, options: tuple[int, ...]) -> Kernel:
    return replace(kernel, choices=(Choice("warps", "bits", options, default),), variants=())


def test_a_launch_that_is_estimated_to_be_slow_is_left_out() -> None:
    kernel = with_warps(softmax(64, 4096), 4, (2, 4, 8))
    prices = {2: 1.01 * NEAR, 4: 1.0, 8: 0.99 * NEAR}

    def price(kernel: Kernel) -> float:
        ((_, (default, _)),) = warps(kernel).items()
        return prices[int(str(default))]

    (made,) = with_needed_launches((kernel,), price)
    assert isinstance(made, Kernel) and warps(made) == {"persistent4": (4, (4, 8))}


def test_kernels_with_other_loops_share_no_launch() -> None:
    """The looped one may have as many warps as the one that holds its rows."""
    held = with_warps(softmax(16384, 4096), 8, (4, 8, 16))
    looped_only = Env(replace(TUNED.options, variant="looped"), TUNED.target)
    other = with_warps(softmax(16384, 100_000, looped_only), 16, (8, 16))
    assert other.schedule != held.schedule
    looped = replace(held, schedule=other.schedule, choices=other.choices)
    choice = Choice(VARIANT, "bits", ("held", "looped"), "held")
    both = replace(held, choices=(*held.choices, choice), variants=(Variant("looped", (), (looped,)),))
    (made,) = with_needed_launches((both,), lambda kernel: 1.0)
    assert isinstance(made, Kernel)
    assert warps(made) == warps(both)
    alike = replace(both, variants=(Variant("looped", (), (replace(looped, schedule=held.schedule),)),))
    (made,) = with_needed_launches((alike,), lambda kernel: 1.0)
    assert isinstance(made, Kernel) and [each.options for each in made.choices] == [(4, 8), ("held", "looped")]


def test_products_keep_their_launches() -> None:
    """Their prices are no measure of a tile."""
    kernel = softmax(64, 4096)
    assert kernel.schedule is not None
    product = replace(with_warps(kernel, 4, (2, 4, 8)), schedule=replace(kernel.schedule, dots=(0,)))
    (made,) = with_needed_launches((product,), lambda kernel: 1.0 if kernel.choices[0].default == 4 else 9.0)
    assert made == product


def test_without_tuning_the_options_stay() -> None:
    assert warps(softmax(16384, 4096, Env(Options(), TUNED.target))) == {"persistent4": (4, (2, 4, 8))}
