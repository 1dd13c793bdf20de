"""The words that options and markers take. Every pytest run loads this file, so it loads nothing.

Takes nothing; gives tuples of words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# --compiler: where each adapter lives.
ADAPTERS: Mapping[str, str] = MappingProxyType(
    {
        "minductor": "pytest_plugin.adapters.minductor:Minductor",
        "inductor": "pytest_plugin.adapters.inductor:Inductor",
        "eager": "pytest_plugin.adapters.eager:Eager",
    }
)
# Packages bring adapters of their own under this group of entry points.
ENTRY_POINTS = "minductor_test_adapters"
# --golden
MODES = ("check", "new", "accept", "refresh", "review", "off")
# --golden-unused
UNUSED = ("auto", "fail", "warn")
# @pytest.mark.golden(view=..., level=...); each level asks for all that those before it do
VIEWS = ("kernel", "wrapper", "plan")
LEVELS = ("facts", "skeleton", "canonical", "exact")
# Everything that can make a test of ours red; tests/plugin/test_twins.py has a test that must fail for each.
CHECKS = (
    "numeric",
    "counts",
    "memory",
    "golden",
    *(f"golden at {level}" for level in LEVELS),
    "unused goldens",
    "execution",
    "capture",
    "store",
    "deterministic",
    "must_fail_under",
)
# @pytest.mark.needs(NAME, ...): what each is, capabilities.py says
CAPABILITIES = ("triton", "gpu", "bf16", "fp8", "descriptors", "big_gpu", "two_gpus", "cxx", "chromium")
# @pytest.mark.counts(NAME=...)
COUNTS = (
    "kernels",
    "externs",
    "bytes",
    "operations",
    "peak",
    "block_accesses",
    "block_pointers",
    "descriptors",
    "tiles",
    "registers",
    "spills",
)
