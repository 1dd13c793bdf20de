"""Each rule of the IR: the good programs pass it, and a program that breaks it is refused under the rule's name."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from minductor.core.dtypes import BOOL, F32
from minductor.core.errors import VerifyError
from minductor.core.expressions.expr import integer
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Attrs, Body, Buffer, Kernel, Masked, Origin, Program, Ref, View
from minductor.ir.program.parser import parse_program
from minductor.ir.program.verify_program import NAMES, VERIFIER_RULES, verify_names_kept
from tests.ir.programs import ALL, CALLS, CHAIN, NUMBERS, REGIONS, SOFTMAX
from tests.verifying import verify

ORDER = "a version is made once, before its readers, and read before the next"
ONCE = "a symbol is defined once, before its first use"
OBJECTS = "an output is in one group of distinct outputs, and a group is one view"
CALLED = "a call names regions of its program and passes their sizes"
COMES = "every node comes from an ATen node"
HINT = "a hint is in the range of a size that the caller supplies"
BLOCK = "a loop over whole blocks computes what its block alone reads"
FORM = "ops have valid arguments, dtypes and axes"

# rule, program, old text, new text
FAULTS = [
    ("every storage is declared", SOFTMAX, "  buffer buf0: f32[4, 8] stride [8, 1] cpu\n", ""),
    (ORDER, SOFTMAX, "store buf0@0", "store buf0@1"),
    (ORDER, SOFTMAX, "return (buf0@0", "return (buf0@1"),
    (ORDER, CHAIN, "load arg0@0", "load arg0@1"),
    (ORDER, CHAIN, "load buf1@0", "load buf2@0"),
    ("a node waits only for versions that an earlier node makes", CHAIN, "8) after buf0@0, buf1@0", "8) after buf2@0"),
    (
        "a node waits only for versions that an earlier node makes",
        CHAIN,
        "offset 0) after buf0@0",
        "offset 0) after arg0@0",
    ),
    ("no two nodes have the same name", CHAIN, "kernel k1", "kernel k0"),
    (COMES, CHAIN, " from add = aten.add.Tensor", ""),
    (COMES, NUMBERS, " from item = aten._local_scalar_dense.default", ""),
    (COMES, NUMBERS, " from truediv = truediv", ""),
    (COMES, NUMBERS, " from assert_1 = aten._assert_scalar.default", ""),
    (FORM, SOFTMAX, "%3 = exp %2 : f32", "%3 = exp %2 : i64"),
    (FORM, SOFTMAX, "sub %0 %1 : f32 {i0 i1}", "sub %0 %1 : f32 {i0}"),
    (FORM, SOFTMAX, "exp %2", "exp %2 %0"),
    (FORM, SOFTMAX, "exp %2", "oxp %2"),
    (FORM, SOFTMAX, "exp %2", "exp %5"),
    (FORM, REGIONS, "project 1 %9", "project 2 %9"),
    (FORM, REGIONS, "gt %4 %5", "gt %4 %3"),
    (FORM, REGIONS, "reduce argmax over i1 of %3 %4", "reduce argmax over i1 of %3"),
    (ONCE, NUMBERS, "define t0", "define f0"),
    (ONCE, NUMBERS, "(symbol u0)", "(none)"),
    (ONCE, NUMBERS, " defines u1", ""),
    (ONCE, NUMBERS, "index <f0>", "index <t0>"),
    (HINT, CHAIN, "hint 100", "hint 1"),
    (HINT, CHAIN, "hint 100", "hint 1099511627777"),
    (HINT, NUMBERS, "symbol s0 [2, inf]", "symbol s0 [2, inf] hint 100\n  symbol f9 [-inf, inf] real hint 100"),
    (
        "each symbol that a call defines follows from a size of a result",
        NUMBERS,
        "(buf0@0 i64[2*u1 + 1, 1]",
        "(buf0@0 i64[u1*u1, 1]",
    ),
    (CALLED, CALLS, "region region_0 [s0]", "region region_1 [s0]"),
    (CALLED, CALLS, "region region_0 [s0]", "region region_0 [s0, s0]"),
    (FORM, CALLS, "neg %0 : f32", "neg %0 : i64"),
    ("no index expression contains a float or bool symbol", NUMBERS, "arg0@0[i0]", "arg0@0[i0 + f0]"),
    (OBJECTS, REGIONS, "distinct (2)", "distinct (3)"),
    (OBJECTS, REGIONS, "distinct (2)", "distinct (2) distinct (2)"),
    (OBJECTS, REGIONS, "distinct (2)", "distinct (1, 2)"),
    ("outputs with fixed strides are tensors", REGIONS, "fixed_strides (0)", "fixed_strides (3)"),
    ("calls and outputs see a complex storage as complex", SOFTMAX, "return (buf0@0 f32", "return (buf0@0 c64"),
    ("loads and stores convert between the dtypes of storage and computation", SOFTMAX, "arg0: f32", "arg0: i64"),
    (
        "loads and stores convert between the dtypes of storage and computation",
        REGIONS,
        "store buf1@0[i0] %10",
        "store buf1@0[i0] %8",
    ),
]


@pytest.mark.parametrize("name", ALL)
def test_good_programs_pass(name: str) -> None:
    verify(parse_program(ALL[name]), "lower")


@pytest.mark.parametrize(("rule", "text", "old", "new"), FAULTS)
def test_a_broken_rule_is_named(rule: str, text: str, old: str, new: str) -> None:
    assert text.count(old) >= 1
    with pytest.raises(VerifyError) as caught:
        verify(parse_program(text.replace(old, new, 1)), "lower")
    assert caught.value.rule == rule


def test_each_op_names_an_origin_of_its_kernel() -> None:
    program = parse_program(SOFTMAX)
    verify(program, "lower")  # ops that are read from text name nothing
    (kernel,) = (node for node in program.nodes if isinstance(node, Kernel))
    for names, is_fine in (("softmax", True), ("softmax other", False), ("softmax ", False)):
        first, _, last = names.partition(" ")
        ops = [replace(op, node=first) for op in kernel.body.ops]
        ops[-1] = replace(ops[-1], node=last if " " in names else first)
        named = replace(program, nodes=(replace(kernel, body=Body(tuple(ops))),))
        with nullcontext() if is_fine else pytest.raises(VerifyError, match=NAMES):
            verify(named, "lower")


def test_a_stage_that_loses_all_names_is_found() -> None:
    program = parse_program(SOFTMAX)
    verify_names_kept(program, program, "fuse")  # read from text
    kernels = [replace(k, body=_named(k.body, "softmax")) for k in program.nodes if isinstance(k, Kernel)]
    named = replace(program, nodes=tuple(kernels))
    verify_names_kept(named, named, "fuse")
    for before in (named, "a graph"):
        with pytest.raises(VerifyError, match=NAMES):
            verify_names_kept(before, program, "fuse")


def _named(body: Body, node: str) -> Body:
    return replace(body, ops=tuple(replace(op, node=node) for op in body.ops))


def test_an_op_under_a_mask_names_an_origin() -> None:
    b = Builder()
    b.node = "pad"
    inside = b.region()
    body = inside.build([inside.constant(1.0, F32)])
    b.store(Ref("buf0", 0), integer(0), b.masked(b.constant(True, BOOL), (), body, 0.0, F32))
    buffer = Buffer("buf0", F32, (integer(1),), (integer(1),))
    for node in ("pad", "other"):
        ops = [replace(op, attrs=_renamed(op.attrs, node)) for op in b.build().ops]
        kernel = Kernel("k0", (), Body(tuple(ops)), (Origin("pad", "aten.pad"),))
        output = View(Ref("buf0", 0), F32, (integer(1),), (integer(1),), integer(0))
        with nullcontext() if node == "pad" else pytest.raises(VerifyError, match=NAMES):
            verify(Program("p", (), (), (buffer,), (kernel,), (output,)), "lower")


def _renamed(attrs: Attrs, node: str) -> Attrs:
    """The attributes of a masked op, the ops of whose body name that node; other attributes as they are."""
    if not isinstance(attrs, Masked):
        return attrs
    return replace(attrs, body=_named(attrs.body, node))


def test_undeclared_sizes_are_found() -> None:
    program = parse_program(CHAIN)
    with pytest.raises(VerifyError, match=ONCE):
        verify(
            type(program)(program.name, (), *[getattr(program, n) for n in ("inputs", "buffers", "nodes", "outputs")]),
            "lower",
        )


def test_rules_of_later_stages_wait_for_them() -> None:
    program = parse_program(SOFTMAX)
    verify(program, "order")
    for stage, rule in (("schedule", "each effect stands once in the schedule"), ("access", "each effect stands once")):
        with pytest.raises(VerifyError, match=rule):
            verify(program, stage)


WHOLE = """program inference
  input arg0: f32[65] stride [1] cpu
  buffer buf0: f32[65] stride [1] cpu
  kernel k0 (i0: 65) from neg = aten.neg.default
    schedule {
      serial i0 by 64 {
        serial i0 {
          %0
        }
        vector i0 whole {
          %1
        }
        INSIDE
      }
      BEHIND
      rows %0 %1
    }
    %0 = load arg0@0[i0] : f32 {i0}
    %1 = neg %0 : f32 {i0}
    %2 = store buf0@0[i0] %1 {i0}
  return (buf0@0 f32[65] stride [1] offset 0)
