"""Evaluates a Program by calls of torch on whole tensors, one operation at a time.

Takes a Program at any stage, its inputs and lifted constants. Gives the outputs, exactly as the IR defines them. (Eager
may differ: a fused program may round elsewhere.) Refuses nothing that `verify` accepts. A program for a GPU runs on the
CPU if its tensors are there (runtime/reference/gpu_operators_on_cpu.py). It shares no code with codegen, so that each
can be tested against the other.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor

from minductor.core.dtypes import DType
from minductor.core.expressions import expr as exprs
from minductor.ir.program import nodes as ir
from minductor.ir.program.size_sources import size_source
from minductor.runtime.launch.control_flow import CONTROL
from minductor.runtime.launch.result_checks import leaves
from minductor.runtime.reference.gpu_operators_on_cpu import ON_CPU


def run_program(
    program: ir.Program,
    inputs: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    run_kernel: RunKernel | None = None,
) -> tuple[Any, ...]:
    """The program's outputs. Inputs that the program mutates are written.

    `run_kernel` computes one kernel; without it, each operation of a kernel's body is one step for all its points.
    """
    state = State(program, constants or {}, run_kernel or _run_body)
    state.enter(inputs)
    for node in program.nodes:
        match node:
            case ir.Kernel():
                with state.on(node):
                    state.run_kernel(state, node)
            case ir.Extern():
                state.extern(node)
            case ir.SymbolDef(symbol, body, _):
                state.sizes[symbol.name] = KernelRun(state, ()).body(body, ())[0].item()
            case ir.Require(body, message, _):
                if not KernelRun(state, ()).body(body, ())[0].item():
                    raise RuntimeError(message)
    state.leave(inputs)
    return tuple(state.value(output) for output in program.outputs)


LONG_SCAN = 2048  # elements: longer ones are not walked one by one


@dataclass
class State:
    """The storage versions as flat tensors. A write makes a copy of the version before it."""

    program: ir.Program
    constants: Mapping[str, Any]  # what the program refers to by name: tensors and other objects
    run_kernel: RunKernel
    sizes: dict[str, Any] = field(default_factory=dict)
    flat: dict[ir.Ref, Tensor] = field(default_factory=dict)  # but a packed weight of oneDNN, which has no storage
    is_imagined: bool = False  # the program is for a GPU, but its tensors are on the CPU

    def place(self, device: str) -> torch.device:
        return torch.device("cpu" if self.is_imagined else device)

    def on(self, kernel: ir.Kernel) -> AbstractContextManager[Any]:
        """A context in which new tensors are on the kernel's device."""
        table = self.program.buffer_table()
        refs = (*ir.writes(kernel), *ir.reads(kernel))  # an input of a program of one kernel need not be a buffer
        place = next((self.place(table[ref.storage].device) for ref in refs if ref.storage in table), None)
        return nullcontext() if place is None or place.type == "cpu" else place

    def enter(self, inputs: Sequence[Any]) -> None:
        given = [value for value in (*inputs, *self.constants.values()) if isinstance(value, Tensor)]
        self.is_imagined = not any(t.is_cuda for t in given) and (bool(given) or not torch.cuda.is_available())
        for given, value in zip(self.program.inputs, inputs, strict=True):
            if given.symbol is None:
                self.flat[ir.Ref(given.name, 0)] = value if value.is_mkldnn else _flat(value).clone()
            elif isinstance(given.symbol, exprs.Symbol):
                self.sizes[given.symbol.name] = value
        for name, value in self.constants.items():
            if isinstance(value, Tensor):
                self.flat[ir.Ref(name, 0)] = _flat(value)

    def leave(self, inputs: Sequence[Any]) -> None:
        """Copies the newest versions of mutated inputs back to the inputs."""
        for given, value in zip(self.program.inputs, inputs, strict=True):
            newest = max((r.version for r in self.flat if r.storage == given.name), default=0)
            if given.symbol is None and newest:
                _flat(value).copy_(self.flat[ir.Ref(given.name, newest)])

    def number(self, expr: exprs.Expr) -> Any:
        """The value of an expression: an int, or a float or bool if it is a symbol for one."""
        return exprs.evaluate(expr, self.sizes)

    def row(self, sizes: Sequence[exprs.Expr]) -> list[int]:
        return [self.number(s) for s in sizes]

    def open(self, ref: ir.Ref) -> Tensor:
        """A new version: a copy of the version before, or NaN (-1 for integers) if there is none."""
        if ref in self.flat:
            return self.flat[ref]
        before = [r for r in self.flat if r.storage == ref.storage and r.version < ref.version]
        if before:
            made = self.flat[max(before)].clone()
        else:
            buffer = self.program.buffer_table()[ref.storage]
            spans = [(n - 1) * s for n, s in zip(self.row(buffer.size), self.row(buffer.stride), strict=True)]
            empty = any(n == 0 for n in self.row(buffer.size))
            dtype = torch_dtype(buffer.dtype)
            poison = math.nan if dtype.is_floating_point else 0
            made = torch.full((0 if empty else 1 + sum(spans),), poison, dtype=dtype, device=self.place(buffer.device))
        self.flat[ref] = made
        return made

    def value(self, given: ir.Argument) -> Any:
        """An argument of an extern call, or a result."""
        match given:
            case ir.View(ref, _, size, stride, offset):
                flat = self.open(ref)
                if flat.is_mkldnn:
                    return flat
                return flat.as_strided(self.row(size), self.row(stride), self.number(offset))
            case ir.Region():
                return self.region(given)
            case ir.Token("external", name):
                return self.constants[name]
            case ir.Token("operator", name):
                return attrgetter(name)(torch.ops)
            case exprs.Expr():
                return self.number(given)
            case DType():
                return torch_dtype(given)
            case ir.Token("device", name):
                return self.place(name)
            case ir.Token(_, name):
                return getattr(torch, name)
            case tuple():
                return [self.value(v) for v in given]
            case _:
                return given

    def extern(self, node: ir.Extern) -> None:
        function = CONTROL.get(node.op) if any(isinstance(a, ir.Region) for a in node.args) else None
        function = function or (ON_CPU.get(node.op) if self.is_imagined else None) or attrgetter(node.op)(torch.ops)
        for ref in node.writes:
            self.open(ref)
        moved = {ir.Ref(r.storage, r.version - 1): r for r in node.writes}
        given = [self.value(_newest(a, moved)) for a in node.args]
        named = {name: self.value(_newest(value, moved)) for name, value in node.kwargs}
        if node.form == "out":
            named["out"] = self.value(node.results[0]) if isinstance(node.results[0], ir.View) else None
        result = function(*given, **named)
        if node.form == "out":
            return
        results = list(zip(node.results, leaves(result), strict=False))
        for symbol in node.defines:
            number, dim, scale, shift = size_source(node, symbol) or (0, 0, 1, 0)
            self.sizes[symbol.name] = (results[number][1].size(dim) - shift) // scale
        for place, made in results:
            if isinstance(place, exprs.Symbol):
                self.sizes[place.name] = made
        for place, made in results:
            # of another size than was traced: nobody may read it
            if isinstance(place, ir.View) and tuple(made.shape) == tuple(self.row(place.size)):
                kept = made.new_empty_strided(made.shape, self.row(place.stride)).copy_(made)
                self.flat[place.ref] = _flat(kept)

    def region(self, given: ir.Region) -> Callable[..., tuple[Any, ...]]:
        program = next(p for p in self.program.regions if p.name == given.name)
        sizes = self.row(given.sizes)
        return lambda *args: run_program(program, [*sizes, *args], self.constants, self.run_kernel)


