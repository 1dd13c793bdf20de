"""Operators that the user registers: plain, writing, returning nothing, lists and tuples, lying; equal to eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch._higher_order_ops.effects import _EffectType

from minductor.core.errors import LyingSchema
from minductor.driver import Compiled, Compiler

LIBRARY = torch.library.Library("minductor_tests", "DEF")
CALLS: list[str] = []


@torch.library.custom_op("minductor_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


twice.register_autograd(lambda ctx, grad: grad * 2)


@torch.library.custom_op("minductor_tests::accumulate", mutates_args=("into",))
def accumulate(x: torch.Tensor, into: torch.Tensor) -> None:
    into.add_(x)


@torch.library.custom_op("minductor_tests::pop", mutates_args=("stack",))
def pop(stack: torch.Tensor, count: int) -> torch.Tensor:
    head = stack[:count].clone()
    stack.neg_()
    return head


@pop.register_fake
def _(stack: torch.Tensor, count: int) -> torch.Tensor:
    return torch.empty_like(stack[:count])


@torch.library.custom_op("minductor_tests::both", mutates_args=("xs", "maybe"))
def both(xs: list[torch.Tensor], maybe: torch.Tensor | None) -> torch.Tensor:
    for x in xs:
        x.mul_(3)
    if maybe is not None:
        maybe.zero_()
    return xs[0].sum()


@both.register_fake
def _(xs: list[torch.Tensor], maybe: torch.Tensor | None) -> torch.Tensor:
    return xs[0].new_empty(())


@torch.library.custom_op("minductor_tests::parts", mutates_args=())
def parts(xs: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return xs[0].sum(), [x + 1 for x in xs]


@parts.register_fake
def _(xs: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return xs[0].new_empty(()), [torch.empty_like(x) for x in xs]


@torch.library.custom_op("minductor_tests::note", mutates_args=())
def note(x: torch.Tensor, name: str) -> None:
    CALLS.append(f"{name} {x.sum().item():.0f}")


@note.register_fake
def _(x: torch.Tensor, name: str) -> None:
    return None


note.register_effect(_EffectType.ORDERED)


@torch.library.custom_op("minductor_tests::transposed", mutates_args=())
def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().clone(memory_format=torch.contiguous_format).t()  # the fake one gives a contiguous tensor


@transposed.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


def _keep(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    ctx.save_for_backward(output)


def _times_kept(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    (kept,) = ctx.saved_tensors
    return transposed(grad) * kept


transposed.register_autograd(_times_kept, setup_context=_keep)


def lying(name: str, schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """An operator of the old kind, which torch does not check."""
    LIBRARY.define(f"{name}{schema}")
    LIBRARY.impl(name, real, "CPU")
    torch.library.register_fake(f"minductor_tests::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.minductor_tests, name)


itself = lying("itself", "(Tensor x) -> Tensor", lambda x: x, torch.empty_like)
longer = lying("longer", "(Tensor x) -> Tensor", lambda x: torch.cat([x, x]), torch.empty_like)
other_dtype = lying("other_dtype", "(Tensor x) -> Tensor", lambda x: x.double(), torch.empty_like)
sparse = lying("sparse", "(Tensor x) -> Tensor", lambda x: x.to_sparse(), torch.empty_like)


def clones(args: tuple[Any, ...]) -> list[Any]:
    return [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]


def same(fn: Callable[..., Any], *args: Any, dynamic: bool = False) -> list[Compiled]:
    """Results, changed arguments and gradients are eager's; nothing runs in eager as a whole."""
    torch._dynamo.reset()
    seen: list[Compiled] = []
    mine, theirs = clones(args), clones(args)
    expected = fn(*theirs)
    compiler = Compiler(observer=seen.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torch.compile(fn, backend=compiler, dynamic=dynamic, fullgraph=True, options={"verify": True})(*mine)
    torch.testing.assert_close(found, expected, check_stride=True)
    torch.testing.assert_close(mine, theirs)
    if isinstance(expected, torch.Tensor) and expected.requires_grad:
        expected.sum().backward()
        found.sum().backward()
        torch.testing.assert_close([a.grad for a in mine], [a.grad for a in theirs])
    return seen


@pytest.mark.parametrize("dynamic", [False, True])
def test_pure_operator_and_its_gradient(dynamic: bool) -> None:
    same(lambda x: twice(x.sin()).cos(), torch.randn(4, 5, requires_grad=True), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
def test_writing_operator_on_a_temporary_copies_nothing(dynamic: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        total = x * 2
        accumulate(x, total)
        accumulate(x[0], total[1])
        return total + 1

    (seen,) = same(fn, torch.randn(4, 5), dynamic=dynamic)
    assert seen.report.kernels == 2  # 2x, and +1


def test_writing_operator_on_an_input_copies_nothing() -> None:
    def fn(x: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        accumulate(x, into)
        return into * 2

    (seen,) = same(fn, torch.randn(4, 5), torch.randn(4, 5))
    assert seen.report.kernels == 1
    assert "minductor_tests_accumulate(x=arg0_1, into=arg1_1)" in seen.sources["wrapper.py"]


def test_an_old_value_that_is_still_wanted_is_kept() -> None:
    def after(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        old = x.exp()
        new = old.clone()
        accumulate(x, new)
        return old, new

    def itself_too(x: torch.Tensor) -> torch.Tensor:
        total = x.exp()
        accumulate(total, total)
        return total

    def of_an_input(x: torch.Tensor) -> torch.Tensor:
        copy = x.clone()
        accumulate(x, copy)
        return copy

    def view_lives_on(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x.exp()
        row = total[0]
        accumulate(x, total)
        return total * 2, row * 3

    for fn in (after, itself_too, of_an_input, view_lives_on):
        same(fn, torch.randn(4, 5))


def test_input_is_changed_and_its_new_value_returned_apart() -> None:
    def fn(x: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        accumulate(x, into)
        return into.clone()

    torch._dynamo.reset()
    x, into = torch.randn(3), torch.randn(3)
    made = torch.compile(fn, backend=Compiler())(x, into)
    into.zero_()
    assert made.abs().sum() > 0


@pytest.mark.parametrize("dynamic", [False, True])
def test_operator_that_writes_and_gives(dynamic: bool) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        stack = x + 1
        head = pop(stack[1:], 2)
        return head * 2, stack

    same(fn, torch.randn(6, 3), dynamic=dynamic)


def test_nothing_is_donated_beside_tokens_of_effects() -> None:
    """Among them torch counts what the backward may overwrite from another place: it would name the caller's `y`."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.linalg.inv(x), torch.special.ndtri(y), (y * 2).exp().sum()

    given = torch.eye(3) * 4, torch.rand(4)
    ours, theirs = ([t.clone().requires_grad_() for t in given] for _ in range(2))
    for call, inputs in ((torch.compile(fn, backend=Compiler()), ours), (fn, theirs)):
        sum(t.sum() for t in call(*inputs)).backward()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close([t.grad for t in ours], [t.grad for t in theirs])


@pytest.mark.parametrize("given", [True, False])
def test_lists_and_optional_tensors(given: bool) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.exp(), y * 2
        total = both([a, b], y if given else None)
        other, (c, d) = parts([a, b])
        return total, other, c + a, d - b

    same(fn, torch.randn(3), torch.randn(3))


def test_operator_that_returns_nothing_runs_in_its_place() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        note(x, "first")
        y = x + 1
        note(y, "second")
        return y * 2

    torch._dynamo.reset()
    CALLS.clear()
    torch.compile(fn, backend=Compiler())(torch.ones(3))
    assert CALLS == ["first 3", "second 6"]


def test_a_result_of_other_strides_than_promised_is_laid_out_anew() -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 5)
    torch.testing.assert_close(torch.compile(lambda x: transposed(x) + x, backend=Compiler())(x), x + x)


# what reads a result by the strides that the fake operator promised, and what gives it to the user
USES: dict[str, Callable[[torch.Tensor], Any]] = {
    "whole": transposed,
    "called again": lambda x: transposed(transposed(x)),
    "a view": lambda x: transposed(x)[1:, ::2],
    "both": lambda x: (lambda y: (y, y.t()))(transposed(x)),
    "a kernel and the user": lambda x: (lambda y: (y, y.sin()))(transposed(x)),
    "a view for a call": lambda x: transposed(transposed(x).t()),
}


@pytest.mark.parametrize("name", USES)
def test_where_strides_are_not_as_promised_values_are_right(name: str) -> None:
    fn, x = USES[name], torch.randn(6, 4)
    torch._dynamo.reset()
    found = torch.compile(fn, backend=Compiler())(x)
    torch.testing.assert_close(found, fn(x))
    if name in ("whole", "called again"):
        assert found.stride() == fn(x).stride() == (1, 6)
    gradients: list[torch.Tensor] = []
    for called in (fn, torch.compile(fn, backend=Compiler())):
        leaf = x.clone().requires_grad_()
        result = called(leaf)
        first = result[0] if isinstance(result, tuple) else result
        first.backward(torch.arange(first.numel()).view(first.shape) / 7)
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (itself, "shares memory with an argument"),
        (other_dtype, r"it is of torch.float64"),
        (sparse, "one is of layout torch.sparse_coo"),
    ],
)
def test_operator_that_lies_is_an_error(op: Callable[..., Any], why: str) -> None:
    torch._dynamo.reset()
    with _without_torchs_own_check(), pytest.raises(LyingSchema, match=why):
        torch.compile(lambda x: op(x.exp()) * 2, backend=Compiler())(torch.randn(4))


def _without_torchs_own_check() -> AbstractContextManager[Any]:
    """Newer versions of torch look for shared memory themselves: in CI it is an error, elsewhere a warning."""
    config: Any = torch._functorch.config
    known = hasattr(config, "check_custom_op_aliasing")
    return config.patch(check_custom_op_aliasing=False) if known else nullcontext()


def test_write_through_real_numbers_of_complex_ones_never_reaches_behind_them() -> None:
    """Torch takes such a view for one of complex numbers: the graph raises, in eager as with `aot_eager`."""

    def fn(z: torch.Tensor) -> torch.Tensor:
        doubled = z * 2
        torch.ops.minductor_tests.accumulate(torch.ones(64, 2), torch.view_as_real(doubled))
        return doubled

    with pytest.warns(UserWarning, match="another dtype"), pytest.raises(RuntimeError, match="out of bounds"):
        torch.compile(fn, backend="minductor")(torch.ones(64, dtype=torch.complex64))


def test_operator_of_another_size_is_an_error() -> None:
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match=r"of size \(8,\), not \(4,\)"):
        torch.compile(lambda x: longer(x.exp()) * 2, backend=Compiler())(torch.randn(4))


def test_operator_without_a_fake_is_dynamos_error_or_runs_in_eager() -> None:
    @torch.library.custom_op("minductor_tests::bare", mutates_args=())
    def bare(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    torch._dynamo.reset()
    with pytest.raises(Exception, match="fake"):
        torch.compile(lambda x: bare(x) * 2, backend=Compiler(), fullgraph=True)(torch.ones(3))
