"""What a graph of the device may capture, in which order, and which device is current where. No GPU is needed."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

import minductor
from minductor.analysis.capturable_nodes import partitions
from minductor.codegen.wrapper.wrapper_python import wrapper_python
from minductor.core.errors import VerifyError
from minductor.core.expressions.expr import integer, symbol
from minductor.driver import Compiled, Compiler
from minductor.ir.plan.plan import DeviceScopeLine, LaunchLine, PartitionLine, Plan, ReuseLine, ScopeEndLine
from minductor.ir.plan.plan_text import print_plan
from minductor.ir.plan.verify_plan import verify_plan
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import (
    Extern,
    Kernel,
    Origin,
    Program,
    Region,
    Require,
    SymbolDef,
    Token,
    View,
    defined_symbols,
)
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.ir.report.report import report
from minductor.options import Options
from minductor.passes.access.access import access
from minductor.passes.bundle.bundle import bundle
from minductor.passes.fuse.fuse import fuse
from minductor.passes.memory.memory import memory
from minductor.passes.partition.partition import partition
from minductor.runtime.store.store import Store
from minductor.target import Env, by_name
from minductor.tracing.trace import Trace, partition_lines
from tests.passes.graphs import assert_same, programs
from tests.passes.sketch import CPU, Sketch
from tests.rows import inline, schedule
from tests.verifying import verify

GPU = Env(Options(), by_name("sm_90"))


@dataclass
class Devices(Sketch):
    """A sketch whose new buffers are on the device of the moment."""

    device: str = "cuda:0"
    on: dict[str, str] = field(default_factory=dict)

    def done(self, *outputs: View) -> Program:
        self.place()
        program = super().done(*outputs)
        made = replace(program, buffers=tuple(replace(b, device=self.on[b.name]) for b in program.buffers))
        verify(made, "partition" if not made.nodes else "order")
        return made

    def place(self) -> None:
        for buffer in self.buffers:
            self.on.setdefault(buffer.name, self.device)

    def to(self, device: str) -> None:
        """What is made from here on is there."""
        self.place()
        self.device = device

    def copy_to(self, view: View, device: str) -> View:
        self.to(device)
        return self.extern(view)


def shape(program: Program, env: Env = GPU) -> list[tuple[str, int, bool]]:
    return [(p.device, p.calls, p.is_capturable) for p in partitions(program, env)]


def reasons(program: Program) -> list[str]:
    return [barrier.reason for part in partitions(program, GPU) for barrier in part.barriers]


def planned(program: Program) -> Plan:
    plan = memory(access(schedule(program, CPU), CPU), GPU)
    verify_plan(plan)
    return plan


def scopes(plan: Plan) -> list[str]:
    """Partitions, and the scopes around or within them."""
    kept = (line for line in plan.lines if isinstance(line, PartitionLine | DeviceScopeLine | ScopeEndLine))
    return [
        f"on {line.device}"
        if isinstance(line, DeviceScopeLine)
        else "end"
        if isinstance(line, ScopeEndLine)
        else "part"
        for line in kept
    ]


def there_and_back() -> Program:
    """A kernel, a visit to the CPU, a kernel."""
    s = Devices()
    a = s.op("exp", s.input(8, 8))
    b = s.op("neg", s.copy_to(a, "cpu"))
    return s.done(s.op("sin", s.copy_to(b, "cuda:0")))


def test_a_visit_to_the_cpu_cuts_in_three_under_one_scope() -> None:
    program = there_and_back()
    assert shape(program) == [("cuda:0", 1, True), ("cuda:0", 3, False), ("cuda:0", 1, True)]
    assert reasons(program) == ["it copies between devices", "it runs on the CPU", "it copies between devices"]
    plan = planned(program)
    assert scopes(plan) == ["on cuda:0", "part", "part", "part", "end"]
    assert print_plan(plan).count("on cuda:0 {") == 1


def test_one_partition_has_its_scope_inside() -> None:
    s = Devices()
    plan = planned(s.done(s.op("sin", s.op("exp", s.input(8, 8)))))
    assert scopes(plan) == ["part", "on cuda:0", "end"]


def test_each_partition_of_several_devices_has_its_own_scope() -> None:
    s = Devices()
    first = s.op("exp", s.input(8, 8))
    s.to("cuda:1")
    second = s.op("exp", s.input(8, 8))
    program = s.done(first, second)
    assert shape(program) == [("cuda:0", 1, True), ("cuda:1", 1, True)]
    assert scopes(planned(program)) == ["part", "on cuda:0", "end", "part", "on cuda:1", "end"]


def test_a_cpu_has_no_partitions_and_an_unchanged_plan() -> None:
    s = Sketch()
    program = s.done(s.op("exp", s.input(8, 8)))
    assert shape(program, CPU) == []
    assert partition(program, CPU) is program
    tiled = access(schedule(program, CPU), CPU)
    plan = memory(tiled, CPU)
    assert scopes(plan) == []
    facts = report(tiled, plan)
    assert (facts.partitions, facts.barriers) == ((), ())


def test_the_wrapper_is_python_that_enters_a_device_once() -> None:
    text = wrapper_python(planned(there_and_back()), GPU)
    compile(text, "wrapper", "exec")
    assert text.count("with ") == 1
    assert [line.strip() for line in text.splitlines() if "# partition" in line or "#   " in line] == [
        "# partition 0: can be captured",
        "# partition 1: cannot be captured",
        "#   x1: it copies between devices",
        "#   k2: it runs on the CPU",
        "#   x3: it copies between devices",
        "# partition 2: can be captured",
    ]


# --- reasons ------------------------------------------------------------------------------------------------------


def called(**changes: object) -> Program:
    """A call on the device between two kernels of it."""
    s = Devices()
    a = s.extern(s.op("exp", s.input(8, 8)))
    program = s.done(s.op("sin", a))
    first, call, last = program.nodes
    assert isinstance(call, Extern)
    return replace(program, nodes=(first, replace(call, **changes), last))  # pyright: ignore


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"effect": True}, ""),  # random numbers
        ({"effect": True, "kwargs": (("generator", None),)}, ""),
        (
            {"effect": True, "kwargs": (("generator", Token("external", "mine")),)},
            "it draws from a generator that the user gives",
        ),
        ({"effect": True, "op": "_c10d_functional.wait_tensor.default"}, "it has a side effect"),
        ({"op": "aten.multinomial.default"}, "the host waits for a check of its input"),
        ({"effect": True, "op": "mine.op.default"}, ""),
        ({"effect": True, "op": "higher_order.print"}, "it has a side effect"),
        ({"is_capturable": False}, "its author has tagged it as not capturable"),
        ({"op": "aten.nonzero.default"}, "the host waits for a size that data decide"),
        ({"results": (symbol("u0", "size", 0, None),)}, "the host waits for a size that data decide"),
        ({"args": (Region("yes"),)}, "the host decides which graphs it runs"),
        ({"args": ((Region("yes"),),)}, "the host decides which graphs it runs"),
    ],
)
def test_what_stands_against_a_call(changes: dict[str, object], reason: str) -> None:
    program = called(**changes)
    assert reasons(program) == ([reason] if reason else [])
    assert len(shape(program)) == (3 if reason else 1)


def test_an_input_on_the_cpu_that_changes() -> None:
    s = Devices()
    s.to("cpu")
    x = s.input(8, 8)
    s.to("cuda:0")
    y = s.op("exp", s.input(8, 8))
    program = s.done(s.copy(x, y))
    assert reasons(program) == ["it writes to an input on the CPU"]


def test_a_kernel_that_reads_the_cpu_or_another_device() -> None:
    for other, reason in (("cpu", "it reads a tensor on the CPU"), ("cuda:1", "it uses tensors on several devices")):
        s = Devices(device=other)
        x = s.input(8, 8)
        s.to("cuda:0")
        assert reasons(s.done(s.op("add", x, s.input(8, 8)))) == [reason]


def test_numbers_that_data_decide_reach_all_who_use_them() -> None:
    program = called(results=(symbol("u0", "size", 0, None),))
    first, call, last = program.nodes
    assert isinstance(last, Kernel) and isinstance(call, Extern)
    (found,) = defined_symbols(call)
    other = symbol("u1", "size", 0, None)
    b = Builder()
    twice = SymbolDef(other, b.build([b.index(found * 2)]))
    grown = replace(last, axes=tuple(replace(axis, extent=other) for axis in last.axes))
    made = replace(program, nodes=(first, call, twice, grown))
    assert reasons(made)[1:] == ["the host computes with sizes that data decide", "its sizes depend on data"]
    assert shape(made) == [("cuda:0", 1, True), ("cuda:0", 2, False)]


def test_a_number_that_data_decide_says_why_by_its_name() -> None:
    """It comes from no node of its own; the partition that can be captured has no part in it."""
    program = called(results=(symbol("u0", "size", 0, None),))
    (found,) = defined_symbols(program.nodes[1])
    b = Builder()
    twice = SymbolDef(symbol("u1", "size", 0, None), b.build([b.index(found * 2)]))
    holds = Require(b.build([b.op("gt", b.index(found), b.index(integer(0)))]), "it is positive")
    parts = partitions(replace(program, nodes=(*program.nodes[:2], twice, holds)), GPU)
    barriers = tuple((row.node, row.op, row.origin, row.reason) for part in parts for row in part.barriers)
    facts = SimpleNamespace(partitions=[(p.device, p.calls, p.is_capturable) for p in parts], barriers=barriers)
    lines = list(partition_lines(facts, SimpleNamespace(graph=SimpleNamespace(nodes=[]))))
    assert lines[0] == "partition 0: 1 call on cuda:0, can be captured"
    assert lines[-2:] == [
        "cannot be captured: u1: the host computes with sizes that data decide",
        "cannot be captured: assert: the host computes with sizes that data decide",
    ]


def test_numbers_that_the_callers_sizes_tell_cut_nothing() -> None:
    program = called()
    b = Builder()
    known = SymbolDef(symbol("u0", "size", 0, None), b.build([b.index(integer(3))]))
    made = replace(program, nodes=(known, program.nodes[0], known, *program.nodes[1:]))
    assert shape(made) == [("cuda:0", 3, True)]


def test_an_operator_that_its_author_keeps_out_is_known_from_its_tag() -> None:
    from minductor.frontend.capture.capture import capture
    from tests.rows import lower

    @torch.library.custom_op("minductor_tests_partition::alone", mutates_args=(), tags=[torch.Tag.cudagraph_unsafe])
    def alone(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    alone.register_fake(torch.empty_like)
    gm = make_fx(lambda x: alone(x) @ x, tracing_mode="fake")(torch.ones(3, 3))
    program = lower(capture(gm, "inference"), CPU)
    assert [node.is_capturable for node in program.nodes if isinstance(node, Extern)] == [False, True]
    assert parse_program(print_program(program)) == program


# --- fewer cuts ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_captured_is_put_together() -> None:
    s = Devices()
    views = [s.extern(s.op("exp", s.input(8, 8))) for _ in range(3)]
    program = s.done(*(s.op("sin", view) for view in views))
    nodes = tuple(replace(n, is_capturable=False) if isinstance(n, Extern) else n for n in program.nodes)
    pairs = [(nodes[0], nodes[1]), (nodes[2], nodes[3]), (nodes[4], nodes[5])]
    mixed = replace(program, nodes=tuple(n for pair in pairs for n in pair) + nodes[6:])
    assert len(shape(mixed)) == 7
    made = partition(mixed, GPU)
    verify(made, "order")
    assert [p[1:] for p in shape(made)] == [(3, True), (3, False), (3, True)]
    assert {id(n) for n in made.nodes} == {id(n) for n in mixed.nodes}
    assert partition(made, GPU) is made
    assert partition(mixed, CPU) is mixed


@settings(deadline=None, max_examples=60)
@given(programs(14), st.data())
def test_the_new_order_gives_the_same_values(program: Program, data: st.DataObject) -> None:
    draw = data.draw(st.lists(st.booleans(), min_size=len(program.nodes), max_size=len(program.nodes)))
    nodes = tuple(
        replace(node, effect=is_drawn, is_capturable=not is_drawn) if isinstance(node, Extern) else node
        for node, is_drawn in zip(program.nodes, draw, strict=True)
    )
    placed = replace(program, nodes=nodes, buffers=tuple(replace(b, device="cuda:0") for b in program.buffers))
    made = partition(placed, GPU)
    verify(made, "order")
    assert len(shape(made)) <= len(shape(placed))
    assert sum(part.nodes for part in partitions(made, GPU)) == len(nodes)
    assert [n for n in made.nodes if isinstance(n, Extern) and n.effect] == [
        n for n in nodes if isinstance(n, Extern) and n.effect
    ]
    assert_same(program, replace(made, buffers=program.buffers))


def test_an_order_that_costs_memory_is_not_taken() -> None:
    """All that is captured first would keep every result alive at once."""
    s = Devices()
    total = s.reduce("sum", s.input(512, 512), 1)
    for _ in range(8):
        large = s.op("exp", s.input(512, 512))
        total = s.op("add", total, s.reduce("sum", s.extern(large), 1))
    program = s.done(total)
    mixed = replace(
        program, nodes=tuple(replace(n, is_capturable=False) if isinstance(n, Extern) else n for n in program.nodes)
    )
    assert partition(mixed, GPU) is mixed


# --- several devices in the other passes --------------------------------------------------------------------------


def test_kernels_of_two_devices_stay_apart() -> None:
    s = Devices(device="cpu")
    scalar = s.op("exp", s.input(1))
    s.to("cuda:0")
    program = s.done(s.op("mul", scalar, s.input(8, 8)))
    assert (
        len(inline(replace(program, buffers=tuple(replace(b, device="cpu") for b in program.buffers)), CPU).nodes) == 1
    )
    made = bundle(schedule(fuse(inline(program, CPU), CPU), CPU), CPU)
    assert len(made.nodes) == 2
    assert any("different devices" in str(note) for note in made.notes)


def test_memory_of_one_device_is_not_reused_on_another() -> None:
    program = there_and_back()
    devices = {buffer.name: buffer.device for buffer in program.buffers}
    pairs = [(line.name, line.old) for line in planned(program).lines if isinstance(line, ReuseLine)]
    assert pairs
    assert all(devices[new] == devices[old] for new, old in pairs)


# --- what is shown ------------------------------------------------------------------------------------------------


def test_the_report_and_the_log_say_what_why_and_where() -> None:
    program = there_and_back()
    facts = report(access(schedule(program, CPU), CPU), planned(program))
    assert [row[2] for row in facts.partitions] == [True, False, True]
    node = SimpleNamespace(
        name="x1", op="call_function", meta={"stack_trace": '  File "model.py", line 7, in forward\n    y = x.cpu()'}
    )
    lines = list(partition_lines(facts, SimpleNamespace(graph=SimpleNamespace(nodes=[node]))))
    assert lines == [
        "partition 0: 1 call on cuda:0, can be captured",
        "partition 1: 3 calls on cuda:0, cannot be captured",
        "partition 2: 1 call on cuda:0, can be captured",
        "cannot be captured: x1: aten.neg.out: it copies between devices (model.py:7)",
        "cannot be captured: k2: aten.op: it runs on the CPU",
        "cannot be captured: x3: aten.neg.out: it copies between devices",
    ]


@torch.library.custom_op("minductor_tests_partition::outside", mutates_args=(), tags=[torch.Tag.cudagraph_unsafe])
def outside(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


outside.register_fake(torch.empty_like)


def test_a_compile_for_a_gpu_logs_its_partitions_and_explains_them(tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return outside(x.exp() @ x).sin()

    out = io.StringIO()
    seen: list[Compiled] = []
    trace = Trace.parse("2", out=out)
    compiler = Compiler(store=Store(tmp_path), trace=trace, observer=seen.append, is_dry=True)
    torch.compile(fn, backend=compiler, options={"target": "sm_90", "verify": True, "matmul": "extern"})(
        torch.ones(3, 3)
    )
    logged = [line.partition("partitions ")[2] for line in out.getvalue().splitlines() if " partitions " in line]
    told = [
        "partition 0: 2 calls on cuda:0, can be captured",
        "partition 1: 1 call on cuda:0, cannot be captured",
        "partition 2: 1 call on cuda:0, can be captured",
        "cannot be captured: x1: minductor_tests_partition.outside.default: its author has tagged it as not capturable "
        f"({Path(__file__).resolve()}:{fn.__code__.co_firstlineno + 1})",
    ]
    assert logged == ["0.0 ms partitions=3 capturable=2", *(f"note: {line}" for line in told)]
    assert [row[2] for row in seen[0].report.partitions] == [True, False, True]
    assert seen[0].sources["wrapper.py"].count("with ") == 1
    shown = str(minductor.explain(fn, torch.ones(3, 3)))  # on the CPU, which has no graphs
    assert "be captured" not in shown and "partition 0" not in shown


# --- rules of plans -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", ["no end", "twice", "within", "numbers", "early end", "another"])
def test_a_scope_that_is_crooked_is_refused(spoil: str) -> None:
    plan = planned(there_and_back())
    lines = list(plan.lines)
    at = lines.index(DeviceScopeLine("cuda:0"))
    match spoil:
        case "no end":
            lines.remove(ScopeEndLine())
        case "twice":
            lines.insert(at + 1, DeviceScopeLine("cuda:1"))
        case "within":
            lines.insert(lines.index(PartitionLine(0)) + 1, lines.pop(at))
        case "numbers":
            lines.remove(PartitionLine(1))
        case "another":
            launch = next(line for line in lines if isinstance(line, LaunchLine) and line.device == "cuda:0")
            lines[lines.index(launch)] = replace(launch, device="cuda:1")
        case _:
            lines.insert(at, ScopeEndLine())
    with pytest.raises(VerifyError, match="a device is current for whole partitions"):
        verify_plan(replace(plan, lines=tuple(lines)))


def test_a_device_has_a_number() -> None:
    program = there_and_back()
    made = parse_program(print_program(program))
    assert {b.name: b.device for b in made.buffers} == {b.name: b.device for b in program.buffers}
    assert Origin("k0", "aten.op") in made.nodes[0].origins
