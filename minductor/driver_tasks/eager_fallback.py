"""Graphs that run in eager: what cannot be compiled, the warning about it, and the call in its place.

Takes graph modules and inputs. Gives the reason why an input cannot be compiled, and a graph's eager call. Refuses to
run in eager under the option fallback="error" (FallbackRefused).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minductor.core.errors import FallbackRefused, RanInEager, UnsupportedInput
from minductor.core.warn import warn

if TYPE_CHECKING:
    from minductor.target import Env

Call = Callable[[list[Any]], Sequence[Any]]


def boxed(gm: Any) -> Call:
    """A graph module's eager call, in AOTAutograd's calling convention: one list of arguments, which it empties."""
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(gm.forward)


def warn_of_eager(env: Env, reason: UnsupportedInput) -> None:
    """Warns that a graph runs in eager; raises FallbackRefused instead if the options forbid that."""
    if env.options.fallback == "error":
        raise FallbackRefused("this graph", reason.what, where=reason.where) from reason
    warn(RanInEager(reason.what, where=reason.where))


def unreadable_kind(value: Any, *, may_be_fake: bool) -> str:
    """What kind of input `value` is if its memory cannot be read, else "".

    The fake tensor that stands for `value` does not show its kind. `may_be_fake`: fake tensors are accepted, since
    nothing is launched.
    """
    import torch
    from torch._guards import TracingContext
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(value, torch.Tensor):
        return ""
    tracing = TracingContext.try_get()
    if isinstance(value, FakeTensor) and not may_be_fake and tracing and value.fake_mode is not tracing.fake_mode:
        return "a fake tensor of the program's own"
    if value.layout not in (torch.strided, torch.jagged):
        return f"a tensor of layout {value.layout}"
    return "a tensor of zeros that has no memory" if value._is_zerotensor() else ""


def calls_hooks(gm: Any) -> bool:
    """Whether a backward graph calls hooks of the user's program, so that compiled autograd replaces it.

    Compiled autograd traces the backward once more, together with the hooks, and compiles that graph. `gm` is never
    run; AOTAutograd asks for its call only if sizes are dynamic.
    """
    from torch.fx.experimental._backward_state import BackwardState

    inputs = gm.graph.find_nodes(op="placeholder")
    return any(isinstance(node.meta.get("val"), BackwardState) for node in inputs)
