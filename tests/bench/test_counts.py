"""Kernels, bytes and peaks of both compilers by one rule."""

import json
from pathlib import Path

import pytest
import torch

from minductor.bench import counts, harness
from minductor.bench.counts import Counted, verdict
from minductor.target import by_name


def counted(kernels: int = 1, moved: int = 100, extern_bytes: int = 0, peak: int | None = 8) -> Counted:
    return Counted(kernels, moved, {}, extern_bytes, peak)


def test_more_bytes_or_a_higher_peak_fail() -> None:
    assert verdict(counted(moved=102), counted()) == "pass"
    assert verdict(counted(moved=103), counted()) == "FAIL: bytes"
    assert verdict(counted(peak=9), counted()) == "FAIL: peak"
    assert verdict(counted(kernels=3), counted()) == "pass"
    assert verdict(counted(peak=9), counted(peak=None)) == "pass"


def test_calls_of_operators_count_where_they_differ() -> None:
    assert verdict(counted(moved=103, extern_bytes=1000), counted(extern_bytes=1000)) == "FAIL: bytes"
    assert verdict(counted(moved=103, extern_bytes=990), counted(extern_bytes=1000)) == "pass"


@pytest.mark.parametrize("backend", [pytest.param("inductor", marks=pytest.mark.long), "minductor"])
def test_both_are_counted_by_one_rule(backend: str) -> None:
    def function(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return torch.mm(x[:, :32] + row, x[:32]) * 2

    x, row = torch.randn(48, 64), torch.randn(32)
    graphs, peak, failure = counts.details(backend, function, lambda compiled: compiled(x, row))
    assert failure == ""
    [graph] = graphs
    # the left half of x, a row, their sum; the product, and what it becomes
    assert [(each.read, each.written) for each in graph.kernels] == [(4 * (1536 + 32), 4 * 1536), (4 * 3072, 4 * 3072)]
    assert [(each.read, each.written) for each in graph.externs] == [(4 * (1536 + 3072), 4 * 3072)]
    assert peak == 4 * (1536 + 3072)


@pytest.mark.parametrize("backend", [pytest.param("inductor", marks=pytest.mark.long), "minductor"])
def test_a_result_that_nobody_takes_is_written_all_the_same(backend: str) -> None:
    q = torch.randn(1, 2, 32, 16)
    attention = torch.nn.functional.scaled_dot_product_attention
    graphs, _, _ = counts.details(backend, attention, lambda compiled: compiled(q, q, q))
    [call] = graphs[0].externs
    assert (call.read, call.written) == (4 * q.numel(), 4 * (q.numel() + 2 * 32)), "and each row's statistics"


@pytest.mark.parametrize("backend", ["inductor", "minductor"])
def test_a_target_that_is_elsewhere_is_counted_too(backend: str) -> None:
    found = counts.count(backend, lambda x: x.sum(), lambda run: run(torch.ones(1 << 20)), by_name("sm_90"))
    assert (found.failure, found.peak) == ("", None)
    assert found.kernels == {"inductor": 2, "minductor": 1}[backend], "parts of the sum, and their sum"
    assert 4 << 20 < found.bytes < 4.1 * (1 << 20)


@pytest.mark.parametrize("is_compiled", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_command_writes_a_page_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(counts, "count_case", lambda *case: counted(moved=4 * (2048 * 1024 + 2048)))
    page, figures = tmp_path / "counts.md", tmp_path / "counts.json"
    argv = ["--counts", "--only", "micro/sum_inner", "--text", str(page), "--json", str(figures)]
    assert harness.main(argv) == 0
    assert page.read_text(encoding="utf-8") in capsys.readouterr().out
    [(case, both)] = json.loads(figures.read_text(encoding="utf-8")).items()
    assert (case, both["verdict"]) == ("micro/sum_inner", "pass")
    assert both["minductor"]["bytes"] == both["inductor"]["bytes"] == 4 * (2048 * 1024 + 2048)


def test_unknown_cases_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        harness.main(["--counts", "--only", "sum_inmer"])
    assert "near: sum_inner" in capsys.readouterr().err
