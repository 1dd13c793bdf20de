"""Other strides in random graphs: values, strides and shared memory of results stay as they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.frontend.rewrites.apply_rewrites import apply_rewrites
from minductor.options import Options
from minductor.target import Env, by_name
from tests.rewrite_rows import aten, one_call

STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a.sin(),
    lambda a, b: a.transpose(0, -1),
    lambda a, b: a.reshape(-1)[: a.shape[0]],
    lambda a, b: a.contiguous(),
    lambda a, b: a.clone(),
    lambda a, b: a.unsqueeze(0),
    lambda a, b: a[:1],
    lambda a, b: a.split(1, 0)[0],
    lambda a, b: a + b.sum(),
    lambda a, b: torch.cat([a, a], 0),
    lambda a, b: a.expand(2, *a.shape),
    lambda a, b: a if 0 in a.stride() else a.mul_(2),
    lambda a, b: a.softmax(-1),
    lambda a, b: a.as_strided((2, 2), (2, 1)),
)
Program = Sequence[tuple[int, int, int]]  # of each step: its number, and which values it takes


def run(steps: Program, kept: Sequence[int], x: Tensor) -> list[Tensor]:
    """The kept values of a program that begins with exp."""
    values = [x.exp()]
    for number, first, second in steps:
        values.append(STEPS[number](values[first % len(values)], values[second % len(values)]))
    return [values[n % len(values)] for n in kept]


def turned(site: Any, args: Any) -> Any:
    """exp with the strides of a transposed tensor."""
    swapped = site.write(aten.transpose.int, args[0], 0, 1)
    copy = site.write(aten.clone.default, swapped, memory_format=torch.contiguous_format)
    return site.write(aten.transpose.int, site.write(aten.exp.default, copy), 0, 1)


def sharing(values: Sequence[Tensor]) -> list[int]:
    kept = [value.untyped_storage()._cdata for value in values]
    return [kept.index(each) for each in kept]


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_random_graphs_give_the_same(mode: str, steps: Program, kept: Sequence[int]) -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    gm = make_fx(lambda x: run(steps, kept, x), tracing_mode=mode)(x)
    text = gm.code
    before = gm(x)
    row = one_call(aten.exp.default, turned, keeps_strides=False)
    (note,) = apply_rewrites(gm, [row], Env(Options(), by_name("cpu")))
    after = gm(x)
    gm.graph.lint()
    torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-9)
    assert [value.stride() for value in after] == [value.stride() for value in before]
    assert sharing(after) == sharing(before)
    for node in gm.graph.output_node().all_input_nodes:
        assert isinstance(node.meta["val"], torch.Tensor)
    if note.why:
        gm.recompile()
        assert gm.code == text  # the graph is as it was
