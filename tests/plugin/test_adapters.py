"""Other compilers: TorchInductor's programs are parsed, packages bring adapters, and no run sees another's graphs."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from pytest_plugin.adapters import Graph, find_adapter
from pytest_plugin.adapters.eager import Eager, Session
from pytest_plugin.adapters.inductor import Inductor, blocks_of, entries, parse
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle.compiled import Compile, ForeignGraph
from tests.plugin.conftest import Run

PROGRAM = '''
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()

# a comment that names extern_kernels.mm(a) and triton_poi_0.run(b)
triton_poi_0 = async_compile.triton('triton_poi_0', """
import triton
@triton_heuristics.pointwise(size_hints={'x': 64}, triton_meta={'device': 'of this machine'})
@triton.jit
def triton_poi_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(tl.make_block_ptr(in_ptr0, shape=[64]))
    # tl.make_block_ptr(
    tl.store(out_ptr0, tmp0)
""", device_str='cuda')

cpp_fused_1 = async_compile.cpp_pybinding(['float*'], r\'\'\'
#include "/home/of/somebody/prefix.h"
void kernel(float* out_ptr0) { out_ptr0[0] = 1; }
\'\'\')

class Runner:
    def call(self, args):
        arg0_1, = args
        buf0 = empty_strided_cpu((8, ), (1, ), torch.float32)
        triton_poi_0.run(arg0_1, buf0, 64, stream=stream0)
        cpp_fused_1(buf0)
        buf1 = extern_kernels.mm(buf0, buf0)
        buf2 = torch.ops.aten.topk.default(buf1)
        cpp_fused_1(buf2[0])
        return (buf1, )

def benchmark_compiled_module(args):
    return cpp_fused_1(args)
'''


def test_a_program_of_torchinductor_is_counted_as_it_is_called() -> None:
    parsed = parse(PROGRAM)
    assert parsed.launches == ("triton_poi_0", "cpp_fused_1", "cpp_fused_1")
    assert parsed.externs == ("extern_kernels.mm", "torch.ops.aten.topk.default")
    assert [(kernel.name, kernel.language) for kernel in parsed.kernels] == [
        ("triton_poi_0", "py"),
        ("cpp_fused_1", "cpp"),
    ]
    texts = "".join([*(kernel.text for kernel in parsed.kernels), parsed.wrapper])
    assert "of this machine" not in texts and "/home/" not in texts and "benchmark" not in texts
    assert parsed.kernels[0].text.startswith("@triton.jit\ndef triton_poi_0(")
    assert parsed.wrapper.startswith("def call(self, args):\n    arg0_1, = args\n")
    assert blocks_of(parsed.kernels) == {"block_pointers": 1, "descriptors": 0, "block_accesses": 1}
    assert blocks_of(parsed.kernels[1:])["block_pointers"] is None


def test_a_store_that_is_written_to_is_seen(tmp_path: Path) -> None:
    before = entries(tmp_path)
    (tmp_path / "x").mkdir()
    assert before == {} and entries(tmp_path) != before


@pytest.mark.long
def test_torchinductor_is_compiled_run_and_counted(tmp_path: Path) -> None:
    run = Compile(Inductor(), lambda: tmp_path, lambda run: None)(
        lambda x, y: torch.softmax(x.sin() @ y, -1), torch.randn(8, 8), torch.randn(8, 8), grad=True
    )
    assert [graph.role for graph in run.graphs] == ["forward", "backward"]
    forward = run.graphs[0]
    assert (forward.facts.kernels, forward.facts.externs, forward.facts.block_pointers) == (2, 1, None)
    assert [kind for kind, _ in forward.events] == ["launch", "launch", "extern"]
    assert "sin" in run.stages["forward.aten"] and "#include" not in "".join(run.kernels)
    with Inductor().fresh_store(tmp_path / "fresh") as store:
        Compile(Inductor(), lambda: store.path, lambda run: None)(lambda x: x + 1, torch.ones(3))
        assert store.touched == () and entries(store.path)


class Stale(Eager):
    """An adapter that remembers the graphs of earlier runs."""

    def __init__(self) -> None:
        self.earlier: list[Graph] = []

    def session(self, folder: Path, device: Device) -> Session:
        made, earlier = Session(), self.earlier
        capture = made.capture

        def remembering() -> Sequence[Graph]:
            found = [*earlier, *capture()]
            earlier[:] = found
            return found

        made.capture = remembering
        return made


def test_graphs_of_another_run_are_refused(tmp_path: Path) -> None:
    compiled = Compile(Stale(), lambda: tmp_path, lambda run: None)
    assert len(compiled(lambda x: x + 1, torch.ones(3)).graphs) == 1
    with pytest.raises(ForeignGraph, match="of another run"):
        assert compiled(lambda x: x + 2, torch.ones(3)).graphs


GUIDE = Path(__file__).parents[2] / "docs/testing.md"
HALF = """
class Half:
    name = "half"
"""
METADATA = "Metadata-Version: 2.1\nName: my_compiler\nVersion: 1.0\n"
POINTS = "[minductor_test_adapters]\nmine = my_compiler.testing:Adapter\nhalf = my_compiler.testing:Half\n"
SUITE = """
    import pytest, torch

    @pytest.mark.counts(kernels=1)
    def test_right(compiled, golden, compiler):
        assert compiler.name == "mine"
        golden.check(compiled(lambda x: (x + 1).sin(), torch.ones(3)))

    @pytest.mark.counts(kernels=2)
    def test_wrong(compiled):
        compiled(lambda x: (x + 1).sin(), torch.ones(3))
"""


def test_an_installed_package_brings_an_adapter(pytester: pytest.Pytester, run: Run, tmp_path: Path) -> None:
    """The one that the guide shows."""
    (adapter,) = [
        text for text in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S) if "class Adapter" in text
    ]
    wheel = tmp_path / "my_compiler-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("my_compiler/testing.py", adapter + HALF)
        for name, text in (("METADATA", METADATA), ("entry_points.txt", POINTS), ("WHEEL", "Wheel-Version: 1.0\n")):
            archive.writestr(f"my_compiler-1.0.dist-info/{name}", text)
        names = [*archive.namelist(), "my_compiler-1.0.dist-info/RECORD"]
        archive.writestr(names[-1], "".join(f"{name},,\n" for name in names))
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(site), str(wheel)], check=True)
    pytester.syspathinsert(site)
    pytester.makepyfile(SUITE)
    result = run("--compiler=mine", "--golden=accept")
    result.assert_outcomes(passed=1, failed=1)
    assert (pytester.path / "golden/mine/cpu").is_dir()
    half = run("--compiler=half")
    assert half.ret == pytest.ExitCode.USAGE_ERROR
    half.stderr.fnmatch_lines(
        ["*the adapter 'half' of my_compiler.testing:Half has no devices, memory_options, version,*"]
    )
    run("--compiler=gcc").stderr.fnmatch_lines(["*the compilers are minductor, inductor, eager, mine, half"])


def test_every_adapter_of_ours_is_complete() -> None:
    for name in ("minductor", "inductor", "eager"):
        assert find_adapter(name).name == name and find_adapter(name).version()
