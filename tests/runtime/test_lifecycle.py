"""Calls held against the plan of their memory: right ones pass however storages are shared, each fault is named."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from minductor.codegen.wrapper import wrapper_python
from minductor.core.errors import MemoryFault
from minductor.driver import Compiler
from minductor.ir.plan.plan import AllocateLine, ExternLine, FreeLine, Line, Plan, ReuseLine, ViewLine
from minductor.runtime.store.store import Store

X = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))


def two_pointwise(x: Tensor) -> Tensor:
    return (x + 1).sum(0).exp() * 2


def mutating(x: Tensor) -> Tensor:
    x.add_(1)
    y = x @ x
    y.mul_(2)
    return y @ x


def views_of_one(x: Tensor) -> Tensor:
    """Several mutated views of one buffer: it is one storage with several names, and goes when the last one does."""
    base = x @ x
    top, bottom = base[:8], base[8:]
    top.add_(1)
    bottom.mul_(2)
    return base @ x


def looped(x: Tensor) -> Tensor:
    return torch._higher_order_ops.while_loop(
        lambda n, x: n < 3, lambda n, x: (n + 1, (x @ x).relu().softmax(0)), (torch.tensor(0), x)
    )[1]


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "mm relu mm sum": lambda x: ((x @ x).relu() @ x).sum(),
    "mm mm mm": lambda x: ((x @ x) @ x) @ x,
    "two pointwise": two_pointwise,
    "nonzero": lambda x: x.nonzero().sum(),
    "topk": lambda x: torch.topk(x @ x, 3),
    "cat": lambda x: torch.cat([x @ x, x + 1]) @ x,
    "mutating": mutating,
    "training": lambda x: torch.tanh(torch.tanh(x @ W) @ W),
    "views of one": views_of_one,
    "a loop": looped,
}
W = torch.randn(16, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)


def compiler(folder: Path, told: list[Any] | None = None) -> Compiler:
    return Compiler(store=Store(folder), observer=(told if told is not None else []).append)


LONG = ("mm mm mm", "nonzero", "cat", "mm relu mm sum")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in PROGRAMS])
def test_every_way_to_share_is_as_planned(name: str, tmp_path: Path) -> None:
    found: list[tuple[Any, Any]] = []
    for options in ({"reuse_storage": r, "inplace": i} for r in (True, False) for i in (True, False)):
        torch._dynamo.reset()
        told: list[Any] = []
        call = torch.compile(
            PROGRAMS[name],
            backend=compiler(tmp_path, told),
            options={"verify_memory": "assert", "verify": True, **options},
        )
        with torch.set_grad_enabled(name == "training"):
            for _ in range(2):
                W.grad = None
                x = X.clone()
                out = call(x)
                if name == "training":
                    out.sum().backward()
        events = [event for one in told for event in one.events]
        assert told and not [event for event in events if event[0] in ("fault", "leak")]
        assert all("life.returns" in one.sources["wrapper.py"] for one in told)
        found.append((out, x if name != "training" else W.grad))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=0)


# --- faults


def program(x: Tensor) -> Tensor:
    """Calls 1 to 3 are products and 4 a kernel: buf0, buf1, then buf2 by a view, and the sum."""
    a = x @ x
    b = a @ x
    return (a[:, 1:] @ b[1:]).sum()


def early_free(lines: list[Line]) -> None:
    """The first product is freed before its last reader."""
    name = first(lines, AllocateLine).name
    freed = next(n for n, line in enumerate(lines) if isinstance(line, FreeLine) and name in line.names)
    lines[freed] = FreeLine(tuple(other for other in lines[freed].names if other != name))
    if not lines[freed].names:
        del lines[freed]
    calls = [n for n, line in enumerate(lines) if isinstance(line, ExternLine)]
    lines.insert(calls[1] + 1, FreeLine((name,)))


def missed_free(lines: list[Line]) -> None:
    name = first(lines, AllocateLine).name
    freed = next(n for n, line in enumerate(lines) if isinstance(line, FreeLine) and name in line.names)
    lines[freed] = FreeLine(tuple(other for other in lines[freed].names if other != name))
    if not lines[freed].names:
        del lines[freed]


def wrong_alias(lines: list[Line]) -> None:
    views = [n for n, line in enumerate(lines) if isinstance(line, ViewLine)]
    lines[views[0]] = replace(lines[views[0]], of=lines[views[1]].of)


def reuse_hazard(lines: list[Line]) -> None:
    """The second product is written where the first one lies, which is still needed."""
    old, new = [n for n, line in enumerate(lines) if isinstance(line, AllocateLine)][:2]
    a, b = lines[old], lines[new]
    lines[new] = ReuseLine(b.name, a.name, b.dtype, b.size, b.stride)


def first(lines: list[Line], kind: type) -> Any:
    return next(line for line in lines if isinstance(line, kind))


FAULTS: list[tuple[Callable[[list[Line]], None], str, str]] = [
    (early_free, "free buf0 (1024 bytes) is not planned here", "step 2 (aten.mm.out)"),
    (missed_free, "free buf0 (1024 bytes) is missing", "step 3 (aten.mm.out)"),
    (wrong_alias, "alias buf0_view1 of buf1 (1024 bytes) is not planned here", "step 2 (aten.mm.out)"),
    (reuse_hazard, "transfer buf1 of buf0 (1024 bytes) is not planned here", "step 1 (aten.mm.out)"),
]


def faulty(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[Line]], None]) -> None:
    """The wrapper's text is made of changed lines, and of the storages as they were planned."""
    right = wrapper_python.wrapper_python

    def wrong(plan: Plan, env: Any) -> str:
        changed = list(plan.lines)
        change(changed)
        return right(replace(plan, lines=tuple(changed)), env)

    monkeypatch.setattr(wrapper_python, "wrapper_python", wrong)


