"""The backends of the benchmark that treat weights as constants: TorchInductor with freezing, and OpenVINO.

Takes: a function or module that is called without gradients. Gives: the same function, compiled at its first call.
Refuses: OpenVINO where it is not installed (RuntimeError, which says what installs it).

`MINDUCTOR` has minductor's own options for it, for `torch.compile`.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from minductor.bench.peer import HOME

NAMES = ("minductor-frozen", "inductor-frozen", "openvino")
MINDUCTOR: Mapping[str, Any] = MappingProxyType({"freeze": True})


def compile_at_first_call(compile_for: Callable[[tuple[Tensor, ...]], Callable[..., Any]]) -> Callable[..., Any]:
    """A function that calls what `compile_for` returned for the arguments of the first call."""
    compiled: list[Callable[..., Any]] = []

    def call(*inputs: Tensor) -> Any:
        if not compiled:
            compiled.append(compile_for(inputs))
        return compiled[0](*inputs)

    return call


def inductor_frozen(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled by TorchInductor with freezing.

    Dynamo reads the setting from the configuration while it traces, which the first call does. The option beside it
    keeps this result apart from that of the backend "inductor", which Dynamo takes for the same backend otherwise.
    """
    config: Any = importlib.import_module(f"{HOME}.config")

    def compile_for(inputs: tuple[Tensor, ...]) -> Callable[..., Any]:
        compiled = torch.compile(function, backend="inductor", options={"freezing": True})
        with config.patch(freezing=True):
            compiled(*inputs)
        return compiled

    return compile_at_first_call(compile_for)


def openvino(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` converted by OpenVINO, on as many threads as torch has, in float32.

    `torch.compile(backend="openvino")` of OpenVINO 2026.4 fails on four of five models with torch 2.13, so that the
    converter is called itself. It reads the memory of torch's tensors, and its results are copied.
    """
    if importlib.util.find_spec("openvino") is None:
        raise RuntimeError("openvino is not installed: pip install minductor[openvino]")
    library: Any = importlib.import_module("openvino")

    def compile_for(inputs: tuple[Tensor, ...]) -> Callable[..., Any]:
        settings = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
        }
        model = library.convert_model(function, example_input=inputs)
        compiled = library.compile_model(model, "CPU", settings)

        def call(*inputs: Tensor) -> Any:
            results = compiled([each.numpy() for each in inputs], share_inputs=True)
            tensors = tuple(map(torch.from_numpy, results.values()))
            return tensors[0] if len(tensors) == 1 else tensors

        return call

    return compile_at_first_call(compile_for)
