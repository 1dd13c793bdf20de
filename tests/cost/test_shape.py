"""Prices of kernels without schedules: they follow those of the schedules, and say which of two ways is faster."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest

from minductor.analysis.touch import Touches
from minductor.core.dtypes import F32, F64, I64
from minductor.core.expressions.expr import as_int, integer, maximum
from minductor.cost.kernel_seconds import Prices
from minductor.cost.seconds import Cost
from minductor.cost.shape import MOVED, Shape, Span, Touch, and_stored, inlined, is_own, merged, shape_of
from minductor.cost.shape_gpu import _Pricer, _Tile, gpu_cost
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import Kernel, Program, View, body_reads
from minductor.ir.program.ops import op_cost
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.inline.inline import inline
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.schedule import schedule as stage
from minductor.target import HOPPER, NOMINAL_CPU, Env, by_name
from tests.passes.sketch import Sketch, element, flip, narrow, transpose

CPU, GPU = (Env(Options(), by_name(name)) for name in ("cpu", "sm_90"))


def only(program: Program) -> Kernel:
    (kernel,) = (node for node in program.nodes if isinstance(node, Kernel))
    return kernel


def prices(program: Program, env: Env) -> Prices:
    return Prices(program.real_table(), env.target, program.hints)


def softmax(s: Sketch, size: tuple[int, ...], dim: int) -> Program:
    x = s.input(*size)
    made = s.op("exp", s.op("sub", x, s.reduce("max", x, dim)))
    return s.done(s.op("div", made, s.reduce("sum", made, dim)))


def mean_and_map(s: Sketch) -> Program:
    x = s.input(4096, 1024)
    return s.done(s.op("sub", x, s.reduce("sum", x, 1)))


MADE: dict[str, Callable[[Sketch], Program]] = {
    "pointwise": lambda s: s.done(s.op("exp", s.op("add", s.input(64, 96, 128), s.input(64, 96, 128)))),
    "a row beside all rows": lambda s: s.done(s.op("add", s.input(4096, 1024), s.input(1024))),
    "rows": lambda s: s.done(s.reduce("sum", s.input(8192, 1024), 1)),
    "columns": lambda s: s.done(s.reduce("sum", s.input(512, 4096), 0)),
    "softmax": lambda s: softmax(s, (4096, 1024), 1),
    "softmax of long rows": lambda s: softmax(s, (256, 32768), 1),
    "softmax of columns": lambda s: softmax(s, (512, 4096), 0),
    "a mean and a map": mean_and_map,
    "softmax of few columns": lambda s: softmax(s, (256, 256), 0),
    "softmax of short rows": lambda s: softmax(s, (1024, 64), 1),
    "a transposed copy": lambda s: s.done(s.pointwise(lambda b, value: value, transpose(s.input(256, 256), 0, 1))),
    "a transpose": lambda s: s.done(s.op("add", transpose(s.input(1024, 1024), 0, 1), s.input(1024, 1024))),
    "a small kernel": lambda s: s.done(s.op("neg", s.input(16, 16))),
}


# Rows a power of two apart share the sets of a cache, which only the loops of a schedule tell well.
ROUGH = ("softmax of columns", "a transpose")


def scheduled(kernel: Kernel, program: Program, env: Env) -> tuple[float, ...]:
    """The seconds of the schedule that is taken, for each number of threads."""
    scheduler = stage.Scheduler(program.real_table(), env, program.hints)
    prices = scheduler.prices(scheduler.recipes(merge_kernel_axes(kernel), program.hints), program.hints)
    return tuple(prices[stage.fastest(prices)])


@pytest.mark.parametrize("env", [CPU, GPU], ids=["cpu", "sm_90"])
@pytest.mark.parametrize("name", MADE)
def test_prices_are_near_those_of_the_schedule(name: str, env: Env) -> None:
    program = MADE[name](Sketch())
    program = fuse(inline(program, env), env)
    kernel = only(program)
    known = prices(program, env)
    around = 1 << 40 if env.target.is_gpu else 0  # bytes; with a schedule a GPU's kernel always comes from main memory
    got = [cost.seconds for cost in known._cost(known.shape(kernel), around)]
    wanted = scheduled(kernel, program, env)
    most = 2.1 if name in ROUGH else 1.3
    assert all(1 / most < a / b < most for a, b in zip(got, wanted, strict=True)), (got, wanted)


def test_axes_that_everything_runs_through_are_one() -> None:
    s = Sketch()
    program = s.done(s.op("neg", s.input(8, 16, 32)))
    assert merged(prices(program, CPU).shape(only(program))).extents == (8 * 16 * 32,)
    s = Sketch()
    program = s.done(s.op("add", transpose(s.input(16, 8), 0, 1), s.input(8, 16)))
    assert merged(prices(program, CPU).shape(only(program))).extents == (8, 16)
    s = Sketch()
    program = s.done(s.reduce("sum", s.input(8, 1, 32), 2))
    assert merged(prices(program, CPU).shape(only(program))).extents == (8, 32)


def shapes(program: Program, env: Env) -> list[Shape]:
    known = prices(program, env)
    return [known.shape(node) for node in program.nodes if isinstance(node, Kernel)]


@pytest.mark.parametrize("env", [CPU, GPU], ids=["cpu", "sm_90"])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_shape_with_a_producer_costs_as_the_kernel_that_computes_it(env: Env, is_transposed: bool) -> None:
    s = Sketch()
    x = s.input(512, 768)
    made = s.op("exp", s.op("add", x, s.input(512, 768)))
    made = transpose(made, 0, 1) if is_transposed else made
    program = s.done(s.reduce("sum", made, 1))
    first, second, third = shapes(program, env)
    together = inlined(third, inlined(second, first, "buf2"), "buf3")
    kernel = only(inline(program, env))
    known = prices(program, env)
    got, wanted = (known._cost(shape, 1 << 40)[0].seconds for shape in (together, known.shape(kernel)))
    assert abs(got / wanted - 1) < 0.1


def test_kernels_that_differ_in_names_only_differ_so_in_their_shapes() -> None:
    s = Sketch()
    x, y = s.input(64, 512), s.input(64, 512)
    parts = [
        s.op("add", x, y),
        s.op("add", y, x),
        s.op("add", x, x),
        s.op("add", transpose(x, 0, 1), transpose(y, 0, 1)),
    ]
    parts += [s.reduce("sum", x, 1), s.reduce("sum", y, 1), s.reduce("sum", y, 0), s.op("add", y, s.input(512))]
    program = s.done(*parts)
    kernels = [node for node in program.nodes if isinstance(node, Kernel)]
    table = program.real_table()
    assert shapes(program, CPU) == [shape_of(kernel, table, program.hints, is_gpu=False) for kernel in kernels]


def test_an_element_of_its_own_is_one_that_no_other_point_loads() -> None:
    s = Sketch()
    x, row, places = s.input(64, 64), s.input(64), s.input(64)
    s.op("add", transpose(x, 0, 1), row)
    s.op("neg", narrow(x, 1, 0, 32))
    s.op("add", s.input(64, 64), narrow(x, 1, 0, 1))
    program = s.done(s.gather(x, places))
    table = program.real_table()
    loads = [(load, node.axes) for node in program.nodes if isinstance(node, Kernel) for load in body_reads(node.body)]
    own = [is_own(load.index, axes, table[load.ref.storage].size, ()) for load, axes in loads]
    assert [load.ref.storage for load, _ in loads] == ["arg0", "arg1", "arg0", "arg3", "arg0", "arg2", "arg0"]
    assert own == [True, False, True, True, False, False, False]


def test_a_value_that_is_used_twice_is_computed_twice() -> None:
    s = Sketch()
    program = softmax(s, (64, 512), 1)
    (_, sub, exp, *_) = shapes(program, CPU)
    store = next(touch.storage for touch in sub.touches if touch.is_store)
    once = inlined(exp, sub, store)
    loads = {touch.storage for touch in once.touches if not touch.is_store}
    assert store not in loads
    assert {"arg0"} < loads
    kept = and_stored(inlined(exp, sub, store), exp, store)
    assert sum(touch.size for touch in kept.touches) - sum(touch.size for touch in once.touches) == 4 * 64 * 512


def test_elements_that_lie_apart_are_computed_for_each() -> None:
    """However they are added up: y[:, :-2] + y[:, 1:-1] + y[:, 2:]."""
    s = Sketch()
    y = s.op("exp", s.input(64, 512))
    parts = [narrow(y, 1, start, 510) for start in range(3)]
    program = s.done(s.op("add", s.op("add", parts[0], parts[1]), parts[2]))
    exp, first, second = shapes(program, CPU)
    together = inlined(second, first, "buf2")
    assert next(touch.times for touch in together.touches if touch.storage == "buf1") == 3
    once = inlined(together, exp, "buf1")
    assert next(touch.times for touch in once.touches if touch.storage == "arg0") == 3
    assert sum(work.functions for work in once.work) == 3 * sum(work.functions for work in exp.work)


def test_slices_of_one_buffer_are_as_many_bytes_behind_a_producer_as_read_at_once() -> None:
    """As the gates of a cell are: three quarters of a row, which move alike and begin elsewhere."""
    s = Sketch()
    gates = s.input(16, 1024)
    parts = [s.op("exp", narrow(gates, 1, 256 * number, 256)) for number in range(3)]
    program = s.done(s.op("add", s.op("add", parts[0], parts[1]), parts[2]))
    (first, second, third, add, last), table = shapes(program, GPU), program.real_table()
    stores = [next(touch.storage for touch in shape.touches if touch.is_store) for shape in (first, second, third, add)]
    together = inlined(inlined(inlined(last, add, stores[3]), first, stores[0]), second, stores[1])
    together = inlined(together, third, stores[2])
    whole = shape_of(only(inline(program, GPU)), table, program.hints, is_gpu=True)
    loaded = [next(touch.size for touch in each.touches if touch.storage == "arg0") for each in (together, whole)]
    assert loaded == [3 * 16 * 256 * 4] * 2


def test_the_store_and_the_load_of_a_value_are_spared_once() -> None:
    """Also where a producer computes with values of several sizes."""
    s = Sketch()
    x = s.input(4096)
    made = s.pointwise(lambda b, v: b.cast(b.op("exp", b.cast(v, F64)), F32), x)
    program = s.done(s.op("neg", made))
    first, second = shapes(program, CPU)
    assert len(first.work) == 2
    apart, together = (
        sum(work.operations for shape in each for work in shape.work)
        for each in ((first, second), (inlined(second, first, "buf1"),))
    )
    assert apart - together == MOVED


def test_a_value_is_walked_over_once_for_two_reductions_that_end_together() -> None:
    """The column sums of centred rows are added up where the centred rows are stored."""
    s = Sketch()
    x = s.input(256, 512)
    centred = s.op("sub", x, s.reduce("sum", x, 1))
    program = fuse(inline(s.done(centred, s.reduce("sum", centred, 0)), CPU), CPU)
    (load,) = (touch for touch in prices(program, CPU).shape(only(program)).touches if touch.storage == "arg0")
    assert load.passes == 2


@pytest.mark.parametrize(("size", "dim", "kernels"), [(64, 0, 1), (2048, None, 1), (2048, 0, 2)])
def test_a_reduction_stores_its_row_down_a_column_where_blocks_can_be_transposed(
    size: int, dim: int | None, kernels: int
) -> None:
    """What is reflected is not transposed in blocks; where its lines leave the cache, it is a kernel of its own."""
    s = Sketch()
    x = s.input(size, size)
    turned = transpose(x if dim is None else flip(x, dim), 0, 1)
    program = s.done(s.reduce("sum", x, 1), s.pointwise(lambda b, value: value, turned))
    assert len(fuse(inline(program, CPU), CPU).nodes) == kernels


@pytest.mark.parametrize("env", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("size", [(64, 96), (2048, 2048), (7, 13, 31)])
@pytest.mark.parametrize("across", [False, True])
def test_a_price_with_a_store_is_that_of_the_whole_shape(size: tuple[int, ...], across: bool, env: Env) -> None:
    """Also where another load runs across the lines, or data decide nothing of it."""
    s = Sketch()
    x = s.input(*size[:-2], *size[:-3:-1])
    y = s.op("exp", transpose(x, len(size) - 2, len(size) - 1) if across else s.input(*size))
    program = s.done(s.op("sub", y, s.reduce("sum", s.input(*size), len(size) - 1)), s.op("neg", y))
    exp, _, sub, neg = (prices(program, env).shape(node) for node in program.nodes if isinstance(node, Kernel))
    storage = next(touch.storage for touch in exp.touches if touch.is_store)
    for consumer in (sub, neg):
        made = inlined(consumer, exp, storage)
        known, whole = prices(program, env), prices(program, env)
        costs = known._cost(known.and_stored(made, consumer, storage), 1 << 24)
        for cost, other in zip(costs, whole._cost(and_stored(made, consumer, storage), 1 << 24), strict=True):
            assert tuple(cost) == pytest.approx(tuple(other))


def test_values_of_a_row_that_is_too_long_to_keep_are_computed_again() -> None:
    """In each pass over it."""
    costs: list[float] = []
    for length in (1 << 17, 1 << 18):
        s = Sketch()
        made = s.op("exp", s.input(64, length))
        program = fuse(inline(s.done(s.op("div", made, s.reduce("sum", made, 1))), CPU), CPU)
        known = prices(program, CPU)
        costs.append(known._cost(known.shape(only(program)), 1 << 40)[0].arithmetic / length)
    assert costs[1] > 1.4 * costs[0]


def test_columns_in_blocks_begin_anew_in_each_row() -> None:
    """Where rows are wider than a block of columns; narrow ones lie one behind the other."""
    costs: list[float] = []
    for columns in (1024, 2048):
        s = Sketch()
        program = s.done(s.reduce("sum", s.input((1 << 24) // columns, columns), 0))
        costs.append(prices(program, CPU)._cost(shapes(program, CPU)[0], 1 << 40)[0].memory)
    assert costs[1] > 2 * costs[0]


def cost(program: Program, last: int = -1) -> Cost:
    """What one kernel takes on one thread, among kernels that touch more than any cache holds."""
    known = prices(program, CPU)
    return known._cost(shapes(program, CPU)[last], 1 << 40)[0]


def test_rows_that_lie_less_than_a_line_apart_are_fetched_ahead() -> None:
    """A slice leaves out two elements of each row, and the core goes on where the next row begins."""
    whole, part = Sketch(), Sketch()
    all_of_it = whole.done(whole.op("neg", whole.input(2048, 2048)))
    slice_of_it = part.done(part.op("neg", narrow(part.input(2048, 2048), 1, 0, 2046)))
    assert cost(slice_of_it).memory == pytest.approx(cost(all_of_it).memory, rel=0.01)


def test_the_blocks_of_a_transpose_cut_the_rows_of_all_its_accesses() -> None:
    s, other = Sketch(), Sketch()
    x = s.input(2048, 2048)
    straight = s.done(s.op("add", x, s.input(2048, 2048)))
    turned = other.done(other.op("add", transpose(other.input(2048, 2048), 0, 1), other.input(2048, 2048)))
    waiting = 3 * NOMINAL_CPU.memory_wait / (4 * NOMINAL_CPU.memory_line)  # what is stored is moved twice
    assert cost(turned).memory == pytest.approx(cost(straight).memory * (1 + waiting), rel=0.01)


def added(size: tuple[int, ...], of: tuple[int, ...], op: str = "exp") -> float:
    """The operations in seconds of a kernel that adds an op of a small tensor to a large one, by element."""
    s = Sketch()
    program = s.done(s.op("add", s.input(*size), s.op(op, s.input(*of))))
    first, second = shapes(program, CPU)
    (storage,) = (touch.storage for touch in first.touches if touch.is_store)
    return prices(program, CPU)._cost(inlined(second, first, storage), 1 << 40)[0].arithmetic / prod(size)


def test_a_costly_value_of_few_elements_is_computed_once_and_kept() -> None:
    """In vector loops, where a loop around them would repeat it."""
    assert added((1024, 256), (256,)) < 2 * added((1024, 256), (256,), "neg")
    assert added((1024, 8192), (8192,)) > 2 * added((1024, 8192), (8192,), "neg")  # an array that is too long


def test_a_costly_value_is_repeated_between_two_loops_that_threads_share() -> None:
    assert added((64, 64, 64), (64, 1, 64)) > 2 * added((512, 64, 64), (512, 1, 64))


def test_a_short_contiguous_axis_is_unrolled() -> None:
    """The vector loop runs along the axis beside it, so what does not vary along it is computed by vectors."""
    assert added((512, 1024, 2), (512, 1024, 1)) < added((512, 1024, 8), (512, 1024, 1))


def shifted(rows: int, length: int, *, is_summed: bool, is_padded: bool) -> float:
    """The operations in seconds of a kernel that loads the element before each one, or its sum along the row.

    `is_padded`: before the first element there is the first one again, not the last one of the row before.
    """
    s = Sketch()
    x, out = s.input(rows, length), s.buffer([rows] if is_summed else [rows, length])
    axes, at, b = s.loop([rows, length])
    before = maximum(at[1] - 1, 0) if is_padded else at[1] - 1
    value = b.load(x.ref, length * at[0] + before, F32)
    kept = at[:1] if is_summed else at
    b.store(out.ref, element(out, kept), b.reduce([value], ["i1"], combine("sum", F32)) if is_summed else value)
    s.kernel(axes, b)
    return cost(s.done(out)).arithmetic


def test_a_loop_is_cut_where_an_index_changes_its_formula_unless_it_sums_along_the_axis() -> None:
    plain, padded = (shifted(512, 2048, is_summed=False, is_padded=is_padded) for is_padded in (False, True))
    assert padded == pytest.approx(plain, rel=0.05)
    plain, padded = (shifted(512, 2048, is_summed=True, is_padded=is_padded) for is_padded in (False, True))
    assert padded > 2 * plain


def repeated(rows: int, length: int, op: str = "") -> Program:
    """An image that is twice as large, by one kernel: each element stands four times in the result."""
    s = Sketch()
    x, out = s.input(rows, length), s.buffer([rows, 2, length, 2])
    axes, at, b = s.loop([rows, 2, length, 2])
    value = b.load(x.ref, length * at[0] + at[2], F32)
    b.store(out.ref, element(out, at), b.op(op, value) if op else value)
    s.kernel(axes, b)
    return s.done(out)


def test_a_copy_that_repeats_elements_is_no_transposed_copy() -> None:
    """Those run by tiles in registers, and so take a fraction of the operations."""
    copy, other = repeated(480, 120), repeated(480, 120, "neg")
    assert cost(copy).arithmetic > 0.8 * cost(other).arithmetic
    assert scheduled(only(copy), copy, CPU)[0] > 0.8 * scheduled(only(other), other, CPU)[0]


def gathered_rows(op: str, *, is_drawn: bool, is_mapped: bool) -> float:
    """The operations in seconds of the sum of each row of an op of elements, or of the op divided by this sum.

    Data decide which elements, or it is the one before, and at the first point that one: few points bend the index.
    """
    s = Sketch()
    x, places, out = s.input(512, 2048), s.input(2048), s.buffer([512, 2048] if is_mapped else [512])
    axes, at, b = s.loop([512, 2048])
    place = maximum(at[1] - 1, 0)
    if is_drawn:
        place = b.check(b.cast(b.load(places.ref, at[1], F32), I64), integer(2048), wrap=False)
    value = b.op(op, b.load(x.ref, 2048 * at[0] + place, F32))
    total = b.reduce([value], ["i1"], combine("sum", F32))
    kept = at if is_mapped else at[:1]
    b.store(out.ref, element(out, kept), b.op("div", value, total) if is_mapped else total)
    s.kernel(axes, b)
    return cost(s.done(out)).arithmetic


@pytest.mark.parametrize("op", ["exp", "neg"])
@pytest.mark.parametrize("is_drawn", [False, True])
def test_the_map_behind_a_sum_gathers_again_only_what_data_decide_and_is_not_kept(op: str, is_drawn: bool) -> None:
    """A costly value is kept; and the loop of a map is cut where few points bend an index."""
    mapped, summed = (gathered_rows(op, is_drawn=is_drawn, is_mapped=is_mapped) for is_mapped in (True, False))
    by_vectors = 512 * 2048 * 4 / NOMINAL_CPU.vector_bytes * NOMINAL_CPU.operation
    rest = (op_cost("div") + MOVED) * NOMINAL_CPU.gathering * by_vectors
    gathers = 512 * 2048 * NOMINAL_CPU.gather * NOMINAL_CPU.operation
    assert (mapped - summed < rest + gathers / 2) == (op == "exp" or not is_drawn)


def test_threads_share_columns_that_are_walked_again_if_they_stay_in_the_cache() -> None:
    """Larger ones leave it before the next pass begins, so threads share blocks of columns."""
    for rows, is_shared in ((256, True), (8192, False)):
        program = softmax(Sketch(), (rows, 256), 0)
        program = fuse(inline(program, CPU), CPU)
        alone, shared = (sum(each) for each in zip(*map(_seconds(program), shapes(program, CPU)), strict=True))
        assert (len(program.nodes) == 1) == is_shared
        assert shared < 0.6 * alone


def _seconds(program: Program) -> Callable[[Shape], tuple[float, ...]]:
    known = prices(program, CPU)
    return lambda shape: tuple(each.seconds for each in known._cost(shape, 0))


def test_what_a_walk_over_columns_needs_of_each_column_is_computed_in_each_row() -> None:
    """A vector loop runs over the columns, so the root of a sum stands in it unless it is stored only."""
    found: list[float] = []
    for is_inside in (True, False):
        s = Sketch()
        x, out, roots = s.input(512, 2048), s.buffer([512, 2048]), s.buffer([2048])
        axes, at, b = s.loop([512, 2048])
        value = b.load(x.ref, element(x, at), F32)
        total = b.reduce([value], ["i0"], combine("sum", F32))
        root = b.op("sqrt", total)
        b.store(out.ref, element(out, at), b.op("mul", value, root if is_inside else total))
        b.store(roots.ref, element(roots, at[1:]), root)
        s.kernel(axes, b)
        found.append(cost(s.done(out, roots)).arithmetic)
    rows = 512 * 2048 * NOMINAL_CPU.operation * 4 / NOMINAL_CPU.vector_bytes
    assert found[0] > found[1] + op_cost("sqrt") * rows * 0.99


def test_what_takes_longer_is_said_with_figures() -> None:
    s = Sketch()
    program = s.done(s.op("exp", s.input(2048, 2048)), s.op("neg", s.input(16, 16)))
    large, small = shapes(program, CPU)
    known = prices(program, CPU)
    assert known.slower([small], [large]) is None
    assert known.slower([large], [large]) is None
    slower = known.slower([large, small], [small])
    assert slower is not None
    assert slower.figures("both", "one").endswith(" us one")
    assert slower.this > slower.other


def test_what_stays_in_the_cache_of_a_gpu_needs_no_main_memory() -> None:
    s = Sketch()
    program = s.done(s.op("neg", s.input(1024, 1024)))
    (shape,) = shapes(program, GPU)
    known = prices(program, GPU)
    assert known._cost(shape, 1 << 23)[0].memory == 0
    assert known._cost(shape, 1 << 30)[0].memory > 0


def test_a_gpu_tells_sizes_apart_that_fit_half_of_its_cache() -> None:
    """Half of the cache of an H100 is 25 MB, between two powers of two."""
    s = Sketch()
    program = s.done(s.op("neg", s.input(1024, 1024)))
    (shape,) = shapes(program, GPU)
    known = prices(program, GPU)
    assert known._cost(shape, 20 * 10**6)[0].memory == 0
    assert known._cost(shape, 30 * 10**6)[0].memory > 0


def test_data_in_the_cache_of_a_gpu_are_soon_there() -> None:
    """And what a program waits for them hides behind the other times, however few programs there are."""
    s = Sketch()
    program = s.done(s.reduce("sum", s.input(1024, 1024), 0))
    shape = shapes(program, GPU)[0]
    near, far = (gpu_cost(shape, GPU.target, around, may_cut=False) for around in (1 << 23, 1 << 40))
    assert far.waiting > 1.7 * near.waiting
    assert near.norm > far.norm == 1


def test_double_precision_takes_a_gpu_longer() -> None:
    costs: list[float] = []
    for dtype in (F32, F64):
        s = Sketch()
        program = s.done(
            s.pointwise(lambda b, x, dtype=dtype: b.cast(b.op("exp", b.cast(x, dtype)), F32), s.input(512))
        )
        (shape,) = shapes(program, GPU)
        costs.append(sum(work.operations for work in shape.work))
    assert costs[1] > 3 * costs[0]


def rows_and_columns(rows: int, columns: int) -> Program:
    """A map that needs the sum of each row, and the sum of each column."""
    s = Sketch()
    x = s.input(rows, columns)
    made = s.op("sub", x, s.reduce("sum", x, 1))
    return fuse(s.done(made, s.reduce("sum", x, 0)), GPU)


def test_a_gpu_reduces_rows_and_columns_in_one_walk_over_rows_that_it_holds() -> None:
    program, machine = rows_and_columns(4096, 1024), HOPPER
    shape = prices(program, GPU).shape(only(program))
    whole = gpu_cost(shape, GPU.target, 1 << 40, may_cut=False)
    assert whole.waiting > 4096 / 4 * (machine.latency + machine.join)  # at each step a load and a sum of four rows
    (wanted,) = scheduled(only(program), program, GPU)
    assert 1 / 1.3 < whole.seconds / wanted < 1.3
    once = shape._replace(touches=tuple(touch._replace(passes=1) for touch in shape.touches))
    assert gpu_cost(once, GPU.target, 1 << 40, may_cut=False) == whole  # the rows are not read again for the map


def test_a_gpu_stores_partial_sums_of_columns_that_programs_share() -> None:
    program = rows_and_columns(4096, 1024)
    shape = prices(program, GPU).shape(only(program))
    cut = gpu_cost(shape, GPU.target, 1 << 40)
    moved = (cut.memory * HOPPER.bandwidth - sum(touch.size for touch in shape.touches)) / (1024 * 4)
    assert round(moved) == 2 * 2 * 132  # each of two programs a multiprocessor stores them, and the join loads them


def test_a_gpu_shares_a_long_row_among_programs() -> None:
    """As `split` cuts it: two launches, and a hundredth of the walks."""
    s = Sketch()
    program = s.done(s.reduce("sum", s.input(1, 1 << 24), 1))
    cost = prices(program, GPU)._cost(shapes(program, GPU)[0], 1 << 40)[0]
    assert GPU.target.machine is not None
    assert cost.launch == 2 * GPU.target.machine.launch
    assert cost.seconds < 60e-6


def test_programs_that_do_not_run_at_once_wait_for_each_other() -> None:
    costs: list[float] = []
    for rows in (4096, 65536):
        s = Sketch()
        program = s.done(s.op("neg", s.input(rows, 1024)))
        costs.append(prices(program, GPU)._cost(shapes(program, GPU)[0], 1 << 40)[0].waiting)
    assert costs[1] > 10 * costs[0] > 0


def test_of_a_slice_only_its_part_counts() -> None:
    s = Sketch()
    x = s.input(64, 128)
    program = s.done(s.op("neg", narrow(x, 1, 32, 32)), s.op("add", narrow(x, 1, 0, 32), narrow(x, 1, 96, 32)))
    first, second = (node for node in program.nodes if isinstance(node, Kernel))
    alone = prices(program, CPU).alone
    assert [alone(kernel).touched["arg0"] for kernel in (first, second)] == [64 * 32 * 4, 2 * 64 * 32 * 4]


def test_rows_read_at_computed_places_run_along_the_row() -> None:
    """Sums of a magnified image's rows: the results lie beside each other, the elements of 32 rows do not."""
    s = Sketch()
    x, out = s.input(32, 128), s.buffer((32, 1))
    (row, column), _, b = s.loop((32, 256))
    half = b.op("mul", b.index(column.symbol, F32), b.constant(0.5, F32))
    place = b.check(b.cast(half, I64), integer(128), wrap=False)
    value = b.load(x.ref, 128 * row.symbol + place, F32)
    b.store(out.ref, row.symbol, b.reduce([value], [column.name], combine("sum", F32)))
    s.kernel((row, column), b)
    program = s.done(out)
    kernel = only(program)
    assert Touches(kernel, program.real_table(), program.hints).vector_axis() == column.name
    assert shapes(program, CPU)[0].contiguous() == [1, 0]


