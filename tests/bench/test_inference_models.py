"""The twelve inference models: deterministic, the same in float64, and equal to the modules that they write out."""

import pytest
import torch
from torch import nn

from minductor.bench import cases, inference_models, models


@pytest.mark.parametrize("name", inference_models.NAMES)
def test_same_numbers_each_time_and_the_callers_random_state_stays(name: str) -> None:
    before = torch.get_rng_state()
    first = inference_models.make(name, size="tiny")
    assert torch.equal(before, torch.get_rng_state())
    second = inference_models.make(name, size="tiny")
    with torch.no_grad():
        assert torch.equal(first.module(*first.inputs), second.module(*second.inputs))


@pytest.mark.parametrize("name", inference_models.NAMES)
def test_float64_case_is_the_same_function_without_gradients(name: str) -> None:
    own = cases.build(f"frozen/{name}", size="tiny")
    truth = cases.build(f"frozen/{name}", size="tiny", precision="float64")
    (got,), (expected,) = (cases.step(program, program.function) for program in (own, truth))
    assert expected.dtype == torch.float64 and not got.requires_grad and got.std() > 0
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)


def test_four_models_of_twelve_are_convolution_nets_whose_batch_norms_do_something() -> None:
    nets = [
        name
        for name in inference_models.NAMES
        if sum(isinstance(each, nn.Conv2d) for each in inference_models.make(name, size="tiny").module.modules()) > 3
    ]
    assert nets == ["resnet", "mobilenet", "unet", "convnext"] and len(inference_models.NAMES) == 12
    for name in nets[:3]:
        norms = [
            each for each in inference_models.make(name, size="tiny").module.modules() if hasattr(each, "momentum")
        ]
        assert norms and all(each.running_mean.abs().min() > 0 and not each.training for each in norms), name


def test_the_written_attention_of_bert_is_the_attention_of_models() -> None:
    written, inputs, _ = inference_models.make("bert", size="tiny")
    fused = models.make("bert", size="tiny").module.eval()
    state = dict(fused.state_dict())
    for name in [name for name in state if ".qkv." in name]:
        for part, value in zip(("query", "key", "value"), state.pop(name).chunk(3), strict=True):
            state[name.replace("qkv", part)] = value
    written.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(written(*inputs), fused(*inputs), rtol=1e-4, atol=1e-4)


def test_the_unrolled_lstm_is_the_lstm_of_torch() -> None:
    written, (x,), _ = inference_models.make("lstm", size="tiny")
    fused = nn.LSTM(written.inputs.in_features, written.hidden.in_features, batch_first=True)
    with torch.no_grad():
        fused.weight_ih_l0.copy_(written.inputs.weight)
        fused.weight_hh_l0.copy_(written.hidden.weight)
        fused.bias_ih_l0.copy_(written.inputs.bias)
        fused.bias_hh_l0.zero_()
        torch.testing.assert_close(written(x), written.head(fused(x)[0][:, -1]))


def test_t5_adds_its_bias_to_the_scores_by_distance() -> None:
    module, (ids,), _ = inference_models.make("t5", size="tiny")
    attention = module.layers[0]["attention"]
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    attention.register_forward_hook(lambda layer, inputs, result: seen.append((inputs[0], result)))
    with torch.no_grad():
        module.bias.weight[16] += 1e4  # the row of distance 0: each token sees itself and no other
        module(ids)
        x, result = seen[0]
        torch.testing.assert_close(result, attention.out(attention.value(x)))
        module.bias.weight[16] -= 1e4
        module.bias.weight[17] += 1e4  # each token but the last sees the next one
        module(ids)
        torch.testing.assert_close(seen[1][1][:, :-1], attention.out(attention.value(x))[:, 1:])


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"mobile.*resnet, mobilenet"):
        inference_models.make("mobile")
