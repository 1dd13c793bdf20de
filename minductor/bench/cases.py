"""One name for each thing that is measured: `micro/NAME`, `model/NAME/inference`, `model/NAME/training`.

Takes: a case name. Gives: a `Program`, the function a backend compiles with its inputs, and `step`, one timed run of
it. Refuses: unknown names, with the near ones.

>>> program = build("micro/sum_inner")
>>> [tuple(result.shape) for result in step(program, program.function)]
[(2048,)]
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minductor.bench import micro, models
from minductor.core.errors import suggestion

Function = Callable[..., Any]
FLAGSHIP = "micro/layer_norm_gelu"
GPT_TRAINING = "model/gpt/training"


@dataclass(frozen=True, slots=True)
class Program:
    """What a backend compiles. `state` are the buffers a run may change; no `leaves` means inference."""

    function: Function
    inputs: tuple[Tensor, ...]
    leaves: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    cotangent: Tensor | None


def micro_names() -> tuple[str, ...]:
    return tuple(f"micro/{name}" for name in micro.CASES)


def model_names() -> tuple[str, ...]:
    return tuple(f"model/{name}/{mode}" for name in models.NAMES for mode in ("inference", "training"))


def matching(names: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The names that contain one of the wanted words; all of them if nothing is wanted."""
    unknown = [word for word in wanted if not any(word in name for name in names)]
    if unknown:
        short = tuple(part for name in names for part in name.split("/"))
        near = difflib.get_close_matches(unknown[0], short, n=3)
        hint = f"; near: {', '.join(dict.fromkeys(near))}" if near else ""
        raise ValueError(f"no case contains {unknown[0]!r}{hint}")
    return tuple(name for name in names if not wanted or any(word in name for word in wanted))


def build(case: str, *, precision: str = "own", size: str = "bench") -> Program:
    """Build a case; `precision="float64"` gives the same numbers in float64, as the truth for errors."""
    match case.split("/"):
        case "micro", name if name in micro.CASES:
            return build_micro(micro.CASES[name], precision)
        case "model", name, ("inference" | "training") as mode if name in models.BUILDERS:
            workload = models.make(name, size=size)
            return build_model(models.as_float64(workload) if precision == "float64" else workload, mode)
        case _:
            matching(micro_names() + model_names(), (case,))
            raise ValueError(f"{case!r} is not the full name of a case")


def build_micro(case: micro.Micro, precision: str) -> Program:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs = case.inputs()
        cotangent = None
        if case.backward:
            result = case.fn(*inputs)
            # Not ones: the gradient of a norm or a softmax along ones is zero, and zeros hide errors.
            cotangent = torch.randn_like(result) if result.dim() else None
    if precision == "float64":
        inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
        cotangent = None if cotangent is None else cotangent.double()
    leaves = tuple(x.requires_grad_() for x in inputs if x.is_floating_point()) if case.backward else ()
    return Program(case.fn, inputs, leaves, (), cotangent)


def build_model(workload: models.Workload, mode: str) -> Program:
    module, inputs, loss_fn = workload
    if mode == "inference":
        return Program(module.eval(), inputs, (), tuple(module.buffers()), None)

    def loss(*inputs: Tensor) -> Tensor:
        return loss_fn(module(*inputs))

    return Program(loss, inputs, tuple(module.parameters()), tuple(module.buffers()), None)


def step(program: Program, function: Function) -> tuple[Tensor, ...]:
    """Run once: the results, then the gradient of each leaf."""
    if not program.leaves:
        with torch.no_grad():
            results = function(*program.inputs)
        return results if isinstance(results, tuple) else (results,)
    result = function(*program.inputs)
    return (result.detach(), *torch.autograd.grad(result, program.leaves, program.cotangent))


def results_and_state(program: Program, function: Function) -> tuple[Tensor, ...]:
    """The results of one run and the buffers it left behind; the buffers are put back."""
    before = tuple(x.clone() for x in program.state)
    try:
        results = tuple(x.clone() for x in step(program, function))
        return results + tuple(x.clone() for x in program.state)
    finally:
        with torch.no_grad():
            for buffer, value in zip(program.state, before, strict=True):
                buffer.copy_(value)


def unknown_backend(name: str) -> str:
    """Why torch.compile takes no backend of this name, or nothing."""
    known = ("minductor", *torch._dynamo.list_backends(exclude_tags=()))
    if name in known:
        return ""
    return f"no backend is named {name!r}: {suggestion(name, known)}torch._dynamo.list_backends() has the names"


def no_place(path: Path | None) -> str:
    """Why no file can be written there, or nothing; a measurement of minutes would be lost."""
    if path is None or (path.parent.is_dir() and not path.is_dir()):
        return ""
    return f"{path} is a folder" if path.is_dir() else f"{path.parent} is no folder: make it first"
