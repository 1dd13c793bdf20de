"""The demo's verdicts, its reading of generated sources, and one tiny run from end to end."""

from pathlib import Path

import pytest

from minductor.bench import demo
from minductor.bench.demo import Training

SOURCE = """\
static inline float twice(float x) { return 2 * x; }

// nodes: add, layer_norm
// second line
extern "C" __attribute__((visibility("default"))) void fused_layer_norm_0(const float* x, float* y, long n) {
    for (long i = 0; i < n; ++i) {
        y[i] = twice(x[i]);
    }
}
extern "C" void fused_add_1(const float* x) {
}
extern "C" void declared_only(const float* x);
"""


def write_kernels(folder: Path) -> Path:
    (folder / "ab").mkdir()
    path = folder / "ab" / "kernels_0.cpp"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_generated_kernels_are_found_with_their_comments(tmp_path: Path) -> None:
    path = write_kernels(tmp_path)
    first, second = demo.generated_kernels(tmp_path)
    assert (first.name, second.name) == ("fused_layer_norm_0", "fused_add_1")
    assert first.path == path
    assert first.text == SOURCE[SOURCE.index("// nodes") : SOURCE.index('extern "C" void fused_add_1') - 1]
    assert second.text == 'extern "C" void fused_add_1(const float* x) {\n}'
    assert demo.choose((second, first)) == first
    assert demo.choose((second,)) == second


def test_no_kernels_is_a_failure_for_ours_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.print_kernels(tmp_path, "aot_eager")
    assert not demo.print_kernels(tmp_path, "minductor")
    assert "NOT OK" in capsys.readouterr().out
    write_kernels(tmp_path)
    assert demo.print_kernels(tmp_path, "minductor")
    assert "kernels generated: 2 in 1 files" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "factor", "is_close"),
    [(3, 1 + 0.5e-5, True), (3, 1 + 2e-5, False), (50, 1.5, True), (99, 1.005, True), (99, 1.02, False)],
)
def test_losses_must_agree_early_and_at_the_end(step: int, factor: float, is_close: bool) -> None:
    losses = tuple(5.0 - 0.02 * index for index in range(100))
    other = tuple(loss * factor if index == step else loss for index, loss in enumerate(losses))
    seconds = (0.1,) * 100
    assert demo.print_report(Training(losses, seconds), Training(other, seconds), "x") == is_close


@pytest.mark.parametrize("step", [0, 5, 99])
def test_nan_agrees_with_nothing(step: int) -> None:
    losses = (2.0,) * 100
    other = tuple(float("nan") if index == step else loss for index, loss in enumerate(losses))
    assert not demo.print_report(Training(losses, (0.1,) * 100), Training(other, (0.1,) * 100), "x")


def test_compile_time_is_the_first_step_beyond_an_ordinary_one() -> None:
    training = Training((1.0,) * 4, (5.0, 0.5, 0.4, 0.6))
    assert (training.step_seconds, training.first_call_seconds) == (0.5, 4.5)


def test_tiny_demo_runs_and_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo.tempfile, "tempdir", str(tmp_path))
    for name in ("MINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "replaced by the demo")  # and put back after the test
    assert demo.main(["--size", "tiny", "--steps", "12", "--batch", "2", "--backend", "aot_eager"]) == 0
    said = capsys.readouterr().out
    assert "losses of steps 1 to 10" in said and "loss of step 12" in said and "NOT OK" not in said


def test_too_little_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TEXT_LIMIT", 100)
    with pytest.raises(ValueError, match="too little to train on"):
        demo.read_corpus(tmp_path)
