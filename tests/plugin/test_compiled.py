"""`compiled` finds each kind of wrong result; a compiler that is right passes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pytest_plugin.adapters import Graph
from pytest_plugin.adapters.eager import Eager
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle.accuracy import WrongResult
from pytest_plugin.oracle.compiled import Compile, NoVariants
from pytest_plugin.oracle.run import Run
from tests.plugin.conftest import Run as SuiteRun

Function = Callable[..., Any]


class Replaced:
    """A compiler that gives another function than it was given."""

    name = "replaced"
    devices = ("cpu",)

    def __init__(self, wrong: Function) -> None:
        self.wrong = wrong

    def version(self) -> str:
        return "1"

    def session(self, folder: Path, device: Device) -> "Replaced":
        return self

    def compile(self, fn: Function, options: Mapping[str, object], dynamic: bool | None) -> Function:
        return self.wrong

    def capture(self) -> Sequence[Graph]:
        return ()

    def fresh_store(self, folder: Path) -> Any:
        raise AssertionError("no test asks for it")


def replaced(wrong: Function, right: Function, *args: Any, **kwargs: Any) -> Run:
    return Compile(Replaced(wrong), Path, lambda run: None)(right, *args, **kwargs)


def check(fn: Function, *args: Any, **kwargs: Any) -> Run:
    return Compile(Eager(), Path, lambda run: None)(fn, *args, **kwargs)


X = torch.arange(12.0).reshape(3, 4) / 7


class Scale(torch.autograd.Function):
    """x * 2 with the gradient of x * 3."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * 3


def add_in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


@pytest.mark.parametrize(
    ("wrong", "right", "grad", "says"),
    [
        (lambda x: x + 1.00001, lambda x: x + 1, None, "output: 12 of 12 elements are wrong"),
        (lambda x: (x + 1).double(), lambda x: x + 1, None, "output: dtype is torch.float64"),
        (lambda x: (x + 1)[None], lambda x: x + 1, None, "output: shape is"),
        (lambda x: (x + 1).t().contiguous().t(), lambda x: x + 1, None, "output: stride is"),
        (lambda x: (x + 1, x), lambda x: (x + 1, x * 1), None, "outputs share storage with .*args"),
        (lambda x: (x + 1, x * 1), lambda x: (x + 1, x), None, "outputs share storage with"),
        (lambda x: (x + 1) * 2, add_in_place, None, r"afterwards\['args\[0\]'\]: 12 of 12 elements"),
        (add_in_place, lambda x: (x + 1) * 2, None, r"afterwards\['args\[0\]'\]"),
        (Scale.apply, lambda x: x * 2, True, r"gradient\['args\[0\]'\]: 12 of 12 elements"),
        (lambda x: (x * 2).detach(), lambda x: x * 2, True, "requires_grad is False"),
        (lambda x: [x + 1], lambda x: (x + 1,), None, "the structure is"),
        (lambda x: (x + 1, 3), lambda x: (x + 1, 2), None, r"output\[1\]: 3; eager gives 2"),
    ],
)
def test_wrong(wrong: Function, right: Function, grad: bool | None, says: str) -> None:
    with pytest.raises(WrongResult, match=says):
        replaced(wrong, right, X.clone(), grad=grad)
    replaced(right, right, X.clone(), grad=grad)


def test_a_module_with_wrong_buffers() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            return x * 2

    with pytest.raises(WrongResult, match=r"afterwards\['seen'\]"):
        replaced(lambda x: x * 2, Counts(), X)
    module = Counts()
    assert check(module, X).again(X).equal(X * 2)
    assert module.seen == 0


def test_the_users_arguments_stay() -> None:
    x, module = X.clone(), nn.Linear(4, 4)
    check(lambda x, m: m(x.add_(1)), x, module, grad=False)
    assert x.equal(X) and module.weight.grad is None
    check(module, x, grad=True)
    assert module.weight.grad is None and not x.requires_grad


def test_gradients_of_arguments_and_parameters() -> None:
    run = check(nn.Linear(4, 2), X, grad=True)
    assert list(run.grads) == ["weight", "bias"]
    assert list(check(lambda x: x.sin(), X, grad=True).grads) == ["args[0]"]
    assert list(check(lambda x: x.sin(), X.clone().requires_grad_()).grads) == ["args[0]"]
    assert check(nn.Linear(4, 2), X).grads.keys() == {"weight", "bias"}
    assert all(grad is None for grad in check(nn.Linear(4, 2), X).grads.values())


def test_gradients_of_one_call_are_not_added_to_the_next() -> None:
    run = check(nn.Linear(4, 2), X, grad=True)
    run.again(torch.ones(3, 4))


