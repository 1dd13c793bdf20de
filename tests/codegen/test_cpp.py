"""Generated C++ kernels against the slow evaluator of the IR, over every kind of loop nest.

Takes the kernels of cases.py, tiled and compiled into one shared object; each runs on one, two and three threads.
Refuses a value that differs from the evaluator's beyond rounding, and any bit that depends on the thread count.
"""

from __future__ import annotations

import copy
import ctypes
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from minductor.codegen.cpp import cpp_kernels
from minductor.codegen.cpp.cpp_kernels import cpp, kernel_text, unit_text
from minductor.core.dtypes import BOOL, F32, I8, I64, DType
from minductor.core.errors import VerifyError
from minductor.core.expressions.expr import integer
from minductor.ir.plan.plan import KernelLine, Plan
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.loops import Schedule, loops, parse_schedule
from minductor.ir.program.nodes import Kernel, Masked, Program
from minductor.ir.program.signature import signature
from minductor.options import Options
from minductor.runtime.build.probe import probe
from minductor.runtime.build.toolchain import Toolchain, Unit
from minductor.runtime.reference.reference import run_program, torch_dtype
from minductor.target import Env, by_name
from tests.codegen.cases import BUILDERS, S0, S1, SIZES, Case, Sketch, case, integers, randn, softmax
from tests.passes.step_cases import gathered_rows, transposed
from tests.rows import schedule
from tests.verifying import verify

CPU = Env(Options(), by_name("cpu"))


def kernel_of(program: Program) -> Kernel:
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    return kernel


def text_of(program: Program, symbol: str) -> str:
    table = program.buffer_table()
    return kernel_text(kernel_of(program), symbol, {name: b.dtype for name, b in table.items()})


def case_of(sketch: Sketch) -> Case:
    return Case(sketch.program(), sketch.tensors)


def compiled(texts: dict[str, str], folder: Path) -> ctypes.CDLL:
    halves = [list(texts.values())[n::2] for n in range(2)]
    units = [Unit(f"unit{n}", unit_text(half)) for n, half in enumerate(halves) if half]
    visible = [Unit(u.name, f"#pragma GCC visibility push(default)\n{u.text}") for u in units]
    out = folder / "kernels.so"
    Toolchain(probe(), os.environ).compile(visible, out)
    return ctypes.CDLL(str(out))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    texts = {name: text_of(schedule(case(name).program, CPU), name) for name in BUILDERS}
    return compiled(texts, tmp_path_factory.mktemp("kernels"))


def launch(library: ctypes.CDLL, name: str, made: Case, *, threads: int) -> tuple[int, list[Tensor]]:
    """The status and the outputs; inputs stay as they are, but for those that the kernel overwrites."""
    program = schedule(made.program, CPU)
    kernel = kernel_of(program)
    tensors: dict[str, Tensor] = {name: tensor.clone() for name, tensor in made.tensors.items()}
    for view in program.outputs:
        size = [SIZES.get(str(n)) or int(str(n)) for n in view.size]  # type: ignore[union-attr]
        tensors.setdefault(view.ref.storage, torch.full(size, 77).to(torch_dtype(view.dtype)))  # type: ignore[union-attr]
    needs = signature(kernel)
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    pointers = [ctypes.c_void_p(tensors[s].data_ptr()) for s in needs.storages]
    sizes = [ctypes.c_int64(SIZES[s.name]) for s in needs.sizes]
    status = function(*pointers, *sizes, ctypes.c_int64(threads))
    return status, [tensors[view.ref.storage] for view in program.outputs]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", BUILDERS)
def test_agrees_with_the_evaluator_on_any_number_of_threads(library: ctypes.CDLL, name: str) -> None:
    made = case(name)
    inputs = [
        SIZES[given.name] if given.symbol is not None else made.tensors[given.name] for given in made.program.inputs
    ]
    expected = run_program(made.program, copy.deepcopy(inputs))
    status, results = launch(library, name, made, threads=1)
    assert status == 0
    for want, got in zip(expected, results, strict=True):
        torch.testing.assert_close(got, want.reshape(got.shape), rtol=1e-5, atol=3e-5 if "sum" in name else 1e-5)
    for threads in (2, 3):
        again = launch(library, name, made, threads=threads)[1]
        assert all(torch.equal(a, b) for a, b in zip(results, again, strict=True))


