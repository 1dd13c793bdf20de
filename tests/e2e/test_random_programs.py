"""Random programs, compiled against eager: some here, thousands with `make programs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pytest_plugin.random_programs.programs import Input, Node, Program
from pytest_plugin.random_programs.verdict import judge
from tests.e2e.hunt import KINDS, Name, compile_function, load, main, names, table
from tests.workers import append, share

FIRST = 1_000_000  # other ones than those of the hunt


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.compiler.reset()


@pytest.mark.parametrize(("first", "count"), [(FIRST, 2), pytest.param(FIRST + 2, 4, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_eager(kind: str, first: int, count: int) -> None:
    bad: list[str] = []
    words: list[str] = []
    for number in range(first, first + count):
        program = Name(kind, number).program()
        found = judge(program, compile_function(dynamic=True if program.scalable else None, backend="minductor"))
        words.append(found.word)
        if found.is_bad:
            bad.append(f"{found.word}: {found.why}{program}")
    assert not bad, "\n".join(bad)
    # programs that cannot be judged are few
    assert words.count("right") >= count - 1, words


# --- what random programs found


def found(inputs: tuple[str, ...], *lines: str, outputs: tuple[str, ...] = (), scalable: bool = False) -> Program:
    nodes = [Node(f"t{n}", line, "arithmetic", rounds=True) for n, line in enumerate(lines)]
    given = tuple(Input(f"x{n}", text) for n, text in enumerate(inputs))
    return Program(given, tuple(nodes), outputs or (nodes[-1].target,), scalable=scalable)


FOUND: dict[str, Program] = {
    # a literal has no name that a thread could have of its own
    "constant_truth": found(
        (
            "tensor((1, 1), torch.float32, 'a').expand(1, 33)",
            "tensor((1, 17, 33), torch.float32, 'b').permute(1, 2, 0)",
        ),
        "torch.index_select(x1, 2, torch.arange(x1.shape[2] - 1, -1, -1))",
        "t0[:, torch.tensor([0, -1])]",
        "x0.bool().repeat(2, 1)",
        "t2.masked_fill(t1 > 0.25, -1)",
        "t3.unfold(0, 2, 1)",
        scalable=True,
    ),
    # two phases over the same parts of an axis whose size is not known
    "parts_twice": found(
        ("tensor((16, 65, 16), torch.float32, 'a').permute(1, 2, 0)",),
        "torch.logsumexp(torch.log_softmax(x0, 2), 0)",
        scalable=True,
    ),
    # statistics that do not vary over an expanded axis have an accumulator for each element: no row can keep them
    "expanded_statistics": found(
        ("tensor((17, 17, 5), torch.float32, 'a')",), "x0.expand(2, *x0.shape).erf()", "torch.softmax(t0, 2) ** 2"
    ),
    # neither place nor value varies along the second dimension, and each of its points is a term all the same
    "expanded_terms": found(
        ("tensor((8, 1), torch.float32, 'a')", "tensor((8, 1), torch.int64, 'b')"),
        "x0.expand(8, 3)",
        "torch.zeros(8, 3).scatter_add(1, (x1 % 3).expand(8, 3), t0)",
        "torch.ones(8, 3).scatter_reduce(1, (x1 % 3).expand(8, 3), t0, 'prod')",
        "t1 + t2",
    ),
    # what a scan leaves for a later pass over the row would need a row of unknown size
    "scanned_twice": found(
        ("tensor((33, 65), torch.float32, 'a')",), "torch.cumprod(x0, 1)", "F.normalize(x0 + t0, dim=1)", scalable=True
    ),
    # in one kernel an operand is written anew, although nobody reads that, and its last reader's result is made
    "operand_written_too": found(
        ("tensor((4, 1), torch.float32, 'a').expand(4, 65)",),
        "F.interpolate(x0[None], scale_factor=2.0).amin(2)",
        "t0 - 2 * t0",
        "t0.index_put((t0 > 1,), torch.tensor(1.0))",
        "torch.index_select(t2, -2, torch.arange(t2.shape[-2] - 1, -1, -1))",
        outputs=("t1", "t3"),
    ),
    # a slice written first, then all of it read
    "window_written": found(
        ("tensor((5, 6), torch.float32, 'a')",), "x0.clone()", "t0.unbind(0)[0].mul_(0.5)", "t0.tanh()"
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    program = FOUND[name]
    assert judge(program, compile_function(dynamic=program.scalable or None, backend="minductor")).word == "right"


# --- the hunt


def test_shards_share_the_programs() -> None:
    everything = names(0, 200)
    assert len(set(everything)) == 200
    parts = [share(everything, f"{n}/3") for n in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(everything) and min(map(len, parts)) > 0


def test_the_hunt_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both have a result, so no worker starts; the wrong one is not forgotten."""
    results = tmp_path / "programs.jsonl"
    append(results, {"program": "mixed.0", "word": "right", "why": ""})
    append(results, {"program": "sizes.0", "word": "wrong", "why": "because"})
    assert main(["--only", "mixed.0,sizes.0", "--results", str(results)]) == 1
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["mixed", "1", "1", "0", "0", "0", "0", "0"] in rows and ["all", "2", "1", "1", "0", "0", "0", "0"] in rows


def test_the_table_lists_what_the_tracer_does(tmp_path: Path) -> None:
    append(tmp_path / "r", {"program": "sizes.2", "word": "tracer", "why": "stride is 1"})
    assert "sizes.2: stride is 1" in table(load(tmp_path / "r"))
