"""A reduction that is cut in other numbers of parts for other sizes of a call."""

from __future__ import annotations

from pathlib import Path

import torch

from minductor.driver import Compiled, Compiler


def test_each_size_has_its_number_of_parts(tmp_path: Path) -> None:
    """In one program, whose variants have buffers of their own, of other sizes; right near every size."""
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append)
    hints = {"s0": (64, 4096), "s1": (8, 1200)}
    options = {"target": "interpret", "size_hints": hints, "cache_dir": str(tmp_path), "verify": True}
    torch._dynamo.reset()
    run = torch.compile(lambda x: x.exp().sum(0), backend=lambda gm, i: compiler(gm, i, options=options))
    try:
        for size in ((70, 9), (70, 200), (3000, 7), (2200, 700)):
            x = torch.randn(size)
            torch._dynamo.mark_dynamic(x, (0, 1))
            torch.testing.assert_close(run(x), x.exp().sum(0), rtol=2e-5, atol=2e-5)
    finally:
        compiler.artefacts.interpreter.close()
    (compiled,) = seen
    rows = compiled.report.variants
    ((_, _, _, names, rule),) = [row for row in rows if row[2] == "size" and row[1] != "int32"]
    assert sorted(names) == ["cut", "cut_at_4096_1200", "looped"], rule
    assert rule.endswith("at (4096, 8) cut at (4096, 1200) cut_at_4096_1200")
    parts = [int(row[4].split(" us in ")[1].split()[0]) for row in rows if row[3] == ("whole", "cut")]
    assert len(set(parts)) > 1
    assert all(f"// {count}" in compiled.sources["kernels.py"] for count in parts[-2:])
    assert compiled.report.externs == 0
