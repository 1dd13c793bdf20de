"""Operators of torch's own database that were wrong once, and what finds them: the driver, its judge, its table."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch

from minductor.core.errors import RanInEager
from tests.opinfo import compilers, expected
from tests.opinfo.compilers import Compile, Seen
from tests.opinfo.drive import Choice, Record, Sample, drive, operators
from tests.opinfo.judge import difference
from tests.opinfo.table import faster, is_within, table
from tests.workers import Tasks, run

WRONG_ONCE = {
    "forward": "gradient nn.functional.interpolate.bicubic nn.functional.interpolate.trilinear linspace take",
    "gradient": "nn.functional.soft_margin_loss",
}
FAMILIES = {
    "forward": "add sum softmax gather cat nn.functional.pad.constant var_mean argmax where index_select",
    "gradient": "nn.functional.layer_norm nn.functional.gelu nn.functional.cross_entropy",
    "inplace": "clamp masked_fill",
}
CASES = [(mode, name) for table in (WRONG_ONCE, FAMILIES) for mode, names in table.items() for name in names.split()]
LONG = (
    *("softmax", "gather", "nn.functional.pad.constant", "argmax", "index_select"),
    *("nn.functional.soft_margin_loss", "nn.functional.interpolate.trilinear"),
)


@pytest.mark.parametrize(
    ("mode", "name"),
    [pytest.param(mode, name, marks=pytest.mark.long if name in LONG else ()) for mode, name in CASES],
)
def test_float32(mode: str, name: str) -> None:
    limit = 2 if mode == "gradient" or name.startswith("nn.functional.interpolate") else 3
    record = drive(operators(torch.float32, mode)[name], torch.float32, mode, Choice(limit))
    assert record.right and not record.wrong and not record.failed


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.bfloat16, "nn.functional.embedding_bag"),
        (torch.bfloat16, "mul"),
        (torch.bool, "fmax"),
        (torch.int64, "arange"),
        (torch.uint8, "sub"),
        (torch.int32, "floor_divide"),
        (torch.float64, "logsumexp"),
    ],
)
def test_other_dtypes(dtype: torch.dtype, name: str) -> None:
    record = drive(operators(dtype, "forward")[name], dtype, "forward", Choice(4))
    assert record.right and not record.wrong and not record.failed


# --- the judge ------------------------------------------------------------------------------------------------------

X = torch.tensor([1.0, -2.0, float("nan"), float("inf")])


@pytest.mark.parametrize(
    ("got", "eager", "expected"),
    [
        (X.double(), X, "dtype"),
        (X[:2], X, "shape"),
        (X.view(2, 2).t(), X.view(2, 2), "stride"),
        (X * torch.tensor([1, 1, 1, -1]), X, "value: 1 of 4 elements are wrong, the worst at [3]"),
        (torch.where(X.isnan(), 0, X), X, "value: 1 of 4 elements are wrong, the worst at [2]"),
        (X * 1.00001, X, "value"),
        (-0.0 * X[:2], 0.0 * X[:2].abs(), "value: 1 of 2 elements are wrong, the worst at [0]"),
        (torch.tensor([1, 3]), torch.tensor([1, 2]), "value: 1 of 2 elements are wrong, the worst at [1]"),
    ],
)
def test_judge_sees(got: torch.Tensor, eager: torch.Tensor, expected: str) -> None:
    assert (difference(got, eager, eager.double()) or "").startswith(expected)


def test_judge_lets_rounding_pass() -> None:
    near = torch.nextafter(X, torch.tensor(9.0))
    assert difference(torch.where(X.isfinite(), near, X), X, X.double()) is None
    # as far from the truth as eager is, on the other side
    assert difference(torch.tensor([1.01]), torch.tensor([0.99]), torch.tensor([1.0])) is None


class Broken:
    """Compilers for which the drivers of these tests look by name."""

    @staticmethod
    def wrong(seen: Seen) -> Compile:
        return lambda fn, dynamic: lambda *args: [t + 0.5 for t in fn(*args)]

    @staticmethod
    def raising(seen: Seen) -> Compile:
        def refuse(*args: torch.Tensor) -> None:
            raise ValueError("no")

        return lambda fn, dynamic: refuse

    @staticmethod
    def falling_back(seen: Seen) -> Compile:
        def warn(fn: Callable[..., object], *args: torch.Tensor) -> object:
            warnings.warn(RanInEager("no"), stacklevel=1)
            return fn(*args)

        return lambda fn, dynamic: partial(warn, fn)


def broken(monkeypatch: pytest.MonkeyPatch, name: str, rows: str = "") -> Record:
    monkeypatch.setattr(compilers, "minductor", getattr(Broken, name))
    mul = operators(torch.float32, "forward")["mul"]
    return drive(mul, torch.float32, "forward", Choice(3), rows=expected.parse(rows))


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    record = broken(monkeypatch, "wrong")
    assert len(record.wrong) == 3 and not record.failed and not record.right


def test_an_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    record = broken(monkeypatch, "raising")
    assert len(record.failed) == 3 and record.failed[0].startswith("ValueError: no :: mul (") and not record.wrong


def test_what_ran_in_eager_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    record = broken(monkeypatch, "falling_back")
    assert (record.right, record.fallback) == (3, 3)


def test_an_expected_failure_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken(monkeypatch, "raising", "mul | * | forward |  | tests").expected == 3
    assert len(broken(monkeypatch, "raising", "mul | float64 | * |  | tests").failed) == 3
    # neither a pass nor a wrong value is excused
    assert "passes, although" in broken(monkeypatch, "falling_back", "mul | * | * |  | tests").failed[0]
    assert len(broken(monkeypatch, "wrong", "mul | * | * |  | tests").wrong) == 3


@pytest.mark.parametrize("text", ["mul | * | forward | no reason", "mul | * | * |  | "])
def test_a_row_without_a_reason_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a row is"):
        expected.parse(text)


def test_sizes_are_symbols() -> None:
    record = drive(operators(torch.float32, "forward-dynamic")["sin"], torch.float32, "forward-dynamic")
    assert record.symbolic and record.right and not record.wrong


def test_a_random_operator_draws_what_eager_draws() -> None:
    record = drive(operators(torch.float32, "forward")["normal"], torch.float32, "forward", Choice(3))
    assert (record.right, record.skipped) == (3, 0)


def test_a_part_of_the_samples_is_spread_and_repeatable() -> None:
    given = [Sample("sin", len, (), str(n)) for n in range(100)]
    texts = [[s.text for s in Choice(*c).of(given, "sin")] for c in ((5,), (5,), (0, 0.1), (0, 0.1, 1))]
    assert texts[0] == texts[1] and len(set(texts[0])) == 5
    assert 3 < len(texts[2]) < 25 and texts[2] != texts[3]


def test_results_are_resumed(tmp_path: Path) -> None:
    """A second run finds both records and starts no worker."""
    results = tmp_path / "results.jsonl"
    record = {"dtype": "float32", "mode": "forward", "right": 3, "wrong": [], "failed": [], "skipped": 0}
    results.write_text("".join(json.dumps({"op": name, **record}) + "\n" for name in ("sin", "cos")))
    command = [sys.executable, "-m", "tests.opinfo", "--ops", "sin,cos", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = done.stdout.splitlines()[-1].split()
    assert row[:5] == ["minductor", "float32", "forward", "2", "2"] and row[6:8] == ["6", "6"]
    assert len(results.read_text().splitlines()) == 2


def test_a_crash_is_a_failure_of_one() -> None:
    script = "import os, sys\nfor name in sys.argv[1:]:\n    print(name, flush=True)\n    name == 'b' and os.abort()"
    died: list[str] = []
    run([Tasks("abcd", lambda names: [sys.executable, "-c", script, *names], lambda name, why: died.append(name))])
    assert died == ["b"]


def test_batches_share_their_workers() -> None:
    """Each of two batches of one task waits until the other has begun."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        port = server.getsockname()[1]
        script = f"import socket, sys\nprint(sys.argv[1])\nsocket.create_connection(('127.0.0.1', {port})).recv(1)"
        died: list[str] = []
        batches = [
            Tasks([name], lambda names: [sys.executable, "-c", script, *names], lambda name, why: died.append(name))
            for name in "ab"
        ]
        runner = threading.Thread(target=run, args=(batches, 2))
        runner.start()
        both = [server.accept()[0] for _ in batches]
        for connection in both:
            connection.close()
        runner.join(60)
        assert not runner.is_alive()
    assert not died


def test_only_what_was_asked_for_is_in_the_table(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    records = [asdict(Record("sin", "float32", mode, right=3)) for mode in ("forward", "gradient")]
    results.write_text("".join(json.dumps(record) + "\n" for record in records))
    command = [sys.executable, "-m", "tests.opinfo", "--ops", "sin", "--mode", "gradient", "--results", str(results)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "float32   gradient" in text and "float32   forward" not in text


def test_the_table_counts() -> None:
    ours = asdict(Record("sin", "float32", "forward", right=7, wrong=["x"], expected=2, seconds=1.5))
    peers = asdict(Record("sin", "float32", "forward", "inductor", right=10, seconds=30))
    lines = table([ours, peers]).splitlines()
    found = dict(zip(lines[0].split(), lines[1].split(), strict=True))
    assert (found["samples"], found["right"], found["wrong"], found["error"]) == ("10", "7", "1", "2")
    assert "20.0 times" in faster([ours, peers])
    assert not is_within([ours]) and is_within([peers])
