"""Large results lie on huge pages, which the system makes much faster than small ones."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

SMAPS = Path("/proc/self/smaps")
NEEDS_HUGE_PAGES = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no huge pages"
)


def asks_for_huge_pages(tensor: Tensor) -> bool:
    """Whether the mapping around the middle of a tensor has the flag `hg`, by the system's own table."""
    middle = tensor.data_ptr() + tensor.nbytes // 2
    is_here = False
    for line in SMAPS.read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            is_here = int(found[1], 16) <= middle < int(found[2], 16)
        elif is_here and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("no mapping holds the tensor")


def scaled(x: Tensor) -> Tensor:
    return x * 2 + 1


@NEEDS_HUGE_PAGES
@pytest.mark.parametrize(
    ("dynamic", "wrapper"),
    [
        (False, "python"),
        (True, "cpp"),
        pytest.param(True, "python", marks=pytest.mark.long),
        pytest.param(False, "cpp", marks=pytest.mark.long),
    ],
)
def test_a_large_result_asks_for_huge_pages(wrapper: str, dynamic: bool) -> None:
    compiled = torch.compile(scaled, backend="minductor", dynamic=dynamic, options={"wrapper": wrapper})
    x = torch.randn(4096, 4099)  # more than 32 MiB: the C library maps such memory anew for each tensor
    result = compiled(x)
    assert torch.equal(result, scaled(x))
    assert asks_for_huge_pages(result)
    assert not asks_for_huge_pages(scaled(x)), "eager does not, so the check can fail"


def test_a_small_result_has_no_line_for_them(tmp_path: Path) -> None:
    x = torch.randn(64, 64)
    torch.compile(scaled, backend="minductor", dynamic=False, options={"cache_dir": str(tmp_path)})(x)
    (text,) = [path.read_text() for path in tmp_path.rglob("wrapper.py")]
    assert "on_huge_pages" not in text
