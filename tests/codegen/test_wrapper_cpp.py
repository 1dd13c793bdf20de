"""The wrapper in C++: text that reads like the plan, calls by torch's functions, its dispatcher, or Python."""

import pytest

from minductor.codegen.wrapper.wrapper_cpp import needs_torch, wrapper_cpp
from minductor.core.errors import NotNative
from minductor.frontend.capture.schemas import with_schemas
from minductor.ir.plan.plan import Plan
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.memory.memory import memory
from minductor.target import Env, by_name
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
    with pytest.raises(NotNative, match="a wrapper for cuda"):
        wrapper_cpp(plan_of(SOFTMAX), Env(Options(), by_name("sm_90")))
