"""Random programs of views, writes and reads of shared memory: a few here, many with `python -m tests.e2e.aliases`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch.nn import functional as F

from minductor.core.errors import RanInEager
from minductor.driver import Compiled, Compiler
from tests.e2e.aliases import Case, draw, problem, shrunk


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


@pytest.mark.parametrize("seed", range(6))
def test_forward(seed: int) -> None:
    case = draw(500 + seed)
    found = problem(case)
    assert not found, f"{found}\n# {case.inputs}\n{case.text}"


@pytest.mark.parametrize("seed", range(3))
def test_gradients(seed: int) -> None:
    case = draw(600 + seed, grad=True)
    found = problem(case, grad=True)
    assert not found, f"{found}\n# {case.inputs}\n{case.text}"


FOUND: dict[str, Case] = {
    "as_strided counts from the start of a storage": Case(
        ("torch.cat([rand('float32', 1, 5), rand('float32', 1, 5)])[1:]",),
        ("x0[x0 > 0] = 2", "v1 = x0.as_strided((2, 2), (1, 1), 1)", "v1.add_(1)"),
        ("v1",),
    ),
    "as_strided without an offset begins where the tensor does": Case(
        ("torch.cat([rand('float32', 1, 5), rand('float32', 1, 5)])[1:]",),
        ("v1 = x0.as_strided(x0.shape, x0.stride())", "v1.mul_(2)", "v2 = v1 + 1"),
        ("v2",),
    ),
    "a scan of what is overwritten later": Case(
        ("rand('float32', 2, 3)",), ("v0 = x0.expand(2, *x0.shape)", "v1 = v0.cumsum(0)", "x0.clamp_(-1, 2)"), ("v1",)
    ),
    "a negative number negated": Case(
        ("rand('float32', 1, 5)",), ("v0 = x0.cumsum(0)", "v0.fill_(-3)", "v0.neg_()"), ("v0",)
    ),
    "between the elements": Case(
        ("torch.stack([rand('float32', 2, 3), rand('float32', 2, 3)], -1)[..., 1]",),
        ("v2 = x0.as_strided((2, 2), (1, 1), 1)", "v2.clamp_(-1, 2)", "v2.relu_()"),
        (),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    assert problem(FOUND[name]) == ""


def test_a_view_of_a_written_window_starts_where_it_does() -> None:
    """The value that a write through a view makes is traced as new memory, which starts at 0; the window does not."""
    case = Case(
        ("torch.stack([rand('float32', 12), rand('float32', 12)], -1)[..., 1]",),
        ("v0 = x0[..., ::2]", "v1 = x0.chunk(2)[-1]", "v0[torch.tensor([0, -1])] = 1"),
        ("v1",),
    )
    assert problem(case, dynamic=True) == ""


def test_a_detached_result_keeps_nobody_from_gradients() -> None:
    """Autograd is told about objects: a detached one must not be the one that its base is returned as."""
    lines = ("t0 = x0 * 1.5", "v0 = t0.detach()", "v1 = t0.view(-1)[3:]")
    assert problem(Case(("rand('float32', 1, 5)",), lines, ("v0", "v1")), grad=True) == ""


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


def _windows(n: int) -> tuple[torch.Tensor, ...]:
    memory = torch.arange(n * 1.0)
    return memory[n // 4 :][:6], memory[n // 4 :][3:9]


def _overlapping_matrices(n: int) -> tuple[torch.Tensor, ...]:
    memory = torch.arange(n * 4.0).view(n, 4)
    return memory[:2, :3], memory[1:3, 1:]


@pytest.mark.parametrize("twice", [lambda x: (x.cumsum(1), x.cumsum(1)), lambda x: (F.layer_norm(x, (17,)),) * 2])
def test_a_backward_spares_a_result_of_which_a_view_was_kept(
    twice: Callable[[torch.Tensor], Sequence[torch.Tensor]],
) -> None:
    """The node that the view was traced on is another's, or arithmetic, by the time that kept tensors are looked at."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, z = twice(x)
        return y, torch.outer(x.sum(0)[:5], z.view(-1)[:5])

    x = torch.linspace(-2, 2, 68).view(4, 17).requires_grad_()
    y, product = torch.compile(fn, backend="minductor")(x)
    before = y.detach().clone()
    product.sum().backward()
    assert torch.equal(y, before)


