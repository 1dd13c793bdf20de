"""The benchmark's cases by name: `micro/NAME`, `model/NAME/inference`, `model/NAME/training`, `frozen/NAME`,
`training/NAME`.

Takes: the name of a case. Gives: a `Program`, which is a function with its inputs; `step` runs it once. Refuses:
unknown names (ValueError, which names similar ones).

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

from minductor.bench import frozen_backends, inference_models, micro, models
from minductor.core.errors import suggestion

Function = Callable[..., Any]
FLAGSHIP = "micro/layer_norm_gelu"
GPT_TRAINING = "model/gpt/training"


@dataclass(frozen=True, slots=True)
class Program:
    """A function that a backend compiles, with its inputs.

    `leaves`: the tensors whose gradients a run computes; none for inference. `state`: the buffers that a run may
    change. `cotangent`: the gradient of the result; None if the result is a scalar.
    """

    function: Function
    inputs: tuple[Tensor, ...]
    leaves: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    cotangent: Tensor | None


def micro_names() -> tuple[str, ...]:
    return tuple(f"micro/{name}" for name in micro.CASES)


def model_names() -> tuple[str, ...]:
    return tuple(f"model/{name}/{mode}" for name in models.NAMES for mode in ("inference", "training"))


def frozen_names() -> tuple[str, ...]:
    """The cases of the table of frozen inference."""
    return tuple(f"frozen/{name}" for name in inference_models.NAMES)


def training_names() -> tuple[str, ...]:
    """The cases of the table of training: the models of the table of frozen inference."""
    return tuple(f"training/{name}" for name in inference_models.NAMES)


def matching(names: tuple[str, ...], words: tuple[str, ...]) -> tuple[str, ...]:
    """The names that contain one of `words`; all names if there are no words.

    Raises ValueError if no name contains one of the words.
    """
    unknown = [word for word in words if not any(word in name for name in names)]
    if unknown:
        short = tuple(part for name in names for part in name.split("/"))
        near = difflib.get_close_matches(unknown[0], short, n=3)
        hint = f"; near: {', '.join(dict.fromkeys(near))}" if near else ""
        raise ValueError(f"no case contains {unknown[0]!r}{hint}")
    return tuple(name for name in names if not words or any(word in name for word in words))


def build(case: str, *, precision: str = "own", size: str = "bench") -> Program:
    """The program of a case. `precision="float64"`: with the same numbers in float64, to measure errors against."""
    match case.split("/"):
        case "micro", name if name in micro.CASES:
            return build_micro(micro.CASES[name], precision)
        case "model", name, ("inference" | "training") as mode if name in models.BUILDERS:
            workload = models.make(name, size=size)
            return build_model(models.as_float64(workload) if precision == "float64" else workload, mode)
        case ("frozen" | "training") as group, name if name in inference_models.BUILDERS:
            workload = inference_models.make(name, size=size)
            workload = models.as_float64(workload) if precision == "float64" else workload
            return build_model(workload, "inference" if group == "frozen" else "training")
        case _:
            matching(micro_names() + model_names() + frozen_names() + training_names(), (case,))
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
    module.train(mode == "training")
    if mode == "inference":
        return Program(module, inputs, (), tuple(module.buffers()), None)

    def loss(*inputs: Tensor) -> Tensor:
        return loss_fn(module(*inputs))

    return Program(loss, inputs, tuple(module.parameters()), tuple(module.buffers()), None)


def step(program: Program, function: Function) -> tuple[Tensor, ...]:
    """Runs `function` once. Returns its results, then the gradient of each leaf."""
    if not program.leaves:
        with torch.no_grad():
            results = function(*program.inputs)
        return results if isinstance(results, tuple) else (results,)
    result = function(*program.inputs)
    return (result.detach(), *torch.autograd.grad(result, program.leaves, program.cotangent))


def results_and_state(program: Program, function: Function) -> tuple[Tensor, ...]:
    """Copies of the results of one run and of the program's buffers after it. The buffers get their old values back.

    A buffer that the run did not change is not written: a frozen weight that is written in place is an error.
    """
    before = tuple(x.clone() for x in program.state)
    try:
        results = tuple(x.clone() for x in step(program, function))
        return results + tuple(x.clone() for x in program.state)
    finally:
        with torch.no_grad():
            for buffer, value in zip(program.state, before, strict=True):
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def unknown_backend(name: str) -> str:
    """A sentence that says that torch.compile has no backend called `name`; "" if it has one."""
    known = ("minductor", *frozen_backends.NAMES, *torch._dynamo.list_backends(exclude_tags=()))
    if name in known:
        return ""
    return f"no backend is named {name!r}: {suggestion(name, known)}torch._dynamo.list_backends() has the names"


def no_place(path: Path | None) -> str:
    """A sentence that says why no file can be written at `path`; "" if one can.

    It is asked for before measuring, so that the results of minutes are not lost.
    """
    if path is None or (path.parent.is_dir() and not path.is_dir()):
        return ""
    return f"{path} is a folder" if path.is_dir() else f"{path.parent} is no folder: make it first"
