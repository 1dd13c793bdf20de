"""CUDA graphs against a driver that writes down what it is asked: order, copies, pools, sizes, streams, results."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor

from minductor.runtime.graphs.graph_chain import GraphChain, WrapperGraphs
from minductor.runtime.graphs.graph_driver import Stream, marked_steps
from minductor.runtime.graphs.graph_partition import MOST_RECORDINGS, MOST_SETS, MOST_SIZES, CapturedPartition
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
from tests.recording_driver import RecordingDriver


class Wrapper:
    """One wrapper with a graph chain; `warned` and `told` hold its notes."""

    def __init__(self, driver: RecordingDriver | None = None, **about: Any) -> None:
        self.driver = driver or RecordingDriver()
        self.warned: list[str] = []
        self.told: list[str] = []
        self.chain = GraphChain(self.driver, self.warned.append, self.told.append)
        self.chain.static = frozenset(("weight",))
        self.graphs = self.role(**about)

    def role(self, results: int | None = None, *, are_gradients: bool = False) -> WrapperGraphs:
        return self.chain.of_wrapper("line of {}".format, results, are_gradients=are_gradients)

    def partition(
        self,
        function: Callable[..., tuple[Tensor, ...]],
        tensors: int,
        *,
        written: tuple[int, ...] = (),
        results: int = 1,
        graphs: WrapperGraphs | None = None,
        static: tuple[int, ...] = (),
    ) -> CapturedPartition:
        nodes = tuple(f"n{number}" for number in range(results))
        inputs = tuple("weight" if number in static else "" for number in range(tensors))
        return (graphs or self.graphs).graphs(function, "cuda:0", inputs, written, nodes)

    def call(self, partition: CapturedPartition, *args: Any) -> Any:
        """What a wrapper of one partition returns."""
        return self.graphs.given(partition(*args))


def double(x: Tensor, w: Tensor) -> tuple[Tensor]:
    return (x * 2 + w,)


def asked(wrapper: Wrapper) -> list[tuple[Any, ...]]:
    """What the driver was asked since the last question."""
    found = list(wrapper.driver.asked)
    wrapper.driver.asked.clear()
    return found


# --- order, and copies of inputs that move


def test_the_second_call_records_and_later_ones_replay() -> None:
    wrapper = Wrapper()
    part, w = wrapper.partition(double, 2), torch.randn(8)
    seen: list[Tensor] = []  # so that each input has another address
    for number in range(4):
        seen.append(torch.randn(8))
        (out,) = wrapper.call(part, seen[-1], w)
        assert torch.equal(out, seen[-1] * 2 + w)
        expected = [[], [("record", 0, 1), ("copy", 1), ("replay", 0), ("copy", 1)]]
        assert asked(wrapper) == (expected[number] if number < 2 else [("copy", 1), ("replay", 0), ("copy", 1)])
    assert wrapper.told == ["double: recorded, 1 of 2 inputs copied"] and not wrapper.warned


def test_an_input_that_stays_is_read_where_it_lies() -> None:
    wrapper = Wrapper()
    part, x, w = wrapper.partition(double, 2), torch.randn(8), torch.randn(8)
    for _ in range(4):
        x.normal_()
        (out,) = wrapper.call(part, x, w)
        assert torch.equal(out, x * 2 + w)
    assert asked(wrapper) == [("record", 0, 1), *[("replay", 0), ("copy", 1)] * 3]


def test_an_input_that_moves_once_is_recorded_again_and_then_copied() -> None:
    wrapper = Wrapper()
    part, w = wrapper.partition(double, 2), torch.randn(8)
    xs = [torch.randn(8) for _ in range(5)]
    for x in (xs[0], xs[0], xs[1], xs[1], xs[2], xs[3], xs[4]):
        assert torch.equal(wrapper.call(part, x, w)[0], x * 2 + w)
    assert wrapper.driver.did("record") == [("record", 0, 1), ("record", 1, 1), ("record", 2, 1)]
    assert wrapper.told[-1] == "double: recorded, 1 of 2 inputs copied"


def test_all_moved_inputs_are_copied_by_one_call() -> None:
    def total(*tensors: Tensor) -> tuple[Tensor]:
        return (torch.stack(tensors).sum(0),)

    wrapper = Wrapper()
    part, seen = wrapper.partition(total, 5), [[torch.randn(3) for _ in range(5)] for _ in range(3)]
    for given in seen:
        assert torch.allclose(wrapper.call(part, *given)[0], torch.stack(given).sum(0))
    assert asked(wrapper)[-3:] == [("copy", 5), ("replay", 0), ("copy", 1)]


# --- inputs that are written


@pytest.mark.parametrize("moves", [True, False])
def test_a_written_input_is_written(*, moves: bool) -> None:
    check_written(moves=moves)


def check_written(*, moves: bool = True) -> None:
    def step(x: Tensor, by: Tensor) -> tuple[Tensor]:
        x.add_(by)
        return (x * 2,)

    wrapper = Wrapper()
    part, by = wrapper.partition(step, 2, written=(0,)), torch.ones(4)
    xs = [torch.zeros(4) for _ in range(4)]
    for number in range(4):
        x = xs[number if moves else 0]
        before = x.clone()
        (out,) = wrapper.call(part, x, by)
        assert torch.equal(x, before + 1) and torch.equal(out, x * 2)


def test_a_written_input_that_moves_and_overlaps_another_runs_without_a_graph() -> None:
    def step(x: Tensor, y: Tensor) -> tuple[Tensor]:
        x.add_(1)
        return (y * 2,)

    wrapper = Wrapper()
    part, seen = wrapper.partition(step, 2, written=(0,)), [torch.zeros(6) for _ in range(4)]
    for base in seen:
        assert torch.equal(wrapper.call(part, base[:4], base[2:])[0], base[2:] * 2)
    assert not asked(wrapper)
    assert wrapper.warned == [
        "step: it runs without a CUDA graph: it writes to an input that moves and shares memory with another input"
    ]


def test_a_moved_input_with_shared_elements_runs_without_a_graph() -> None:
    wrapper = Wrapper()
    part, w, seen = wrapper.partition(double, 2), torch.randn(4), [torch.randn(1) for _ in range(3)]
    for x in seen:
        assert torch.equal(wrapper.call(part, x.expand(4), w)[0], x * 2 + w)
    assert not asked(wrapper) and "elements that share memory" in wrapper.warned[0]


def test_a_result_in_the_memory_of_an_input_stays_there() -> None:
    def step(x: Tensor) -> tuple[Tensor]:
        return (x.add_(1)[1:],)

    wrapper = Wrapper()
    part, x = wrapper.partition(step, 1, written=(0,)), torch.zeros(4)
    for _ in range(4):
        (out,) = wrapper.call(part, x)
        assert out.data_ptr() == x[1:].data_ptr() and torch.equal(out, x[1:])
    assert x.tolist() == [4.0] * 4


# --- results


def test_results_that_are_held_keep_their_values() -> None:
    wrapper = Wrapper()
    part, w = wrapper.partition(double, 2), torch.randn(8)
    xs = [torch.randn(8) for _ in range(6)]
    held = [wrapper.call(part, x, w)[0] for x in xs]
    assert all(torch.equal(out, x * 2 + w) for out, x in zip(held, xs, strict=True)) and not wrapper.warned


def test_results_that_share_memory_still_do() -> None:
    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x * 2
        return made, made[1:]

    wrapper = Wrapper()
    part, x = wrapper.partition(two, 1, results=2), torch.randn(4)
    for _ in range(3):
        whole, rest = wrapper.call(part, x)
        assert whole.untyped_storage().data_ptr() == rest.untyped_storage().data_ptr()
        assert torch.equal(whole, x * 2) and torch.equal(rest, whole[1:])


def test_results_of_each_dtype_and_layout() -> None:
    dtypes = (torch.bool, torch.int64, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.float64)

    def many(x: Tensor) -> tuple[Tensor, ...]:
        made = [(x * 3).to(dtype) for dtype in dtypes]
        return (*made, x.t().contiguous().t(), x.new_empty(0, 3), (x * 2)[0, 0])

    wrapper = Wrapper()
    part, x = wrapper.partition(many, 1, results=len(dtypes) + 3), torch.rand(4, 6)
    for _ in range(3):
        x.uniform_()
        for made, wanted in zip(wrapper.call(part, x), many(x), strict=True):
            assert (made.dtype, made.size(), made.stride()) == (wanted.dtype, wanted.size(), wanted.stride())
            assert torch.equal(
                made.float() if made.dtype.itemsize == 1 else made,
                wanted.float() if wanted.dtype.itemsize == 1 else wanted,
            )


def training(wrapper: Wrapper) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A forward that saves one tensor, and its backward, as AOTAutograd calls them."""

    def forward(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        made = (x * w).sin()
        return made.sum().reshape(1), made * 2

    def backward(saved: Tensor, w: Tensor) -> tuple[Tensor]:
        hidden = saved + 1
        return (hidden * w,)

    one, other = wrapper.role(1), wrapper.role(are_gradients=True)
    ahead = wrapper.partition(forward, 2, results=2, graphs=one)
    back = wrapper.partition(backward, 2, graphs=other)
    return lambda x, w: one.given(ahead(x, w)), lambda saved, w: other.given(back(saved, w))


def test_forward_and_backward_share_a_pool_and_copy_nothing_between_them() -> None:
    wrapper = Wrapper()
    forward, backward = training(wrapper)
    x, w = torch.randn(8), torch.randn(8)
    for _ in range(4):
        x.normal_()
        _, saved = forward(x, w)
        (grad,) = backward(saved, w)
        assert torch.equal(grad, ((x * w).sin() * 2 + 1) * w)
        del saved
    once = [("replay", 0), ("copy", 1), ("replay", 1), ("copy", 1)]
    first = [("record", 0, 1), *once[:2], ("record", 1, 1), *once[2:]]
    assert asked(wrapper) == [*first, *once, *once] and not wrapper.warned


def test_what_a_forward_saved_is_not_overwritten_by_the_next_forward() -> None:
    wrapper = Wrapper()
    forward, backward = training(wrapper)
    xs, w = [torch.randn(8) for _ in range(8)], torch.randn(8)
    for one, two in zip(xs[::2], xs[1::2], strict=True):
        first, second = forward(one, w)[1], forward(two, w)[1]
        for x, saved in ((two, second), (one, first)):
            assert torch.equal(backward(saved, w)[0], ((x * w).sin() * 2 + 1) * w)
        del first, second, saved
    assert wrapper.warned == [
        "forward: its earlier results are still held (from line of n1): it runs without a CUDA graph"
    ]


def test_a_replay_waits_for_results_of_later_recordings() -> None:
    """Memory that a recording frees may hold results of a later one: while these are held, it is recorded anew."""
    wrapper = Wrapper()
    saves = wrapper.role(0)
    first = wrapper.partition(lambda x: (x + 1,), 1, graphs=saves)
    second = wrapper.partition(lambda x: (x + 2,), 1, graphs=saves)
    x, y = torch.zeros(4), torch.zeros(4)
    for _ in range(2):
        first(x)
        second(y)
    (held,) = second(y)
    assert torch.equal(first(x)[0], x + 1)
    assert torch.equal(held, y + 2) and len(wrapper.driver.did("record")) == 3


def test_recordings_are_limited() -> None:
    wrapper = Wrapper()
    saves = wrapper.role(0)
    parts = [wrapper.partition(lambda x, by=by: (x + by,), 1, graphs=saves) for by in range(2)]
    x = torch.zeros(4)
    for part in parts * 2:
        part(x)
    for _ in range(2 * MOST_RECORDINGS):  # each holds the other's results
        for one, other in ((0, 1), (1, 0)):
            (held,) = parts[one](x)
            assert torch.equal(parts[other](x)[0], x + other) and torch.equal(held, x + one)
            del held
    assert len(wrapper.driver.did("record")) <= 2 * MOST_RECORDINGS
    assert "recorded 8 times" in wrapper.warned[0]


# --- steps


def test_after_a_mark_a_replay_overwrites_and_a_reader_gets_an_error() -> None:
    driver = RecordingDriver(marks=1)
    wrapper = Wrapper(driver)
    part, x, w = wrapper.partition(double, 2), torch.randn(8), torch.randn(8)
    for _ in range(3):
        (held,) = wrapper.call(part, x, w)
        assert torch.equal(held, x * 2 + w)
        driver.marks += 1
    assert driver.asked == [("record", 0, 1), ("replay", 0), ("forbid",), ("replay", 0)]  # nothing is copied
    assert "computed at line of n0, was overwritten" in driver.messages[0] and not wrapper.warned


def test_within_a_step_held_results_are_not_overwritten() -> None:
    wrapper = Wrapper(RecordingDriver(marks=1))
    part, w = wrapper.partition(double, 2), torch.randn(8)
    xs = [torch.randn(8) for _ in range(5)]
    held = [wrapper.call(part, x, w)[0] for x in xs]
    assert all(torch.equal(out, x * 2 + w) for out, x in zip(held, xs, strict=True))
    assert "still held" in wrapper.warned[0] and not wrapper.driver.did("forbid")


def test_gradients_are_copied_in_each_case() -> None:
    wrapper = Wrapper(RecordingDriver(marks=1), are_gradients=True)
    part, x, w = wrapper.partition(double, 2), torch.randn(8), torch.randn(8)
    held = [wrapper.call(part, x, w)[0] for _ in range(4)]
    assert len({out.data_ptr() for out in held}) == 4 and not wrapper.warned


def test_torchs_marks_are_counted() -> None:
    before = marked_steps()
    torch.compiler.cudagraph_mark_step_begin()
    assert marked_steps() == before + 1


# --- weights


def test_each_set_of_weights_has_a_recording_and_is_not_copied() -> None:
    """As where each layer of a model is compiled by itself: all call one compiled graph, with weights of their own."""
    wrapper = Wrapper()
    part, weights = wrapper.partition(double, 2, static=(1,)), [torch.randn(8) for _ in range(3)]
    held = [torch.randn(8)]  # so that each input has another address
    for _ in range(4):
        wrapper.driver.asked.clear()
        for w in weights:
            held.append(torch.randn(8))
            (out,) = wrapper.call(part, held[-1], w)
            assert torch.equal(out, held[-1] * 2 + w)
    assert [each[:2] for each in asked(wrapper)] == [("copy", 1), ("replay", 2), ("copy", 1)] + [
        each for number in (0, 1) for each in (("copy", 1), ("replay", number), ("copy", 1))
    ]
    assert not wrapper.warned


def test_layers_that_train_have_recordings_each() -> None:
    """The forwards of all layers come before their backwards, so the first layer's has to be recorded first."""
    wrapper = Wrapper()
    forward = wrapper.partition(lambda x, w: (x * w, x + w), 2, results=2, static=(1,), graphs=wrapper.role(1))
    backward = wrapper.partition(lambda saved, w, g: (saved * g * w,), 3, static=(1,), graphs=wrapper.role())
    given, weights = wrapper.role(1), [torch.randn(8) for _ in range(3)]
    for _ in range(6):
        wrapper.driver.asked.clear()
        x, saved = torch.randn(8), list[Tensor]()
        for w in weights:
            wanted = x * w, x + w
            x, kept = given.given(forward(x, w))
            assert torch.equal(x, wanted[0]) and torch.equal(kept, wanted[1])
            saved.append(kept)
            del kept
        grad = torch.ones(8)
        for w in reversed(weights):
            wanted = saved[-1] * grad * w
            (grad,) = wrapper.graphs.given(backward(saved.pop(), w, grad))
            assert torch.equal(grad, wanted)
    assert not wrapper.driver.did("record") and len(wrapper.driver.did("replay")) == 6
    assert not wrapper.warned


def test_sets_of_weights_are_limited() -> None:
    wrapper = Wrapper()
    part, x, held = wrapper.partition(double, 2, static=(1,)), torch.randn(8), list[Tensor]()
    for _ in range(MOST_SETS + 3):
        held.append(torch.randn(8))
        assert torch.equal(wrapper.call(part, x, held[-1])[0], x * 2 + held[-1])
    assert len(wrapper.driver.did("record")) == MOST_SETS
    assert wrapper.warned == ["double: no more than 64 sets of weights are recorded; others run without a CUDA graph"]


# --- sizes, streams, threads, pools


def test_each_size_has_a_recording() -> None:
    def sized(x: Tensor, size: int) -> tuple[Tensor]:
        return (x[:size] * 2,)

    wrapper = Wrapper()
    part, x = wrapper.partition(sized, 1), torch.randn(300)
    for size in (3, 5, 3, 5, 3):
        assert torch.equal(wrapper.call(part, x, size)[0], x[:size] * 2)
    assert len(wrapper.driver.did("record")) == 2 and wrapper.told[0] == "sized: recorded for 3, no input copied"
    for size in range(100, 100 + MOST_SIZES):
        assert torch.equal(wrapper.call(part, x, size)[0], x[:size] * 2)
    assert wrapper.warned == [f"sized: no more than {MOST_SIZES} sizes are recorded; others run without a CUDA graph"]


def test_each_stream_has_recordings_and_a_pool() -> None:
    wrapper = Wrapper()
    part, x, w = wrapper.partition(double, 2), torch.randn(8), torch.randn(8)
    for number in (1, 2) * 3:
        wrapper.driver.stream = Stream(0, number)
        assert torch.equal(wrapper.call(part, x, w)[0], x * 2 + w)
    assert wrapper.driver.did("record") == [("record", 0, 1), ("record", 1, 2)]
    assert set(wrapper.driver.devices) == {"cuda:0"}


def test_two_threads_get_their_own_results() -> None:
    wrapper = Wrapper()
    part, w = wrapper.partition(double, 2), torch.randn(64)
    wrong: list[int] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for number in range(200):
            x = torch.randn(64, generator=generator)
            if not torch.equal(wrapper.call(part, x, w)[0], x * 2 + w):
                wrong.append(number)

    threads = [Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_thread_runs_the_function_before_it_records() -> None:
    """cuBLAS and cuDNN have a handle for each thread, which cannot be made in a recording."""
    wrapper = Wrapper()
    part, x, w = wrapper.partition(double, 2), torch.randn(8), torch.randn(8)
    wrapper.call(part, x, w)
    for _ in range(2):
        thread = Thread(target=wrapper.call, args=(part, x, w))
        thread.start()
        thread.join()
        assert not wrapper.driver.did("record")
    for records in (1, 1):
        assert torch.equal(wrapper.call(part, x, w)[0], x * 2 + w)
        assert len(wrapper.driver.did("record")) == records


def test_a_recording_that_fails_runs_without_a_graph() -> None:
    wrapper = Wrapper()
    part, x, w = wrapper.partition(double, 2), torch.randn(8), torch.randn(8)
    wrapper.driver.failure = "there is no room for its pool: out of memory"
    for _ in range(4):
        assert torch.equal(wrapper.call(part, x, w)[0], x * 2 + w)
    assert not asked(wrapper)
    assert wrapper.warned == ["double: it runs without a CUDA graph: there is no room for its pool: out of memory"]


def test_a_call_that_the_user_records_is_no_recording_of_ours() -> None:
    wrapper = Wrapper(RecordingDriver(is_users=True))
    part, x, w = wrapper.partition(double, 2), torch.randn(8), torch.randn(8)
    for _ in range(3):
        assert torch.equal(wrapper.call(part, x, w)[0], x * 2 + w)
    assert not asked(wrapper)


def test_an_error_of_the_function_is_raised() -> None:
    def wrong(x: Tensor) -> tuple[Tensor]:
        raise IndexError(x.numel())

    with pytest.raises(IndexError, match="8"):
        Wrapper().partition(wrong, 1)(torch.randn(8))


def test_a_freed_wrapper_frees_its_pool() -> None:
    wrapper = Wrapper()
    part, x, w = wrapper.partition(double, 2), torch.randn(8), torch.randn(8)
    outs: Sequence[Any] = [wrapper.call(part, x, w) for _ in range(3)]
    graph = weakref.ref(wrapper.driver.recorded[0])
    wrapper.driver.recorded.clear()
    assert graph() is not None
    del wrapper, part
    gc.collect()
    assert graph() is None and torch.equal(outs[-1][0], x * 2 + w)


FAULTS: dict[str, Callable[[], object]] = {
    "graph-not-replayed": test_the_second_call_records_and_later_ones_replay,
    "graph-inputs-not-copied": test_the_second_call_records_and_later_ones_replay,
    "graph-usual-call-moved": test_an_input_that_moves_once_is_recorded_again_and_then_copied,
    "graph-moved-input-unseen": test_an_input_that_moves_once_is_recorded_again_and_then_copied,
    "graph-moves-not-counted": test_an_input_that_moves_once_is_recorded_again_and_then_copied,
    "graph-cold-thread-records": test_a_thread_runs_the_function_before_it_records,
    "graph-weights-copied": test_each_set_of_weights_has_a_recording_and_is_not_copied,
    "graph-weights-alike": test_each_set_of_weights_has_a_recording_and_is_not_copied,
    "graph-writes-lost": check_written,
    "graph-results-not-copied": test_results_that_are_held_keep_their_values,
    "graph-pool-for-each": test_forward_and_backward_share_a_pool_and_copy_nothing_between_them,
    "graph-saved-copied": test_forward_and_backward_share_a_pool_and_copy_nothing_between_them,
    "graph-held-overwritten": test_what_a_forward_saved_is_not_overwritten_by_the_next_forward,
    "graph-later-overwritten": test_a_replay_waits_for_results_of_later_recordings,
    "graph-old-results-silent": test_after_a_mark_a_replay_overwrites_and_a_reader_gets_an_error,
    "graph-sizes-alike": test_each_size_has_a_recording,
    "graph-streams-alike": test_each_stream_has_recordings_and_a_pool,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_noticed(fault: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        with pytest.raises((AssertionError, ValueError)):
            FAULTS[fault]()
        assert was_reached()
