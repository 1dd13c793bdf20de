"""Results come back from JSON as they were, and the tables have a row for each case and a column for each backend."""

import dataclasses
import json
from pathlib import Path

import pytest

from minductor.bench import bench_results, bench_tables, claims, plot
from minductor.bench.bench_results import Results, Running, Samples

# A real run of two backends on a few cases.
EXAMPLE = Path(__file__).with_name("example.json").read_text(encoding="utf-8")


def with_ours(found: Results) -> Results:
    """The example as if minductor had taken half of TorchInductor's time."""

    def half(case: Running) -> Running:
        peer = case.samples["inductor"]
        ours = Samples(tuple(each / 2 for each in peer.cpu), tuple(each / 2 for each in peer.wall))
        accuracy = {**case.accuracy, "minductor": case.accuracy["inductor"]}
        return dataclasses.replace(case, samples={**case.samples, "minductor": ours}, accuracy=accuracy)

    running = tuple(half(case) for case in found.running)
    return dataclasses.replace(found, backends=(*found.backends, "minductor"), running=running)


def test_json_round_trip() -> None:
    found = bench_results.load(EXAMPLE)
    assert bench_results.load(bench_results.dump(found)) == found
    assert len(found.running) >= 3 and found.first_calls
    assert all(len(samples.cpu) == found.rounds for case in found.running for samples in case.samples.values())


def test_another_schema_is_refused() -> None:
    other = {**json.loads(EXAMPLE), "schema": bench_results.SCHEMA + 1}
    with pytest.raises(ValueError, match=f"schema {bench_results.SCHEMA + 1}.*reads {bench_results.SCHEMA}"):
        bench_results.load(json.dumps(other))


def test_running_table_has_a_row_a_case_and_a_column_a_backend() -> None:
    found = with_ours(bench_results.load(EXAMPLE))
    header, *rows = bench_tables.running_table(found, claims.check(found)).splitlines()
    assert [row.split()[0] for row in rows] == [case.case for case in found.running]
    for name in ("eager ms", "inductor ms", "minductor ms", "eager/minductor cpu", "inductor/minductor cpu"):
        assert name in header
    assert "inductor/minductor wall" in header and header.endswith("verdict")
    assert all("2.00 [2.00, 2.00]" in row for row in rows)
    assert len({len(line) for line in (header, *rows) if line.endswith("verdict")}) == 1


def test_render_shows_every_claim_and_the_geometric_mean() -> None:
    found = with_ours(bench_results.load(EXAMPLE))
    judged = claims.check(found)
    text = bench_tables.render(found, judged)
    assert all(claim.text in text for claim in judged)
    assert "Geometric mean over the micro cases, inductor/minductor CPU time: 2.00 [2.00, 2.00]" in text
    assert f"of {len(judged)} hold" in text and "claims use CPU time" in text
    assert "Could not run" not in text and "Removed" not in text


def test_failures_and_removals_are_printed() -> None:
    found = with_ours(bench_results.load(EXAMPLE))
    first = found.running[0]
    broken = dataclasses.replace(
        first,
        samples={name: each for name, each in first.samples.items() if name != "minductor"},
        failures={"minductor": "RuntimeError: no rule"},
    )
    found = dataclasses.replace(found, running=(broken, *found.running[1:]), removed={"old": "it timed the launch"})
    judged = claims.check(found)
    text = bench_tables.render(found, judged)
    assert f"{first.case}: minductor: RuntimeError: no rule" in text
    assert "old: it timed the launch" in text
    row = next(line for line in bench_tables.running_table(found, judged).splitlines() if line.startswith(first.case))
    assert "error" in row and row.endswith("FAIL")


def test_a_run_without_ours_still_prints() -> None:
    found = bench_results.load(EXAMPLE)
    assert claims.check(found) == ()
    assert "eager/inductor cpu" in bench_tables.render(found, ())


def test_plot_is_a_png(tmp_path: Path) -> None:
    assert plot.missing() is None  # matplotlib comes with the test extra
    plot.draw(with_ours(bench_results.load(EXAMPLE)), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'minductor[test]'" in (plot.missing() or "")


def test_frozen_cases_have_a_table_of_their_own_with_the_means() -> None:
    def times(cpu: float, wall: float) -> Samples:
        return Samples((cpu,) * 3, (wall,) * 3)

    first = Running("frozen/bert", {"eager": times(4.0, 2.0), "inductor": times(1.0, 2.0)}, {}, {"openvino": "no"})
    second = Running("frozen/vit", {"eager": times(4.0, 2.0), "inductor": times(4.0, 0.5), "openvino": times(2, 2)}, {})
    found = Results({}, ("eager", "inductor", "openvino"), 3, (first, second), (), {})
    cpu, wall = (bench_tables.speedup_table(found, "frozen/", clock).splitlines() for clock in ("cpu", "wall"))
    assert cpu[0].split() == ["case", "eager", "ms", "inductor", "openvino"]
    assert cpu[1].split() == ["frozen/bert", "4000.00", "4.00", "[4.00,", "4.00]", "error"]
    assert cpu[3].split() == ["geometric", "mean", "2.00", "[2.00,", "2.00]", "2.00", "[2.00,", "2.00]"]
    assert wall[3].split() == ["geometric", "mean", "2.00", "[2.00,", "2.00]", "1.00", "[1.00,", "1.00]"]
    text = bench_tables.render(found, ())
    assert "\n".join(cpu) in text and "\n".join(wall) in text and "frozen/bert: openvino: no" in text
    assert "Running:" not in text  # no other case ran