@pytest.mark.parametrize("inputs", [_windows, _overlapping_matrices])
@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs_that_share_memory_run_in_eager(
    inputs: Callable[[int], tuple[torch.Tensor, ...]], dynamic: bool
) -> None:
    """A later call's may lie elsewhere in a smaller memory, and AOTAutograd does not see each overlap."""
    compiled = torch.compile(_written, backend=Compiler(), dynamic=dynamic)
    with pytest.warns(RanInEager, match="several inputs share"):
        compiled(*inputs(1000))
    for n in (16, 12, 2000):
        ours, theirs = inputs(n), inputs(n)
        assert torch.equal(compiled(*ours), _written(*theirs))
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs_that_come_to_overlap_run_in_eager(dynamic: bool) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    def launches() -> int:
        return sum(kind == "launch" for graph in seen for kind, _ in graph.events)

    seen: list[Compiled] = []
    compiled = torch.compile(fn, backend=Compiler(observer=seen.append), options={"events": True}, dynamic=dynamic)
    assert torch.equal(compiled(torch.zeros(4), torch.ones(4)), torch.full((4,), 2.0))
    for first, second in ((0, 8), (0, 2), (2, 0), (0, 4)):
        ours, theirs = (torch.arange(12.0) for _ in range(2))
        before = launches()
        found, expected = (f(x[first:][:4], x[second:][:4]) for f, x in ((compiled, ours), (fn, theirs)))
        assert torch.equal(found, expected)
        assert torch.equal(ours, theirs)
        assert (launches() > before) == (abs(first - second) >= 4), "those that lie apart are computed by kernels"


def test_parts_of_one_memory_that_come_to_overlap_run_in_eager() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y.add_(1)
        return x + y

    compiled = torch.compile(fn, backend="minductor", dynamic=False)
    for first, second in ((0, 8), (8, 0), (0, 2), (2, 0), (0, 4)):
        ours, theirs = (torch.arange(12.0) for _ in range(2))
        found, expected = (f(x[first:][:4], x[second:][:4]) for f, x in ((compiled, ours), (fn, theirs)))
        assert torch.equal(found, expected)
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_write_to_a_part_of_an_expanded_input_runs_in_eager(dynamic: bool) -> None:
    """AOTAutograd copies the whole input back, to places that several of its elements have."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        x.diagonal().mul_(2)
        return F.dropout(x, training=False)

    compiled = torch.compile(fn, backend=Compiler(), dynamic=dynamic)
    ours, theirs = (torch.ones(3, 1) for _ in range(2))
    with pytest.warns(RanInEager, match="its elements are one"):
        found = compiled(ours.expand(3, 3))
    assert torch.equal(found, fn(theirs.expand(3, 3)))
    assert torch.equal(ours, theirs)
    with pytest.raises(RuntimeError, match="unsupported operation: more than one element"):
        torch.compile(lambda x: x.mul_(2), backend=Compiler(), dynamic=dynamic)(ours.expand(3, 3))


def test_matrices_side_by_side_in_one_memory_are_compiled() -> None:
    ours, theirs = (torch.arange(16.0).view(4, 4) for _ in range(2))
    compiled = torch.compile(_written, backend=Compiler(), options={"fallback": "error"})
    assert torch.equal(compiled(ours[:, :2], ours[:, 2:]), _written(theirs[:, :2], theirs[:, 2:]))
    assert torch.equal(ours, theirs)


def test_a_wrong_program_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(("rand('float32', 3)",), ("v0 = x0 * 2", "x0.neg_()", "v1 = x0 + v0"), ("v0", "v1"))
    assert problem(case) == ""
    monkeypatch.setattr("tests.e2e.aliases.problem", lambda c, **_: "x0.neg_()" in c.lines)
    assert shrunk(case, grad=False, dynamic=False) == Case(case.inputs, ("x0.neg_()",), ())
