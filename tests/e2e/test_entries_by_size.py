"""Entries of one graph that were compiled for different sizes: which one serves, and when another one is added.

Sizes are hints: a program for a GPU is compiled for the sizes of its example inputs, and is right for all sizes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from minductor.core.errors import CorruptEntry
from minductor.core.expressions.expr import symbol
from minductor.core.expressions.hints import Hints
from minductor.driver import Compiled, Compiler
from minductor.driver_tasks.stores import HINTS, MOST_ENTRIES, hints_file, serving
from minductor.runtime.store.store import Entry, Store

ROWS, COLUMNS = symbol("s0", "size", 2), symbol("s1", "size", 2)

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def total(x: torch.Tensor) -> torch.Tensor:
    """A sum that is cut in two kernels if it is long."""
    return (x.exp() - 1).sum()


def compiled(store: Store, *size: int, target: str, dynamic: bool = True, **options: Any) -> Compiled:
    """What one process compiles that calls total with this size first."""
    torch._dynamo.reset()
    seen: list[Compiled] = []
    compiler = Compiler(store=store, observer=seen.append, is_dry=target != "cpu")
    call = torch.compile(total, backend=compiler, dynamic=dynamic, options={"target": target, **options})
    x = torch.randn(size, dtype=torch.float64)
    torch.testing.assert_close(call(x), total(x))
    (found,) = seen
    return found


def test_a_near_size_is_served_and_a_far_one_gets_an_entry_of_its_own(store: Store) -> None:
    first = compiled(store, 10, 12, target="sm_90")
    assert not first.was_hit and store.count() == 1
    assert compiled(store, 3, 40, target="sm_90").was_hit
    assert store.count() == 1
    far = compiled(store, 10, 5000, target="sm_90")
    assert not far.was_hit and far.key == first.key and store.count() == 2
    assert far.sources != first.sources
    assert compiled(store, 9, 11, target="sm_90").sources == first.sources
    assert compiled(store, 9, 4000, target="sm_90").sources == far.sources
    assert store.count() == 2
    assert (store.stats.hits, store.stats.puts) == (3, 2)


@pytest.mark.parametrize("how", ["cpu", "deterministic", "static"])
def test_without_hints_there_is_one_entry(store: Store, how: str) -> None:
    found: list[Compiled] = []
    options = {"deterministic": True} if how == "deterministic" else {}
    for size in ((20, 20),) * 2 if how == "static" else ((4, 6), (300, 5000)):
        target = "cpu" if how == "cpu" else "sm_90"
        found.append(compiled(store, *size, target=target, dynamic=how != "static", **options))
    assert [each.was_hit for each in found] == [False, True]
    (entry,) = store.entries()
    assert entry.variant == "main" and HINTS not in entry.contents


def test_bits_of_a_cpu_do_not_depend_on_the_first_call(tmp_path: Path) -> None:
    first, second = (
        compiled(Store(tmp_path / str(rows)), rows, columns, target="cpu") for rows, columns in ((3, 7000), (9000, 5))
    )
    assert first.sources == second.sources and first.report == second.report


def test_a_call_of_another_size_is_right_and_compiles_nothing(store: Store) -> None:
    seen: list[Compiled] = []
    compiler = Compiler(store=store, observer=seen.append)
    call = torch.compile(total, backend=compiler, dynamic=True, options={"target": "interpret"})
    for size in ((3, 50), (2, 9000), (70, 2)):
        x = torch.randn(size, dtype=torch.float64)
        torch.testing.assert_close(call(x), total(x))
    assert len(seen) == 1 and store.count() == 1
    (entry,) = store.entries()
    assert entry.text(HINTS) == '{"s0": 3, "s1": 50}'


def test_a_damaged_entry_is_built_again(store: Store) -> None:
    compiled(store, 10, 12, target="sm_90")
    (entry,) = store.entries()
    (entry.path / HINTS).write_text("{}")
    with pytest.warns(CorruptEntry, match=f"{HINTS} does not match its hash"):
        assert not compiled(store, 10, 12, target="sm_90").was_hit
    assert compiled(store, 10, 12, target="sm_90").was_hit


# --- which entry serves ---------------------------------------------------------------------------------------------


def entry(name: str, **hints: int) -> Entry:
    found = tuple((symbol(name, "size", 0), hint) for name, hint in hints.items())
    return Entry("k", name, Path("k"), hints_file(found))


def chosen(entries: list[Entry], hints: Hints) -> list[str]:
    return [each.variant for each in serving(entries, hints)]


def test_the_nearest_of_the_near_ones_is_first() -> None:
    entries = [entry("a", s0=64, s1=100), entry("b", s0=512, s1=100), entry("c", s0=200, s1=300), entry("d", s0=200)]
    assert chosen(entries, ((ROWS, 150), (COLUMNS, 100))) == ["d", "a", "b", "c"]
    assert chosen(entries, ((ROWS, 128), (COLUMNS, 26))) == ["d", "a", "b"]
    assert chosen(entries, ((ROWS, 2049), (COLUMNS, 100))) == []
    assert chosen(entries, ((ROWS, 2048), (COLUMNS, 400))) == ["b"]
    assert chosen(entries, ()) == ["a", "b", "c", "d"]


def test_a_number_that_is_0_or_less_counts_as_1() -> None:
    assert chosen([entry("a", s0=0), entry("b", s0=-7)], ((ROWS, 4),)) == ["a", "b"]
    assert chosen([entry("a", s0=4), entry("b", s0=5)], ((ROWS, -1),)) == ["a"]


def test_there_are_no_more_entries_than_allowed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(f"e{n}", s0=100**n) for n in range(1, MOST_ENTRIES + 1)]
    assert chosen(entries, ((ROWS, 2),))[0] == "e1"
    assert chosen(entries[1:], ((ROWS, 2),)) == []
    monkeypatch.setattr("minductor.driver_tasks.stores.MOST_ENTRIES", 2)
    hits = [compiled(store, 4, columns, target="sm_90").was_hit for columns in (20, 500, 9000)]
    assert hits == [False, False, True] and store.count() == 2
