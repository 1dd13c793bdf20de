"""Sizes that vary from call to call, and sizes and numbers that only the data decide.

Each function is compiled once, and called on several inputs, those with 0 and 1 elements among them. Equal to eager:
values, dtypes, sizes, strides, gradients, and the kind of error where a promise is broken. A graph that runs in eager
fails, and so does a second compile.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import config
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree as pytree

from minductor.core.errors import RanInEager, WrapperReplaced
from minductor.driver import Compiled, Compiler
from tests.opinfo import compilers

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with (
        warnings.catch_warnings(),
        config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True),
    ):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RanInEager)
        yield
    torch._dynamo.reset()


def same(got: Any, expected: Any) -> None:
    for ours, theirs in zip(pytree.tree_leaves(got), pytree.tree_leaves(expected), strict=True):
        assert type(ours) is type(theirs)
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        if isinstance(theirs, torch.Tensor) and theirs.numel() > 1:
            assert ours.stride() == theirs.stride()


def serve(fn: Function, *calls: Sequence[Any], graphs: int = 1, **options: Any) -> list[Compiled]:
    """One compile serves every call; gives what was compiled. Tensors that require grad are trained on."""
    seen: list[Compiled] = []
    compiled = torch.compile(fn, backend=Compiler(observer=seen.append), fullgraph=True, **options)
    for args in calls:
        theirs, ours = ([_copy(a) for a in args] for _ in range(2))
        expected, got = fn(*theirs), compiled(*ours)
        same(got, expected)
        for outputs in (expected, got):
            wanted = [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
            if wanted:
                sum((t * t).sum() for t in wanted).backward()
        for a, b in zip(ours, theirs, strict=True):
            if isinstance(b, torch.Tensor):
                same((a, a.grad), (b, b.grad))
    assert len(seen) == graphs, [c.role for c in seen]
    return seen


def dynamo_alone(fn: Function, *calls: Sequence[Any], **options: Any) -> int:
    """How often Dynamo compiles of itself."""
    counter = CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend=counter, fullgraph=True, **options)
    for args in calls:
        compiled(*args)
    torch._dynamo.reset()
    return counter.frame_count


def _copy(value: Any) -> Any:
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def item(value: Any) -> torch.Tensor:
    return torch.tensor(value)


X = torch.linspace(-2, 2, 30).reshape(6, 5)
ALL, ONE, NONE = torch.ones(6, dtype=torch.bool), torch.arange(6) == 2, torch.zeros(6, dtype=torch.bool)
MASKS = ((X, ALL), (X, ONE), (X, NONE))


# --- how many elements there are, the data decide --------------------------------------------------------------------


def reduced(x: torch.Tensor, mask: torch.Tensor) -> Any:
    y = x[mask]
    return y.sum(0), y.softmax(1), y.softmax(0), y.mean(), y.t() * 2, (y.flatten() + 1).exp(), y.cumsum(0)


def joined(x: torch.Tensor, mask: torch.Tensor) -> Any:
    y = x[mask]
    return torch.cat([y, y * 2, x]), torch.stack([y, y]).sum(1), y.unsqueeze(0).expand(3, -1, -1) + 1, y @ x.t()


def counted(x: torch.Tensor, mask: torch.Tensor) -> Any:
    """The number is used as a value, as a size, and in sizes that the index algebra does and does not have."""
    n = mask.nonzero().shape[0]
    sizes = torch.ones(n + 1, min(n, 3)), torch.zeros((n + 3) // 4, n % 3 + 1), torch.eye(n), torch.full((n, 2), n)
    return x * n, x.sum() / (n + 1), *sizes, torch.arange(n) // 2, F.pad(torch.ones(n), (1, 2)), n


def picked(x: torch.Tensor, mask: torch.Tensor) -> Any:
    at = mask.nonzero()[:, 0]
    rows, columns = torch.where(mask.unsqueeze(1) & (x > 0))
    return x[at] * 2, x.index_select(0, at) + 1, x[rows, columns].exp(), x.new_zeros(6, 5).index_put((at,), x[at])


def pairs(x: torch.Tensor, mask: torch.Tensor) -> Any:
    y = torch.masked_select(x, mask.unsqueeze(1))
    return (y.unsqueeze(0) * y.unsqueeze(1)).sum(0), y.sum()


@pytest.mark.parametrize("fn", [reduced, joined, counted, picked])
def test_a_masked_size(fn: Function) -> None:
    serve(fn, *MASKS)


def test_a_masked_size_is_trained_on() -> None:
    serve(pairs, *((x.clone().requires_grad_(), mask) for x, mask in MASKS), graphs=2)


def test_a_result_with_strides_of_its_own_is_read_right() -> None:
    """`nonzero` lies in columns, and is traced in rows."""
    serve(lambda x: (x.nonzero() * torch.tensor([1, 10])).sum(1), (X,), (torch.zeros(6, 5),))


def test_a_size_of_the_data_beside_one_of_zero() -> None:
    serve(lambda x: torch.bincount(x.long()) * x.exp(), (torch.zeros(0),))


def test_unique_and_repeats() -> None:
    def fn(x: torch.Tensor, times: torch.Tensor) -> Any:
        values, inverse, counts = torch.unique(times, return_inverse=True, return_counts=True)
        return values * 2, x[inverse], counts.float().softmax(0), x.repeat_interleave(times, dim=0) + 1

    serve(fn, (X, item([1, 2, 0, 1, 0, 3])), (X, item([0] * 6)), (X, item([0, 0, 1, 0, 0, 0])))


# --- numbers out of tensors -------------------------------------------------------------------------------------------


def by_number(x: torch.Tensor, number: torch.Tensor) -> Any:
    n = number.item()
    return x * n, x + n, torch.full((3,), n), torch.add(x, x, alpha=n), x.clamp(max=n), x.half() * n, x.long() * n, n


@pytest.mark.parametrize("values", [(2, -1, 2**40), (2.5, -0.0, float("nan"), float("inf"))])
def test_a_number_of_a_tensor(values: Sequence[float]) -> None:
    serve(by_number, *((X, item(v)) for v in values))


def test_a_rule_that_needs_to_know_a_number_is_not_used() -> None:
    """softplus takes its threshold apart while lowering; elu multiplies by its own."""

    def fn(x: torch.Tensor, number: torch.Tensor) -> Any:
        n = number.item()
        return (
            F.softplus(x, n),
            F.elu(x, n),
            F.leaky_relu(x, n),
            torch.addcmul(x, x, x, value=n),
            x.masked_fill(x > 0, n),
        )

    serve(fn, *((X, item(v)) for v in (2.5, 0.25)))


def test_a_number_divides_as_in_python() -> None:
    """A kernel that divides by zero would end the process."""

    def fn(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> Any:
        p, q = first.item(), second.item()
        return x + p // q, torch.full((2,), p % q), torch.full((2,), p // 3 % q)

    calls = [(X, item(p), item(q)) for p, q in ((7, 2), (-7, 2), (7, -2), (-(2**62), -1))]
    serve(fn, *calls, graphs=dynamo_alone(fn, *calls))
    compiled = torch.compile(fn, backend=Compiler(), fullgraph=True)
    same(compiled(X, item(9), item(5)), fn(X, item(9), item(5)))
    with pytest.raises(ZeroDivisionError):
        compiled(X, item(7), item(0))


def test_products_of_numbers_are_python_s() -> None:
    """No int64 holds them on the way to a small result, in kernels, in extents and in C++ wrappers."""

    def fn(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> Any:
        p, q = first.item(), second.item()
        return x * (p * q % 7), torch.full((p * p % 11 + 1,), 2.0)

    calls = [(X, item(p), item(q)) for p, q in ((10**12, 10**11 + 3), (-(10**12), 3))]
    serve(fn, *calls)
    compiled = torch.compile(fn, backend=Compiler(), fullgraph=True, options={"wrapper": "cpp"})
    with pytest.warns(WrapperReplaced, match="may not fit in an int64"):
        same(compiled(*calls[0]), fn(*calls[0]))


def test_a_truth_value_of_a_tensor() -> None:
    def fn(x: torch.Tensor, truth: torch.Tensor) -> Any:
        t = truth.item()
        return x * t, x + t, torch.full((3,), t), t

    serve(fn, (X, item(True)), (X, item(False)))


def test_a_number_that_is_used_as_a_size_only() -> None:
    """By a concatenation, a call, a view and a no-op: the number is read first, and read."""

    def fn(x: torch.Tensor, number: torch.Tensor) -> Any:
        n = number.item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[0])
        return torch.cat([x, x.new_zeros(n, 5)]), x.narrow(0, 0, n), x[:n] @ x.t(), torch.empty(n, 0)

    serve(fn, *((X, item(v)) for v in (2, 0, 1, 6)))


def test_slices_that_data_decide() -> None:
    def fn(x: torch.Tensor, number: torch.Tensor) -> Any:
        n = number.item()
        return x[n] + 1, x[n:] * 2, x[:n] + 1, x[-3:n] - 1, x[n:].sum()

    calls = [(X, item(v)) for v in (2, -1, 0, 5, -6)]
    seen = serve(fn, *calls, graphs=dynamo_alone(fn, *calls))
    assert len({c.key for c in seen}) == 1


def test_pieces_that_data_decide() -> None:
    def fn(x: torch.Tensor, sizes: torch.Tensor) -> Any:
        return [piece * 2 for piece in x.split(sizes.tolist())]

    serve(fn, *((X, item(v)) for v in ([1, 2, 3], [0, 6, 0], [6, 0, 0])))


def test_sums_of_nothing_are_zero_however_large_they_may_be() -> None:
    """In parts, in lanes, along rows and down columns."""

    def fn(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> Any:
        m, n = rows.item(), columns.item()
        torch._check(m >= 0)
        torch._check(n >= 0)
        z = torch.zeros(m, n) + x[0, 0]
        return (z + 1).sum(0), (z + 2).sum(1), z.exp().sum(), z.prod(0), (z > 0).any(0), z.softmax(-1), z.t() @ z

    pairs = ((3, 4), (0, 4), (3, 0), (0, 0), (1, 1), (70, 200))
    calls = [(X, item(m), item(n)) for m, n in pairs]
    serve(fn, *calls, graphs=dynamo_alone(fn, *calls))


def test_a_range_that_no_int64_holds_is_none() -> None:
    """Torch multiplies the largest size by 2, and promises that what is picked is no more."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        places = (x > 0).nonzero()
        return places.masked_select(places > 0)

    serve(fn, (X,), (-X,), (X.new_zeros(3, 3),), dynamic=True)


