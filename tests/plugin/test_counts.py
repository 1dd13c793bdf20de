"""Declared facts are checked even if the body forgets to, and a run that ran nothing is no proof."""

import pytest

from pytest_plugin import at_least, at_most
from pytest_plugin.adapters import Facts
from pytest_plugin.oracle.counts import count_errors
from tests.plugin.conftest import Run

FACTS = Facts(kernels=2, externs=1, bytes=2_000_000, kernel_names=("a", "b"), extern_reasons=(("aten.mm", "no rule"),))


@pytest.mark.parametrize(
    "declared",
    [
        {"kernels": 2},
        {"kernels": at_most(2), "externs": at_least(1)},
        {"bytes": at_most("2 MiB")},
        {"bytes": at_most("2 MB")},
    ],
)
def test_true_facts(declared: dict[str, object]) -> None:
    assert count_errors(declared, FACTS) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"kernels": 1}, "kernels   1 declared, 2 found: a, b"),
        ({"kernels": at_most(1)}, "kernels   at most 1 declared, 2 found: a, b"),
        ({"externs": 0}, "externs   0 declared, 1 found: aten.mm (no rule)"),
        ({"bytes": at_most("1.9 MiB")}, "bytes     at most 1.9 MiB declared, 2000000 found"),
        ({"bytes": at_least("2 MiB")}, "bytes     at least 2 MiB declared, 2000000 found"),
        ({"registers": 4}, "registers 4 declared, not known to this compiler"),
    ],
)
def test_false_facts(declared: dict[str, object], says: str) -> None:
    assert count_errors(declared, FACTS) == [says]  # type: ignore[arg-type]


def test_reasons_for_refusals_are_shown() -> None:
    facts = Facts(kernels=2, refusals=(("fuse", "k0", "k1", "sizes differ"),))
    assert count_errors({"kernels": 1}, facts)[1] == "why       fuse: k0 | k1: sizes differ"
    assert count_errors({"externs": 1}, facts) == ["externs   1 declared, 0 found"]


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ("@pytest.mark.counts(kernels=1)\ndef test_x(compiled):\n    compiled(lambda x: x + 1, torch.ones(3))", ""),
        (
            "@pytest.mark.counts(kernels=0)\ndef test_x(compiled):\n    compiled(lambda x: x + 1, torch.ones(3))",
            "  kernels   0 declared, 1 found: graph",
        ),
        ("@pytest.mark.counts(kernels=0)\ndef test_x():\n    pass", "  nothing was captured: no graph was compiled"),
        (
            "@pytest.mark.counts(kernels=0)\ndef test_x(compiled):\n    compiled(lambda n: n, 3)",
            "  nothing was captured: no graph was compiled",
        ),
        ("@pytest.mark.counts(kernels=0)\ndef test_x(compiled):\n    compiled(lambda x: x, torch.ones(3))", ""),
        ("def test_x(compiled):\n    compiled(lambda x: x, torch.ones(3))", "nothing ran  test_x?cpu?"),
        ("def test_x(compiled):\n    compiled(lambda n: n, 3)", "nothing ran  test_x?cpu?"),
        (
            "def test_x(compiled):\n    for fn in (lambda x: x + 1, lambda x: x):\n        compiled(fn, torch.ones(3))",
            "nothing ran  test_x?cpu?",
        ),
    ],
)
def test_in_a_suite(pytester: pytest.Pytester, run: Run, test: str, says: str) -> None:
    pytester.makepyfile(f"import pytest, torch\n\n{test}")
    result = run()
    if says:
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([says])
    else:
        result.assert_outcomes(passed=1)


def test_a_failure_tells_all_that_the_markers_refuse(pytester: pytest.Pytester, run: Run) -> None:
    marked = "@pytest.mark.golden\n@pytest.mark.counts(kernels=7)\ndef test_x(compiled):"
    pytester.makepyfile(f"import pytest, torch\n\n{marked}\n    compiled(lambda x: x + 1, torch.ones(3))")
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  kernels   7 declared, 1 found: graph", "golden written  test_x*"])


def test_the_nearest_marker_wins_and_strict_xfail_holds(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        pytestmark = pytest.mark.counts(kernels=7, externs=0)

        @pytest.mark.counts(kernels=1)
        def test_near(compiled):
            compiled(lambda x: x + 1, torch.ones(3))

        @pytest.mark.xfail(strict=True)
        def test_far(compiled):
            compiled(lambda x: x + 1, torch.ones(3))
        """
    )
    run().assert_outcomes(passed=1, xfailed=1)


def test_each_graph_that_has_both_kernels_is_asked() -> None:
    def ask(first: str, second: str) -> tuple[str, ...]:
        if first != "k0":
            raise KeyError(first)
        return (f"{first} and {second}",)

    facts = Facts(askers=(ask,)) + Facts() + Facts(askers=(ask,))
    assert facts.why_not("k0", "k1") == ("k0 and k1",) * 2
    with pytest.raises(KeyError, match="k1"):
        facts.why_not("k1", "k0")
    with pytest.raises(LookupError, match="does not tell"):
        Facts().why_not("k0", "k1")
