"""A reduction that is cut in other numbers of parts for other sizes of a call."""

from __future__ import annotations

from pathlib import Path

import torch

from minductor.driver import Compiled, Compiler

HINTS = (64, 1024, 16384)


def test_each_size_has_its_number_of_parts(tmp_path: Path) -> None:
    """In one program, whose variants share no buffers of different sizes; right near every size, and by the plan's text."""
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append)
    options = {"target": "interpret", "size_hints": {"s0": HINTS}, "cache_dir": str(tmp_path), "verify": True}
    torch._dynamo.reset()
    run = torch.compile(lambda x: x.exp().sum(0), backend=lambda gm, i: compiler(gm, i, options=options))
    try:
        for rows in (70, 1500, 9000):
            x = torch.randn(rows, 100)
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(run(x), x.exp().sum(0), rtol=2e-5, atol=2e-5)
    finally:
        compiler.artefacts.interpreter.close()
    (compiled,) = seen
    ((_, _, _, options_of_k1, rule),) = [
        row for row in compiled.report.variants if row[2] == "size" and row[1] != "int32"
    ]
    assert len([name for name in options_of_k1 if str(name).startswith("cut")]) == 2, rule
    alone = [_parts(rows, tmp_path) for rows in HINTS[1:]]
    assert len(set(alone)) == 2
    text = compiled.sources["kernels.py"]
    assert all(f"// {parts}" in text for parts in alone), "the parts of a program for one size alone"


def _parts(rows: int, store: Path) -> int:
    """The number of parts in which the same sum is cut for one size."""
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append, is_dry=True)
    x = torch.randn(rows, 100)
    torch._dynamo.reset()
    torch._dynamo.mark_dynamic(x, 0)
    options = {"target": "interpret", "cache_dir": str(store)}
    torch.compile(lambda x: x.exp().sum(0), backend=lambda gm, i: compiler(gm, i, options=options))(x)
    (figures,) = [row[4] for row in seen[0].report.variants if row[3] == ("whole", "cut")]
    return int(figures.split(" us in ")[1].split()[0])
