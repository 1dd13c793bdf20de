"""The words that options, markers and reports use. Every pytest run loads this file, so it imports nothing heavy.

Takes nothing. Gives tuples of words, the texts of the markers, and functions that word messages. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

# --compiler: the module and class of each adapter.
ADAPTERS: Mapping[str, str] = MappingProxyType(
    {
        "minductor": "pytest_plugin.adapters.minductor:Minductor",
        "inductor": "pytest_plugin.adapters.inductor:Inductor",
        "eager": "pytest_plugin.adapters.eager:Eager",
    }
)
# The group of entry points under which other packages name their adapters.
ENTRY_POINTS = "minductor_test_adapters"
# --golden
MODES = ("check", "new", "accept", "refresh", "review", "off")
# --minductor-store
STORES = ("fresh", "shared")
# --golden-unused
UNUSED_MODES = ("auto", "fail", "warn")
# @pytest.mark.golden(view=..., level=...). Each level compares everything that the levels before it compare.
VIEWS = ("kernel", "wrapper", "plan")
LEVELS = ("facts", "skeleton", "canonical", "exact")
# The attributes of a test's report that carry what the test proved and what mutants met; xdist carries them too.
REPORT_KEY = "minductor"
KILLS_KEY = "minductor_kills"
# The environment variable with the path to which a test in a process of its own writes digests of what it generated.
FINGERPRINT_VARIABLE = "MINDUCTOR_TEST_FINGERPRINT"
# The kinds of checks. tests/plugin/test_checks_can_fail.py names for each kind a test in which it fails.
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
# @pytest.mark.needs(NAME, ...); devices/capabilities.py tells when each is there
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
# The text of each marker in `pytest --markers`. markers.py documents what each one takes.
MARKERS: Mapping[str, str] = MappingProxyType(
    {
        "counts": "counts(kernels=1, bytes=at_most('2.1 MiB'), ...): the compiler must report these counts for each "
        f"run of `compiled`; the counts are {', '.join(COUNTS)}",
        "golden": "golden(view='kernel', level='skeleton'): compare the one run of the test with its golden file; "
        f"the views are {', '.join(VIEWS)}, the levels {', '.join(LEVELS)}",
        "memory": "memory(peak=at_most('inputs + output'), leaks=0, frees_inputs=True): the most bytes that each run "
        "of `compiled` may hold, how many storages it may leave, and whether it frees inputs after their last use",
        "deterministic": "deterministic(runs=3, hash_seeds=2, threads=(1, 2), clock=True): run the test again, in new "
        "processes with other hash seeds, on other numbers of threads, and with wrong time measurements; it must "
        "generate the same texts and the same bits",
        "each_variant": "each_variant(): repeat each call of `compiled` for each variant of its kernels, such as a row "
        "held whole, looped or cut; all must be eager's",
        "must_fail_under": "must_fail_under('fusion-off', ...): run the test again under each of these faults of the "
        "compiler; one of its checks must fail",
        "devices": "devices('interpret', 'cuda', min_arch='sm_80'): run the test on these devices in place of the "
        "default ones; 'compile:sm_90' compiles for a GPU that need not be there",
        "skip_on": "skip_on('cuda', reason='why'): skip the test on these devices",
        "needs": "needs('triton', 'big_gpu', ...): skip the test where one of these capabilities is absent; "
        f"the capabilities are {', '.join(CAPABILITIES)}",
        "compilers": "compilers('minductor', inductor=xfail('no block accesses on cpu')): skip the test for other "
        "compilers, and expect it to fail for those with an xfail",
    }
)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns the question "did you mean" for an unknown word that is nearly a known one, or an empty text.

    >>> suggestion("skeletn", LEVELS), suggestion("x", LEVELS)
    ("; did you mean 'skeleton'?", '')
    """
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def amount(count: int, what: str) -> str:
    """Returns a number with a noun, whose plural must be regular.

    >>> amount(1, "test"), amount(0, "kernel")
    ('1 test', '0 kernels')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
