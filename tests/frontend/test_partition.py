"""Merging equal nodes before the split."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.frontend.torch_graph.equality_gradients import round_compared_values
from minductor.frontend.torch_graph.split_joint_graph import merge_equal_nodes, remove_detach
from tests.frontend.tracing import compiled, grads, lowered, randn


def merged(fn, *args: torch.Tensor) -> tuple[int, torch.fx.GraphModule]:
    gm = make_fx(fn, tracing_mode="fake")(*args)
    dropped = merge_equal_nodes(gm.graph)
    gm.recompile()
    torch.testing.assert_close(gm(*args), fn(*args))
    return dropped, gm


def test_equal_calls_are_merged() -> None:
    assert merged(lambda x: x.sin() + x.sin() * x.exp() + x.exp(), randn(3))[0] == 2


def test_chains_are_merged() -> None:
    assert merged(lambda x: x.sin().exp() + x.sin().exp(), randn(3))[0] == 2


def test_numbers_of_another_type_are_other_arguments() -> None:
    assert merged(lambda x: (x + 1) * (x + 1.0), randn(3))[0] == 0
    assert merged(lambda x: (x * 0.0) + (x * -0.0), randn(3))[0] == 0


def test_what_the_caller_sees_stays_apart() -> None:
    assert merged(lambda x: (x.sin(), x.sin()[1:]), randn(3))[0] == 0
    assert merged(lambda x: (x.sin(), x.sin().split(2)[0]), randn(3))[0] == 0
    assert merged(lambda x: (x.sin() + 1, x.sin()), randn(3))[0] == 1
    # the second of three is merged with the first, and so shows it; the third must not be
    assert merged(lambda x: (x.sin() + 1, x.sin(), x.sin()), randn(3))[0] == 1


def test_random_numbers_and_writes_stay() -> None:
    gm = make_fx(lambda x: torch.rand_like(x) + torch.rand_like(x), tracing_mode="fake")(randn(3))
    assert merge_equal_nodes(gm.graph) == 0
    gm = make_fx(lambda x: (x.clone().add_(1), x.add_(1), x.add_(1))[2], tracing_mode="fake")(randn(3))
    assert merge_equal_nodes(gm.graph) == 0


def test_detached_results_stay_and_others_go() -> None:
    gm = make_fx(lambda x: (x.sin().detach() * 2, x.exp().detach()), tracing_mode="fake")(randn(3))
    remove_detach(gm.graph)
    detach = torch.ops.aten.detach.default
    assert [node.args[0].name for node in gm.graph.nodes if node.target is detach] == ["exp"]


def test_what_is_compared_is_rounded_as_far_as_it_may_be_computed_again() -> None:
    """Not so views, float32, the product of matrices, and what stands before that."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = ((x.cos() @ x).exp() + y.float().sin().bfloat16()).t().chunk(2)[0]
        return made == y[:2], made.sqrt()

    gm = make_fx(fn, tracing_mode="fake")(randn(3, 3).bfloat16(), randn(3, 3).bfloat16())
    round_compared_values(gm.graph)
    cast = torch.ops.prims.convert_element_type.default
    assert [node.args[0].name for node in gm.graph.nodes if node.target is cast] == ["exp", "_to_copy_1", "add"]
    gm.graph.lint()
    assert [user.name for node in gm.graph.nodes if node.name == "add" for user in node.users] == [
        node.name for node in gm.graph.nodes if node.target is cast and node.args[0].name == "add"
    ]


def test_what_is_compared_with_its_maximum_is_not_computed_again() -> None:
    """The backward would sum the row's mean in another order, find no maximum, and divide by 0."""
    compiled(lambda x: torch.var_mean(torch.nn.functional.silu(x), 1)[1].amax(0), *grads(randn(7, 8, 4).double()))


def test_cheap_values_are_computed_again_and_not_saved() -> None:
    """Autograd detaches what it saves; the partitioner would keep that, and so the exponential, for the backward."""
    programs = lowered(lambda x: (x.exp() * 2).sin(), *grads(randn(64))).programs
    backward = programs[-1]
    assert backward.name == "backward"
    assert len(backward.inputs) == 2  # x, and the gradient
