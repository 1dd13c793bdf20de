"""Which loads and stores of a kernel for a GPU have a hint for the cache, and which hint each time that they run.

Takes small kernels whose recipe is forced, and the text of one that is a bundle. Gives nothing. Refuses another hint.
"""

from __future__ import annotations

import pytest

from minductor.core.dtypes import BF16, F32, I64
from minductor.core.expressions.expr import integer
from minductor.ir.program.build import combine
from minductor.ir.program.memory_access import Access
from minductor.ir.program.nodes import Kernel, Program, Ref, op_at
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.options import Options
from minductor.passes.access.access import access
from minductor.target import Env, by_name
from tests.codegen.cases import Sketch, integers, randn, softmax
from tests.rows import schedule
from tests.verifying import verify

KEPT = "last last first"  # of a load in three walks
ROWS, COLUMNS = 8, 9000


def hints(sketch: Sketch, variant: str, form: str = "offsets") -> dict[str, str]:
    """By storage the hints of its access; those without any are left out."""
    env = Env(Options(variant=variant, block_access=form), by_name("sm_90"))
    program = access(schedule(sketch.program(), env), env)
    verify(program, "access")
    assert parse_program(print_program(program)) == program
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel) and kernel.schedule is not None and kernel.schedule.recipe == variant
    return {storage_of(kernel, each): " ".join(each.evictions) for each in kernel.access if each.evictions}


def storage_of(kernel: Kernel, each: Access) -> str:
    return op_at(kernel.body, each.path).attrs.ref.storage  # type: ignore[union-attr]


def scaled(*, shared: bool = False, masked: bool = False, gathered: bool = False) -> Sketch:
    """A softmax of rows, times another operand: of the row or of all rows, in a region, or at loaded places."""
    s = Sketch((ROWS, COLUMNS))
    i, j = s.i
    x = s.read("a", randn(1), F32, COLUMNS * i + j)
    if masked:
        inside = s.b.region()
        inner = inside.build((inside.load(Ref("b", 0), COLUMNS * i + j, F32),))
        s.read("b", randn(1), F32, 0)
        other = s.b.masked(s.b.op("lt", s.b.index(j), s.b.constant(5, I64)), (), inner, 0.0, F32)
    elif gathered:
        place = s.read("ids", integers(50, COLUMNS), I64, COLUMNS * i + j)
        other = s.read("b", randn(50), F32, s.b.check(place, integer(50), wrap=False))
    else:
        other = s.read("b", randn(1), F32, j if shared else COLUMNS * i + j)
    x = s.b.op("mul", x, other)
    top = s.b.reduce([x], ["i1"], combine("max", F32))
    e = s.b.op("exp", s.b.op("sub", x, top))
    s.write(s.b.op("div", e, s.b.reduce([e], ["i1"], combine("sum", F32))), BF16)
    return s


@pytest.mark.parametrize(
    ("variant", "load"), [("looped", KEPT), ("looped16", KEPT), ("online", "last first"), ("persistent8", "")]
)
def test_a_row_is_kept_until_its_last_walk(variant: str, load: str) -> None:
    sketch = softmax((ROWS, 4096 if variant == "persistent8" else 40_000))
    assert hints(sketch, variant) == ({"a": load, "out0": "first"} if load else {})


def test_columns_that_are_walked_again_are_kept_too() -> None:
    s = Sketch((COLUMNS, 64))
    x = s.read("a", randn(1), F32, 64 * s.i[0] + s.i[1])
    s.write(s.b.op("sub", x, s.b.reduce([x], ["i0"], combine("max", F32))), F32)
    assert hints(s, "looped") == {"a": "last first", "out0": "first"}


def test_a_row_that_is_walked_once_has_no_hints() -> None:
    s = Sketch((ROWS, COLUMNS))
    total = s.b.reduce([s.read("a", randn(1), F32, COLUMNS * s.i[0] + s.i[1])], ["i1"], combine("sum", F32))
    s.write(total, F32, axes=(0,))
    assert hints(s, "looped") == {}


def test_the_row_of_a_single_program_has_no_hints() -> None:
    s = Sketch((40_000,))
    x = s.read("a", randn(1), F32, s.i[0])
    s.write(s.b.op("sub", x, s.b.reduce([x], ["i0"], combine("max", F32))), F32)
    assert hints(s, "looped") == {}


def test_what_each_row_reads_has_no_hints() -> None:
    assert hints(scaled(), "looped") == {"a": KEPT, "b": KEPT, "out0": "first"}
    assert hints(scaled(shared=True), "looped") == {"a": KEPT, "out0": "first"}


def test_what_is_loaded_in_a_region_has_no_hints() -> None:
    assert hints(scaled(masked=True), "looped") == {"a": KEPT, "out0": "first"}


def test_a_gather_has_hints() -> None:
    assert hints(scaled(gathered=True), "looped") == {"a": KEPT, "b": KEPT, "ids": KEPT, "out0": "first"}


@pytest.mark.parametrize("form", ["pointer", "descriptor"])
def test_only_plain_accesses_have_hints(form: str) -> None:
    assert hints(softmax((ROWS, 40_000)), "looped", form) == {}


def test_only_the_stores_of_the_last_walk_have_hints() -> None:
    s = Sketch((ROWS, COLUMNS))
    i, j = s.i
    x = s.read("a", randn(1), F32, COLUMNS * i + j)
    s.write(s.b.op("neg", x), F32)
    s.write(s.b.op("sub", x, s.b.reduce([x], ["i1"], combine("max", F32))), F32)
    assert hints(s, "looped") == {"a": "last first", "out1": "first"}


BUNDLE = """
program inference
  input x: f32[8, 9000] stride [9000, 1] cuda:0
  input w: f32[9000] stride [1] cuda:0
  buffer y: f32[8, 9000] stride [9000, 1] cuda:0
  buffer z: f32[9000] stride [1] cuda:0
  kernel k0 (i: 8, j: 9000, k: 9000) from softmax = aten.sub.Tensor
    schedule {
      grid i by 1 {
        serial j by 2048 carry %1 {
          %0 %1
        }
        serial j by 2048 {
          %0 %2 %3
        }
      }
      grid k by 1024 {
        %4 %5
      }
      parts 1
    }
    %0 = load x@0[9000*i + j] : f32 {i j}
    %1 = reduce max over j of %0 : f32 {i}
    %2 = sub %0 %1 : f32 {i j}
    %3 = store y@0[9000*i + j] %2 {i j}
    %4 = load w@0[k] : f32 {k}
    %5 = store z@0[k] %4 {k}
  return (y@0 f32[8, 9000] stride [9000, 1] offset 0, z@0 f32[9000] stride [1] offset 0)
"""


def test_each_part_of_a_bundle_has_its_own_hints() -> None:
    program: Program = access(parse_program(BUNDLE), Env(Options(), by_name("sm_90")))
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    found = {storage_of(kernel, each): " ".join(each.evictions) for each in kernel.access}
    assert found == {"x": "last first", "y": "first", "w": "", "z": ""}
