"""A regression tree over the logarithms of times, and what it answers.

Takes examples, which are features with a loss for each option. Gives a tree, and for features the option of the least
loss with its confidence. Refuses nothing: features that a tree does not ask for may be missing.

The loss of an option is the logarithm of its time over that of the fastest one. A leaf has the mean and the largest
loss of each option of its examples. The confidence of an answer is how many times as long the second best option takes
by the means. A leaf whose best option takes more than WORST times as long as the fastest one for some example lies on a
boundary, and has no confidence. Kernels differ in the options that they have: these are features too (`with_options`),
and a kernel that has an option which its leaf does not know gets no answer.

A branch is made where it explains most of the squared losses. There an option that takes CAP times as long as the
fastest one is as bad as one that takes longer, and as one that a kernel does not have: a tree shall find where the
fastest option changes, and which kernels are of one kind, and not how slow the others are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from itertools import pairwise
from math import exp, log
from typing import NamedTuple, TypeAlias

UNSURE = "unsure"
WORST = 1.1  # times as long as the default: the most that an answer may take
CAP = 2.0  # times as long as the fastest option
DIGITS = 17  # of a float


class Example(NamedTuple):
    """The features of a kernel, and the loss of each of its options."""

    features: Mapping[str, float]
    losses: Mapping[str, float]


def with_options(features: Mapping[str, float], has: Collection[str], options: Sequence[str]) -> dict[str, float]:
    """The features, and for each of the options whether a kernel has it.

    >>> with_options({"row": 8}, {"held"}, ("held", "looped"))
    {'row': 8, 'has held': 1, 'has looped': 0}
    """
    return {**features, **{_flag(option): int(option in has) for option in options}}


def _flag(option: str) -> str:
    """The name of the feature that says whether a kernel has an option."""
    return f"has {option}"


class Leaf(NamedTuple):
    """The mean losses of some examples and the largest ones, by option. `size`: the number of examples."""

    losses: Mapping[str, float]
    largest: Mapping[str, float]
    size: int

    def best(self) -> tuple[str, float]:
        """The option of the least mean loss and the confidence; UNSURE and 1 if there is none."""
        ranked = sorted(self.losses, key=lambda name: (self.losses[name], name))
        if len(ranked) < 2 or self.largest[ranked[0]] > log(WORST):
            return UNSURE, 1.0
        return ranked[0], exp(self.losses[ranked[1]] - self.losses[ranked[0]])

    def answer(self, threshold: float) -> str:
        """The best option, or UNSURE if the confidence is not above the threshold.

        >>> leaf = Leaf({"held": 0.0, "looped": 0.4}, {"held": 0.0, "looped": 0.5}, 8)
        >>> leaf.answer(1.2), leaf.answer(1.6)
        ('held', 'unsure')
        """
        option, confidence = self.best()
        return option if confidence > threshold else UNSURE


class Branch(NamedTuple):
    """Features of which `feature` is at most `most` go to `low`, others to `high`."""

    feature: str
    most: float
    low: Tree
    high: Tree


Tree: TypeAlias = "Leaf | Branch"


def leaf_of(tree: Tree, features: Mapping[str, float]) -> Leaf:
    """The leaf that features lead to."""
    while isinstance(tree, Branch):
        tree = tree.low if features[tree.feature] <= tree.most else tree.high
    return tree


def grow(examples: Sequence[Example], depth: int, least: int) -> Tree:
    """The tree that explains the losses best, one branch after the other.

    Args:
        examples: at least one.
        depth: the most branches from the root to a leaf.
        least: the fewest examples of a leaf.
    """
    branch = _best_branch(examples, least) if depth > 0 else None
    if branch is None:
        return _leaf(examples)
    feature, most = branch
    low = [example for example in examples if example.features[feature] <= most]
    high = [example for example in examples if example.features[feature] > most]
    return Branch(feature, most, grow(low, depth - 1, least), grow(high, depth - 1, least))


def guarded(tree: Tree, options: Collection[str]) -> Tree:
    """The tree with a branch to "unsure" for kernels with one of the options that no leaf below the branch knows."""
    known = _known(tree)
    made = tree
    if isinstance(tree, Branch):
        others = [option for option in options if option in known]
        below = [option for option in others if _flag(option) != tree.feature]  # a kernel there does not have it
        made = tree._replace(low=guarded(tree.low, below), high=guarded(tree.high, others))
    for option in options:
        if option not in known:
            made = Branch(_flag(option), 0, made, Leaf({}, {}, 0))
    return made


def _known(tree: Tree) -> Set[str]:
    """The options that some leaf knows."""
    return tree.losses.keys() if isinstance(tree, Leaf) else _known(tree.low) | _known(tree.high)


def _leaf(examples: Sequence[Example]) -> Leaf:
    """A leaf of these examples. An option that less than half of them have is none."""
    found: dict[str, list[float]] = {}
    for example in examples:
        for name, loss in example.losses.items():
            found.setdefault(name, []).append(loss)
    usual = {name: losses for name, losses in sorted(found.items()) if 2 * len(losses) >= len(examples)}
    means = {name: sum(losses) / len(losses) for name, losses in usual.items()}
    return Leaf(means, {name: max(losses) for name, losses in usual.items()}, len(examples))


class _Sums:
    """How well mean losses explain some examples: their number, and by option the sum of the losses up to CAP."""

    def __init__(self, options: Collection[str]) -> None:
        self.count = 0
        self.totals = dict.fromkeys(options, 0.0)

    def add(self, example: Example, times: int) -> None:
        """Counts an example once more, or once less with `times` -1."""
        self.count += times
        most, losses = log(CAP), example.losses
        for name in self.totals:
            self.totals[name] += times * min(most, losses.get(name, most))

    def explained(self) -> float:
        """The part of the squared losses that the means explain; a branch that makes it larger explains more."""
        return sum(total * total for total in self.totals.values()) / max(1, self.count)


def _best_branch(examples: Sequence[Example], least: int) -> tuple[str, float] | None:
    """The feature and the limit that explain the losses best; None if no branch explains more than none."""
    options = {name for example in examples for name in example.losses}
    whole = _Sums(options)
    for example in examples:
        whole.add(example, 1)
    best, found = whole.explained() + 1e-9, None
    for feature, first in examples[0].features.items():
        if all(example.features[feature] == first for example in examples):
            continue
        ordered = sorted(examples, key=lambda example: example.features[feature])
        low, high = _Sums(options), _Sums(options)
        high.count, high.totals = whole.count, dict(whole.totals)
        for count, (example, following) in enumerate(pairwise(ordered), 1):
            low.add(example, 1)
            high.add(example, -1)
            one, other = example.features[feature], following.features[feature]
            if one == other or min(count, len(ordered) - count) < least:
                continue
            explained = low.explained() + high.explained()
            if explained > best:
                best, found = explained, (feature, between(one, other))
    return found


def between(low: float, high: float) -> float:
    """The shortest number near the middle of two numbers; it may be the lower one.

    >>> between(1000, 1024), between(0.25, 0.5), between(3, 4)
    (1000, 0.4, 3.5)
    """
    middle = (low + high) / 2
    short = (float(f"{middle:.{digits}g}") for digits in range(1, DIGITS + 1))
    found = next((number for number in short if low <= number < high), low)
    return int(found) if found == int(found) else found
