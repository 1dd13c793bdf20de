"""Where a graph runs, and what it is compiled for: its own device, or a machine that the user named.

Takes a captured graph and the Env of the call. Gives the graph, the Env with the target and its backend's options, and
whether the result is dry: compiled for a machine that is elsewhere, and run in eager. Refuses a named target that does
not work on the tensors' memory, and devices that no backend launches on (UnsupportedInput: these run in eager).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minductor.backends import BUILT_IN, find_backend, find_target, options_for, target_of_device
from minductor.core.errors import BadOptionValue, TargetElsewhere, UnsupportedInput
from minductor.target import Env

if TYPE_CHECKING:
    from minductor.frontend.capture.captured_graph import Graph


def placed(graph: Graph, env: Env, *, is_dry: bool) -> tuple[Graph, Env, bool]:
    """See above. `is_dry`: for a machine elsewhere, a graph of the CPU is compiled as if it were on that one.

    So is one of GPUs that exist in metadata only: torch traces those too.
    """
    import torch

    from minductor.frontend.graph_passes.move_scalars import gpu_of

    named, device = env.options.target, gpu_of(graph)
    if env.target.kind not in BUILT_IN or device.partition(":")[0] not in ("", "cuda"):
        return graph, _registered(env, device), is_dry
    env = replace(env, options=options_for(find_backend(env.target.kind), env.options))
    is_launched = env.target.kind in ("cuda", "hip")
    if device and not torch.cuda.is_available():
        return graph, env if is_launched else replace(env, target=find_target("sm_90")), True
    if is_dry and is_launched and not device:
        from minductor.frontend.graph_passes.retarget import retarget

        return retarget(graph, "cuda:0"), env, True
    if is_dry or not (device or is_launched):
        return graph, env, is_dry
    if not device:
        raise TargetElsewhere(named)
    if named and not is_launched:  # its kernels would take the GPU's addresses for the CPU's
        raise BadOptionValue("target", named, f"one that works on {device}")
    from minductor.runtime.launch.cuda import target_of

    here = target_of(device)
    if here is None:
        raise UnsupportedInput("a tensor", f"on {device}, a device that minductor launches nothing on")
    if named and not here.runs(env.target):
        raise TargetElsewhere(named)
    return graph, env if named else replace(env, target=here), False


def _registered(env: Env, device: str) -> Env:
    """For a graph on a registered backend's device, or for a target of one: the target, and the backend's options."""
    place = device.partition(":")[0] or "cpu"
    target = env.target if env.options.target else target_of_device(place)
    if target is None:
        raise UnsupportedInput("a tensor", f"on {device}, a device that minductor launches nothing on")
    if target.device != place and device:
        raise BadOptionValue("target", target.name, f"one that works on {device}")
    if target.device != place:
        raise TargetElsewhere(target.name)
    return replace(env, target=target, options=options_for(find_backend(target.kind), env.options))


def without_memory(given: Any, *, may_be_fake: bool) -> str:
    """What an input is that has no memory to read, though the fake tensor made of it is like any other."""
    import torch
    from torch._guards import TracingContext
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(given, torch.Tensor):
        return ""
    tracing = TracingContext.try_get()
    if isinstance(given, FakeTensor) and not may_be_fake and tracing and given.fake_mode is not tracing.fake_mode:
        return "a fake tensor of the program's own"
    if given.layout not in (torch.strided, torch.jagged):
        return f"a tensor of layout {given.layout}"
    return "a tensor of zeros that lie nowhere" if given._is_zerotensor() else ""


def awaits_hooks(gm: Any) -> bool:
    """Whether a backward calls hooks of the program: only compiled autograd does, and it traces a graph of its own.

    That graph holds the hooks' operations, and is compiled; the one at hand is never run, and AOTAutograd asks for it
    only where sizes are dynamic.
    """
    from torch.fx.experimental._backward_state import BackwardState

    inputs = gm.graph.find_nodes(op="placeholder")
    return any(isinstance(node.meta.get("val"), BackwardState) for node in inputs)
