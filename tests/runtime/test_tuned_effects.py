"""Tuned kernels that write to memory with contents: it holds what one run leaves, whichever candidate is fastest."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.effects import FAULTS, KINDS, Effect, check

EFFECT = st.builds(
    Effect, st.sampled_from((*KINDS, "in place", "where it is less", "every second")), is_float=st.booleans()
)


DRAWN = (
    st.lists(EFFECT, min_size=1, max_size=3),
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=3, max_size=3),
    st.lists(st.sampled_from(FAULTS), min_size=2, max_size=2),
)


@settings(max_examples=10)
@given(*DRAWN)
def test_tuned_memory_is_what_one_run_leaves(effects: list[Effect], times: list[float], faults: list[str]) -> None:
    check(effects, times, faults)


@pytest.mark.long
@settings(max_examples=300)
@given(*DRAWN)
def test_tuned_memory_of_many_kernels(effects: list[Effect], times: list[float], faults: list[str]) -> None:
    check(effects, times, faults)


@pytest.mark.parametrize("is_float", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_atomic(kind: str, is_float: bool) -> None:
    check([Effect(kind, is_float)], [2.0, 1.0, 0.5], ["", "does nothing"])