"""


def test_a_loop_over_whole_blocks_computes_what_its_block_alone_reads() -> None:
    stored = "serial i0 { %2 }"
    verify(parse_program(WHOLE.replace("INSIDE", stored).replace("BEHIND", "")), "schedule")
    with pytest.raises(VerifyError, match=BLOCK):
        verify(parse_program(WHOLE.replace("INSIDE", "").replace("BEHIND", stored)), "schedule")


def test_every_early_rule_has_a_fault_here() -> None:
    shown = {rule for rule, *_ in FAULTS} | {ONCE, NAMES, "each effect stands once in the schedule"}
    later = {
        "a kernel stays small enough to compile",
        "the masks that a loop leaves out are known before it begins",
        "a row that is fetched is known before its loop begins",
        "the cuts of a loop are in ascending order",
        "what a pipelined loop loads ahead, it does not write meanwhile",
        BLOCK,
        "bulk and edges of an aligned row hold each element once",
        "a matrix product of a schedule is a sum of products",
        "a variant writes what its kernel writes, and reads only what its kernel reads",
        "the parts of a bundled kernel are independent",
        "one program finishes a kernel, with what others have written",
        "each load and store has an access",
        "a block of memory holds the elements of its index",
        "a hint for the cache stands for each time that an access runs",
    }
    assert shown | later == set(VERIFIER_RULES)
