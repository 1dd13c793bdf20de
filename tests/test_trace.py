"""The trace: what each level shows, what lies in a folder, and that silence costs nothing."""

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from minductor.core.errors import BadOptionValue
from minductor.driver import Compiler
from minductor.runtime.store.store import Store
from minductor.tracing.trace import Trace

COUNTS = {"kernels": 1, "bytes": 4096}


@pytest.fixture(autouse=True)
def no_torch_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without TORCH_TRACE torch's handler removes itself at the first record; which test that would be is chance.
    # Propagating, since pytest adds a handler to each logger that does not.
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", True)


def no_text() -> str:
    raise AssertionError("a value was printed that nobody sees")


def walk(trace: Trace, graph: str = "forward") -> None:
    """Two stages of a compile, the second of which changes one line."""
    trace.stage(graph, "lower", 0.001, COUNTS, [], None, lambda: "a < b\nsame")
    trace.stage(graph, "fuse", 0.0025, COUNTS, ["k0 | k1: sizes <differ>"], {"k0.cpp": "x & y;"}, lambda: "new\nsame")


@pytest.mark.parametrize("text", ["", "0"])
def test_off_prints_nothing_and_makes_no_text(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    Trace.parse(text).stage("forward", "fuse", 0.001, COUNTS, ["note"], {"k0": "source"}, no_text)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_each_level_adds_a_part(level: int) -> None:
    out = io.StringIO()
    walk(Trace.parse(str(level), out=out))
    text = out.getvalue()
    assert "minductor forward lower 1.0 ms kernels=1 bytes=4096\n" in text
    parts = ("k0 | k1: sizes <differ>", "x & y;", "a < b")
    assert [part in text for part in parts] == [level >= 2, level >= 3, level >= 4]


def test_a_value_that_stays_is_shown_once() -> None:
    out = io.StringIO()
    trace = Trace.parse("4", out=out)
    walk(trace)
    trace.stage("forward", "order", 0.001, COUNTS, [], None, lambda: "new\nsame")
    assert out.getvalue().endswith("minductor forward order changes nothing\n") and out.getvalue().count("new") == 1


def test_values_are_not_printed_below_their_level() -> None:
    Trace.parse("3", out=io.StringIO()).stage("forward", "fuse", 0.001, COUNTS, [], None, no_text)


def test_levels_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    walk(Trace.parse("1"))
    out, err = capfd.readouterr()
    assert not out and len(err.splitlines()) == 2


@pytest.mark.parametrize("text", ["5", "-1", "yes", "1:", "dir:", "html:", "file:/x", ":"])
def test_misspelt_is_refused(text: str) -> None:
    with pytest.raises(BadOptionValue, match="html:PATH"):
        Trace.parse(text)


def test_folder(tmp_path: Path) -> None:
    trace = Trace.parse(f"dir:{tmp_path}/deep/er")
    walk(trace)
    walk(trace)
    walk(trace, "../out")
    folder = tmp_path / "deep" / "er"
    assert sorted(path.name for path in folder.iterdir()) == ["_out", "forward", "forward-2"]
    assert sorted(path.name for path in (folder / "forward").iterdir()) == [
        *("01_lower.txt", "02_fuse.txt", "k0.cpp", "lines.txt")
    ]
    assert (folder / "forward" / "02_fuse.txt").read_text() == "new\nsame\n"
    assert (folder / "forward" / "k0.cpp").read_text() == "x & y;"
    assert len((folder / "forward" / "lines.txt").read_text().splitlines()) == 3


def test_folder_of_a_compile_that_begins_with_a_graph_pass(tmp_path: Path) -> None:
    trace = Trace.parse(f"dir:{tmp_path}")
    for _ in range(2):
        walk(trace)
        trace.stage("forward", "lower.fold_copies", 0.001, COUNTS, [], None, lambda: "graph")
    walk(trace)
    names = {folder.name: sorted(path.name for path in folder.glob("0*")) for folder in tmp_path.iterdir()}
    with_pass = ["01_lower.fold_copies.txt", "02_lower.txt", "03_fuse.txt"]
    assert names == {"forward": ["01_lower.txt", "02_fuse.txt"], "forward-2": with_pass, "forward-3": with_pass}


def test_level_4_shows_a_graph_pass_that_changes_the_graph(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[1:3] = y * 2
        return x

    torch._dynamo.reset()
    compiler = Compiler(store=Store(tmp_path), trace=Trace.parse("4"))
    torch.compile(fn, backend=compiler)(torch.ones(4), torch.ones(2))
    err = capfd.readouterr().err
    _, _, shown = err.partition("minductor inference lower.fold_copies gives:\n")
    graph, _, rest = shown.partition("\nminductor inference ")
    assert "aten.slice_scatter.default(" in graph and re.match(r"lower.eliminate_dead_code \d+\.\d ms nodes=", rest)
    assert "aten.copy.default" in graph and "aten.copy.default" not in rest
    assert "select_real_imag" not in err, "it changes nothing"


def test_folder_of_an_earlier_process_is_written_over(tmp_path: Path) -> None:
    for _ in range(2):
        walk(Trace.parse(f"dir:{tmp_path}"))
    assert len((tmp_path / "forward" / "lines.txt").read_text().splitlines()) == 3


def test_unwritable_place_is_named(tmp_path: Path) -> None:
    """The place of a page: tests/page/test_page_sink.py."""
    (tmp_path / "file").touch()
    with pytest.raises(BadOptionValue, match="Not a directory"):
        walk(Trace.parse(f"dir:{tmp_path}/file/below"))


# Summaries and a note at INFO; at DEBUG a source and two values too.
@pytest.mark.parametrize(("level", "records"), [(logging.WARNING, 0), (logging.INFO, 3), (logging.DEBUG, 6)])
def test_logger(level: int, records: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(level, logger="minductor"):
        walk(Trace.parse(""))
    assert len(caplog.records) == records


TORCH_LOGGING = """
import torch
from minductor.tracing.trace import Trace
Trace.parse("").stage("forward", "fuse", 0.001, {"kernels": 1}, [], {"k0": "source of k0"}, lambda: "value of fuse")
"""


def test_torch_logs_and_torch_trace(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TORCH_LOGGING],
        env={**os.environ, "TORCH_LOGS": "minductor", "TORCH_TRACE": str(tmp_path)},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "minductor forward fuse 1.0 ms kernels=1" in done.stderr
    assert "value of fuse" not in done.stderr
    (log,) = tmp_path.iterdir()
    for part in ('"minductor_forward_fuse"', "value of fuse", '"minductor_forward_k0"', "source of k0"):
        assert part in log.read_text()


class Heard(logging.Handler):
    """What reached a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.mark.parametrize(
    ("artifact", "files"), [("output_code", ["kernels.cpp", "wrapper.py"]), ("kernel_code", ["kernels.cpp"])]
)
def test_the_logs_of_torch_for_generated_code_have_ours(tmp_path: Path, artifact: str, files: list[str]) -> None:
    heard = Heard()
    logger = logging.getLogger(f"torch.minductor.__{artifact}")
    logger.addHandler(heard)
    try:
        for is_on in (False, True, True):  # the last one is a hit of the store
            torch._logging.set_logs(**{artifact: is_on})
            torch._dynamo.reset()
            torch.compile(torch.sin, backend=Compiler(store=Store(tmp_path / f"{is_on}")))(torch.ones(3))
    finally:
        logger.removeHandler(heard)
        torch._logging.set_logs()
    assert [text.splitlines()[0] for text in heard.texts] == [f"minductor inference {name}" for name in files] * 2
    assert all("sin_0" in text for text in heard.texts)


def test_the_debug_directory_of_torch_has_stages_and_texts(tmp_path: Path) -> None:
    environ = {**os.environ, "TORCH_COMPILE_DEBUG": "1"}
    torch._dynamo.reset()
    with torch._dynamo.config.patch(debug_dir_root=str(tmp_path / "torch_compile_debug")):
        compiler = Compiler(store=Store(tmp_path / "store"), environ=environ)
        torch.compile(torch.sin, backend=compiler)(torch.ones(3))
    (folder,) = (tmp_path / "torch_compile_debug").glob("run_*/minductor/inference")
    names = {file.name.partition("_")[2] or file.name for file in folder.iterdir()}
    assert names >= {"lower.txt", "fuse.txt", "memory.txt", "wrapper.py", "kernels.cpp", "lines.txt"}
