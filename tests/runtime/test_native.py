"""Our declarations are torch's; a call out of Python reads tensors where torch has them."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from minductor.codegen.cpp_calls import FUNCTIONS, declarations
from minductor.core.errors import LoadFailed
from minductor.frontend.schemas import overload
from minductor.runtime import native
from minductor.runtime.probe import find_compiler

TORCHS = ("inductor/aoti_torch/c/shim.h", "stable/c/shim.h", "inductor/aoti_torch/generated/c_shim_cpu.h")


def syntax(text: str, tmp_path: Path) -> str:
    """What the compiler has to say of a unit; it compiles none of it."""
    unit = tmp_path / "unit.cpp"
    unit.write_text(text)
    torchs = Path(torch.__file__).parent / "include"
    command = [*find_compiler(os.environ).command, "-std=c++20", "-fsyntax-only", f"-I{torchs}", f"-I{native.INCLUDE}"]
    return subprocess.run([*command, str(unit)], capture_output=True, text=True, check=False).stderr


def test_our_declarations_are_torchs(tmp_path: Path) -> None:
    theirs = "".join(f"#include <torch/csrc/{name}>\n" for name in TORCHS)
    ours = "\n".join(declarations({op: str(overload(op)._schema) for op in FUNCTIONS}))
    text = f'{theirs}#include "minductor_torch.h"\n{ours}\n'
    assert "error" not in syntax(text, tmp_path)
    wrong = text + 'extern "C" int32_t aoti_torch_cpu_mm_out(md_Handle, md_Handle, double);\n'
    assert "conflicting declaration" in syntax(wrong, tmp_path)


def test_a_torch_that_lays_tensors_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.tensor_offset(Path("a.so")) > 0
    monkeypatch.setattr(torch.Tensor, "_cdata", 1)
    with pytest.raises(LoadFailed, match="keeps its tensors elsewhere"):
        native.tensor_offset(Path("a.so"))
