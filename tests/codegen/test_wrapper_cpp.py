"""The wrapper in C++: text that reads like the plan, calls by torch's functions, its dispatcher, or Python."""

from dataclasses import replace

import pytest
import torch

from minductor.codegen.wrapper.wrapper_cpp import needs_torch, wrapper_cpp
from minductor.codegen.wrapper.wrapper_cpp_calls import call
from minductor.core.errors import NotNative
from minductor.frontend.capture.schemas import with_schemas
from minductor.ir.plan.plan import ExternLine, Plan
from minductor.ir.program.nodes import Token
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.memory.memory import memory
from minductor.target import Env, by_name
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
from pytest_plugin.goldens.golden import Goldens
from tests.ir.programs import CALLS, SOFTMAX

ENV = Env(Options(), by_name("cpu"))


def plan_of(text: str) -> Plan:
    return with_schemas(memory(parse_program(text), ENV))


def test_a_call_is_a_function_over_tensors() -> None:
    text = wrapper_cpp(plan_of(SOFTMAX), ENV)
    assert text.startswith('#include "minductor_torch.h"\n')
    assert "MD_TRY(md_empty(md, " in text and "softmax_0(" in text
    assert text.index("  // 1: ") < text.index("softmax_0(arg")


def test_the_header_says_whose_tensors_these_are() -> None:
    plan = plan_of(SOFTMAX)
    torchs, own = wrapper_cpp(plan, ENV), wrapper_cpp(plan, ENV, "minductor_plain.h")
    assert own == torchs.replace("minductor_torch.h", "minductor_plain.h")
    assert needs_torch(plan) == ()
    assert needs_torch(plan_of(CALLS))


def test_a_watched_memory_and_another_device_are_pythons() -> None:
    with pytest.raises(NotNative, match="the option verify_memory"):
        wrapper_cpp(plan_of(SOFTMAX), Env(Options(verify_memory="assert"), by_name("cpu")))
    with pytest.raises(NotNative, match="a wrapper for hip"):
        wrapper_cpp(plan_of(SOFTMAX), Env(Options(), by_name("gfx942")))
    with pytest.raises(NotNative, match="the option nan_asserts on a GPU"):
        wrapper_cpp(plan_of(SOFTMAX), Env(Options(nan_asserts=True), by_name("sm_90")))


GPU = Env(Options(), by_name("sm_90"))
# A product on the GPU, another on the CPU, and a kernel.
PRODUCTS = """program inference
  input arg0: f32[4, 4] stride [4, 1] cuda:0
  input arg1: f32[4, 4] stride [4, 1] cpu
  buffer buf0: f32[4, 4] stride [4, 1] cuda:0
  buffer buf1: f32[4, 4] stride [4, 1] cpu
  buffer buf2: f32[4, 4] stride [4, 1] cuda:0
  extern x0 out aten.mm.out(arg0@0 f32[4, 4] stride [4, 1] offset 0, arg0@0 f32[4, 4] stride [4, 1] offset 0) \
-> (buf0@0 f32[4, 4] stride [4, 1] offset 0) from mm = aten.mm.default because "a library call"
  extern x1 out aten.mm.out(arg1@0 f32[4, 4] stride [4, 1] offset 0, arg1@0 f32[4, 4] stride [4, 1] offset 0) \
-> (buf1@0 f32[4, 4] stride [4, 1] offset 0) from mm_1 = aten.mm.default because "a library call"
  kernel k0 (i0: 4, i1: 4) from neg = aten.neg.default
    %0 = load buf0@0[4*i0 + i1] : f32 {i0 i1}
    %1 = neg %0 : f32 {i0 i1}
    %2 = store buf2@0[4*i0 + i1] %1 {i0 i1}
  return (buf2@0 f32[4, 4] stride [4, 1] offset 0, buf1@0 f32[4, 4] stride [4, 1] offset 0)
"""


def on_gpu(text: str) -> str:
    return wrapper_cpp(with_schemas(memory(parse_program(text), GPU)), GPU)


def test_a_gpus_wrapper_reads_like_the_plan(golden: Goldens) -> None:
    """Each product is called by the function for its device; the GPU is current until the function ends."""
    golden.text("wrapper", on_gpu(PRODUCTS))


def check_functions_of_devices() -> None:
    """A function for one kind of device would read the other's memory."""
    text = on_gpu(PRODUCTS)
    assert text.count("aoti_torch_cuda_mm_out(") == text.count("aoti_torch_cpu_mm_out(buf1") == 1
    mixed = PRODUCTS.replace("aten.mm.out(arg1@0 f32[4, 4]", "aten.mm.out(arg0@0 f32[4, 4]", 1)
    text = on_gpu(mixed)
    assert 'md_operator("aten::mm", "out"' in text
    assert "aoti_torch_cuda_mm_out(" in text and "aoti_torch_cpu_mm_out" not in text


def test_a_call_on_tensors_of_two_devices_goes_through_the_dispatcher() -> None:
    check_functions_of_devices()


@pytest.mark.parametrize("fault", ["native-devices-mixed", "native-wrong-function"])
def test_each_fault_is_noticed(fault: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        with pytest.raises(AssertionError):
            check_functions_of_devices()
        assert was_reached()


def test_several_gpus_are_pythons() -> None:
    with pytest.raises(NotNative, match=r"several GPUs \(cuda:0, cuda:1\)"):
        on_gpu(PRODUCTS.replace("buf1: f32[4, 4] stride [4, 1] cpu", "buf1: f32[4, 4] stride [4, 1] cuda:1"))


def test_results_of_several_kinds_do_not_go_through_torchs_dispatcher() -> None:
    """Its C function reads the results in one order, and their kinds in the other."""
    operator = torch.ops.aten._batch_norm_impl_index.default
    given = (Token("tensor", "x"), None, None, None, None, True, 0.1, 1e-5, False)
    line = ExternLine(f"{operator}", given, (), ("y", *[None] * 4), is_out=False, origins=(), handle=0)
    with pytest.raises(NotNative, match="results of several kinds"):
        call(replace(line, schema=str(operator._schema)), {})
