"""A claim fails exactly when its whole interval is on the wrong side; what a backend cannot run fails."""

import pytest

from minductor.bench import cases, claims
from minductor.bench.bench_results import Accuracy, FirstCall, Results, Running, Samples
from minductor.bench.bootstrap import Estimate

CLOSE = Accuracy(result=0, error=3.0, eager=1.0, bound=4.0)


def times(*seconds: float) -> Samples:
    return Samples(seconds, tuple(each / 2 for each in seconds))


def running(case: str, *, ours: float, eager: float = 1.0, inductor: float = 1.0) -> Running:
    samples = {"eager": times(*[eager] * 5), "inductor": times(*[inductor] * 5), "minductor": times(*[ours] * 5)}
    return Running(case, samples, {"minductor": CLOSE})


def verdicts(*cases_run: Running | FirstCall) -> dict[str, str]:
    results = Results(
        {},
        ("eager", "inductor", "minductor"),
        5,
        tuple(case for case in cases_run if isinstance(case, Running)),
        tuple(case for case in cases_run if isinstance(case, FirstCall)),
        {},
    )
    return {claim.text: claim.verdict for claim in claims.check(results)}


@pytest.mark.parametrize(
    ("side", "estimate", "verdict"),
    [
        ("at least", Estimate(2.0, 1.9, 2.1), "pass"),
        ("at least", Estimate(1.95, 1.8, 2.0), "pass (within noise)"),
        ("at least", Estimate(1.9, 1.8, 1.99), "FAIL"),
        ("at most", Estimate(2.0, 1.9, 2.1), "pass"),
        ("at most", Estimate(2.1, 2.0, 2.2), "pass (within noise)"),
        ("at most", Estimate(2.2, 2.01, 2.3), "FAIL"),
        ("at most", Estimate(float("nan"), float("nan"), float("nan")), "FAIL"),
    ],
)
def test_judge(side: str, estimate: Estimate, verdict: str) -> None:
    assert claims.judge("x", claims.Bound(2.0, side), estimate).verdict == verdict


def test_the_flagship_is_held_against_both_and_other_cases_against_one() -> None:
    found = verdicts(running(cases.FLAGSHIP, ours=0.5, inductor=0.9))
    assert found[f"{cases.FLAGSHIP}: CPU time of inductor over ours"] == "FAIL"
    assert found[f"{cases.FLAGSHIP}: CPU time of eager over ours"] == "pass"
    found = verdicts(running("micro/argmax", ours=1.2))
    assert found["micro/argmax: CPU time of eager over ours"] == "FAIL"
    assert verdicts(running("micro/argmax", ours=1.1))["micro/argmax: CPU time of eager over ours"] == "pass"
    found = verdicts(running("model/gpt/training", ours=1.05, eager=0.1))
    assert found["model/gpt/training: CPU time of inductor over ours"] == "FAIL"


def test_the_geometric_mean_counts_micro_cases_only() -> None:
    text = "micro cases: geometric mean over TorchInductor"
    fast, slow = running("micro/argmax", ours=0.5), running("micro/gather", ours=1.0)
    model = running("model/gpt/inference", ours=100.0)
    assert verdicts(fast, slow, model)[text] == "pass"
    assert verdicts(slow, model)[text] == "FAIL"


def test_errors_beyond_the_bound_fail_and_so_does_nan() -> None:
    text = "micro/argmax: error against float64 in ULP"
    good = running("micro/argmax", ours=0.5)
    assert verdicts(good)[text] == "pass"
    for error in (4.1, float("nan"), float("inf")):
        bad = Running(good.case, good.samples, {"minductor": Accuracy(0, error, 1.0, 4.0)})
        assert verdicts(bad)[text] == "FAIL"


def test_first_calls() -> None:
    cold = FirstCall(cases.GPT_TRAINING, "cold", {"minductor": times(11.0, 13.0, 12.5)})
    assert verdicts(cold) == {"model/gpt/training: cold first call, CPU seconds": "pass (within noise)"}
    warm = FirstCall(cases.FLAGSHIP, "warm", {"minductor": times(2.0, 2.1), "aot_eager": times(1.0, 1.0)})
    assert verdicts(warm) == {"micro/layer_norm_gelu: warm first call over aot_eager": "FAIL"}


def test_what_ours_cannot_run_fails_and_what_was_not_measured_claims_nothing() -> None:
    broken = Running("micro/argmax", {"eager": times(1.0)}, {}, {"minductor": "RuntimeError: no"})
    assert verdicts(broken) == {"micro/argmax: CPU time of eager over ours": "FAIL"}
    assert verdicts(FirstCall(cases.FLAGSHIP, "cold", {}, {"minductor": "no"})) == {
        "micro/layer_norm_gelu: cold first call, CPU seconds": "FAIL"
    }
    assert verdicts(Running("micro/argmax", {"eager": times(1.0), "inductor": times(1.0)}, {})) == {}


def frozen(case: str, **cpu: float) -> Running:
    """A case of frozen inference; an underscore in the name of a backend stands for a dash."""
    samples = {name.replace("_", "-"): times(*[seconds] * 5) for name, seconds in cpu.items()}
    return Running(case, samples, {name: CLOSE for name in samples})


def test_frozen_cases_are_held_against_the_better_one_of_eager_and_frozen_inductor() -> None:
    text = "frozen/resnet: CPU time of {} over minductor-frozen"
    found = verdicts(frozen("frozen/resnet", eager=1.0, inductor_frozen=0.8, minductor_frozen=0.9))
    assert found[text.format("inductor-frozen")] == "FAIL" and text.format("eager") not in found
    found = verdicts(frozen("frozen/resnet", eager=1.0, inductor_frozen=1.2, minductor_frozen=1.02))
    assert found[text.format("eager")] == "pass"
    found = verdicts(frozen("frozen/resnet", eager=1.0, minductor_frozen=1.1))
    assert found[text.format("eager")] == "FAIL"
    assert found["frozen/resnet: error of minductor-frozen against float64 in ULP"] == "pass"


def test_training_is_held_against_the_better_one_of_eager_and_inductor() -> None:
    text = "training/resnet: CPU time of {} over ours"
    found = verdicts(frozen("training/resnet", eager=1.0, inductor=0.8, minductor=0.9))
    assert found[text.format("inductor")] == "FAIL" and text.format("eager") not in found
    found = verdicts(frozen("training/resnet", eager=1.0, inductor=1.2, minductor=0.9))
    assert found[text.format("eager")] == "pass" and text.format("inductor") not in found
    assert found["training cases: geometric mean over eager"] == "FAIL"  # 1.11


def test_the_means_of_frozen_cases_have_a_bound_each() -> None:
    one = frozen("frozen/resnet", eager=1.0, minductor=0.8, minductor_frozen=0.8)
    two = frozen("frozen/bert", eager=1.0, minductor=0.9, minductor_frozen=0.8)
    found = verdicts(one, two)
    assert found["frozen cases: geometric mean of minductor over eager"] == "pass"  # 1.18
    assert found["frozen cases: geometric mean of minductor-frozen over eager"] == "FAIL"  # 1.25
    assert "micro cases: geometric mean over TorchInductor" not in found


def test_a_backend_without_the_option_fails_its_own_claim_only() -> None:
    case = frozen("frozen/resnet", eager=1.0, inductor_frozen=1.0, minductor=0.5)
    broken = Running(case.case, case.samples, case.accuracy, {"minductor-frozen": "UnknownOption: freeze"})
    failed = [text for text, verdict in verdicts(broken).items() if verdict == "FAIL"]
    assert len(failed) == 1 and failed[0].endswith("over minductor-frozen")
