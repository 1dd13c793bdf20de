"""Decides for which target a graph is compiled: the machine of its tensors, or a machine that the user named.

Takes a captured graph and the Env of the call. Gives the graph, the Env with the target and the options of its backend,
and whether the graph is only compiled (dry) and runs in eager, because its machine is elsewhere. Refuses a named target
that does not work on the tensors' memory, and devices that no backend launches on (UnsupportedInput: eager runs these).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minductor.backends import BUILT_IN, find_backend, find_target, options_for, target_of_device
from minductor.core.errors import BadOptionValue, TargetElsewhere, UnsupportedInput
from minductor.target import Env

if TYPE_CHECKING:
    from minductor.frontend.capture.captured_graph import Graph


def place(graph: Graph, env: Env, *, is_dry: bool) -> tuple[Graph, Env, bool]:
    """The graph, the Env with its target, and whether the graph is only compiled.

    With `is_dry` and a target of a GPU, a graph of tensors on the CPU, or on the device "meta", is compiled as if the
    tensors were on that GPU. A graph of GPU tensors on a machine without a GPU is only compiled: torch traces such
    tensors as metadata.
    """
    import torch

    from minductor.frontend.graph_passes.move_scalars import gpu_of

    named, device = env.options.target, gpu_of(graph)
    if device == "meta" and is_dry and env.target.is_gpu:
        device = ""  # such tensors may stand for any others
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
    if named and not is_launched:  # kernels for the CPU cannot read the GPU's memory
        raise BadOptionValue("target", named, f"one that works on {device}")
    from minductor.runtime.launch.cuda import target_of

    here = target_of(device)
    if here is None:
        raise UnsupportedInput("a tensor", f"on {device}, a device that minductor launches nothing on")
    if named and not here.runs(env.target):
        raise TargetElsewhere(named)
    env = _with_software(env, device)
    return graph, env if named else replace(env, target=here), False


def placed_for_rewrites(gm: Any, env: Env, *, is_exported: bool) -> Env:
    """The Env with the target of the GPU whose memory the inputs of a torch.fx graph lie in, if the user named none.

    Rewrites apply before the graph is captured. A graph without such inputs gets the maker of this machine's CPU as the
    Env's device, since rewrites choose between libraries; but an exported one may run on another CPU. One that `place`
    will refuse keeps the Env.
    """
    from minductor.runtime.build.probe import cpu_maker

    if env.options.target and env.target.kind != "cpu":
        return env
    values = (node.meta.get("val", node.meta.get("example_value")) for node in gm.graph.find_nodes(op="placeholder"))
    device = next((str(each.device) for each in values if getattr(each, "is_cuda", False)), "")
    if not device or env.options.target:
        return replace(env, device=cpu_maker()) if env.target.kind == "cpu" and not is_exported else env
    import torch

    if not torch.cuda.is_available():
        return replace(env, target=find_target("sm_90"))
    from minductor.runtime.launch.cuda import target_of

    here = target_of(device)
    return env if here is None else replace(_with_software(env, device), target=here)


def _with_software(env: Env, device: str) -> Env:
    """The Env with the name of a GPU and the versions of the software that learned choices depend on."""
    import torch

    from minductor.runtime.build.probe import software

    return replace(env, device=torch.cuda.get_device_name(device), software=software())


def _registered(env: Env, device: str) -> Env:
    """`env` with the target and the options of a registered backend, for a graph of tensors on `device`."""
    place = device.partition(":")[0] or "cpu"
    target = env.target if env.options.target else target_of_device(place)
    if target is None:
        raise UnsupportedInput("a tensor", f"on {device}, a device that minductor launches nothing on")
    if target.device != place and device:
        raise BadOptionValue("target", target.name, f"one that works on {device}")
    if target.device != place:
        raise TargetElsewhere(target.name)
    return replace(env, target=target, options=options_for(find_backend(target.kind), env.options))
