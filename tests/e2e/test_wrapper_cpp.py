"""Wrappers in C++: what the Python wrapper gives, bit for bit, with its strides, aliases, mutations and errors."""

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from minductor.codegen.wrapper.wrapper_cpp import wrapper_cpp
from minductor.core.errors import WrapperReplaced
from minductor.driver import Compiled, Compiler
from minductor.ir.plan.plan import Plan
from minductor.runtime.store.store import Store
from minductor.target import Env
from pytest_plugin.oracle.compiled import Compile

Make = Callable[[int], list[torch.Tensor]]


def two(rows: int) -> list[torch.Tensor]:
    return [torch.randn(rows, 16), torch.randn(rows, 16)]


def view_and_input(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.sum(), x[1:3].t(), x, (x + y, y * 2)


def mutated(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(y)
    y[1:3] = 0
    return x * 2


def sizes(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.cat([x, y]).view(-1), x.shape[0] * 2, x.new_zeros(x.shape[0] // 3)


def products(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (
        torch.addmm(x.sum(0), x, y.t() @ y),
        (x.double() @ y.t().double()),
        torch.addmm(x.long(), x.long(), y.long().t() @ y.long()),
    )


def operators(x: torch.Tensor, y: torch.Tensor) -> Any:
    parts = torch.split(torch.sort(x)[0], 5, dim=1)
    pooled = functional.max_pool2d(x[None, None], 3, stride=2, return_indices=True)
    return [part * 2 for part in parts], y.topk(3), torch.linalg.qr(y), torch.fft.fft(x).abs(), pooled, torch.histc(x)


def random(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (
        functional.dropout(x, 0.5),
        torch.rand_like(y),
        torch.randperm(5),
        torch.randint(0, 9, (3,)),
        torch.bernoulli(y.abs() / 9),
    )


def nested(x: torch.Tensor, y: torch.Tensor) -> Any:
    def yes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cond(b.sum() > 0, lambda a, b: a * b, lambda a, b: a / (b.abs() + 1), (a, b))

    return torch.cond(x.sum() > 0, yes, lambda a, b: a - b, (x, y))


def rounds(x: torch.Tensor, y: torch.Tensor) -> Any:
    def step(n: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        return n + 1, a * 0.5 + n, b - a

    none = while_loop(lambda n, a, b: n < 0, step, (torch.tensor(0), x, y))
    return none, while_loop(lambda n, a, b: n < 5, step, (torch.tensor(0), x, y))


PROGRAMS = (view_and_input, mutated, sizes, products, operators, random, nested, rounds)


def made(
    fn: Callable[..., Any], wrapper: str, seen: list[Compiled] | None = None, **options: Any
) -> Callable[..., Any]:
    torch._dynamo.reset()
    compiler = Compiler(observer=(seen if seen is not None else []).append)
    return torch.compile(fn, backend=partial(compiler, options={"wrapper": wrapper}), fullgraph=True, **options)


def run(fn: Callable[..., Any], rows: int, make: Make = two) -> list[Any]:
    torch.manual_seed(rows)
    args = make(rows)
    torch.manual_seed(1)
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves((fn(*args), args))]


def same(left: list[Any], right: list[Any]) -> Iterator[bool]:
    for a, b in zip(left, right, strict=True):
        if isinstance(a, torch.Tensor):
            yield (a.dtype, a.shape, a.stride(), a.storage_offset()) == (
                b.dtype,
                b.shape,
                b.stride(),
                b.storage_offset(),
            )
            yield torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())
        else:
            yield a == b


LONG = (products, nested)


@pytest.mark.parametrize(
    "fn", [pytest.param(fn, marks=pytest.mark.long if fn in LONG else (), id=fn.__name__) for fn in PROGRAMS]
)
def test_gives_what_the_python_wrapper_gives(fn: Callable[..., Any]) -> None:
    seen: list[Compiled] = []
    python, cpp = made(fn, "python", dynamic=True), made(fn, "cpp", seen, dynamic=True)
    for rows in (9, 12):
        assert all(same(run(cpp, rows), run(python, rows)))
    assert all("wrapper.cpp" in one.sources for one in seen) and seen


def test_an_input_that_is_returned_is_the_same_object() -> None:
    x, y = two(4)
    _, view, same_one, _ = made(view_and_input, "cpp")(x, y)
    assert same_one is x
    assert view.data_ptr() == x[1:3].data_ptr()


def test_training_goes_through_it_both_ways() -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = functional.layer_norm(functional.gelu(x @ y.t()), (9,))
        return functional.conv2d(rows[None, None], y[None, None, :2, :2], torch.ones(1)).square().sum()

    gradients = []
    for wrapper in ("python", "cpp"):
        seen: list[Compiled] = []
        torch.manual_seed(0)
        args = [t.requires_grad_() for t in two(9)]
        made(loss, wrapper, seen)(*args).backward()
        gradients.append([t.grad for t in args])
        assert [one.role for one in seen] == ["forward", "backward"]
    assert all(same(*gradients))


@pytest.mark.parametrize("index, kind", [(99, "IndexError"), (3, "")])
def test_a_kernel_that_fails_raises_eagers_error(index: int, kind: str) -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x[n] + 1

    given = torch.randn(8), torch.tensor([1, index])
    run = made(fn, "cpp")
    if not kind:
        assert torch.equal(run(*given), fn(*given))
        return
    with pytest.raises(IndexError) as ours:
        run(*given)
    with pytest.raises(IndexError) as eagers:
        fn(*given)
    assert type(ours.value) is type(eagers.value)


def test_a_number_beyond_64_bits_is_an_error() -> None:
    call = made(lambda x, k: (x + 1, k * x.shape[0] // 2), "cpp", dynamic=True)
    assert call(torch.ones(2), 10**18)[1] == 10**18
    with pytest.raises(OverflowError, match="does not fit an int64"):
        call(torch.ones(20), 10**18)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        item = made(lambda x, n: (x + n.item(), n.item()), "cpp")
        assert item(torch.ones(2), torch.tensor(2**62, dtype=torch.uint64))[1] == 2**62
        with pytest.raises(OverflowError, match="does not fit an int64"):
            item(torch.ones(2), torch.tensor(2**63, dtype=torch.uint64))


class Keeping(Compiler):
    """A Compiler that keeps the calls of its graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[list[Any]], Any]] = []

    def compile_graph(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(super().compile_graph(*args, **kwargs))
        return self.calls[-1]


def test_an_argument_of_another_kind_is_an_error() -> None:
    torch._dynamo.reset()
    compiler, x = Keeping(), torch.ones(2)
    torch.compile(lambda x, k: x + k, backend=partial(compiler, options={"wrapper": "cpp"}), dynamic=True)(x, 3)
    (call,) = compiler.calls
    assert torch.equal(call([2, x, 3])[0], x + 3)
    for wrong in ([2, x], [2, [x], 3], [2, x, "3"], [2, x, 3.5]):
        with pytest.raises(TypeError):
            call(list(wrong))
    for large in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            call([2, x, large])


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="until 2.12 AOTAutograd drops the check of a matrix's inverse")
def test_an_operator_that_fails_raises_eagers_error() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x) + 1

    run = made(fn, "cpp")
    assert torch.equal(run(torch.eye(4)), fn(torch.eye(4)))
    with pytest.raises(RuntimeError, match="is singular") as ours:
        run(torch.zeros(4, 4))
    assert type(ours.value).__name__ == "_LinAlgError"


def test_a_trace_tells_what_python_calls(capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    options = {"wrapper": "cpp", "trace": "2"}
    run = torch.compile(lambda x: (torch.histc(x), x.sort()), backend=partial(Compiler(), options=options))
    run(torch.randn(7))
    told = "".join(capsys.readouterr())
    assert "aten.histc.default is called by Python" in told and "sort.default is called" not in told


@pytest.mark.usefixtures("one_thread")
def test_nothing_is_left_behind() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        return (x.sin() @ x)[n], torch.sort(x), torch.histc(x), x.view(-1)

    def pages() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    run = made(fn, "cpp")
    x, right, wrong = torch.randn(128, 128), torch.tensor([1, 2]), torch.tensor([1, 999])  # 16 pages each
    run(x, right)
    before, references = pages(), sys.getrefcount(x)
    for _ in range(200):
        run(x, right)
        with pytest.raises(IndexError):
            run(x, wrong)
    assert pages() - before < 200 * 16
    assert sys.getrefcount(x) == references


def test_what_cpp_has_no_form_for_is_pythons_with_a_warning() -> None:
    def fn(x: torch.Tensor) -> Any:
        return scan(lambda a, b: (a + b, a * b), x[0], x)

    seen: list[Compiled] = []
    with pytest.warns(WrapperReplaced, match="higher_order.scan"):
        got = made(fn, "cpp", seen)(torch.ones(3, 2))
    assert torch.equal(got[0], torch.full((2,), 4.0))
    assert all("wrapper.py" in one.sources for one in seen)


def test_one_compile_writes_its_wrapper_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[str] = []

    def counted(plan: Plan, env: Env) -> str:
        written.append(plan.name)
        return wrapper_cpp(plan, env)

    monkeypatch.setattr("minductor.codegen.wrapper.wrapper_cpp.wrapper_cpp", counted)
    x = torch.arange(6.0)
    compiler = partial(Compiler(store=Store(tmp_path)), options={"wrapper": "cpp"})
    for _ in range(2):  # the second compile finds the first one's
        torch._dynamo.reset()
        assert torch.equal(torch.compile(lambda x: x.cumsum(0) * 3, backend=compiler)(x), x.cumsum(0) * 3)
    assert len(written) == 1


@pytest.mark.devices("cpu")
@pytest.mark.golden(view="wrapper")
def test_reads_like_the_plan(compiled: Compile) -> None:
    def fn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, rows: torch.Tensor) -> Any:
        hidden = functional.gelu(torch.addmm(bias, x, weight))
        return hidden[rows], torch.histc(hidden), torch.sort(hidden, stable=True)

    rows = torch.tensor([0, 3])
    compiled(fn, torch.randn(4, 8), torch.randn(8, 8), torch.randn(8), rows, options={"wrapper": "cpp"})
