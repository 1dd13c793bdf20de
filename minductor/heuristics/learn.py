"""Learns a choice from measurements: the tree, and the confidence below which it is unsure.

Takes measurements of one choice, one target, one device and one set of versions. Gives a `Learned`. Refuses
(BadHeuristic) measurements of several of these, too few of them, and those from which nothing is learned that holds on
the kernels that are held out.

A third of the groups of kernels is held out. On the others cross-validation finds depth and leaf size: each kernel is
answered by a tree that was grown without its group. An answer is wrong if it takes more than WORST times as long as the
default, and the threshold is above the largest confidence of a wrong answer, by MARGIN. The tree is then judged on the
held-out kernels: none of its answers may be wrong there, and some must be faster than the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from math import exp, log
from typing import NamedTuple

from minductor.core.errors import BadHeuristic
from minductor.heuristics.samples import Sample
from minductor.heuristics.tree import UNSURE, WORST, Example, Tree, grow, guarded, leaf_of, with_options

DEPTHS, LEAVES = (2, 3, 4), (3, 6, 12)  # which are tried: branches to a leaf, and examples of a leaf
FOLDS, HELD_OUT = 5, 3  # parts of the cross-validation; one of so many groups is held out
FEWEST_SAMPLES, FEWEST_ROUNDS = 40, 3
NOISE = 0.15  # the largest spread of a time that counts
MARGIN = 1.25  # times the logarithm of the largest confidence of a wrong answer: the next one may be larger
FEWEST_CHANGES = 5  # answers on held-out kernels that are not the default: fewer may be right by chance
MOST_WRONG = 0.1  # of such answers in the cross-validation, without the threshold; more, and one, are chance
SURE = WORST  # the lowest threshold: an answer promises at least as much as it may lose


class Figures(NamedTuple):
    """How the answers do on some kernels.

    `changed`: answers that are not the default. `worst`: the largest time of an answer over that of the default.
    `best`: the largest time of the default over that of an answer. `gain`: the geometric mean of the latter, where
    "unsure" counts as 1.
    """

    kernels: int
    answered: int
    changed: int
    wrong: int
    worst: float
    best: float
    gain: float


class Learned(NamedTuple):
    """A tree with its threshold, the sizes by which it grew, and how it does in cross-validation and on held-out."""

    tree: Tree
    threshold: float
    depth: int
    leaf: int
    validation: Figures
    held_out: Figures
    samples: Sequence[Sample]


class _Answer(NamedTuple):
    """What a tree says of a sample: the option, its confidence, and its time over the default's.

    `is_other`: whether the option is not the default.
    """

    option: str
    confidence: float
    ratio: float
    is_other: bool = True


def learn(measured: Sequence[Sample], depths: Sequence[int] = DEPTHS, leaves: Sequence[int] = LEAVES) -> Learned:
    """The tree of the largest gain, if it holds on the kernels that are held out.

    Args:
        measured: the samples; those whose times spread too far are left out.
        depths: the depths that are tried.
        leaves: the fewest examples of a leaf that are tried.
    """
    samples = [sample for sample in measured if _is_steady(sample)]
    _check(samples, len(measured))
    options = options_of(samples)
    known = [sample for sample in samples if not _is_held_out(sample)]
    held = [sample for sample in samples if _is_held_out(sample)]
    tried = [_validated(known, options, depth, leaf) for depth in depths for leaf in leaves]
    taken = max(tried, key=lambda each: (not each.is_chance, round(each.figures.gain, 3), -each.depth, each.leaf))
    depth, leaf, threshold, validation, is_chance = taken
    tree = _grown(known, options, depth, leaf)
    figures = figures_of([_answer(tree, sample, options) for sample in held], threshold)
    if is_chance or figures.wrong or figures.best < WORST or figures.changed < FEWEST_CHANGES:
        why = (
            f"{figures.kernels} kernels are held out, {figures.changed} get another option, {figures.wrong} a wrong one"
        )
        raise BadHeuristic(
            "these measurements teach nothing that holds on other kernels",
            why=f"{why}; the largest gain is {figures.best:.2f} times, the largest loss {figures.worst:.2f} times",
            hint="measure more kernels, or keep the prices, which the compiler asks where no choice is learned",
        )
    return Learned(tree, threshold, depth, leaf, validation, figures, samples)


def options_of(samples: Sequence[Sample]) -> tuple[str, ...]:
    """The options that were measured."""
    return tuple(sorted({name for sample in samples for name in sample.times}))


def _grown(samples: Sequence[Sample], options: Sequence[str], depth: int, leaf: int) -> Tree:
    """The tree of these samples, which gives no answer for options that it knows too little of."""
    return guarded(grow([_example(sample, options) for sample in samples], depth, leaf), options)


def _example(sample: Sample, options: Sequence[str]) -> Example:
    """The losses of the options, from which a tree learns."""
    least = sample.least()
    losses = {name: log(times.seconds / least) for name, times in sample.times.items()}
    return Example(with_options(sample.features, sample.times, options), losses)


def figures_of(answers: Sequence[_Answer], threshold: float) -> Figures:
    """How answers do of which those at or below the threshold are unsure."""
    sure = [answer for answer in answers if _is_sure(answer, threshold)]
    given = [answer.ratio for answer in sure]
    changed = sum(answer.is_other for answer in sure)
    wrong = sum(ratio > WORST for ratio in given)
    gain = exp(-sum(map(log, given)) / max(1, len(answers)))
    worst, best = max(given, default=1.0), 1 / min(given, default=1.0)
    return Figures(len(answers), len(given), changed, wrong, round(worst, 3), round(best, 3), round(gain, 4))


def _is_sure(answer: _Answer, threshold: float) -> bool:
    return answer.option != UNSURE and answer.confidence > threshold


def _is_steady(sample: Sample) -> bool:
    return all(each.rounds >= FEWEST_ROUNDS and each.spread <= NOISE for each in sample.times.values())


def _check(samples: Sequence[Sample], count: int) -> None:
    """Raises BadHeuristic if nothing can be learned from all of these samples."""
    if len(samples) < FEWEST_SAMPLES:
        why = f"of {count} kernels {len(samples)} have steady times, and {FEWEST_SAMPLES} are needed"
        raise BadHeuristic("these are too few measurements to learn from", why=why)
    rows: Mapping[str, set[str]] = {
        "choices": {sample.choice for sample in samples},
        "targets": {sample.target for sample in samples},
        "devices": {sample.device for sample in samples},
        "versions": {", ".join(f"{name} {each}" for name, each in sample.versions.items()) for sample in samples},
        "features": {", ".join(sample.features) for sample in samples},
    }
    for what, found in rows.items():
        if len(found) > 1:
            why = f"they have several {what}: {'; '.join(sorted(found))}"
            hint = "learn from the lines of one of them at a time"
            raise BadHeuristic("these measurements do not belong together", why=why, hint=hint)


def _number(sample: Sample, purpose: str) -> int:
    """A number that is the same for all samples of a group, and otherwise as if drawn by chance."""
    return int.from_bytes(sha256(f"{purpose} {sample.group}".encode()).digest()[:4], "big")


def _is_held_out(sample: Sample) -> bool:
    return _number(sample, "held out") % HELD_OUT == 0


class _Validated(NamedTuple):
    """The sizes of a tree, the threshold at which no answer of the cross-validation is wrong, and the figures at that.

    `is_chance`: whether too many answers are wrong without the threshold.
    """

    depth: int
    leaf: int
    threshold: float
    figures: Figures
    is_chance: bool


def _validated(known: Sequence[Sample], options: Sequence[str], depth: int, leaf: int) -> _Validated:
    """What the cross-validation says of trees of these sizes."""
    answers = list(_cross_validated(known, options, depth, leaf))
    wrong = [answer.confidence for answer in answers if answer.option != UNSURE and answer.ratio > WORST]
    threshold = round(max([SURE, *wrong]) ** MARGIN + 5e-4, 3)
    is_chance = len(wrong) > 1 + MOST_WRONG * figures_of(answers, SURE).changed
    return _Validated(depth, leaf, threshold, figures_of(answers, threshold), is_chance)


def _cross_validated(known: Sequence[Sample], options: Sequence[str], depth: int, leaf: int) -> Iterator[_Answer]:
    """The answer to each sample, by a tree that was grown without the samples of its part."""
    for part in range(FOLDS):
        others = [sample for sample in known if _number(sample, "part") % FOLDS != part]
        if not others:
            continue
        tree = _grown(others, options, depth, leaf)
        yield from (_answer(tree, sample, options) for sample in known if _number(sample, "part") % FOLDS == part)


def _answer(tree: Tree, sample: Sample, options: Sequence[str]) -> _Answer:
    """What a tree says of a sample. An option that the kernel does not have is no answer: the default is taken."""
    features = with_options(sample.features, sample.times, options)
    option, confidence = leaf_of(tree, features).best()
    if option not in sample.times:
        return _Answer(UNSURE, confidence, 1.0)
    ratio = sample.times[option].seconds / sample.times[sample.default].seconds
    return _Answer(option, confidence, ratio, option != sample.default)
