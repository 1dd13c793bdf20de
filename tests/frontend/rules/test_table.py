"""The table of all rules: each row is for an operator of torch, and no operator has two rules or a decomposition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from minductor.frontend.capture import schemas
from minductor.frontend.rules import grid_sample, matmul, random, table, window
from minductor.frontend.rules.table import FAMILIES, RULES, family
from minductor.frontend.torch_graph.decompositions import DECOMPOSED

# Some torch has not: the first is new in 2.12, the second exists once torch's own compiler has been imported.
NOT_ALWAYS_THERE = {"aten._foreach_clone.default", "prims.fma.default"}


def test_every_rule_is_for_an_operator_of_torch() -> None:
    unknown = {op for op in RULES if schemas.find_overload(op) is None}
    assert unknown <= NOT_ALWAYS_THERE


def test_every_file_with_rules_is_a_family() -> None:
    folder = Path(table.__file__).parent
    with_rules = {file.stem for file in folder.glob("*.py") if "\nRULES" in file.read_text(encoding="utf-8")}
    assert with_rules - {"table", "complex"} == set(FAMILIES)


def test_no_operator_has_two_rules() -> None:
    counts = Counter(op for name in FAMILIES for op in family(name))
    assert not [op for op, n in counts.items() if n > 1]
    assert len(RULES) == len(counts)


def test_no_operator_is_both_taken_apart_and_taken_whole() -> None:
    whole = {op.split(".")[1] for op in RULES}
    assert not whole & set(DECOMPOSED)


def test_reasons_are_for_operators_without_a_rule_or_that_rules_give_back() -> None:
    both = {name for name in schemas.REASONS if f"aten.{name}.default" in RULES}
    by_the_library = (*matmul.RULES, *random.RULES, *window.RULES, *grid_sample.RULES)
    assert both <= {"empty_strided", "_local_scalar_dense"} | {op.split(".")[1] for op in by_the_library}
