"""All operators of torch's database, a little of each: what fits into a few minutes. The whole is `make opinfo`.

In float32 forward every operator runs two samples; of the other dtypes and modes each operator runs one, by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest
import torch

from tests.opinfo.drive import Choice, Record, mixed, operators

PARTS = 16
OTHERS = (
    ("float64", "forward"),
    ("bfloat16", "forward"),
    ("float16", "forward"),
    ("int64", "forward"),
    ("int32", "forward"),
    ("uint8", "forward"),
    ("bool", "forward"),
    ("float32", "gradient"),
    ("float64", "gradient"),
    ("float32", "inplace"),
    ("float32", "forward-dynamic"),
    ("float32", "gradient-dynamic"),
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def own(name: str, dtype: str, mode: str) -> bool:
    """Whether this is the one of OTHERS that the operator runs: its names's, or the next one that it takes."""
    start = crc32(name.encode()) % len(OTHERS)
    order = (*OTHERS[start:], *OTHERS[:start])
    return (dtype, mode) == next(((d, m) for d, m in order if name in operators(getattr(torch, d), m)), None)


def has_nothing_wrong(record: Record) -> bool:
    print("\n".join((*record.wrong, *record.failed)))
    return record.right > 0 and not record.wrong and not record.failed


@pytest.mark.parametrize("part", range(PARTS))
def test_float32_forward(part: int) -> None:
    table = operators(torch.float32, "forward")
    names = list(table)[part::PARTS]
    assert has_nothing_wrong(mixed([table[name] for name in names], torch.float32, "forward", Choice(limit=2, seed=1)))


@pytest.mark.parametrize(("dtype", "mode"), OTHERS)
def test_others(dtype: str, mode: str) -> None:
    table = operators(getattr(torch, dtype), mode)
    names = [name for name in table if own(name, dtype, mode)]
    assert has_nothing_wrong(
        mixed([table[name] for name in names], getattr(torch, dtype), mode, Choice(limit=1, seed=1))
    )


def test_every_operator_is_in_one_of_the_others() -> None:
    tables = {(d, m): operators(getattr(torch, d), m) for d, m in OTHERS}
    for name in operators(torch.float32, "forward"):
        assert sum(name in tables[d, m] and own(name, d, m) for d, m in OTHERS) == 1
