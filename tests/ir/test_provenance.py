"""provenance.json: what a document says, and that it is read as it was written."""

from __future__ import annotations

import json

import pytest

from minductor.ir.artefact.source import Unit
from minductor.ir.report.provenance import Became, LineMap, PlanCall, Provenance, provenance
from minductor.options import Options
from minductor.passes.inline.inline import inline
from minductor.passes.memory.memory import memory
from minductor.target import Env, by_name
from tests.passes.sketch import CPU, Sketch

MADE = Provenance(
    "forward",
    (
        PlanCall("fused_mul_add_0:1", "launch", ("mul", "add"), values=(("mul",), ("mul", "add"))),
        PlanCall("aten.mm.out:2", "extern", ("region.mm",), "region", "extern"),
        PlanCall("fused_mul_add_0:3", "dispatch", ("add",)),
    ),
    {"fused_mul_add_0": LineMap("kernels.cpp", ((12, (0, 3)), (13, (1,))))},
    (Became("fuse", "k3", "k4", "one kernel moves less", "1 us together, 2 us apart"),),
)


def test_what_was_written_is_read() -> None:
    text = json.dumps(MADE.to_json())
    assert Provenance.from_json(json.loads(text)) == MADE
    assert list(json.loads(text)) == ["schema", "graph", "calls", "nodes", "lines", "became"]


def test_the_way_back_has_each_call_of_a_node() -> None:
    assert MADE.nodes == {
        "mul": ("fused_mul_add_0:1",),
        "add": ("fused_mul_add_0:1", "fused_mul_add_0:3"),
        "region.mm": ("aten.mm.out:2",),
    }


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="a provenance of schema 0, not 1"):
        Provenance.from_json(MADE.to_json() | {"schema": 0})


def test_lines_are_joined_and_not_stored() -> None:
    class Lines:
        def of(self, node: str) -> str:
            return f"{node}.py:1"

        def module_of(self, node: str) -> str:
            return f"layers.{node}"

        def forward_of(self, node: str) -> str:
            return f"forward_{node}"

    assert [MADE.line_of("mul"), MADE.module_of("mul"), MADE.forward_of("mul")] == ["", "", ""]
    joined = MADE.joined(Lines())
    assert joined.line_of("mul") == "mul.py:1"
    assert (joined.module_of("mul"), joined.forward_of("mul")) == ("layers.mul", "forward_mul")
    assert joined.to_json() == MADE.to_json()


def test_values_and_lines_are_of_level_2() -> None:
    s = Sketch()
    program = inline(s.done(s.op("exp", s.op("neg", s.input(4)))), CPU)
    plan = memory(program, Env(Options(), by_name("cpu")))
    units = (Unit("kernels", "", ("k",), line_maps=(("k", ((3, (0, 1)),)),)),)
    (call,) = provenance(program, plan, units, 2).calls
    assert call.values == (("k0",), ("k0",), ("k1",), ("k1",))
    assert provenance(program, plan, units, 2).lines == {"k": LineMap("kernels.cpp", ((3, (0, 1)),))}
    assert provenance(program, plan, (), 1).calls[0].values == ()
    assert [(each.stage, each.kernel, each.into) for each in provenance(program, plan, (), 1).became] == [
        ("inline", "k0", "k1"),
        ("memory", "k1", call.key),
    ]