def magnified(s: Sketch, x: View, shift: float) -> View:
    """Each element of the rows twice, some of them later."""
    rows, columns = (as_int(size) or 0 for size in x.size)
    out = s.buffer((rows, 2 * columns))
    (row, column), _, b = s.loop((rows, 2 * columns))
    half = b.op("mul", b.op("add", b.index(column.symbol, F32), b.constant(shift, F32)), b.constant(0.5, F32))
    place = b.check(b.cast(half, I64), integer(columns), wrap=False)
    b.store(out.ref, 2 * columns * row.symbol + column.symbol, b.load(x.ref, columns * row.symbol + place, F32))
    s.kernel((row, column), b)
    return out


@pytest.mark.parametrize(("shift", "times"), [(0, 1), (1, 2)])
def test_computed_places_are_the_same_if_they_are_computed_alike(shift: float, times: int) -> None:
    """Whatever the kernels call them."""
    s = Sketch()
    x = s.op("exp", s.input(64, 512))
    program = s.done(s.op("add", magnified(s, x, 0), magnified(s, x, shift)))
    exp, one, other, last = shapes(program, GPU)
    names = [next(touch.storage for touch in shape.touches if touch.is_store) for shape in (exp, one, other)]
    together = inlined(inlined(last, one, names[1]), other, names[2])
    assert next(touch.times for touch in together.touches if touch.storage == names[0]) == times
    again = inlined(together, exp, names[0])
    assert sum(work.functions for work in again.work) == times * sum(work.functions for work in exp.work)


