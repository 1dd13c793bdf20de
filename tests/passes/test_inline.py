"""What inline moves, what it leaves, and why."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

from minductor.cost.shape import inlined as with_producer
from minductor.ir.program.nodes import Check, FusionRefusal, Kernel, Program, all_ops, body_reads, reads, writes
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.inline.inline import _Inliner
from minductor.runtime.reference.reference import run_program
from minductor.target import Env
from tests.passes.graphs import assert_same
from tests.passes.sketch import CPU, Sketch, flatten, narrow, sizes_of, transpose, unflatten
from tests.rows import inline
from tests.verifying import verify

DEAD = """
program p
  input x: f32[8] stride [1] cpu
  input y: f32[8] stride [1] cpu
  buffer z: f32[8] stride [1] cpu
  kernel k (i0: 8) from neg = aten.neg.default
    %0 = load x@0[i0] : f32 {i0}
    %1 = load y@0[i0] : f32 {i0}
    %2 = neg %1 : f32 {i0}
    %3 = store z@0[i0] %0 {i0}
  return (z@0 f32[8] stride [1] offset 0)
"""


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def inlined(program: Program) -> Program:
    made = inline(program, CPU)
    verify(made, "inline")
    assert_same(program, made)
    return made


def reasons(program: Program) -> set[str]:
    return {note.reason for note in program.notes if isinstance(note, FusionRefusal)}


def test_a_chain_becomes_one_kernel_with_all_origins_in_order() -> None:
    s = Sketch()
    made = inlined(s.done(s.op("exp", s.op("neg", s.op("relu", s.input(3, 4))))))
    (kernel,) = kernels(made)
    assert [op.name for op in kernel.body.ops] == ["load", "relu", "neg", "exp", "store"]
    assert [origin.node for origin in kernel.origins] == ["k0", "k1", "k2"]
    assert [buffer.name for buffer in made.buffers] == ["arg0", "buf3"]


def test_the_option_fuse_false_returns_the_same_object() -> None:
    s = Sketch()
    program = s.done(s.op("exp", s.op("neg", s.input(3, 4))))
    assert inline(program, Env(Options(fuse=False), CPU.target)) is program


def test_nothing_to_do_returns_the_same_object() -> None:
    s = Sketch()
    program = s.done(s.op("neg", s.input(3, 4)))
    assert inline(program, CPU) is program


def test_what_nobody_uses_goes() -> None:
    s = Sketch()
    x = s.input(3, 4)
    s.op("exp", s.reduce("sum", x, 1))
    assert len(kernels(inlined(s.done(s.op("neg", x))))) == 1


def test_a_mutation_of_an_input_is_used() -> None:
    s = Sketch()
    x = s.input(3, 4)
    s.copy(x, s.op("neg", x))
    assert [str(write) for k in kernels(inlined(s.done())) for write in k.body.ops[-1:]]


def test_views_of_a_producer_are_index_maps() -> None:
    s = Sketch()
    y = s.op("exp", s.input(6, 4))
    made = inlined(s.done(s.op("neg", transpose(unflatten(y, 2), 1, 2))))
    (kernel,) = kernels(made)
    assert [str(load.index) for load in body_reads(kernel.body)] == ["12*i0 + i1 + 4*i2"]


def test_a_flat_view_needs_no_division() -> None:
    s = Sketch()
    y = s.op("exp", s.input(6, 4))
    (kernel,) = kernels(inlined(s.done(s.op("neg", flatten(y)))))
    assert [str(load.index) for load in body_reads(kernel.body)] == ["i0"]


def test_both_uses_of_one_element_are_one_copy() -> None:
    """x * sigmoid(x), with an x that is dear to compute."""
    s = Sketch()
    x = s.op("exp", s.input(64, 512))
    (kernel,) = kernels(inlined(s.done(s.op("mul", x, s.op("sigmoid", x)))))
    assert [op.name for op in kernel.body.ops].count("exp") == 1


@pytest.mark.parametrize(("op", "left"), [("neg", 2), ("exp", 3)])
def test_a_producer_of_two_consumers_moves_if_it_is_cheap(op: str, left: int) -> None:
    s = Sketch()
    x = s.op(op, s.input(256, 512))
    made = inlined(s.done(s.op("relu", x), s.reduce("sum", x, 1)))
    assert len(kernels(made)) == left
    assert reasons(made) == ({"recomputing it would need more operations"} if left == 3 else set())


@pytest.mark.parametrize(("users", "is_plain"), [(3, True), (2, False)])
def test_storing_needs_no_price_where_it_moves_and_computes_less(users: int, is_plain: bool) -> None:
    """Three kernels that each load two operands to compute a value load 4,096 words more than if one stores it."""
    s = Sketch()
    value = s.op("exp", s.op("sub", s.input(64, 64), s.input(64, 64)))
    made = inline(s.done(*(s.op("add", value, s.input(64, 64)) for _ in range(users))), CPU)
    found = {note.why for note in made.notes if isinstance(note, FusionRefusal) and note.first == "k1"}
    plain = "recomputing it would need more memory and operations (16384 bytes and 98304 operations more)"
    assert (found == {plain}) == is_plain


def test_a_stored_result_is_priced_beside_the_consumer_that_it_is_best_fused_with() -> None:
    """The map and not the column sums, for which a transposed operand is loaded element by element."""
    s = Sketch()
    x = s.op("add", transpose(s.input(256, 256), 0, 1), s.input(256, 256))
    work = _Inliner(s.done(s.op("neg", x), s.reduce("sum", x, 0)), {}, CPU)
    producer, *consumers = (work.prices.shape(kernel) for kernel in work.kernels.values())
    storage = x.ref.storage
    least: list[float] = []
    for order in (consumers, consumers[::-1]):
        made = [with_producer(consumer, producer, storage) for consumer in order]
        ways = list(work._stored(producer, order, storage, made))
        least.append(min(max(seconds) for seconds in work.prices.seconds(ways)))
    assert least[0] == least[1]


@pytest.mark.parametrize(("op", "left"), [("neg", 1), ("exp", 2)])
def test_a_broadcast_that_multiplies_dear_work_keeps_the_buffer(op: str, left: int) -> None:
    """A shorter one would be kept in an array of the kernel that uses it."""
    s = Sketch()
    row = s.op(op, s.input(8192))
    made = inline(s.done(s.op("add", s.input(512, 8192), row)), CPU)
    assert len(kernels(made)) == left


def test_a_broadcast_of_few_costly_values_is_computed_where_it_is_used() -> None:
    """They are computed once, before the loop over the rows."""
    s = Sketch()
    made = inline(s.done(s.op("add", s.input(512, 512), s.op("exp", s.input(512)))), CPU)
    assert len(kernels(made)) == 1


def test_a_row_statistic_is_finished_where_it_is_used() -> None:
    """Its op runs once a row, so a broadcast along the row multiplies nothing."""
    s = Sketch()
    x = s.input(512, 512)
    total = s.op("exp", s.reduce("sum", x, 1))
    assert len(kernels(inline(s.done(s.op("mul", x, total)), CPU))) == 2


def test_outputs_and_what_externs_read_stay() -> None:
    s = Sketch()
    x = s.input(3, 4)
    y, z = s.op("neg", x), s.op("relu", x)
    made = inlined(s.done(y, s.extern(z), s.op("exp", y), s.op("exp", z)))
    assert len(kernels(made)) == 4


def test_slices_of_one_storage_stay_and_take_their_producers() -> None:
    s = Sketch()
    x = s.input(3, 4)
    joined = s.cat(1, s.op("exp", x), s.op("neg", x))
    made = inlined(s.done(s.reduce("sum", joined, 1)))
    assert len(kernels(made)) == 3


def test_many_copies_of_a_producer_are_too_many() -> None:
    s = Sketch()
    x = s.op("neg", s.input(20, 4))
    parts = [narrow(x, 0, n, 4) for n in range(9)]
    total = parts[0]
    for part in parts[1:]:
        total = s.op("add", total, part)
    made = inlined(s.done(total))
    assert "one consumer needs 9 different elements of it at each point" in reasons(made)


def test_a_long_chain_needs_no_deep_stack() -> None:
    """A compile starts deep inside of Dynamo's frames."""
    s = Sketch()
    x = s.input(3, 4)
    for n in range(200):
        x = s.op(("exp", "neg")[n % 2], x)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 200)
    try:
        made = inline(s.done(x), CPU)
    finally:
        sys.setrecursionlimit(limit)
    assert len(kernels(made)) == 1


