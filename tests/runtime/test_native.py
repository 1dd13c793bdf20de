"""Our declarations are torch's; a call out of Python reads tensors where torch has them."""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from minductor.codegen.wrapper.operator_schema import parse_schema
from minductor.codegen.wrapper.wrapper_cpp_calls import FUNCTIONS, call, declarations
from minductor.core.dtypes import F32
from minductor.core.errors import LoadFailed
from minductor.frontend.capture.schemas import find_overload
from minductor.ir.plan.plan import ExternLine
from minductor.ir.program.nodes import Argument, Token
from minductor.runtime.build.probe import find_compiler
from minductor.runtime.launch import launch_cpp_wrapper

TORCHS = ("inductor/aoti_torch/c/shim.h", "stable/c/shim.h", "inductor/aoti_torch/generated/c_shim_{}.h")

CUDA_HEADER = launch_cpp_wrapper.INCLUDE / "minductor_cuda.h"
# The header beside torch's own functions of the same names.
CUDA = """
namespace unit {
#include "minductor_cuda.h"
}
using unit::md_cuda;
"""


def syntax(text: str, tmp_path: Path) -> str:
    """What the compiler has to say of a unit; it compiles none of it."""
    unit = tmp_path / "unit.cpp"
    unit.write_text(text)
    torchs = Path(torch.__file__).parent / "include"
    command = [
        *find_compiler(os.environ).command,
        "-std=c++20",
        "-fsyntax-only",
        f"-I{torchs}",
        f"-I{launch_cpp_wrapper.INCLUDE}",
    ]
    return subprocess.run([*command, str(unit)], capture_output=True, text=True, check=False).stderr


def example(type: str, device: str) -> Argument:
    """A value for a parameter; a list for what may be one."""
    item = type.removesuffix("?").partition("[")[0]
    if "[" in type:
        return (example(item, device), example(item, device))
    match item:
        case "Tensor":
            return Token("tensor", "t")
        case "ScalarType":
            return F32
        case "Layout":
            return Token("layout", "strided")
        case "Device":
            return Token("device", device)
        case "float" | "Scalar":
            return 0.5
        case _:
            return item == "bool" or 2


def example_call(op: str, device: str) -> str:
    schema = parse_schema(text := str(find_overload(op)._schema))
    is_out = op.endswith("out")
    given = [p for p in schema.parameters if not (is_out and p.is_keyword and p.type == "Tensor")]
    named = tuple((p.name, example(p.type, device)) for p in given if p.is_keyword)
    args = tuple(example(p.type, device) for p in given if not p.is_keyword)
    line = ExternLine(op, args, named, ("t",) * len(schema.returns), is_out, (), 1, schema=text, device=device)
    return call(line, {"t": F32})[0]


def set_to_torchs(functions: Iterable[str], namespace: str) -> str:
    """Text that sets pointers of a namespace to torch's functions of their names, which have to be of their types."""
    return "\n".join(f"auto set_{name} = {namespace}::{name} = ::{name};" for name in functions)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_our_declarations_and_calls_are_torchs(device: str, tmp_path: Path) -> None:
    kind = device.partition(":")[0]
    functions = FUNCTIONS[kind]
    theirs = "".join(f"#include <torch/csrc/{name.format(kind)}>\n" for name in TORCHS)
    ours = "\n".join(declarations(kind, {op: str(find_overload(op)._schema) for op in functions}))
    calls = "\n".join(f"  MD_TRY({example_call(op, device)});" for op in functions)
    assert all(f"{function}(" in calls for function in functions.values())
    if kind == "cuda":  # the calls are of torch's functions, for which the unit has pointers
        ours = f"{CUDA}namespace links {{\n{ours}\n}}\n{set_to_torchs(functions.values(), 'links')}\n"
        ours += set_to_torchs(re.findall(r"MD_LINKED\((aoti_\w+)", CUDA_HEADER.read_text()), "unit")
    body = f"bool calls(md_Call& md, md_Tensor& t) {{\n{calls}\n  return true;\n}}"
    text = f'#define USE_CUDA\n{theirs}#include "minductor_torch.h"\n{ours}\n{body}\n'
    assert "error" not in syntax(text, tmp_path)
    wrong = text + 'extern "C" int32_t aoti_torch_cpu_mm_out(md_Handle, md_Handle, double);\n'
    if kind == "cuda":
        wrong = text.replace("MD_LINK(aoti_torch_cuda_mm_out, md_Handle,", "MD_LINK(aoti_torch_cuda_mm_out,")
        assert "invalid conversion" in syntax(wrong, tmp_path)
    else:
        assert "conflicting declaration" in syntax(wrong, tmp_path)


def test_a_torch_that_lays_tensors_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch_cpp_wrapper.tensor_offset(Path("a.so")) > 0
    monkeypatch.setattr(torch.Tensor, "_cdata", 1)
    with pytest.raises(LoadFailed, match="does not keep a pointer to the tensor in its Python object"):
        launch_cpp_wrapper.tensor_offset(Path("a.so"))
