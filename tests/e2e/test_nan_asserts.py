"""Under option nan_asserts a kernel that makes NaN or infinity is an error; one that passes on what it reads is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.core.errors import NonFiniteResult
from minductor.driver import Compiled, Compiler
from minductor.runtime.launch import launch, nan_asserts
from minductor.runtime.store.store import Store
from pytest_plugin.devices.device_choice import Device

everywhere = pytest.mark.devices("cpu", "interpret", "cuda")
gpus = pytest.mark.devices("interpret", "cuda")
SAMPLE = (
    *("log", "overflow", "complex", "mask", "in a slice"),
    *("NaN of an input", "a mask", "a slice of NaN", "no elements"),
)
IN_CPP = ("log", "in a slice", "NaN of an input", "a slice of NaN")  # of the same checks, behind a build with g++
WRAPPERS = ("python", "cpp", "fx")
NAN, INF = float("nan"), float("inf")
T = torch.tensor
Case = tuple[Callable[..., Any], tuple[Tensor, ...], str]

# the function, its arguments, and what the error says of the result
REPORTED: Mapping[str, Case] = MappingProxyType(
    {
        "log": (
            torch.log,
            (T([[1.0, 2, 3], [4, -1, -2]]),),
            "NaN in 2 of the 6 elements of .*at [1, 1]; .* float32 of size (2, 3)",
        ),
        "0 / 0": (torch.div, (T([0.0, 1]), T([0.0, 1])), "NaN in 1 of the 2 elements of .*at [0];"),
        "1 / 0": (torch.div, (T([1.0, 1]), T([1.0, 0])), "infinity in 1 of the 2 elements of .*at [1];"),
        "-1 / 0": (torch.div, (T([1.0, -1]), T([1.0, 0])), "infinity in 1 of the 2 elements of .*at [1];"),
        "overflow": (torch.mul, (T([4e4, 1]).half(), T([2.0, 1]).half()), "infinity .* float16 of size (2,)"),
        "exp": (torch.exp, (T([100.0, 1]).bfloat16(),), "infinity .*bfloat16"),
        "float64": (torch.sqrt, (T([-1.0, 1]).double(),), "NaN .*float64"),
        "complex": (torch.mul, (T([1 + 1j, 1e30j]), T([1 + 0j, 1e30 + 0j])), "infinity in 1 of the 2 .*complex64"),
        "sum": (lambda x: x.sum(-1), (T([[3e38, 3e38], [1, 1]]),), "infinity in 1 of the 2 elements of .*at [0];"),
        "softmax": (lambda x: torch.softmax(x, -1), (T([[-INF, -INF], [1, -INF]]),), "NaN in 2 of the 4 .*at [0, 0];"),
        "infinities": (torch.sub, (T([INF, 1]), T([INF, 1])), "NaN in 1 of the 2 elements"),
        "mask": (
            lambda x: x.log().masked_fill(x > 0, -INF),
            (T([1.0, -1]),),
            "NaN in 1 of the 2 elements of .*at [1];",
        ),
        "scalar": (torch.log, (T(-1.0),), "NaN in 1 of the 1 elements of .*at []; .*of size ()"),
        "transposed": (lambda x: x.t().log(), (T([[1.0, 2], [-1, 4]]),), "NaN in 1 of the 4 elements of .*at [0, 1];"),
        "in place": (lambda x: x.log_(), (T([1.0, -1]),), "NaN in 1 of the 2 elements of arg0_1, the first at [1];"),
        "in a slice": (lambda x, y: x[1:].copy_(y.log()), (T([NAN, 1.0]), T([-1.0])), "NaN in 1 of .*at [1];"),
        "scatter": (
            lambda x, i, y: x.index_add(0, i, y / x[0]),
            (torch.zeros(3), T([2, 2]), T([0.0, 1])),
            "NaN in 1 of .*at [2];",
        ),
    }
)


def nan_and(*values: float) -> Tensor:
    return T([NAN, -INF, *values])


PASSED: Mapping[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = MappingProxyType(
    {
        "NaN of an input": (lambda x: (x * 2, x.sum(), x.half()), (nan_and(1, 2),)),
        "NaN of one input": (lambda x, y: x + y.exp(), (nan_and(1, 2), torch.ones(4))),
        "a mask": (lambda x, m: x.masked_fill(m, -INF), (torch.ones(4), T([True, False, True, False]))),
        "a masked softmax": (
            lambda x, m: torch.softmax(x.masked_fill(m, -INF), -1),
            (torch.ones(2, 2), T([[True, False]])),
        ),
        "a fill": (lambda x: (torch.full_like(x, NAN), torch.full_like(x, INF)), (torch.ones(4),)),
        "padding": (lambda x: (F.pad(x, (1, 1), value=-INF), F.max_pool2d(x[None], 3, 2, 1)), (torch.ones(5, 5),)),
        "running maxima": (
            lambda x: (x.cummax(0)[0], x.logcumsumexp(0), x.amax(), x.logsumexp(0)),
            (torch.ones(5000),),
        ),
        "a slice of NaN": (lambda x, y: x[2:].copy_(y.exp()), (nan_and(1, 2), torch.ones(2))),
        "a scatter into NaN": (lambda x, i, y: x.index_copy_(0, i, y.exp()), (nan_and(1, 2), T([2, 3]), torch.ones(2))),
        "a sum into NaN": (lambda x, i, y: x.index_add_(0, i, y), (nan_and(1, 2), T([2, 2]), torch.ones(2))),
        "gaps": (lambda x: x.new_empty(4, 9)[:, :3].copy_(x.exp()), (torch.ones(4, 3),)),
        "parts": (lambda x, y: torch.cat([x.sin(), y * 2, x.cos()]), (torch.ones(3), nan_and(1, 2))),
        "integers": (lambda x: (x.log().isnan(), x.argmax(), (x > 0).sum()), (T([1.0, -1]),)),
        "no elements": (lambda x: (x.log(), x.log().sum(), x[:, 0] / 0), (torch.ones(0, 3),)),
        "float8": (lambda x: x.float() * 2, (nan_and(1, 2).to(torch.float8_e4m3fn),)),
        "complex": (lambda x: x * 2, (torch.complex(nan_and(1, 2), torch.ones(4)),)),
    }
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_by(fn: Callable[..., Any], device: str, wrapper: str = "python", **more: bool) -> Callable[..., Any]:
    """The function, compiled for a device, whose target follows from the device or is the interpreter."""
    target = "interpret" if getattr(device, "id", "") == "interpret" else ""
    options: Any = {"nan_asserts": True, "verify": True, "target": target, "wrapper": wrapper, **more}
    return torch.compile(fn, backend="minductor", options=options)


def sampled(cases: Iterable[str], sample: Sequence[str] = SAMPLE) -> list[Any]:
    """Names of cases as parameters: `make test` runs those of the sample."""
    return [pytest.param(name, marks=() if name in sample else pytest.mark.long) for name in cases]


def on(device: str, given: tuple[Tensor, ...]) -> list[Tensor]:
    return [tensor.to(device, copy=True) for tensor in given]


def check_reported(name: str, device: str, wrapper: str) -> None:
    """Each call reports the same, although it may be given the memory that the call before it has left."""
    fn, given, said = REPORTED[name]
    run = compiled_by(fn, device, wrapper)
    finite = [torch.ones_like(tensor) for tensor in on(device, given)]
    run(*finite)
    for _ in range(2):
        with pytest.raises(NonFiniteResult, match=".*".join(map(re.escape, f"kernel .* stores {said}".split(".*")))):
            run(*on(device, given))


def check_passed(name: str, device: str, wrapper: str) -> None:
    fn, given = PASSED[name]
    compiled_by(fn, device, wrapper)(*on(device, given))


@pytest.mark.parametrize("name", REPORTED)
def test_what_a_kernel_makes_is_reported(name: str) -> None:
    check_reported(name, "cpu", "python")


@gpus
@pytest.mark.parametrize("name", sampled(REPORTED))
def test_what_a_kernel_of_a_gpu_makes_is_reported(name: str, device: Device) -> None:
    check_reported(name, device, "python")


@pytest.mark.parametrize("name", sampled(REPORTED, IN_CPP))
def test_a_wrapper_in_cpp_reports_the_same(name: str) -> None:
    check_reported(name, "cpu", "cpp")


@pytest.mark.parametrize("name", ["log", "in place", "mask", "scatter"])
def test_a_graph_of_fx_reports_the_same(name: str) -> None:
    check_reported(name, "cpu", "fx")


@gpus
@pytest.mark.parametrize("name", ["log", "in place"])
def test_a_graph_of_fx_with_triton_reports_the_same(name: str, device: Device) -> None:
    check_reported(name, device, "fx")


@gpus
def test_a_float8_may_overflow(device: Device) -> None:
    run = compiled_by(lambda x: (x * 2).to(torch.float8_e5m2), device)
    run(torch.ones(2, device=device))
    with pytest.raises(NonFiniteResult, match=r"stores infinity in 1 of the 2 .*float8_e5m2"):
        run(torch.tensor([1.0, 5e4], device=device))


@pytest.mark.parametrize("name", PASSED)
def test_what_a_kernel_reads_may_be_passed_on(name: str) -> None:
    check_passed(name, "cpu", "python")


@gpus
@pytest.mark.parametrize("name", sampled(PASSED))
def test_what_a_kernel_of_a_gpu_reads_may_be_passed_on(name: str, device: Device) -> None:
    check_passed(name, device, "python")


@pytest.mark.parametrize("name", sampled(PASSED, IN_CPP))
def test_a_wrapper_in_cpp_passes_the_same(name: str) -> None:
    check_passed(name, "cpu", "cpp")


@pytest.mark.parametrize("name", ["NaN of an input", "a mask", "a slice of NaN", "running maxima"])
def test_a_graph_of_fx_passes_the_same(name: str) -> None:
    check_passed(name, "cpu", "fx")


# --- what the error says


def root_of_log(x: Tensor) -> Tensor:
    y = x.log()  # the second line of the function
    return (y + 2).sqrt()


def line_of(fn: Callable[..., Any], number: int) -> str:
    return f"{__file__}:{fn.__code__.co_firstlineno + number - 1}"


@everywhere
@pytest.mark.parametrize("wrapper", ["python", "fx"])
def test_the_error_names_kernel_and_lines(device: Device, wrapper: str) -> None:
    check_error(device, wrapper)


def test_the_error_of_a_wrapper_in_cpp_names_kernel_and_lines() -> None:
    check_error("cpu", "cpp")


def check_error(device: str, wrapper: str) -> None:
    run = compiled_by(root_of_log, device, wrapper)
    with pytest.raises(NonFiniteResult) as caught:
        run(torch.tensor([1.0, -1.0], device=device))
    assert re.fullmatch(
        r"\[MD050\] kernel fused_log_add_sqrt_0 stores NaN in 1 of the 2 elements of buf\d+, the first at \[1\]; "
        rf"buf\d+ is float32 of size \(2,\) \(at {line_of(root_of_log, 2)}, {line_of(root_of_log, 3)}\)\n"
        r"  why: .*\n  hint: .*'fuse': False.*",
        str(caught.value),
    )


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_smaller_kernel_names_fewer_lines(wrapper: str) -> None:
    run = compiled_by(root_of_log, "cpu", wrapper, fuse=False)
    with pytest.raises(NonFiniteResult, match=re.escape(f"(at {line_of(root_of_log, 2)})")):
        run(T([1.0, -1.0]))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_backward_names_the_line_of_the_forward(wrapper: str) -> None:
    def root(x: Tensor) -> Tensor:
        return x.sqrt()

    x = T([4.0, 0.0], requires_grad=True)
    y = compiled_by(root, "cpu", wrapper)(x).sum()
    with pytest.raises(NonFiniteResult, match=rf"stores infinity in 1 of .* \(at {line_of(root, 2)}\)"):
        y.backward()


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_dynamic_size_is_that_of_the_call(wrapper: str) -> None:
    run = compiled_by(torch.log, "cpu", wrapper)
    for size in (5, 7):
        x = torch.ones(size, 2)
        torch._dynamo.mark_dynamic(x, 0)
        run(x)
        x[-1, 1] = -1
        with pytest.raises(NonFiniteResult, match=rf"\[{size - 1}, 1\]; .* of size \({size}, 2\)"):
            run(x)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_number_that_is_read_may_be_passed_on(wrapper: str) -> None:
    """It is no tensor for the kernel: the wrapper reads it. One that only overflows in the result's dtype is none."""
    run = compiled_by(lambda x, n: torch.add(x, x, alpha=n.item()), "cpu", wrapper)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run(torch.ones(2), torch.tensor(-INF, dtype=torch.float64))
        with pytest.raises(NonFiniteResult, match="stores infinity"):
            run(torch.ones(2), torch.tensor(1e300, dtype=torch.float64))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_branch_names_its_line(wrapper: str) -> None:
    def logarithm(x: Tensor) -> Tensor:
        return x.log()

    def fn(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, logarithm, torch.sin, (x,)) + 1

    run = compiled_by(fn, "cpu", wrapper)
    run(T([-1.0, -2.0]))
    with pytest.raises(NonFiniteResult, match=rf"stores NaN in 1 of .* \(at {line_of(logarithm, 2)}\)"):
        run(T([3.0, -2.0]))


