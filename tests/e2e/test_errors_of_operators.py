"""What an operator of torch raises reaches the caller of a C++ wrapper as eager raises it: the class and the words.

torch's C interface hands over an exception's words only, and nothing of one that Python raises inside of an operator,
as the first call of a graph may, which AOTAutograd watches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.driver import Compiled, Compiler

T = torch.tensor
NAN = torch.full((3, 3), float("nan"))
ONES, EYE, NONE = torch.ones(3, 3), torch.eye(3), torch.empty(0, 3)
Call = tuple[Callable[..., Any], tuple[Tensor, ...], tuple[Tensor, ...]]

# operator, arguments with which it fails, arguments of the same sizes with which it does not
CALLS: Mapping[str, Call] = MappingProxyType(
    {
        "inv": (torch.linalg.inv, (torch.zeros(3, 3),), (EYE,)),
        "cholesky": (torch.linalg.cholesky, (-EYE,), (EYE,)),
        "solve": (torch.linalg.solve, (torch.zeros(3, 3), ONES), (EYE, ONES)),
        "eigvalsh": (torch.linalg.eigvalsh, (NAN,), (EYE,)),
        "eigh": (lambda x: torch.linalg.eigh(x)[0], (NAN,), (EYE,)),
        "svdvals": (torch.linalg.svdvals, (NAN,), (EYE,)),
        "multinomial": (lambda x: torch.multinomial(x, 2), (T([-1.0, 1, 2]),), (T([1.0, 1, 2]),)),
        "multinomial of nothing": (lambda x: torch.multinomial(x, 1), (torch.zeros(4),), (torch.ones(4),)),
        "bernoulli": (torch.bernoulli, (T([2.0, -1]),), (T([1.0, 0]),)),
        "poisson": (torch.poisson, (T([-2.0, 1]),), (T([2.0, 1]),)),
        "normal": (lambda x: torch.normal(x, x), (T([1.0, -1]),), (T([1.0, 1]),)),
        "bincount": (torch.bincount, (T([-1, 2]),), (T([1, 2]),)),
        "histc": (torch.histc, (T([float("nan"), 2]),), (T([1.0, 2]),)),
        "repeat_interleave": (torch.repeat_interleave, (T([-1, 2]),), (T([1, 2]),)),
        "embedding_bag": (lambda i, x: F.embedding_bag(i, x), (T([[9]]), ONES), (T([[0]]), ONES)),
        "segment_reduce": (
            lambda x, n: torch.segment_reduce(x, "sum", lengths=n),
            (torch.ones(3), T([9])),
            (torch.ones(3), T([3])),
        ),
    }
)
# these fail for their sizes
OF_SIZE_0: Mapping[str, Call] = MappingProxyType(
    {
        "median": (lambda x: torch.median(x, 0)[0], (NONE,), ()),
        "nanmedian": (lambda x: torch.nanmedian(x, 0)[0], (NONE,), ()),
        "mode": (lambda x: torch.mode(x, 0)[0], (NONE,), ()),
        "index_put": (lambda x, i, v: x.index_put((i,), v), (NONE, T([0]), torch.ones(1, 3)), ()),
        "gather": (lambda x, i: x.gather(0, i), (NONE, T([[0]])), ()),
        "index_select": (lambda x, i: x.index_select(0, i), (NONE, T([0])), ()),
        "embedding": (lambda x, i: F.embedding(i, x), (NONE, T([0])), ()),
        "unique_consecutive": (lambda x: torch.unique_consecutive(x, dim=0), (torch.empty(0, 0),), ()),
    }
)
NOT_EXPORTED = ("inv", "cholesky", "solve")  # their check is an effect, of which torch.export makes a token
NOT_COMPILED = NOT_EXPORTED if torch.__version__ < (2, 12) else ()  # until 2.12 AOTAutograd drops that check
SAMPLE = ("svdvals", "multinomial", "median", "embedding")


def error_of(call: Callable[..., Any], *args: Any) -> tuple[type, str]:
    """The class of what a call raises, and its first line. LAPACK counts what it gave up on as it likes."""
    with pytest.raises(Exception) as raised:
        call(*args)
    return raised.type, re.sub(r"\(error code: \d+\)", "", str(raised.value).splitlines()[0])


def in_cpp(fn: Callable[..., Any], seen: list[Compiled], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    backend = partial(Compiler(observer=seen.append), options={"wrapper": "cpp"})
    return torch.compile(fn, backend=backend, fullgraph=True, **options)


def joined(names: Sequence[str]) -> Callable[..., list[Any]]:
    """These of CALLS in one program."""

    def every(*args: Tensor) -> list[Any]:
        left = iter(args)
        return [CALLS[name][0](*(next(left) for _ in CALLS[name][2])) for name in names]

    return every


def arguments(names: Sequence[str], wrong: str = "") -> tuple[Tensor, ...]:
    """For `joined(names)`; the operator `wrong` fails."""
    return tuple(arg.clone() for name in names for arg in CALLS[name][1 if name == wrong else 2])


@pytest.mark.parametrize("way", ["compile", "package"])
def test_an_operator_among_others_raises_eagers_error(tmp_path: Path, way: str) -> None:
    """At the first call of a graph, later, and on several threads at once."""
    names = [name for name in CALLS if name not in (NOT_COMPILED if way == "compile" else NOT_EXPORTED)]
    eager, seen = joined(names), list[Compiled]()
    if way == "compile":
        run = in_cpp(eager, seen)
    else:
        minductor.export(eager, arguments(names), tmp_path / "every.zip")
        run = minductor.load(tmp_path / "every.zip")
    wanted = {name: error_of(eager, *arguments(names, name)) for name in names}
    assert {name: error_of(run, *arguments(names, name)) for name in names} == wanted
    assert len(run(*arguments(names))) == len(names)
    barrier = Barrier(4, timeout=60)

    def beside(name: str) -> tuple[type, str]:
        barrier.wait()
        return error_of(run, *arguments(names, name))

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(beside, names[-8:])] == [wanted[name] for name in names[-8:]]
    assert all("wrapper.cpp" in one.sources for one in seen)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in SAMPLE else [pytest.mark.long]) for n in (*CALLS, *OF_SIZE_0)],
)
def test_an_operator_raises_eagers_error(name: str, tmp_path: Path) -> None:
    """At the first call of its graph, and later; in a package too."""
    call, bad, good = CALLS.get(name) or OF_SIZE_0[name]
    wanted = error_of(call, *bad)
    seen: list[Compiled] = []
    compiled = in_cpp(call, seen)
    assert error_of(compiled, *bad) == wanted
    assert error_of(compiled, *bad) == wanted
    assert all("wrapper.cpp" in one.sources for one in seen) and seen
    if name not in NOT_EXPORTED:
        minductor.export(lambda *args: call(*args), good or bad, tmp_path / "one.zip")
        assert error_of(minductor.load(tmp_path / "one.zip"), *bad) == wanted


@pytest.mark.parametrize("name", ["poisson", "multinomial"])
def test_an_operator_that_fails_leaves_the_random_generator_as_eager_does(name: str) -> None:
    call, bad, _ = CALLS[name]
    states = []
    for run in (call, in_cpp(call, [])):
        torch.manual_seed(7)
        error_of(run, *bad)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_an_operator_that_fails_is_told_to_a_mode_of_the_user() -> None:
    """A mode is Python inside of the operator; what it raises is what the caller gets."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refusing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "cumsum" in str(func):
                raise KeyError("no sums")
            return func(*args, **(kwargs or {}))

    run = in_cpp(lambda x: torch.cumsum(x, 0).sort()[0], [])
    x = torch.randn(5)
    assert torch.equal(run(x), x.cumsum(0).sort()[0])
    with Refusing(), pytest.raises(KeyError, match="no sums"):
        run(x)


def test_memory_that_is_not_there_is_eagers_error() -> None:
    seen: list[Compiled] = []
    run = in_cpp(lambda x: x.expand(1 << 50) + 1, seen)
    wanted = error_of(lambda: torch.empty(1 << 50))
    assert error_of(run, torch.ones(1)) == wanted
    assert error_of(run, torch.ones(1)) == wanted
    assert "wrapper.cpp" in seen[0].sources