def test_a_read_of_an_input_does_not_move_past_its_overwriting() -> None:
    s = Sketch()
    x, y = s.input(3, 4), s.input(3, 4)
    z = s.op("neg", x)
    s.copy(x, y)
    made = inlined(s.done(s.op("exp", z)))
    assert "arg0@0, which it reads, is overwritten before the last use" in reasons(made)


def test_an_update_in_place_takes_its_producer() -> None:
    s = Sketch()
    x, y = s.input(3, 4), s.input(3, 4)
    new = s.copy(x, s.op("add", x, y))
    assert len(kernels(inlined(s.done(new)))) == 1


def test_an_update_from_other_elements_does_not() -> None:
    """a.copy_(a.t()) must read all of a first, through one producer or two."""
    s = Sketch()
    x = s.input(4, 4)
    new = s.copy(x, s.op("neg", s.op("exp", transpose(x, 0, 1))))
    made = inlined(s.done(new))
    assert len(kernels(made)) == 2
    assert "its consumer overwrites arg0@0, its operand" in reasons(made)


def test_a_producer_moves_into_a_region() -> None:
    s = Sketch()
    made = inlined(s.done(s.pad(s.op("exp", s.op("neg", s.input(3, 4))), 1)))
    assert len(kernels(made)) == 1


