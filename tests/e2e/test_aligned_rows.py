"""Rows that start at any element of memory, held in a bulk and edges: through Triton's interpreter, beside float64.

Takes functions of rows of odd lengths. Gives nothing. Refuses wrong numbers, and kernels that hold rows otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.driver import Compiled, Compiler
from minductor.passes.schedule import gpu_steps

ROWS = 11  # as many starts as a vector has elements, and some more
BOUNDS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SEEN: list[Compiled] = []


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    made = Compiler(observer=SEEN.append)
    yield made
    made.artefacts.interpreter.close()


def held_in_edges(
    compiler: Compiler, fn: Callable[..., Any], given: Sequence[Tensor], recipe: str = "aligned4", **more: object
) -> Any:
    """What the function gives, in kernels of which at least one has edges."""
    torch._dynamo.reset()
    options = {"target": "interpret", "variant": recipe, "verify": True, **more}
    result = torch.compile(fn, backend=lambda gm, i: compiler(gm, i, options=options))(*given)
    assert "_edge_mask" in SEEN.pop().sources["kernels.py"]
    return result


def assert_near_float64(fn: Callable[..., Any], found: Any, given: Sequence[Tensor], bound: float) -> None:
    wide = [t.double() if t.is_floating_point() else t for t in given]
    wanted = fn(*wide)
    pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=bound, atol=bound)


def two_statistics(x: Tensor) -> tuple[Tensor, ...]:
    """A row that is used again beside statistics that are stored too, one of a place."""
    mean = x.mean(-1, keepdim=True)
    return x - mean, mean, x.amax(-1), x.sum(-1), x.argmax(-1)


def added(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A residual, and its softmax."""
    s = x + y
    return s, torch.softmax(s, -1)


def test_a_result_whose_elements_lie_some_vectors_and_one_apart(compiler: Compiler) -> None:
    """The rows of the result are columns of memory: 13 elements from one to the next, for vectors of 4."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x, -1).t().contiguous(), x - x.amax(-1, keepdim=True)

    given = [torch.randn(13, 77)]
    assert_near_float64(fn, held_in_edges(compiler, fn, given), given, BOUNDS[torch.float32])


FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {  # with the number of matrices, and of weights
    "softmax": (lambda x: torch.softmax(x, -1), 1, 0),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), 1, 0),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, w.shape, w, b), 1, 2),
    "rms_norm": (lambda x, w: F.rms_norm(x, w.shape, w, 1e-5), 1, 1),
    "var_mean": (lambda x: torch.var_mean(x, -1), 1, 0),
    "argmax": (lambda x: x.argmax(-1), 1, 0),
    "several": (two_statistics, 1, 0),
    "residual": (added, 2, 0),
}


@pytest.mark.parametrize("length", [129, pytest.param(1001, marks=pytest.mark.long), 4097])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_odd_rows(name: str, length: int, compiler: Compiler) -> None:
    fn, matrices, weights = FUNCTIONS[name]
    torch.manual_seed(0)
    given = [*(torch.randn(ROWS, length) for _ in range(matrices)), *(torch.randn(length) for _ in range(weights))]
    found = held_in_edges(compiler, fn, given)
    assert_near_float64(fn, found, given, BOUNDS[torch.float32])


@pytest.mark.parametrize("length", [5, 9, 15, 17, 31, 33, 63])
def test_rows_with_few_vectors(length: int, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bulk may be empty, or one vector; `Hold` refuses such rows for a number of warps."""
    monkeypatch.setattr(gpu_steps, "FEWEST_HELD", 0)
    x = torch.randn(ROWS, length)
    found = held_in_edges(compiler, two_statistics, [x])
    assert_near_float64(two_statistics, found, [x], BOUNDS[torch.float32])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("length", [257, 1004])
def test_sixteen_bits(dtype: torch.dtype, length: int, compiler: Compiler) -> None:
    x = torch.randn(ROWS, length).to(dtype)
    fn = lambda x: (torch.softmax(x, -1), F.layer_norm(x, x.shape[-1:]), x.amax(-1))  # noqa: E731
    assert_near_float64(fn, held_in_edges(compiler, fn, [x]), [x], BOUNDS[dtype])


def test_two_dtypes(compiler: Compiler) -> None:
    """Vectors of 8 elements for the narrow one are two vectors of the wide one."""
    x, m = torch.randn(ROWS, 301).bfloat16(), torch.rand(ROWS, 301) < 0.5
    fn = lambda x, m: torch.softmax(torch.where(m, x, -9).float(), -1)  # noqa: E731
    found = held_in_edges(compiler, fn, [x, m])
    assert found.dtype == torch.float32
    assert_near_float64(fn, found, [x, m], BOUNDS[torch.float32])


def windows(x: Tensor) -> tuple[Tensor, ...]:
    """Rows of a wider matrix, from an odd element on."""
    part = x[:, 3:-2]
    return torch.softmax(part, -1), part.sum(-1)


