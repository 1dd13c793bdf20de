"""The life of every storage: taken over in place, reused, freed at its last use, and never behind somebody's back."""

import pytest

from minductor.ir.plan.plan import (
    AllocateLine,
    ExternLine,
    FreeLine,
    KernelLine,
    LaunchLine,
    Plan,
    ReturnLine,
    ReuseLine,
    ViewLine,
)
from minductor.ir.plan.storage import peak_bytes
from minductor.ir.plan.verify_plan import verify_plan
from minductor.ir.program.nodes import Program, Token
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.memory.memory import memory
from minductor.target import Env, by_name
from tests.ir.programs import ALL, CHAIN, SOFTMAX

ENV = Env(Options(), by_name("cpu"))


def plan_of(text: str) -> Plan:
    return memory(parse_program(text), ENV)


def lines(plan: Plan, kind: type) -> list[str]:
    return [line.name for line in plan.lines if isinstance(line, kind)]


def chain(steps: int, size: str = "[64, 1024]", stride: str = "[1024, 1]") -> str:
    """buf0 = arg0 + 1, then each buffer the product of the one before with itself, by calls that we do not generate."""
    head = [f"  buffer buf{n}: f32{size} stride {stride} cpu" for n in range(steps + 1)]
    view = f"f32{size} stride {stride} offset 0"
    calls = [
        f"  extern x{n} out aten.mul.out(buf{n}@0 {view}, buf{n}@0 {view}) -> (buf{n + 1}@0 {view}) "
        f'from mul_{n} = aten.mul.Tensor because "for the test"'
        for n in range(steps)
    ]
    first = [
        "  kernel k0 (i0: 65536) from add = aten.add.Tensor",
        "    %0 = load arg0@0[i0] : f32 {i0}",
        "    %1 = store buf0@0[i0] %0 {i0}",
    ]
    body = [f"program inference\n  input arg0: f32{size} stride {stride} cpu", *head, *first, *calls]
    return "\n".join([*body, f"  return (buf{steps}@0 {view})"]) + "\n"


@pytest.mark.parametrize("name", ALL)
def test_plans_verify(name: str) -> None:
    verify_plan(plan_of(ALL[name]))


def test_a_dead_storage_is_taken_over() -> None:
    plan = plan_of(chain(5))
    verify_plan(plan)
    assert lines(plan, AllocateLine) == ["buf0", "buf1"]
    assert [(r.name, r.old) for r in plan.lines if isinstance(r, ReuseLine)] == [
        ("buf2", "buf0"),
        ("buf3", "buf1"),
        ("buf4", "buf2"),
        ("buf5", "buf3"),
    ]
    assert peak_bytes(plan.storages) == 2 * 64 * 1024 * 4


def test_an_output_is_never_taken_over() -> None:
    text = chain(3).replace("return (", "return (buf0@0 f32[64, 1024] stride [1024, 1] offset 0, ")
    plan = plan_of(text)
    assert all(line.old != "buf0" for line in plan.lines if isinstance(line, ReuseLine))


def test_what_a_call_made_and_nobody_read_is_not_reused() -> None:
    """Scratch results may be smaller than the tracer was told."""
    view = "f32[8] stride [1] offset 0"
    buffers = "\n".join(f"  buffer buf{n}: f32[8] stride [1] cpu" for n in range(3))
    plan = plan_of(
        f"program inference\n  input arg0: f32[8] stride [1] cpu\n{buffers}\n"
        f"  extern x0 return aten.frexp.Tensor(arg0@0 {view}) -> (buf0@0 {view}, buf1@0 {view}) "
        'from frexp = aten.frexp.Tensor because "for the test"\n'
        "  kernel k0 (i0: 8) from add = aten.add.Tensor\n"
        "    %0 = load buf0@0[i0] : f32 {i0}\n"
        "    %1 = load arg0@0[-i0 + 7] : f32 {i0}\n"
        "    %2 = add %0 %1 : f32 {i0}\n"
        "    %3 = store buf2@0[i0] %2 {i0}\n"
        f"  return (buf2@0 {view}, buf0@0 {view})\n"
    )
    assert lines(plan, AllocateLine) == ["buf2"]
    assert not lines(plan, ReuseLine)