def test_no_index_is_wrong_where_there_is_nothing_to_index() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        places = torch.where(x > 1)[0]
        return places.new_zeros(places.shape).index_add(0, places.new_zeros(places.shape), places)

    serve(fn, (X.flatten(),), (-X.flatten().abs(),))


# --- promises ---------------------------------------------------------------------------------------------------------


def promised(x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    n = number.item() * 2 - 1
    torch._check(n != 5, lambda: "not five")
    return x * n


def test_a_broken_promise_has_its_message() -> None:
    compiled = torch.compile(promised, backend=Compiler(), fullgraph=True)
    same(compiled(X, item(2)), promised(X, item(2)))
    with pytest.raises(RuntimeError, match="not five"):
        compiled(X, item(3))


def test_what_no_size_is_is_refused_before_memory_is_read() -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        n = mask.sum().item()
        torch._check(n >= 0)
        torch._check(n <= 3)
        return x[:n].sum(0) + torch.ones(n, 5).sum(0)

    compiled = torch.compile(fn, backend=Compiler(), fullgraph=True)
    same(compiled(X, ONE), fn(X, ONE))
    with pytest.raises(RuntimeError):
        compiled(X, ALL)


def test_a_number_that_was_promised_to_be_known() -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> Any:
        n = mask.sum().item()
        torch._check(n == 6)
        rows = mask.nonzero()
        torch._check(rows.shape[0] == 6)
        return x + torch.ones(n, 1), rows + torch.ones(6, 1)

    compiled = torch.compile(fn, backend=Compiler(), fullgraph=True)
    same(compiled(X, ALL), fn(X, ALL))
    with pytest.raises(RuntimeError):
        compiled(X, ONE)


def test_values_whose_number_data_decides_may_be_one_for_all_places() -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.index_put((torch.tensor([0, 2, 4]),), x[mask])

    serve(fn, *((torch.randn(6), torch.arange(6) < count) for count in (3, 1)))


def test_a_view_whose_strides_data_decides() -> None:
    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x[mask][None], scale_factor=2)

    serve(fn, *((torch.randn(6, 4), torch.arange(6) < count) for count in (3, 1)))