@pytest.mark.parametrize("width", [300, 303, 304])
def test_views_that_start_at_an_odd_element(width: int, compiler: Compiler) -> None:
    x = torch.randn(ROWS, width)
    assert_near_float64(windows, held_in_edges(compiler, windows, [x]), [x], BOUNDS[torch.float32])


def test_three_axes_and_places(compiler: Compiler) -> None:
    """Rows of several axes, the number of an element, and a mask around loads."""

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        at = torch.arange(x.shape[-1])
        causal = torch.where(at <= 40 * torch.arange(x.shape[1])[:, None], x, float("-inf"))
        padded = F.pad(x[..., 2:], (1, 1))
        return torch.softmax(causal, -1), (x * at).sum(-1), (padded + x).amax(-1)

    x = torch.randn(3, 7, 261)
    assert_near_float64(fn, held_in_edges(compiler, fn, [x]), [x], 1e-3)


def test_rows_that_are_read_again_after_some(compiler: Compiler) -> None:
    """Such a load is a block with a digit of the rows' number, but does not begin where the bulk does."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        again = (y[None] + torch.zeros(3, 1, 1)).reshape(33, 33)
        return torch.softmax(x * again, -1) - again

    given = [torch.randn(33, 33), torch.randn(11, 33)]
    assert_near_float64(fn, held_in_edges(compiler, fn, given), given, BOUNDS[torch.float32])


def test_rows_that_are_read_backwards(compiler: Compiler) -> None:
    """Such loads use the elements of the axis."""
    fn = lambda x, y: (torch.softmax(x + y.flip(1), -1), (x - y[:, :1]).sum(-1))  # noqa: E731
    given = [torch.randn(ROWS, 261), torch.randn(ROWS, 261)]
    assert_near_float64(fn, held_in_edges(compiler, fn, given), given, BOUNDS[torch.float32])


def test_in_place(compiler: Compiler) -> None:
    x = torch.randn(ROWS, 261)
    ours, wanted = x.clone(), torch.softmax(x.double(), -1)
    held_in_edges(compiler, lambda x: x.copy_(torch.softmax(x, -1)), [ours])
    torch.testing.assert_close(ours.double(), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("recipe", ["aligned4", "aligned8", "aligned16", "aligned32"])
def test_every_number_of_warps(recipe: str, compiler: Compiler) -> None:
    x = torch.randn(3, 4099)
    assert_near_float64(two_statistics, held_in_edges(compiler, two_statistics, [x], recipe), [x], 2e-5)


def test_two_rows_of_a_bundle(compiler: Compiler) -> None:
    """Kernels side by side have names of their own."""
    fn = lambda x, y: (torch.softmax(x, -1), torch.softmax(y, -1))  # noqa: E731
    given = [torch.randn(ROWS, 263), torch.randn(2 * ROWS, 263)]
    assert_near_float64(fn, held_in_edges(compiler, fn, given), given, BOUNDS[torch.float32])


@pytest.mark.parametrize("form", ["pointer", "descriptor"])
def test_rows_with_edges_are_addressed_by_offsets(form: str, compiler: Compiler) -> None:
    x = torch.randn(ROWS, 263)
    found = held_in_edges(compiler, two_statistics, [x], block_access=form)
    assert_near_float64(two_statistics, found, [x], BOUNDS[torch.float32])


# --- on GPUs


def moved_at_once(assembly: str) -> set[str]:
    """The instructions that load from memory or store there."""
    return set(re.findall(r"\b(?:ld|st)\.global[.\w]*", assembly))


NORMS: dict[str, tuple[Callable[..., Any], int]] = {
    name: (fn, weights) for name, (fn, _, weights) in FUNCTIONS.items() if name in ("softmax", "layer_norm", "rms_norm")
}


WIDE = [(name, target, 4097) for name in NORMS for target in ("sm_80", "sm_90")]


@pytest.mark.parametrize(
    ("name", "target", "length"),
    [
        WIDE[0],
        ("rms_norm", "sm_90", 50257),
        *(pytest.param(*row, marks=pytest.mark.long) for row in [*WIDE[1:], ("softmax", "sm_90", 50257)]),
    ],
)
def test_the_price_takes_vectors_of_16_bytes(name: str, length: int, target: str) -> None:
    fn, weights = NORMS[name]
    with torch.device("meta"):
        given = [torch.empty(size, dtype=torch.bfloat16) for size in ((1 << 14, length), *[(length,)] * weights)]
    with torch.no_grad():
        made = minductor.compile_only(fn, *given, target=target)
    (kernel,) = made.kernels
    assert "_edge_mask" in made.source
    assert {"ld.global.v4.b32", "st.global.v4.b32"} <= moved_at_once(kernel.assembly)


@pytest.mark.parametrize(("target", "length"), [("sm_90", 4096), ("sm_90", 4104), ("gfx942", 4097)])
def test_other_rows_have_no_edges(target: str, length: int) -> None:
    """Rows that start at multiples of 16 bytes, and rows on GPUs of AMD."""
    made = minductor.compile_only(
        lambda x: torch.softmax(x, -1), torch.empty(1 << 14, length, dtype=torch.bfloat16, device="meta"), target=target
    )
    assert "_edge" not in made.source
