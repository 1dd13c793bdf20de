"""Every model runs in eager, is deterministic, and gives each parameter a gradient."""

import pytest
import torch

from minductor.bench import models


@pytest.mark.parametrize("name", models.NAMES)
def test_training_step_reaches_every_parameter(name: str) -> None:
    module, inputs, loss_fn = models.make(name, size="tiny")
    loss = loss_fn(module(*inputs))
    loss.backward()
    assert loss.isfinite()
    for path, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, path


@pytest.mark.parametrize("name", models.NAMES)
def test_same_seed_same_numbers_and_the_callers_random_state_stays(name: str) -> None:
    before = torch.get_rng_state()
    first = models.make(name, size="tiny", seed=3)
    assert torch.equal(before, torch.get_rng_state())
    second = models.make(name, size="tiny", seed=3)
    other = models.make(name, size="tiny", seed=4)
    assert torch.equal(first.module(*first.inputs), second.module(*second.inputs))
    assert not torch.equal(first.module(*first.inputs), other.module(*other.inputs))


@pytest.mark.parametrize("name", models.NAMES)
def test_float64_copy_is_the_same_function(name: str) -> None:
    single = models.make(name, size="tiny")
    double = models.as_float64(single)
    expected = double.module(*double.inputs)
    assert expected.dtype == torch.float64
    torch.testing.assert_close(single.module(*single.inputs).double(), expected, rtol=1e-4, atol=1e-4)


def test_training_mode_moves_the_batch_norm_buffers_and_eval_does_not() -> None:
    module, inputs, _ = models.make("resnet", size="tiny")
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.eval()(*inputs)
    assert all(torch.equal(buffer, before[name]) for name, buffer in module.named_buffers())
    module.train()(*inputs)
    assert not any(torch.equal(buffer, before[name]) for name, buffer in module.named_buffers())


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_decoders_do_not_see_the_future(name: str) -> None:
    module, (ids,), _ = models.make(name, size="tiny")
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 61
    first, second = module(ids), module(changed)
    assert torch.allclose(first[:, :-1], second[:, :-1], atol=1e-6)
    assert not torch.allclose(first[:, -1], second[:, -1], atol=1e-3)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"gtp.*gpt, bert"):
        models.make("gtp")
    with pytest.raises(ValueError, match=r"huge.*bench, tiny"):
        models.make("gpt", size="huge")