def test_few_computed_places_of_a_tile_come_from_the_cache_beside_the_units() -> None:
    """A magnified row of 512 elements lies in 64 pieces of memory; 1,024 places in a row of 2**17 are all others."""
    near, far = Sketch(), Sketch()
    programs = near.done(magnified(near, near.input(512, 512), 0)), far.done(magnified(far, far.input(2, 2**17), 0))
    (one,), (other,) = (shapes(program, GPU) for program in programs)
    assert one.points(one.every) == other.points(other.every)
    tight, loose = (gpu_cost(shape, GPU.target, 1 << 40).cache for shape in (one, other))
    assert loose > 4 * tight


def test_columns_side_by_side_leave_the_cache_together() -> None:
    """A program of 32 columns holds 32 rows of the cache; of 8,192 columns not all fit it, and each pass reads them."""
    moved: list[float] = []
    for columns in (64, 8192):
        s = Sketch()
        program = fuse(inline(softmax(s, (8192, columns), 0), GPU), GPU)
        shape = prices(program, GPU).shape(only(program))
        cost = gpu_cost(shape, GPU.target, 1 << 40, may_cut=False)
        moved.append(cost.memory * min(1, columns / 32 / 132 * 4) / (2 * 8192 * columns * 4 / HOPPER.bandwidth))
    assert moved[0] == pytest.approx(1)
    assert moved[1] > 1.9


