"""The list of cases is complete against the recorded one, and each case runs in eager with finite results."""

from pathlib import Path

import pytest
import torch

from minductor.bench import cases, micro

RECORDED = tuple(Path(__file__).with_name("recorded_cases.txt").read_text(encoding="utf-8").split())


def test_no_recorded_case_is_gone_without_a_reason() -> None:
    assert [name for name in RECORDED if name not in micro.CASES and not micro.REMOVED.get(name, "").strip()] == []


def test_new_cases_are_recorded() -> None:
    assert [name for name in micro.CASES if name not in RECORDED] == []
    assert len(micro.CASES) >= 20


@pytest.mark.parametrize("name", cases.micro_names())
def test_micro_case_runs_and_has_gradients(name: str) -> None:
    program = cases.build(name)
    results = cases.step(program, program.function)
    assert all(result.isfinite().all() for result in results)
    if program.leaves:
        assert len(results) == 1 + len(program.leaves)
        assert all(gradient.abs().sum() > 0 for gradient in results[1:])


@pytest.mark.parametrize("name", ["micro/layer_norm_backward", "micro/bf16_pointwise", "model/resnet/training"])
def test_float64_program_is_the_same_function(name: str) -> None:
    own = cases.build(name, size="tiny")
    truth = cases.build(name, size="tiny", precision="float64")
    tolerance = 1e-1 if "bf16" in name else 1e-3
    got, expected = (cases.results_and_state(program, program.function) for program in (own, truth))
    for ours, theirs in zip(got, expected, strict=True):
        assert theirs.dtype == (torch.float64 if theirs.is_floating_point() else torch.int64)
        torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=tolerance, atol=tolerance)


def test_measuring_results_leaves_the_buffers_as_they_were() -> None:
    program = cases.build("model/resnet/training", size="tiny")
    before = [buffer.clone() for buffer in program.state]
    results = cases.results_and_state(program, program.function)
    assert all(torch.equal(a, b) for a, b in zip(before, program.state, strict=True))
    moved = results[-len(before) :]
    assert not any(torch.equal(a, b) for a, b in zip(before, moved, strict=True))


def test_measuring_results_writes_no_buffer_that_the_run_leaves_alone() -> None:
    program = cases.build("frozen/resnet", size="tiny")
    before = [buffer._version for buffer in program.state]
    cases.results_and_state(program, program.function)
    assert before and [buffer._version for buffer in program.state] == before


def test_matching_finds_by_part_and_refuses_with_a_hint() -> None:
    assert cases.matching(cases.model_names(), ("gpt",)) == ("model/gpt/inference", "model/gpt/training")
    assert cases.matching(("a", "b"), ()) == ("a", "b")
    with pytest.raises(ValueError, match="near: argmax"):
        cases.matching(cases.micro_names(), ("argmaks",))
    with pytest.raises(ValueError, match="full name"):
        cases.build("micro/argma")
