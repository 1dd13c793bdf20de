"""What one pass does to a program, from text to text, as files that a reviewer reads.

`loop_order` has its own beside its other tests.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from minductor.ir.plan.plan_text import print_plan
from minductor.ir.plan.verify_plan import verify_plan
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.memory.memory import memory
from minductor.passes.order.order import order
from minductor.target import Env, by_name
from pytest_plugin.goldens.golden import Goldens
from tests.verifying import verify

CPU = Env(Options(), by_name("cpu"))

# a row's maximum taken from the row, and what two readers make of it, one of them an operator of torch
FUSED = """
program softer
  input arg0: f32[64, 256] stride [256, 1] cpu
  buffer buf1: f32[64, 1] stride [1, 1] cpu
  buffer buf2: f32[64, 256] stride [256, 1] cpu
  buffer buf3: f32[64, 256] stride [256, 1] cpu
  buffer buf4: f32[64, 256] stride [256, 1] cpu
  kernel k0 (i0: 64, i1: 256) from amax = aten.amax
    %0 = load arg0@0[256*i0 + i1] : f32 {i0 i1}
    %1 = reduce max over i1 of %0 : f32 {i0}
    %2 = store buf1@0[i0] %1 {i0}
  kernel k1 (i0: 64, i1: 256) from sub = aten.sub
    %0 = load arg0@0[256*i0 + i1] : f32 {i0 i1}
    %1 = load buf1@0[i0] : f32 {i0}
    %2 = sub %0 %1 : f32 {i0 i1}
    %3 = store buf2@0[256*i0 + i1] %2 {i0 i1}
  extern x2 out aten.neg.out(buf2@0 f32[64, 256] stride [256, 1] offset 0) \
-> (buf3@0 f32[64, 256] stride [256, 1] offset 0) from neg = aten.neg.out because "a test"
  kernel k3 (i0: 64, i1: 256) from exp = aten.exp
    %0 = load buf2@0[256*i0 + i1] : f32 {i0 i1}
    %1 = exp %0 : f32 {i0 i1}
    %2 = store buf4@0[256*i0 + i1] %1 {i0 i1}
  return (buf4@0 f32[64, 256] stride [256, 1] offset 0, buf3@0 f32[64, 256] stride [256, 1] offset 0)
"""

# two large results, each needed only for a small one
ORDERED = """
program branches
  input arg0: f32[64, 64] stride [64, 1] cpu
  buffer buf1: f32[64, 64] stride [64, 1] cpu
  buffer buf2: f32[64, 64] stride [64, 1] cpu
  buffer buf3: f32[64, 1] stride [1, 1] cpu
  buffer buf4: f32[64, 1] stride [1, 1] cpu
  buffer buf5: f32[64, 1] stride [1, 1] cpu
  extern x0 out aten.neg.out(arg0@0 f32[64, 64] stride [64, 1] offset 0) \
-> (buf1@0 f32[64, 64] stride [64, 1] offset 0) from neg = aten.neg.out because "a test"
  extern x1 out aten.abs.out(arg0@0 f32[64, 64] stride [64, 1] offset 0) \
-> (buf2@0 f32[64, 64] stride [64, 1] offset 0) from abs = aten.abs.out because "a test"
  kernel k2 (i0: 64, i1: 64) from sum = aten.sum
    %0 = load buf1@0[64*i0 + i1] : f32 {i0 i1}
    %1 = reduce sum over i1 of %0 : f32 {i0}
    %2 = store buf3@0[i0] %1 {i0}
  kernel k3 (i0: 64, i1: 64) from sum_1 = aten.sum
    %0 = load buf2@0[64*i0 + i1] : f32 {i0 i1}
    %1 = reduce sum over i1 of %0 : f32 {i0}
    %2 = store buf4@0[i0] %1 {i0}
  kernel k4 (i0: 64) from add = aten.add
    %0 = load buf3@0[i0] : f32 {i0}
    %1 = load buf4@0[i0] : f32 {i0}
    %2 = add %0 %1 : f32 {i0}
    %3 = store buf5@0[i0] %2 {i0}
  return (buf5@0 f32[64, 1] stride [1, 1] offset 0)
"""


def change(old: str, new: str, before: str, after: str) -> str:
    lines = (text.splitlines() for text in (old, new))
    return "\n".join(difflib.unified_diff(*lines, before, after, lineterm="", n=99))


def test_fuse(golden: Goldens) -> None:
    program = parse_program(FUSED)
    after = fuse(program, CPU)
    verify(after, "fuse")
    golden.text("change", change(print_program(program), print_program(after), "inline", "fuse"))


def test_order(golden: Goldens) -> None:
    program = parse_program(ORDERED)
    after = order(program, CPU)
    verify(after, "order")
    golden.text("change", change(print_program(program), print_program(after), "fuse", "order"))


def test_memory(golden: Goldens) -> None:
    """A plan with storages of its own for everything, beside the one that takes over what is dead."""
    program = order(parse_program(ORDERED), CPU)
    plain = replace(CPU, options=replace(CPU.options, reuse_storage=False, inplace=False))
    old, new = memory(program, plain), memory(program, CPU)
    verify_plan(new)
    golden.text("change", change(print_plan(old), print_plan(new), "no reuse", "memory"))