# --- what is tested


def told(fn: Callable[..., Any], *given: Tensor, folder: Path, **options: str | bool) -> Compiled:
    """Runs a function whose results are finite; what was compiled."""
    seen: list[Compiled] = []
    backend = Compiler(store=Store(folder), observer=seen.append)
    chosen: Any = {"verify": True, **options}
    torch.compile(fn, backend=backend, options=chosen)(*given)
    return seen[0]


def test_the_texts_show_what_is_tested(tmp_path: Path) -> None:
    def fn(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
        return x.add_(y.masked_fill(i > 3, -INF).exp())

    given = (torch.ones(3), torch.ones(3), T([1, 2, 3]))
    python, cpp = (
        told(fn, *given, folder=tmp_path, nan_asserts=True, wrapper=wrapper).sources for wrapper in ("python", "cpp")
    )
    call = r"fused_\w+_0"
    read = r"\[arg0_1, arg1_1, float\('-inf'\)\]"
    assert re.search(
        rf"    with nan_asserts.Watch\('{call}', {{'arg0_1': arg0_1}}, {read}, places\[0\]\):\n"
        rf"        # 1: .*\n        {call}\(",
        python["wrapper.py"],
    )
    assert re.search(
        rf'  {{\n    const md_Stored md_results\[\] = {{{{"arg0_1", arg0_1, true}}}};\n    // 1: .*\n    {call}\(.*;\n'
        rf'    MD_TRY\(md_finite\(md, "{call}", md_results, {{&arg1_1}}, {{-MD_INF}}, ".*"\)\);\n  }}',
        cpp["wrapper.cpp"],
    )


def test_integers_and_operators_are_not_tested(tmp_path: Path) -> None:
    texts = told(lambda x: (x > 0, torch.sort(x)), torch.ones(3), folder=tmp_path, nan_asserts=True).sources
    assert "Watch" not in texts["wrapper.py"] and "zero_" not in texts["wrapper.py"]


@pytest.mark.parametrize("is_read", [True, False])
def test_a_tensor_that_is_overwritten_is_read_first(is_read: bool) -> None:
    """Its NaN may then go to other elements; in a tensor that is only written, it is what the kernel left as it was."""
    x = T([NAN, 1.0])
    watch = nan_asserts.Watch("k", {"x": x}, [x] if is_read else [])
    watch.check()
    x[1] = NAN
    if is_read:
        watch.check()
    else:
        with pytest.raises(NonFiniteResult, match=r"NaN in 1 of the 2 elements of x, the first at \[1\]"):
            watch.check()


def test_what_new_memory_holds_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN of an earlier call lies where the kernel stores its own."""
    monkeypatch.setattr(launch, "empty_strided", lambda size, stride, dtype: torch.full(size, NAN, dtype=dtype))
    with pytest.raises(NonFiniteResult, match="stores NaN in 1 of the 2 elements"):
        compiled_by(torch.log, "cpu")(T([1.0, -1]))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_each_wrapper_fills_new_memory_with_zeros(wrapper: str, tmp_path: Path) -> None:
    (text,) = (
        text
        for name, text in told(
            torch.log, torch.ones(2), folder=tmp_path, nan_asserts=True, wrapper=wrapper
        ).sources.items()
        if name.startswith("wrapper.")
    )
    assert re.search(r"\.zero_\(\)\n|md_zero\(buf\d+\);|aten\.zero_\.default", text)


def test_memory_that_is_taken_over_begins_with_zeros(tmp_path: Path) -> None:
    """A NaN of the old tensor could lie where the new one has its own. A result in place of an operand is kept."""

    def fn(x: Tensor) -> Tensor:
        return torch.relu(torch.sqrt(x) @ x) @ x + 1

    text = told(fn, torch.ones(4, 4), folder=tmp_path, nan_asserts=True).sources["wrapper.py"]
    over = re.findall(r"    (buf\d+) = (buf\d+)\n    del \2\n(    \1\.zero_\(\)\n)?", text)
    assert sorted(zero != "" for _, _, zero in over) == [False, False, True]


@gpus
def test_each_variant_of_a_kernel_is_tested(device: Device) -> None:
    """Of the two ways one is a product by the library and a kernel behind it."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y).log()

    run = compiled_by(fn, device, autotune=True)
    x = torch.ones(32, 32, device=device)
    run(x, x)
    x[3] = -1
    for _ in range(2):
        with pytest.raises(NonFiniteResult, match=rf"stores NaN in 32 of .*{line_of(fn, 2)}"):
            run(x, x.abs())


# --- graphs for other hosts


def test_dead_code_elimination_keeps_the_tests() -> None:
    graph: Any = minductor.to_fx(torch.log, torch.ones(2), options={"nan_asserts": True})
    graph.graph.eliminate_dead_code()
    graph.recompile()
    with pytest.raises(NonFiniteResult, match="stores NaN"):
        graph(T([1.0, -1]))


@pytest.mark.parametrize("wrapper", ["cpp", "python"])
def test_an_exported_program_tests_too(wrapper: str, tmp_path: Path) -> None:
    options = {"nan_asserts": True, "wrapper": wrapper}
    minductor.export(torch.log, (torch.ones(2),), tmp_path / "log.zip", options=options)
    run = minductor.load(tmp_path / "log.zip")
    assert torch.equal(run(torch.ones(2)), torch.zeros(2))
    with pytest.raises(NonFiniteResult, match=r"kernel log_0 stores NaN in 1 of the 2 elements"):
        run(T([1.0, -1]))
