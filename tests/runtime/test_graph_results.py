"""Results of recordings that lie outside of the pool: when callers get them, other ones, or copies."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
import torch
from torch import Tensor

from minductor.runtime.graphs.graph_chain import WrapperGraphs
from minductor.runtime.graphs.graph_partition import CapturedPartition
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
from tests.recording_driver import RecordingDriver
from tests.runtime.test_graphs import Wrapper, asked


def doubling(graphs: WrapperGraphs, last: int = 0) -> Callable[[Tensor], tuple[Tensor]]:
    """A partition's function whose result is value `last` of the graph, and is made where the graphs say."""

    def double(x: Tensor) -> tuple[Tensor]:
        made = graphs.empty_result(last, tuple(x.shape), tuple(x.stride()), x.dtype, "cpu")
        return (torch.mul(x, 2, out=made),)

    return double


def partition(wrapper: Wrapper, graphs: WrapperGraphs | None = None, last: int = 0) -> CapturedPartition:
    graphs = graphs or wrapper.graphs
    return wrapper.partition(doubling(graphs, last), 1, graphs=graphs)


def test_results_that_nobody_holds_are_not_copied() -> None:
    wrapper = Wrapper()
    part, x = partition(wrapper), torch.randn(8)
    for _ in range(4):
        assert torch.equal(wrapper.call(part, x)[0], x * 2)
    assert asked(wrapper) == [("record", 0, 1), *[("replay", 0)] * 3]


def test_a_result_that_is_held_until_the_next_one_is_there_is_not_copied() -> None:
    """As in `y = f(x)` in a loop: two takes by turns."""
    wrapper = Wrapper()
    part, x, made = partition(wrapper), torch.zeros(8), torch.zeros(8)
    for number in range(7):
        x.fill_(number)
        assert number == 0 or made[0] == 2 * (number - 1)
        (made,) = wrapper.call(part, x)
        assert made[0] == 2 * number
    turns = [("replay", 0), ("replay", 1)] * 2
    assert asked(wrapper) == [("record", 0, 1), ("replay", 0), ("record", 1, 1), ("replay", 1), *turns]
    assert wrapper.told[-1] == "double: recorded once more, since its earlier results are held" and not wrapper.warned


def test_results_that_are_held_for_good_are_copied_from_the_third_on() -> None:
    wrapper = Wrapper()
    part, x, held = partition(wrapper), torch.zeros(8), list[Tensor]()
    for number in range(8):
        x.fill_(number)
        held += wrapper.call(part, x)
    assert [int(each[0]) for each in held] == [2 * number for number in range(8)]
    assert len({each.data_ptr() for each in held}) == 8 and len(wrapper.driver.did("record")) == 3
    assert asked(wrapper)[-4:] == [("replay", 2), ("copy", 1)] * 2 and not wrapper.warned


def test_a_view_holds_a_result() -> None:
    wrapper = Wrapper()
    part, x = partition(wrapper), torch.zeros(8)
    for _ in range(2):
        wrapper.call(part, x)
    view = wrapper.call(part, x)[0][2:4]
    x += 1
    wrapper.call(part, x)
    assert view.tolist() == [0.0, 0.0]


def test_a_held_result_is_in_nobodys_way() -> None:
    """No other recording of the pool writes where it lies, so an earlier one is replayed meanwhile."""
    wrapper = Wrapper()
    first, second = partition(wrapper), partition(wrapper)
    x, y = torch.zeros(4), torch.ones(4)
    for _ in range(2):
        first(x)
        second(y)
    (held,) = second(y)
    assert torch.equal(first(x)[0], x * 2) and torch.equal(held, y * 2)
    assert len(wrapper.driver.did("record")) == 2


def test_what_is_saved_for_a_backward_lies_in_the_pool() -> None:
    """Also if the user gets it: the backward's recording reads it where it lies."""
    wrapper = Wrapper()
    forward, backward = wrapper.role(1), wrapper.role(are_gradients=True)
    part = partition(wrapper, forward, last=1)
    back = wrapper.partition(lambda saved: (saved + 1,), 1, graphs=backward)
    x = torch.zeros(4)
    for number in range(4):
        x.fill_(number)
        made = part(x)
        (result, saved) = forward.given((*made, *made))
        assert saved.untyped_storage().data_ptr() != result.untyped_storage().data_ptr() or number == 0
        assert torch.equal(backward.given(back(saved))[0], x * 2 + 1)
        del saved, made
    assert not wrapper.driver.outside_places and len(wrapper.driver.did("record")) == 2


def test_a_gradient_may_be_kept_beyond_a_marked_step() -> None:
    wrapper = Wrapper(RecordingDriver(marks=1), are_gradients=True)
    part, x, held = partition(wrapper), torch.zeros(4), list[Tensor]()
    for number in range(6):
        x.fill_(number)
        held += wrapper.call(part, x)
        wrapper.driver.marks += 1
    assert [int(each[0]) for each in held] == [0, 2, 4, 6, 8, 10] and not wrapper.driver.messages


