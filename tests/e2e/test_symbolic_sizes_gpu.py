"""What sizes of a call decide on GPUs: of how many bits indices are, and how many elements a thread loads at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

import minductor
from minductor.codegen.triton.triton_kernels import HEADER
from minductor.driver import Compiled, Compiler
from minductor.ir.artefact.launch_metadata import INDEX_BITS, LAUNCHES, LaunchMetadata, read_launches
from minductor.runtime.build.triton_jobs import Memory, compile_kernel, interpret_kernel
from minductor.runtime.launch import interpret
from minductor.runtime.launch.launch import KERNELS


def made(fn: Callable[..., Any], *given: Tensor, dynamic: bool | None = True, **options: object) -> Compiled:
    """The only graph of a function, for sm_90."""
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append, is_dry=True)
    torch._dynamo.reset()
    with TemporaryDirectory() as store:  # which has no text that was made for other sizes
        chosen = {"target": "sm_90", "verify": True, "cache_dir": store, **options}
        torch.compile(fn, backend=lambda gm, i: compiler(gm, i, options=chosen), dynamic=dynamic)(*given)
    (found,) = seen
    return found


def launches(compiled: Compiled) -> tuple[LaunchMetadata, ...]:
    return read_launches(compiled.sources[LAUNCHES])


def by_bits(compiled: Compiled) -> list[tuple[Any, ...]]:
    """The rows of the Report that say of how many bits indices are."""
    return [row for row in compiled.report.variants if row[1] in ("int32", "int64")]


def normalized(x: Tensor) -> Tensor:
    return torch.softmax(x.t() * 2, -1)


def test_sizes_of_the_call_decide(tmp_path: Path) -> None:
    """The launch, the text and the Report say so; sizes that cannot be large need no decision."""
    found = made(normalized, torch.randn(48, 33))
    (launch,) = launches(found)
    assert launch.blocks[INDEX_BITS] == 32 and launch.greatest_index
    assert {launch.parameters[name] for name in ("s0", "s1")} == {"i32"}
    assert "INDEX: tl.constexpr = tl.int64 if INDEX_BITS == 64 else tl.int32" in found.sources[KERNELS]
    ((_, *row, figures),) = by_bits(found)
    assert row == ["int32", "size", ("int32", "int64")]
    assert "s0*s1" in figures and "2147483647" in figures

    bounded = torch.randn(48, 33)
    torch._dynamo.mark_dynamic(bounded, 0, min=2, max=4096)
    found = made(normalized, bounded, dynamic=None)
    assert INDEX_BITS not in found.sources[KERNELS] and "int64" not in found.sources[KERNELS]
    assert by_bits(found) == []


@pytest.mark.parametrize(
    ("size", "is_wide"),
    [((2**31 - 2**21,), False), ((2**31 - 5,), True), ((2**20, 2**11 + 1), True), ((2**20, 2**10), False)],
)
def test_a_block_may_reach_beyond_the_last_element(size: tuple[int, ...], *, is_wide: bool) -> None:
    """Elements behind the last one must not wrap around to negative numbers, which would pass for elements."""
    text = minductor.compile_only(lambda x: x + 1, torch.empty(size, dtype=torch.int8, device="meta")).source
    assert INDEX_BITS not in text
    assert ("tl.int64" in text) == is_wide


def test_numbers_that_nothing_bounds_have_64_bits() -> None:
    """They may be negative, and no size of a call says how large they are."""
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append, is_dry=True)
    run = torch.compile(
        lambda x, n: x + n, backend=lambda gm, i: compiler(gm, i, options={"target": "sm_90"}), dynamic=True
    )
    run(torch.zeros(40, dtype=torch.int64), -3)
    (launch,) = launches(seen[0])
    assert INDEX_BITS not in launch.parameters and "i64" in launch.parameters.values()
    assert "tl.int64" in seen[0].sources[KERNELS] and by_bits(seen[0]) == []


@pytest.mark.parametrize(
    ("size", "factors"),
    [((48, 40), {"s0": 16, "s1": 8}), ((48, 36), {"s0": 16, "s1": 4}), ((48, 33), {"s0": 16}), ((6, 33), {})],
)
def test_factors_of_the_first_sizes_let_a_thread_load_more_at_once(
    size: tuple[int, int], factors: dict[str, int]
) -> None:
    found = made(lambda x, y: x.t() + y, torch.randn(size), torch.randn(size[::-1]))
    (launch,) = launches(found)
    assert launch.multiples == factors and not launch.of_any_sizes().multiples
    if len(factors) == 2:
        loads = [
            compile_kernel(found.sources[KERNELS], one, "cuda", "90").assembly.count("ld.global.v4")
            for one in (launch, launch.of_any_sizes())
        ]
        assert loads[0] > 0 == loads[1]


def test_only_sizes_that_decide_are_held_to_their_factors() -> None:
    """A number of rows decides nothing: another one takes the same machine code. Nor does it if bits must stay."""
    rows = torch.randn(64, 48)
    (launch,) = launches(made(lambda x: torch.softmax(x, -1), rows))
    assert launch.multiples == {"s1": 16}
    few = torch.randn(64, 48)
    torch._dynamo.mark_dynamic(few, 0)
    (launch,) = launches(made(lambda x: torch.softmax(x, -1), few, dynamic=None))
    assert launch.multiples == {} and "s0" in launch.parameters
    (launch,) = launches(made(lambda x: torch.softmax(x, -1), rows, deterministic=True))
    assert launch.multiples == {}


def test_the_size_that_an_index_is_checked_against_has_as_many_bits() -> None:
    """The dimension is expanded: no address depends on the index, and yet the index must not be refused."""
    found = made(lambda x, y, i: x.expand(y.shape[0])[i], torch.randn(1), torch.randn(50), torch.tensor([3, 5, 7]))
    (launch,) = launches(found)
    checked = re.search(r"v0 < (s\d+)", found.sources[KERNELS])
    assert checked is not None and launch.parameters[checked[1]] == "i32" and checked[1] in launch.greatest_index


@pytest.mark.parametrize("bits", [32, 64])
def test_both_compute_the_same(bits: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The interpreter takes the launch for larger sizes if these are larger than a limit, here of the test's own."""
    used: list[LaunchMetadata] = []
    if bits == 64:
        monkeypatch.setattr(interpret, "MOST_IN_INT32", 1 << 20)  # which the end of the largest block exceeds
    compiler = Compiler()
    pool = compiler.artefacts.interpreter
    submit = pool.submit

    def recorded(job: Callable[..., Any], *args: Any, **more: Any) -> Any:
        used.extend(args[1:2] if job is interpret_kernel else ())
        return submit(job, *args, **more)

    monkeypatch.setattr(pool, "submit", recorded)
    options = {"target": "interpret", "cache_dir": str(tmp_path)}
    torch._dynamo.reset()
    try:
        run = torch.compile(normalized, backend=lambda gm, i: compiler(gm, i, options=options), dynamic=True)
        for shape in ((48, 33), (7, 130)):
            x = torch.randn(shape)
            torch.testing.assert_close(run(x), normalized(x))
    finally:
        pool.close()
    assert {launch.blocks[INDEX_BITS] for launch in used} == {bits}
    assert {launch.arguments["s0"] for launch in used} == {f"i{bits}"}


