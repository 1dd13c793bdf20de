"""Compares the layouts and the memory of traced values, without adding a guard on a symbolic size.

Takes traced values: fake tensors, numbers, and tuples of these. Gives answers and texts. Refuses nothing. Two sizes
are equal if they are equal for all values that their symbols may have.

>>> difference(torch.zeros(2, 3), torch.zeros(2, 4), keeps_strides=True)
'its value has the size (2, 4) in place of (2, 3)'
>>> difference(torch.zeros(2, 3), torch.zeros(3, 2).t(), keeps_strides=False)
''
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_leaves

FACTS = ("dtype", "size", "device", "strides")  # of `layout`, in its order


def layout(value: torch.Tensor) -> tuple[Any, ...]:
    """Dtype, sizes, device and strides of a traced tensor; a tensor that is no strided one has no strides."""
    strides = tuple(value.stride()) if value.layout is torch.strided else ()
    return value.dtype, tuple(value.shape), value.device, strides


def storage(value: object) -> int | None:
    """The identity of a traced tensor's memory; None for what has none."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value.untyped_storage()._cdata


def is_transformed(value: object) -> bool:
    """Whether a traced value belongs to a transform of torch.func, such as grad or vmap.

    What is traced has another size there, or a gradient that only the transform takes; only its own calls may read it.
    """
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return any(map(is_functorch_wrapped_tensor, tensors))


def storages(value: object) -> list[int | None]:
    """For each tensor or number of a traced value, the identity of its memory."""
    return [storage(leaf) for leaf in tree_leaves(value)]


def difference(old: Any, new: Any, *, keeps_strides: bool) -> str:
    """What differs between the layouts of two traced values, as a reason; "" if nothing does."""
    before, after = tree_leaves(old), tree_leaves(new)
    if len(before) != len(after):
        return f"it gives {len(after)} values in place of {len(before)}"
    for a, b in zip(before, after, strict=True):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            for fact, was, now in zip(FACTS, layout(a), layout(b), strict=True):
                if (keeps_strides or fact != "strides") and not _is_equal(was, now):
                    return f"its value has the {fact} {_shown(now)} in place of {_shown(was)}"
        elif type(a) is not type(b):
            return f"it gives a {type(b).__name__} in place of a {type(a).__name__}"
        elif not _is_equal(a, b):
            return f"it gives {b} in place of {a}"
    return ""


def has_same_layout(old: Any, new: Any) -> bool:
    """Whether two traced values differ in no layout."""
    return not difference(old, new, keeps_strides=True)


def _is_equal(a: Any, b: Any) -> bool:
    """Whether two facts are equal for all sizes."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_equal, a, b))
    if isinstance(a, torch.SymInt | torch.SymFloat | torch.SymBool) or isinstance(b, torch.SymInt | torch.SymFloat):
        return statically_known_true(a == b)
    return bool(a == b)


def _shown(value: Any) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)
