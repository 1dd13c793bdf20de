"""What differs between the supported versions of torch (2.11 to 2.13), and what is reached by torch's private names.

Takes the ambient TracingContext of AOTAutograd, operators, and traced values. Gives facts as plain data, which are
empty outside of a compile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch._guards import TracingContext
from torch.fx.experimental import proxy_tensor
from torch.utils._python_dispatch import _disable_current_modes


def real_tensors() -> Any:
    """A context in which new tensors are real ones, while torch compiles with fake tensors."""
    return _disable_current_modes()


def _forward_metadata() -> Any:
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


def has_guards() -> bool:
    """Whether Dynamo checks at each call what torch assumed of sizes; outside of a compile nothing does."""
    return TracingContext.try_get() is not None


def static_indices() -> Sequence[int]:
    """Inputs of the forward that are the same tensors at each call: parameters and buffers."""
    return tuple(getattr(_forward_metadata(), "static_input_indices", None) or ())


def donated_indices() -> Sequence[int]:
    """Inputs of the backward that nothing reads afterwards, so that the backward may overwrite them.

    Empty where the forward's results begin with effect tokens: torch does not count these, and names wrong inputs.
    """
    facts = _forward_metadata()
    if getattr(facts, "tokens", None):
        return ()
    return tuple(getattr(facts, "bw_donated_idxs", None) or ())


def rebuilt_outputs() -> Mapping[int, int]:
    """Result number -> input number, for the forward's results that AOTAutograd rebuilds as views of an input.

    The caller gets a view of the caller's own tensor: only size, stride and offset of the graph's result are used.
    """
    facts = _forward_metadata()
    if facts is None or getattr(facts, "tokens", None):
        return {}
    from torch._functorch._aot_autograd.schemas import OutputType

    kinds = (OutputType.alias_of_input, OutputType.is_input)
    first = facts.num_mutated_inp_runtime_indices
    views = ((first + n, info.base_idx) for n, info in enumerate(facts.output_info) if info.output_type in kinds)
    return {number: base for number, base in views if base is not None}


def outputs_without_aliases() -> frozenset[int] | None:
    """Numbers of the forward's results that are neither views, nor bases of views, nor saved for the backward.

    None if nothing is known.
    """
    facts = _forward_metadata()
    if facts is None or getattr(facts, "tokens", None):
        return None
    from torch._functorch._aot_autograd.schemas import OutputType

    first = facts.num_mutated_inp_runtime_indices
    of_user = OutputType.alias_of_intermediate_base_is_user_output
    bases = {info.base_idx for info in facts.output_info if info.output_type == of_user}
    kinds = (OutputType.non_alias, OutputType.unsafe_view_alias)  # the base of an unsafe view is not visible
    plain = (n for n, info in enumerate(facts.output_info) if info.output_type in kinds)
    return frozenset(first + n for n in plain if n not in bases)


def with_traced_strides(result: Any, stride: Sequence[Any]) -> Any:
    """The result of a traced call, with other strides in the trace."""
    mode = proxy_tensor.get_proxy_mode()
    if mode is None:
        return result
    with proxy_tensor.disable_proxy_modes_tracing():
        noted = result.as_strided(result.shape, stride)
    proxy = proxy_tensor.get_proxy_slot(result, mode.tracer).proxy
    return proxy_tensor.track_tensor_tree(noted, proxy, constant=None, tracer=mode.tracer)


def is_synthetic_base(placeholder: Any) -> bool:
    """Whether an input is a synthetic base: AOTAutograd passes it in place of several inputs that are views of it."""
    from torch._functorch._aot_autograd.descriptors import SyntheticBaseAOTInput, ViewBaseAOTInput

    return isinstance(placeholder.meta.get("desc"), SyntheticBaseAOTInput | ViewBaseAOTInput)


def input_path(placeholder: Any, paths: Sequence[str]) -> str:
    """Of `paths`, which has one text for each input of Dynamo's graph, that of an ATen graph's input.

    The placeholder's own name if AOTAutograd noted no number of an input there.
    """
    number = getattr(placeholder.meta.get("desc"), "idx", None)
    return paths[number] if isinstance(number, int) and number < len(paths) else placeholder.name


def source_name(placeholder: Any) -> str:
    """How a program spells an input of Dynamo's graph: "L['self'].fc._parameters['weight']"; "" if that is unknown."""
    name = getattr(getattr(placeholder, "_dynamo_source", None), "name", "")
    return str(name() if callable(name) else name)


def written_inputs() -> list[bool]:
    """For each input of the program, whether the program writes to its memory."""
    return [info.mutates_data for info in getattr(_forward_metadata(), "input_info", None) or ()]


def is_seeded(overload: Any) -> bool:
    """Whether an operator draws from the global generator."""
    return torch.Tag.nondeterministic_seeded in overload.tags


def is_capturable(overload: Any) -> bool:
    """Whether a CUDA graph may capture an operator: it has no tag that forbids it."""
    return torch.Tag.cudagraph_unsafe not in overload.tags


def only_writes(overload: Any) -> bool:
    """Whether an operator is tagged as one that only writes given results; torch 2.11 and 2.12 have no such tag."""
    return getattr(torch.Tag, "out", None) in overload.tags


@lru_cache(1)
def ignores_nan_bound() -> bool:
    """Whether eager's clamp leaves elements alone where its only bound is the number NaN, as 2.11 does."""
    with _disable_current_modes():
        return not torch.zeros((), device="cpu").clamp(max=float("nan")).isnan().item()


@lru_cache(1)
def saturates_fp8() -> bool:
    """Whether eager makes the largest float8_e4m3fn of what is too large for it, and no NaN, as 2.13 does."""
    with _disable_current_modes():
        return not torch.full((), 1e4, device="cpu").to(torch.float8_e4m3fn).float().isnan().item()


def is_backed(shape_env: Any, symbol: Any) -> bool:
    """Whether a size symbol comes from an input, so that its value is known while tracing."""
    return symbol in shape_env.backed_var_to_val


def example_values(shape_env: Any) -> Mapping[Any, Any]:
    """SymPy symbol -> its value in the example inputs. The size of a jagged dimension is left out: it is no number."""
    return {s: value for s, value in shape_env.backed_var_to_val.items() if getattr(value, "is_Integer", False)}
