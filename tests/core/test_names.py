"""Names are identifiers everywhere, short enough, and tell the ops."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.core.names import is_identifier, kernel_name, slug, unique_name


@given(st.text(max_size=30))
def test_a_slug_is_an_identifier(text: str) -> None:
    assert is_identifier(slug(text)) and slug(slug(text)) == slug(text)


@given(st.lists(st.text(max_size=30), max_size=12), st.integers(0, 10**6), st.integers(30, 80))
def test_a_kernel_name_fits(ops: list[str], number: int, limit: int) -> None:
    name = kernel_name(ops, number, limit)
    assert is_identifier(name) and len(name) <= limit and name.endswith(f"_{number}")


def test_a_kernel_name_keeps_the_ends() -> None:
    assert kernel_name(["add", "add", "mul"], 4) == "fused_add_mul_4"
    assert (
        kernel_name(["gelu", *(f"op{n}" for n in range(20)), "layer_norm"], 0, 40)
        == "fused_gelu_op0_op18_op19_layer_norm_0"
    )
    with pytest.raises(ValueError, match="cannot be 8 characters"):
        kernel_name(["add"], 0, 8)


@pytest.mark.parametrize("word", [*keyword.kwlist, "int", "register", "template", "", "2x", "a b", "é", "x\n"])
def test_words_of_the_languages_are_no_names(word: str) -> None:
    assert not is_identifier(word)


@given(st.sets(st.sampled_from(["x", "x_1", "x_2", "x_3"])))
def test_unique_is_free_and_leaves_free_names_alone(taken: set[str]) -> None:
    assert unique_name("x", taken) not in taken
    assert unique_name("y", taken) == "y"
