"""Calls of md_transpose and of its forms that round or widen: copies of blocks in another order of two axes.

They are copies between memory and a staging buffer, an array, or from memory to memory. Takes a load, a store or both,
the array, the two axes and where their open blocks begin and end. Gives the text of the call. Refuses ("") a copy that
no such call does: elements that are converted, but between floats of 16 and 32 bits, or an index that is not linear.

A call reads the next block of rows ahead, unless one block has all rows: then it says `false`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import permutations

from minductor.codegen.cpp.cpp_arrays import Array
from minductor.codegen.cpp.cpp_text import index_text
from minductor.codegen.cpp.cpp_values import Values
from minductor.core.dtypes import BF16, F16
from minductor.core.expressions.expr import Expr, free_symbols, linear, substitute, symbol
from minductor.ir.program.nodes import Load, Op, Store

Ends = Mapping[str, tuple[str, str]]


def transposed_load(
    op: Op, row: Array | None, outer: str, inner: str, values: Values, ends: Ends, whole: Collection[str]
) -> str:
    """The call that copies a load, whose elements are adjacent along `inner`, into an array in the order of `outer`.

    `whole`: the axes of which one block has all elements.
    """
    if not isinstance(op.attrs, Load) or op.args or row is None or [d.axis for d in row.dims] != [inner, outer]:
        return ""
    name, dtype = values.storages[op.attrs.ref.storage]
    memory = _memory(op.attrs.index, outer, inner, ends)
    if memory is None or dtype not in (BF16, F16, op.dtype):
        return ""
    begin, stride = memory
    given = f"{name} + {begin}, {stride}, {_lengths(outer, inner, ends)}, {_at(row, ends)}"
    return f"md_transpose_widened({given});" if dtype == F16 else f"md_transpose({given}{_last(outer, whole)});"


def transposed_store(op: Op, row: Array | None, outer: str, inner: str, values: Values, ends: Ends) -> str:
    """The call that stores an array in the order of `outer`; elements of the storage are adjacent along `inner`."""
    if not isinstance(op.attrs, Store) or row is None or [d.axis for d in row.dims] != [inner, outer]:
        return ""
    name, dtype = values.storages[op.attrs.ref.storage]
    memory = _memory(op.attrs.index, outer, inner, ends)
    if memory is None:
        return ""
    begin, stride = memory
    function = {BF16: "md_transpose_rounded", F16: "md_transpose_halved"}.get(dtype, "md_transpose")
    return f"{function}({_at(row, ends)}, {_lengths(inner, outer, ends)}, {name} + {begin}, {stride});"


def transposed_copy(ops: Sequence[Op], values: Values, ends: Ends, whole: Collection[str]) -> str:
    """The call that copies a block from memory to memory, if the ops are a load and a store of what it loads.

    Loops over whole axes stay loops: a recipe that transposes has a block of one axis at least, and the order of others
    may matter.
    """
    load, store = (op.attrs for op in ops) if len(ops) == 2 else (None, None)
    is_block = any(start != "0" for start, _ in ends.values())
    if not isinstance(load, Load) or not isinstance(store, Store) or ops[0].args or not is_block:
        return ""
    source, target = (values.storages[attrs.ref.storage] for attrs in (load, store))
    for outer, inner in permutations(ends):
        read, written = _memory(load.index, outer, inner, ends), _memory(store.index, inner, outer, ends)
        if read is not None and written is not None and source[1] == target[1] and source[0] != target[0]:
            lengths = _lengths(outer, inner, ends)
            start, end = f"{source[0]} + {read[0]}, {read[1]}", f"{target[0]} + {written[0]}, {written[1]}"
            return f"md_copy_transposed({start}, {lengths}, {end}{_last(outer, whole)});"
    return ""


def _memory(index: Expr, outer: str, inner: str, ends: Ends) -> tuple[str, str] | None:
    """The index at which the open blocks begin, and the stride along `outer`; None unless `inner` is contiguous."""
    axes = {s.name: s for s in free_symbols(index)}
    split = linear(index, [axes[a] for a in (outer, inner) if a in axes])
    if split is None or len(split[0]) != 2 or split[0][axes[inner]] != 1:
        return None
    begin = {axes[a]: symbol(start, "axis") if (start := ends[a][0]) != "0" else 0 for a in (outer, inner)}
    return index_text(substitute(index, begin)), index_text(split[0][axes[outer]])


def _lengths(first: str, second: str, ends: Ends) -> str:
    return ", ".join(stop if start == "0" else f"{stop} - {start}" for start, stop in (ends[first], ends[second]))


def _last(rows: str, whole: Collection[str]) -> str:
    """The last argument of a call: whether a block of further rows may follow; "" if so."""
    return ", false" if rows in whole else ""


def _at(row: Array, ends: Ends) -> str:
    """The address in the array at which the open blocks begin, and the array's stride."""
    width = row.dims[1].count
    starts = [(dim, ends[dim.axis][0], step) for dim, step in zip(row.dims, (f" * {width}", ""), strict=True)]
    places = [
        start + step for dim, start, step in starts if not dim.start and start != "0"
    ]  # in an array of whole rows
    return f"{' + '.join((row.name, *places))}, {width}"