def run(folder: Path, mode: str) -> Tensor:
    torch._dynamo.reset()
    call = torch.compile(program, backend=compiler(folder), options={"verify_memory": mode})
    with torch.no_grad():
        return call(X)


@pytest.mark.parametrize(("change", "what", "where"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_fault_is_named_with_its_step(
    change: Callable[[list[Line]], None], what: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        faulty(patch, change)
        with pytest.raises(MemoryFault) as caught:
            run(tmp_path / "wrong", "assert")
    assert what in str(caught.value)
    assert where in str(caught.value)
    assert "planned: buf" in str(caught.value)
    # nothing is left over for the next call
    torch.testing.assert_close(run(tmp_path / "right", "assert"), program(X))


def test_the_log_says_it_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faulty(monkeypatch, missed_free)
    with caplog.at_level(logging.WARNING, logger="minductor"):
        torch.testing.assert_close(run(tmp_path, "log"), program(X))
    assert "free buf0 (1024 bytes) is missing" in caplog.text


def test_what_an_operator_keeps_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second opinion besides the events: torch's own count of who holds a storage."""
    kept: list[Tensor] = []

    def keeping(plan: Plan, env: Any) -> str:
        text = wrapper_python_text(plan, env)
        line = next(line for line in text.splitlines() if "empty_strided(" in line and "=" in line)
        name = line.split("=")[0].strip()
        return text.replace(line, f"{line}\n    torch._kept = {name}", 1)

    wrapper_python_text = wrapper_python.wrapper_python
    monkeypatch.setattr(wrapper_python, "wrapper_python", keeping)
    monkeypatch.setattr(torch, "_kept", kept, raising=False)
    with pytest.raises(MemoryFault, match="is freed, and somebody still holds it"):
        run(tmp_path, "assert")


def test_the_lean_wrapper_has_none_of_it(tmp_path: Path) -> None:
    told: list[Any] = []
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(program, backend=compiler(tmp_path, told))(X)
    (one,) = told
    assert "life" not in one.sources["wrapper.py"]


def test_a_token_of_effects_has_no_storage(tmp_path: Path) -> None:
    @torch.library.custom_op("minductor_test_lifecycle::note", mutates_args=())
    def note(x: Tensor) -> None:
        noted.append(x.sum().item())

    note.register_fake(lambda x: None)
    note.register_effect(torch.library.EffectType.ORDERED)
    noted: list[float] = []

    def noting(x: Tensor) -> Tensor:
        note(x)
        y = x + 1
        note(y)
        return y * 2

    torch._dynamo.reset()
    call = torch.compile(noting, backend=compiler(tmp_path), options={"verify_memory": "assert"})
    try:
        torch.testing.assert_close(call(torch.ones(3)), torch.full((3,), 4.0))
    finally:
        note._lib._destroy()
    assert noted == [3.0, 6.0]


def test_a_failing_call_leaves_nothing_behind(tmp_path: Path) -> None:
    def indexing(x: Tensor, i: Tensor) -> Tensor:
        return (x @ x)[i].exp()

    torch._dynamo.reset()
    call = torch.compile(indexing, backend=compiler(tmp_path), options={"verify_memory": "assert"})
    with torch.no_grad():
        with pytest.raises(IndexError):
            call(X, torch.tensor([99]))
        gc.collect()
        torch.testing.assert_close(call(X, torch.tensor([3])), indexing(X, torch.tensor([3])))


def test_calls_are_counted_as_the_wrapper_makes_them(tmp_path: Path) -> None:
    told: list[Any] = []
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(program, backend=compiler(tmp_path, told), options={"verify_memory": "assert"})(X)
    text = told[0].sources["wrapper.py"]
    assert text.count("life.call(") == told[0].report.kernels + told[0].report.externs