def test_elements_at_uneven_distances_are_beside_each_other_only_in_a_tile_that_has_several() -> None:
    """Channels lie beside each other in an image of channels last; a program that walks down one takes single ones."""
    touch = Touch("x", 4, (None, 16), 3, 1 << 24, 1 << 24)
    shape = Shape((64, 1 << 16), (touch,), ())
    tiles = _Tile((1, 2048), 256), _Tile((32, 64), 256)
    assert [_Pricer(shape, GPU.target, tile, 1 << 40).run(touch) for tile in tiles] == [4, 32]


def test_a_tile_of_few_rows_needs_few_of_the_places_of_a_span() -> None:
    """Two rows of a magnified image need two rows, wherever they are; and loads near each other share pieces."""
    spans = Span(1, 504, 2016), Span(2, 504, 4)
    near = Touch("x", 4, (None, None), 3, 1 << 20, 1 << 20, 1 << 20, spans=spans)
    shape = Shape((1008, 1008), (near,), ())
    tile = _Tile((2, 1024), 256)
    places = _Pricer(shape, GPU.target, tile, 1 << 40).unlike(near)
    assert places == pytest.approx(2 * (1 + 503 * 4 / 32) / 2048)
    four = near._replace(times=4)
    beside, above = _Tile((1, 1024), 128), _Tile((1024, 1), 128)
    rate = [_Pricer(shape, GPU.target, each, 1 << 40).unlike for each in (beside, above)]
    assert [each(four) / each(near) for each in rate] == [0.5, 0.5]
    assert _Pricer(shape, GPU.target, tile, 1 << 40).unlike(four) == pytest.approx(places / 4)


def test_of_a_slice_that_is_read_at_computed_places_only_its_part_counts() -> None:
    s = Sketch()
    program = s.done(magnified(s, narrow(s.input(8, 512), 0, 0, 4), 0))
    assert prices(program, GPU).alone(only(program)).touched["arg0"] == 4 * 512 * 4