@pytest.mark.parametrize(("kind", "expected"), [("i32", 0), ("i64", 1 << 32)])
def test_numbers_of_32_bits_wrap_around_in_the_interpreter(kind: str, expected: int) -> None:
    """So that it does not hide a bound that is too small."""
    text = f"""{HEADER}
@triton.jit
def squared(out0, s0):
    tl.store(out0, s0 * s0)
"""
    launch = LaunchMetadata("squared", {"out0": "*i64", "s0": kind}, (1,), {}, 1)
    pool = Compiler().artefacts.interpreter
    try:
        memory = [Memory(0, "int64", 0)]
        (after,) = pool.submit(interpret_kernel, text, launch, 1, [bytes(8)], memory, (1 << 16,)).result()
    finally:
        pool.close()
    assert int.from_bytes(after, "little") == expected


def test_machine_code_without_divisions_of_64_bits() -> None:
    """What an index of 32 bits is for: such a division takes a GPU more than a hundred instructions."""
    found = made(lambda x, y: x.t() + y, torch.randn(300, 200), torch.randn(200, 300))
    (launch,) = launches(found)
    narrow, wide = (compile_kernel(found.sources[KERNELS], one, "cuda", "90") for one in (launch, launch.wide()))
    count = lambda facts: len(re.findall(r"\b(?:div|rem)\.[su]64", facts.assembly))  # noqa: E731
    assert count(narrow) == 0 and count(wide) > 0
    assert (narrow.registers or 0) < (wide.registers or 0)


def test_graphs_for_others_have_64_bits(tmp_path: Path) -> None:
    """Who lowers a torch.fx graph further knows no bound of its sizes."""
    compiler = Compiler()
    options = {"target": "interpret", "wrapper": "fx", "cache_dir": str(tmp_path)}
    torch._dynamo.reset()
    kernel_side_table.reset_table()
    try:
        run = torch.compile(normalized, backend=lambda gm, i: compiler(gm, i, options=options), dynamic=True)
        x = torch.randn(48, 33)
        torch.testing.assert_close(run(x), normalized(x))
    finally:
        compiler.artefacts.interpreter.close()
    assert [constants[INDEX_BITS] for constants in kernel_side_table.constant_args.values()] == [64]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_more_elements_than_32_bits_count() -> None:
    """On a GPU, the same compiled function with few and with more than 2**31 elements."""
    run = torch.compile(lambda x, y: x[:, 1:] + y, backend=minductor.minductor, dynamic=True)
    for rows in (300, 304, 301, (1 << 31) // 1000 + 9):
        x = torch.randint(0, 9, (rows, 1001), dtype=torch.int8, device="cuda")
        y = torch.randint(0, 9, (1000,), dtype=torch.int8, device="cuda")
        out = run(x, y)
        assert torch.equal(out[-50:], x[-50:, 1:] + y) and torch.equal(out[:50], x[:50, 1:] + y)
        assert out.sum(dtype=torch.int64) == x[:, 1:].sum(dtype=torch.int64) + rows * y.sum(dtype=torch.int64)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("first", [(64, 48), (63, 47), (62, 44)])
def test_sizes_with_other_factors_than_the_first_ones(first: tuple[int, int]) -> None:
    """On a GPU, one compiled function takes each binary, in any order."""
    torch._dynamo.reset()

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.t() + y, torch.softmax(x, -1)

    run = torch.compile(fn, backend=minductor.minductor, dynamic=True)
    for rows, columns in (first, (128, 80), (129, 80), (128, 81), (60, 36), first):
        for offset in (0, 1):
            x = torch.randn(rows * columns + 1, device="cuda")[offset:][: rows * columns].view(rows, columns)
            y = torch.randn(columns, rows, device="cuda")
            torch.testing.assert_close(run(x, y), fn(x, y))
