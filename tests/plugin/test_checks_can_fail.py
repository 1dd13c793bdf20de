"""Each kind of check has a test in which it refuses: a check that cannot fail proves nothing."""

import ast
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_plugin.vocabulary import CHECKS, COUNTS, LEVELS, VIEWS

HERE = Path(__file__).parent
# kind of check -> the test that is red without it
FAILING_TESTS: Mapping[str, str] = MappingProxyType(
    {
        "numeric": "test_compiled.py::test_wrong",
        "counts": "test_counts.py::test_in_a_suite",
        "memory": "test_memory.py::test_a_storage_that_is_not_freed_is_red_whatever_is_declared",
        "golden": "test_golden.py::test_another_kernel_fails_and_is_shown",
        "golden at facts": "test_end_of_run.py::test_levels_views_and_drift",
        "golden at skeleton": "test_end_of_run.py::test_levels_views_and_drift",
        "golden at canonical": "test_golden.py::test_another_kernel_fails_and_is_shown",
        "golden at exact": "test_golden.py::test_names_and_layout_are_drift_at_canonical_and_fail_at_exact",
        "damaged goldens": "../faults/test_damaged_goldens.py::test_a_damaged_golden_is_refused_before_it_is_compared",
        "unused goldens": "test_end_of_run.py::test_unused_files_are_found_and_only_accept_deletes_them",
        "execution": "test_counts.py::test_in_a_suite",
        "capture": "test_adapters.py::test_graphs_of_another_run_are_refused",
        "store": "test_minductor_adapter.py::test_a_test_that_uses_the_users_store_fails",
        "deterministic": "test_mutants.py::test_what_differs_between_runs_threads_and_hash_seeds_is_told",
        "must_fail_under": "test_mutants.py::test_a_test_that_must_fail_under_a_fault_fails_if_it_does_not",
        "known failure": "test_selection.py::test_a_marker_says_which_compilers_a_test_is_for",
    }
)


@pytest.mark.parametrize("kind", CHECKS)
def test_each_kind_of_check_has_a_test_in_which_it_fails(kind: str) -> None:
    file, _, name = FAILING_TESTS[kind].partition("::")
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    (test,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    says = ast.unparse(test)
    assert "failed=" in says or "errors=" in says or "pytest.raises" in says or "TESTS_FAILED" in says


def test_the_table_has_every_kind_and_no_other() -> None:
    assert set(FAILING_TESTS) == set(CHECKS)
    assert {f"golden at {level}" for level in LEVELS} <= set(CHECKS) and COUNTS and VIEWS
