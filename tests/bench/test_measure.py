"""What runs inside a measuring process: errors in ULP, the worst result, CPU time with children, sound samples."""

import math
import subprocess
import sys

import pytest
import torch

from minductor.bench import cases, measure

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "truth", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0 + 2**-23, 1.0], [1.0, 1.0], 1.0),
        ([8.0, 2**-23], [8.0, 0.0], 0.125),  # counted at the largest element
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([NAN, 1.0], [NAN, 1.0], 0.0),
        ([0.0, 1.0], [NAN, 1.0], math.inf),
        ([NAN, 1.0], [0.0, 1.0], math.inf),
        ([INF, 1.0], [INF, 1.0], 0.0),
        ([-INF, 1.0], [INF, 1.0], math.inf),
        ([NAN, 1.0], [INF, 1.0], math.inf),
        ([INF, 1.0], [2.0, 1.0], math.inf),
        ([NAN], [NAN], 0.0),
    ],
)
def test_error_in_ulp(got: list[float], truth: list[float], expected: float) -> None:
    found = measure.error_in_ulp(torch.tensor(got), torch.tensor(truth, dtype=torch.float64))
    assert found == expected


def test_error_of_other_dtypes_and_shapes() -> None:
    half = torch.tensor([1.0 + 2**-7], dtype=torch.bfloat16)
    assert measure.error_in_ulp(half, torch.ones(1, dtype=torch.float64)) == 1.0
    assert measure.error_in_ulp(torch.tensor([1, 2, 3]), torch.tensor([1, 0, 0])) == 2.0
    assert measure.error_in_ulp(torch.ones(2), torch.ones(1, dtype=torch.float64)) == math.inf


def test_worst_is_the_result_nearest_to_or_beyond_its_bound() -> None:
    truth = [torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64), torch.tensor([5])]
    eps = 2**-23
    eager = [torch.ones(1) + 10 * eps, torch.ones(1), torch.tensor([5])]
    close = [torch.ones(1) + 19 * eps, torch.ones(1) + eps, torch.tensor([5])]
    assert measure.worst(close, eager, truth) == {"result": 0, "error": 19.0, "eager": 10.0, "bound": 20.0}
    far = [torch.ones(1) + 19 * eps, torch.ones(1) + 5 * eps, torch.tensor([5])]
    assert measure.worst(far, eager, truth) == {"result": 1, "error": 5.0, "eager": 0.0, "bound": 4.0}
    wrong = [*close[:2], torch.tensor([4])]
    assert measure.worst(wrong, eager, truth) == {"result": 2, "error": 1.0, "eager": 0.0, "bound": 0.0}


def test_cpu_seconds_count_a_living_child() -> None:
    # A child that works and then waits: getrusage alone would not see it.
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ninput()"
    before = measure.cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert measure.cpu_seconds() - before >= 0.4
        child.communicate(b"\n")
    assert measure.cpu_seconds() - before >= 0.4


def test_running_samples_every_backend_in_every_round_and_reports_failures() -> None:
    torch.compiler.reset()
    found = measure.running("micro/rms_norm_backward", ["eager", "aot_eager", "no_such_backend"], 3, "tiny")
    assert list(found["samples"]) == ["eager", "aot_eager"]
    for samples in found["samples"].values():
        assert len(samples["cpu"]) == len(samples["wall"]) == 3
        assert min(samples["wall"]) > 0
    assert found["accuracy"]["eager"]["error"] == found["accuracy"]["eager"]["eager"]
    assert list(found["failures"]) == ["no_such_backend"] and "no_such_backend" in found["failures"]["no_such_backend"]


def test_a_wrong_backend_shows_in_the_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(backend: str, function: cases.Function) -> cases.Function:
        return function if backend == "eager" else lambda *inputs: function(*inputs) + 0.1

    monkeypatch.setattr(measure, "compile_with", wrong)
    accuracy = measure.running("micro/sum_outer", ["eager", "wrong"], 1, "tiny")["accuracy"]
    assert accuracy["eager"]["error"] <= accuracy["eager"]["bound"]
    assert accuracy["wrong"]["error"] > accuracy["wrong"]["bound"]


def test_unknown_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="nap"):
        measure.answer({"do": "nap"})
