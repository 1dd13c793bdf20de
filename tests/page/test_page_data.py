"""The document of a page, without a browser: every line leads somewhere, and the figures are those of the report."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import minductor
from minductor.ir.program.nodes import Program
from minductor.ir.program.printer import print_program, program_lines
from minductor.page.page_data import document
from minductor.page.page_files import Files
from minductor.page.page_write import page
from tests.page.conftest import Made, data_of

NAMES = ("layer_norm", "gpt", "sm_90")
Make = Callable[[str], Made]


@pytest.fixture(params=NAMES)
def page_made(request: pytest.FixtureRequest, made: Make) -> Made:
    return made(request.param)


def lines_of(code: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """The lines of a generated text with their nodes."""
    of = [numbers for count, numbers in code["runs"] for _ in range(count)]
    yield from zip(code["lines"], of, strict=True)


def test_lines_with_nodes_are_the_text(page_made: Made) -> None:
    for road in page_made.explanation.roads:
        for _, value in road.values:
            if isinstance(value, Program):
                assert "".join(f"{line.text}\n" for line in program_lines(value)) == print_program(value)


def test_each_line_of_a_stage_has_nodes_that_exist(page_made: Made) -> None:
    for graph in page_made.document["graphs"]:
        assert len(graph["texts"]) == len(graph["of"])
        assert {number for of in graph["of"] for number in of} <= set(range(len(graph["nodes"])))
        ops = [of for text, of in zip(graph["texts"], graph["of"], strict=True) if re.match(r" +%\d+ = ", text)]
        assert len(ops) > 10 and all(ops), "an op comes from no node"
        for stage in graph["stages"]:
            assert set(stage.get("lines", ())) <= set(range(len(graph["texts"])))
            for name, start, end in stage.get("blocks", ()):
                assert name and 0 <= start < end <= len(stage["lines"])


def test_each_line_of_a_kernel_leads_to_a_line_of_the_user(page_made: Made) -> None:
    for graph in page_made.document["graphs"]:
        files = page_made.document["files"]
        functions = 0
        for code in graph["code"]:
            rows = list(lines_of(code))
            for symbol, start, end in code.get("functions", ()):
                functions += 1
                assert any(symbol in line for line, _ in rows[start:end])
                for line, nodes in rows[start:end]:
                    places = [graph["nodes"][number]["at"] for number in nodes if "at" in graph["nodes"][number]]
                    assert places, f"{line!r} of {symbol} leads nowhere"
                    for file, number in places:
                        assert 0 < number <= len(files[file]["lines"])
        assert functions == len({kernel["symbol"] for kernel in graph["kernels"] if "symbol" in kernel})


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "layer_norm",
            {
                "= md_erf_f32(": ["gelu"],
                "* 2.0f;": ["mul"],
                "// aten.add.Tensor: add": ["add"],
                "sum0_lanes[l] = sum0_lanes[l] + ": ["native_layer_norm"],
                "md_lanes<64>(0": ["mul", "add", "gelu", "native_layer_norm"],
                "__builtin_sqrtf(": ["native_layer_norm"],
            },
        ),
        ("sm_90", {"tl.erf(": ["gelu"], "* 2.0": ["mul"], "tl.sum(": ["native_layer_norm"]}),
    ],
)
def test_a_line_of_a_kernel_has_its_own_nodes(made: Make, name: str, lines: dict[str, list[str]]) -> None:
    (graph,) = made(name).document["graphs"]
    code = graph["code"][0]
    ((_, start, end),) = code["functions"]
    rows = list(lines_of(code))[start:end]
    for part, nodes in lines.items():
        found = next(numbers for line, numbers in rows if part in line)
        assert [graph["nodes"][number]["name"] for number in found] == nodes, part


def test_each_call_of_the_wrapper_has_the_nodes_of_its_kernel(page_made: Made) -> None:
    for graph in page_made.document["graphs"]:
        (wrapper,) = graph["wrapper"]
        rows, called = list(lines_of(wrapper)), dict[int, set[int]]()
        for line, handle in wrapper["handles"]:
            called.setdefault(handle, set()).update(rows[line][1])
        assert called == {kernel["handle"]: set(kernel["nodes"]) for kernel in graph["kernels"]}


def test_the_memory_adds_up_to_the_peak_of_the_report(page_made: Made) -> None:
    for graph, road in zip(page_made.document["graphs"], page_made.explanation.roads, strict=True):
        assert road.compiled is not None
        memory = graph["memory"]
        assert memory["peak"] == road.compiled.report.peak
        held = [
            sum(
                s["bytes"]
                for s in memory["storages"]
                if s["owner"] != "lent" and s["birth"] <= call and (s["death"] is None or s["death"] >= call)
            )
            for call in range(1, len(memory["calls"]) + 1)
        ]
        assert max(held) == memory["peak"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("regions", {}),
        ("symbolic sizes", {}),
        ("variants", {"autotune": True}),
        ("a wrapper in C++", {"wrapper": "cpp"}),
        ("a wrapper in FX", {"wrapper": "fx"}),
        ("GPU variants", {"target": "sm_90", "autotune": True}),
        ("the interpreter", {"target": "interpret"}),
        ("no comments", {"provenance": 0}),
        ("no kernels", {}),
    ],
)
def test_a_page_of_each_kind_of_graph(name: str, options: dict[str, object], tmp_path: Path) -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: (x + 1).sin(), lambda x: x.cos() * 2, (x,))

    def rows(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1) + x.sum(0)

    x = torch.rand(32, 32)
    if name == "symbolic sizes":
        torch._dynamo.mark_dynamic(x, 0)
    fn = {"regions": branches, "no kernels": torch.t}.get(name, rows)
    explanation = minductor.explain(fn, x, options=options)
    explanation.html(tmp_path / "page.html")
    (graph,) = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))["graphs"]
    assert [node["name"] for node in graph["nodes"] if node["kind"] == "made"] == [], "a name that no graph has"
    report = explanation.roads[0].compiled.report  # type: ignore[union-attr]
    assert len(graph["kernels"]) == report.kernels + report.externs
    assert all(kernel["nodes"] and kernel["handle"] for kernel in graph["kernels"])
    functions = [code["functions"] for code in graph["code"] if "functions" in code]
    assert {symbol for rows in functions for symbol, _, _ in rows} >= set(report.kernel_names)
    for code in graph["code"]:
        lines = list(lines_of(code))
        assert all(lines[start + 1][1] for _, start, _ in code.get("functions", ()))


def test_a_price_list_says_which_schedule_was_second(made: Make) -> None:
    kernels = [kernel for graph in made("gpt").document["graphs"] for kernel in graph["kernels"]]
    decisions = [d for kernel in kernels for d in kernel.get("decisions", ()) if "prices" in d]
    assert len(decisions) >= 4
    for decision in decisions:
        assert set(decision["prices"]) == set(decision["options"]) and len(decision["options"]) > 1
        losses = decision["losses"]
        assert losses[decision["taken"]] <= 1.03 * min(losses.values()), (
            "fastest takes what loses least, or hardly more"
        )


def test_machine_code_has_the_lines_of_the_kernel(made: Make) -> None:
    (graph,) = made("layer_norm").document["graphs"]
    if not graph["machine"]:
        pytest.skip("needs objdump")
    (machine,) = graph["machine"]
    (code,) = graph["code"]
    ((symbol, start, end),) = code["functions"]
    flat = _flat(machine["at"])
    assert machine["symbol"] == symbol and len(flat) == len(machine["lines"])
    known = [line for line in flat if line >= 0]
    assert len(known) > 100 and all(start <= line < end for line in known)
    (erf,) = [number for number, line in enumerate(code["lines"]) if " md_erf_f32(x" in line and start <= number < end]
    inlined = [text for text, line in zip(machine["lines"], flat, strict=True) if line == erf]
    assert len(inlined) > 5, "the instructions of erf are those of the line that calls it"


def _flat(at: list[int]) -> list[int]:
    return [line for count, line in zip(at[::2], at[1::2], strict=True) for _ in range(count)]


def test_ptx_has_the_lines_of_the_kernel(made: Make) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    (graph,) = made("sm_90").document["graphs"]
    (machine,) = graph["machine"]
    code = next(code for code in graph["code"] if code["file"] == "kernels.py")
    assert any(line.startswith(".visible .entry") for line in machine["lines"])
    (erf,) = [number for number, line in enumerate(code["lines"]) if "tl.erf(" in line]
    of = [text for text, line in zip(machine["lines"], _flat(machine["at"]), strict=True) if line == erf]
    assert sum("fma.rn.f32" in text for text in of) > 5, "erf is a polynomial"


def test_the_page_loads_nothing_and_is_small(page_made: Made) -> None:
    assert len(page_made.text.encode()) < 5_000_000
    head, _, rest = page_made.text.partition('<script type="application/json"')
    shell = head + rest.partition("</script>")[2]
    links = re.findall(r"""\b(?:src|href)=["']?([^"' >]+)""", shell)
    assert {link for link in links if not link.startswith("#")} == {"data:,"}, "an icon of nothing"
    assert "http" not in shell.replace("http://www.w3.org/2000/svg", ""), "but for the name of SVG"
    assert not re.search(r"\bfetch\(|XMLHttpRequest|\bimport\b|url\(", shell.replace("of imports and names", ""))


def test_no_text_of_a_user_ends_the_data() -> None:
    text = "</script><!--<script>\u2028"
    made = {**document([], Files()), "files": [{"name": text, "lines": [text], "marks": [[]]}]}
    assert data_of(page(made)) == made


def test_a_page_without_pygments_is_plain(monkeypatch: pytest.MonkeyPatch, made: Make) -> None:
    import importlib.util

    from minductor.page import page_highlight

    assert any(page_highlight.highlight(["x = 1"], "python"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert page_highlight.highlight(["x = 1"], "python") == [[]]
    assert made("layer_norm").document["highlighted"] is True
