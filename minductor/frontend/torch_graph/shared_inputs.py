"""Inputs in one memory, where a graph writes to an input.

Takes an ATen graph while AOTAutograd has it compiled. Gives the name of an input if the graph is right only for inputs
that lie in their common memory as the traced ones do, which nothing guards, or is wrong even for those: of matrices in
one memory AOTAutograd misses some that overlap. The graph before it, Dynamo's, is right.

Of a compiled graph whose inputs were traced apart from each other it gives one that asks at each call whether they
still are, since nothing guards that either; of one that counts places in the memory of a tensor from its start,
one that asks whether inputs begin where they did.
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
    """The first input whose place in memory the graph holds for another; "" if there is none."""
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
    """What was compiled, or eager for inputs that overlap where those that were traced did not; asked where the program
    writes to an input, as it is only then that this changes a result. Parameters are the same ones at each call."""
    places = [n for n, x in enumerate(traced) if _is_plain_argument(x)]
    if not any(written_inputs()) or len(places) < 2 or not _were_traced_apart([traced[n] for n in places]):
        return compiled

    def call(*args: Any) -> Any:
        flat = args[0] if isinstance(args[0], list) else args  # compiled autograd hands them over in one list
        given = [flat[n] for n in places]
        return (compiled if _share_no_memory(given) or not may_overlap(given) else eager)(*args)

    return call


def window_offsets(gm: torch.nn.Module, given: Sequence[object]) -> Mapping[int, int | None]:
    """Of each tensor, if the graph makes windows on memory, where it begins if they count places from the start of
    that. A beginning that is a symbol is guarded, before AOTAutograd traces it."""
    graphs = (part.graph for part in gm.modules() if isinstance(part, torch.fx.GraphModule))
    windows = [node for graph in graphs for node in graph.nodes if "as_strided" in str(node.target)]
    if not windows:
        return {}
    is_counted = any(len(node.args) > 3 or "storage_offset" in node.kwargs for node in windows)
    return {n: int(x.storage_offset()) if is_counted else None for n, x in enumerate(given) if _is_plain_argument(x)}


def with_offset_check(
    compiled: Callable[..., Any],
    eager: Callable[..., Any],
    places: Mapping[int, int | None],
    traced: Sequence[object],
) -> Callable[..., Any]:
    """What was compiled, or eager for inputs that do not begin at these places, as nothing guards them. Refuses a
    program that writes to an input whose copy has other windows (UnsupportedInput)."""
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
    """Whether windows on a copy of x are those on x: what is traced for a write is new memory without gaps. They begin
    at x's first element (None), or count places from the start of its memory."""
    fills = begin is None or guard_or_false(x.numel() * x.itemsize == x.untyped_storage().nbytes())
    return fills and begin in (None, 0) and layout_of(x).is_dense


def is_overlap_error(error: RuntimeError) -> bool:
    """Whether AOTAutograd did not trace a write to an input several of whose elements are one in memory: it copies the
    whole input back, where eager may write a part without such elements. torch tells it by this text alone."""
    return "more than one element of the written-to tensor" in str(error)


def _is_plain_argument(x: object) -> TypeGuard[torch.Tensor]:
    is_plain = isinstance(x, torch.Tensor) and x.layout is torch.strided and not is_traceable_wrapper_subclass(x)
    return is_plain and not isinstance(x, torch.nn.Parameter)


def _were_traced_apart(traced: Sequence[Any]) -> bool:
    """Whether traced inputs do not overlap; those in one memory are guarded where symbols say how they lie."""
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
    """Whether an element of one lies between the first and the last one of another.

    >>> x = torch.zeros(8)
    >>> may_overlap([x[:4], x[4:]]), may_overlap([x[:4], x[3:]]), may_overlap([x[::2], x[1::2]])
    (False, True, True)
    """
    starts = [(x.data_ptr(), x) for x in tensors if x.numel()]
    spans = sorted((at, at + x.itemsize * (1 + _last_element_offset(x))) for at, x in starts)
    return any(second[0] < first[1] for first, second in pairwise(spans))


def _last_element_offset(x: torch.Tensor) -> int:
    """How many elements the last one lies behind the first."""
    return sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))


def _is_matrix(x: torch.Tensor) -> bool:
    return x.layout is torch.strided and x.dim() == 2 and guard_or_true(x.stride(1) == 1)


def is_overlap_missed(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two matrices overlap though torch holds them for columns side by side: it looks at where the rows of the
    second end, and not at where they begin. Sizes that are symbols are guarded to be as they are.

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
