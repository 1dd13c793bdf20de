"""Prices of kernels on a CPU: each number of the machine matters somewhere, and none decides much alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from minductor.core.dtypes import BF16, F32, I8, I64, DType
from minductor.core.expressions.expr import integer, symbol
from minductor.cost.cpu_seconds import cpu_seconds
from minductor.cost.kernel_seconds import fastest
from minductor.cost.seconds import Cost
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.loops import Loop, Step
from minductor.ir.program.nodes import Axis, Kernel, Program
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.schedule import cpu_place, cpu_recipes
from minductor.target import NOMINAL_CPU, CpuMachine, by_name
from tests.passes.point_cases import points
from tests.passes.sketch import Sketch, element, transpose

Made = tuple[dict[str, Kernel], Program]


def pointwise(*size: int, op: str = "neg") -> Program:
    s = Sketch()
    return s.done(s.op(op, s.input(*size)))


def functions_in_turn(length: int, *, beside: bool = False) -> Program:
    """Three functions of each element: one of the other, or one `beside` the other."""
    s = Sketch()
    x, out = s.input(length), s.buffer([length])
    at = symbol("i0", "axis", 0, length - 1)
    b = Builder([at])
    first = b.op("exp", b.load(x.ref, at, F32))
    if beside:
        other = b.op("sin", b.load(x.ref, at, F32))
        value = b.op("add", first, b.op("add", other, b.op("tanh", b.load(x.ref, at, F32))))
    else:
        value = b.op("tanh", b.op("sin", first))
    b.store(out.ref, at, value)
    s.kernel([Axis(at, integer(length))], b)
    return s.done(out)


def sums(*size: int, dim: int) -> Program:
    s = Sketch()
    return s.done(s.reduce("sum", s.input(*size), dim))


def transposed(rows: int, columns: int) -> Program:
    s = Sketch()
    return s.done(s.op("add", transpose(s.input(rows, columns), 0, 1), s.input(columns, rows)))


def columns(rows: int, length: int, op: str = "neg", dtype: DType = F32) -> Program:
    """An operation on columns of a matrix that data pick; the places take a division each."""
    s = Sketch()
    view, places, out = s.input(rows, length, dtype=dtype), s.input(length), s.buffer([rows, length])
    axes, at, b = s.loop([rows, length])
    number = b.cast(b.load(places.ref, at[1], F32), I64)
    column = b.check(b.op("mod", number, b.constant(length, I64)), integer(length), wrap=False)
    b.store(out.ref, element(out, at), b.op(op, b.load(view.ref, element(view, [at[0], column]), F32)))
    s.kernel(axes, b)
    return s.done(out)


def gathered_rows(rows: int, length: int) -> Program:
    """Elements of each row, which data pick."""
    s = Sketch()
    view, places, out = s.input(rows, length), s.input(rows, length), s.buffer([rows, length])
    axes, at, b = s.loop([rows, length])
    number = b.cast(b.load(places.ref, element(places, at), F32), I64)
    column = b.check(number, integer(length), wrap=False)
    b.store(out.ref, element(out, at), b.load(view.ref, element(view, [at[0], column]), F32))
    s.kernel(axes, b)
    return s.done(out)


def groups(channels: int) -> Program:
    """Sums of a few neighbouring channels over many pixels, as in a group norm with channels last."""
    s = Sketch()
    x, out = s.input(8, 1000, 8, channels), s.buffer([8, 8])
    size = [8, 1000, 8, channels]
    axes = [Axis(symbol(f"i{n}", "axis", 0, count - 1), integer(count)) for n, count in enumerate(size)]
    at = [axis.symbol for axis in axes]
    b = Builder(at)
    total = b.reduce([b.load(x.ref, element(x, at), F32)], ["i1", "i3"], combine("sum", F32))
    b.store(out.ref, element(out, [at[0], at[2]]), total)
    s.kernel(axes, b)
    return s.done(out)


def softmax(rows: int, length: int, mask: DType | None = None) -> Program:
    """The softmax of rows, of elements times those of a mask of this type."""
    s = Sketch()
    x, out = s.input(rows, length), s.buffer([rows, length])
    axes, at, b = s.loop([rows, length])
    value = b.load(x.ref, element(x, at), F32)
    if mask is not None:
        where = s.input(rows, length, dtype=mask)
        value = b.op("mul", value, b.cast(b.load(where.ref, element(where, at), mask), F32))
    value = b.op("exp", b.op("sub", value, b.reduce([value], ["i1"], combine("max", F32))))
    total = b.reduce([value], ["i1"], combine("sum", F32))
    b.store(out.ref, element(out, at), b.op("div", value, total))
    s.kernel(axes, b)
    return s.done(out)


PROGRAMS: Mapping[str, Callable[[], Program]] = MappingProxyType(
    {
        "small": lambda: pointwise(100, 100),
        "vector": lambda: pointwise(400_000, op="exp"),
        "functions in turn": lambda: functions_in_turn(400_000),
        "functions in turn, few": lambda: functions_in_turn(3000),
        "large": lambda: pointwise(2000, 4000),
        "sum": lambda: sums(1, 300_000, dim=1),
        "rows": lambda: sums(40, 40_000, dim=1),
        "columns": lambda: sums(4000, 512, dim=0),
        "few columns": lambda: sums(30_000, 32, dim=0),
        "groups of 8": lambda: groups(8),
        "groups of 6": lambda: groups(6),
        "transposed": lambda: transposed(700, 900),
        "transposed, powers of two": lambda: transposed(1024, 2048),
        "gather": lambda: columns(500, 1000),
        "gather and exp": lambda: columns(500, 1000, "exp"),
        "gather of 16 bits": lambda: columns(500, 1000, dtype=BF16),
        "long gather": lambda: columns(4, 3_000_000),
    }
)


def made(program: Program) -> Made:
    """The program's only kernel by each legal recipe."""
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    drafts = cpu_recipes.drafts(merge_kernel_axes(kernel), program.real_table(), by_name("cpu"), ())
    return {name: cpu_place.place(draft) for name, draft in drafts.items()}, program


