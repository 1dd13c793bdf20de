"""Cases of `gpu_check.py`: torch's operators on a GPU beside eager there, and the end-to-end tests of this project.

Takes a device. Gives cases by name: an operator with a dtype and a mode, of which the first samples count; or a file of
tests. A case raises AssertionError at a difference. A result that is not near eager's is right if it is as near as
eager's to what float64 gives.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import minductor
from pytest_plugin.oracle.accuracy import check_accuracy
from pytest_plugin.oracle.reference_runs import computing_in_float64, exact_dtype

SAMPLES = 3
RUNS = (("forward", torch.float32), ("gradient", torch.float32), ("forward", torch.bfloat16))
# words in the names of operators that draw random numbers, or leave memory as it is
RANDOM = (
    *("bernoulli", "cauchy", "dropout", "empty", "exponential", "geometric", "log_normal", "multinomial"),
    *("normal_", "normal.", "rand", "rrelu", "uniform"),
)
TESTS_SECONDS = 250


def operators() -> dict[str, Callable[[str], str]]:
    """A case for each operator, dtype and mode, but for those whose results are random."""
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, Callable[[str], str]] = {}
    for op in op_db:
        if any(word in f"{op.name}." for word in RANDOM):
            continue
        for mode, dtype in RUNS:
            name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
            found[f"operator/{name}/{str(dtype).removeprefix('torch.')}/{mode}"] = partial(_operator, op, dtype, mode)
    return found


def _operator(op: Any, dtype: torch.dtype, mode: str, device: str) -> str:
    """The first samples of an operator, compiled and in eager."""
    has_gradient = mode == "gradient"
    if dtype not in op.supported_dtypes(device) or (has_gradient and not op.supports_autograd):
        return "not of this dtype or mode"
    count = nearer = 0
    for sample in islice(op.sample_inputs(device, dtype, requires_grad=has_gradient), SAMPLES):
        torch._dynamo.reset()
        call = torch.compile(lambda *args, **kwargs: op(*args, **kwargs), backend=minductor.minductor)
        try:
            wanted = _results(op, sample, has_gradient=has_gradient)
        except (RuntimeError, NotImplementedError):  # eager has no such kernel
            continue
        found = _results(call, sample, has_gradient=has_gradient)
        try:
            torch.testing.assert_close(found, wanted, equal_nan=True)
        except AssertionError:
            with computing_in_float64():
                truth = _results(op, sample.transform(_widened), has_gradient=has_gradient)
            check_accuracy(found, wanted, truth)
            nearer += 1
        count += 1
    return f"{count} samples" + (f", {nearer} as near float64 as eager, but not near eager" if nearer else "")


def _widened(value: Any) -> Any:
    """A tensor of floats in float64, which asks for gradients as the given one does; anything else as it is."""
    if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.detach().to(exact_dtype(value.dtype)).requires_grad_(value.requires_grad)


def _results(fn: Callable[..., Any], sample: Any, *, has_gradient: bool) -> list[Any]:
    leaves = [x for x in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(x, Tensor)]
    made = [x for x in tree_leaves(fn(sample.input, *sample.args, **sample.kwargs)) if isinstance(x, Tensor)]
    if not has_gradient:
        return made
    trained = [x for x in leaves if x.requires_grad]
    totals = [x.abs().sum() for x in made if x.requires_grad]
    if not (trained and totals):
        return made
    return [*made, *torch.autograd.grad(totals, trained, allow_unused=True)]


def tests() -> dict[str, Callable[[str], str]]:
    """A case for each file of end-to-end tests."""
    files = sorted(Path("tests/e2e").glob("test_*.py"))
    return {f"tests/{file.stem}": partial(_tests, file) for file in files}


def _tests(file: Path, device: str) -> str:
    """The last line of pytest over a file of tests on a device."""
    about = ["-q", "-m", "not long", "--golden=off", "--minductor-device", device, "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *about, str(file)]
    ran = subprocess.run(
        command,
        env={**os.environ, "RUN_GPU": "1"},
        capture_output=True,
        text=True,
        timeout=TESTS_SECONDS,
        check=False,
    )
    last = ran.stdout.strip().splitlines()[-1:] or [ran.stderr[-200:]]
    failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if ran.returncode not in {0, 5}:  # 5: no test of the file is for this device
        raise AssertionError("; ".join((*last, *failed[:5])))
    return last[0].strip("= ")
