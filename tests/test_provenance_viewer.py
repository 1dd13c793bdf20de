"""torch's structured trace has what tlparse's provenance viewer reads: the texts of a graph, and maps that fit them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minductor.ir.report.provenance import PlanCall, Provenance
from minductor.tracing.provenance_viewer import annotated
from tests.house.rules import ROOT

PROGRAM = """
import sys, torch
from functools import partial
from pathlib import Path
from minductor.driver import Compiler
from minductor.runtime.store.store import Store

class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.down(self.up(x).sin())

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Mlp(), Mlp()])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x

for _ in range(2):
    torch._dynamo.reset()
    backend = partial(Compiler(store=Store(Path(sys.argv[1]))), options={"wrapper": sys.argv[2]})
    torch.compile(Net(), backend=backend)(torch.randn(4, 8)).sum().backward()
"""


def traced(folder: Path, wrapper: str) -> list[tuple[dict[str, Any], str]]:
    """The records of the structured trace of the program above, each with its text."""
    (folder / "program.py").write_text(PROGRAM)
    environ = {**os.environ, "TORCH_TRACE": str(folder / "trace"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(folder / "program.py"), str(folder / "store"), wrapper]
    subprocess.run(command, env=environ, check=True, capture_output=True, timeout=300)
    found: list[tuple[dict[str, Any], str]] = []
    for line in next((folder / "trace").iterdir()).read_text().splitlines():
        if line.startswith("\t"):
            found[-1] = (found[-1][0], found[-1][1] + line[1:] + "\n")
        else:
            found.append((json.loads(line.partition("] ")[2]), ""))
    return found


def named(records: list[tuple[dict[str, Any], str]]) -> list[dict[str, str]]:
    """The artefacts of each graph, by name, in the order of the trace."""
    graphs: list[dict[str, str]] = []
    for about, text in records:
        name = about["artifact"]["name"] if "artifact" in about else next(iter(about))
        if re.fullmatch(r"minductor_\w+_provenance", name):
            graphs.append({"graph": name.split("_")[1]})
        if graphs and name.startswith(("inductor_", "before_pre_grad_graph", "minductor_")):
            graphs[-1].setdefault(name, text)
    return graphs


def line_of_call(text: str, key: str) -> str:
    """The line that tlparse finds for a call: the first below the key that has the name before the colon."""
    lines = text.splitlines()
    (number,) = (number for number, line in enumerate(lines) if re.search(rf"{re.escape(key)}(:|$)", line))
    return next(line for line in lines[number + 1 :] if key.rpartition(":")[0] in line)


@pytest.mark.parametrize("wrapper", ["python", pytest.param("cpp", marks=pytest.mark.long)])
def test_the_maps_fit_the_texts(tmp_path: Path, wrapper: str) -> None:
    graphs = named(traced(tmp_path, wrapper))
    assert [graph["graph"] for graph in graphs] == ["forward", "backward"] * 2, "also what the store had"
    for graph in graphs:
        maps = json.loads(graph["inductor_provenance_tracking_node_mappings"])
        calls = json.loads(graph[f"minductor_{graph['graph']}_provenance"])["calls"]
        assert maps["version"] == 2 and list(maps["cppCodeToPost"]) == [call["key"] for call in calls]
        text = graph["inductor_output_code"]
        assert all("(" in line_of_call(text, call["key"]) for call in calls)
        after = re.findall(r"^ +(\w+)(?:: .*)? = torch\.ops\.", graph["inductor_post_grad_graph"], re.MULTILINE)
        assert maps["postToCppCode"].keys() <= {*after} and maps["postToPre"].keys() <= {*after}
        before = dict(re.findall(r"^(\w+) = (\S+)  # ", graph["before_pre_grad_graph"], re.MULTILINE))
        assert maps["preToPost"].keys() == before.keys() and before["linear"] == "layers.0.up"
        lines = json.loads(graph["inductor_provenance_tracking_kernel_stack_traces"])
        sine = next(key for key in lines if "sin" in key or "cos" in key)
        assert any(f"{tmp_path}/program.py:14\n" in line and re.search(r"layers\.\d", line) for line in lines[sine])
    forward = json.loads(graphs[0]["inductor_provenance_tracking_node_mappings"])
    assert forward["preToPost"]["linear_1"] and forward["postToCppCode"]["sin"]


def test_a_wrapper_without_comments_stays_as_it_is() -> None:
    origins = Provenance("inference", (PlanCall("mul_0:1", "launch", ("mul",)),))
    assert annotated("def call(args):\n    mul_0(x)\n", origins) == "def call(args):\n    mul_0(x)\n"
    shown = annotated("    # 1: mul\n    torch.mul(x)\n", Provenance("f", (PlanCall("aten.mul.out:1", "extern", ()),)))
    assert shown == "    # aten.mul.out:1: mul\n    torch.mul(x)  # aten.mul.out\n"
