"""The choices `cut` and `products`: a learned option is obeyed, and each reason for which it is not asked is a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from minductor.bench.measure_options import asked
from minductor.core.expressions.expr import symbol
from minductor.frontend.rules import matmul
from minductor.heuristics.features import FEATURES, ProductSizes, product_features
from minductor.heuristics.generate import generate
from minductor.heuristics.learn import Learned, learn
from minductor.heuristics.learned import learned
from minductor.heuristics.samples import Sample, Times
from minductor.heuristics.tree import UNSURE, leaf_of, with_options
from minductor.ir.program.nodes import Extern, Kernel, NodeNote, Program
from minductor.ir.program.printer import print_program
from minductor.ir.program.variant_note import VariantNote
from minductor.options import Options
from minductor.passes.split import split as stage
from minductor.target import Env, by_name
from tests.frontend.tracing import lowered
from tests.heuristics.kernels import DEVICE, VERSIONS, answering, damaged, module
from tests.passes.test_stage_split import sum_of

HERE = Env(Options(), by_name("sm_90"), DEVICE, (("torch", "2.11.0"), ("triton", "3.6.0")))
OPTIONS: Mapping[str, Sequence[str]] = {"cut": ("whole", "cut"), "products": ("extern", "native")}
ASKING: Mapping[str, Any] = {"cut": stage, "products": matmul}
POINTS = 1000


class Run(NamedTuple):
    """The option that a program shows, its text and its notes."""

    option: str
    text: str
    notes: tuple[str, ...]


def run_of(program: Program, option: str) -> Run:
    notes = tuple(str(note) for note in program.notes if isinstance(note, NodeNote | VariantNote))
    return Run(option, print_program(program), notes)


def cut(size: int, env: Env = HERE) -> Run:
    """The stage `split` on the sum of 16 rows of this size."""
    program = stage.split(sum_of((16, size), (1,)), env)
    return run_of(program, "whole" if len(program.nodes) == 1 else "cut")


def product(size: int, env: Env = HERE) -> Run:
    """A product of matrices of 64 rows and columns, which sums so many products; and an addition."""
    (program,) = lowered(lambda a, b: a @ b + 1, torch.ones(64, size), torch.ones(size, 64), env=env).programs
    return run_of(program, "extern" if any(isinstance(node, Extern) for node in program.nodes) else "native")


BOUNDARY = {"cut": 200_000, "products": 32}  # sizes of which both options of a made-up table take as long
RUNS: Mapping[str, Callable[..., Run]] = {"cut": cut, "products": product}
# By choice a small size and a large one. Without a learned choice the first option is taken of one and the second of
# the other.
SIZES = {"cut": (40_000, 1_000_000), "products": (128, 8)}


def by_learned(patch: pytest.MonkeyPatch, choice: str, made: object) -> Callable[..., Run]:
    """The run of a choice for which `made` was generated."""
    patch.setattr(ASKING[choice], "learned", partial(learned, generated={(choice, "sm_90"): made}))
    return RUNS[choice]


# --- fake tables


def features_of_cut(rows: int, row: int) -> dict[str, float]:
    seen: list[Mapping[str, float]] = []

    def ask(choice: str, options: Sequence[str], features: Callable[[], Mapping[str, float]], env: Env) -> None:
        assert choice == "cut" and options == ("whole", "cut") and env == HERE
        seen.append(features())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "learned", ask)
        stage.split(sum_of((rows, row), (1,)), HERE)
    return dict(*seen)


def features_of_product(k: int) -> dict[str, float]:
    sizes = ProductSizes(1, 64, 64, k, 4, False, False, 1, True, False, left_row=k, right_row=64)
    return product_features(sizes)


@cache
def table(choice: str, is_turned: bool) -> Learned:
    """What a made-up table teaches: large sizes are faster by the second option; if `is_turned`, by the first one."""
    draw, measured = Random(0), list[Sample]()
    for number in range(200):
        size = int(2 ** (draw.uniform(15.2, 20.5) if choice == "cut" else draw.uniform(2, 9)))
        features = features_of_cut(16, size) if choice == "cut" else features_of_product(size)
        names = [*reversed(OPTIONS[choice])] if is_turned else OPTIONS[choice]
        seconds = (1e-5 * size / BOUNDARY[choice], 1e-5)
        times = {name: Times(each, 0.01, 15) for name, each in zip(names, seconds, strict=True)}
        fixed = (choice, f"{number}", f"{size}", "sm_90", DEVICE, "2026-01-01", VERSIONS, features)
        measured.append(Sample(*fixed, default=OPTIONS[choice][0], times=times))
    return learn(measured)


@pytest.mark.parametrize("choice", OPTIONS)
def test_fastest_option_of_the_table_is_taken(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both directions, one of which is against what prices or the rule say."""
    small, large = (min(SIZES[choice]), max(SIZES[choice]))
    for is_turned in (False, True):
        run = by_learned(monkeypatch, choice, module(generate(table(choice, is_turned))))
        options = [*reversed(OPTIONS[choice])] if is_turned else [*OPTIONS[choice]]
        for size, option in zip((small, large), options, strict=True):
            found = run(size)
            (other,) = {*OPTIONS[choice]} - {option}
            assert found.option == option, (is_turned, size, found.notes)
            said = f"by learned ({option} and not {other}, as learned from 200 kernels on GPU X)"
            assert [note for note in found.notes if said in note], found.notes


