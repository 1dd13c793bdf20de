"""The words that options and markers take, and that reports use. Every pytest run loads this file, so it loads nothing.

Takes nothing; gives tuples of words, and how they are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
# --minductor-store
STORES = ("fresh", "shared")
# --golden-unused
UNUSED_MODES = ("auto", "fail", "warn")
# @pytest.mark.golden(view=..., level=...); each level asks for all that those before it do
VIEWS = ("kernel", "wrapper", "plan")
LEVELS = ("facts", "skeleton", "canonical", "exact")
# The attributes of a test's report that carry what the test proved and what mutants met; xdist carries them too.
REPORT_KEY = "minductor"
KILLS_KEY = "minductor_kills"
# The environment variable with the path to which a test in a process of its own writes digests of what it generated.
FINGERPRINT_VARIABLE = "MINDUCTOR_TEST_FINGERPRINT"
# Everything that can make a test of ours red; tests/plugin/test_checks_can_fail.py has a test that must fail for each.
CHECKS = (
    "numeric",
    "counts",
    "memory",
    "golden",
    *(f"golden at {level}" for level in LEVELS),
    "damaged goldens",
    "unused goldens",
    "execution",
    "capture",
    "store",
    "deterministic",
    "must_fail_under",
    "known failure",
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
# What `pytest --markers` says of each.
MARKERS: Mapping[str, str] = MappingProxyType(
    {
        "counts": "counts(kernels=1, bytes=at_most('2.1 MiB'), ...): what the compiler must report of each `compiled` "
        f"run; the counts are {', '.join(COUNTS)}",
        "golden": "golden(view='kernel', level='skeleton'): compare the test's one run with its golden file; "
        f"the views are {', '.join(VIEWS)}, the levels {', '.join(LEVELS)}",
        "memory": "memory(peak=at_most('inputs + output'), leaks=0, frees_inputs=True): what each `compiled` run may "
        "hold at most, how many storages may outlive a call, and whether inputs are dropped at their last use",
        "deterministic": "deterministic(runs=3, hash_seeds=2, threads=(1, 2), clock=True): the test is run again, in "
        "other processes, on so many threads, and while what the compiler measures is wrong, and has to get the same "
        "texts and the same bits",
        "must_fail_under": "must_fail_under('fusion-off', ...): the test is run under each of these faults of the "
        "compiler and has to see it",
        "devices": "devices('interpret', 'cuda', min_arch='sm_80'): the devices that the test runs on, not the default "
        "ones; 'compile:sm_90' compiles its kernels for a GPU that is not here",
        "skip_on": "skip_on('cuda', reason='why'): the devices on which the test is skipped",
        "needs": "needs('triton', 'big_gpu', ...): capabilities without which the test is skipped, with the reason; "
        f"there are {', '.join(CAPABILITIES)}",
        "compilers": "compilers('minductor', inductor=xfail('no block accesses on cpu')): the compilers that the test "
        "is for, and those that are known to fail it",
    }
)


def suggestion(word: str, known: Iterable[str]) -> str:
    """The question that follows an unknown word, if it is nearly a known one.

    >>> suggestion("skeletn", LEVELS), suggestion("x", LEVELS)
    ("; did you mean 'skeleton'?", '')
    """
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def amount(count: int, what: str) -> str:
    """So many of what has a regular plural.

    >>> amount(1, "test"), amount(0, "kernel")
    ('1 test', '0 kernels')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