@pytest.fixture(scope="module")
def programs() -> dict[str, Made]:
    return {name: made(make()) for name, make in PROGRAMS.items()}


def costs(of: Made, machine: CpuMachine = NOMINAL_CPU) -> dict[str, tuple[Cost, ...]]:
    return cpu_seconds(of[0], of[1].real_table(), machine)


def prices(of: Made, machine: CpuMachine = NOMINAL_CPU) -> dict[str, tuple[float, ...]]:
    return {name: tuple(cost.seconds for cost in each) for name, each in costs(of, machine).items()}


def moved(field: str, factor: float) -> CpuMachine:
    """The nominal machine with one other number."""
    value = getattr(NOMINAL_CPU, field)
    return NOMINAL_CPU._replace(**{field: type(value)(value * factor)})


def test_threads_share_the_memory_of_parts_inside_a_serial_loop() -> None:
    """Rows of which each is shared and fits the cache: they stand in a serial loop around the parallel one."""
    alone, shared = costs(made(sums(16, 1_000_000, dim=1)))["rows_in_parts"]
    assert shared.memory < alone.memory / 5
    assert shared.seconds < alone.seconds / 5


def test_neighbours_in_a_line_are_counted_once() -> None:
    """Three coordinates of a point, which three loads take apart, take the memory of one load of all."""
    by_recipe = costs(made(points(1 << 20, 3).program()))
    assert by_recipe["short_axis"][0].memory == pytest.approx(by_recipe["elements"][0].memory, rel=0.01)


@pytest.mark.parametrize("field", CpuMachine._fields)
def test_every_number_of_the_machine_makes_some_kernel_cheaper_or_dearer(programs: dict[str, Made], field: str) -> None:
    assert any(prices(each) != prices(each, moved(field, 2)) for each in programs.values())


@pytest.mark.parametrize("field", [field for field in CpuMachine._fields if field != "vector_bytes"])  # a power of two
@pytest.mark.parametrize("factor", [1 / 1.15, 1.15])
def test_few_decisions_hang_on_one_number(programs: dict[str, Made], field: str, factor: float) -> None:
    """With a number that is 15% off, a recipe is taken that loses at most a twentieth more."""
    machine = moved(field, factor)
    changed = [name for name, each in programs.items() if _loss(each, fastest(prices(each, machine))) > 1.05]
    assert changed == []


def _loss(each: Made, taken: str) -> float:
    """How much more a recipe loses than the one that is taken."""
    found = prices(each)
    least = [min(column) for column in zip(*found.values(), strict=True)]
    lost = {name: max(p / q for p, q in zip(each, least, strict=True)) for name, each in found.items()}
    return lost[taken] / lost[fastest(found)]


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("small", "elements"),
        ("vector", "blocks"),
        ("functions in turn", "strips_blocks"),
        ("functions in turn, few", "strips"),
        ("sum", "rows_in_parts"),
        ("rows", "rows"),
        ("few columns", "columns_in_parts"),
        ("groups of 6", "two_steps"),
        ("transposed", "transposed"),
        ("gather and exp", "shared_indices"),
    ],
)
def test_the_recipe_that_is_faster_is_taken(programs: dict[str, Made], name: str, recipe: str) -> None:
    assert fastest(prices(programs[name])) == recipe


