"""Backends that take weights for constants: they compile once, apart from the others, and say what they lack."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import minductor
from minductor.bench import frozen_backends, measure


def test_a_function_is_compiled_once_and_for_the_arguments_of_its_first_call() -> None:
    seen: list[tuple[Tensor, ...]] = []

    def compile_for(inputs: tuple[Tensor, ...]) -> Any:
        seen.append(inputs)
        return torch.add

    call = frozen_backends.compile_at_first_call(compile_for)
    one = torch.ones(2)
    assert seen == []
    assert call(one, one).tolist() == [2.0, 2.0] and call(one, one + 1).tolist() == [3.0, 3.0]
    assert len(seen) == 1 and all(each is one for each in seen[0])


@pytest.mark.long  # TorchInductor builds its headers first
def test_frozen_inductor_keeps_the_old_weight_and_plain_inductor_beside_it_does_not() -> None:
    torch.compiler.reset()
    module, x = nn.Linear(16, 16).eval(), torch.randn(4, 16)
    with torch.no_grad():
        expected = module(x)
        plain, frozen = (measure.compile_with(name, module) for name in ("inductor", "inductor-frozen"))
        for function in (plain, frozen):
            torch.testing.assert_close(function(x), expected)
        module.weight.zero_()
        torch.testing.assert_close(frozen(x), expected)
        torch.testing.assert_close(plain(x), module.bias.expand(4, 16))


def test_minductor_is_given_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(torch, "compile", lambda function, **rest: given.update(rest) or function)
    assert measure.compile_with("minductor-frozen", torch.sin) is torch.sin
    assert given == {"backend": minductor.minductor, "options": {"freeze": True}}


def test_without_openvino_the_failure_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_backends.importlib.util, "find_spec", lambda name: None)
    found = measure.running("micro/sum_inner", ["eager", "openvino"], 1, "tiny")
    assert list(found["samples"]) == ["eager"]
    assert "pip install minductor[openvino]" in found["failures"]["openvino"]


class Pair(nn.Module):
    """A module with two results."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x * 2


def test_openvino_gives_tensors_of_its_own_memory() -> None:
    pytest.importorskip("openvino", reason="needs openvino, of the extra `openvino`")
    linear, x = nn.Linear(8, 4).eval(), torch.randn(3, 8)
    with torch.no_grad():
        call = frozen_backends.openvino(linear)
        first, second = call(x), call(x + 1)
        torch.testing.assert_close(first, linear(x))
        torch.testing.assert_close(second, linear(x + 1))
        more, twice = frozen_backends.openvino(Pair())(x)
        assert torch.equal(more, x + 1) and torch.equal(twice, x * 2)


def test_the_reason_of_a_failure_is_the_backends_own_and_not_dynamos() -> None:
    function = torch.compile(torch.sin, backend=minductor.minductor, options={"freezzze": True})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        function(torch.ones(2))
    assert measure.short_text(caught.value).startswith("UnknownOption: [MD001] unknown option 'freezzze'")