PADDED = """program inference
  symbol s0 [{least}, inf]
  input arg0: i64[4] stride [1] cpu
  input arg1: f32[s0] stride [1] cpu
  input arg2: f32[4] stride [1] cpu
  input s0 = s0
  buffer buf0: f32[4] stride [1] cpu
  buffer buf1: f32[9] stride [1] cpu
  kernel k0 (i0: 4) from index = aten.index.Tensor
    %0 = load arg0@0[i0] : i64 {{i0}}
    %1 = check %0 as v0 < s0 wrap raises IndexError : i64 {{i0}}
    %2 = load arg1@0[v0] %1 : f32 {{i0}}
    %3 = store buf0@0[i0] %2 {{i0}}
  kernel k1 (i0: 9) from pad = aten.constant_pad_nd.default
    %0 = load arg0@0[0] : i64 {{}}
    %1 = check %0 as v0 < 4 wrap raises IndexError : i64 {{}}
    %2 = index <i0> : i64 {{i0}}
    %3 = constant 4 : i64 {{}}
    %4 = lt %2 %3 : bool {{i0}}
    %5 = masked %4 else 0.0 : f32 {{i0}} {{
      %0 = load buf0@0[i0] : f32 {{i0}}
      yield %0
    }}
    %6 = load arg2@0[v0] %1 : f32 {{}}
    %7 = add %5 %6 : f32 {{i0}}
    %8 = store buf1@0[i0] %7 {{i0}}
  return (buf1@0 f32[9] stride [1] offset 0)
"""


def test_a_bounds_check_moves_into_a_region_unless_there_may_be_nothing_to_read() -> None:
    made = inline(parse_program(PADDED.format(least=0)), CPU)
    assert "it is used under a mask, where an index into a dimension without elements cannot raise an error" in reasons(
        made
    )
    made = inline(parse_program(PADDED.format(least=1)), CPU)
    verify(made, "inline")
    (kernel,) = kernels(made)
    symbols = [op.attrs.symbol for op in all_ops(kernel.body) if isinstance(op.attrs, Check)]
    assert len(set(symbols)) == len(symbols) == 2


