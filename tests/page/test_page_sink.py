"""MINDUCTOR_TRACE=html:PATH: one page, whole after each graph, of all graphs of a process."""

import threading
from pathlib import Path

import pytest
import torch

from minductor.__main__ import main
from minductor.core.errors import BadArgument, BadOptionValue
from minductor.driver import Compiler
from minductor.runtime.store.store import Store
from minductor.tracing.trace import Trace
from tests.house.rules import ROOT
from tests.page.conftest import data_of


def compiled(compiler: Compiler, fn: object, *args: torch.Tensor) -> None:
    torch._dynamo.reset()
    torch.compile(fn, backend=compiler)(*args)


def test_the_page_is_whole_after_each_graph(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("of an earlier run")
    compiler = Compiler(store=Store(tmp_path / "store"), trace=Trace.parse(f"html:{path}"))
    for count, fn in enumerate((torch.sin, torch.cos, torch.sin), 1):
        compiled(compiler, fn, torch.ones(3))
        graphs = data_of(path.read_text(encoding="utf-8"))["graphs"]
        assert [graph["name"] for graph in graphs] == ["inference", "inference-2", "inference-3"][:count]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []
    first, _, again = graphs
    assert first["stages"][1]["name"] == "lower" and len(first["kernels"]) == 1
    # The store had the third graph: no stage ran, and its kernel still leads to its node.
    assert [stage["name"] for stage in again["stages"]] == ["graph", "store"]
    assert again["kernels"][0]["nodes"] == first["kernels"][0]["nodes"] != []
    assert again["kernels"][0]["handle"] == first["kernels"][0]["handle"] == 1
    assert again["code"] == first["code"] and again["machine"] == first["machine"]
    assert again["memory"] == first["memory"]


def test_threads_share_a_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    trace = Trace.parse(f"html:{path}")

    def record(number: int) -> None:
        trace.stage(f"graph{number}", "lower", 0.001, {}, [], None, lambda: f"text of {number}")
        trace.finish(f"graph{number}", {}, None, None, None)

    threads = [threading.Thread(target=record, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    graphs = data_of(path.read_text(encoding="utf-8"))["graphs"]
    assert sorted(graph["name"] for graph in graphs) == [f"graph{number}" for number in range(8)]
    assert all(graph["texts"] == [f"text of {graph['name'][-1]}"] for graph in graphs)


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    trace = Trace.parse(f"html:{tmp_path}/file/below")
    with pytest.raises(BadOptionValue, match="Not a directory"):
        trace.finish("inference", {}, None, None, None)


def test_a_write_that_breaks_leaves_the_page_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several processes that write one page none leaves half of one: each writes beside it and renames."""
    path = tmp_path / "page.html"
    trace = Trace.parse(f"html:{path}")
    trace.finish("one", {}, None, None, None)
    before = path.read_text(encoding="utf-8")
    real = Path.write_text

    def half(self: Path, text: str, **given: str) -> int:
        real(self, text[: len(text) // 2], **given)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(BadOptionValue, match="No space left"):
        trace.finish("two", {}, None, None, None)
    assert path.read_text(encoding="utf-8") == before and [*tmp_path.iterdir()] == [path]


def test_explain_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert main(["explain", f"{ROOT}/docs/layer_norm.py::layer_norm", "--html", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    (graph,) = data_of(path.read_text(encoding="utf-8"))["graphs"]
    assert graph["role"] == "inference" and graph["failure"] == ""
    assert main(["explain", f"{ROOT}/docs/layer_norm.py::layer_norm", "--html", f"{tmp_path}/no/page.html"]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_failed_compile_shows_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import minductor
    from minductor.passes.order import order

    def fail(program: object, env: object) -> object:
        raise ValueError("out of order")

    monkeypatch.setattr(order, "order", fail)
    explanation = minductor.explain(torch.sin, torch.ones(3))
    explanation.html(tmp_path / "page.html")
    (graph,) = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))["graphs"]
    assert graph["stages"][-1]["name"] == "split" and "out of order" in graph["failure"]
    assert graph["kernels"] == [] and [node["op"] for node in graph["nodes"]] == ["input", "aten.sin.default"]


def test_a_page_at_no_place_is_refused(tmp_path: Path) -> None:
    import minductor

    explanation = minductor.explain(torch.sin, torch.ones(3))
    with pytest.raises(BadArgument, match="Is a directory"):
        explanation.html(tmp_path)