# --- sizes that the caller gives --------------------------------------------------------------------------------------


def numbers(x: torch.Tensor, n: int, scale: float) -> Any:
    """Numbers in a graph: of sizes, of integers and floats; whole ones and broken ones."""
    rows, columns = x.shape
    return (
        x * rows**0.5 + rows / 3,
        x.new_ones(n * n, max(n, rows)),
        x * scale + scale / n,
        x.reshape(-1).sum() * columns,
    )


def test_numbers_of_sizes() -> None:
    serve(numbers, (X, 3, 1.5), (torch.randn(7, 3), 5, 2.5), (torch.randn(2, 9), 4, -0.5), dynamic=True)


def test_a_size_that_the_algebra_cannot_write() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=1.6) * 2

    serve(fn, *((torch.randn(2, 3, n),) for n in (8, 5, 12)), dynamic=True)


def test_a_size_that_a_view_is_given_is_a_number() -> None:
    """torch notes it as a quotient of the other sizes."""
    seen: list[Compiled] = []
    backend = Compiler(observer=seen.append)
    compiled = torch.compile(lambda x: x.view(-1, 8).sum(-1), backend=backend, dynamic=True)
    for side in (16, 8, 24):
        x = torch.arange(side * side).reshape(side, side)
        assert compiled(x).equal(x.view(-1, 8).sum(-1))
    assert seen and not any("int64_t d0" in text for made in seen for text in made.sources.values())


def rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Halves of a last dimension, of which one is negated, and their gate."""
    one, other = x.chunk(2, -1)
    return x * turn + torch.cat((-other, one), -1) * turn.cos() + F.glu(x, -1).sum()


def test_halves_of_a_size_that_varies() -> None:
    calls = [(torch.randn(1, 3, 5, n), torch.randn(5, n)) for n in (8, 6, 12)]
    serve(rotated, *calls, dynamic=True, options={"fallback": "error"})


def test_a_backward_reads_a_computed_size_from_a_tensor_of_that_size() -> None:
    """Then it does not compute it again."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=1.7, recompute_scale_factor=True)

    calls = [(torch.randn(2, 3, n, requires_grad=True),) for n in (8, 5, 12)]
    serve(fn, *calls, graphs=2, dynamic=True, options={"verify": True})


class Block(torch.nn.Module):
    """A layer of a transformer, which holds most of what sizes meet."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(11, 16), torch.nn.Embedding(32, 16)
        self.norm, self.mix, self.out = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 11)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.words(ids) + self.places(torch.arange(length))
        q, k, v = self.mix(self.norm(x)).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.cross_entropy(self.out(x + y.transpose(1, 2).reshape(batch, length, 16)).flatten(0, 1), ids.flatten())


def test_a_transformer_s_batch_and_length_vary() -> None:
    model = Block()
    seen: list[Compiled] = []
    compiled = torch.compile(model, backend=Compiler(observer=seen.append), fullgraph=True, dynamic=True)
    for shape in ((3, 7), (2, 12), (5, 4)):
        ids = torch.randint(11, shape)
        slopes = []
        for call in (model, compiled):
            model.zero_grad()
            loss = call(ids)
            loss.backward()
            slopes.append((loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
        torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-4, atol=1e-5)
    assert [c.role for c in seen] == ["forward", "backward"]


def test_a_size_that_varies_by_itself_is_compiled_twice() -> None:
    seen: list[Compiled] = []
    compiled = torch.compile(lambda x: (x * 2).softmax(-1), backend=Compiler(observer=seen.append))
    for n in (4, 5, 6, 7, 9):
        x = torch.randn(3, n)
        same(compiled(x), (x * 2).softmax(-1))
    assert len(seen) == 2


def test_a_marked_dimension_is_compiled_once() -> None:
    seen: list[Compiled] = []
    compiled = torch.compile(lambda x: x.sum(0) + x.mean(), backend=Compiler(observer=seen.append))
    for n in (4, 5, 9):
        x = torch.randn(n, 3)
        torch._dynamo.mark_dynamic(x, 0)
        same(compiled(x), x.sum(0) + x.mean())
    assert len(seen) == 1


def test_strides_and_offsets_vary() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.t() * 2, x.sum(1), x[1:] + 1

    whole = torch.randn(12, 14)
    views = (whole[1:9, 2:7], whole[2:11:2, 1:13:3], whole.t()[3:8, 1:5], whole[3:6, 1:9], whole[::3, ::2])
    alone = dynamo_alone(fn, *((view,) for view in views), dynamic=True)
    seen: list[Compiled] = []
    compiled = torch.compile(fn, backend=Compiler(observer=seen.append), dynamic=True)
    for view in views:
        same(compiled(view), fn(view))
    assert len(seen) == alone


def test_a_view_of_a_written_input_keeps_its_place() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[::2].mul_(-1)
        return x.chunk(2, 0)[0]

    for options in ({"dynamic": True}, {"dynamic": False}):
        torch._dynamo.reset()
        ours, theirs = (torch.arange(17 * 21.0).reshape(17, 21)[:, 1::2] for _ in range(2))
        got, expected = torch.compile(fn, backend=Compiler(), **options)(ours), fn(theirs)
        assert torch.equal(got, expected)
        assert got.storage_offset() == expected.storage_offset()
        assert got.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()


def test_views_whose_number_data_decides_run_in_eager() -> None:
    """AOTAutograd alone traces this; Dynamo reads the tensor first."""
    x, places = torch.randn(5, 5, 5), torch.tensor([2, 0, 3, 0, 4])[::2]

    def split(x: torch.Tensor, places: torch.Tensor) -> Any:
        return torch.tensor_split(x, places, 1)

    compiled = compilers.minductor(compilers.Seen())(split, dynamic=True)
    with pytest.warns(RanInEager, match="views whose number data decides"):
        got = compiled(x, places)
    same(got, split(x, places))


def test_inputs_in_one_memory_of_any_size_run_in_eager() -> None:
    """AOTAutograd traces the size of that memory as a number, and guards nothing."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.mul_(2)
        return x + 1

    def windows(n: int) -> tuple[torch.Tensor, ...]:
        memory = torch.arange(n * 7.0).untyped_storage()
        return tuple(torch.empty(0).set_(memory, first * 7, (n - first, 7), (7, 1)) for first in (2, 3))

    compiled = torch.compile(fn, backend=Compiler(), dynamic=True)
    with pytest.warns(RanInEager, match="several inputs share"):
        compiled(*windows(14))
    for n in (10, 12):
        ours, theirs = windows(n), windows(n)
        same((compiled(*ours), ours), (fn(*theirs), theirs))