@pytest.mark.parametrize("choice", OPTIONS)
def test_generated_text_answers_as_the_tree_does(choice: str) -> None:
    found = table(choice, False)
    made = module(generate(found))
    draw, said = Random(1), set[str]()
    for _ in range(POINTS):
        drawn = {name: draw.uniform(*limits) for name, limits in made.METADATA["ranges"].items()}
        features = with_options(drawn, OPTIONS[choice], OPTIONS[choice])
        said.add(made.choose(features))
        assert made.choose(features) == leaf_of(found.tree, features).answer(found.threshold)
    assert {*OPTIONS[choice]} <= said
    assert list(made.METADATA["ranges"]) == list(FEATURES[choice])


# --- where it is not asked


def others(choice: str, size: int, patch: pytest.MonkeyPatch) -> tuple[SimpleNamespace, Run]:
    """A module that answers what is not taken of this size, and the run without a learned choice."""
    own = RUNS[choice](size)
    (other,) = {*OPTIONS[choice]} - {own.option}
    versions = {"torch": "2.11.0", "triton": "3.6.0"}
    made = answering("sm_90", other, OPTIONS[choice], choice, device=DEVICE, versions=versions)
    assert by_learned(patch, choice, made)(size).option == other
    return made, own


FALLBACKS: Mapping[str, tuple[Callable[[SimpleNamespace], object], Env, str]] = {
    "unsure": (lambda made: setattr(made, "choose", lambda features: UNSURE), HERE, "it is unsure"),
    "another device": (lambda made: None, replace(HERE, device="GPU Y"), "it was learned on GPU X, and this is GPU Y"),
    "another version": (
        lambda made: None,
        replace(HERE, software=(("torch", "2.11.0"), ("triton", "3.7.0"))),
        "it was learned with triton 3.6.0, and this is 3.7.0",
    ),
    "damaged": (
        lambda made: vars(made).update(vars(damaged(made, date=None))),
        HERE,
        "the metadata of a learned choice are damaged: 'date' is missing",
    ),
    "deterministic": (
        lambda made: None,
        replace(HERE, options=Options(deterministic=True)),
        "it changes bits, and results must be deterministic",
    ),
    "outside": (
        lambda made: made.METADATA.update(ranges=dict.fromkeys(made.METADATA["ranges"], (-2, -1))),
        HERE,
        "-2 to -1 was measured",
    ),
}


@pytest.mark.parametrize("number", (0, pytest.param(1, marks=pytest.mark.long)))
@pytest.mark.parametrize("why", FALLBACKS)
@pytest.mark.parametrize("choice", OPTIONS)
def test_prices_or_the_rule_decide_instead(choice: str, why: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is that without a learned choice, and one note more says why."""
    size = SIZES[choice][number]
    made, own = others(choice, size, monkeypatch)
    change, env, says = FALLBACKS[why]
    change(made)
    found = by_learned(monkeypatch, choice, made)(size, env)
    assert found.option == own.option and found.text == RUNS[choice](size, env).text
    more = [note for note in found.notes if "the learned choice is not used: " in note]
    assert len(more) == 1 and says in more[0]
    assert without(found.text) == without(own.text)


def without(text: str) -> str:
    """A program's text without its notes."""
    return "\n".join(line for line in text.splitlines() if "note" not in line)


@pytest.mark.parametrize("choice", OPTIONS)
@pytest.mark.parametrize("number", (0, 1))
def test_options_are_stronger(choice: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = SIZES[choice][number]
    made, own = others(choice, size, monkeypatch)
    run = by_learned(monkeypatch, choice, made)
    option = {"cut": "variant", "products": "matmul"}[choice]
    found = run(size, replace(HERE, options=Options(**{option: own.option})))
    assert found.option == own.option
    tuned = run(size, replace(HERE, options=Options(autotune=True)))
    assert not [note for note in (*found.notes, *tuned.notes) if "learned" in note]


def test_features_of_a_product_are_those_that_are_asked_about() -> None:
    def features(fn: Callable[..., Any], *args: Any) -> Mapping[str, float]:
        return asked("products", "minductor.frontend.rules.matmul", lambda program: "", fn, args, "sm_90").features

    torch._dynamo.reset()
    with torch.no_grad():
        plain = features(lambda a, b: a @ b + 1, torch.ones(64, 24), torch.ones(24, 64))
        assert plain == features_of_product(24)
        args = torch.ones(5, 8, dtype=torch.bfloat16), torch.ones(6, 8, dtype=torch.bfloat16).t(), torch.ones(5, 6)
        given = (args[0], args[1], args[2].bfloat16())
        found = features(lambda a, b, c: (torch.addmm(c, a, b).relu().t() * 2).sum(0), *given)
        expected = ProductSizes(1, 5, 6, 8, 2, False, True, 2, True, True, left_row=8, right_row=8)
        assert found == product_features(expected)
        batches = features(lambda a, b: torch.bmm(a, b), torch.ones(3, 5, 4).mT, torch.ones(3, 5, 7))
        expected = ProductSizes(3, 4, 7, 5, 4, False, False, 0, False, False, left_row=4, right_row=7)
        assert batches == product_features(expected)


def test_unknown_sizes_are_estimated() -> None:
    s = symbol("s0", "size", 2)
    found = sum_of((16, s), (1,), ((s, 1_000_000),))
    seen: list[Mapping[str, float]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "learned", lambda choice, options, features, env: seen.append(features()))
        stage.split(found, HERE)
    assert [each["row"] for each in seen] == [1_000_000]
    assert all(isinstance(node, Kernel) for node in found.nodes)
