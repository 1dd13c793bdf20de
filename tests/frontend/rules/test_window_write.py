"""Functional writes into windows against eager: in place if the old value is dead, else into a copy; errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from minductor.core.errors import RanInEager
from minductor.core.expressions.expr import as_int
from minductor.frontend.capture.size_formulas import count
from minductor.ir.program.nodes import Program
from tests.frontend.tracing import compiled, lowered, randn


def locals_of(program: Program) -> list[list[int | None]]:
    """The sizes of the local buffers that a node reads or writes."""
    used = {ref for node in program.nodes for ref in _touched(node)}
    return [[as_int(n) for n in b.size] for b in program.buffers if b.kind == "local" and b.name in used]


def _touched(node: Any) -> set[str]:
    from minductor.ir.program.nodes import reads, writes

    return {ref.storage for ref in (*reads(node), *writes(node))}


def slice_plus(x: torch.Tensor) -> None:
    x[:, 2:4] += 1


def nested(x: torch.Tensor) -> None:
    x[1][2:4] += 1
    x.t()[0, 1:].mul_(2)


def diagonal(x: torch.Tensor) -> None:
    x.diagonal(1).add_(1)
    x.as_strided((2, 2), (1, 6), 2).mul_(2)


def negative(x: torch.Tensor) -> None:
    x[-100:2, ..., -1] = 3.0


def index_put(x: torch.Tensor) -> None:
    x[torch.tensor([1, 1, 0])] = 5.0


def scatter_add(x: torch.Tensor) -> torch.Tensor:
    x.scatter_add_(0, torch.tensor([[0, 1, 1, 4, 0, 2]]), x[:1] * 2)
    x.index_add_(1, torch.tensor([0, 0]), x[:, :2] + 1)
    return x.sum(0)


def window_of_a_window(x: torch.Tensor) -> torch.Tensor:
    """A cache of keys and values, of which each call writes one place."""
    cache = x.view(5, 2, 3)
    cache[1, 0].index_copy_(0, torch.tensor([1]), x[4, :1])
    cache[1][1][torch.tensor([2])] = 3.0
    keys, values = cache[2:4].unbind(0)
    keys[1].index_add_(0, torch.tensor([0]), x[4, :1])
    values.chunk(2)[1][:, 1:] = 7.0
    return cache[1, 0] * values


def view_between(x: torch.Tensor) -> None:
    x[1:4].unsqueeze(1)[2].squeeze(0).index_fill_(0, torch.tensor([0, 5]), 2.0)


# nothing as large as the input is allocated
IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "slice": slice_plus,
    "nested": nested,
    "diagonal": diagonal,
    "from before the start": negative,
    "index_put": index_put,
    "scatter_add": scatter_add,
    "window of a window": window_of_a_window,
    "view between": view_between,
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name: str) -> None:
    seen = compiled(IN_PLACE[name], randn(5, 6))
    assert [5, 6] not in locals_of(seen.program), name


def test_nothing_is_copied_to_write_one_place_of_a_cache() -> None:
    """Each write is one kernel over what is written, however deep the window lies."""

    def fn(cache: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        for layer in range(2):
            cache[layer][0].index_copy_(1, at, new + layer)
            cache[layer, 1, :, at] = new
        return cache[1, 0].sum(1)

    seen = compiled(fn, randn(2, 2, 3, 8, 4), torch.tensor([5]), randn(3, 1, 4))
    assert [b.name for b in seen.program.buffers if as_int(count(b.size)) in {96, 192, 384} and b.kind == "local"] == []


def test_strides_that_nobody_sees_make_no_copy() -> None:
    """Half of each row is written, and eager's functional write would give it contiguous."""

    def fn(cache: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        keys, _ = cache.chunk(2, -1)
        keys.index_copy_(1, at, new)
        return cache.sum()

    seen = compiled(fn, randn(3, 8, 6), torch.tensor([5]), randn(3, 1, 3))
    assert [3, 8, 3] not in locals_of(seen.program)


def keeps_old_window(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    old = x[1][2:4]
    kept = old.relu()
    x[1][2:4].index_fill_(0, torch.tensor([1]), 9.0)
    return kept.cumsum(0), old * 2


def keeps_old_tensor(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.sin()
    z = y.clone()
    z.view(5, 2, 3)[1][0].index_fill_(0, torch.tensor([1]), 9.0)
    return y.cumsum(0), z


def overlapping_source(x: torch.Tensor) -> torch.Tensor:
    x[1:4][0:2].copy_(x[2:4] * 1)
    x[1:4][0:2].add_(x[2:4].clone())
    return x.sum()


def other_window(x: torch.Tensor) -> torch.Tensor:
    """What is computed of one row goes into another; the first stays."""
    y = x.sin()
    return torch.select_scatter(y, y[0].index_fill(0, torch.tensor([1]), 9.0), 0, 1)


@pytest.mark.parametrize("fn", [other_window, keeps_old_window, keeps_old_tensor, overlapping_source])
def test_an_old_value_that_is_still_read_stays(fn: Callable[[torch.Tensor], Any]) -> None:
    compiled(fn, randn(5, 6))


def test_a_window_of_an_input_with_gaps() -> None:
    compiled(slice_plus, randn(10, 12)[::2, 1::2])
    compiled(nested, randn(6, 5).t())
    compiled(view_between, randn(6, 5).t())


def loop(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(4, 6)
    for n in range(4):
        out[n] = x[n].sin()
    return out


def after_product(x: torch.Tensor) -> torch.Tensor:
    y = x @ x.t()
    y[:, 1:3] = 0
    return y.relu()


def test_temporaries_are_written_in_place() -> None:
    assert locals_of(compiled(loop, randn(5, 6)).program).count([4, 6]) == 1
    assert locals_of(compiled(after_product, randn(5, 6)).program).count([5, 5]) == 2  # the product and the result


def old_value_later(x: torch.Tensor) -> torch.Tensor:
    before = x.sum(0)
    y = torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3)
    x.copy_(y * 3)
    return before + y[0]


def returned_and_copied(x: torch.Tensor) -> torch.Tensor:
    y = torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3)
    x.copy_(y)
    return y


def two_scatters_of_one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.sum(0, keepdim=True).expand(5, 6).clone()
    z = y @ y.t()
    return torch.select_scatter(z, z[1] * 2, 0, 0), torch.select_scatter(z, z[0] * 2, 0, 1)


def inner_kept(x: torch.Tensor) -> torch.Tensor:
    """The target of the inner write is read later, outside of the window."""
    z = x @ x.t()
    inner = torch.slice_scatter(z[1], z[0, :2], 0, 1, 3)
    return torch.select_scatter(z, inner, 0, 1) + z


def shifted(x: torch.Tensor) -> None:
    x[:, 1:] = x[:, :-1].clone() * 2


def from_itself(x: torch.Tensor) -> torch.Tensor:
    z = x @ x.t()
    return torch.slice_scatter(z, z[:, :3], 1, 1, 4)


def overlapping_window(x: torch.Tensor) -> torch.Tensor:
    z = x @ x.t()
    return torch.as_strided_scatter(z, z.new_ones(3, 3), (3, 3), (1, 1), 0)


# what must not be written over
LIVE: dict[str, Callable[[torch.Tensor], Any]] = {
    "old value later": old_value_later,
    "returned and copied": returned_and_copied,
    "two of one": two_scatters_of_one,
    "inner kept": inner_kept,
    "shifted": shifted,
    "from itself": from_itself,
    "overlapping window": overlapping_window,
}


@pytest.mark.parametrize("name", LIVE)
@pytest.mark.parametrize("dynamic", [False, True])
def test_live_values_are_kept(name: str, dynamic: bool) -> None:
    compiled(LIVE[name], randn(5, 6), dynamic=dynamic)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = torch.diagonal_scatter(x, x[0, :4] ^ x[1, :4] if dtype == torch.bool else x[0, :4] * 3, -1)
        return torch.select_scatter(y, y[0], 0, -1)

    lowered(fn, (randn(5, 6) * 3).to(dtype))


def test_sizes_0_and_1() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[:, 1:3] += 1
        x.diagonal().mul_(2)
        return x[:0]

    for size in ((0, 6), (5, 0), (1, 1), (1, 6)):
        compiled(fn, randn(*size))


def overlapping_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A result whose elements share memory is written in the window only."""
    v = x.unfold(0, 2, 1)
    w = (x @ x.t()).as_strided((2, 2), (1, 1), 1)
    return v.select_scatter(v[1], 0, 0).diagonal(), w.slice_scatter(w[:, :1] * 2, 1, 1)


def test_results_whose_elements_share_memory() -> None:
    compiled(overlapping_results, randn(4, 4))


def test_a_write_between_the_elements_of_a_tensor_is_not_taken() -> None:
    def fn(x: torch.Tensor) -> None:
        x.as_strided((2, 2), (2, 1)).add_(1)

    with pytest.raises(Exception, match="beside a tensor's elements"):
        compiled(fn, torch.stack([randn(6), randn(6)], -1)[..., 1])


def test_a_size_that_turns_out_to_be_1_is_broadcast() -> None:
    def fn(x: torch.Tensor) -> None:
        x.mul_(x.clone().chunk(2)[-1])

    compiled(fn, randn(3, 4), dynamic=True)


@pytest.mark.skipif(
    torch.__version__ < (2, 12), reason="until 2.12 the tracer asks whether such a slice has one element"
)
def test_a_place_whose_sign_only_the_call_knows_counts_from_the_end() -> None:
    def fn(x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = place.item()
        x[:, n:] = x[:, :1] * 2
        x[n] = 3.0
        return torch.select_scatter(x * 2, x[0], 0, n), torch.slice_scatter(x + 1, x[:, n:], 1, n)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run = torch.compile(fn, backend="minductor")
        for n in (-2, 1, -4):
            x, y = (torch.arange(16.0).reshape(4, 4).clone() for _ in range(2))
            assert_close(run(x, torch.tensor(n)), fn(y, torch.tensor(n)))
            assert_close(x, y, rtol=0, atol=0)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_places_in_a_storage_count_from_its_start(is_dynamic: bool) -> None:
    """Offsets before the tensor's first element work, also if a later call has that element elsewhere in its storage.

    Outside of the storage both raise.
    """

    def read(x: torch.Tensor, offset: int) -> torch.Tensor:
        return -x.as_strided((8,), (2,), offset)

    def written(x: torch.Tensor, offset: int) -> torch.Tensor:
        x[..., 1:].add_(1)
        return -x.as_strided((8,), (2,), offset)

    def made(x: torch.Tensor, offset: int) -> torch.Tensor:
        return torch.slice_scatter(x, x[:, :2] + 1, 1, 2).as_strided((8,), (2,), offset).exp()

    def own(x: torch.Tensor, offset: int) -> torch.Tensor:
        return -(x + 1)[1:].as_strided((8,), (1,), offset)

    for fn in (made, written) if is_dynamic else (read, own):
        torch._dynamo.reset()
        ours_of = torch.compile(fn, backend="minductor", dynamic=is_dynamic)
        for place, offset in ((1, 16), (1, 0), (2, 0), (0, 5)):
            ours, eagers = (torch.linspace(0, 1, 48).view(3, 4, 4) for _ in range(2))
            try:
                expected = fn(eagers[place], offset)
            except RuntimeError:
                with pytest.raises(RuntimeError, match="out of bounds for storage"):
                    ours_of(ours[place], offset)
            else:
                assert_close(ours_of(ours[place], offset), expected)
                assert_close(ours, eagers)


def test_a_program_that_writes_to_what_it_reads_by_places_says_that_it_runs_in_eager() -> None:
    def counted(x: torch.Tensor) -> torch.Tensor:
        x[1:].add_(1)
        return -x.as_strided((4,), (2,), 2)

    def with_gaps(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return -x.as_strided((6,), (1,))

    ours, eagers = (torch.linspace(0, 1, 48).view(8, 6) for _ in range(2))
    for fn, (mine, eager) in ((counted, (ours[1:], eagers[1:])), (with_gaps, (ours[:, :4], eagers[:, :4]))):
        with pytest.warns(RanInEager, match="other windows than its copy"):
            assert_close(torch.compile(fn, backend="minductor")(mine), fn(eager))
        assert_close(ours, eagers)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_window_on_memory_that_a_later_call_has_less_of_is_an_error(is_dynamic: bool) -> None:
    ours = torch.compile(lambda x, n: -x.as_strided((n,), (1,)), backend="minductor", dynamic=is_dynamic)
    whole = torch.arange(30.0)
    for size in (1, 12):
        for begin in (2, 14):
            assert_close(ours(whole[begin : begin + size], 16), -whole[begin : begin + 16])
        for less in (torch.arange(float(size)), torch.arange(3.0 + size)[3:]):
            with pytest.raises(RuntimeError, match="setStorage"):
                ours(less, 16)


# each is an error in eager, and would be read or written outside of what is there
UNFIT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "shorter than the slice": lambda x: torch.slice_scatter(x, x[:, :2], 1, 2, 6),
    "fewer rows than the slice": lambda x: torch.slice_scatter(x, x[:3, :2], 1, 2, 4),
    "one dimension less": lambda x: torch.slice_scatter(x, x[0, :2], 1, 2, 4),
    "shorter than the row": lambda x: torch.select_scatter(x, x[0, :4], 0, 1),
    "place outside": lambda x: torch.select_scatter(x, x[0], 0, 7),
    "longer than its rows": lambda x: x.index_add(0, torch.tensor([0, 2]), torch.ones(2, 9)),
    "more than the places": lambda x: x.index_put((torch.tensor([0, 2]),), torch.ones(3, 6)),
    "shorter than the diagonal": lambda x: torch.diagonal_scatter(x, x[0, :3]),
    "more values than places": lambda x: torch.ops.aten.put(x, torch.tensor([0, 1]), x[0, :3]),
    "values of another dtype": lambda x: torch.ops.aten.put(x, torch.tensor([0, 1]), x[0, :2].double()),
    "parts of two dtypes": lambda x: torch.complex(x, x.double()),
    "a power below 0 of whole numbers": lambda x: x.long() ** -1,
    "bounds in rows": lambda x: torch.bucketize(x, x),
    "a number less a truth value": lambda x: 1 - (x > 0),
    "running logarithms of whole numbers": lambda x: x.long().logcumsumexp(0),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_its_window_is_an_error_as_in_eager(name: str) -> None:
    for call in (UNFIT[name], torch.compile(UNFIT[name], backend="minductor")):
        reasons = r"equal to the (slice|diagonal)|out of range|must match|mismatch|[Ee]xpected|1 dimension|negative"
        with pytest.raises((RuntimeError, IndexError), match=f"{reasons}|bool tensor|not implemented"):
            call(randn(5, 6))


# the first call fits, the second does not, and its sizes are other values of the first one's symbols
UNFIT_LATER: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, int], tuple[int, int]]] = {
    "longer than the slice": (lambda x, y: x.copy_(torch.slice_scatter(x, y, 0, 1)), (8, 7), (9, 400)),
    "longer than the diagonal": (lambda x, y: torch.diagonal_scatter(x.expand(3, -1), y, 1), (3, 2), (3, 400)),
    "place outside": (lambda x, y: x.copy_(torch.select_scatter(x, y.sum(), 0, y.shape[0])), (8, 7), (9, 400)),
    "more places than values": (lambda x, y: x.index_put((y.long(),), x[1:]), (8, 7), (9, 400)),
    "a mask of another size": (lambda x, y: x.index_put((y > 0,), x.sum()), (8, 8), (9, 400)),
}


@pytest.mark.parametrize("name", UNFIT_LATER)
def test_what_only_a_later_call_shows_not_to_fit_is_an_error(name: str) -> None:
    fn, fit, unfit = UNFIT_LATER[name]
    own = torch.compile(fn, backend="minductor", dynamic=True)
    x, y = (torch.zeros(n) for n in fit)
    assert_close(own(x.clone(), y), fn(x.clone(), y))
    for call in (fn, own):
        with pytest.raises((RuntimeError, IndexError), match=r"size|out of|mismatch|shape"):
            call(*(torch.zeros(n) for n in unfit))


def test_a_window_on_what_lies_between_the_elements_of_a_result_is_eagers() -> None:
    """Its diagonal_scatter copies the memory from the first element to the last, gaps and all."""

    def written(row: torch.Tensor) -> torch.Tensor:
        return torch.diagonal_scatter(row.unfold(0, 2, 3), row[:2] + 1)

    def between(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        row = x * 2
        return row, written(row).as_strided((2,), (2,)).exp()

    def on_elements(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        row = x * 2
        return row, written(row).as_strided((2, 2), (3, 1)).exp()

    x = torch.linspace(0, 1, 5)
    with pytest.warns(RanInEager, match="may lie beside a tensor's elements"):
        assert_close(torch.compile(between, backend="minductor")(x), between(x))
    assert_close(torch.compile(on_elements, backend="minductor")(x), on_elements(x))
