"""The command line, and one small run through real measuring processes."""

from pathlib import Path
from typing import Any

import pytest

from minductor.bench import bench_results, cases, harness, micro


def test_everything_is_run_unless_parts_are_named() -> None:
    settings = harness.parse([])
    assert settings.running == cases.micro_names() + cases.model_names()
    assert settings.first_calls == harness.FIRST_CALL_CASES
    assert settings.backends == ("eager", "inductor", "minductor") and settings.rounds == 20
    settings = harness.parse(["--models", "--only", "gpt", "--backends", "eager,minductor"])
    assert settings.running == ("model/gpt/inference", "model/gpt/training")
    assert settings.first_calls == () and settings.backends == ("eager", "minductor")
    settings = harness.parse(["--first-calls"])
    assert settings.running == () and len(settings.first_calls) == 2
    settings = harness.parse(["--frozen", "--only", "frozen/bert"])
    assert settings.running == ("frozen/bert",) and settings.first_calls == ()
    assert settings.backends == (
        "eager",
        "inductor",
        "inductor-frozen",
        "openvino",
        "minductor",
        "minductor-frozen",
    )
    assert len(harness.parse(["--frozen"]).running) == len(harness.parse(["--training"]).running) == 12
    assert harness.parse(["--training", "--only", "lstm"]).running == ("training/lstm",)
    assert harness.parse(["--frozen", "--backends", "eager,openvino"]).backends == ("eager", "openvino")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--only", "softmx_dim0"], "near: softmax_dim0"),
        (["--micro", "--only", "gpt"], "no case contains 'gpt'"),
        (["--rounds", "0"], "at least one round"),
        (["--size", "huge"], "invalid choice"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        harness.parse(argv)
    assert said in capsys.readouterr().err


def test_a_plot_without_matplotlib_is_refused_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness.plot.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        harness.parse(["--plot", "x.png"])
    assert "matplotlib" in capsys.readouterr().err


def test_a_small_run_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    argv = ["--micro", "--only", "micro/mean_all", "--rounds", "2", "--backends", "eager", "--json", str(path)]
    assert harness.main(argv) == 0
    assert "micro/mean_all" in capsys.readouterr().out
    found = bench_results.load(path.read_text(encoding="utf-8"))
    assert [case.case for case in found.running] == ["micro/mean_all"]
    assert found.removed == micro.REMOVED and found.machine["torch"]
    assert not any("/" in value for value in found.machine.values())


def test_a_measuring_process_that_dies_is_told(tmp_path: Path) -> None:
    with pytest.raises(harness.MeasureError, match="nap"):
        harness.measure({"do": "nap"}, tmp_path)


def test_a_backend_that_kills_its_process_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(request: dict[str, Any], caches: Path) -> dict[str, Any]:
        if "aot_eager" in request["backends"]:
            raise harness.MeasureError("exit code -11: it said nothing")
        samples = {name: {"cpu": [1.0], "wall": [1.0]} for name in request["backends"]}
        return {"case": request["case"], "samples": samples, "accuracy": {}, "failures": {}}

    monkeypatch.setattr(harness, "measure", fake)
    settings = harness.parse(["--micro", "--only", "argmax", "--backends", "eager,aot_eager"])
    found = harness.measure_running("micro/argmax", settings, Path("unused"))
    assert list(found.samples) == ["eager"] and found.failures == {"aot_eager": "exit code -11: it said nothing"}


def test_first_calls_preload_what_the_first_process_imported_and_cold_ones_share_no_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, tuple[str, ...], str]] = []

    def fake(request: dict[str, Any], caches: Path) -> dict[str, Any]:
        seen.append((request["backend"], tuple(request["modules"]), caches.name))
        if request["backend"] == "inductor":
            return {"failure": "no compiler"}
        return {"cpu": 1.0, "wall": 2.0, "modules": ["some.module"]}

    monkeypatch.setattr(harness, "measure", fake)
    settings = harness.parse(["--first-calls", "--only", "layer_norm_gelu", "--first-call-runs", "2"])
    cold, warm, whole = harness.measure_first_call(cases.FLAGSHIP, settings, Path("scratch"))
    assert (cold.cache, warm.cache, whole.cache) == ("cold", "warm", "warm+imports")
    assert list(cold.samples) == ["minductor", "aot_eager"] and cold.failures == {"inductor": "no compiler"}
    assert warm.samples["minductor"] == bench_results.Samples((1.0, 1.0), (2.0, 2.0))
    assert seen[:3] == [(name, (), "warm") for name in ("inductor", "minductor", "aot_eager")]
    assert [modules for _, modules, _ in seen[3:6]] == [("some.module",), ("some.module",), ()]
    folders = [folder for _, _, folder in seen[3:] if folder != "warm"]
    assert len(folders) == len(set(folders)) == 4
