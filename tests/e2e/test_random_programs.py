"""Random programs, compiled against eager: a few here, many with `python -m tests.e2e.hunt` and in the long test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.e2e.hunt import attempt, problem
from tests.e2e.programs import Drawn, check, draw, shrunk


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


def shown(drawn: Drawn, found: str | None) -> str:
    return f"{found}\n# {drawn.shapes}\n{drawn.text}"


@pytest.mark.parametrize("seed", range(8))
def test_forward(seed: int) -> None:
    drawn = draw(10_000 + seed, 20)
    found = problem(drawn, dynamic=False)
    assert found is None, shown(drawn, found)


@pytest.mark.parametrize("seed", range(4))
def test_gradients(seed: int) -> None:
    drawn = draw(20_000 + seed, 14, is_differentiable=True)
    found = problem(drawn, dynamic=False)
    assert found is None, shown(drawn, found)


@pytest.mark.parametrize("seed", range(4))
def test_several_sizes(seed: int) -> None:
    drawn = draw(30_000 + seed, 10, is_scalable=True)
    found = problem(drawn, dynamic=True)
    assert found is None, shown(drawn, found)


def one(line: str, *, shapes: tuple[str, ...] = ("rand(5, 6)",)) -> Drawn:
    return Drawn(0, shapes, (line,), ("t0",), is_differentiable=False)


def test_a_wrong_backend_is_found() -> None:
    def wrong(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        del inputs
        return lambda *args: [t * 1.01 for t in gm(*args)]

    assert "out0: at" in (check(one("t0 = torch.sin(x0)"), backend=wrong) or "")


def test_shrinking_keeps_what_is_needed() -> None:
    drawn = Drawn(0, ("rand(3)",), ("t0 = x0.sin()", "t1 = x0.exp()", "t2 = t0.cos()"), ("t1", "t2"), False)
    small = shrunk(drawn, lambda p: "t2 = t0.cos()" in p.lines)
    assert small.lines == ("t2 = t0.cos()",)
    assert attempt(small, dynamic=False) is None  # eager refuses it


# --- what the hunt found ------------------------------------------------------------------------------------------

FOUND: dict[str, Drawn] = {
    # a literal has no name that a thread could have of its own
    "constant_truth": Drawn(
        0,
        ("rand(1, 1).expand(1, 33)", "rand(1, 17, 33).permute(1, 2, 0)"),
        (
            "t0 = torch.index_select(x1, 2, torch.arange(x1.shape[2] - 1, -1, -1))",
            "t1 = t0[:, torch.tensor([0, -1])]",
            "t2 = x0.bool().repeat(2, 1)",
            "t3 = t2.masked_fill(t1 > 0.25, -1)",
            "t4 = t3.unfold(0, 2, 1)",
        ),
        ("t4",),
        False,
        True,
    ),
    # two phases over the same parts of an axis whose size is not known
    "parts_twice": Drawn(
        0,
        ("rand(16, 65, 16).permute(1, 2, 0)",),
        ("t0 = torch.logsumexp(torch.log_softmax(x0, 2), 0)",),
        ("t0",),
        False,
        True,
    ),
    # a slice written first, then all of it read
    "window_written": one("t0 = x0.clone(); t0.unbind(0)[0].mul_(0.5); t0 = t0.tanh()"),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    assert attempt(FOUND[name], dynamic=FOUND[name].is_scalable) is None


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 600, 20))
@pytest.mark.parametrize("kind", ["forward", "gradients", "sizes", "large"])
def test_many(kind: str, first: int) -> None:
    for seed in range(first, first + 20):
        drawn = draw(
            seed,
            24,
            is_differentiable=kind == "gradients",
            is_scalable=kind == "sizes",
            is_large=kind == "large",
        )
        found = problem(drawn, dynamic=kind == "sizes")
        assert found is None, shown(drawn, found)
