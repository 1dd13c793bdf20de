"""The same program gives the same texts, whatever seed Python hashes strings with."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.house.rules import ROOT

# Compiles a small model for training, and prints every text that was made of it.
PROGRAM = """
import json, sys, torch
from pathlib import Path
from minductor.driver import Compiler
from minductor.runtime.store.store import Store
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Embedding(16, 8), torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Softmax(-1)
)
made = []
compiled = torch.compile(net, backend=Compiler(store=Store(Path(sys.argv[1])), observer=made.append, is_dry=True))
compiled(torch.arange(6).reshape(2, 3)).square().sum().backward()
print(json.dumps([[graph.role, graph.key, sorted(graph.sources.items())] for graph in made]))
"""


def test_texts_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in running)
    assert [role for role, _, _ in first] == ["forward", "backward"]
    assert all(any(name.endswith(".cpp") for name, _ in sources) for _, _, sources in first)
    assert first == second