def test_inputs_are_freed_at_their_last_use_and_only_donated_ones_reused() -> None:
    plan = plan_of(chain(2))
    assert next(line for line in plan.lines if isinstance(line, FreeLine)) == FreeLine(("arg0",))
    donated = plan_of(chain(2).replace("cpu\n  buffer", "cpu donated\n  buffer", 1))
    assert next((r.name, r.old) for r in donated.lines if isinstance(r, ReuseLine)) == ("buf0", "arg0")
    assert lines(donated, AllocateLine) == ["buf1"]


ELEMENTWISE = """program inference
  input arg0: f32[8, 8] stride [8, 1] cpu donated
  buffer buf0: f32[8, 8] stride [8, 1] cpu
  kernel k0 (i0: 8, i1: 8) from exp = aten.exp.default
    %0 = load arg0@0[8*i0 + i1] : f32 {i0 i1}
    %1 = exp %0 : f32 {i0 i1}
    %2 = store buf0@0[8*i0 + i1] %1 {i0 i1}
  return (buf0@0 f32[8, 8] stride [8, 1] offset 0)
"""


def takes_over(text: str, env: Env = ENV) -> bool:
    plan = memory(parse_program(text), env)
    verify_plan(plan)
    return not lines(plan, AllocateLine)


def test_an_elementwise_kernel_writes_over_its_dying_operand() -> None:
    plan = plan_of(ELEMENTWISE)
    assert takes_over(ELEMENTWISE)
    launch = next(line for line in plan.lines if isinstance(line, LaunchLine))
    assert launch.tensors == ("arg0",)
    assert not takes_over(ELEMENTWISE.replace(" donated", ""))


def test_a_result_of_a_cuda_graph_lies_in_no_storage_that_the_plan_does_not_allocate() -> None:
    """What a forward graph saved lies in the pool of the graphs, from where a result would be copied."""
    graphs = Env(Options(cudagraphs=True), by_name("cpu"))
    assert not takes_over(ELEMENTWISE, graphs)
    text = chain(4).replace("cpu\n  buffer", "cpu donated\n  buffer", 1)
    plan = memory(parse_program(text), graphs)
    verify_plan(plan)
    reused = {line.name: line.old for line in plan.lines if isinstance(line, ReuseLine)}
    assert reused == {"buf0": "arg0", "buf2": "buf0", "buf3": "buf1"} and lines(plan, AllocateLine) == ["buf1", "buf4"]
    assert lines(plan_of(text), AllocateLine) == ["buf1"]


def test_another_index_or_dtype_or_size_keeps_them_apart() -> None:
    assert not takes_over(ELEMENTWISE.replace("load arg0@0[8*i0 + i1]", "load arg0@0[i0 + 8*i1]"))
    assert not takes_over(ELEMENTWISE.replace("buffer buf0: f32[8, 8]", "buffer buf0: f16[8, 8]"))
    assert not takes_over(ELEMENTWISE.replace("arg0: f32[8, 8]", "arg0: f32[9, 8]"))


def test_an_operand_that_is_also_written_keeps_its_place() -> None:
    """Its new version and the result are two values, even if nobody reads the former."""
    store = "    %2 = store buf0@0[8*i0 + i1] %1 {i0 i1}\n"
    assert ELEMENTWISE.count(store) == 1
    assert not takes_over(ELEMENTWISE.replace(store, store + "    %3 = store arg0@1[8*i0 + i1] %0 {i0 i1}\n"))


def test_a_row_that_is_read_again_after_the_store_is_not_written_over() -> None:
    donated = SOFTMAX.replace("[8, 1] cpu", "[8, 1] cpu donated", 1)
    assert takes_over(donated)
    late = donated.replace(
        "  kernel k0 (i0: 4, i1: 8) from softmax = aten._softmax.default\n",
        "  kernel k0 (i0: 4, i1: 8) from softmax = aten._softmax.default\n"
        "    schedule {\n      parallel i0 {\n        vector i1 carry %1 {\n          %0 %1\n        }\n"
        "        vector i1 {\n          %0 %2 %3 %4 %5 %6\n        }\n        vector i1 {\n          %0\n        }\n"
        "      }\n    }\n",
    )
    assert not takes_over(late)


