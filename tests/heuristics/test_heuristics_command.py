"""`minductor heuristics`: measurements are added and never lost, and each bad file is one clear error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minductor.__main__ import main
from minductor.bench.measure_options import Case, Function
from minductor.commands.heuristics_command import collect
from minductor.core.errors import BadHeuristic
from minductor.heuristics import learned
from minductor.heuristics.features import FEATURES
from minductor.heuristics.generate import generate
from minductor.heuristics.learn import learn
from minductor.heuristics.samples import Sample, cases_of, line_of, read
from tests.heuristics.kernels import damaged, module, sample, samples


class Bench:
    """Measures made-up kernels, counts them, and fails for those that are named in `failing`."""

    def __init__(self, failing: Mapping[str, Exception] | None = None) -> None:
        self.failing, self.measured = failing or {}, list[str]()

    def __call__(self, case: SimpleNamespace) -> Sample:
        self.measured.append(case.name)
        if case.name in self.failing:
            raise self.failing[case.name]
        return sample(case.rows, case.row)


def cases() -> Iterator[SimpleNamespace]:
    for row in range(16, 24):
        yield SimpleNamespace(name=f"64x{row}", rows=64, row=row)


def never() -> bool:
    return False


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_collecting_goes_on_where_it_stopped(out: Path) -> None:
    bench = Bench()
    collect(cases(), bench, out, lambda: len(bench.measured) == 3)
    assert bench.measured == ["64x16", "64x17", "64x18"]
    collect(cases(), bench, out, never)
    assert bench.measured == [case.name for case in cases()]
    assert [each.case for each in read(out.read_text().splitlines())] == bench.measured


def test_a_kernel_that_fails_is_noted_and_not_tried_again(out: Path) -> None:
    collect(cases(), Bench({"64x17": ValueError("3 kernels")}), out, never)
    lines = out.read_text().splitlines()
    assert json.loads(lines[1]) == {"case": "64x17", "failed": "ValueError: 3 kernels"}
    assert len(read(lines)) == 7
    again = Bench()
    collect(cases(), again, out, never)
    assert again.measured == []


def test_a_lost_gpu_stops_the_process_and_the_next_one_goes_on(out: Path) -> None:
    with pytest.raises(BadHeuristic, match="the GPU is lost"):
        collect(cases(), Bench({"64x17": RuntimeError("CUDA error: an illegal address")}), out, never)
    assert cases_of(out.read_text().splitlines()) == {"64x16", "64x17"}
    again = Bench()
    collect(cases(), again, out, never)
    assert again.measured[0] == "64x18"


def test_a_line_that_was_cut_short_is_measured_again(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = line_of(sample(64, 16))
    out.write_text(f"{whole}\n{whole[:40]}", encoding="utf-8")
    assert main(["heuristics", "collect", "rows", "--out", str(out), "--seconds", "0"]) == 0
    assert out.read_text() == f"{whole}\n"
    assert f"1 kernels with times in {out}, of 1 that were tried" in capsys.readouterr().out


def test_collect_measures_a_kernel_on_this_machine(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from minductor.bench import measure_options
    from minductor.bench.clients import measure_case
    from minductor.bench.measure_rows import RowCase

    monkeypatch.setattr(measure_options, "SLICE", 1e-5)
    case, place = RowCase("softmax", "float32", 256, 16), measure_options.place_of("cpu")
    collect([case], lambda each: measure_case("rows", each, place, str(out.parent), nullcontext()), out, never)
    (found,) = read(out.read_text().splitlines())
    assert (found.choice, found.case, found.target) == ("rows", "softmax float32 256x16", "cpu")
    assert set(found.times) == {"rows", "side_by_side", "phases"} and found.default == "side_by_side"
    assert {**found.features} | {"rows": 256, "row": 16, "in_turn": 2} == found.features
    assert {"torch", "python", "minductor"} <= set(found.versions) and found.device


@pytest.mark.parametrize(
    ("case", "says"), [(("sum", "float32", 256, 16), "a single recipe"), (("range", "float32", 4, 131072), "in_parts")]
)
def test_kernels_that_are_no_measurement_say_why(out: Path, case: tuple[str, str, int, int], says: str) -> None:
    from minductor.bench.clients import measure_case
    from minductor.bench.measure_options import place_of
    from minductor.bench.measure_rows import RowCase

    with pytest.raises(ValueError, match=says):
        measure_case("rows", RowCase(*case), place_of("cpu"), str(out.parent), nullcontext())


def test_recipes_of_a_gpu_are_found_without_one() -> None:
    from minductor.bench.measure_rows import FUNCTIONS, RowCase, row_options

    torch._dynamo.reset()
    found = row_options(FUNCTIONS["softmax"], RowCase("softmax", "bfloat16", 4096, 3000).args("cpu"), "sm_90")
    assert found.target == "sm_90" and found.default in found.options
    assert {"persistent", "persistent8", "looped", "online"} <= set(found.options)
    assert {**found.features} | {"rows": 4096, "row": 3000, "itemsize": 2, "is_kept": 1} == found.features


def test_cases_are_the_same_each_time() -> None:
    from itertools import islice

    from minductor.bench.clients import CLIENTS

    assert list(CLIENTS) == list(FEATURES)
    for choice, client in CLIENTS.items():
        for device in ("cpu", "cuda"):
            cases = [*islice(client.cases(device), 99)]
            assert cases == [*islice(client.cases(device), 99)], choice


def choices_of_a_gpu() -> Iterator[tuple[str, Case, Sequence[str], Mapping[str, float]]]:
    """A case of each choice that only a GPU has, with its options, the default first, and some features."""
    from minductor.bench.measure_cut import CutCase
    from minductor.bench.measure_products import ProductCase

    cut = {"rows": 1, "row": 1 << 18, "parts": 16, "scans": 0, "is_contiguous": 1}
    yield "cut", CutCase("sum", "float32", 1, 1 << 18), ("cut", "whole"), cut
    cut = {"rows": 1 << 7, "row": 1 << 11, "is_contiguous": 0}
    yield "cut", CutCase("sum_of_columns", "float32", 1 << 11, 1 << 7), ("cut", "whole"), cut
    product = {"batch": 1, "m": 32, "n": 48, "k": 40, "after": 2, "base": 0, "left_inner": 1, "right_inner": 1}
    yield "products", ProductCase("relu", "float32", 1, 32, 48, 40, False, True), ("extern", "native"), product
    product = {"batch": 3, "k": 12, "after": 2, "itemsize": 2, "left_inner": 0, "right_inner": 0, "alignment": 32}
    yield "products", ProductCase("gate", "float16", 3, 32, 48, 12, True, False), ("native", "extern"), product


@pytest.mark.parametrize("choice", [*choices_of_a_gpu()], ids=lambda each: each[1].name)
def test_collecting_for_a_gpu_runs_each_option(
    out: Path, choice: tuple[str, Case, Sequence[str], Mapping[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's interpreter runs what is measured, and a clock of made-up times measures it."""
    from minductor.bench import measure_options
    from minductor.bench.clients import measure_case
    from minductor.bench.measure_options import Place

    name, case, options, features = choice
    results, forced = list[torch.Tensor](), list[str]()
    own = measure_options._forced

    def spied(function: Function, args: Sequence[torch.Tensor], given: dict[str, str]) -> Function:
        forced.append(given[{"cut": "variant", "products": "matmul"}[name]])
        return own(function, args, given)

    monkeypatch.setattr(measure_options, "_forced", spied)

    def clock(calls: Mapping[str, Function], args: Sequence[torch.Tensor]) -> Mapping[str, Sequence[float]]:
        results.extend(call(*args).double() for call in calls.values())
        results.append(case.called(*(arg.double() for arg in args)))
        return {each: [1e-5 * (1 + n)] * 3 for n, each in enumerate(calls)}

    place = Place("cpu", "interpret", clock, {"target": "interpret"})
    collect([case], lambda each: measure_case(name, each, place, str(out.parent), nullcontext()), out, never)
    (found,) = read(out.read_text().splitlines())
    assert (found.choice, found.case, found.target) == (name, case.name, "interpret")
    assert found.default == options[0] and set(found.times) == set(forced) == {*options}
    assert sorted(each.seconds for each in found.times.values()) == [1e-5, 2e-5]
    assert list(found.features) == list(FEATURES[name]) and {**found.features, **features} == found.features
    for result in results[:-1]:
        torch.testing.assert_close(result, results[-1], rtol=1e-2, atol=1e-1)


