"""Compares the arguments of a package's call with what was exported.

Takes a manifest, and then the arguments of each call. Gives the tensors and numbers for the compiled call, in order.
Refuses missing and additional arguments, and other structures, values, dtypes, devices, ranks and sizes (WrongInput). A
tensor that differs in its strides only is copied, unless the program writes to it, returns a view of it, or was
exported for elements that share memory: then it is refused too. So is an argument that shares memory with one that the
program changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as trees

from minductor.core.dtypes import by_name
from minductor.core.errors import WrongInput
from minductor.core.expressions.expr import Expr, as_int, evaluate, symbol
from minductor.core.expressions.expr_parser import parse_expr
from minductor.ir.artefact.manifest import Layout, Leaf, Manifest, SymbolRange
from minductor.runtime.launch.launch import copied, overlap
from minductor.runtime.package.pytree_json import read_tree

Sizes = tuple[int, ...]


class CallCheck:
    """The checks of all calls of a package. `device`: that of a tensor which was exported for a GPU."""

    def __init__(self, manifest: Manifest, device: str = "cpu") -> None:
        self.parameters = manifest.parameters
        self.positional = manifest.positional
        self.in_spec = read_tree(manifest.in_spec)
        self.symbols = manifest.symbols
        symbols = {row.name: symbol(row.name, "size", row.low, row.high) for row in manifest.symbols}
        self.leaves = [
            (leaf, None if leaf.layout is None else _Expected(leaf.name, leaf.layout, leaf.begin, symbols, device))
            for leaf in manifest.leaves
        ]
        self.numbers = [
            (number, leaf.name, parse_expr(str(leaf.value), symbols))
            for number, leaf in enumerate(manifest.leaves)
            if leaf.kind == "number"
        ]

    def read(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The inputs of the compiled call."""
        leaves, spec = trees.tree_flatten(self._bound(args, kwargs))
        if spec != self.in_spec:
            raise WrongInput("the structure of the arguments", f"it is {spec}, and {self.in_spec} was exported")
        for (leaf, expected), value in zip(self.leaves, leaves, strict=True):
            if expected is not None:
                expected.check(value)
            elif leaf.kind == "value":
                _check_value(leaf, value)
        values = {row.name: _number(row, leaves[row.leaf], self.leaves[row.leaf][0].name) for row in self.symbols}
        _check_apart([(leaf, leaves[number]) for number, (leaf, _) in enumerate(self.leaves) if leaf.kind == "tensor"])
        for number, name, wanted in self.numbers:
            if _whole(leaves[number], name) != (value := evaluate(wanted, values)):
                raise WrongInput(name, f"it is {leaves[number]}, but this call needs {value}")
        return [
            leaf_value if expected is None else expected.laid_out(leaf_value, values, is_fixed=leaf.is_fixed)
            for (leaf, expected), leaf_value in zip(self.leaves, leaves, strict=True)
            if leaf.kind != "value"
        ]

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as they were exported: the first ones by position, the others by name."""
        if len(args) > self.positional:
            why = f"it has {len(args)} arguments without a name, and {self.positional} were exported"
            raise WrongInput("the call", why)
        given = dict(zip(self.parameters, args, strict=False))
        for name, value in kwargs.items():
            if name in given or name not in self.parameters:
                raise WrongInput(name, "it is given twice" if name in given else "there is no such argument")
            given[name] = value
        missing = [name for name in self.parameters if name not in given]
        if missing:
            raise WrongInput(", ".join(missing), "it is missing")
        first, rest = self.parameters[: self.positional], self.parameters[self.positional :]
        return tuple([given[name] for name in first]), {name: given[name] for name in rest}


class _Expected:
    """What an argument has to be that was exported as a tensor."""

    def __init__(self, name: str, layout: Layout, begin: int | None, symbols: Mapping[str, Any], device: str) -> None:
        self.name = name
        self.begin = begin
        self.dtype: torch.dtype = getattr(torch, by_name(layout.dtype).torch_name)
        self.device = torch.device(device if layout.device == "cuda" else layout.device)
        self.size = _row([parse_expr(text, symbols) for text in layout.size])
        self.stride = _row([parse_expr(text, symbols) for text in layout.stride])
        self.dims = len(layout.size)

    def check(self, value: Any) -> None:
        """Checks everything but the sizes."""
        if not isinstance(value, torch.Tensor):
            raise WrongInput(self.name, f"it is a {type(value).__name__}, and a tensor was exported")
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            raise WrongInput(self.name, f"it is a {type(value).__name__} of layout {value.layout}, and no plain tensor")
        if value.dtype != self.dtype:
            raise WrongInput(self.name, f"its dtype is {value.dtype}, and {self.dtype} was exported")
        if value.device != self.device:
            raise WrongInput(self.name, f"it is on {value.device}, and {self.device} was exported")
        if value.dim() != self.dims:
            raise WrongInput(self.name, f"it has {value.dim()} dimensions, and {self.dims} were exported")
        if self.begin is not None and value.storage_offset() != self.begin:
            why = f"it begins at element {value.storage_offset()} of its memory, and {self.begin} was exported"
            raise WrongInput(self.name, why)
        if value.is_conj() or value.is_neg():
            raise WrongInput(
                self.name, "its memory holds something else than its values: use resolve_conj, resolve_neg"
            )

    def laid_out(self, value: torch.Tensor, symbols: Mapping[str, int], *, is_fixed: bool) -> torch.Tensor:
        """The tensor, or a copy with the strides for which the kernels were compiled."""
        size, stride = self.size(symbols), self.stride(symbols)
        if value.shape != size:
            raise WrongInput(self.name, f"its size is {tuple(value.shape)}, but this call needs {size}")
        if value.stride() == stride or not value.numel():
            return value
        if all(n == 1 or a == b for n, a, b in zip(size, value.stride(), stride, strict=True)):
            return value.as_strided(size, stride)
        if is_fixed or _shares(size, stride):
            raise WrongInput(self.name, f"its strides are {value.stride()}, and {stride} were exported")
        return copied(value, size, stride)


def _check_apart(given: Sequence[tuple[Leaf, torch.Tensor]]) -> None:
    """Refuses arguments that share memory with one that the program changes: it was traced without shared memory."""
    for leaf, changed in given:
        if leaf.is_changed:
            for other, value in given:
                if other is not leaf and overlap(changed, value):
                    raise WrongInput(other.name, f"it shares memory with {leaf.name}, which the program changes")


def _shares(size: Sizes, stride: Sizes) -> bool:
    """Whether several elements of that layout may be at one address, as in an expanded tensor."""
    end = 0
    for step, n in sorted((step, n) for step, n in zip(stride, size, strict=True) if n > 1):
        if step <= end:
            return True
        end += step * (n - 1)
    return False


def _row(sizes: Sequence[Expr]) -> Callable[[Mapping[str, int]], Sizes]:
    """A function from the values of symbols to the values of `sizes`."""
    known = [as_int(size) for size in sizes]
    fixed = tuple(size for size in known if size is not None)
    if len(fixed) == len(sizes):
        return lambda symbols: fixed
    return lambda symbols: tuple([evaluate(size, symbols) for size in sizes])


def _number(row: SymbolRange, value: Any, name: str) -> int:
    """The value of a symbol in this call, from the size or the number that determines it; WrongInput if it is not in
    the exported range.
    """
    given: int = value.shape[row.dim] if row.dim is not None else _whole(value, name)
    found, rest = divmod(given - row.shift, row.scale)
    if rest or (row.low is not None and found < row.low) or (row.high is not None and found > row.high):
        low, high = ("any" if end is None else row.scale * end + row.shift for end in (row.low, row.high))
        where = "it" if row.dim is None else f"its size in dimension {row.dim}"
        steps = f" in steps of {row.scale}" if row.scale != 1 else ""
        raise WrongInput(name, f"{where} is {given}, and {low} to {high}{steps} was exported")
    return found


def _whole(value: Any, name: str) -> int:
    if type(value) is not int:
        raise WrongInput(name, f"it is a {type(value).__name__}, and a whole number was exported")
    return value


def _check_value(leaf: Leaf, value: Any) -> None:
    if type(value) is not type(leaf.value) or not (value == leaf.value or value != value):
        raise WrongInput(leaf.name, f"it is {value!r}, and {leaf.value!r} was exported")