@pytest.mark.parametrize(("second", "last", "is_taken"), [("%0 %2 %3", "", True), ("%2 %3", "%0 ", False)])
def test_a_row_kept_in_the_result_counts_as_its_store(second: str, last: str, is_taken: bool) -> None:
    """The exponentials stand in the result: a loop behind them must not load what they may be written over."""
    head = "  kernel k0 (i0: 4, i1: 8) from softmax = aten._softmax.default\n"
    loops = (
        "    schedule {\n      parallel i0 {\n        vector i1 carry %1 {\n          %0 %1\n        }\n"
        f"        vector i1 carry %4 {{\n          {second} %4\n        }}\n"
        f"        vector i1 {{\n          {last}%5 %6\n        }}\n"
        "      }\n      rows %3\n      results %3 %6\n    }\n"
    )
    donated = SOFTMAX.replace("[8, 1] cpu", "[8, 1] cpu donated", 1)
    assert takes_over(donated.replace(head, head + loops)) == is_taken


def test_equal_kernels_share_one_definition() -> None:
    text = (
        ELEMENTWISE.replace(" donated", "")
        .replace(
            "  return (buf0@0",
            "  kernel k1 (i0: 8, i1: 8) from exp_1 = aten.exp.default\n"
            "    %0 = load buf0@0[8*i0 + i1] : f32 {i0 i1}\n    %1 = exp %0 : f32 {i0 i1}\n"
            "    %2 = store buf1@0[8*i0 + i1] %1 {i0 i1}\n  return (buf0@0 f32[8, 8] stride [8, 1] offset 0, buf1@0",
        )
        .replace("  kernel k0", "  buffer buf1: f32[8, 8] stride [8, 1] cpu\n  kernel k0", 1)
    )
    plan = plan_of(text)
    defined = [line for line in plan.lines if isinstance(line, KernelLine)]
    assert [(d.symbol, [o.node for o in d.origins]) for d in defined] == [("exp_0", ["exp", "exp_1"])]
    assert [line.kernel for line in plan.lines if isinstance(line, LaunchLine)] == ["k0", "k0"]


def test_views_are_lines_and_the_whole_buffer_is_itself() -> None:
    plan = plan_of(CHAIN)
    assert lines(plan, ViewLine) == ["arg1_view1"]
    call = next(line for line in plan.lines if isinstance(line, ExternLine))
    assert str(call.args).count("arg1_view1") == 1
    assert "Token(kind='tensor', name='buf0')" in str(call.args)


def test_equal_outputs_are_one_object_unless_the_program_says_otherwise() -> None:
    whole = "buf0@0 f32[4, 8] stride [8, 1] offset 0"
    window = "buf0@0 f32[4, 7] stride [8, 1] offset 1"
    text = SOFTMAX.replace(f"({whole})", f"({', '.join([whole, window, whole, window, whole, whole])}) distinct (2, 4)")
    (returned,) = (line for line in plan_of(text).lines if isinstance(line, ReturnLine))
    names = [value.name for value in returned.values if isinstance(value, Token)]
    assert names == ["buf0", "buf0_view1", "buf0_view2", "buf0_view1", "buf0_view2", "buf0"]


def test_the_program_of_a_faulty_plan_is_refused() -> None:
    plan = plan_of(SOFTMAX)
    without = tuple(line for line in plan.lines if not isinstance(line, AllocateLine))
    from minductor.core.errors import VerifyError

    with pytest.raises(VerifyError, match="buf0"):
        verify_plan(Plan(plan.name, plan.inputs, without, plan.kernels))
    with pytest.raises(VerifyError, match="buf0"):
        verify_plan(Plan(plan.name, plan.inputs, (*plan.lines[:-1], FreeLine(("buf0",)), plan.lines[-1]), plan.kernels))


def test_mutated_inputs_stay_with_their_owner() -> None:
    plan = plan_of(CHAIN)
    program: Program = parse_program(CHAIN)
    assert program.inputs[1].name == "arg0"
    launches = [line for line in plan.lines if isinstance(line, LaunchLine)]
    assert "arg0" in launches[-1].tensors
    returned = next(line for line in plan.lines if isinstance(line, ReturnLine))
    assert len(returned.values) == 3


def test_a_kernel_is_not_called_as_a_tensor_is() -> None:
    plan = plan_of(ELEMENTWISE.replace("arg0", "exp_0"))
    assert [line.symbol for line in plan.lines if isinstance(line, KernelLine)] == ["exp_0_1"]
