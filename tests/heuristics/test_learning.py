"""Learning: the tree finds a known boundary, is unsure beside it, and its text answers as it does."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from minductor.commands.heuristics_command import collect
from minductor.core.errors import BadHeuristic
from minductor.heuristics.generate import described, generate
from minductor.heuristics.learn import HELD_OUT, Learned, figures_of, learn
from minductor.heuristics.metadata import metadata_of
from minductor.heuristics.samples import Sample, Times, line_of, read
from minductor.heuristics.tree import (
    UNSURE,
    WORST,
    Branch,
    Example,
    Leaf,
    Tree,
    between,
    grow,
    guarded,
    leaf_of,
    with_options,
)
from tests.heuristics.kernels import BOUNDARY, LENGTHS, MIDDLE, OF_A_LENGTH, VERSIONS, features, module, sample, samples

PRODUCTS = 1500  # of matrices, that are measured


@pytest.fixture(scope="module")
def rows() -> Learned:
    return learn(samples())


# --- a choice with a boundary in three features


class Product:
    """A product of an m x k and a k x n matrix."""

    def __init__(self, m: int, k: int, n: int) -> None:
        self.sizes = {"m": m, "k": k, "n": n}
        self.name = f"{m}x{k}x{n}"

    def seconds(self) -> dict[str, float]:
        """Our kernel has no fixed cost, and is slower for each operation than the library."""
        operations = self.sizes["m"] * self.sizes["k"] * self.sizes["n"]
        return {"native": 4e-12 * operations, "library": 2e-5 + 1e-12 * operations}


def products(count: int, seed: int) -> list[Product]:
    draw = random.Random(seed)
    return [Product(*(int(2 ** draw.uniform(5, 10)) for _ in range(3))) for _ in range(count)]


def fake_bench(product: Product) -> Sample:
    seconds = product.seconds()
    times = {name: Times(each, 0.01, 9) for name, each in seconds.items()}
    default = min(seconds, key=seconds.__getitem__)  # each answer that is not this one is a loss
    fixed = ("matmul", product.name, product.name, "sm_90", "GPU X", "2026-01-01", VERSIONS, product.sizes)
    return Sample(*fixed, default, times)


@pytest.fixture(scope="module")
def learned_products(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """What `collect` with a fake bench, and `learn` with "library" as the default of all, teach."""
    out = tmp_path_factory.mktemp("products") / "products.jsonl"
    collect(products(PRODUCTS, 0), fake_bench, out, lambda: False)
    measured = read(out.read_text().splitlines(), str(out))
    assert len(measured) == PRODUCTS
    return learn([each._replace(default="library") for each in measured], (5, 7), (4, 8))


def test_generated_text_answers_as_the_tree_does(learned_products: Learned) -> None:
    choose = module(generate(learned_products)).choose
    answers = list[str]()
    for product in products(1000, 1):
        leaf = leaf_of(learned_products.tree, product.sizes)
        answers.append(choose(product.sizes))
        assert answers[-1] == leaf.answer(learned_products.threshold)
    assert {"native", UNSURE} <= set(answers)


def test_no_answer_is_wrong_at_the_threshold(learned_products: Learned) -> None:
    for figures in (learned_products.validation, learned_products.held_out):
        assert figures.wrong == 0 and figures.worst <= WORST
        assert 0 < figures.answered < figures.kernels
    assert learned_products.held_out.best > 2


def test_threshold_leaves_out_wrong_answers_of_the_validation(learned_products: Learned) -> None:
    """Without a threshold, answers near the boundary are wrong: the check of the figures can fail."""
    tree = learned_products.tree
    far = [product for product in products(1000, 1) if leaf_of(tree, product.sizes).best()[0] != UNSURE]
    ratios = [
        product.seconds()[leaf_of(tree, product.sizes).best()[0]] / product.seconds()["library"] for product in far
    ]
    sure = [leaf_of(tree, product.sizes).best()[1] > learned_products.threshold for product in far]
    wrong = [ratio > WORST for ratio in ratios]
    assert sum(wrong) > sum(is_wrong and is_sure for is_wrong, is_sure in zip(wrong, sure, strict=True))


# --- a choice with a boundary in one feature


def test_boundary_is_found_and_beside_it_nothing_is_sure(rows: Learned) -> None:
    choose = module(generate(rows)).choose
    said = {row: choose(features(MIDDLE, row)) for row in range(BOUNDARY // 8, BOUNDARY * 8, 10)}
    assert set(said.values()) == {"held", UNSURE, "looped"}
    unsure = [row for row, option in said.items() if option == UNSURE]
    assert min(unsure) < BOUNDARY * 2 and max(unsure) > BOUNDARY / 2
    assert all(option == "held" for row, option in said.items() if row < min(unsure))
    assert all(option == "looped" for row, option in said.items() if row > max(unsure))


def test_metadata_tell_the_data(rows: Learned) -> None:
    found = metadata_of(module(generate(rows)).METADATA)
    assert found == described(rows)
    assert (found.choice, found.affects, found.target, found.device) == ("rows", "bits", "sm_90", "GPU X")
    assert found.versions == VERSIONS and found.date == "2026-01-01"
    assert found.kernels == OF_A_LENGTH * len(LENGTHS) and found.options == ("held", "looped")
    assert found.ranges["row"] == (LENGTHS[0], LENGTHS[-1])
    assert found.held_out["wrong"] == 0 and found.threshold == rows.threshold


def test_generated_text_is_formatted(rows: Learned, tmp_path: Path) -> None:
    (tmp_path / "rows_for_sm_90.py").write_text(generate(rows), encoding="utf-8")
    config = str(Path(__file__).parents[2] / "pyproject.toml")
    for command in (["format", "--check"], ["check", "--no-cache"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", config, str(tmp_path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_kernels_of_a_group_are_held_out_together() -> None:
    """Each size has two kernels. Those that the tree was not grown from are whole groups."""
    twice = [each._replace(case=f"{each.case} {n}") for each in samples() for n in range(2)]
    found = learn(twice)
    assert found.held_out.kernels % 2 == 0
    assert found.held_out.kernels + found.validation.kernels == len(twice)
    assert 0.5 < found.held_out.kernels * HELD_OUT / len(twice) < 1.5


def test_unsteady_times_are_left_out() -> None:
    shaken = {name: Times(each.seconds, 0.5, 15) for name, each in sample(64, 64).times.items()}
    few = {name: Times(each.seconds, 0.01, 2) for name, each in sample(64, 64).times.items()}
    odd = [sample(64, 64, case=name, times=times) for name, times in (("shaken", shaken), ("few", few))]
    assert {each.case for each in learn([*samples(), *odd]).samples} == {each.case for each in samples()}


# --- what is refused


def other(count: int, **given: object) -> list[Sample]:
    return [*samples()[count:], *(each._replace(**given) for each in samples()[:count])]


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        (samples()[:20], "20 have steady times, and 40 are needed"),
        (other(3, device="GPU Y"), "several devices: GPU X; GPU Y"),
        (other(3, target="sm_80"), "several targets: sm_80; sm_90"),
        (other(3, versions={"torch": "2.12.0"}), "several versions"),
        (other(3, choice="columns"), "several choices"),
        (other(3, features={"row": 1.0}), "several features"),
    ],
)
def test_measurements_that_do_not_belong_together_are_refused(measured: Sequence[Sample], says: str) -> None:
    with pytest.raises(BadHeuristic, match=says):
        learn(measured)


def test_nothing_is_learned_where_the_default_is_the_fastest() -> None:
    with pytest.raises(BadHeuristic, match="teach nothing that holds") as caught:
        learn([sample(int(each.features["rows"]), int(each.features["row"])) for each in samples()])
    assert "largest gain is 1.00 times" in caught.value.why


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_learned_from_chance(seed: int) -> None:
    """The faster option does not follow from the features, so answers on held-out kernels are wrong or unsure."""
    draw = random.Random(seed)

    def drawn(each: Sample) -> Sample:
        seconds = draw.sample((1e-5, 3e-5), 2)
        return each._replace(times={name: Times(seconds.pop(), 0.01, 15) for name in ("held", "looped")})

    with pytest.raises(BadHeuristic, match="teach nothing that holds"):
        learn(list(map(drawn, samples())))


# --- the tree


def test_tree_branches_where_losses_differ() -> None:
    examples = [Example({"m": m, "k": k}, {"a": float(m > 8), "b": 0.5}) for m in range(16) for k in range(4)]
    low, high = {"a": 0.0, "b": 0.5}, {"a": 1.0, "b": 0.5}
    assert grow(examples, 3, 2) == Branch("m", 8, Leaf(low, low, 36), Leaf(high, high, 28))
    assert isinstance(grow(examples, 0, 2), Leaf)


def smallest(tree: Tree) -> int:
    return tree.size if isinstance(tree, Leaf) else min(smallest(tree.low), smallest(tree.high))


def depth(tree: Tree) -> int:
    return 0 if isinstance(tree, Leaf) else 1 + max(depth(tree.low), depth(tree.high))


@pytest.mark.parametrize(("most", "least"), [(2, 3), (5, 7), (3, 40)])
def test_tree_keeps_its_limits(most: int, least: int) -> None:
    draw = random.Random(0)
    examples = [Example({"m": draw.random(), "k": draw.random()}, {"a": draw.random(), "b": 0}) for _ in range(100)]
    tree = grow(examples, most, least)
    assert 0 < depth(tree) <= most and smallest(tree) >= least


def test_option_that_few_kernels_have_is_no_answer() -> None:
    few = [Example({"m": 0}, {"a": 0.5, "b": 0.4, **({"rare": 0.0} if n < 4 else {})}) for n in range(10)]
    leaf = leaf_of(grow(few, 2, 2), {"m": 0})
    assert leaf.size == 10 and set(leaf.losses) == {"a", "b"}
    assert Leaf({"a": 0.0}, {"a": 0.0}, 10).best() == (UNSURE, 1.0)


def test_kernel_with_an_option_that_its_leaf_does_not_know_gets_no_answer() -> None:
    """Small kernels have "a" and "b", and large ones "a" and "c"."""

    def example(m: int) -> Example:
        losses = {"a": 0.6, "b" if m < 8 else "c": 0.0}
        return Example(with_options({"m": m}, losses, "abc"), losses)

    tree = guarded(grow([example(m) for m in range(16)], 1, 2), "abcd")

    def answer(m: int, has: str) -> str:
        return leaf_of(tree, with_options({"m": m}, set(has), "abcd")).answer(1.1)

    assert (answer(3, "ab"), answer(12, "ac")) == ("b", "c")
    assert (answer(3, "bad"), answer(12, "acd")) == (UNSURE, UNSURE)
    assert answer(3, "abc") == answer(12, "abc") == UNSURE


def test_leaf_on_a_boundary_has_no_confidence() -> None:
    """One option is better on average, and loses half of the time for one example."""
    losses = {"a": 0.05, "b": 0.7}
    assert Leaf(losses, {"a": math.log(1.09), "b": 1.0}, 10).best() == ("a", pytest.approx(math.exp(0.65)))
    assert Leaf(losses, {"a": math.log(1.5), "b": 1.0}, 10).best() == (UNSURE, 1.0)


def test_limit_lies_between() -> None:
    draw = random.Random(0)
    for _ in range(1000):
        low, high = sorted((draw.uniform(0, 1e6), draw.uniform(0, 1e6)))
        assert low <= between(low, high) < high


def test_figures() -> None:
    from minductor.heuristics.learn import _Answer  # pyright: ignore[reportPrivateUsage]

    same = _Answer("b", 3.0, 1.0, is_other=False)
    answers = [_Answer("a", 2.0, 0.5), _Answer("a", 1.5, 1.2), _Answer(UNSURE, 9.0, 1.0), _Answer("b", 1.2, 3.0), same]
    assert figures_of(answers, 1.6) == (5, 2, 1, 0, 1.0, 2.0, pytest.approx(2**0.2, abs=1e-4))
    assert figures_of(answers, 1.3) == (5, 3, 2, 1, 1.2, 2.0, pytest.approx((0.5 * 1.2) ** -0.2, abs=1e-4))


# --- measurements as lines


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        '{"case": "x"}',
        line_of(sample(64, 64)).replace('"default": "held"', '"default": "other"'),
        line_of(sample(64, 64)).replace('"seconds": 1e-05', '"seconds": -1'),
        line_of(sample(64, 64)).replace('"seconds": 1e-05', '"seconds": NaN'),
        line_of(sample(64, 64)).replace('"row": 64', '"row": "many"'),
        line_of(sample(64, 64)).replace('"spread": 0.01, ', ""),
    ],
)
def test_damaged_line_is_named(line: str) -> None:
    assert line != line_of(sample(64, 64))
    with pytest.raises(BadHeuristic, match="this line is no measurement") as caught:
        read([line_of(sample(64, 64)), "", line], "rows.jsonl")
    assert caught.value.where == "rows.jsonl:3"