def test_after_a_mark_a_result_is_overwritten_and_its_reader_gets_an_error() -> None:
    wrapper = Wrapper(RecordingDriver(marks=1))
    part, x = partition(wrapper), torch.zeros(4)
    for _ in range(3):
        (held,) = wrapper.call(part, x)
        assert torch.equal(held, x * 2)
        wrapper.driver.marks += 1
    assert asked(wrapper) == [("record", 0, 1), ("replay", 0), ("forbid",), ("replay", 0)]
    assert "computed at line of n0, was overwritten" in wrapper.driver.messages[0] and not wrapper.warned


def test_within_a_marked_step_another_take_serves() -> None:
    wrapper = Wrapper(RecordingDriver(marks=1))
    part, x, held = partition(wrapper), torch.zeros(4), list[Tensor]()
    for number in range(5):
        x.fill_(number)
        held += wrapper.call(part, x)
    assert [int(each[0]) for each in held] == [0, 2, 4, 6, 8]
    assert not wrapper.warned and not wrapper.driver.did("forbid") and len(wrapper.driver.did("replay")) == 4


def test_a_result_of_an_earlier_step_is_taken_back_even_if_another_take_is_free() -> None:
    """So whether a reader gets an error does not depend on how many takes there are."""
    wrapper = Wrapper(RecordingDriver(marks=1))
    part, x = partition(wrapper), torch.ones(4)
    held = [wrapper.call(part, x)[0] for _ in range(3)]
    del held[2]
    wrapper.driver.marks += 1
    assert wrapper.call(part, x)[0].tolist() == [2.0] * 4
    assert len(wrapper.driver.did("forbid")) == 1 and len(wrapper.driver.did("record")) == 2


def test_a_thread_that_is_cold_records_no_take() -> None:
    wrapper = Wrapper()
    part, x, held = partition(wrapper), torch.zeros(4), list[Tensor]()
    for number in range(2):
        x.fill_(number)
        held += wrapper.call(part, x)
    x.fill_(2)
    thread = Thread(target=lambda: held.extend(wrapper.call(part, x)))
    thread.start()
    thread.join()
    assert [int(each[0]) for each in held] == [0, 2, 4] and len(wrapper.driver.did("record")) == 1


def test_without_room_for_another_take_the_function_runs_while_results_are_held() -> None:
    wrapper = Wrapper()
    part, x, held = partition(wrapper), torch.zeros(4), list[Tensor]()
    for number in range(2):
        x.fill_(number)
        held += wrapper.call(part, x)
    wrapper.driver.failure = "there is no room for its pool"
    for number in range(2, 5):
        x.fill_(number)
        held += wrapper.call(part, x)
    assert [int(each[0]) for each in held] == [0, 2, 4, 6, 8] and len(wrapper.driver.did("replay")) == 1
    assert wrapper.warned == [
        "double: its earlier results are still held: it runs without a CUDA graph, since for another there is no room"
        " for its pool"
    ]
    held.clear()
    assert torch.equal(wrapper.call(part, x)[0], x * 2) and len(wrapper.driver.did("replay")) == 2


def test_inputs_that_move_have_one_buffer_for_all_takes() -> None:
    wrapper = Wrapper()
    part = partition(wrapper)
    given, held = [torch.full((4,), float(number)) for number in range(6)], list[Tensor]()
    for x in given:
        held += wrapper.call(part, x)
    assert [int(each[0]) for each in held] == [0, 2, 4, 6, 8, 10] and len(wrapper.driver.did("record")) == 3
    (recording,) = next(iter(part._cases.values())).recordings.values()
    assert len(recording.buffers) == 1 and len(recording.takes) == 3


def test_a_result_that_is_the_next_input() -> None:
    """As in a recurrence: the values that a call reads are not those that it writes."""
    wrapper = Wrapper()
    part, x = partition(wrapper), torch.ones(4)
    for number in range(9):
        (x,) = wrapper.call(part, x)
        assert x.tolist() == [2.0 ** (number + 1)] * 4
    assert len(wrapper.driver.did("record")) <= 6  # two that move, and then takes that are copied into


FAULTS: dict[str, Callable[[], object]] = {
    "graph-own-result-overwritten": test_a_view_holds_a_result,
    "graph-old-take-kept": test_a_result_of_an_earlier_step_is_taken_back_even_if_another_take_is_free,
    "graph-third-take-lent": test_results_that_are_held_for_good_are_copied_from_the_third_on,
    "graph-saved-outside": test_what_is_saved_for_a_backward_lies_in_the_pool,
    "graph-gradient-taken-back": test_a_gradient_may_be_kept_beyond_a_marked_step,
    "graph-result-in-pool": test_a_held_result_is_in_nobodys_way,
    "graph-take-by-a-cold-thread": test_a_thread_that_is_cold_records_no_take,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_noticed(fault: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        with pytest.raises((AssertionError, ValueError)):
            FAULTS[fault]()
        assert was_reached()
