"""Why two kernels are two: each answer, by each name."""

from __future__ import annotations

import json

import pytest

from minductor.core.errors import UnknownKernel
from minductor.ir.program.nodes import Program
from minductor.ir.report.refusals import MAX_DISTANCE, MAX_NEIGHBOURS, FinalNode, Refusals
from minductor.ir.report.report import Report, report
from minductor.passes.access.access import access
from minductor.passes.bundle.bundle import bundle
from minductor.passes.fuse.fuse import fuse
from minductor.passes.memory.memory import memory
from minductor.passes.order.order import order
from tests.passes.sketch import CPU, Sketch
from tests.rows import inline, schedule

FACTS = Refusals(
    (
        FinalNode("k0", "exp_0", "", ("arg0", "buf0")),
        FinalNode("x0", "", "aten.mm.out", ("buf0", "buf1")),
        FinalNode("k3", "fused_1", "", ("buf1", "buf3")),
        FinalNode("k7", "fused_1", "", ("buf3", "buf7")),
        *(FinalNode(f"k{n}", f"sin_{n}", "", ("buf7", f"arg{n}")) for n in range(10, 10 + MAX_NEIGHBOURS)),
        FinalNode("k9", "sum_2", "", ("arg0", "buf7")),
    ),
    (("k4", "k5"), ("k5", "k3"), ("k6", "k7"), ("k6", "k9"), ("k9", "k9")),
    (("inline", "k4", "k6", "recomputing costs more than keeping"), ("fuse", "k3", "k7", "sizes differ")),
)


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ("k7", "k3", "inline: recomputing costs more than keeping"),
        ("k3", "k9", "inline: recomputing costs more than keeping"),
        ("k4", "k5", "k4 and k5 are one kernel: k3"),
        ("k4", "k3", "k4 and k3 are one kernel: k3"),
        ("exp_0", "exp_0", "exp_0 and exp_0 are one kernel: k0"),
        ("k6", "k9", "k6 and k9 are one kernel: k9"),
        ("k0", "x0", "x0 is a call of aten.mm.out, which no kernel joins"),
        ("k0", "k3", "they touch no common data"),
        (
            "k7",
            "k9",
            f"they share buf7, and were not weighed: they are too far apart, with {MAX_NEIGHBOURS} nodes between them, "
            f"{MAX_NEIGHBOURS} of which use it too",
        ),
        ("sin_10", "k11", "they share buf7, and were not weighed: joining them saves too little"),
        ("k0", "k9", "they share arg0, and were not weighed: joining them saves too little"),
    ],
)
def test_answer(first: str, second: str, answer: str) -> None:
    assert FACTS.why_not(first, second)[0] == FACTS.why_not(second, first)[0].replace(
        f"{second} and {first}", f"{first} and {second}"
    )
    assert FACTS.why_not(first, second)[0] == answer


def test_nodes_between_count_where_few_of_them_read_the_data() -> None:
    def answer(count: int) -> str:
        far = (FinalNode(f"k{n}", f"sin_{n}", "", (f"arg{n}",)) for n in range(1, 1 + count))
        return Refusals((FinalNode("k0", "a", "", ("x",)), *far, FinalNode("last", "b", "", ("x",))), (), ()).why_not(
            "k0", "last"
        )[0]

    assert answer(MAX_DISTANCE - 1).endswith("joining them saves too little")
    assert answer(MAX_DISTANCE).endswith(
        f"too far apart, with {MAX_DISTANCE} nodes between them, 0 of which use it too"
    )


def test_all_reasons_are_given() -> None:
    assert FACTS.why_not("k3", "k7") == ("inline: recomputing costs more than keeping", "fuse: sizes differ")


def test_an_unknown_name_is_an_error_that_knows_better() -> None:
    with pytest.raises(UnknownKernel, match="no kernel or call is named 'fussed_1'") as raised:
        FACTS.why_not("k0", "fussed_1")
    assert "did you mean 'fused_1'?" in str(raised.value)


def reported(program: Program) -> Report:
    made = program
    for stage in (inline, fuse, order, schedule, bundle, access):
        made = stage(made, CPU)
    found = report(made, memory(made, CPU))
    assert Report.from_json(json.loads(json.dumps(found.to_json()))) == found
    return found


def test_names_lead_through_every_pass() -> None:
    s = Sketch()
    x = s.input(8, 64)
    doubled = s.op("neg", s.op("exp", x))  # k0 moves into k1, which fuse joins
    rows = s.reduce("sum", doubled, 1)
    both = s.op("div", doubled, rows)
    other = s.extern(both)
    found = reported(s.done(s.op("neg", other), s.op("sin", s.input(5, 5)), s.op("sin", s.input(6, 5))))
    (first, *_) = [row[0] for row in found.nodes]
    for name in ("k0", "k1", "k2", "k3", found.kernel_names[0]):
        assert found.why_not(name, first)[0].endswith(f"are one kernel: {first}")
    assert "touch no common data" in found.why_not("k0", "k5")[0]
    assert found.why_not("k6", "k7") == ("k6 and k7 are one kernel: k6",)
    assert "is a call of" in found.why_not("k0", "x4")[0]
    with pytest.raises(UnknownKernel):
        found.why_not("k0", "k44")


def test_a_pair_that_shares_too_little_was_not_weighed() -> None:
    s = Sketch()
    one = s.input(1)
    found = reported(s.done(s.op("add", s.input(40000, 300), one), s.op("sub", s.input(40000, 310), one)))
    assert found.why_not("k0", "k1") == (
        f"they share {one.ref.storage}, and were not weighed: joining them saves too little",
    )
