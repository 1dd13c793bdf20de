"""Each load and store is classified along the vector loop that it stands in, and of a GPU's tile as a block.

Takes small kernels; gives nothing; refuses a wrong kind or step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minductor.core.dtypes import F32, I64
from minductor.core.expressions.expr import Expr, integer
from minductor.ir.program.loops import loops
from minductor.ir.program.memory_access import Access
from minductor.ir.program.nodes import Kernel, Load, Program, Ref, op_at
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.options import Options
from minductor.passes.access.access import access
from minductor.target import Env, by_name
from tests.codegen.cases import S0, S1, Sketch, case, integers, randn
from tests.rows import schedule

CPU = Env(Options(), by_name("cpu"))


def kinds(program: Program) -> dict[str, str]:
    """By storage: the kind, with the step where there is one."""
    (kernel,) = access(schedule(program, CPU), CPU).nodes
    assert isinstance(kernel, Kernel)
    found: dict[str, str] = {}
    for each in kernel.access:
        attrs = kernel.body.ops[each.position].attrs
        name = attrs.ref.storage  # type: ignore[union-attr]
        found[name] = each.kind if each.stride is None else f"{each.kind} {each.stride}"
        assert isinstance(attrs, Load) or name.startswith("out")
    return found


def gpu(sketch: Sketch, form: str = "offsets", target: str = "sm_90") -> tuple[Program, dict[str, Access]]:
    """By storage: how a tile of a GPU touches it."""
    env = Env(Options(block_access=form), by_name(target))
    program = access(schedule(sketch.program(), env), env)
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    return program, {op_at(kernel.body, a.path).attrs.ref.storage: a for a in kernel.access}  # type: ignore[union-attr]


def test_every_kind() -> None:
    s = Sketch((6, 200))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(50, 200), I64, j), integer(50), wrap=False)
    values = [
        s.read("block", randn(6, 200), F32, 200 * i + j),
        s.read("row", randn(6), F32, i),
        s.read("strided", randn(6, 800), F32, 800 * i + 4 * j),
        s.read("halves", randn(100), F32, j // 2),
        s.read("gathered", randn(50), F32, at),
    ]
    total = values[0]
    for value in values[1:]:
        total = s.b.op("add", total, value)
    s.write(total, F32)
    assert kinds(s.program()) == {
        "block": "block 1",
        "row": "scalar",
        "strided": "strided 4",
        "halves": "gather",
        "gathered": "gather",
        "ids": "block 1",
        "out0": "block 1",
    }


def test_a_symbolic_step_is_strided() -> None:
    s = Sketch((S0, S1))
    i, j = s.i
    s.write(s.b.op("add", s.read("a", randn(1), F32, j * S0 + i), s.read("b", randn(1), F32, i * S1 + j)), F32)
    assert kinds(s.program())["a"] == "strided s0"


def test_row_results_are_scalar_and_the_pass_is_idempotent() -> None:
    assert kinds(case("sum_inner").program) == {"a": "block 1", "out0": "scalar"}
    once = access(schedule(case("softmax").program, CPU), CPU)
    assert access(once, CPU) is once


def test_tiles_are_blocks() -> None:
    s = Sketch((6, 256))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(50, 256), I64, j), integer(50), wrap=False)
    values = [
        s.read("block", randn(6, 256), F32, 256 * i + j),
        s.read("row", randn(6), F32, i),
        s.read("strided", randn(6, 1024), F32, 1024 * i + 4 * j),
        s.read("halves", randn(128), F32, j // 2),
        s.read("turned", randn(256), F32, 16 * (j % 16) + j // 16),
        s.read("thirds", randn(86), F32, j // 3),
        s.read("gathered", randn(50), F32, at),
        s.read("one", randn(50), F32, 7),
    ]
    total = values[0]
    for value in values[1:]:
        total = s.b.op("add", total, value)
    s.write(total, F32)
    _, found = gpu(s)
    assert {name: a.kind for name, a in found.items() if a.kind != "block"} == {
        "thirds": "gather",
        "gathered": "gather",
        "one": "scalar",
    }
    turned = found["turned"].block
    assert turned is not None
    assert [(str(d.size), str(d.stride)) for d in turned.dims] == [("16", "1"), ("16", "16")]


@pytest.mark.parametrize(("digit", "kind"), [(16, "block"), (24, "gather"), (48, "gather")])
def test_digits_are_a_block_where_it_holds_whole_ones(digit: int, kind: str) -> None:
    s = Sketch((6, 240))
    i, j = s.i
    turned = s.read("turned", randn(240), F32, 240 // digit * (j % digit) + j // digit)
    s.write(s.b.op("add", s.read("rows", randn(6, 240), F32, 240 * i + j), turned), F32)
    _, found = gpu(s)
    assert found["turned"].kind == kind and found["rows"].kind == "block"


@pytest.mark.parametrize(("compared", "kind"), [("row", "block"), ("digits", "gather"), ("data", "gather")])
def test_digits_in_a_region_are_a_block_where_it_is_a_window_of_other_axes(compared: str, kind: str) -> None:
    s = Sketch((64, 240))
    i, j = s.i
    inside = s.b.region()
    inner = inside.build((inside.load(Ref("a", 0), 240 * i + 15 * (j % 16) + j // 16, F32),))
    s.read("a", randn(64, 240), F32, 0)
    given = s.read("ids", integers(9, 240), I64, j) if compared == "data" else s.b.index(i if compared == "row" else j)
    s.write(s.b.masked(s.b.op("lt", given, s.b.constant(8, I64)), (), inner, 0.0, F32), F32)
    _, found = gpu(s)
    assert found["a"].kind == kind


def test_a_window_bounds_what_a_region_loads() -> None:
    s = Sketch((40, 64))
    i, j = s.i
    inside = s.b.region()
    inner = inside.build((inside.load(Ref("a", 0), 32 * (i - 3) + j - 4, F32),))
    s.read("a", randn(8, 32), F32, 0)
    cond = [s.b.op("ge", s.b.index(i - 3), s.b.constant(0, I64)), s.b.op("lt", s.b.index(i - 3), s.b.constant(8, I64))]
    cond += [s.b.op("ge", s.b.index(j), s.b.constant(4, I64)), s.b.op("gt", s.b.constant(36, I64), s.b.index(j))]
    every = s.b.op("logical_and", s.b.op("logical_and", cond[0], cond[1]), s.b.op("logical_and", cond[2], cond[3]))
    s.write(s.b.masked(every, (), inner, 0.0, F32), F32)
    _, found = gpu(s, "descriptor")
    window = found["a"]
    assert window.form == "descriptor" and len(window.path) == 2 and window.block is not None
    assert [(str(d.start), str(d.size)) for d in window.block.dims] == [("3", "8"), ("4", "32")]
    assert window.block.offset == 0


@pytest.mark.parametrize(
    ("name", "size", "index", "target", "reason"),
    [
        ("uneven rows", (64, 8), lambda i, j: 9 * i + j, "sm_90", "the stride of 9 elements is not a multiple of 16"),
        ("no contiguous dim", (64, 64), lambda i, j: 128 * i + 2 * j, "sm_90", "no dimension is contiguous"),
        (
            "a start between",
            (64, 64),
            lambda i, j: 64 * i + j + 1,
            "sm_90",
            "its first element, 1, does not lie at a multiple of 16",
        ),
        ("backwards", (64, 64), lambda i, j: 4032 - 64 * i + j, "sm_90", "the stride along i0 is not positive"),
        ("an old machine", (64, 64), lambda i, j: 64 * i + j, "sm_80", "sm_80 has no tensor descriptors"),
        ("short rows", (64, 2), lambda i, j: 4 * i + j, "sm_90", "its rows of 8 bytes are shorter than 16"),
    ],
)
def test_what_is_no_descriptor_says_why(
    name: str, size: tuple[int, int], index: Callable[..., Expr], target: str, reason: str
) -> None:
    s = Sketch(size)
    s.write(s.read("a", randn(9000), F32, index(*s.i)), F32)
    program, found = gpu(s, "descriptor", target)
    assert found["a"].form == "offsets" and found["a"].kind == "block", name
    assert any("no tensor descriptor for a:" in str(note) and reason in str(note) for note in program.notes), (
        program.notes
    )
    assert parse_program(print_program(program)) == program


def part_of_a_box(rows: int, sizes: tuple[int, int, int]) -> Sketch:
    """Rows of all elements of 3 x 5 x 64 or so that lie in a larger tensor, one behind the other, and a row."""
    outer, middle, inner = sizes
    s = Sketch((rows, outer * middle * inner))
    i, j = s.i
    at = 90000 * i + 9000 * (j // (middle * inner)) + 900 * ((j // inner) % middle) + j % inner
    s.write(s.b.op("add", s.read("a", randn(1), F32, at), s.read("b", randn(1), F32, j)), F32)
    return s


@pytest.mark.parametrize(
    ("rows", "sizes", "form", "kind", "block"),
    [
        (1, (3, 5, 64), "offsets", "gather", 1024),  # a program would have few values
        (1, (3, 5, 64), "pointer", "block", 64),
        (1, (3, 5, 64), "descriptor", "block", 64),
        (64, (3, 5, 64), "offsets", "block", 64),  # 16 rows fill it up
        (1, (3, 5, 48), "pointer", "gather", 1024),  # 16 values are fewer than a warp has threads
        (1, (4, 8, 64), "pointer", "block", 1024),
        (1, (3, 8, 64), "pointer", "block", 1024),
    ],
)
def test_the_block_of_a_merged_axis_divides_what_lies_together(
    rows: int, sizes: tuple[int, int, int], form: str, kind: str, block: int
) -> None:
    program, found = gpu(part_of_a_box(rows, sizes), form)
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel) and kernel.schedule is not None
    (inner,) = [lp.block for lp in loops(kernel.schedule.steps) if lp.axis == kernel.axes[-1].name]
    assert (found["a"].kind, inner) == (kind, block)


def test_sizes_of_the_call_are_counted_from_the_block_on() -> None:
    """In a block pointer; a descriptor is one for all programs, and counts in 32 bits."""
    s = Sketch((S0, 64))
    s.write(s.read("a", randn(64, 64), F32, 64 * s.i[0] + s.i[1]), F32)
    _, found = gpu(s, "pointer")
    assert {a.form for a in found.values()} == {"pointer"}
    program, found = gpu(s, "descriptor")
    assert {a.form for a in found.values()} == {"offsets"}
    assert any("may not fit 32 bits" in str(note) for note in program.notes)


def test_what_begins_behind_the_start_of_an_axis_of_the_call_is_no_pointer() -> None:
    """A pointer that counts from its own block on knows no bound below."""
    s = Sketch((S0,))
    (i,) = s.i
    inside = s.b.region()
    inner = inside.build((inside.load(Ref("a", 0), i - 3, F32),))
    s.read("a", randn(64), F32, 0)
    s.write(s.b.masked(s.b.op("ge", s.b.index(i), s.b.constant(3, I64)), (), inner, 0.0, F32), F32)
    program, found = gpu(s, "pointer")
    assert found["a"].form == "offsets" and found["a"].kind == "block"
    assert any("begin at 3 and may not fit 32 bits" in str(note) for note in program.notes), program.notes