def test_a_function_that_is_not_asked_about_says_so() -> None:
    from minductor.bench.measure_cut import FUNCTIONS, CutCase, cut_options

    torch._dynamo.reset()
    with pytest.raises(ValueError, match="0 kernels have the choice cut"):
        cut_options(FUNCTIONS["sum"], CutCase("sum", "float32", 4096, 64).args("cpu"), "sm_90")


def test_choices_that_only_a_gpu_has(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["heuristics", "collect", "cut", "--out", str(out)]) == 1
    assert "cut cannot be measured on cpu" in capsys.readouterr().err


def test_learn_writes_a_module_and_says_how_it_does(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(out, *map(line_of, samples()))
    assert main(["heuristics", "learn", str(out), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "rows_for_sm_90.py").read_text(encoding="utf-8") == generate(learn(samples()))
    said = capsys.readouterr().out
    assert "  held out: kernels " in said and ", wrong 0, " in said
    assert '("rows", "sm_90"): "rows_for_sm_90",' in said


def test_show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    monkeypatch.setattr(learned, "GENERATED", {})
    assert main(["heuristics", "show"]) == 0
    assert capsys.readouterr().out == "Nothing is learned: prices and rules decide.\n"
    made = module(generate(learn(samples())))
    monkeypatch.setattr(learned, "GENERATED", {("rows", "sm_90"): "rows_for_x"})
    monkeypatch.setitem(sys.modules, "minductor.heuristics.generated.rows_for_x", made)
    assert main(["heuristics", "show"]) == 0
    said = capsys.readouterr().out
    assert "learned on 2026-01-01 from 200 kernels on GPU X, torch 2.11.0, triton 3.6.0" in said
    monkeypatch.setitem(sys.modules, "minductor.heuristics.generated.rows_for_x", damaged(made, date=None))
    assert main(["heuristics", "show"]) == 1
    assert "the metadata of a learned choice are damaged" in (said := capsys.readouterr().err)
    assert "why: 'date' is missing" in said and "hint: " in said


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{}"], "rows.jsonl:1"),
        ([], "these are too few measurements to learn from"),
        ([line_of(each) for each in samples(default="held", device="GPU Y")[:30]], "30 have steady times"),
    ],
)
def test_learn_says_what_is_wrong(out: Path, lines: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(out, *lines)
    assert main(["heuristics", "learn", str(out), "--out", str(out.parent)]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("minductor heuristics: [MD090] ")
    assert says in said.err and "hint: " in said.err
    assert list(out.parent.glob("*.py")) == []


def test_files_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing" / "rows.jsonl"
    assert main(["heuristics", "learn", str(missing)]) == 1
    assert "these measurements cannot be read" in capsys.readouterr().err
    assert main(["heuristics", "collect", "rows", "--out", str(missing)]) == 1
    assert "the measurements cannot be written" in capsys.readouterr().err
    out = written(tmp_path / "rows.jsonl", *map(line_of, samples()))
    assert main(["heuristics", "learn", str(out), "--out", str(missing.parent)]) == 1
    assert "the module cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["teach"], ["collect", "columns"], ["collect", "rows"], ["learn"]])
def test_wrong_command_lines(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["heuristics", *argv])
    assert stopped.value.code == 2