# Computes one kernel: reads and writes the versions of the state.
RunKernel: TypeAlias = Callable[[State, ir.Kernel], None]


def _run_body(state: State, kernel: ir.Kernel) -> None:
    KernelRun(state, kernel.axes).body(kernel.body, ())


def _rounded(value: Tensor, dtype: DType) -> Tensor:
    """A value rounded to `dtype`. Torch has no tf32, which drops the last 13 bits of a float32: half of the last kept
    bit is added first.
    """
    if dtype.name != "tf32":
        return value.to(torch_dtype(dtype)).to(torch.float32)
    bits = value.contiguous().view(torch.int32)
    rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    return torch.where(value.isfinite(), rounded, value)


def _newest(value: ir.Argument, moved: Mapping[ir.Ref, ir.Ref]) -> ir.Argument:
    """The version that an in-place call writes, which it also reads."""
    match value:
        case ir.View(ref, dtype, size, stride, offset):
            return ir.View(moved.get(ref, ref), dtype, size, stride, offset)
        case tuple():
            return tuple(_newest(v, moved) for v in value)
        case _:
            return value


def as_real_numbers(flat: Tensor) -> Tensor:
    """A tensor as kernels address it: complex numbers are pairs of real and imaginary parts."""
    return torch.view_as_real(flat).view(-1) if flat.is_complex() else flat


