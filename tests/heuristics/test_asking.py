"""Asking a learned choice: where it is used, and each reason for which prices decide instead, with its note."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from minductor.core.errors import BadHeuristic
from minductor.cost.kernel_seconds import fastest
from minductor.heuristics import generated
from minductor.heuristics.features import OF_KERNEL, features_of
from minductor.heuristics.generate import generate
from minductor.heuristics.learn import learn
from minductor.heuristics.learned import GENERATED, Answer, learned
from minductor.heuristics.metadata import metadata_of
from minductor.heuristics.samples import Sample, read
from minductor.heuristics.tree import UNSURE, WORST, with_options
from minductor.ir.program.nodes import Kernel, NodeNote, Program
from minductor.ir.program.variant_note import VariantNote
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.inline.inline import inline
from minductor.passes.schedule import schedule as stage
from minductor.target import Env, by_name
from tests.heuristics.kernels import BOUNDARY, DEVICE, answering, damaged, module, samples
from tests.house.rules import ROOT
from tests.passes.test_recipes import softmax

HERE = Env(Options(), by_name("sm_90"), DEVICE, (("torch", "2.11.0"), ("triton", "3.6.0")))
SAFE = 1024  # rows of the kernels below


def joined(rows: int, length: int, env: Env) -> tuple[Kernel, Program]:
    """The kernel of a softmax before the stage `schedule`, and its program."""
    program = fuse(inline(softmax(rows, length), env), env)
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    return kernel, program


@cache
def of_softmax(row: int) -> dict[str, float]:
    """The features of a softmax of such rows."""
    kernel, program = joined(SAFE, row, HERE)
    return features_of(kernel, program.real_table(), ())


def likened(each: Sample) -> Sample:
    """A made-up measurement with the features that a softmax of its size has."""
    return each._replace(features={**of_softmax(int(each.features["row"])), "rows": each.features["rows"]})


@pytest.fixture(scope="module")
def rows() -> SimpleNamespace:
    return module(generate(learn(list(map(likened, samples())))))


def asked(
    made: SimpleNamespace, length: int, env: Env = HERE, options: tuple[str, ...] = ("held", "looped"), rows: int = SAFE
) -> Answer | None:
    """What is said of a softmax."""
    kernel, program = joined(rows, length, env)
    features = partial(features_of, kernel, program.real_table(), ())
    return learned("rows", options, features, env, {("rows", "sm_90"): made})


def test_learned_option_is_taken_with_a_note(rows: SimpleNamespace) -> None:
    said = asked(rows, BOUNDARY // 8)
    assert said == Answer("held", "held and not looped, as learned from 200 kernels on GPU X")
    assert asked(rows, BOUNDARY * 8) == Answer("looped", "looped and not held, as learned from 200 kernels on GPU X")


def test_where_nothing_is_learned_nothing_is_said(rows: SimpleNamespace) -> None:
    assert asked(rows, 100, replace(HERE, target=by_name("sm_80"))) is None
    assert asked(rows, 100, options=("elements", "square")) is None
    assert asked(rows, 100, options=("held", "looped", "a recipe that was not measured")) is None


@pytest.mark.parametrize(
    ("length", "env", "options", "says"),
    [
        (100, replace(HERE, device="GPU Y"), ("held", "looped"), "it was learned on GPU X, and this is GPU Y"),
        (100, replace(HERE, device=""), ("held", "looped"), "it was learned on GPU X, and this is no device"),
        (
            100,
            replace(HERE, software=(("torch", "2.11.0"), ("triton", "3.7.0"))),
            ("held", "looped"),
            "it was learned with triton 3.6.0, and this is 3.7.0",
        ),
        (100, replace(HERE, software=()), ("held", "looped"), "the versions of the software are not known"),
        (
            100,
            replace(HERE, options=Options(deterministic=True)),
            ("held", "looped"),
            "it changes bits, and results must be deterministic",
        ),
        (100, HERE, ("looped",), "it says held, which is not legal here"),
        (65536, HERE, ("held", "looped"), "row is 65536, and 16 to 13777 was measured"),
    ],
)
def test_prices_decide_instead(
    rows: SimpleNamespace, length: int, env: Env, options: tuple[str, ...], says: str
) -> None:
    assert asked(rows, length, env, options) == Answer("", f"the learned choice is not used: {says}")


def test_prices_decide_beside_the_boundary(rows: SimpleNamespace) -> None:
    said = [asked(rows, length) for length in range(BOUNDARY // 4, BOUNDARY * 4, 100)]
    assert Answer("", "the learned choice is not used: it is unsure") in said


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"device": None}, "'device' is missing"),
        ({"extra": 1}, "'extra' is unknown"),
        ({"versions": "2.11"}, "'versions' is '2.11', and it is a dict"),
        ({"threshold": "high"}, "'threshold' is 'high', and it is a float"),
        ({"kernels": 1.5}, "'kernels' is 1.5, and it is a int"),
        ({"ranges": {"row": (1, 2)}}, "the features are not those that minductor computes"),
        ({"ranges": dict.fromkeys(OF_KERNEL, 3)}, "'ranges' needs two numbers for each feature"),
    ],
)
def test_damaged_metadata_are_a_note(rows: SimpleNamespace, given: Mapping[str, Any], why: str) -> None:
    broken = damaged(rows, **given)
    said = f"the learned choice is not used: the metadata of a learned choice are damaged: {why}"
    assert asked(broken, 100) == Answer("", said)
    with pytest.raises(BadHeuristic) as caught:
        metadata_of(broken.METADATA, "rows_for_sm_90")
    assert caught.value.why == why and caught.value.where == "rows_for_sm_90"


def test_metadata_that_are_no_dict_are_a_note(rows: SimpleNamespace) -> None:
    broken = SimpleNamespace(METADATA=[], choose=rows.choose, __name__="generated")
    said = asked(broken, 100)
    assert said is not None and said.note.endswith("damaged: they are list and not a dict")


# --- in the stage


class Stage:
    """The stage `schedule` with a learned choice for CPUs; `prices` counts how often prices decide."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, made: SimpleNamespace) -> None:
        self.prices = 0

        def counted(prices: Any) -> str:
            self.prices += 1
            return fastest(prices)

        monkeypatch.setattr(stage, "learned", partial(learned, generated={("rows", "cpu"): made}))
        monkeypatch.setattr(stage, "fastest", counted)

    def __call__(self, **options: Any) -> tuple[str, str]:
        """The kernel's text and the notes, of a softmax of short rows."""
        env = Env(Options(**options), by_name("cpu"))
        program = stage.schedule(joined(4096, 24, env)[1], env)
        kinds = (NodeNote, VariantNote)
        notes = [str(note) for note in program.notes if isinstance(note, kinds) and note.stage == "schedule"]
        return str(program.nodes[0]), "; ".join(notes)