def test_functions_wait_for_those_before_them_only() -> None:
    """Three functions beside each other take no longer than three in turn over strips, apart from the rows of these."""
    in_turn, beside = (prices(made(functions_in_turn(400_000, beside=each))) for each in (False, True))
    assert beside["elements"][0] < in_turn["strips"][0] < in_turn["elements"][0]
    assert beside.keys().isdisjoint(("strips", "strips_blocks"))


def test_data_that_fit_a_cache_do_not_come_from_memory(programs: dict[str, Made]) -> None:
    small, large = (costs(programs[name])["elements"][0] for name in ("small", "large"))
    assert small.memory == 0
    lines = 2000 * 4000 * 4 / 64  # of an operand; those of the result are read and written back
    assert large.memory == pytest.approx(3 * lines * NOMINAL_CPU.memory_line, rel=0.01)


def test_memory_is_shared_by_the_threads(programs: dict[str, Made]) -> None:
    one, many = costs(programs["large"])["blocks"]
    assert many.memory == pytest.approx(one.memory / NOMINAL_CPU.memory_cores, rel=1e-3)
    assert many.arithmetic == pytest.approx(one.arithmetic / 16, rel=0.05)


def test_lines_that_are_not_fetched_ahead_take_longer() -> None:
    """With 64 MiB in blocks of 256 columns, once of whole rows and once of short pieces of rows."""
    whole, pieces = (costs(made(sums((1 << 24) // n, n, dim=0)))["columns"] for n in (256, 4096))
    assert pieces[0].memory == pytest.approx(
        whole[0].memory * (1 + NOMINAL_CPU.memory_wait / NOMINAL_CPU.memory_line), rel=0.01
    )
    assert pieces[1].memory == pytest.approx(pieces[0].memory / 16, rel=1e-3)  # each core waits for its own lines


def test_gathers_wait_for_main_memory() -> None:
    """For each line if lines are few, and once for all lines of an instruction if rows are long."""
    found = costs(made(columns(4096, 4096)))
    assert found["elements"][0].memory > 5 * found["scalar_elements"][0].memory  # it asks for rows before
    far = costs(made(columns(4, 8_000_000)))["elements"][0].memory
    gathers = 4 * 8_000_000 / (NOMINAL_CPU.vector_bytes / 4)
    assert gathers * NOMINAL_CPU.memory_gather < far < 1.5 * gathers * NOMINAL_CPU.memory_gather


def test_rows_a_power_of_two_apart_do_not_stay_in_the_cache() -> None:
    near, far = (costs(made(transposed(512, 4 * n)))["elements"][0].cache for n in (127, 128))
    assert far > 1.5 * near


def test_starting_threads_costs_more_if_there_are_more(programs: dict[str, Made]) -> None:
    one, many = (cost.launch - NOMINAL_CPU.launch for cost in costs(programs["vector"])["blocks"])
    assert many == pytest.approx(NOMINAL_CPU.region)
    assert 0 < one < many / 4


def test_phases_do_not_hide_what_other_phases_wait_for() -> None:
    """Rows from the cache run phase by phase; those from main memory run one by one, and compute while they load."""
    near, far = (prices(made(softmax(rows, 64))) for rows in (2048, 1 << 17))
    assert near["phases"] < near["rows"]
    assert far["rows"] < far["phases"]


def test_only_floats_of_16_bits_take_long_to_convert() -> None:
    wide, narrow, half = (costs(made(softmax(2048, 64, mask)))["rows"][0].arithmetic for mask in (F32, I8, BF16))
    assert narrow < 1.1 * wide
    assert half > 1.1 * narrow


def test_a_size_that_only_the_call_knows_counts_as_a_large_one() -> None:
    program = pointwise(1 << 20)
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    axis = replace(kernel.axes[0], extent=symbol("s0", "size", 2))
    assert fastest(prices(made(replace(program, nodes=(replace(kernel, axes=(axis,)),))))) == "blocks"


def test_rows_that_are_asked_for_before_cost_no_jumps() -> None:
    """With 16 MiB of rows; rows that fit the second-level cache are no cheaper."""
    gained: list[float] = []
    for rows in (4096, 16):
        recipes, program = made(gathered_rows(rows, 1024))
        kernel = recipes["scalar_elements"]
        assert kernel.schedule is not None
        steps = tuple(_unasked(step) for step in kernel.schedule.steps)
        unasked = {"asked": kernel, "unasked": replace(kernel, schedule=replace(kernel.schedule, steps=steps))}
        found = prices((unasked, program))
        gained.append(found["unasked"][0] / found["asked"][0])
    assert gained[0] > 1.1 and gained[1] < 1.05


def _unasked(step: Step) -> Step:
    if not isinstance(step, Loop):
        return step
    return replace(step, fetched=(), body=tuple(_unasked(inner) for inner in step.body))