def _flat(tensor: Tensor) -> Tensor:
    """The storage from the tensor's first element to its last, in one dimension."""
    tensor = tensor.detach()
    if tensor.numel() == 0:
        return tensor.as_strided((0,), (1,))
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((extent,), (1,))


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch.dtype of a dtype."""
    return getattr(torch, dtype.torch_name)


class KernelRun:
    """One kernel. Each value is a tensor with a dimension for each kernel axis, of size 1 where it does not vary."""

    def __init__(self, state: State, axes: Sequence[Any]) -> None:
        self.state = state
        self.names = [axis.name for axis in axes]
        self.extents = [state.number(axis.extent) for axis in axes]
        self.symbols: dict[str, Tensor] = {}
        for n, name in enumerate(self.names):
            shape = [1] * len(axes)
            shape[n] = self.extents[n]
            self.symbols[name] = torch.arange(self.extents[n]).reshape(shape)
        for name, size in state.sizes.items():
            number = torch.tensor(size, dtype=torch.float64) if isinstance(size, float) else torch.tensor(size)
            self.symbols.setdefault(name, number.reshape([1] * len(axes)))

    def body(self, body: ir.Body, given: Sequence[Tensor], mask: Tensor | None = None) -> list[Tensor]:
        values: list[Any] = []
        for op in body.ops:
            values.append(self.op(op, [values[a] for a in op.args], given, mask))
        return [values[r] for r in body.results]

    def op(self, op: ir.Op, args: list[Any], given: Sequence[Tensor], mask: Tensor | None) -> Any:
        match op.attrs:
            case ir.Constant(value):
                return torch.full([1] * len(self.names), value, dtype=self.dtype(op))
            case ir.Index(expr):
                return self.index(expr)
            case ir.Load(ref, index):
                return self.load(ref, index, self.dtype(op), mask)
            case ir.Store(ref, index):
                self.write(op, ref, index, args[0], None)
            case ir.Atomic(ref, index, kind):
                self.write(op, ref, index, args[0], kind)
            case ir.Check() as check:
                found = self.symbols[check.symbol.name] = _checked(args[0], self.state.number(check.size), mask, check)
                return found
            case ir.Parameter(number):
                return given[number]
            case ir.Masked(inner, other):
                where = args[0] if mask is None else args[0] & mask
                (value,) = self.body(inner, args[1:], where)
                return torch.where(args[0], value, torch.tensor(other, dtype=value.dtype))
            case ir.Reduce(axes, how):
                return self.reduce(args, axes, how)
            case ir.Scan(axis, how, reverse):
                return self.scan(args, axis, how, reverse=reverse)
            case ir.Project(number):
                return args[0][number]
            case ir.Round(dtype):
                return _rounded(args[0], dtype)
            case ir.Assert(message):
                if not builtins.bool(_first(args[0]).all()):
                    raise RuntimeError(message)
            case None:
                args = [_first(a) for a in args]
                if op.name in ("cast", "bitcast"):
                    return args[0].to(self.dtype(op)) if op.name == "cast" else args[0].view(self.dtype(op))
                return SPELLING[op.name](*args)
        return _first(args[0])

    def dtype(self, op: ir.Op) -> torch.dtype:
        assert op.dtype is not None
        return torch_dtype(op.dtype)

    def index(self, expr: exprs.Expr) -> Tensor:
        """The value of an index expression."""
        match expr:
            case exprs.Const(value):
                return torch.full([1] * len(self.names), value, dtype=torch.int64)
            case exprs.Symbol(name):
                return self.symbols[name]
            case exprs.Sum(const, terms):
                total: Any = sum((self.index(term) * factor for term, factor in terms), start=const)
                return total
            case exprs.Product(factors):
                return functools.reduce(torch.mul, map(self.index, factors))
            case exprs.FloorDiv(num, den):
                return torch.div(self.index(num), self.index(den), rounding_mode="floor")
            case exprs.Mod(num, den):
                return torch.remainder(self.index(num), self.index(den))
            case exprs.Min(args):
                return functools.reduce(torch.minimum, map(self.index, args))
            case exprs.Max(args):
                return functools.reduce(torch.maximum, map(self.index, args))
            case exprs.Identity(arg):
                return self.index(arg)
            case _:
                raise TypeError(f"no way to evaluate {expr!r}")

    def load(self, ref: ir.Ref, index: exprs.Expr, dtype: torch.dtype, mask: Tensor | None) -> Tensor:
        at = self.index(index)
        flat = as_real_numbers(self.state.open(ref))
        if mask is not None:
            at = torch.where(mask, at, 0)
        if flat.numel() == 0 or at.numel() == 0:
            return torch.zeros(at.shape, dtype=dtype)
        return flat[at].to(dtype)

    def write(self, op: ir.Op, ref: ir.Ref, index: exprs.Expr, value: Any, kind: str | None) -> None:
        """Writes each point of the operation's own axes once."""
        shape = [n if name in op.axes else 1 for name, n in zip(self.names, self.extents, strict=True)]
        at = self.index(index).expand(shape).reshape(-1)
        flat = as_real_numbers(self.state.open(ref))
        source = _first(value).expand(shape).reshape(-1).to(flat.dtype)
        if kind == "set":
            for place, value in zip(at.tolist(), source, strict=True):  # the last wins
                flat[place] = value
        elif kind is None:
            flat[at] = source
        else:
            flat.scatter_reduce_(0, at, source, {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"}[kind])

    def reduce(self, args: list[Any], axes: Sequence[str], how: ir.Combine) -> tuple[Tensor, ...]:
        dims = [self.names.index(a) for a in axes]
        values = torch.broadcast_tensors(*(self.whole(_first(a), dims) for a in args))
        if how.name in ("sum", "prod") and values[0].is_floating_point():  # in the order torch likes
            value = values[0]
            for d in dims:
                value = value.sum(d, keepdim=True) if how.name == "sum" else value.prod(d, keepdim=True)
            return (value,)
        return self.fold(values, dims, how)

    def fold(self, values: Sequence[Tensor], dims: Sequence[int], how: ir.Combine) -> tuple[Tensor, ...]:
        """The values combined along dimensions, which then have size 1."""
        kept = [d for d in range(len(self.names)) if d not in dims]
        count = math.prod(values[0].shape[d] for d in dims)
        rows = [v.permute(*kept, *dims).reshape(*(v.shape[d] for d in kept), count) for v in values]
        made = self.halve(rows, how)
        shape = [1 if d in dims else values[0].shape[d] for d in range(len(self.names))]
        return tuple(m.reshape(shape) for m in made)

    def whole(self, value: Tensor, dims: Sequence[int]) -> Tensor:
        return value.expand([self.extents[d] if d in dims else n for d, n in enumerate(value.shape)])

    def halve(self, rows: list[Tensor], how: ir.Combine) -> list[Tensor]:
        """Combines the last dimension away, in halves, starting from the identity."""
        start = [torch.full((*r.shape[:-1], 1), i, dtype=r.dtype) for r, i in zip(rows, how.identity, strict=True)]
        rows = [torch.cat([s, r], -1) for s, r in zip(start, rows, strict=True)]
        while (n := rows[0].shape[-1]) > 1:
            half = n // 2
            left, right = [r[..., :half] for r in rows], [r[..., half : 2 * half] for r in rows]
            joined = combine_values(how, left, right)
            rows = [torch.cat([j, r[..., 2 * half :]], -1) for j, r in zip(joined, rows, strict=True)]
        return rows

    def scan(self, args: list[Any], axis: str, how: ir.Combine, *, reverse: bool) -> tuple[Tensor, ...]:
        dim = self.names.index(axis)
        values = torch.broadcast_tensors(*(self.whole(_first(a), [dim]) for a in args))
        if self.extents[dim] > LONG_SCAN:
            return _doubling(how, values, dim, reverse=reverse)
        steps = range(self.extents[dim])
        carried = [torch.full_like(v.narrow(dim, 0, 1), i) for v, i in zip(values, how.identity, strict=True)]
        made = [v.clone() for v in values]
        for step in reversed(steps) if reverse else steps:
            carried = combine_values(how, carried, [v.narrow(dim, step, 1) for v in values])
            for m, c in zip(made, carried, strict=True):
                m.narrow(dim, step, 1).copy_(c)
        return tuple(made)


def _doubling(how: ir.Combine, values: Sequence[Tensor], dim: int, *, reverse: bool) -> tuple[Tensor, ...]:
    """A scan in log2(n) steps: each combines values of twice the distance."""
    rows = [v.movedim(dim, -1).flip(-1) if reverse else v.movedim(dim, -1) for v in values]
    rows = combine_values(how, [torch.full_like(r, i) for r, i in zip(rows, how.identity, strict=True)], rows)
    distance = 1
    while distance < rows[0].shape[-1]:
        joined = combine_values(how, [r[..., :-distance] for r in rows], [r[..., distance:] for r in rows])
        rows = [torch.cat([r[..., :distance], j], -1) for r, j in zip(rows, joined, strict=True)]
        distance *= 2
    return tuple((r.flip(-1) if reverse else r).movedim(-1, dim) for r in rows)


def combine_values(how: ir.Combine, left: Sequence[Tensor], right: Sequence[Tensor]) -> list[Tensor]:
    """Two groups of carried values, combined by the combine's body."""
    given = [*left, *right]
    values: list[Tensor] = []
    for op in how.body.ops:
        args = [values[a] for a in op.args]
        match op.attrs:
            case ir.Parameter(number):
                values.append(given[number])
            case ir.Constant(value):
                assert op.dtype is not None
                values.append(torch.full((), value, dtype=torch_dtype(op.dtype)))
            case _:
                values.append(SPELLING[op.name](*args))
    return [values[r] for r in how.body.results]


def _first(value: Any) -> Tensor:
    return value[0] if isinstance(value, tuple) else value


def _checked(value: Tensor, size: int, mask: Tensor | None, check: ir.Check) -> Tensor:
    value = value.to(torch.int64)
    at = torch.where(value < 0, value + size, value) if check.wrap else value
    wrong = (at < 0) | (at >= size)
    wrong = wrong if mask is None else wrong & mask
    if bool(wrong.any()):
        kind = AssertionError if check.error is None else getattr(builtins, check.error)
        first = value.expand(wrong.shape)[wrong][0].item()
        raise kind(check.message.format(value=f" {first}", size=size))
    return at.clamp(0, max(size - 1, 0))


def _philox(seed: Tensor, stream: Tensor, counter: Tensor) -> Tensor:
    """Philox4x32-10 in 64-bit integers, of which each holds one 32-bit word."""
    low = 0xFFFFFFFF

    def product(word: Tensor, factor: int) -> tuple[Tensor, Tensor]:
        """The high and the low word of a product, computed from halves to avoid overflow."""
        lower, upper = word * (factor & 0xFFFF), word * (factor >> 16)
        middle = upper + (lower >> 16)
        return middle >> 16, ((middle & 0xFFFF) << 16) | (lower & 0xFFFF)

    keys = [seed & low, (seed >> 32) & low]
    words = [counter & low, (counter >> 32) & low, stream & low, torch.zeros_like(stream)]
    for _ in range(10):
        (high0, low0), (high1, low1) = product(words[0], 0xD2511F53), product(words[2], 0xCD9E8D57)
        words = [high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0]
        keys = [(keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low]
    return words[0] | (words[1] << 32)


_SAME_NAME = (
    "neg abs sign floor ceil round trunc square relu bitwise_not logical_not sqrt reciprocal rsqrt exp exp2 "
    "expm1 log log2 log10 log1p sigmoid tanh sin cos tan erf erfc erfinv asin acos atan sinh cosh asinh acosh "
    "atanh lgamma digamma isnan isinf signbit add sub mul maximum minimum fmax fmin bitwise_and bitwise_or "
    "bitwise_xor copysign div fmod pow atan2 hypot nextafter eq ne lt le gt ge logical_and logical_or "
    "logical_xor where"
)

_SPECIAL: Mapping[str, str] = {
    **{f"k{n}": f"modified_bessel_k{n}" for n in (0, 1)},
    **{f"k{n}e": f"scaled_modified_bessel_k{n}" for n in (0, 1)},
    **{name: name for name in ("i0", "i0e", "i1", "i1e", "erfcx", "ndtri", "zeta")},
    **{f"chebyshev_{kind}": f"chebyshev_polynomial_{kind}" for kind in "tuvw"},
    **{n: n.replace("_", "_polynomial_") for n in ("hermite_h", "hermite_he", "laguerre_l", "legendre_p")},
}

SPELLING: Mapping[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in _SAME_NAME.split()},
    **{name: getattr(torch.special, theirs) for name, theirs in _SPECIAL.items()},
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "fast_div": torch.div,
    "fast_exp": torch.exp,
    "fast_sigmoid": torch.sigmoid,
    "fast_erf": torch.erf,
    "fast_tanh": torch.tanh,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "mod": torch.remainder,
    "philox": _philox,
    "fma": lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype),
}
