"""Inputs that share memory, where a graph writes to an input: what torch does not guard is checked here.

Takes graphs and their inputs while AOTAutograd compiles them. Gives checks, and refusals as input names:

- `unguarded_input`: an input for which the ATen graph is right only if the inputs overlap as the traced ones did, which
  nothing guards, or wrong in any case, since AOTAutograd misses some overlaps of matrices. Dynamo's graph is right.
- `with_overlap_check`: the compiled graph behind a check that inputs traced apart do not overlap now.
- `with_offset_check`: the compiled graph behind a check that inputs begin at the traced offsets in their memory, for
  graphs with `as_strided`, which counts from the start of that memory.

Where a check fails, the call runs Dynamo's graph in eager.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from minductor.core.errors import UnsupportedInput
from minductor.frontend.quirks.eager_strides import layout_of
from minductor.frontend.quirks.torch_versions import is_synthetic_base, written_inputs


def unguarded_input(gm: torch.fx.GraphModule, *, is_backward: bool) -> str:
    """The name of the first input that overlaps another in a way that torch does not guard; "" if there is none."""
    inputs, written = gm.graph.find_nodes(op="placeholder"), written_inputs()
    if is_backward or len(inputs) != len(written):  # its inputs are not the program's
        written = [any(written)] * len(inputs)
    matrices: dict[Any, list[tuple[torch.Tensor, bool]]] = defaultdict(list)
    for node, is_written in zip(inputs, written, strict=True):
        if is_synthetic_base(node):
            return node.name
        x = node.meta.get("val")
        if isinstance(x, torch.Tensor) and _is_matrix(x):
            before = matrices[x.untyped_storage()._cdata]
            if any((is_written or was_written) and is_overlap_missed(y, x) for y, was_written in before):
                return node.name
            before.append((x, is_written))
    return ""


def with_overlap_check(
    compiled: Callable[..., Any], eager: Callable[..., Any], traced: Sequence[object]
) -> Callable[..., Any]:
    """`compiled`, with a check at each call that runs `eager` if inputs overlap that were traced apart.

    Only a program that writes to an input is checked. Parameters are not: they are the same at each call.
    """
    places = [n for n, x in enumerate(traced) if _is_plain_argument(x)]
    if not any(written_inputs()) or len(places) < 2 or not _were_traced_apart([traced[n] for n in places]):
        return compiled

    def call(*args: Any) -> Any:
        flat = args[0] if isinstance(args[0], list) else args  # compiled autograd hands them over in one list
        given = [flat[n] for n in places]
        return (compiled if _share_no_memory(given) or not may_overlap(given) else eager)(*args)

    return call


def window_offsets(gm: torch.nn.Module, given: Sequence[object]) -> Mapping[int, int | None]:
    """Input number -> its offset in its memory, for a graph that calls `as_strided`; empty for other graphs.

    The offset is None if no `as_strided` names one. A symbolic offset is guarded by turning it into a number here.
    """
    graphs = (part.graph for part in gm.modules() if isinstance(part, torch.fx.GraphModule))
    windows = [node for graph in graphs for node in graph.nodes if "as_strided" in str(node.target)]
    if not windows:
        return {}
    is_counted = any(len(node.args) > 3 or "storage_offset" in node.kwargs for node in windows)
    return {n: int(x.storage_offset()) if is_counted else None for n, x in enumerate(given) if _is_plain_argument(x)}


def with_offset_check(
    compiled: Callable[..., Any], eager: Callable[..., Any], places: Mapping[int, int | None], traced: Sequence[object]
) -> Callable[..., Any]:
    """`compiled`, with a check at each call that runs `eager` if inputs do not begin at the offsets in `places`.

    Refuses a program that writes to an input whose copy has other `as_strided` windows (UnsupportedInput).
    """
    if any(written_inputs()) and not all(copy_has_same_windows(traced[n], begin) for n, begin in places.items()):
        raise UnsupportedInput("an input of this graph", "memory that is written, and has other windows than its copy")
    counted = {n: begin for n, begin in places.items() if begin is not None}
    if not counted:
        return compiled

    def call(*args: Any) -> Any:
        flat = args[0] if isinstance(args[0], list) else args
        is_there = all(flat[n].storage_offset() == begin for n, begin in counted.items())
        return (compiled if is_there else eager)(*args)

    return call


def copy_has_same_windows(x: Any, begin: int | None) -> bool:
    """Whether `as_strided` finds the same elements on a copy of x without gaps, as AOTAutograd traces for a write.

    `begin` is the offset from which `as_strided` counts; None if it counts from x's first element.
    """
    fills = begin is None or guard_or_false(x.numel() * x.itemsize == x.untyped_storage().nbytes())
    return fills and begin in (None, 0) and layout_of(x).is_dense


def is_overlap_error(error: RuntimeError) -> bool:
    """Whether AOTAutograd raised because it copies an input back whose elements share memory (an expanded tensor).

    Eager may write a part of such a tensor. torch has no class for this error, only this text.
    """
    return "more than one element of the written-to tensor" in str(error)


def _is_plain_argument(x: object) -> TypeGuard[torch.Tensor]:
    is_plain = isinstance(x, torch.Tensor) and x.layout is torch.strided and not is_traceable_wrapper_subclass(x)
    return is_plain and not isinstance(x, torch.nn.Parameter)


def _were_traced_apart(traced: Sequence[Any]) -> bool:
    """Whether traced inputs do not overlap. Inputs that share memory and have symbolic sizes count as overlapping.

    torch guards how such inputs overlap.
    """
    if _share_no_memory(traced):
        return True
    spans: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for x in traced:
        if not all(type(n) is int for n in (*x.shape, *x.stride(), x.storage_offset())):
            return False
        if x.numel():
            begin = x.storage_offset() * x.itemsize
            spans[x.untyped_storage()._cdata].append((begin, begin + x.itemsize * (1 + _last_element_offset(x))))
    return all(after[0] >= before[1] for own in spans.values() for before, after in pairwise(sorted(own)))


def _share_no_memory(tensors: Sequence[Any]) -> bool:
    return len({x.untyped_storage()._cdata for x in tensors}) == len(tensors)


def may_overlap(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an element of one tensor may lie between the first and the last element of another one.

    >>> x = torch.zeros(8)
    >>> may_overlap([x[:4], x[4:]]), may_overlap([x[:4], x[3:]]), may_overlap([x[::2], x[1::2]])
    (False, True, True)
    """
    starts = [(x.data_ptr(), x) for x in tensors if x.numel()]
    spans = sorted((at, at + x.itemsize * (1 + _last_element_offset(x))) for at, x in starts)
    return any(second[0] < first[1] for first, second in pairwise(spans))


