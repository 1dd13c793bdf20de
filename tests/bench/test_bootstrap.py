"""Intervals are seeded, hold the value, shrink with more samples, and cancel noise that hits whole rounds."""

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.bench import bootstrap

SAMPLES = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=12)


@settings(max_examples=25)
@given(SAMPLES)
def test_the_median_lies_in_its_interval_and_the_interval_in_the_samples(samples: list[float]) -> None:
    found = bootstrap.median(samples)
    assert found.value == statistics.median(samples)
    assert min(samples) <= found.low <= found.value <= found.high <= max(samples)
    assert found == bootstrap.median(samples)


def test_paired_ratios_cancel_what_slows_a_whole_round() -> None:
    source = random.Random(1)
    slow = [source.uniform(1.0, 5.0) for _ in range(20)]
    found = bootstrap.ratio([2.0 * factor for factor in slow], slow)
    assert found.value == pytest.approx(2.0) and found.high - found.low < 1e-9


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    source = random.Random(2)
    covered = 0
    for _ in range(60):
        found = bootstrap.median([source.gauss(1.0, 0.1) for _ in range(20)])
        covered += found.low <= 1.0 <= found.high
    assert 50 <= covered <= 60


def test_geometric_mean_of_the_medians() -> None:
    found = bootstrap.geometric_mean([[1.0, 1.0, 9.0], [4.0], [2.0, 2.0]])
    assert found.value == pytest.approx(math.prod([1.0, 4.0, 2.0]) ** (1 / 3))
    assert found.low <= found.value <= found.high


def test_nothing_and_uneven_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        bootstrap.median([])
    with pytest.raises(ValueError, match="no cases"):
        bootstrap.geometric_mean([])
    with pytest.raises(ValueError, match="2 samples cannot be paired with 1"):
        bootstrap.ratio([1.0, 2.0], [1.0])


def test_the_interval_leaves_out_a_fortieth_on_each_side() -> None:
    found = bootstrap.interval(0.5, lambda source: source.random())
    assert found.low == pytest.approx(0.025, abs=0.012) and found.high == pytest.approx(0.975, abs=0.012)
    assert found.low > 0.01 and found.high < 0.99