def norm_of_short_rows(size: tuple[int, int]) -> Sketch:
    """A row is centred by its mean and scaled by its own weight and one of each column; the means are a result too."""
    rows, length = size
    s = Sketch(size)
    i, j = s.i
    x = s.read("a", randn(rows, length), F32, length * i + j)
    mean = s.b.op("div", s.b.reduce([x], ["i1"], combine("sum", F32)), s.constant(float(length)))
    centred = s.b.op("sub", x, mean)
    squares = s.b.reduce([s.b.op("square", centred)], ["i1"], combine("sum", F32))
    scaled = s.b.op("mul", s.b.op("mul", centred, s.b.op("rsqrt", squares)), s.read("s", randn(rows), F32, i))
    s.write(s.b.op("mul", scaled, s.read("w", randn(length), F32, j)), F32)
    s.write(mean, F32, axes=(0,))
    return s


@pytest.mark.parametrize(
    "size",
    [
        (300, 7),
        pytest.param((64, 16), marks=pytest.mark.long),
        pytest.param((70, 32), marks=pytest.mark.long),
        (71, 31),
        (90, 17),
        pytest.param((1000, 2), marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("make", [softmax, norm_of_short_rows])
def test_rows_side_by_side_have_the_bits_of_rows_by_themselves(
    make: Callable[[tuple[int, int]], Sketch], size: tuple[int, int], tmp_path: Path
) -> None:
    made = case_of(make(size))
    made.tensors["a"][3] = -torch.inf
    made.tensors["a"][5, 1] = torch.nan
    made.tensors["a"][6] = -0.0
    variants = {name: Env(Options(variant=name), by_name("cpu")) for name in ("rows", "side_by_side")}
    texts = {name: text_of(schedule(made.program, env), name) for name, env in variants.items()}
    assert [text.count("md_transpose(") for text in texts.values()] == [0, 2]
    library = compiled(texts, tmp_path)
    rows, beside = (launch(library, name, made, threads=2)[1] for name in variants)
    assert all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(rows, beside, strict=True))


def test_reduces_propagate_nan(library: ctypes.CDLL) -> None:
    for name in ("max_inner", "min_outer", "argmax_inner", "softmax"):
        made = case(name)
        made.tensors["a"][11, 13] = torch.nan
        _, results = launch(library, name, made, threads=1)
        (want, *_) = run_program(made.program, [made.tensors["a"]])
        torch.testing.assert_close(results[0], want.reshape(results[0].shape), equal_nan=True)
        assert name == "argmax_inner" or results[0].isnan().any()


def test_an_index_out_of_range_is_clamped_and_reported(library: ctypes.CDLL) -> None:
    for name in ("gathered", "scattered"):
        for wrong in (12345, -777):
            made = case(name)
            made.tensors["ids"][17] = wrong
            status, _ = launch(library, name, made, threads=2)
            assert status == 1


def assertion() -> Sketch:
    s = Sketch((100,))
    x = s.read("a", randn(100), F32, s.i[0])
    s.b.assertion(s.b.op("lt", x, s.constant(10.0)), "too large")
    at = s.b.check(s.b.cast(x, I64), integer(9), wrap=True)
    s.write(s.read("b", randn(9), F32, at), F32)
    return s


def test_the_status_is_the_number_of_the_error(tmp_path: Path) -> None:
    sketch = assertion()
    made = Case(sketch.program(), sketch.tensors)
    loaded = compiled({"assertion": text_of(schedule(made.program, CPU), "assertion")}, tmp_path)
    assert launch(loaded, "assertion", made, threads=1)[0] == 0
    made.tensors["a"][70] = 20.0
    kinds = [kind for kind, _ in signature(kernel_of(made.program)).errors]
    assert kinds == ["RuntimeError", "IndexError"]
    assert launch(loaded, "assertion", made, threads=1)[0] == 1
    made.tensors["a"][70] = -12.0
    assert launch(loaded, "assertion", made, threads=1)[0] == 2


# --- text


def test_text_does_not_depend_on_the_machine_or_the_call() -> None:
    for name in ("softmax", "sum_all", "symbolic_all"):
        first, second = (text_of(schedule(case(name).program, CPU), "f") for _ in range(2))
        assert first == second


def test_a_schedule_prints_and_parses_back() -> None:
    for name in BUILDERS:
        made = kernel_of(schedule(case(name).program, CPU)).schedule
        assert made is not None
        assert parse_schedule(str(made), {str(size): size for size in (S0, S1)}) == made


def scheduled(kernel: Kernel) -> Schedule:
    assert kernel.schedule is not None
    return kernel.schedule


def test_masks_that_the_row_decides_are_tested_before_it() -> None:
    program = schedule(case("padded_rows").program, CPU)
    kernel = kernel_of(program)
    (masked,) = [loop for loop in loops(scheduled(kernel).steps) if loop.unmasked]
    assert len(masked.unmasked) == 2
    text = text_of(program, "f")
    assert text.count("if (x") == 1  # the test; the masks in the loop behind it are the elements before an end
    assert text.count("if (i1 < end") == text.count("= md_end_if(x") == 2
    wrong = str(scheduled(kernel)).replace("unmasked %", "unmasked %0 %")
    broken = replace(program, nodes=(replace(kernel, schedule=parse_schedule(wrong)),))
    with pytest.raises(VerifyError, match="are known before it begins"):
        verify(broken, "schedule")


def test_masks_that_vary_along_the_loop_are_asked_for_in_it() -> None:
    program = schedule(case("padded_columns").program, CPU)
    kernel = kernel_of(program)
    made = scheduled(kernel)
    (mask,) = [p for p, op in enumerate(kernel.body.ops) if isinstance(op.attrs, Masked)]
    assert made.kept_rows == kernel.body.ops[mask].args  # kept, and still another one at each point
    verify(program, "schedule")
    loop = f"vector i1 {{\n    %{mask} "
    wrong = str(made).replace(loop, loop.replace("{", f"unmasked %{mask} {{"))
    with pytest.raises(VerifyError, match="are known before it begins"):
        verify(replace(program, nodes=(replace(kernel, schedule=parse_schedule(wrong)),)), "schedule")


def test_a_row_is_fetched_before_the_loop_that_gathers_from_it() -> None:
    program = schedule(gathered_rows(30, 64, 100).program(), CPU)
    made = scheduled(kernel_of(program))
    (loop,) = [loop for loop in loops(made.steps) if loop.fetched]
    text = text_of(program, "f")
    row = next(line for line in text.splitlines() if "md_fetch(" in line)
    assert row.strip() == "md_fetch(in1 + 100 * i0, 100 * 4);"
    assert text.index(row) < text.index("MD_SCALAR;")
    verify(program, "schedule")
    for other in (0, 1):  # a load that moves with the loop, and no load
        wrong = str(made).replace(f"fetch %{loop.fetched[0]}", f"fetch %{other}")
        with pytest.raises(VerifyError, match="is known before its loop"):
            verify(replace(program, nodes=(replace(kernel_of(program), schedule=parse_schedule(wrong)),)), "schedule")


def test_what_has_16_bits_already_is_not_converted() -> None:
    text = text_of(schedule(case("copied_bits").program, CPU), "f")
    stored = [text.count(f"{name}(") for name in ("md_f32_to_bf16", "md_f16_store", "md_f32_held_bf16")]
    assert stored == [1, 1, 1]  # the sum, to the other dtype, and what was read
    assert "md_bf16_round_f32" not in text
    text = text_of(schedule(case("padded_bits").program, CPU), "f")
    assert "= md_f32_held_bf16(" in text
    assert "md_f32_to_bf16" not in text


def test_elements_of_every_size_are_transposed_in_registers(tmp_path: Path) -> None:
    env = Env(Options(variant="transposed"), by_name("cpu"))
    made = {name: case(name) for name in BUILDERS if name.startswith("transposed")}
    texts = {name: text_of(schedule(each.program, env), name) for name, each in made.items()}
    calls = {name: len(re.findall(r"md_(?:transpose|copy_transposed)\(in0", text)) for name, text in texts.items()}
    assert calls == dict.fromkeys(made, 1)
    library = compiled(texts, tmp_path)
    for name, each in made.items():
        (result,) = launch(library, name, each, threads=2)[1]
        expected = each.tensors["a"].t() + each.tensors.get("b", 0)
        assert torch.equal(result, expected), name


@pytest.mark.parametrize(("size", "calls"), [((500, 700), [True]), ((40, 700), [False])])
def test_a_transpose_reads_the_next_rows_ahead_if_there_are_any(size: tuple[int, int], calls: list[bool]) -> None:
    """What it would read ahead behind the last block of rows is something else."""
    text = text_of(schedule(case_of(transposed(*size)).program, CPU), "f")
    assert [not given.endswith(", false") for given in re.findall(r"md_copy_transposed\((in0.*)\);", text)] == calls


def test_loops_over_whole_axes_stay_loops() -> None:
    """Their order may matter, and a call transposes blocks."""
    program = case_of(transposed(70, 90)).program
    (kernel,) = schedule(program, CPU).nodes
    assert isinstance(kernel, Kernel) and "md_copy_transposed(in0" in text_of(replace(program, nodes=(kernel,)), "f")
    whole = parse_schedule("serial i0 {\n  serial i1 {\n    %0 %1\n  }\n}")
    made = replace(program, nodes=(replace(kernel, schedule=whole),))
    assert (
        "for (int64_t i1 = 0; i1 < 70; ++i1)" in (text := text_of(made, "f")) and "md_copy_transposed(in0" not in text
    )


@pytest.mark.parametrize(
    ("length", "is_masked"),
    [(49, True), (40, True), (48, False), (96, False), (100, True)],  # sums of up to 63 elements have 32 lanes, or 64
)
def test_what_is_left_over_of_a_row_runs_in_all_lanes_under_masks(length: int, is_masked: bool) -> None:
    text = text_of(schedule(case_of(softmax((50, length))).program, CPU), "f")
    assert ("md_masked_lanes<" in text, "md_lanes<" in text) == (is_masked, not is_masked)
    assert text.count("if (on) x") == is_masked  # a row has no element for a lane past its end


def test_integers_are_not_divided_in_lanes_past_the_end() -> None:
    """What is read there is 0, and a division of integers by it would end the process."""
    s = Sketch((50, 49))
    i, j = s.i
    by = s.read("a", integers(9, 50, 49) + 1, I64, 49 * i + j)
    region = Builder(s.b.axes)
    quotient = region.build([region.op("truncdiv", region.constant(100, I64), region.parameter(0, I64))])
    terms = s.b.masked(s.b.op("gt", by, s.b.constant(3, I64)), (by,), quotient, 0, I64)
    s.write(s.b.reduce([terms], ["i1"], combine("sum", I64)), I64, axes=(0,))
    text = text_of(schedule(case_of(s).program, CPU), "f")
    assert "md_masked_lanes" not in text
    assert "md_lanes<" in text


def test_gathers_run_before_the_vector_loop_that_computes_with_them() -> None:
    for name, blocks in (("gathered_and_computed", [256]), ("gathered_and_computed_short", [])):
        made = scheduled(kernel_of(schedule(case(name).program, CPU)))
        assert [loop.block for loop in loops(made.steps) if loop.kind == "serial"] == blocks
        assert [loop.kind for loop in loops(made.steps)][-2:] == ["scalar", "vector"]
        assert len(made.kept_rows) == 2  # what is gathered; the place is not needed behind
    kinds = {loop.kind for loop in loops(scheduled(kernel_of(schedule(case("gathered").program, CPU))).steps)}
    assert "scalar" not in kinds


def test_places_that_rows_share_are_found_once_for_many_rows() -> None:
    made = scheduled(kernel_of(schedule(case("gathered_along_rows").program, CPU)))
    assert [loop.block for loop in loops(made.steps)][:2] == [64, 128]
    assert len(made.kept_rows) == 3  # both places and the weight


def test_a_loop_whose_pieces_overlap_is_refused() -> None:
    program = schedule(case("bent").program, CPU)
    kernel = kernel_of(program)
    verify(program, "schedule")
    axes = {axis.name: axis.symbol for axis in kernel.axes}
    # out of order, not the same ones at each call, beyond the end, and blocks that are not the same at each call
    for cuts in ("cut <64> <5>", "cut <i0>", "cut <70>", "most <i0> cut <5>"):
        wrong = parse_schedule(str(scheduled(kernel)).replace("cut <5>", cuts), axes)
        with pytest.raises(VerifyError, match="the cuts of a loop are in ascending order"):
            verify(replace(program, nodes=(replace(kernel, schedule=wrong),)), "schedule")


@pytest.mark.parametrize("text", ["loop i0 {", "parallel i0 { %0", "vector i0 by x { }", "%0 }", "rows %1 %2 {"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1, column \d+: "):
        parse_schedule(text)


def plan_of(count: int) -> Plan:
    sketch = Sketch((64,))
    sketch.write(sketch.b.op("neg", sketch.read("a", randn(64), F32, sketch.i[0])), F32)
    kernel = kernel_of(schedule(sketch.program(), CPU))
    signatures = (("a", "f32"), ("out0", "f32"))
    lines = tuple(KernelLine(f"k{n}", f"neg_{n}", signatures, "", kernel.origins) for n in range(count))
    return Plan("plan", (), lines, tuple((f"k{n}", kernel) for n in range(count)))


@pytest.mark.parametrize(("count", "units"), [(0, []), (1, [1]), (32, [32]), (33, [16, 17]), (70, [23, 23, 24])])
def test_kernels_are_spread_evenly_over_few_units(count: int, units: list[int]) -> None:
    made = cpp(plan_of(count), CPU)
    assert [len(unit.symbols) for unit in made] == units
    assert all(re.findall(r"int64_t (neg_\d+)\(", unit.text) == list(unit.symbols) for unit in made)


def test_a_unit_has_the_mathematics_that_it_calls_and_no_other() -> None:
    text = unit_text([text_of(schedule(case("pointwise_odd").program, CPU), "f")])
    assert "md_tanh_f32(float" in text
    assert "md_log_f32" not in text


def test_a_comment_names_the_nodes() -> None:
    assert text_of(schedule(case("softmax").program, CPU), "f").startswith("// aten.op.default: node\n")


def vectorised(text: str, folder: Path) -> Callable[[str], bool]:
    """Whether gcc says that it vectorised a loop whose head holds some text: it names a line at the top of the body."""
    source = folder / "k.cpp"
    source.write_text(unit_text([text]))
    command = [*Toolchain(probe(), os.environ).compiler.command, *Toolchain(probe(), os.environ).flags()]
    run = subprocess.run(
        [*command, "-fopt-info-vec-optimized", "-c", str(source), "-o", str(folder / "k.o")],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = source.read_text().splitlines()
    noted = {int(m[1]) for m in re.finditer(r"k\.cpp:(\d+):\d+: optimized: loop vectorized", run.stderr)}
    return lambda part: any(part in line for n in noted for line in lines[n - 3 : n + 1])


@pytest.mark.parametrize(
    ("name", "loop"),
    [
        ("broadcasts", "for (int64_t i1 = 0"),
        ("sixteen_bits", "for (int l = 0; l < count; ++l)"),
        ("halves", "for (int l = 0; l < count; ++l)"),
        ("softmax", "for (int l = 0; l < W; ++l) body"),
        ("layer_norm", "for (int l = 0; l < W; ++l) body"),
        ("sum_outer", "md_rows(rows"),
        ("sum_outer_of_few", "md_rows(rows"),
        ("min_outer", "for (int64_t i1 = 0"),
        ("argmax_inner", "for (int l = 0; l < W; ++l) body"),
        ("all_inner", "for (int l = 0; l < W; ++l) body"),
        ("padded", "for (int64_t i1 = 0"),
        ("padded_rows", "for (int64_t i1 = 0"),
        ("padded_rows", "= -1.5f;"),  # in the loop with masks
        ("bent", "for (int64_t i1 = 5;"),
        ("gathered", "for (int64_t i1 = 0"),
        ("one_hot", "for (int l = 0; l < W; ++l) body"),
    ],
)
def test_the_vector_loop_is_vectorised(name: str, loop: str, tmp_path: Path) -> None:
    assert vectorised(text_of(schedule(case(name).program, CPU), "f"), tmp_path)(loop)


@pytest.mark.parametrize("length", [49, 63, 100])
def test_what_is_left_over_is_vectorised_whatever_its_length(length: int, tmp_path: Path) -> None:
    text = text_of(schedule(case_of(softmax((50, length))).program, CPU), "f")
    assert vectorised(text, tmp_path)("for (int l = L; l < L + N; ++l) body(i + l, l, l < rest)")


def test_what_is_left_over_of_a_row_of_any_length_is_vectorised(tmp_path: Path) -> None:
    """The rows of exponentials, too, which are stored under masks: g++ loads no pointer under a mask."""
    text = text_of(schedule(case("softmax_symbolic").program, CPU), "f")
    assert re.search(r"firstprivate\(in0, out1(, s\d)*\)", text)
    assert vectorised(text, tmp_path)("for (int l = L; l < L + N; ++l) body(i + l, l, l < rest)")


@pytest.mark.parametrize("dtype", [BOOL, I8])
def test_lanes_that_store_bytes_are_vectorised(dtype: DType, tmp_path: Path) -> None:
    """A byte may be part of any object, as far as g++ knows: also of the pointers that threads share."""
    s = Sketch((64, 640))
    i, j = s.i
    x = s.read("a", randn(64, 640), F32, 640 * i + j)
    s.write(s.b.reduce([x], ["i1"], combine("sum", F32)), F32, axes=(0,))
    s.write(s.b.op("gt", x, s.b.constant(0.5, F32)) if dtype == BOOL else s.b.cast(x, dtype), dtype)
    text = text_of(schedule(case_of(s).program, CPU), "f")
    assert "firstprivate(in0, out1, out2)" in text
    assert vectorised(text, tmp_path)("for (int l = 0; l < W; ++l) body")


def test_accumulators_are_as_many_as_the_columns_of_the_call() -> None:
    """A matrix may have far fewer columns than a block has."""
    text = text_of(schedule(case("symbolic_columns").program, CPU), "f")
    assert "for (int64_t l = 0; l < i1_end - i1_start; ++l)" in text
    assert not re.findall(r"\b[jl] < \d{3}", text)


def test_combine_of_a_name_that_spell_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown way to combine"):
        combine("median", F32)


def chain(count: int) -> Sketch:
    """So many functions of each element, one after the other."""
    s = Sketch((40, 70))
    i, j = s.i
    x = s.read("a", randn(40, 70), F32, 70 * i + j)
    for number in range(count):
        x = s.b.op(("tanh", "sin", "sigmoid", "exp")[number % 4], x)
    s.write(s.b.op("add", x, s.read("b", randn(40), F32, i)), F32)
    return s


def test_functions_over_strips_are_one_call_each() -> None:
    """A function with an operand that is the same for the whole row stays in a loop, and none is called twice."""
    s = Sketch((40, 700))
    i, j = s.i
    x = s.b.op("sin", s.b.op("tanh", s.read("a", randn(40, 700), F32, 700 * i + j)))
    s.write(s.b.op("pow", s.b.op("exp", x), s.read("b", randn(40), F32, i)), F32)
    program = schedule(case_of(s).program, Env(Options(variant="strips"), by_name("cpu")))
    text = text_of(program, "kernel")
    assert re.findall(r"md_strip_(\w+)_f32\(x", text) == ["tanh", "sin", "exp"]
    assert "md_strip_pow" not in text and "md_called" not in text
    assert text.count("= md_pow_f32(") == 1
    assert "md_tanh_f32(x0" not in text


def beside(count: int) -> Sketch:
    """The sum of so many functions of each element."""
    s = Sketch((40, 70))
    i, j = s.i
    x = s.read("a", randn(40, 70), F32, 70 * i + j)
    total = x
    for number in range(count):
        total = s.b.op("add", total, s.b.op("exp", s.b.op("mul", x, s.read(f"b{number}", randn(40), F32, i))))
    s.write(total, F32)
    return s


def test_functions_that_wait_for_no_other_are_inlined() -> None:
    text = text_of(schedule(case_of(beside(12)).program, CPU), "kernel")
    assert text.count("= md_exp_f32(") == 12 and "md_called" not in text


def test_a_choice_between_called_functions_stays_vectorised(tmp_path: Path) -> None:
    """Of softpluses in turn, a large value passes all: g++ jumps past `c ? x : f(x)`, so masks choose."""
    s = Sketch((40, 70))
    i, j = s.i
    x = s.read("a", randn(40, 70), F32, 70 * i + j)
    limit = s.b.constant(20.0, F32)
    for _ in range(5):
        x = s.b.op("where", s.b.op("gt", x, limit), x, s.b.op("log1p", s.b.op("exp", x)))
    s.write(s.b.op("add", x, s.read("b", randn(40), F32, i)), F32)
    text = text_of(schedule(case_of(s).program, CPU), "kernel")
    assert "md_called_log1p_f32(" in text
    assert vectorised(text, tmp_path)("for (int64_t i1")


@pytest.mark.parametrize("count", [8, 9])
def test_many_functions_are_called_for_whole_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """They have the bits of inlined ones, and the loop around them stays vectorised."""
    made = case_of(chain(count))
    program = schedule(made.program, CPU)
    texts = {"usual": text_of(program, "usual")}
    assert ("md_called_tanh_f32(" in texts["usual"]) == (count > 8) == ("md_tanh_f32(" not in texts["usual"])
    assert vectorised(texts["usual"], tmp_path)("for (int64_t i1")
    monkeypatch.setattr(cpp_kernels, "MOST_INLINED", 99 if count > 8 else 0)
    texts["other"] = text_of(program, "other")
    assert ("md_called_tanh_f32(" in texts["other"]) == (count <= 8)
    library = compiled(texts, tmp_path)
    (usual,), (other,) = (launch(library, name, made, threads=2)[1] for name in texts)
    assert torch.equal(usual, other)
