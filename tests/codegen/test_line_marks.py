"""Line maps: which ops of a kernel's body each line of its function computes, under options={"provenance": 2}."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from minductor.bench import micro
from minductor.codegen.line_marks import mark, read_marks, united, without_marks
from minductor.driver import Compiled, Compiler

# lines that hold other lines, that count, and that make room
NO_OPS = re.compile(
    r"\s*(?:\}.*|#pragma .*|do \{|for .*\{|if \(.*\{|else \{|md_\w+<.*\{|md_\w+\(rows.*\{|return 0;|"
    r"const int64_t i\d+\w* = .*|"
    r"\w+ \w+\[\w+\];|(?:double|float|int64_t) \w+_whole;|uint64_t bad\d+.*|.*\bmd_Bad<\d+>.*|bad\d+ = found.*|"
    r"const auto \w+_lane .*|int64_t i\d+_from = .*|MD_SCALAR;|md_call_nothing.*|md_fetch\(.*|\w+_whole = .*|"
    r"(?:i\d+\w*|program|number|end\d+|index) = .*|index: .*|for .*:|if .*:|tl.debug_barrier\(\)|"
    r"\s*tl.store\(counter.*|# the bulk of a row .*)"
)


def compiled(folder: Path, fn: Any, inputs: Any, level: int, target: str, *, backward: bool = False) -> list[Compiled]:
    """The graphs of a function, compiled and not run."""
    seen: list[Compiled] = []
    torch._dynamo.reset()
    backend = Compiler(observer=seen.append, is_dry=True, environ={"MINDUCTOR_CACHE_DIR": str(folder)})
    options = {"provenance": level, "verify": True, **({} if target == "cpu" else {"target": target})}
    given = [x.requires_grad_() if backward and x.is_floating_point() else x for x in inputs()]
    out = torch.compile(fn, backend=partial(backend, options=options))(*given)
    if backward:
        torch.autograd.backward([each.sum() for each in ((out,) if isinstance(out, Tensor) else out)])
    return seen


def function_lines(text: str, symbol: str) -> list[tuple[int, str]]:
    """The numbers and texts of the lines in the body of a generated function."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if re.match(rf'(def|extern "C" int64_t) {symbol}\(', line))
    found: list[tuple[int, str]] = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if not line or line == "}":
            break
        found.append((number, line))
    return found


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] if n % 6 else []) for n, case in enumerate(micro.CASES)]
)
def test_each_line_that_computes_is_mapped(case: str, target: str, tmp_path: Path) -> None:
    """And the texts are those of level 1, which has no maps."""
    row = micro.CASES[case]
    plain, mapped = (compiled(tmp_path, row.fn, row.inputs, level, target, backward=row.backward) for level in (1, 2))
    for one, other in zip(plain, mapped, strict=True):
        assert one.sources == other.sources
        assert not one.report.provenance().lines
        origins = other.report.provenance()
        launches = [call for call in origins.calls if call.kind == "launch"]
        assert {call.key.rpartition(":")[0] for call in launches} == origins.lines.keys()
        for call in launches:
            symbol = call.key.rpartition(":")[0]
            rows = dict(origins.lines[symbol].rows)
            body = function_lines(other.sources[origins.lines[symbol].file], symbol)
            assert all(0 <= at < len(call.values) for places in rows.values() for at in places)
            assert {node for values in call.values for node in values} <= set(call.nodes)
            assert [line for n, line in body if n not in rows and not NO_OPS.fullmatch(line)] == []


def test_the_lines_of_a_kernel_name_the_ops_that_they_spell(tmp_path: Path) -> None:
    for target in ("cpu", "sm_90"):
        (graph,) = compiled(tmp_path, lambda x: (x.exp() + 1).tanh(), lambda: (torch.rand(64),), 2, target)
        origins = graph.report.provenance()
        ((symbol, found),) = origins.lines.items()
        (call,) = origins.calls
        nodes: dict[str, str] = {}
        for number, line in function_lines(graph.sources[found.file], symbol):
            for at in dict(found.rows).get(number, ()):
                nodes[line.strip().split(" = ")[-1]] = call.values[at][0]
        by_word = {
            word: next(node for text, node in nodes.items() if word in text) for word in ("exp", "+ 1.0", "tanh")
        }
        assert by_word == {"exp": "exp", "+ 1.0": "add", "tanh": "tanh"}


def test_the_lines_of_a_bulk_and_of_edges_are_mapped(tmp_path: Path) -> None:
    """Those that join what a reduction gives of both belong to the reduction."""
    rows = lambda: (torch.rand(3000, 4097, dtype=torch.bfloat16),)  # noqa: E731
    (graph,) = compiled(tmp_path, lambda x: x / x.sum(-1, keepdim=True), rows, 2, "sm_90")
    ((symbol, found),) = graph.report.provenance().lines.items()
    mapped = dict(found.rows)
    lines = function_lines(graph.sources[found.file], symbol)
    assert [line for n, line in lines if n not in mapped and not NO_OPS.fullmatch(line)] == []
    sums = [mapped[n] for n, line in lines if "tl.sum(" in line or re.search(r"= x\d+ \+ x\d+_edge$", line)]
    assert len(sums) == 3 and len(set(sums)) == 1


def test_the_parts_of_a_bundle_share_lines(tmp_path: Path) -> None:
    def step(*given: Tensor) -> list[Tensor]:
        return [x * 2 + 1 for x in given]

    (graph,) = compiled(tmp_path, step, lambda: [torch.rand(8, n) for n in (3, 3, 3)], 2, "cpu")
    origins = graph.report.provenance()
    (call,) = origins.calls
    rows = dict(origins.lines[call.key.rpartition(":")[0]].rows)
    text = graph.sources["kernels.cpp"].splitlines()
    (times,) = (rows[n] for n, line in enumerate(text, 1) if "* 2.0f" in line)
    assert [call.values[at] for at in times] == [("mul",), ("mul_1",), ("mul_2",)]


def test_marks_survive_what_is_done_to_lines() -> None:
    one = f"a;{mark('k', 0)}\nb;\n"
    other = f"a;{mark('k', 4)}{mark('k', 5)}\nb;\n"
    assert without_marks(one) == without_marks(other) == "a;\nb;\n"
    assert read_marks("x\n" + united(one, other)) == ("x\na;\nb;\n", (("k", ((2, (0, 4, 5)),)),))
    assert read_marks("a;\n") == ("a;\n", ())
