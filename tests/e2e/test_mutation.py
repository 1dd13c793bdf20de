"""What compiled functions do to tensors that others hold: inputs written in place, outputs that share memory.

Each function runs in eager and compiled on equal inputs (made anew, overlaps and all). Equal afterwards: outputs,
inputs, dtypes, strides, and which tensors share memory. With `grad` also the gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from minductor.driver import Compiler


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def named(outs: Any, inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    found = {f"out{n}": t for n, t in enumerate(pytree.tree_leaves(outs)) if isinstance(t, torch.Tensor)}
    return found | {f"in{n}": t for n, t in enumerate(inputs) if isinstance(t, torch.Tensor)}


def sharing(tensors: Mapping[str, torch.Tensor]) -> set[tuple[str, str]]:
    return {
        (a, b)
        for (a, s), (b, t) in combinations(tensors.items(), 2)
        if s.numel() and s.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
    }


def agree(fn: Callable[..., Any], make: Callable[[], Sequence[Any]], *, calls: int = 2, **options: Any) -> None:
    """Two calls, since the first is special for many a cache; then all is compared."""
    compiled = torch.compile(fn, backend=Compiler(), fullgraph=True, **options)
    for _ in range(calls):
        theirs, ours = make(), make()
        expected = fn(*theirs)
        got = compiled(*ours)
        assert pytree.tree_structure(got) == pytree.tree_structure(expected)
        a, b = named(got, ours), named(expected, theirs)
        assert sharing(a) == sharing(b)
        for name, tensor in b.items():
            assert (a[name].dtype, a[name].shape) == (tensor.dtype, tensor.shape), name
            assert a[name].stride() == tensor.stride(), name
            assert a[name].requires_grad == tensor.requires_grad, name
            torch.testing.assert_close(a[name], tensor, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")
        others = zip(pytree.tree_leaves(got), pytree.tree_leaves(expected), strict=True)
        assert all(x == y for x, y in others if not isinstance(y, torch.Tensor))


def rand(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).float().mul(0.37).sin()


def add_in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def copy_into(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.copy_(y)
    return x + y


def slice_in_place(x: torch.Tensor) -> torch.Tensor:
    x[:, 2:4] += 1
    return x.sum(1)


def swap(x: torch.Tensor, y: torch.Tensor) -> None:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def shift(x: torch.Tensor) -> None:
    x[1:] = x[:-1].clone()


def shift_overlapping(x: torch.Tensor) -> None:
    x[1:].copy_(x[:-1] * 2)


def transposed_into_itself(x: torch.Tensor) -> torch.Tensor:
    x.copy_(x.t().clone())
    return x


def read_before_and_after(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    before = x.sin()
    x.mul_(2)
    return before, x.sin()


def write_twice(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    y = x * 3
    x[0].zero_()
    return y + x


def write_through_view(x: torch.Tensor) -> torch.Tensor:
    x.t()[1].fill_(5)
    x.view(-1)[::3].neg_()
    return x.cos()


def write_what_is_returned(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    z = y[1:]
    z.mul_(3)
    return y, z


def scatter_in_place(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.scatter_add_(0, i, torch.ones(i.shape))
    x.index_fill_(1, torch.tensor([1]), 7.0)
    return x * 1


def masked_in_place(x: torch.Tensor) -> torch.Tensor:
    x.masked_fill_(x > 0, 0.5)
    x[x < -0.5] = 2
    return x + 0


def mutate_and_return_input(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(3)


def counter(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    steps += 1
    return x * steps


def narrow_dtype(x: torch.Tensor) -> torch.Tensor:
    x.mul_(0.5)
    return x.float()


def overwrite_beside_a_sum(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    ones = torch.ones_like(x)
    return torch.addcmul(ones.expand(2, *x.shape).sum(0), ones, x, value=2)


def overwrite_what_was_used(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    place = x.argmax(-1)
    used = torch.fmod(place, 3)
    place.tensor_split(2)[0][::2].abs_()
    return used, place.square()


MUTATIONS: dict[str, tuple[Callable[..., Any], Callable[[], Sequence[Any]]]] = {
    "add": (add_in_place, lambda: [rand(5, 6)]),
    "add_transposed": (add_in_place, lambda: [rand(5, 6).t()]),
    "add_slice_of_larger": (add_in_place, lambda: [rand(9, 12)[2:7, ::2]]),
    "add_empty": (add_in_place, lambda: [rand(0, 6)]),
    "add_scalar": (add_in_place, lambda: [rand()]),
    "add_far_strides": (add_in_place, lambda: [rand(4000).as_strided((3, 4), (1000, 300))]),
    "copy": (copy_into, lambda: [rand(5, 6), rand(6)]),
    "copy_other_dtype": (copy_into, lambda: [rand(5, 6).bfloat16(), rand(5, 6)]),
    "copy_to_integers": (copy_into, lambda: [torch.zeros(5, 6, dtype=torch.int32), rand(5, 6) * 9]),
    "slice": (slice_in_place, lambda: [rand(5, 6)]),
    "swap": (swap, lambda: [rand(7, 6), rand(7, 6) + 1]),
    "shift": (shift, lambda: [rand(7, 6)]),
    "shift_overlapping": (shift_overlapping, lambda: [rand(7, 6)]),
    "transposed": (transposed_into_itself, lambda: [rand(6, 6)]),
    "before_and_after": (read_before_and_after, lambda: [rand(5, 6)]),
    "twice": (write_twice, lambda: [rand(5, 6)]),
    "through_view": (write_through_view, lambda: [rand(5, 6)]),
    "returned": (write_what_is_returned, lambda: [rand(5, 6)]),
    "scatter": (scatter_in_place, lambda: [rand(5, 6), torch.tensor([[0, 1, 1, 4, 0, 2]])]),
    "masked": (masked_in_place, lambda: [rand(5, 6)]),
    "input": (mutate_and_return_input, lambda: [rand(5, 6)]),
    "counter": (counter, lambda: [rand(5, 6), torch.tensor(3)]),
    "beside_a_sum": (overwrite_beside_a_sum, lambda: [rand(8, 2)]),
    "used_before": (overwrite_what_was_used, lambda: [torch.arange(8.0)[None]]),
    "bfloat16": (narrow_dtype, lambda: [rand(5, 6).bfloat16()]),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutated_inputs(name: str) -> None:
    fn, make = MUTATIONS[name]
    agree(fn, make)


def halves(size: int = 12) -> list[torch.Tensor]:
    x = rand(size)
    return [x[: size // 2], x[size // 2 :]]


def overlapping() -> list[torch.Tensor]:
    x = rand(12)
    return [x[:8], x[4:]]


def twice_the_same() -> list[torch.Tensor]:
    x = rand(5, 6)
    return [x, x]


def with_its_view() -> list[torch.Tensor]:
    x = rand(5, 6)
    return [x, x.view(-1)]


def write_first_read_second(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x.mul_(2)
    return y + 1, x.sum() + y.sum()


@pytest.mark.parametrize("make", [halves, overlapping, twice_the_same, with_its_view])
def test_inputs_that_share_storage(make: Callable[[], Sequence[Any]]) -> None:
    agree(write_first_read_second, make)


OUTPUTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "input": lambda x: (x, x + 1),
    "view_of_input": lambda x: (x.t(), x[1:], x * 2),
    "views_of_one_another": lambda x: (y := x.sin(), y.t(), y[2:]),
    "same_twice": lambda x: (y := x.exp(), y),
    "none": lambda x: (None, x + 1, None),
    "numbers": lambda x: (x.sin(), 3, x.shape[0], 2.5, True),
    "nested": lambda x: {"a": [x + 1, (x * 2,)], "b": x.t()},
    "nothing_computed": lambda x: x,
    "expanded": lambda x: x.sum(0).expand(4, 6),
    "constant": lambda x: (torch.ones(3), torch.tensor([1, 2]), x + 1),
    "detached": lambda x: x.sin().detach(),
    "empty": lambda x: (x[:0] + 1, x.new_zeros(0, 3), x[:, :0].sum(1)),
    "scalar": lambda x: (x.sum(), x[0, 0], x[1, 1] + 1),
    "broadcast_view": lambda x: (x[:1].expand(5, 6) + 0, x[:1].expand(5, 6)),
    "real_of_complex": lambda x: torch.view_as_real(torch.complex(x, x * 2)),
    "bits": lambda x: (x.view(torch.int32), x.view(torch.int32) & 255),
    "channels_last": lambda x: x.view(1, 5, 2, 3).contiguous(memory_format=torch.channels_last) * 2,
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name: str) -> None:
    with torch.no_grad():
        agree(OUTPUTS[name], lambda: [rand(5, 6)])


def test_expanded_input() -> None:
    agree(lambda x: (x + 1, x.sum(0)), lambda: [rand(1, 6).expand(5, 6)])


def test_python_numbers() -> None:
    agree(lambda x, n, s, flag: x * n + s if flag else x, lambda: [rand(5, 6), 3, 0.25, True])


# --- training -----------------------------------------------------------------------------------------------------


def grads(fn: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    leaves = [t for t in inputs if t.requires_grad]
    outs = [t for t in pytree.tree_leaves(fn(*inputs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    found = torch.autograd.grad(outs, leaves, [torch.cos(t.detach()) for t in outs], allow_unused=True)
    shared = [[s.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for s in outs] for t in outs]
    return [*(t.detach() for t in outs), *found, torch.tensor(shared)]


TRAINED: dict[str, Callable[..., Any]] = {
    "views": lambda x, y: (x.t()[1:] * y.t()[1:], x[:, ::2].sum()),
    "write_temporary": lambda x, y: (x * 2).add_(y).relu_() * x,
    "slice_write": lambda x, y: torch.zeros(5, 6).index_put_((torch.arange(5),), x).mul(y),
    "one_unused": lambda x, y: x.sin(),
    "one_detached": lambda x, y: x * y.detach() + y.detach().sin(),
    "shared_output": lambda x, y: (z := x * y, z, z[1:]),
    "clone_then_write": lambda x, y: (z := x.clone(), z[1:].mul_(y[1:]))[0].cos(),
    "no_grad_inside": lambda x, y: x * torch.no_grad()(lambda: y.exp())(),
    "softmax_of_view": lambda x, y: F.softmax(x.t() @ y, -1),
    "input_returned": lambda x, y: (x, x * y),
    "equal_outputs": lambda x, y: (x.sin(), x.sin()[1:], x.sin().clone(), (x * y).clone(), (x * y).clone()),
}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name: str) -> None:
    fn = TRAINED[name]
    inputs = [rand(5, 6).requires_grad_(), rand(5, 6).mul(2).requires_grad_()]
    compiled = torch.compile(fn, backend=Compiler(), fullgraph=True)
    for _ in range(2):
        for ours, theirs in zip(grads(compiled, inputs), grads(fn, inputs), strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                torch.testing.assert_close(ours, theirs)
                assert ours.stride() == theirs.stride()


def test_buffers_of_batch_norm() -> None:
    theirs, ours = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    compiled = torch.compile(ours, backend=Compiler())
    for step in range(3):
        x = rand(4, 3, 5, 5) * (step + 1)
        theirs(x).square().sum().backward()
        compiled(x).square().sum().backward()
    for name, tensor in [*theirs.named_buffers(), *((n, p.grad) for n, p in theirs.named_parameters())]:
        found = dict(ours.named_buffers()) | {n: p.grad for n, p in ours.named_parameters()}
        torch.testing.assert_close(found[name], tensor, msg=lambda text, name=name: f"{name}: {text}")
    theirs.eval(), ours.eval()
    torch.testing.assert_close(compiled(rand(4, 3, 5, 5)), theirs(rand(4, 3, 5, 5)))


def test_mutated_leaf_in_no_grad() -> None:
    weight = [rand(5, 6).requires_grad_(), rand(5, 6).requires_grad_()]

    def step(w: torch.Tensor, g: torch.Tensor) -> None:
        with torch.no_grad():
            w.sub_(0.1 * g)

    step(weight[0], rand(5, 6))
    torch.compile(step, backend=Compiler())(weight[1], rand(5, 6))
    torch.testing.assert_close(weight[0], weight[1])
    assert weight[1].requires_grad and weight[1].is_leaf


def test_retained_graph_gives_the_same_again() -> None:
    x = rand(5, 6).requires_grad_()
    out = torch.compile(lambda x: (x.sin() * x.exp()).sum(), backend=Compiler())(x)
    first = torch.autograd.grad(out, x, retain_graph=True)[0].clone()
    second = torch.autograd.grad(out, x)[0]
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out, x)


def test_double_backward_is_refused_clearly() -> None:
    x = rand(5, 6).requires_grad_()
    out = torch.compile(lambda x: x.sin().pow(3).sum(), backend=Compiler())(x)
    (slope,) = torch.autograd.grad(out, x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        slope.sum().backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes(mode: Callable[[], Any]) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        y[0].add_(1)
        return y, y.t().softmax(-1)

    compiled = torch.compile(fn, backend=Compiler(), fullgraph=True)
    with mode():
        for ours, theirs in zip(compiled(rand(5, 6)), fn(rand(5, 6)), strict=True):
            torch.testing.assert_close(ours, theirs)
            assert ours.is_inference() == theirs.is_inference()


def test_autocast() -> None:
    w = rand(6, 8).requires_grad_()

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.relu(x @ w), (8,)).sum(0)

    compiled = torch.compile(fn, backend=Compiler(), fullgraph=True)
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for call in (compiled, fn):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = call(rand(5, 6))
        found.append((out, torch.autograd.grad(out.sum(), w)[0]))
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def test_a_tensor_that_holds_negatives_is_read_as_what_it_means() -> None:
    negated = torch.randn(5, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    agree(lambda x: x + 1, lambda: [negated])
