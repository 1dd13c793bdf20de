"""Scripts of failing tests: they compile the same again, without pytest."""

import runpy

import pytest
import torch

from pytest_plugin.oracle.repro_script import CannotRepeat, CompiledCall, write_script
from tests.plugin.conftest import Run

SUITE = """
    import pytest, torch
    from torch.nn import functional as F

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 3)

        def forward(self, x, scale):
            return F.pad(self.inner(x), (1, 1), value=float("-inf")) * scale, x.to(torch.float64)

    @pytest.mark.counts(kernels=2)
    def test_net(compiled):
        compiled(Net(), torch.randn(5, 8)[:, ::2], 3, grad=True, dynamic=True)

    def test_right(compiled):
        compiled(torch.sin, torch.ones(3))

    def test_broken(compiled):
        compiled(lambda x: print(x), torch.ones(3))
"""


def test_a_failing_test_leaves_a_script(
    pytester: pytest.Pytester, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(test_net=SUITE)
    result = run("-p", "cacheprovider")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["repro   python .pytest_cache/d/minductor/repro/test_net.py-test_net-cpu.py"])
    result.stdout.fnmatch_lines(["repro   none: *"])
    (script,) = (pytester.path / ".pytest_cache/d/minductor/repro").glob("*.py")
    text = script.read_text()
    assert "kernels   2 declared, 1 found: graph" in text and "import pytest" not in text
    capsys.readouterr()
    runpy.run_path(str(script))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0: torch.float32 (5, 5) (5, 1), eager (5, 1), largest difference 0"
    assert lines[1] == "1: torch.float64 (5, 4) (4, 1), eager (4, 1), largest difference 0"
    assert len(lines) == 4  # and the gradients of both parameters


def test_what_has_no_script(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "x.py"

    def nested(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    large = CompiledCall(torch.sin, (torch.empty(1 << 25),), {}, {}, None)
    for call, why in (
        (CompiledCall(nested, (torch.ones(3),), {}, {}, None), "holds other graphs"),
        (large, "more than"),
    ):
        with pytest.raises(CannotRepeat, match=why):
            write_script(call, path, "eager", "x", "")
