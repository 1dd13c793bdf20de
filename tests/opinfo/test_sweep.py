"""All operators of torch's database, a little of each. The whole is `make opinfo`.

In float32 forward every operator runs one sample, and another one in one of the other dtypes and modes, by its name.
A sixteenth of the operators, chosen by their names, runs in `make test`, the others in `make test-all`.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest
import torch

from tests.opinfo.drive import Choice, Record, mixed, operators

SIXTEENTHS, PARTS = 16, 2
CASES = [
    pytest.param(sixteenth, part, marks=() if sixteenth == 0 else pytest.mark.long, id=f"{sixteenth}-{part}")
    for sixteenth in range(SIXTEENTHS)
    for part in range(PARTS)
]
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
# The first sixteenth, and the others together.
IS_REGULAR = [pytest.param(True, id="regular"), pytest.param(False, id="rest", marks=pytest.mark.long)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def sixteenth_of(name: str) -> int:
    """The sixteenth, of 0 to 15, that the operator of this name is in.

    It is taken from higher bits of the hash than those that `own` takes, so that the first one has operators of all
    OTHERS.
    """
    return crc32(name.encode()) // 256 % SIXTEENTHS


def own(name: str, dtype: str, mode: str) -> bool:
    """Whether this is the one of OTHERS that the operator runs: its name's, or the next one that it takes."""
    start = crc32(name.encode()) % len(OTHERS)
    order = (*OTHERS[start:], *OTHERS[:start])
    return (dtype, mode) == next(((d, m) for d, m in order if name in operators(getattr(torch, d), m)), None)


def has_nothing_wrong(record: Record) -> bool:
    print("\n".join((*record.wrong, *record.failed)))
    return record.right > 0 and not record.wrong and not record.failed


@pytest.mark.parametrize(("sixteenth", "part"), CASES)
def test_float32_forward(sixteenth: int, part: int) -> None:
    table = operators(torch.float32, "forward")
    names = [name for name in table if sixteenth_of(name) == sixteenth][part::PARTS]
    assert has_nothing_wrong(mixed([table[name] for name in names], torch.float32, "forward", Choice(limit=1, seed=1)))


@pytest.mark.parametrize("is_regular", IS_REGULAR)
@pytest.mark.parametrize(("dtype", "mode"), OTHERS)
def test_others(dtype: str, mode: str, is_regular: bool) -> None:
    table = operators(getattr(torch, dtype), mode)
    names = [name for name in table if own(name, dtype, mode) and (sixteenth_of(name) == 0) == is_regular]
    assert has_nothing_wrong(
        mixed([table[name] for name in names], getattr(torch, dtype), mode, Choice(limit=1, seed=1))
    )


def test_every_operator_is_in_one_of_the_others() -> None:
    tables = {(d, m): operators(getattr(torch, d), m) for d, m in OTHERS}
    for name in operators(torch.float32, "forward"):
        assert sum(name in tables[d, m] and own(name, d, m) for d, m in OTHERS) == 1


def test_sixteenths_are_of_like_size() -> None:
    table = operators(torch.float32, "forward")
    counts = [sum(sixteenth_of(name) == each for name in table) for each in range(SIXTEENTHS)]
    assert min(counts) > 0.035 * len(table)
