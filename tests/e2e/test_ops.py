"""Operators of torch's own database through minductor: a few here, all of them in the long test.

The few are those that were wrong once, and one or two of each family.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.opinfo.drive import Driver, operators
from tests.opinfo.judge import difference

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


@pytest.mark.parametrize(("mode", "name"), CASES)
def test_float32(mode: str, name: str) -> None:
    record = Driver(operators(torch.float32, mode)[name], torch.float32, mode).run(2 if mode == "gradient" else 5)
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
    record = Driver(operators(dtype, "forward")[name], dtype, "forward").run(4)
    assert record.right and not record.wrong and not record.failed


# --- the judge ------------------------------------------------------------------------------------------------------

X = torch.tensor([1.0, -2.0, float("nan"), float("inf")])


@pytest.mark.parametrize(
    ("got", "eager", "expected"),
    [
        (X.double(), X, "dtype"),
        (X[:2], X, "shape"),
        (X.view(2, 2).t(), X.view(2, 2), "stride"),
        (X * torch.tensor([1, 1, 1, -1]), X, "not finite"),
        (torch.where(X.isnan(), 0, X), X, "not finite"),
        (X * 1.00001, X, "value"),
        (torch.tensor([1, 3]), torch.tensor([1, 2]), "value: 1 of 2, at (1,)"),
    ],
)
def test_judge_sees(got: torch.Tensor, eager: torch.Tensor, expected: str) -> None:
    assert (difference(got, eager, eager.double()) or "").startswith(expected)


def test_judge_lets_rounding_pass() -> None:
    near = torch.nextafter(X, torch.tensor(9.0))
    assert difference(torch.where(X.isfinite(), near, X), X, X.double()) is None
    # as far from the truth as eager is, on the other side
    assert difference(torch.tensor([1.01]), torch.tensor([0.99]), torch.tensor([1.0])) is None


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(operators(torch.float32, "forward")["sin"], torch.float32, "forward")

    def wrong(gm: torch.fx.GraphModule, inputs: object, *, role: str) -> object:
        del inputs, role
        return lambda *args: [t + 0.5 for t in gm(*args)]

    monkeypatch.setattr(driver, "compile_graph", wrong)
    record = driver.run(3)
    assert record.wrong and not record.failed


def test_results_are_resumed(tmp_path: Path) -> None:
    """A second run finds both records and starts no worker."""
    results = tmp_path / "results.jsonl"
    record = {"dtype": "float32", "mode": "forward", "right": 3, "wrong": [], "failed": [], "skipped": 0}
    results.write_text("".join(json.dumps({"op": name, **record}) + "\n" for name in ("sin", "cos")))
    command = [sys.executable, "-m", "tests.opinfo", "--ops", "sin,cos", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["float32", "forward", "2", "2", "6", "0", "0", "0"]
    assert len(results.read_text().splitlines()) == 2


@pytest.mark.long
@pytest.mark.parametrize("mode", ["forward", "gradient", "inplace"])
def test_all(mode: str) -> None:
    """Resumable: what has a result in .long/ is not run again."""
    results = Path(f".long/opinfo_{mode}.jsonl")
    results.parent.mkdir(exist_ok=True)
    dtypes = "float32" if mode != "forward" else "float32,bfloat16,int64,bool,uint8"
    command = [sys.executable, "-m", "tests.opinfo", "--dtype", dtypes, "--mode", mode, "--results", str(results)]
    done = subprocess.run([*command, "--limit", "8"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