def test_strides_offsets_and_shared_storage_reach_the_function() -> None:
    seen: list[tuple[Any, ...]] = []

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        shares = x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        seen.append((tuple(x.stride()), x.storage_offset(), tuple(y.stride()), shares, x.dtype))
        return x + y.sum()

    whole = torch.arange(24.0).reshape(4, 6)
    replaced(fn, fn, whole[1:, ::2], whole[0].expand(3, 6))
    assert seen[0] == ((6, 2), 6, (0, 1), True, torch.float32)
    assert [facts[:4] for facts in seen] == [seen[0][:4]] * 3
    assert [facts[4] for facts in seen] == [torch.float32, torch.float32, torch.float64]


def test_the_truth_is_not_rounded_by_casts_of_the_function() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append((x.to(torch.bfloat16).dtype, x.half().dtype, torch.zeros(1).dtype, x.to(torch.int32).dtype))
        return x

    seen: list[tuple[torch.dtype, ...]] = []
    replaced(lambda x: x, fn, X)
    assert seen[0] == (torch.bfloat16, torch.float16, torch.float32, torch.int32)
    assert seen[1] == (torch.float64, torch.float64, torch.float64, torch.int32)
    assert torch.zeros(1).dtype == torch.float32


def test_a_write_to_what_a_cast_made_leaves_the_operand_alone_in_float64_too() -> None:
    """Else eager would seem to be far off, and anything near it right."""

    def fn(x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
        x.bfloat16().mul_(2)
        x.to(torch.half).add_(1)
        return x * by

    replaced(fn, fn, X)
    with pytest.raises(WrongResult, match="11 of 12 elements"):
        replaced(lambda x: fn(x, 1.1), fn, X)
    check(lambda x: x.float().mul_(2), X)  # that is x itself, in each run


def test_random_numbers_are_the_same_in_each_run_and_the_users_stay() -> None:
    before = torch.get_rng_state()
    check(lambda x: x + torch.randint(100, (3, 4)), X)
    assert torch.equal(before, torch.get_rng_state())


def test_dynamic_shapes_compile_once_and_each_call_is_checked() -> None:
    run = check(lambda x: x.sum(0) * 2, X, dynamic=True)
    assert run.again(torch.ones(9, 4)).shape == (4,)
    assert len(run.graphs) == 1 and len(run.events) == 2
    static = check(lambda x: x.sum(0) * 2, X, dynamic=False)
    static.again(torch.ones(9, 4))
    assert len(static.graphs) == 2 and static.report.kernels == 2


def test_a_graph_break_is_an_error() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(Exception, match="graph_break"):
        check(fn, X)


def test_a_tests_own_random_numbers_are_the_same_each_time(pytester: pytest.Pytester, run: SuiteRun) -> None:
    pytester.makepyfile(
        """
        import torch

        def test_a(compiled):
            assert compiled(lambda x: x + 1, torch.randn(3)).out.sum() == compiled(lambda x: x + 1, A).out.sum()

        def test_state_stays():
            assert torch.equal(torch.get_rng_state(), STATE)

        STATE = torch.get_rng_state()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            A = torch.randn(3)
        """
    )
    run().assert_outcomes(passed=2)


class Varied(Replaced):
    """A compiler whose graphs have variants, one of which may be wrong."""

    has_variants = True

    def __init__(self, wrong: Function, variants: tuple[str, ...]) -> None:
        super().__init__(wrong)
        self.variants, self.forced, self.nonce = variants, list[object](), ""

    def compile(self, fn: Function, options: Mapping[str, object], dynamic: bool | None) -> Function:
        self.forced.append(options.get("variant"))
        return self.wrong if options.get("variant") == "bad" else fn

    def capture(self) -> Sequence[Graph]:
        return (Graph("inference", (), nonce=self.nonce, variants=self.variants),)


def test_each_variant_is_run_and_held_to_eager() -> None:
    runs: list[Run] = []
    for variants, is_right in ((("held", "looped"), True), (("held", "bad"), False)):
        compiler = Varied(lambda x: x + 2, variants)
        compiled = Compile(compiler, Path, runs.append, is_each_variant=True)
        if is_right:
            compiled(lambda x: x + 1, X)
        else:
            with pytest.raises(WrongResult, match="variant bad: output: 12 of 12 elements are wrong"):
                compiled(lambda x: x + 1, X)
        assert compiler.forced == [None, *variants]
    assert len(runs) == 2, "what a test declares is checked of the first run of a call"


def test_a_test_of_each_variant_needs_some() -> None:
    with pytest.raises(NoVariants, match="each_variant: no kernel of this call"):
        Compile(Varied(torch.neg, ()), Path, lambda run: None, is_each_variant=True)(lambda x: x + 1, X)


def test_the_marker_of_variants(pytester: pytest.Pytester, run: SuiteRun) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.each_variant
        def test_rows(compiled):
            assert compiled.is_each_variant

        def test_plain(compiled):
            assert not compiled.is_each_variant
        """
    )
    result = run()
    assert "is_each_variant" not in result.stdout.str()
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.each_variant("looped")
        def test_rows(compiled):
            pass
        """
    )
    run().stderr.fnmatch_lines("*each_variant takes no arguments*")