def _last_element_offset(x: torch.Tensor) -> int:
    """The offset of the last element from the first, in elements."""
    return sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))


def _is_matrix(x: torch.Tensor) -> bool:
    return x.layout is torch.strided and x.dim() == 2 and guard_or_true(x.stride(1) == 1)


def is_overlap_missed(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two matrices overlap that torch takes for columns side by side.

    torch looks at where the rows of the second end, and not at where they begin. Symbolic sizes are guarded.

    >>> x = torch.zeros(4, 4)
    >>> is_overlap_missed(x[:2, :3], x[1:3, 1:])
    True
    >>> is_overlap_missed(x[:, :2], x[:, 2:]), is_overlap_missed(x[:2, :3], x[2:, 1:])
    (False, False)
    """
    return _is_second_missed(a, b) or _is_second_missed(b, a)


def _is_second_missed(first: torch.Tensor, second: torch.Tensor) -> bool:
    step, gap = first.stride(0), second.storage_offset() - first.storage_offset()
    return (
        guard_or_true(gap >= 0)
        and guard_or_true(second.stride(0) == step)
        and guard_or_true(step > 0)
        and guard_or_true(second.numel() > 0)
        and guard_or_true(gap // step < first.shape[0])
        and guard_or_true(gap % step < first.shape[1])
        and guard_or_true(gap % step + second.shape[1] <= step)
    )