def test_stage_takes_the_learned_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    by_prices = Stage(monkeypatch, answering("cpu", "unsure"))
    assert by_prices(variant="side_by_side")[0] == by_prices()[0] != by_prices(variant="rows")[0]
    run = Stage(monkeypatch, answering("cpu", "rows"))
    text, notes = run()
    assert text == run(variant="rows")[0]
    assert "rows and not phases, side_by_side, as learned from 50 kernels on a machine" in notes
    assert run.prices == 0


def test_stage_asks_prices_once_where_the_choice_is_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Stage(monkeypatch, answering("cpu", "unsure"))
    text, notes = run()
    assert run.prices == 1
    assert text == run(variant="side_by_side")[0]
    assert "the learned choice is not used: it is unsure" in notes and "side_by_side 74.5 us" in notes


@pytest.mark.parametrize("options", [{"variant": "side_by_side"}, {"deterministic": True}])
def test_options_are_stronger_than_what_is_learned(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    run = Stage(monkeypatch, answering("cpu", "rows"))
    assert run(**options)[0] == run(variant="side_by_side")[0] != run()[0]


def test_a_choice_that_changes_no_bits_is_used_in_deterministic_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Stage(monkeypatch, answering("cpu", "rows", affects="perf"))
    assert run(deterministic=True)[0] == run(variant="rows")[0]


def test_stage_goes_on_where_metadata_are_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Stage(monkeypatch, answering("cpu", "rows", device=3))
    text, notes = run()
    assert text == run(variant="side_by_side")[0] and "'device' is 3" in notes


# --- features, and the table


def test_features_of_a_softmax() -> None:
    kernel, program = joined(64, 200, HERE)
    found = features_of(kernel, program.real_table(), ())
    assert list(found) == list(OF_KERNEL)
    sizes = {"rows": 64, "row": 200, "row_bytes": 800, "alignment": 32, "tail": 8, "padding": 1.28, "itemsize": 4}
    assert found | sizes == found
    reductions = {"reductions": 2, "values": 1, "in_turn": 2, "is_kept": 1, "is_contiguous": 1, "functions": 10}
    assert found | reductions | {"loads": 4, "stores": 4} == found


def test_features_do_not_depend_on_the_recipe() -> None:
    from minductor.passes.schedule import cpu_place, cpu_recipes

    env = Env(Options(), by_name("cpu"))
    kernel, program = joined(4096, 24, env)
    table = program.real_table()
    drafts = cpu_recipes.drafts(kernel, table, env.target, ())
    assert len(drafts) > 1
    found = [features_of(cpu_place.place(draft), table, ()) for draft in drafts.values()]
    assert all(each == found[0] for each in found)


def test_generated_modules_are_sound() -> None:
    """METADATA are complete and belong to the row, the held-out rule holds, and answers are options."""
    draw = Random(0)
    for (choice, target), name in GENERATED.items():
        made = import_module(f"{generated.__name__}.{name}")
        found = metadata_of(made.METADATA)
        assert (found.choice, found.target) == (choice, target)
        assert found.held_out["wrong"] == 0 and found.held_out["worst"] <= WORST <= found.held_out["best"]
        said = set[str]()
        for number in range(2000):  # half of the numbers are small ones: most of what is measured is
            power = 1 if number % 2 else 8
            drawn = {
                feature: low + (high - low) * draw.random() ** power for feature, (low, high) in found.ranges.items()
            }
            has = {option for option in found.options if draw.random() < 0.5}
            said.add(made.choose(with_options(drawn, has, found.options)))
        assert UNSURE in said and len(said) > min(2, len(found.options) - 1) and said <= {*found.options, UNSURE}


def test_generated_modules_are_what_their_measurements_teach() -> None:
    for name in GENERATED.values():
        path = ROOT / "benchmarks" / f"{name}.jsonl"
        measured = read(path.read_text(encoding="utf-8").splitlines(), str(path))
        text = (Path(generated.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        assert generate(learn(measured)) == text


def test_modules_and_rows_of_the_table_are_the_same() -> None:
    files = {path.stem for path in Path(generated.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(GENERATED.values())