def test_a_gather_takes_its_producers() -> None:
    s = Sketch()
    rows = s.gather(s.op("exp", s.input(5, 4)), s.op("neg", s.input(3)))
    assert len(kernels(inlined(s.done(s.op("neg", rows))))) == 1


@pytest.mark.parametrize(("picked", "left"), [(30, 1), (9000, 2)])
def test_dear_work_moves_into_a_gather_of_few_elements_only(picked: int, left: int) -> None:
    s = Sketch()
    table = s.op("tanh", s.op("exp", s.input(300, 200)))
    assert len(kernels(inline(s.done(s.gather(table, s.input(picked))), CPU))) == left


def test_dead_ops_are_no_use_of_what_they_load() -> None:
    made = inlined(parse_program(DEAD))
    (kernel,) = kernels(made)
    assert [load.ref.storage for load in body_reads(kernel.body)] == ["x"]


def test_a_body_stays_small_however_long_the_chain() -> None:
    s = Sketch()
    x = s.input(3, 4)
    y = s.input(3, 4)
    for n in range(600):
        x = s.op(("add", "sub")[n % 2], x, y)
    made = inlined(s.done(x))
    assert 2 < len(kernels(made)) < 8, len(kernels(made))
    assert max(len(kernel.body.ops) for kernel in kernels(made)) <= 256


SYMBOLIC = """program inference
  symbol s0 [2, inf]
  input s0 = s0
  input arg0: f32[s0, 5] stride [5, 1] cpu
  buffer buf0: f32[s0, 5] stride [5, 1] cpu
  buffer buf1: f32[5, s0] stride [s0, 1] cpu
  buffer buf2: f32[5*s0] stride [1] cpu
  kernel k0 (i0: s0, i1: 5) from relu = aten.relu.default
    %0 = load arg0@0[5*i0 + i1] : f32 {i0 i1}
    %1 = relu %0 : f32 {i0 i1}
    %2 = store buf0@0[5*i0 + i1] %1 {i0 i1}
  kernel k1 (i0: 5, i1: s0) from exp = aten.exp.default
    %0 = load buf0@0[i0 + 5*i1] : f32 {i0 i1}
    %1 = exp %0 : f32 {i0 i1}
    %2 = store buf1@0[i0*s0 + i1] %1 {i0 i1}
  kernel k2 (i0: 5*s0) from neg = aten.neg.default
    %0 = load buf1@0[i0] : f32 {i0}
    %1 = neg %0 : f32 {i0}
    %2 = store buf2@0[i0] %1 {i0}
  return (buf2@0 f32[5*s0] stride [1] offset 0)
"""


def test_symbolic_sizes() -> None:
    program = parse_program(SYMBOLIC)
    made = inline(program, CPU)
    verify(made, "inline")
    (kernel,) = kernels(made)
    assert [op.name for op in kernel.body.ops] == ["load", "relu", "exp", "neg", "store"]
    x = torch.rand(7, 5)
    for given in (program, made):
        assert run_program(given, [7, x])[0].equal(-x.relu().exp().t().reshape(-1))


def test_a_slice_of_a_producer_computes_the_slice_only() -> None:
    s = Sketch()
    y = s.op("exp", s.input(6, 4))
    half = narrow(y, 0, 3, 3)
    assert sizes_of(half) == (3, 4)
    (kernel,) = kernels(inlined(s.done(s.op("neg", half))))
    assert [str(load.index) for load in body_reads(kernel.body)] == ["4*i0 + i1 + 12"]


def test_a_consumer_does_not_take_in_more_buffers_than_a_kernel_may_have() -> None:
    s = Sketch()
    values = [s.op("exp", s.input(4)) for _ in range(128)]
    while len(values) > 1:
        values = [s.op("add", a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
    made = inlined(s.done(values[0]))
    assert max(len({*reads(kernel), *writes(kernel)}) for kernel in kernels(made)) <= 56
    assert "the consumer would touch more than 56 buffers" in reasons(made)
    verify(made, "fuse")
